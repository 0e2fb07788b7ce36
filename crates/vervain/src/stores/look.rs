//! Looking into stores that are not open, and mending them.

use std::io::{self, Write};
use std::path::Path;

use serde_json::json;
use store::examine::{
    Examined, ExaminedRecord, ExaminedSegment, Flaw, examine, repair_superblocks,
};
use store::format::FormatError;
use store::format::segment::{Kind, SegmentState};
use store::{Options, Recovery};

use super::{device, open};
use crate::cli::{StoreInspect, StoreRepair, show_size, verdict};

/// Keys as text: what is no printable character is escaped.
fn text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::User => "user",
        Kind::Moved => "moved",
        Kind::Index => "index",
    }
}

fn state_name(state: SegmentState) -> &'static str {
    match state {
        SegmentState::Open => "open",
        SegmentState::Closed => "closed",
        SegmentState::Free => "free",
    }
}

pub(super) fn inspect(inspect: &StoreInspect, as_json: bool) -> anyhow::Result<bool> {
    let device = device(&inspect.file.path)?;
    let mut out = bench::print::output();
    if inspect.records && !as_json {
        writeln!(
            out,
            "{:>14}  {:>16}  {:>11}          key",
            "byte", "version", "value"
        )?;
    }
    let mut failed = Ok(());
    let mut show = |record: ExaminedRecord<'_>| -> std::io::Result<()> {
        let key = text(record.key);
        let is_tombstone = record.meta.tombstone.is_some();
        if as_json {
            let told = json!({
                "at": record.at, "segment": record.segment, "version": record.version.0,
                "key": key, "value_bytes": record.value_len, "tombstone": is_tombstone,
                "moved": record.meta.origin.is_some(), "replaces": record.meta.replaces,
                "expiry": record.meta.expiry, "flags": record.meta.flags,
            });
            return writeln!(out, "{told}");
        }
        let what = if is_tombstone { "removed" } else { "" };
        let bytes = record.value_len;
        writeln!(
            out,
            "{:>14}  {:>16x}  {bytes:>9} B  {what:<8}{key}",
            record.at, record.version.0
        )
    };
    let examined = examine(
        &device,
        |_, _| (),
        |record| {
            if inspect.records && failed.is_ok() {
                failed = show(record);
            }
        },
    )?;
    failed?;
    if inspect.records && !as_json {
        writeln!(out)?;
    }
    if as_json {
        writeln!(out, "{}", as_value(&examined))?;
        return Ok(true);
    }
    let superblock = &examined.superblock;
    let layout = &superblock.layout;
    let shown = |bytes: u64| show_size(bytes as usize);
    writeln!(out, "store      {:032x}", superblock.store)?;
    writeln!(
        out,
        "kind       {}",
        if superblock.cache { "cache" } else { "store" }
    )?;
    writeln!(
        out,
        "size       {} = {} segments of {}, blocks of {} B, grains of {} B",
        shown(u64::from(layout.segments) << layout.segment_shift),
        layout.segments,
        shown(layout.segment_bytes()),
        layout.block(),
        layout.grain()
    )?;
    if !superblock.cache {
        let limit = shown(examined.live_bytes_max(Options::default().live_share));
        writeln!(
            out,
            "limit      {limit} of live records, less if few of them fit a segment"
        )?;
    }
    let closed = if examined.is_closed() {
        "yes"
    } else {
        "no: opening it reads the log"
    };
    writeln!(out, "closed     {closed}")?;
    writeln!(out, "free       {} segments", examined.free)?;
    writeln!(out)?;
    writeln!(
        out,
        "segment  sequence  kind   state   batches   records  tombstones       bytes  damaged  torn"
    )?;
    for segment in &examined.segments {
        let number = segment.segment;
        match segment.header {
            Ok(header) => writeln!(
                out,
                "{number:>7}  {:>8}  {:<5}  {:<6}  {:>7}  {:>8}  {:>10}  {:>10}  {:>7}  {:>4}",
                header.seq,
                kind_name(header.kind),
                state_name(header.state),
                segment.batches,
                segment.records,
                segment.tombstones,
                segment.bytes,
                segment.damaged,
                segment.torn
            )?,
            Err(error) => writeln!(out, "{number:>7}  {error}")?,
        }
    }
    Ok(true)
}

fn as_value(examined: &Examined) -> serde_json::Value {
    let superblock = &examined.superblock;
    let layout = &superblock.layout;
    let segments: Vec<_> = examined
        .segments
        .iter()
        .map(|segment| {
            json!({
                "segment": segment.segment,
                "sequence": segment.header.ok().map(|header| header.seq),
                "kind": segment.header.ok().map(|header| kind_name(header.kind)),
                "state": segment.header.ok().map(|header| state_name(header.state)),
                "problem": segment.header.err().map(|error| error.to_string()),
                "header_problems": problems(&segment.header_problems),
                "batches": segment.batches, "records": segment.records,
                "tombstones": segment.tombstones, "bytes": segment.bytes,
                "damaged": segment.damaged, "torn": segment.torn,
                "flaws": flaws(segment),
                "damaged_keys": segment.damaged_keys.iter().map(|key| text(key)).collect::<Vec<_>>(),
            })
        })
        .collect();
    let problems = problems(&examined.superblock_problems);
    json!({
        "store": format!("{:032x}", superblock.store), "cache": superblock.cache,
        "segments": layout.segments, "segment_bytes": layout.segment_bytes(),
        "block_bytes": layout.block(), "grain_bytes": layout.grain(),
        "bytes_max": (!superblock.cache)
            .then(|| examined.live_bytes_max(Options::default().live_share)),
        "closed": examined.is_closed(), "free": examined.free, "sound": examined.is_sound(),
        "superblock_problems": problems, "in_use": segments,
    })
}

fn problems(problems: &[Option<FormatError>]) -> Vec<Option<String>> {
    let text = |problem: &Option<FormatError>| problem.map(|problem| problem.to_string());
    problems.iter().map(text).collect()
}

fn flaws(segment: &ExaminedSegment) -> Vec<serde_json::Value> {
    let told = |flaw: &Flaw| {
        json!({
            "damage": flaw.damage.to_string(), "blocks": [flaw.blocks.start, flaw.blocks.end],
            "torn": flaw.torn, "keys_known": flaw.explained,
        })
    };
    segment.flaws.iter().map(told).collect()
}

/// What is damaged, a line each.
fn damage(examined: &Examined) -> Vec<String> {
    let mut lines = Vec::new();
    for problem in examined.superblock_problems.iter().flatten() {
        lines.push(problem.to_string());
    }
    for segment in &examined.segments {
        let number = segment.segment;
        for problem in segment.header_problems.iter().flatten() {
            lines.push(format!("segment {number}: {problem}"));
        }
        if segment.header.is_err() {
            lines.push(format!(
                "segment {number}: neither header can be read, nor any batch: whatever it held is lost"
            ));
        }
        for flaw in &segment.flaws {
            let Flaw { damage, blocks, .. } = flaw;
            let whose = match (flaw.torn, flaw.explained) {
                (true, _) => " (maybe of a write that a crash cut short)",
                (false, true) => "",
                (false, false) => " (which keys it was is not known)",
            };
            lines.push(format!(
                "segment {number}, blocks {} to {}: {damage}{whose}",
                blocks.start,
                blocks.end - 1
            ));
        }
        for key in &segment.damaged_keys {
            lines.push(format!("segment {number}: key {}", text(key)));
        }
    }
    lines
}

pub(super) fn check(path: &Path, as_json: bool) -> anyhow::Result<bool> {
    let examined = examine(&device(path)?, |_, _| (), |_| ())?;
    let said = say_checked(&examined, as_json);
    verdict(said, examined.is_sound())
}

fn say_checked(examined: &Examined, as_json: bool) -> io::Result<()> {
    let mut out = bench::print::output();
    if as_json {
        return writeln!(out, "{}", as_value(examined));
    }
    for line in damage(examined) {
        writeln!(out, "{line}")?;
    }
    // The index is written as records of its own, which nobody has put there.
    let is_index = |segment: &&ExaminedSegment| {
        let header = segment.header.as_ref();
        header.is_ok_and(|header| header.kind == Kind::Index)
    };
    let log = examined.segments.iter().filter(|one| !is_index(one));
    let records: u64 = log.map(|segment| segment.records).sum();
    let verdict = if examined.is_sound() {
        "sound"
    } else {
        "damaged"
    };
    let segments = examined.segments.len();
    writeln!(
        out,
        "{verdict}: {segments} segments were read; records in the log: {records}"
    )?;
    if !examined.is_sound() && !examined.is_closed() {
        writeln!(
            out,
            "The store was not closed. What a crash cut short had not been acknowledged; opening \
             the store tells it from damage."
        )?;
    }
    Ok(())
}

fn say_found(found: &[String], as_json: bool) -> io::Result<()> {
    let mut out = bench::print::output();
    if as_json {
        return writeln!(out, "{}", json!({"damage": found, "repaired": false}));
    }
    for line in found {
        writeln!(out, "{line}")?;
    }
    let end = if found.is_empty() {
        "nothing to repair"
    } else {
        "--yes repairs this"
    };
    writeln!(out, "{end}")
}

pub(super) fn repair(repair: &StoreRepair, as_json: bool) -> anyhow::Result<bool> {
    let path = &repair.file.path;
    let found = damage(&examine(&device(path)?, |_, _| (), |_| ())?);
    if !repair.yes {
        return verdict(say_found(&found, as_json), found.is_empty());
    }
    let superblocks = repair_superblocks(&device(path)?)?;
    let mut options = Options::default();
    options.forget_damaged = true;
    options.believe_index = false;
    let store = open(path, options)?;
    let (records, lost) = match store.recovery() {
        Recovery::Log {
            records, damaged, ..
        } => (records, damaged),
        _ => (0, 0),
    };
    let keys = store.len();
    store.close()?;
    let mut out = bench::print::output();
    if as_json {
        let told = json!({
            "damage": found, "repaired": true, "superblocks": superblocks,
            "records": records, "given_up": lost, "keys": keys,
        });
        writeln!(out, "{told}")?;
    } else {
        for line in &found {
            writeln!(out, "{line}")?;
        }
        writeln!(
            out,
            "repaired: {superblocks} superblocks written anew, {lost} damaged places given up, \
             {keys} keys are there"
        )?;
    }
    Ok(true)
}
