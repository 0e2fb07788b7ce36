//! What durable appends of 4 KiB cost, beside bare durable writes to the same file, in turn.
//!
//! `cargo run --release -p nebula --example figures -- FILE [ROUNDS] [APPENDS]`

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use block::{Device, Disk, Durable, FileDevice, Options};
use nebula::extents::{ExtentServer, FormatOptions};
use nebula::streams::StreamServer;
use nebula::{Epoch, PAGE, Record, Writer};
use rt::Handle;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const LEN: u64 = 512 << 20;
const PIECE: u64 = 1 << 20;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("FILE [ROUNDS] [APPENDS]")?;
    let mut number = |default: u32| args.next().map_or(Ok(default), |word| word.parse());
    let (rounds, appends) = (number(5)?, number(2000)?);
    let device = FileDevice::open(Path::new(&path), &Options::create(LEN))?;
    let disk = Disk::open(&device, 64)?;
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    let _polled = handle.register_poller(disk.poller());
    println!(
        "{}: {appends} a round, {rounds} rounds, medians",
        device.name()
    );
    core.block_on(measure(&handle, &device, &disk, rounds, appends))
}

async fn measure(
    handle: &Handle,
    device: &FileDevice,
    disk: &Disk,
    rounds: u32,
    appends: u32,
) -> Outcome<()> {
    // A file system that gives a file its blocks unwritten commits a change of its own for each first write.
    for at in (0..LEN).step_by(PIECE as usize) {
        let mut zeros = disk.buffer(PIECE as usize);
        zeros.fill(0);
        disk.write(zeros, at, Durable::No).await.0?;
    }
    disk.flush().await?;
    for depth in [1, 16, 64] {
        let streams = formatted(handle, device, disk).await?;
        let mut figures = [Vec::new(), Vec::new(), Vec::new()];
        let mut writes = 0;
        for round in 0..rounds {
            let before = disk.counts().writes;
            figures[0].push(append(handle, &streams, depth, appends).await?);
            writes += disk.counts().writes - before;
            // Segments are used in turn, and a few rounds do not get here.
            let at = LEN / 2 + u64::from(round % 4) * (LEN / 16);
            figures[1].push(write(handle, disk, depth, appends, PAGE, at).await?);
            figures[2].push(write(handle, disk, depth, appends, 2 * PAGE, at).await?);
        }
        let [appended, bare, bare_frame] = figures.map(median);
        println!(
            "depth {depth:>2}: append 4 KiB {appended:>8.0}/s ({:.2} writes each); write 4 KiB {bare:>8.0}/s, \
             8 KiB {bare_frame:>8.0}/s; append/write {:.2}",
            writes as f64 / f64::from(rounds * appends),
            appended / bare
        );
    }
    Ok(())
}

/// Streams on a device without any.
async fn formatted(handle: &Handle, device: &FileDevice, disk: &Disk) -> Outcome<StreamServer> {
    let mut options = FormatOptions::new(1, 2);
    options.force = true;
    options.segment_bytes = 16 << 20;
    ExtentServer::format(device, disk, &options).await?;
    let extents = ExtentServer::open(handle, device, disk).await?;
    let engine = meta::Model::new(3).handle();
    Ok(StreamServer::open(handle, engine, vec![extents]).await?)
}

/// Appends a second, of so many tasks, to a new stream.
async fn append(handle: &Handle, streams: &StreamServer, depth: u32, appends: u32) -> Outcome<f64> {
    let stream = streams.create().await?;
    let writer = streams.open_for_writing(stream, Epoch(1)).await?;
    let left = Rc::new(Cell::new(appends));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..depth)
        .map(|_| handle.spawn(append_until(writer.clone(), left.clone())))
        .collect();
    for task in tasks {
        task.await??;
    }
    let rate = f64::from(appends) / begun.elapsed().as_secs_f64();
    writer.close().await?;
    streams.delete(stream).await?;
    Ok(rate)
}

async fn append_until(writer: Writer, left: Rc<Cell<u32>>) -> Result<(), nebula::StreamError> {
    while take(&left) {
        let mut record: Record = writer.record(b"a head of some bytes", 1);
        record.payload_mut()[..8].copy_from_slice(&left.get().to_le_bytes().repeat(2));
        writer.append(record, Durable::Yes).await?;
    }
    Ok(())
}

/// Durable writes a second, one after the other on the device, of so many tasks.
async fn write(
    handle: &Handle,
    disk: &Disk,
    depth: u32,
    writes: u32,
    len: usize,
    at: u64,
) -> Outcome<f64> {
    let left = Rc::new(Cell::new(writes));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let (disk, left) = (disk.clone(), left.clone());
            handle.spawn(async move {
                while take(&left) {
                    let mut buf = disk.buffer(len);
                    buf[..4].copy_from_slice(&left.get().to_le_bytes());
                    let at = at + u64::from(left.get()) * len as u64;
                    disk.write(buf, at, Durable::Yes).await.0?;
                }
                Ok::<(), block::BlockError>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(f64::from(writes) / begun.elapsed().as_secs_f64())
}

fn take(left: &Cell<u32>) -> bool {
    let is_left = left.get() > 0;
    left.set(left.get().saturating_sub(1));
    is_left
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
