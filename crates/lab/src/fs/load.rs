//! The load: our own client over NFSv4.1, one connection, as many slots as requests are under way.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use hdrhistogram::Histogram;
use nfs::client::{Client, ClientError, Files, OpenFile, OpenHow, Options};
use nfs::wire::*;
use nfs::xdr::Opaque;
use rt::net::Addr;

use super::FsScale;

/// Bytes of a small request.
pub(super) const SMALL: usize = 4096;
/// Bytes of a request of a stream.
pub(super) const LARGE: usize = 1 << 20;
/// Spreads consecutive numbers over a power of two, each one once.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The file that is read and written at random.
const DATA: &str = "data";
/// The file that streams go to.
const STREAM: &str = "stream";
/// The directory whose files' attributes are asked for.
const MANY: &str = "many";

/// What a Linux client asks for to fill an inode.
const OF_INODE: Bitmap4 = Bitmap4::of(&[
    FATTR4_TYPE,
    FATTR4_CHANGE,
    FATTR4_SIZE,
    FATTR4_FSID,
    FATTR4_FILEID,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_SPACE_USED,
    FATTR4_TIME_ACCESS,
    FATTR4_TIME_METADATA,
    FATTR4_TIME_MODIFY,
    FATTR4_MOUNTED_ON_FILEID,
]);

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// WRITE of 4 KiB at a random place of a file, FILE_SYNC.
    Write,
    /// READ of 4 KiB at a random place.
    Read,
    /// READ of 4 KiB, no place twice.
    ReadOnce,
    /// OPEN that makes a file, and CLOSE; each request under way has its own open-owner.
    Create,
    /// GETATTR of one of many files.
    Stat,
    /// A file that is written from its beginning, 1 MiB at a time, and a COMMIT.
    StreamWrite,
    /// The same file read.
    StreamRead,
}

impl Load {
    /// Whether bytes are counted, not requests.
    pub(super) fn is_stream(self) -> bool {
        matches!(self, Load::StreamWrite | Load::StreamRead)
    }
}

/// When a turn ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// After so long.
    Time(Duration),
    /// After so many requests.
    Count(u64),
}

/// What a turn has come to.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) requests: u64,
    pub(super) elapsed: Duration,
    /// Nanoseconds of each request.
    pub(super) latency: Histogram<u64>,
}

impl Done {
    /// Requests a second, or millions of bytes.
    pub(super) fn rate(&self, load: Load) -> f64 {
        let per_second = self.requests as f64 / self.elapsed.as_secs_f64();
        if load.is_stream() {
            per_second * LARGE as f64 / 1e6
        } else {
            per_second
        }
    }
}

/// One turn at a server.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) load: Load,
    pub(super) depth: usize,
    pub(super) until: Until,
    /// Repeats the places exactly; names the directory that files are made in.
    pub(super) seed: u64,
}

/// Keeps so many requests under way until the end; `ask` is given which of them it is, and the request's number.
pub(super) async fn drive<F, A>(
    core: &rt::Handle,
    depth: usize,
    until: Until,
    ask: F,
) -> anyhow::Result<Done>
where
    F: Fn(usize, u64) -> A + Clone + 'static,
    A: Future<Output = anyhow::Result<()>> + 'static,
{
    let latency = Rc::new(RefCell::new(Histogram::new(3)?));
    let next = Rc::new(Cell::new(0));
    let began = Instant::now();
    let tasks: Vec<_> = (0..depth)
        .map(|worker| {
            let (ask, latency, next) = (ask.clone(), latency.clone(), next.clone());
            core.spawn(async move {
                loop {
                    let number = next.get();
                    let is_over = match until {
                        Until::Time(length) => began.elapsed() >= length,
                        Until::Count(count) => number >= count,
                    };
                    if is_over {
                        return anyhow::Ok(());
                    }
                    next.set(number + 1);
                    let asked = Instant::now();
                    ask(worker, number).await?;
                    let nanoseconds = asked.elapsed().as_nanos() as u64;
                    latency.borrow_mut().record(nanoseconds)?;
                }
            })
        })
        .collect();
    for task in tasks {
        let asked = task.await;
        asked.map_err(|error| anyhow!("a task of the load: {error:?}"))??;
    }
    let elapsed = began.elapsed();
    let latency = latency.borrow().clone();
    ensure!(!latency.is_empty(), "no request was answered");
    Ok(Done {
        requests: latency.len(),
        elapsed,
        latency,
    })
}

/// Runs something on a core of its own, pinned to a CPU if there is one.
pub(super) fn on_core<T: Send>(
    cpu: Option<usize>,
    work: impl AsyncFnOnce(&rt::Handle) -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(cpu) = cpu {
                ensure!(bench::machine::pin(cpu), "the kernel refuses CPU {cpu}");
            }
            let mut core = rt::Core::new(rt::Config::default())?;
            let handle = core.handle();
            core.block_on(work(&handle))
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A place among so many, a power of two, for a request's number.
pub(super) fn place_of(load: Load, number: u64, seed: u64, places: u64) -> u64 {
    if load == Load::ReadOnce {
        number.wrapping_add(seed).wrapping_mul(SPREAD) & (places - 1)
    } else {
        fastrand::Rng::with_seed(seed ^ number.wrapping_mul(SPREAD)).u64(..places)
    }
}

async fn connect(core: &rt::Handle, server: SocketAddr, depth: usize) -> anyhow::Result<Client> {
    let name = format!("lab {} {}", std::process::id(), fastrand::u64(..));
    let mut options = Options::new(name, fastrand::u64(..));
    options.slots = depth as u32;
    let client = Client::connect(core, &Addr::Tcp(server), options).await;
    client.with_context(|| format!("no NFS server answers at {server}"))
}

/// Makes the files that the loads use.
pub(super) async fn prepare(
    core: &rt::Handle,
    server: SocketAddr,
    scale: &FsScale,
) -> anyhow::Result<()> {
    let client = connect(core, server, 16).await?;
    let files = Files::new(client.clone());
    for (name, bytes) in [(DATA, scale.file_bytes), (STREAM, scale.stream_bytes)] {
        fill(&files, name, bytes).await?;
    }
    files.make_directory(MANY, 0o755).await?;
    for number in 0..scale.files {
        fill(&files, &format!("{MANY}/{number}"), 1).await?;
    }
    Ok(client.close().await?)
}

/// Writes a file of random bytes.
pub(super) async fn fill(files: &Files, path: &str, bytes: u64) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut left = bytes;
    let written = files.write(path, 0o644, async |piece: &mut Vec<u8>| {
        piece.resize(left.min(LARGE as u64) as usize, 0);
        random.fill(piece);
        left -= piece.len() as u64;
        Ok::<(), ClientError>(())
    });
    let written = written.await.with_context(|| path.to_string())?;
    ensure!(written == bytes, "{path}: {written} of {bytes} bytes");
    Ok(())
}

/// Writes a file by a client of its own.
pub(super) async fn fill_alone(
    core: &rt::Handle,
    server: SocketAddr,
    bytes: u64,
) -> anyhow::Result<()> {
    let client = connect(core, server, 16).await?;
    fill(&Files::new(client.clone()), DATA, bytes).await?;
    Ok(client.close().await?)
}

/// Asks for the file's length, as somebody who wants to know whether a server is there.
pub(super) async fn length(core: &rt::Handle, server: SocketAddr) -> anyhow::Result<u64> {
    let client = connect(core, server, 1).await?;
    let found = Files::new(client.clone()).find(DATA).await?;
    client.close().await?;
    Ok(found.size)
}

impl Turn {
    /// Takes its turn at a server.
    pub(super) async fn run(
        &self,
        core: &rt::Handle,
        server: SocketAddr,
        scale: &FsScale,
    ) -> anyhow::Result<Done> {
        let client = connect(core, server, self.depth).await?;
        let done = match self.load {
            Load::Write | Load::Read | Load::ReadOnce => self.small(core, &client, scale).await,
            Load::Create => self.create(core, &client).await,
            Load::Stat => self.stat(core, &client, scale).await,
            Load::StreamWrite | Load::StreamRead => self.stream(core, &client, scale).await,
        };
        let done = done?;
        client.close().await?;
        Ok(done)
    }

    async fn small(
        &self,
        core: &rt::Handle,
        client: &Client,
        scale: &FsScale,
    ) -> anyhow::Result<Done> {
        let file = Rc::new(open(client, DATA, None).await?);
        let (load, seed) = (self.load, self.seed);
        let places = scale.file_bytes / SMALL as u64;
        let until = match (load, self.until) {
            (Load::ReadOnce, Until::Count(count)) => Until::Count(count.min(places)),
            (_, until) => until,
        };
        let mut data = vec![0; SMALL];
        fastrand::Rng::with_seed(seed).fill(&mut data);
        let (asked, data) = (file.clone(), Rc::new(data));
        let done = drive(core, self.depth, until, move |_, number| {
            let (file, data) = (asked.clone(), data.clone());
            let offset = place_of(load, number, seed, places) * SMALL as u64;
            async move {
                let len = match load {
                    Load::Write => {
                        file.write_at(offset, &data, StableHow4::FILE_SYNC4)
                            .await?
                            .0
                    }
                    _ => read(&file, offset, SMALL).await?,
                };
                ensure!(len == SMALL, "{len} bytes of {SMALL}");
                Ok(())
            }
        });
        let done = done.await?;
        close(file).await?;
        Ok(done)
    }

    async fn create(&self, core: &rt::Handle, client: &Client) -> anyhow::Result<Done> {
        let files = Files::new(client.clone());
        let name = format!("new {}", self.seed);
        files.make_directory(&name, 0o755).await?;
        let directory: Rc<[u8]> = files.find(&name).await?.handle.into();
        let client = client.clone();
        drive(core, self.depth, self.until, move |worker, number| {
            let (client, directory) = (client.clone(), directory.clone());
            async move {
                let owner = format!("owner {worker}");
                let how = OpenHow {
                    owner: owner.as_bytes(),
                    read: false,
                    write: true,
                    create: Some(0o644),
                };
                let name = format!("file {number}");
                let made = OpenFile::open(&client, &directory, &name, &how).await?;
                Ok(made.close().await?)
            }
        })
        .await
    }

    async fn stat(
        &self,
        core: &rt::Handle,
        client: &Client,
        scale: &FsScale,
    ) -> anyhow::Result<Done> {
        let files = Files::new(client.clone());
        let many = files.find(MANY).await?;
        let mut handles = Vec::new();
        let mut take = |found: Vec<nfs::client::Entry>| {
            handles.extend(found.into_iter().map(|entry| entry.found.handle));
        };
        files.list(&many, &mut take).await?;
        ensure!(handles.len() == scale.files, "{} files", handles.len());
        let (client, handles) = (client.clone(), Rc::new(handles));
        drive(core, self.depth, self.until, move |_, number| {
            let (client, handles) = (client.clone(), handles.clone());
            async move {
                let handle = &handles[number as usize % handles.len()];
                let operations = [
                    NfsArgop4::Putfh(Putfh4Args {
                        object: Opaque(handle),
                    }),
                    NfsArgop4::Getattr(Getattr4Args {
                        attr_request: OF_INODE,
                    }),
                ];
                client.call(&operations).await?.ok()?;
                Ok(())
            }
        })
        .await
    }

    async fn stream(
        &self,
        core: &rt::Handle,
        client: &Client,
        scale: &FsScale,
    ) -> anyhow::Result<Done> {
        let load = self.load;
        let create = (load == Load::StreamWrite).then_some(0o644);
        let file = Rc::new(open(client, STREAM, create).await?);
        let mut data = vec![0; LARGE];
        fastrand::Rng::with_seed(self.seed).fill(&mut data);
        let (asked, data) = (file.clone(), Rc::new(data));
        let until = Until::Count(scale.stream_bytes / LARGE as u64);
        let began = Instant::now();
        let done = drive(core, self.depth, until, move |_, number| {
            let (file, data) = (asked.clone(), data.clone());
            let offset = number * LARGE as u64;
            async move {
                let len = match load {
                    Load::StreamWrite => {
                        file.write_at(offset, &data, StableHow4::UNSTABLE4).await?.0
                    }
                    _ => read(&file, offset, LARGE).await?,
                };
                ensure!(len == LARGE, "{len} bytes of {LARGE}");
                Ok(())
            }
        });
        let mut done = done.await?;
        if load == Load::StreamWrite {
            file.commit().await?;
            done.elapsed = began.elapsed();
        }
        close(file).await?;
        Ok(done)
    }
}

async fn open(client: &Client, name: &str, create: Option<u32>) -> anyhow::Result<OpenFile> {
    let how = OpenHow {
        owner: b"lab",
        read: true,
        write: true,
        create,
    };
    let root = Files::new(client.clone()).find("/").await?;
    Ok(OpenFile::open(client, &root.handle, name, &how).await?)
}

/// Closes a file that nobody uses any more.
async fn close(file: Rc<OpenFile>) -> anyhow::Result<()> {
    let file = Rc::into_inner(file).context("the file is in use")?;
    Ok(file.close().await?)
}

async fn read(file: &OpenFile, offset: u64, len: usize) -> Result<usize, ClientError> {
    let took = async |_: &[u8]| Ok::<(), ClientError>(());
    let (read, _) = file.read_at(offset, len as u32, took).await?;
    Ok(read as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_read_once_differ() {
        let places = 1 << 10;
        let mut all: Vec<u64> = (0..places)
            .map(|number| place_of(Load::ReadOnce, number, 7, places))
            .collect();
        assert!(!all.is_sorted());
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..places));
        assert!((0..100).all(|number| place_of(Load::Read, number, 7, places) < places));
    }
}
