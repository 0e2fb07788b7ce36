//! `vervain fs status` and `vervain fs top`: what a served file system does, as text.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use super::ask;
use super::status::{OperationStatus, Status};
use crate::cli::{FsAbout, FsTop, show_size};

/// `vervain fs status`: all since the server was started.
pub(super) fn status(flags: &FsAbout, as_json: bool) -> anyhow::Result<()> {
    let status = ask::status(flags)?;
    let mut out = bench::print::output();
    if as_json {
        writeln!(out, "{}", serde_json::json!(status))?;
    } else {
        write!(out, "{}", screen(&Status::default(), &status))?;
    }
    Ok(())
}

/// `vervain fs top`: what happened since the last look, over and over. Only the first look has to find somebody.
pub(super) fn top(flags: &FsTop, as_json: bool) -> anyhow::Result<()> {
    let is_terminal = std::io::stdout().is_terminal() && !as_json;
    let mut before = ask::status(&flags.about)?;
    let mut times = 0;
    while flags.times.is_none_or(|wanted| times < wanted) {
        std::thread::sleep(flags.every);
        times += 1;
        let now = match ask::status(&flags.about) {
            Ok(now) => now,
            // It restarts, and is looked at again.
            Err(error) => {
                let why = crate::cli::explain(&error);
                let text = match as_json {
                    true => serde_json::json!({ "error": why }).to_string(),
                    false => format!("{:<9} {why}; looking again\n", "away"),
                };
                show(&text, is_terminal, as_json)?;
                continue;
            }
        };
        let text = match as_json {
            true => serde_json::json!(now).to_string(),
            false => screen(&before, &now),
        };
        show(&text, is_terminal, as_json)?;
        before = now;
    }
    Ok(())
}

/// What a look has found, in the place of the one before it, or below it.
fn show(text: &str, is_terminal: bool, as_json: bool) -> std::io::Result<()> {
    let mut out = bench::print::output();
    if as_json {
        return writeln!(out, "{text}");
    }
    // To the upper left, and what is longer than the new line or screen goes.
    let home = if is_terminal { "\x1b[H" } else { "" };
    let text = match is_terminal {
        true => text.replace('\n', "\x1b[K\n") + "\x1b[J",
        false => format!("{text}\n"),
    };
    write!(out, "{home}{text}")?;
    out.flush()
}

/// What happened between two looks, and what there is now. Before the first is nothing.
fn screen(before: &Status, now: &Status) -> String {
    // A server that was restarted counts from nothing again.
    let is_other = before.pid != now.pid || before.uptime_ms > now.uptime_ms;
    let nothing = Status::default();
    let before = if is_other { &nothing } else { before };
    let since = Duration::from_millis(now.uptime_ms.saturating_sub(before.uptime_ms));
    let seconds = since.as_secs_f64().max(0.001);
    let grown = |name: &str| now.counter(name).saturating_sub(before.counter(name));
    let rate = |name: &str| per_second(grown(name), seconds);
    let bytes = |name: &str| format!("{}/s", size((grown(name) as f64 / seconds) as u64));
    let gauge = |name: &str| now.gauge(name);
    let (hits, misses) = (grown("cache_hits"), grown("cache_misses"));
    let cached = match hits + misses {
        0 => "-".to_string(),
        all => format!("{:.1} %", hits as f64 * 100.0 / all as f64),
    };
    let grace = if now.in_grace {
        ", clients claim what they had"
    } else {
        ""
    };
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "{name:<9} {what}");
    };
    let listens: Vec<&str> = [&now.listen]
        .into_iter()
        .chain(&now.also)
        .map(String::as_str)
        .collect();
    line(
        "serving",
        format!(
            "{} on {}, process {}, for {}{grace}",
            now.data,
            listens.join(" and "),
            now.pid,
            time(now.uptime_ms / 1000)
        ),
    );
    line(
        "clients",
        format!(
            "{}, {} connections, {} sessions; {} opens, {} locks, {} delegations ({}/s recalled)",
            gauge("clients"),
            gauge("connections"),
            gauge("sessions"),
            gauge("opens"),
            gauge("locks"),
            gauge("delegations"),
            rate("delegations_recalled"),
        ),
    );
    line(
        "network",
        format!(
            "in {}, out {}; {} slow calls",
            bytes("received_bytes"),
            bytes("sent_bytes"),
            grown("slow_calls"),
        ),
    );
    line(
        "index",
        format!(
            "{}/s from memory, {}/s others, {}/s rows read; {} of rows in memory",
            rate("index_quick"),
            rate("index_requests"),
            rate("index_reads"),
            size(gauge("rows_memory_bytes")),
        ),
    );
    line(
        "commits",
        format!(
            "{}/s in {}/s durable writes of {}; {} conflicts, {} stalls",
            rate("commits"),
            rate("journal_writes"),
            bytes("journal_bytes"),
            grown("commit_conflicts"),
            grown("journal_stalls"),
        ),
    );
    line(
        "device",
        format!(
            "{}/s reads of {}, {}/s writes of {}, {}/s flushes; {cached} of pages from the cache",
            rate("device_reads"),
            bytes("device_read_bytes"),
            rate("device_writes"),
            bytes("device_written_bytes"),
            rate("device_flushes"),
        ),
    );
    line(
        "space",
        format!(
            "{} free of {}; {} valid, {} garbage; compaction {}, {} extents given back",
            size(gauge("space_free_bytes")),
            size(gauge("space_bytes")),
            size(gauge("space_valid_bytes")),
            size(gauge("space_garbage_bytes")),
            bytes("compacted_bytes"),
            grown("compacted_extents"),
        ),
    );
    text + &volumes(now) + &operations(before, now, seconds)
}

/// Volumes, if there are more than the first or it has a bound.
fn volumes(now: &Status) -> String {
    let is_plain =
        |at: &super::status::VolumeStatus| at.bytes_max.is_none() && at.files_max.is_none();
    if now.volumes.len() < 2 && now.volumes.iter().all(is_plain) {
        return String::new();
    }
    let mut text = String::new();
    for volume in &now.volumes {
        let name = volume.name.as_deref().unwrap_or("(half made)");
        let of = volume
            .bytes_max
            .map_or_else(String::new, |max| format!(" of {}", size(max)));
        let of_files = volume
            .files_max
            .map_or_else(String::new, |max| format!(" of {max}"));
        let (bytes, files) = (size(volume.bytes), volume.files);
        let _ = writeln!(
            text,
            "{:<9} {name}: {bytes}{of}, {files}{of_files} files",
            "volume"
        );
    }
    text
}

/// A line an operation that was asked for, the most frequent first.
fn operations(before: &Status, now: &Status, seconds: f64) -> String {
    let nothing = OperationStatus::default();
    let mut all: Vec<_> = now
        .operations
        .iter()
        .map(|of| {
            let mut then = before.operations.iter();
            let then = then.find(|one| one.name == of.name).unwrap_or(&nothing);
            let calls = of.latencies().since(&then.latencies());
            (of, then, calls)
        })
        .filter(|(_, _, calls)| calls.count() > 0)
        .collect();
    all.sort_by_key(|(_, _, calls)| std::cmp::Reverse(calls.count()));
    let mut text = format!(
        "\n{:<20} {:>10} {:>10} {:>10} {:>9} {:>9}\n",
        "operation", "calls/s", "p50", "p99", "errors/s", "delayed/s"
    );
    for (of, then, calls) in all {
        let _ = writeln!(
            text,
            "{:<20} {:>10} {:>10} {:>10} {:>9} {:>9}",
            of.name,
            per_second(calls.count(), seconds),
            latency(calls.quantile(0.5)),
            latency(calls.quantile(0.99)),
            per_second(of.errors.saturating_sub(then.errors), seconds),
            per_second(of.delayed.saturating_sub(then.delayed), seconds),
        );
    }
    text
}

fn size(bytes: u64) -> String {
    show_size(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// A rate with as many digits as tell something.
fn per_second(count: u64, seconds: f64) -> String {
    let rate = count as f64 / seconds;
    match rate {
        rate if rate >= 100.0 || count == 0 => format!("{rate:.0}"),
        rate if rate >= 1.0 => format!("{rate:.1}"),
        rate => format!("{rate:.2}"),
    }
}

/// Microseconds; what was answered within a turn of the core took less than one.
fn latency(us: u64) -> String {
    match us {
        0 => "< 1 us".to_string(),
        1..10_000 => format!("{us} us"),
        10_000..10_000_000 => format!("{} ms", us / 1000),
        _ => format!("{} s", us / 1_000_000),
    }
}

fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} days {} h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(uptime_ms: u64, calls: u64) -> Status {
        let mut status = Status {
            pid: 7,
            data: "files".into(),
            listen: "127.0.0.1:2049".into(),
            also: vec!["10.0.0.7:2049".into()],
            uptime_ms,
            operations: vec![OperationStatus {
                name: "write".into(),
                errors: calls / 10,
                delayed: 0,
                total_us: 0,
                calls_us: vec![(0, 1), (1023, calls), (20_479, calls / 20)],
            }],
            ..Status::default()
        };
        status.counters.insert("received_bytes".into(), calls << 20);
        status
    }

    #[test]
    fn what_happened_between_two_looks_is_shown() {
        let text = screen(&look(1000, 100), &look(3000, 500));
        let first = text.lines().next().expect("a line");
        assert_eq!(
            first,
            "serving   files on 127.0.0.1:2049 and 10.0.0.7:2049, process 7, for 3 s"
        );
        assert!(text.contains("in 200 MiB/s"), "{text}");
        let last = text.lines().last().expect("a line");
        let words: Vec<&str> = last.split_whitespace().collect();
        assert_eq!(
            words,
            ["write", "210", "1023", "us", "20", "ms", "20.0", "0"]
        );
        assert!(text.lines().all(|line| line.len() <= 132), "{text}");
    }

    #[test]
    fn a_server_that_was_restarted_counts_from_nothing() {
        let mut other = look(1000, 10);
        other.pid = 8;
        let text = screen(&look(9000, 500), &other);
        assert!(text.contains("in 10 MiB/s"), "{text}");
    }

    #[test]
    fn rates_and_times_are_short() {
        assert_eq!(per_second(0, 2.0), "0");
        assert_eq!(per_second(1, 2.0), "0.50");
        assert_eq!(per_second(3, 2.0), "1.5");
        assert_eq!(per_second(2000, 2.0), "1000");
        assert_eq!(
            [latency(0), latency(9), latency(12_345)],
            ["< 1 us", "9 us", "12 ms"]
        );
        assert_eq!(
            [time(59), time(61), time(3700)],
            ["59 s", "1 min 1 s", "1 h 1 min"]
        );
    }
}
