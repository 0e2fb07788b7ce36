//! The run: steps one after the other, each of which may fail without ending it. In each step the sides take turns, so that
//! what else runs on the machine weighs on all alike.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bench::machine::allowed_cpus;
use bench::measured::median;
use bench::{Measured, Rounds};
use tempfile::TempDir;

use super::device::BareFile;
use super::load::{self, Done, Load, Turn, Until, on_core};
use super::servers::{Ganesha, Ours, PACKAGES, Pages};
use super::{FS_FORMAT, FsRecord, FsScale, Point, Recovered, Side, Syncs, place};
use crate::goals::FsRatios;
use crate::report::run::{Progress, Step, run_steps};
use crate::report::{Commit, Head};
use crate::shim::echo;

/// Requests under way in the measurements that have goals.
const DEEP: usize = 16;
/// Requests under way of a stream.
const OF_STREAM: usize = 8;
/// How much of what is called cached has to come from our cache.
const CACHED: f64 = 0.99;
/// Files that are made while system calls are counted.
const TRACED: u64 = 50;
/// Requests whose round trip is measured over the loopback.
const PINGS: usize = 10_000;
/// The recovery that has a goal.
const RECOVERED: u64 = 1_000_000_000;

/// The settings of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct FsRun {
    /// How much.
    pub scale: FsScale,
    /// Where the temporary files go.
    pub dir: PathBuf,
    /// Repeats the requests exactly.
    pub seed: u64,
    /// What the program was built from.
    pub commit: Commit,
    /// The command line, for the report.
    pub flags: Vec<String>,
    /// Parts of names: only steps with one of them run; all when there are none.
    pub only: Vec<String>,
}

/// What a step is given.
struct Stage<'s> {
    scale: &'s FsScale,
    servers: &'s mut Servers,
    tell: &'s mut dyn FnMut(&str),
}

/// Who takes turns, and where their files are.
struct Servers {
    // Processes end before their directory goes.
    ours: Ours,
    ganesha: Option<Ganesha>,
    device: BareFile,
    load_cpu: Option<usize>,
    server_cpus: Vec<usize>,
    /// Of the next turn.
    seed: u64,
    dir: TempDir,
}

/// A side of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Ours,
    Ganesha,
    Device,
}

type Run = fn(&mut Stage<'_>, &mut FsRecord) -> anyhow::Result<()>;

const STEPS: [Step<Run>; 9] = [
    ("stable writes of 4 KiB", writes),
    ("reads of 4 KiB, cached", reads),
    ("reads of 4 KiB, cold", cold_reads),
    ("creates", creates),
    ("attributes", attributes),
    ("streams", streams),
    ("what NFS-Ganesha syncs", syncs),
    ("the loopback", loopback),
    ("recovery", recovery),
];

impl FsRun {
    /// Measures. A step that fails is left out of the record, which says so.
    ///
    /// # Errors
    /// No step is called as `only` says, or our server does not start.
    pub fn run(&self, progress: &mut Progress<'_>) -> anyhow::Result<FsRecord> {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|word| word.parse().ok());
        let mut record = FsRecord {
            head: Head::new(FS_FORMAT, self.commit.clone()),
            scale: self.scale.name.to_string(),
            flags: self.flags.clone(),
            file_system: place::file_system(&self.dir),
            ganesha: Ganesha::version(),
            load_average: load.unwrap_or_default(),
            cache_bytes: self.scale.ours.1,
            file_bytes: self.scale.file_bytes,
            ..FsRecord::default()
        };
        progress("preparing", "files on both servers and on the device");
        let (scale, only) = (&self.scale, &self.only);
        let mut servers = Servers::start(self, &mut record.head)?;
        run_steps(&STEPS, only, &mut record, progress, |step, tell, record| {
            let servers = &mut servers;
            step(
                &mut Stage {
                    scale,
                    servers,
                    tell,
                },
                record,
            )
        })?;
        Ok(record)
    }
}

impl Servers {
    /// Starts both, and makes the files that they are asked for.
    fn start(run: &FsRun, head: &mut Head) -> anyhow::Result<Self> {
        let FsRun {
            scale, dir, seed, ..
        } = run;
        // The last CPU is the load's, all others are the servers'.
        let mut server_cpus = allowed_cpus();
        let load_cpu = (server_cpus.len() > 1).then(|| server_cpus.pop()).flatten();
        let failed = || format!("cannot use {}", dir.display());
        let dir = tempfile::Builder::new()
            .prefix("vervain-fs-")
            .tempdir_in(dir)
            .with_context(failed)?;
        let ours = Ours::start(dir.path().join("ours"), scale.ours, &server_cpus)?;
        let ganesha = if Ganesha::version().is_none() {
            head.leave_out("NFS-Ganesha", PACKAGES, false);
            None
        } else {
            let started = Ganesha::start(dir.path().join("ganesha"), &server_cpus);
            let failed = |error| head.leave_out("NFS-Ganesha", format!("{error:#}"), true);
            started.map_err(failed).ok()
        };
        let device = dir.path().join("device");
        let device = on_core(load_cpu, async |core| {
            BareFile::make(core, &device, scale.file_bytes).await
        })?;
        let addresses = [
            Some(ours.address()?),
            ganesha.as_ref().map(Ganesha::address),
        ];
        for server in addresses.into_iter().flatten() {
            on_core(load_cpu, async |core| {
                load::prepare(core, server, scale).await
            })?;
        }
        Ok(Servers {
            ours,
            ganesha,
            device,
            load_cpu,
            server_cpus,
            seed: *seed,
            dir,
        })
    }

    fn turn(&self, who: Who, turn: &Turn, scale: &FsScale) -> anyhow::Result<Done> {
        let server = match who {
            Who::Ours => self.ours.address()?,
            Who::Ganesha => {
                let ganesha = self.ganesha.as_ref();
                ganesha.context("NFS-Ganesha does not run")?.address()
            }
            Who::Device => {
                return on_core(self.load_cpu, async |core| {
                    self.device.run(core, turn).await
                });
            }
        };
        let done = on_core(self.load_cpu, async |core| {
            turn.run(core, server, scale).await
        });
        done.with_context(|| format!("{who:?}, {:?}", turn.load))
    }
}

impl Servers {
    /// Has a server read all of what a load reads, so that it may have it in memory.
    fn warm(&mut self, who: Who, load: Load, scale: &FsScale) -> anyhow::Result<()> {
        self.seed += 1;
        let turn = Turn {
            load,
            depth: DEEP,
            until: Until::Count(scale.file_bytes / load::SMALL as u64),
            seed: self.seed,
        };
        self.turn(who, &turn, scale).map(drop)
    }
}

impl Stage<'_> {
    /// Both servers, and the device if it can be asked for that, in turn. What is to be done before each turn is not measured.
    fn point(
        &mut self,
        name: &str,
        (load, depth): (Load, usize),
        with_device: bool,
        mut before: impl FnMut(Who, &mut Servers) -> anyhow::Result<()>,
    ) -> anyhow::Result<Point> {
        let mut sides = vec![Who::Ours];
        sides.extend(self.servers.ganesha.is_some().then_some(Who::Ganesha));
        sides.extend(with_device.then_some(Who::Device));
        let mut pages = Pages::default();
        let rounds = Rounds::alternate(self.scale.rounds, sides.len(), |side| {
            let who = sides[side];
            (self.tell)(&format!("{name}, depth {depth}: {who:?}"));
            before(who, self.servers)?;
            self.servers.seed += 1;
            let turn = Turn {
                load,
                depth,
                until: Until::Time(self.scale.slice),
                seed: self.servers.seed,
            };
            let had = self.servers.ours.pages()?;
            let done = self.servers.turn(who, &turn, self.scale)?;
            pages.add(self.servers.ours.pages()?.since(had));
            anyhow::Ok(done)
        })?;
        let of = |who| {
            let side = sides.iter().position(|side| *side == who);
            side.map(|side| figures(load, rounds.figures(side)))
                .transpose()
        };
        Ok(Point {
            load: name.to_string(),
            depth,
            unit: if load.is_stream() { "MB" } else { "requests" },
            ours: of(Who::Ours)?.context("nothing was measured")?,
            ganesha: of(Who::Ganesha)?,
            device: of(Who::Device)?,
            ours_from_cache: pages.cached_share(),
        })
    }

    /// Both servers in turn, each of which has read all of it before.
    fn cached(
        &mut self,
        name: &str,
        (load, depth): (Load, usize),
        warm: Load,
    ) -> anyhow::Result<Point> {
        let scale = self.scale;
        let before = |who, servers: &mut Servers| servers.warm(who, warm, scale);
        let point = self.point(name, (load, depth), false, before)?;
        is_cached(point.ours_from_cache)?;
        Ok(point)
    }
}

/// Whether what our server had in its cache is enough to call all of it cached.
fn is_cached(share: Option<f64>) -> anyhow::Result<()> {
    let share = share.context("nothing was read")?;
    let percent = |share: f64| share * 100.0;
    let (had, wanted) = (percent(share), percent(CACHED));
    ensure!(
        share >= CACHED,
        "our cache had {had:.1} % of what was read, which is not called cached below {wanted:.0} %"
    );
    Ok(())
}

/// The medians of a side's turns.
fn figures(load: Load, turns: &[Done]) -> anyhow::Result<Side> {
    let rates: Vec<f64> = turns.iter().map(|done| done.rate(load)).collect();
    let percentile_us = |percent: f64| {
        median(turns.iter().map(|done| {
            let nanoseconds = done.latency.value_at_percentile(percent);
            nanoseconds as f64 / 1e3
        }))
    };
    Ok(Side {
        rate: Measured::of(&rates).context("nothing was measured")?,
        p50_us: percentile_us(50.0),
        p99_us: percentile_us(99.0),
    })
}

fn nothing(_: Who, _: &mut Servers) -> anyhow::Result<()> {
    Ok(())
}

/// Measures a load at depth 1 and at the depth that has a goal.
fn both_depths(
    stage: &mut Stage<'_>,
    record: &mut FsRecord,
    name: &str,
    load: Load,
    with_device: bool,
) -> anyhow::Result<()> {
    for depth in [1, DEEP] {
        let point = stage.point(name, (load, depth), with_device, nothing)?;
        record.points.push(point);
    }
    Ok(())
}

fn writes(stage: &mut Stage<'_>, record: &mut FsRecord) -> anyhow::Result<()> {
    let name = "write 4 KiB, stable";
    both_depths(stage, record, name, Load::Write, true)?;
    let point = record.point(name, DEEP).context("no figure")?.clone();
    record.ratios = FsRatios {
        fs_write4k_stable_vs_ganesha: point.vs_ganesha(),
        fs_random_write_vs_device: point.vs_device(),
        fs_write4k_p99_ms: Some(point.ours.p99_us / 1e3),
        ..record.ratios
    };
    Ok(())
}

fn reads(stage: &mut Stage<'_>, record: &mut FsRecord) -> anyhow::Result<()> {
    let name = "read 4 KiB, cached";
    for depth in [1, DEEP] {
        let point = stage.cached(name, (Load::Read, depth), Load::ReadOnce)?;
        record.points.push(point);
    }
    let points = [1, DEEP].map(|depth| record.point(name, depth));
    let ratios = points.map(|point| point.and_then(Point::vs_ganesha));
    // The worse of the two.
    let worst = ratios.into_iter().flatten().reduce(f64::min);
    let p99_us = points[1].map(|point| point.ours.p99_us);
    record.ratios.fs_read4k_vs_ganesha = worst;
    record.ratios.fs_read4k_p99_ms = p99_us.map(|us| us / 1e3);
    Ok(())
}

/// Has a side forget what it has cached.
fn forget(who: Who, servers: &mut Servers) -> anyhow::Result<()> {
    match who {
        Who::Ours => servers.ours.restart(),
        Who::Ganesha => match &servers.ganesha {
            Some(ganesha) => place::forget(ganesha.data()),
            None => Ok(()),
        },
        // It caches nothing.
        Who::Device => Ok(()),
    }
}

fn cold_reads(stage: &mut Stage<'_>, record: &mut FsRecord) -> anyhow::Result<()> {
    for depth in [1, DEEP] {
        let load = (Load::ReadOnce, depth);
        let point = stage.point("read 4 KiB, cold", load, true, forget)?;
        record.points.push(point);
    }
    Ok(())
}

fn creates(stage: &mut Stage<'_>, record: &mut FsRecord) -> anyhow::Result<()> {
    let name = "create and close";
    both_depths(stage, record, name, Load::Create, false)?;
    let point = record.point(name, DEEP);
    record.ratios.fs_create_vs_ganesha = point.and_then(Point::vs_ganesha);
    Ok(())
}

fn attributes(stage: &mut Stage<'_>, record: &mut FsRecord) -> anyhow::Result<()> {
    let name = "attributes";
    both_depths(stage, record, name, Load::Stat, false)?;
    let point = record.point(name, DEEP);
    record.ratios.fs_stat_vs_ganesha = point.and_then(Point::vs_ganesha);
    Ok(())
}

fn streams(stage: &mut Stage<'_>, record: &mut FsRecord) -> anyhow::Result<()> {
    let load = (Load::StreamWrite, OF_STREAM);
    let point = stage.point("stream written, with COMMIT", load, true, nothing)?;
    record.ratios.fs_seq_write_vs_ganesha = point.vs_ganesha();
    record.points.push(point);
    let load = (Load::StreamRead, OF_STREAM);
    let point = stage.cached("stream read, cached", load, Load::StreamRead)?;
    record.ratios.fs_seq_read_vs_ganesha = point.vs_ganesha();
    record.points.push(point);
    let point = stage.point("stream read, cold", load, true, forget)?;
    record.points.push(point);
    Ok(())
}

fn syncs(stage: &mut Stage<'_>, record: &mut FsRecord) -> anyhow::Result<()> {
    let servers = &mut *stage.servers;
    let Some(ganesha) = &servers.ganesha else {
        return Ok(());
    };
    servers.seed += 1;
    let turn = Turn {
        load: Load::Create,
        depth: 1,
        until: Until::Count(TRACED),
        seed: servers.seed,
    };
    let (done, syncs) = ganesha.syncs(|| servers.turn(Who::Ganesha, &turn, stage.scale))?;
    record.ganesha_syncs = Some(Syncs {
        creates: done.requests,
        syncs,
    });
    Ok(())
}

fn loopback(stage: &mut Stage<'_>, record: &mut FsRecord) -> anyhow::Result<()> {
    let servers = &stage.servers;
    let (Some(server), Some(load)) = (servers.server_cpus.first(), servers.load_cpu) else {
        let why = "both sides have a CPU of their own: two are needed";
        record.head.leave_out("the loopback", why, false);
        return Ok(());
    };
    record.loopback_us = Some(echo::measure([*server, load], false, PINGS)?);
    Ok(())
}

fn recovery(stage: &mut Stage<'_>, record: &mut FsRecord) -> anyhow::Result<()> {
    let Servers {
        dir,
        load_cpu,
        server_cpus,
        ..
    } = &*stage.servers;
    let bytes = stage.scale.recovery_bytes;
    (stage.tell)("writing");
    let mut ours = Ours::start(dir.path().join("crash"), stage.scale.ours, server_cpus)?;
    let server = ours.address()?;
    on_core(*load_cpu, async |core| {
        load::fill_alone(core, server, bytes).await
    })?;
    (stage.tell)("starting after kill -9");
    let began = Instant::now();
    ours.crash()?;
    let server = ours.address()?;
    let length = on_core(*load_cpu, async |core| load::length(core, server).await)?;
    let seconds = began.elapsed().as_secs_f64();
    ensure!(length == bytes, "{length} of {bytes} bytes are left");
    if bytes == RECOVERED {
        record.ratios.fs_recovery_1gb_s = Some(seconds);
    } else {
        let why = format!("only {bytes} bytes were written: see `recovery`");
        record.head.leave_out("recovery of 1 GB", why, false);
    }
    record.recovery = Some(Recovered { bytes, seconds });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_cached_was_in_the_cache() {
        let pages = |hits, misses| Pages { hits, misses };
        let share = |before: Pages, after: Pages| after.since(before).cached_share();
        assert_eq!(share(pages(7, 1), pages(7, 1)), None);
        assert_eq!(share(pages(7, 1), pages(106, 2)), Some(0.99));
        is_cached(share(pages(7, 1), pages(106, 2))).expect("99 %");
        let refused = is_cached(share(pages(7, 1), pages(105, 3))).expect_err("98 %");
        assert!(refused.to_string().contains("98.0 %"), "{refused}");
        assert!(is_cached(None).is_err());
    }

    /// A page of the cache takes 4 KiB and some 80 bytes; a sixteenth may be empty.
    #[test]
    fn the_cache_has_room_for_all_that_is_read() {
        for scale in [FsScale::standard(), FsScale::quick(), FsScale::tiny()] {
            let pages = (scale.file_bytes + scale.stream_bytes) / 4096 + scale.files as u64;
            let room = scale.ours.1 / (4096 + 80) / 16 * 15;
            assert!(pages <= room, "{}: {pages} pages in {room}", scale.name);
        }
    }
}
