//! What a dataunit does on this machine, beside the device itself.
//!
//! `cargo run --release -p filelayer --example filelayer -- DIR [TABLE...]`: `write`, `read`, `recover`, `space`

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use block::{Disk, Durable, FileDevice, Options as FileOptions};
use filelayer::{DataUnit, Fid, Mark, Options, PAGE, Stability, UnitId, UnitStreams};
use nebula::Epoch;
use nebula::extents::{ExtentServer, FormatOptions};
use nebula::streams::StreamServer;
use rt::{Core, Handle};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const BLOCKS: usize = 64;
const BLOCK_PAGES: usize = 256;
const DEVICE: u64 = 2 << 30;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (dir, tables) = args.split_first().ok_or("say where")?;
    let is_wanted = |name: &str| tables.is_empty() || tables.iter().any(|table| table == name);
    let mut core = Core::new(rt::Config::default())?;
    let handle = core.handle();
    core.block_on(async {
        let bench = Bench::new(&handle, Path::new(dir)).await?;
        if is_wanted("write") {
            bench.writes().await?;
        }
        if is_wanted("read") {
            bench.reads().await?;
        }
        if is_wanted("recover") {
            bench.recover().await?;
        }
        if is_wanted("space") {
            bench.space().await?;
        }
        Ok(())
    })
}

/// A dataunit on one file, and another file of the same kind to compare with.
struct Bench {
    core: Handle,
    streams: StreamServer,
    of: UnitStreams,
    beside: Disk,
}

fn mark() -> Mark {
    Mark {
        handle: [1; 12],
        end: 0,
        truncate_epoch: 0,
        snapshot_epoch: 1,
    }
}

impl Bench {
    async fn new(core: &Handle, dir: &Path) -> Result<Self> {
        let device = FileDevice::open(dir.join("filelayer.disk"), &FileOptions::create(DEVICE))?;
        let disk = Disk::open(&device, 128)?;
        core.register_poller(disk.poller()).detach();
        // What was never written costs more at the first write.
        write_all(&disk, DEVICE).await?;
        let mut options = FormatOptions::new(1, 2);
        options.force = true;
        options.segment_bytes = 16 << 20;
        ExtentServer::format(&device, &disk, &options).await?;
        let extents = ExtentServer::open(core, &device, &disk).await?;
        let engine = meta::Model::new(3).handle();
        let streams = StreamServer::open(core, engine, vec![extents]).await?;
        let of = DataUnit::create(&streams).await?;
        let len = (BLOCKS * BLOCK_PAGES * PAGE) as u64;
        let device = FileDevice::open(dir.join("beside.disk"), &FileOptions::create(len))?;
        let beside = Disk::open(&device, 128)?;
        core.register_poller(beside.poller()).detach();
        write_all(&beside, len).await?;
        Ok(Self {
            core: core.clone(),
            streams,
            of,
            beside,
        })
    }

    async fn open(&self, cache_bytes: usize) -> Result<DataUnit> {
        let epoch = Epoch(self.streams.epoch(self.of.data).await?.0 + 1);
        let mut options = Options::default();
        options.cache_bytes = cache_bytes;
        let unit = UnitId::new(1).ok_or("a number")?;
        Ok(DataUnit::open(&self.core, &self.streams, unit, self.of, epoch, options).await?)
    }

    async fn filled(&self, unit: &DataUnit, blocks: usize) -> Result<Vec<Fid>> {
        let fids = unit.allocate(blocks).await?;
        let bytes = vec![5; BLOCK_PAGES * PAGE];
        for fid in &fids {
            unit.write(*fid, 0, &bytes, mark(), Stability::Unstable)
                .await?;
        }
        unit.commit(&[]).await?;
        Ok(fids)
    }

    /// Operations a second of `count` operations, `depth` at a time.
    async fn rate<F, W>(&self, depth: usize, count: usize, work: F) -> Result<f64>
    where
        F: Fn(fastrand::Rng, usize) -> W,
        W: Future<Output = ()> + 'static,
    {
        let began = Instant::now();
        let each = count / depth;
        let tasks: Vec<_> = (0..depth)
            .map(|task| {
                self.core
                    .spawn(work(fastrand::Rng::with_seed(task as u64), each))
            })
            .collect();
        for task in tasks {
            task.await?;
        }
        Ok((each * depth) as f64 / began.elapsed().as_secs_f64())
    }

    async fn writes(&self) -> Result<()> {
        let unit = self.open(0).await?;
        let fids = Rc::new(self.filled(&unit, BLOCKS).await?);
        println!("4 KiB stable random writes a second, medians of 5 alternating rounds");
        for depth in [1, 16, 64] {
            let count = 400 * depth.min(16);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..5 {
                let write = |mut rng: fastrand::Rng, count| {
                    let (unit, fids) = (unit.clone(), fids.clone());
                    async move {
                        for _ in 0..count {
                            let fid = fids[rng.usize(..BLOCKS)];
                            let offset = (rng.usize(..BLOCK_PAGES) * PAGE) as u32;
                            let write =
                                unit.write(fid, offset, &[9; PAGE], mark(), Stability::Stable);
                            write.await.expect("written");
                        }
                    }
                };
                ours.push(self.rate(depth, count, write).await?);
                let write = |mut rng: fastrand::Rng, count| {
                    let disk = self.beside.clone();
                    async move {
                        for _ in 0..count {
                            let at = (rng.usize(..BLOCKS * BLOCK_PAGES) * PAGE) as u64;
                            let (written, _) =
                                disk.write(disk.buffer(PAGE), at, Durable::Yes).await;
                            written.expect("written");
                        }
                    }
                };
                theirs.push(self.rate(depth, count, write).await?);
            }
            show(depth, ours, theirs);
        }
        unit.close().await?;
        Ok(())
    }

    async fn reads(&self) -> Result<()> {
        let unit = self.open(0).await?;
        let fids = Rc::new(self.filled(&unit, BLOCKS).await?);
        println!("4 KiB random reads a second without a cache, medians of 5 alternating rounds");
        for depth in [1, 16, 64] {
            let count = 2000 * depth.min(8);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..5 {
                let read = |mut rng: fastrand::Rng, count| {
                    let (unit, fids) = (unit.clone(), fids.clone());
                    async move {
                        let mut out = Vec::with_capacity(PAGE);
                        for _ in 0..count {
                            let fid = fids[rng.usize(..BLOCKS)];
                            let offset = (rng.usize(..BLOCK_PAGES) * PAGE) as u32;
                            out.clear();
                            let read = unit.read(fid, offset, PAGE as u32, &mut out);
                            read.await.expect("read");
                        }
                    }
                };
                ours.push(self.rate(depth, count, read).await?);
                let read = |mut rng: fastrand::Rng, count| {
                    let disk = self.beside.clone();
                    async move {
                        for _ in 0..count {
                            let at = (rng.usize(..BLOCKS * BLOCK_PAGES) * PAGE) as u64;
                            disk.read(disk.buffer(PAGE), at).await.0.expect("read");
                        }
                    }
                };
                theirs.push(self.rate(depth, count, read).await?);
            }
            show(depth, ours, theirs);
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let began = Instant::now();
            let mut out = Vec::with_capacity(1 << 20);
            for fid in fids.iter() {
                out.clear();
                unit.read(*fid, 0, 1 << 20, &mut out).await?;
            }
            ours.push(fids.len() as f64 / began.elapsed().as_secs_f64());
            let began = Instant::now();
            for at in (0..BLOCKS as u64).map(|at| at << 20) {
                self.beside.read(self.beside.buffer(1 << 20), at).await.0?;
            }
            theirs.push(BLOCKS as f64 / began.elapsed().as_secs_f64());
        }
        println!("1 MiB reads one after the other, MiB/s");
        show(1, ours, theirs);
        unit.close().await?;
        Ok(())
    }

    async fn recover(&self) -> Result<()> {
        let unit = self.open(0).await?;
        self.filled(&unit, 1024).await?;
        println!(
            "index: {} bytes for {} pages",
            unit.index_bytes(),
            unit.space().await?.valid
        );
        unit.close().await?;
        let began = Instant::now();
        let unit = self.open(0).await?;
        let (s, read) = (began.elapsed().as_secs_f64(), unit.recovery());
        println!(
            "from the data alone: {s:.2} s, {:.0} MB/s: {read:?}",
            read.bytes as f64 / s / 1e6
        );
        let began = Instant::now();
        let bytes = unit.checkpoint().await?;
        println!(
            "a checkpoint of {bytes} bytes: {:.3} s",
            began.elapsed().as_secs_f64()
        );
        unit.close().await?;
        let began = Instant::now();
        let unit = self.open(0).await?;
        println!(
            "from it: {:.3} s: {:?}",
            began.elapsed().as_secs_f64(),
            unit.recovery()
        );
        unit.close().await?;
        Ok(())
    }

    /// Random overwrites of what fills four fifths of the device, with compaction beside them.
    async fn space(&self) -> Result<()> {
        let unit = self.open(0).await?;
        let there = unit.space().await?.valid;
        let blocks = ((DEVICE / PAGE as u64 * 4 / 5).saturating_sub(there) as usize) / BLOCK_PAGES;
        let fids = self.filled(&unit, blocks.min(1600)).await?;
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut worst, mut copied, mut refused) = (0.0f64, 0u64, 0u64);
        let writes = 400_000u64;
        for nth in 0..writes / 16 {
            let batch: Vec<_> = (0..16)
                .map(|_| {
                    let (unit, fid) = (unit.clone(), fids[rng.usize(..fids.len())]);
                    let offset = (rng.usize(..BLOCK_PAGES) * PAGE) as u32;
                    self.core.spawn(async move {
                        unit.write(fid, offset, &[9; PAGE], mark(), Stability::Unstable)
                            .await
                    })
                })
                .collect();
            for write in batch {
                refused += u64::from(write.await?.is_err());
            }
            copied += u64::from(unit.step(64).await?.pages);
            if nth.is_multiple_of(64) {
                let space = unit.space().await?;
                worst = worst.max(space.pages as f64 / space.valid as f64);
            }
        }
        let space = unit.space().await?;
        println!(
            "{} of {} pages valid; amplification {worst:.3} at worst, {:.3} at the end; {copied} pages copied for {writes} written, {refused} refused",
            space.valid,
            DEVICE / PAGE as u64,
            space.pages as f64 / space.valid as f64
        );
        Ok(())
    }
}

async fn write_all(disk: &Disk, len: u64) -> Result<()> {
    for at in (0..len).step_by(1 << 20) {
        let mut buf = disk.buffer(1 << 20);
        buf.fill(1);
        disk.write(buf, at, Durable::No).await.0?;
    }
    Ok(disk.flush().await?)
}

fn show(depth: usize, mut ours: Vec<f64>, mut theirs: Vec<f64>) {
    ours.sort_by(f64::total_cmp);
    theirs.sort_by(f64::total_cmp);
    let (ours, theirs) = (ours[ours.len() / 2], theirs[theirs.len() / 2]);
    println!(
        "depth {depth:>2}: {ours:>8.0}, the device {theirs:>8.0}, {:.2} of it",
        ours / theirs
    );
}
