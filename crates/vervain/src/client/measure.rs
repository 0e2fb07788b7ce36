//! `vervain bench cache` and `vervain bench limit`.

use std::io::{IsTerminal, Write};

use anyhow::{Context as _, bail};
use bench::cache::{CacheRun, Length, Pinning, Target};

use super::door;
use crate::cli::{BenchCache, BenchLimit, ClientFlags, open_nic};
use bench::limit::LimitRun;

fn target(flags: &ClientFlags) -> anyhow::Result<Target> {
    let door = door(flags);
    if flags.socket {
        return Ok(Target::Socket(door));
    }
    let (_, context) = open_nic(&flags.nic)?;
    Ok(Target::Nic { context, door })
}

/// Runs the benchmark; false when a value was wrong.
pub(crate) fn bench_cache(flags: &BenchCache, as_json: bool) -> anyhow::Result<bool> {
    let run = CacheRun {
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
            None => Length::Time(flags.length),
        },
        warm_up: Length::Time(flags.warm_up),
        preload: !flags.no_preload,
        seed: flags.seed,
        verify: flags.verify,
        timeout: flags.client.timeout,
        ..CacheRun::new(target(&flags.client)?)
    };
    let shown = std::io::stderr().is_terminal() && !as_json;
    let mut progress = |stored: u64, items: u64| {
        if shown {
            let percent = stored * 100 / items.max(1);
            // Nothing to do about a stderr that is closed.
            let _ = write!(std::io::stderr(), "\rstoring items: {percent} %");
            if stored == items {
                let _ = writeln!(std::io::stderr(), "; measuring");
            }
        }
    };
    let door = run.target.door().to_string();
    let report = match run.run(&mut progress) {
        Ok(report) => report,
        Err(bench::cache::RunError::Io(error))
            if error.kind() == std::io::ErrorKind::ConnectionRefused =>
        {
            bail!("nobody answers on {door}; is `vervain serve` running?")
        }
        Err(error) => return Err(error).context("the benchmark did not finish"),
    };
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
