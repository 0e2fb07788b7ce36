//! Commits a second of an embedded engine: `commits DIR [SECONDS]`.
//!
//! Tasks of one core commit transactions of one row each, one after the other; then four rows and two
//! comparisons each, as a create does. What one durable write of the same device costs is measured between.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use block::{Disk, Durable, Engine, FileDevice};
use meta::{Embedded, HandleMaker, Options, Outcome, Range, Transaction};
use rt::{Config, Core};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args_os().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("usage: commits DIR [SECONDS]")?);
    let seconds = arguments
        .next()
        .and_then(|word| word.to_str()?.parse().ok());
    let each = Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let mut sides = Vec::new();
    for calls in [Engine::Uring, Engine::Blocking] {
        let dir = dir.join(calls.name());
        let id = u128::from(fastrand::u64(..));
        let meta = Embedded::open(&dir, &Options::create(id).with_calls(calls))?;
        let raw = block::Options::create(4 << 20).with_engine(calls);
        let raw = FileDevice::open(dir.join("raw"), &raw)?;
        // What follows writes over what is there, as the journal does.
        writes(&raw, 1024, Duration::MAX)?;
        sides.push((calls, meta, raw, vec![Vec::new(); 2 + 2 * DEPTHS.len()]));
    }
    for _ in 0..5 {
        for (_, meta, raw, rounds) in &mut sides {
            rounds[0].push(writes(raw, usize::MAX, each)?);
            let kinds = [1, 4].into_iter();
            let kinds = kinds.flat_map(|rows| DEPTHS.map(|depth| (rows, depth)));
            for (at, (rows, depth)) in kinds.enumerate() {
                rounds[1 + at].push(commits(&meta.maker(), depth, rows, each)?);
            }
            let last = rounds.len() - 1;
            rounds[last].push(reads(&meta.maker(), each)?);
        }
    }
    for (calls, meta, _, mut rounds) in sides {
        println!("journal by {calls}");
        show("one durable write of 4 KiB, depth 1", &mut rounds[0]);
        for (at, (rows, depth)) in [1, 4]
            .into_iter()
            .flat_map(|rows| DEPTHS.map(|depth| (rows, depth)))
            .enumerate()
        {
            let name = format!("commits of {rows} rows, depth {depth}");
            show(&name, &mut rounds[1 + at]);
        }
        let last = rounds.len() - 1;
        show("reads of a row beside commits", &mut rounds[last]);
        println!("{:?}", meta.counts());
        meta.close()?;
    }
    Ok(())
}

const DEPTHS: [usize; 3] = [1, 16, 64];

fn show(name: &str, rounds: &mut [(f64, f64)]) {
    let mut median = |part: fn(&(f64, f64)) -> f64| {
        rounds.sort_by(|a, b| part(a).total_cmp(&part(b)));
        part(&rounds[rounds.len() / 2])
    };
    let (rate, p99_us) = (median(|round| round.0), median(|round| round.1));
    println!("{name:38} {rate:>10.0}/s  p99 {p99_us:>7.0} us");
}

/// The rate, and the time that one of a hundred exceeds.
fn measured(mut latencies: Vec<Duration>, took: Duration) -> (f64, f64) {
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100);
    let p99_us = p99.map_or(0.0, |p99| p99.as_secs_f64() * 1e6);
    (latencies.len() as f64 / took.as_secs_f64(), p99_us)
}

fn writes(device: &FileDevice, most: usize, each: Duration) -> Result<(f64, f64), Failure> {
    let disk = Disk::open(device, 1)?;
    let mut buf = disk.buffer(4096);
    buf.fill(1);
    let (began, mut latencies) = (Instant::now(), Vec::new());
    while latencies.len() < most && began.elapsed() < each {
        let write = Instant::now();
        let at = latencies.len() as u64 % 1024 * 4096;
        let (result, back) = disk.block_on(disk.write(buf, at, Durable::Yes));
        result?;
        buf = back;
        latencies.push(write.elapsed());
    }
    Ok(measured(latencies, began.elapsed()))
}

fn commits(
    maker: &HandleMaker,
    depth: usize,
    rows: usize,
    each: Duration,
) -> Result<(f64, f64), Failure> {
    let mut core = Core::new(Config::default())?;
    let handle = core.handle();
    let began = Instant::now();
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let engine = maker.handle();
            let mut rng = fastrand::Rng::new();
            handle.spawn(async move {
                let mut latencies = Vec::new();
                while began.elapsed() < each {
                    let mut transaction = Transaction::new();
                    for row in 0..rows {
                        let key = rng.u64(..).to_be_bytes();
                        if row % 2 == 1 {
                            transaction.absent(key)?;
                        }
                        transaction.put(key, [7; 100])?;
                    }
                    let commit = Instant::now();
                    let outcome = engine.commit(transaction).await?;
                    latencies.push(commit.elapsed());
                    if !matches!(outcome, Outcome::Committed(_)) {
                        return Err(format!("{outcome:?}").into());
                    }
                }
                Ok::<_, Failure>(latencies)
            })
        })
        .collect();
    let latencies = core.block_on(async {
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.map_err(|_| "a task has panicked")??);
        }
        Ok::<_, Failure>(all)
    })?;
    Ok(measured(latencies, began.elapsed()))
}

/// Reads of rows by one task, while another commits.
fn reads(maker: &HandleMaker, each: Duration) -> Result<(f64, f64), Failure> {
    let busy = {
        let maker = maker.clone();
        std::thread::spawn(move || {
            commits(&maker, 16, 1, each)
                .map(drop)
                .map_err(|error| error.to_string())
        })
    };
    let mut core = Core::new(Config::default())?;
    let engine = maker.handle();
    let (began, mut latencies) = (Instant::now(), Vec::new());
    let keys = core.block_on(engine.scan(Range::all(), 10_000))?;
    core.block_on(async {
        for (key, _) in keys.iter().cycle() {
            let read = Instant::now();
            if read - began > each {
                break;
            }
            engine.get(key).await?;
            latencies.push(read.elapsed());
        }
        Ok::<_, Failure>(())
    })?;
    busy.join().map_err(|_| "the load has panicked")??;
    Ok(measured(latencies, began.elapsed()))
}
