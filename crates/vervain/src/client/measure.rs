//! `vervain bench cache` and `vervain bench limit`.

use std::io::{IsTerminal, Write};

use std::time::Duration;

use anyhow::anyhow;
use bench::cache::{Arrival, CacheRun, Length, LoadSweep, Pinning, RunError, Target};
use bench::machine::Placement;
use cache::herd::client::ConnectError;

use super::compare::{
    Progress, against, limit_of, load_pinning, nic_target, server_settings, start_ours,
    stop_servers_on_signals,
};
use super::door;
use crate::cli::{Arriving, BenchCache, BenchLimit, ClientFlags, Peer, open_nic};
use bench::limit::LimitRun;

fn target(flags: &ClientFlags) -> anyhow::Result<Target> {
    let door = door(flags);
    if flags.socket {
        return Ok(Target::Socket(door));
    }
    let context = open_nic(&flags.nic)?.context;
    Ok(Target::Nic { context, door })
}

/// Runs the benchmark; false when a value was wrong.
pub(crate) fn bench_cache(flags: &BenchCache, as_json: bool) -> anyhow::Result<bool> {
    // Where both sides have many measurements, each one is shorter.
    let (length, warm_up) = if flags.against.is_some() {
        (Duration::from_millis(500), Duration::from_millis(100))
    } else if flags.rate.is_some() {
        (Duration::from_secs(2), Duration::from_millis(200))
    } else {
        (Duration::from_secs(5), Duration::from_secs(1))
    };
    let settings = |target| CacheRun {
        mix: flags.mix,
        distribution: flags.distribution,
        items: flags.items,
        key_len: flags.key_size,
        value_len: flags.value_size,
        window: flags.window.unwrap_or(flags.multiget.max(16)),
        multiget: flags.multiget as usize,
        connections: flags.connections as usize,
        threads: flags.threads as usize,
        pinning: if flags.pin {
            Pinning::Last
        } else {
            Pinning::None
        },
        length: match flags.operations {
            Some(count) => Length::Operations(count),
            None => Length::Time(flags.length.unwrap_or(length)),
        },
        warm_up: Length::Time(flags.warm_up.unwrap_or(warm_up)),
        preload: !flags.no_preload,
        seed: flags.seed,
        verify: flags.verify,
        timeout: flags.client.timeout,
        ..CacheRun::new(target)
    };
    if let Some(Peer::Memcached) = flags.against {
        return against(flags, settings, as_json);
    }
    if flags.serve {
        let placement = Placement::split(flags.cores as usize);
        stop_servers_on_signals()?;
        let server = start_ours(&server_settings(flags, &placement))?;
        let target = if flags.client.socket {
            Target::Socket(server.address().clone())
        } else {
            nic_target(&server, &flags.client.nic)?
        };
        let run = CacheRun {
            pinning: load_pinning(&placement),
            ..settings(target)
        };
        return measure(flags, run, placement.ends(), as_json);
    }
    let run = settings(target(&flags.client)?);
    let ends = Placement::split(1);
    let ends = match (ends.load.last(), ends.server.first()) {
        (Some(&load), Some(&server)) if flags.pin => Some([load, server]),
        _ => None,
    };
    measure(flags, run, ends, as_json)
}

/// Runs and reports, beside the limit of the load's CPU and the server's.
fn measure(
    flags: &BenchCache,
    run: CacheRun,
    cpus: Option<[usize; 2]>,
    as_json: bool,
) -> anyhow::Result<bool> {
    let progress = Progress::new(as_json);
    let door = run.target.door().to_string();
    let explain = |error| match error {
        RunError::Io(error) | RunError::Connect(ConnectError::Io(error))
            if error.kind() == std::io::ErrorKind::ConnectionRefused =>
        {
            anyhow!("nobody answers on {door}; is `vervain serve` running? (--serve starts one)")
        }
        error => anyhow::Error::new(error).context("the benchmark did not finish"),
    };
    if let Some(rates) = &flags.rate {
        let sweep = LoadSweep {
            rates: rates.clone(),
            arrival: match flags.arrival {
                Arriving::Poisson => Arrival::Poisson,
                Arriving::Constant => Arrival::Constant,
            },
            run,
        };
        let tell = &mut |what: &str, step: usize, steps: usize| {
            progress.tell(&format!("{step}/{steps}  {what}"));
        };
        let mut report = sweep.run(tell).map_err(explain)?;
        progress.tell("the machine's limit");
        report.limit = limit_of(&sweep.run, cpus)?;
        drop(progress);
        let mut out = std::io::stdout().lock();
        if as_json {
            bench::print::write_json(&report, &mut out)?;
        } else {
            bench::print::write_loads(&report, &mut out)?;
        }
        return Ok(report.loads.iter().all(|load| load.counts.wrong == 0));
    }
    let report = run.run(&mut |stored, items| {
        let percent = stored * 100 / items.max(1);
        if stored == items {
            progress.tell("measuring");
        } else {
            progress.tell(&format!("storing items: {percent} %"));
        }
    });
    let mut report = report.map_err(explain)?;
    progress.tell("the machine's limit");
    report.limit = limit_of(&run, cpus)?;
    drop(progress);
    let mut out = std::io::stdout().lock();
    if as_json {
        bench::print::write_json(&report, &mut out)?;
    } else {
        bench::print::write_table(&report, &mut out)?;
    }
    Ok(report.counts.wrong == 0)
}

/// Measures what the machine can do.
pub(crate) fn bench_limit(flags: &BenchLimit, as_json: bool) -> anyhow::Result<bool> {
    let allowed = bench::machine::allowed_cpus();
    let ends = match (allowed.first(), allowed.last()) {
        (Some(one), Some(two)) if one != two => Some([*one, *two]),
        _ => None,
    };
    let run = LimitRun {
        cpus: flags.cpus.or(ends),
        each: flags.each,
        memory: flags.memory,
        ..LimitRun::default()
    };
    let shown = std::io::stderr().is_terminal() && !as_json;
    let report = run.run(&mut |name| {
        if shown {
            // Nothing to do about a stderr that is closed.
            let _ = write!(std::io::stderr(), "\r\x1b[Kmeasuring: {name}");
        }
    });
    if shown {
        // As above.
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let mut out = std::io::stdout().lock();
    if as_json {
        bench::print::write_json(&report, &mut out)?;
    } else {
        bench::print::write_limits(&report, &mut out)?;
    }
    Ok(true)
}
