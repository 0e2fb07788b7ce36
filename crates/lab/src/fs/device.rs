//! The same requests of the bare device: a file that is written once before, past the page cache.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use anyhow::ensure;
use block::{Device as _, Disk, Durable, FileDevice, Options};

use super::load::{Done, LARGE, Load, SMALL, Turn, Until, drive, place_of};

/// Requests under way at most.
const DEPTH: usize = 64;

/// A file as a device.
pub(super) struct BareFile {
    path: PathBuf,
    len: u64,
}

impl BareFile {
    /// Makes one and writes every block of it once: a file's first write of a block costs the file system more
    /// than the device.
    pub(super) async fn make(core: &rt::Handle, path: &Path, len: u64) -> anyhow::Result<Self> {
        let device = FileDevice::open(path, &Options::create(len))?;
        let disk = Disk::open(&device, DEPTH)?;
        let _polled = core.register_poller(disk.poller());
        let mut random = fastrand::Rng::with_seed(len);
        for at in (0..len).step_by(LARGE) {
            let mut buf = disk.buffer(LARGE.min((len - at) as usize));
            random.fill(&mut buf);
            disk.write(buf, at, Durable::No).await.0?;
        }
        disk.flush().await?;
        Ok(Self {
            path: path.to_path_buf(),
            len,
        })
    }

    /// Takes a turn.
    pub(super) async fn run(&self, core: &rt::Handle, turn: &Turn) -> anyhow::Result<Done> {
        let device = FileDevice::open(&self.path, &Options::existing())?;
        let disk = Disk::open(&device, DEPTH)?;
        let _polled = core.register_poller(disk.poller());
        let (load, seed) = (turn.load, turn.seed);
        let size = if load.is_stream() { LARGE } else { SMALL };
        let places = device.geometry().len / size as u64;
        let until = if load.is_stream() {
            Until::Count(self.len / LARGE as u64)
        } else {
            turn.until
        };
        let mut data = vec![0; size];
        fastrand::Rng::with_seed(seed).fill(&mut data);
        let (asked, data) = (disk.clone(), Rc::new(data));
        let began = Instant::now();
        let mut done = drive(core, turn.depth, until, move |_, number| {
            let (disk, data) = (asked.clone(), data.clone());
            let place = match load.is_stream() {
                true => number % places,
                false => place_of(load, number, seed, places),
            };
            async move {
                let mut buf = disk.buffer(size);
                let at = place * size as u64;
                let (result, _) = match load {
                    Load::Write | Load::StreamWrite => {
                        buf.copy_from_slice(&data);
                        let durable = match load {
                            Load::Write => Durable::Yes,
                            _ => Durable::No,
                        };
                        disk.write(buf, at, durable).await
                    }
                    Load::Read | Load::ReadOnce | Load::StreamRead => disk.read(buf, at).await,
                    Load::Create | Load::Stat => anyhow::bail!("a device has no files"),
                };
                Ok(result?)
            }
        })
        .await?;
        if load == Load::StreamWrite {
            disk.flush().await?;
            done.elapsed = began.elapsed();
        }
        ensure!(disk.is_idle(), "a request is under way");
        Ok(done)
    }
}
