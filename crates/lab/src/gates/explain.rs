//! Which source lines the counts come from.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::cases::Metric;
use super::places::Kind;
use super::trace::{CodePlace, Counted};

/// Lines of each list at most.
const SHOWN_MAX: usize = 30;

const BY_FILE: &str = "instructions, by file";

/// What happened where, the most frequent first.
///
/// # Errors
/// When `addr2line` (of binutils) is missing or fails.
pub fn explain(counted: &Counted, code: &CodePlace, driver: &Path) -> anyhow::Result<String> {
    let mut addresses: Vec<u64> = counted
        .spots
        .iter()
        .filter_map(|(_, spot, _)| code.in_file(spot.address))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let sources = sources(driver, &addresses)?;
    let mut text = String::new();
    for (what, title) in [
        (Metric::Instructions, BY_FILE),
        (Metric::Instructions, "instructions, by function"),
        (Metric::Locked, "locked instructions"),
        (Metric::Allocations, "allocations"),
        (Metric::Syscalls, "system calls"),
        (Metric::Lines, "lines, by who touches them first in a round"),
        (Metric::Transfers, "transfers"),
    ] {
        let mut groups: BTreeMap<String, f64> = BTreeMap::new();
        for (_, spot, count) in counted.spots.iter().filter(|(is, ..)| *is == what) {
            let source = code.in_file(spot.address).and_then(|at| sources.get(&at));
            let name = source.map_or("a library, or the vDSO", |source| {
                if title == BY_FILE {
                    &source.file
                } else if what == Metric::Instructions {
                    &source.function
                } else {
                    &source.chain
                }
            });
            let place = spot.kind.as_ref().map(kind_name);
            let name = place.map_or_else(|| name.to_string(), |kind| format!("[{kind}] {name}"));
            *groups.entry(name).or_default() += count;
        }
        let mut groups: Vec<(String, f64)> = groups.into_iter().collect();
        groups.sort_by(|a, b| b.1.total_cmp(&a.1));
        if groups.is_empty() {
            continue;
        }
        let total: f64 = groups.iter().map(|(_, count)| count).sum();
        writeln!(text, "\n{}: {title}, {total:.2} an operation", counted.side)?;
        for (name, count) in groups.iter().take(SHOWN_MAX) {
            writeln!(text, "  {count:8.2}  {name}")?;
        }
        if groups.len() > SHOWN_MAX {
            let rest: f64 = groups[SHOWN_MAX..].iter().map(|(_, count)| count).sum();
            writeln!(text, "  {rest:8.2}  {} more", groups.len() - SHOWN_MAX)?;
        }
    }
    Ok(text)
}

fn kind_name(kind: &Kind) -> &str {
    match kind {
        Kind::Stack => "stack",
        Kind::Shared(name) => name,
        Kind::Heap => "heap",
        Kind::Anonymous => "anonymous",
        Kind::Program => "program",
    }
}

/// Where an instruction comes from.
struct Source {
    /// The project's innermost file.
    file: String,
    /// The innermost function.
    function: String,
    /// The innermost places of the project itself, inlined ones first.
    chain: String,
}

/// Asks for all addresses in one call.
fn sources(driver: &Path, addresses: &[u64]) -> anyhow::Result<BTreeMap<u64, Source>> {
    let dir = tempfile::tempdir()?;
    let list = dir.path().join("addresses");
    let lines: Vec<String> = addresses.iter().map(|at| format!("{at:#x}")).collect();
    std::fs::write(&list, lines.join("\n"))?;
    let output = Command::new("addr2line")
        .args(["--addresses", "--functions", "--inlines", "--demangle"])
        .arg("--exe")
        .arg(driver)
        .stdin(std::fs::File::open(&list)?)
        .output()
        .context("starting addr2line (of binutils)")?;
    ensure!(output.status.success(), "addr2line failed");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut sources = BTreeMap::new();
    let mut lines = text.lines().peekable();
    while let Some(header) = lines.next() {
        let address = u64::from_str_radix(header.trim_start_matches("0x"), 16)
            .with_context(|| format!("addr2line says {header}"))?;
        let mut frames = Vec::new();
        while let Some(function) = lines.next_if(|line| !line.starts_with("0x")) {
            let place = lines.next().unwrap_or("??:0");
            frames.push((function, place));
        }
        sources.insert(address, source(&frames));
    }
    Ok(sources)
}

fn source(frames: &[(&str, &str)]) -> Source {
    let function = frames
        .first()
        .map_or("??".to_string(), |(function, _)| short(function));
    let ours: Vec<String> = frames
        .iter()
        .filter_map(|(function, place)| {
            let (_, inside) = place.split_once("/crates/")?;
            // `file.rs:12 (discriminator 3)`
            let inside = inside.split(' ').next().unwrap_or(inside);
            Some(format!("{} ({inside})", short(function)))
        })
        .take(3)
        .collect();
    let chain = if ours.is_empty() {
        function.clone()
    } else {
        ours.join(" < ")
    };
    let file = frames.iter().find_map(|(_, place)| {
        let (_, inside) = place.split_once("/crates/")?;
        inside.split(':').next()
    });
    let file = file.unwrap_or("a library").to_string();
    Source {
        function: format!("{function} ({file})"),
        file,
        chain,
    }
}

/// A function's own name, without its path and what it is generic over.
fn short(function: &str) -> String {
    let mut depth = 0usize;
    let mut plain = String::new();
    for letter in function.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let names = plain.split("::").filter(|name| !name.is_empty());
    // Closures are named by their number.
    let name = names.filter(|name| !name.starts_with('{')).last();
    name.unwrap_or(function).to_string()
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_are_short() {
        for (long, name) in [
            ("<nic_soft::cq::SoftCq as verbs::nic::NicCq>::poll", "poll"),
            ("verbs::mem::place", "place"),
            ("cache::herd::Client<gates::Reach>::poll::<F>", "poll"),
            ("nic_soft::qp::post_send::{closure#0}", "post_send"),
            ("memcpy", "memcpy"),
        ] {
            assert_eq!(short(long), name);
        }
    }
}
