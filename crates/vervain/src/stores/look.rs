//! Looking into stores that are not open, and mending them.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use store::examine::{Examined, ExaminedRecord, ExaminedSegment, examine, repair_superblocks};
use store::format::segment::Kind;
use store::{Options, Recovery};

use super::{device, open};
use crate::cli::{StoreInspect, StoreRepair, show_size};

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

pub(super) fn inspect(inspect: &StoreInspect, as_json: bool) -> anyhow::Result<bool> {
    let device = device(&inspect.file.path)?;
    let mut out = std::io::stdout().lock();
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
        "segment  sequence  kind   batches   records  tombstones       bytes  damaged"
    )?;
    for segment in &examined.segments {
        let number = segment.segment;
        match segment.header {
            Ok(header) => writeln!(
                out,
                "{number:>7}  {:>8}  {:<5}  {:>7}  {:>8}  {:>10}  {:>10}  {:>7}",
                header.seq,
                kind_name(header.kind),
                segment.batches,
                segment.records,
                segment.tombstones,
                segment.bytes,
                segment.damaged
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
                "problem": segment.header.err().map(|error| error.to_string()),
                "batches": segment.batches, "records": segment.records,
                "tombstones": segment.tombstones, "bytes": segment.bytes,
                "damaged": segment.damaged,
            })
        })
        .collect();
    let problems: Vec<_> = examined
        .superblock_problems
        .iter()
        .map(|problem| problem.map(|problem| problem.to_string()))
        .collect();
    json!({
        "store": format!("{:032x}", superblock.store), "cache": superblock.cache,
        "segments": layout.segments, "segment_bytes": layout.segment_bytes(),
        "block_bytes": layout.block(), "grain_bytes": layout.grain(),
        "closed": examined.is_closed(), "free": examined.free, "sound": examined.is_sound(),
        "superblock_problems": problems, "in_use": segments,
    })
}

/// What is damaged, a line each.
fn damage(examined: &Examined) -> Vec<String> {
    let mut lines = Vec::new();
    let places = ["the superblock", "the superblock's copy"];
    for (place, problem) in places.into_iter().zip(examined.superblock_problems) {
        lines.extend(problem.map(|problem| format!("{place}: {problem}")));
    }
    for segment in &examined.segments {
        let number = segment.segment;
        if let Err(error) = segment.header {
            lines.push(format!("segment {number}: {error}"));
        }
        let torn = segment.header.is_ok_and(|header| header.torn);
        let why = if torn {
            ", of writes that a crash cut short"
        } else {
            ""
        };
        match segment.damaged {
            0 => {}
            1 => lines.push(format!("segment {number}: damaged in one place{why}")),
            places => lines.push(format!("segment {number}: damaged in {places} places{why}")),
        }
    }
    lines
}

pub(super) fn check(path: &Path, as_json: bool) -> anyhow::Result<bool> {
    let examined = examine(&device(path)?, |_, _| (), |_| ())?;
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", as_value(&examined))?;
        return Ok(examined.is_sound());
    }
    for line in damage(&examined) {
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
    Ok(examined.is_sound())
}

pub(super) fn repair(repair: &StoreRepair, as_json: bool) -> anyhow::Result<bool> {
    let path = &repair.file.path;
    let found = damage(&examine(&device(path)?, |_, _| (), |_| ())?);
    let mut out = std::io::stdout().lock();
    if !repair.yes {
        if as_json {
            writeln!(out, "{}", json!({"damage": found, "repaired": false}))?;
        } else {
            for line in &found {
                writeln!(out, "{line}")?;
            }
            let end = if found.is_empty() {
                "nothing to repair"
            } else {
                "--yes repairs this"
            };
            writeln!(out, "{end}")?;
        }
        return Ok(found.is_empty());
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
