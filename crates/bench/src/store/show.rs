//! A report as a table.

use std::io::{self, Write};

use ::store::Durability;

use super::{Idle, StoreReport};
use crate::print::{Table, facts, many};
use crate::units::name_of;

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_store(report: &StoreReport, out: &mut impl Write) -> io::Result<()> {
    let (location, block) = (&report.location, report.block);
    let direct = match report.is_direct {
        true => "O_DIRECT",
        false => "through the page cache",
    };
    let (keys, key_len, value_len) = (report.keys, report.key_len, report.value_len);
    let survives = match report.durability {
        Durability::PowerCut => "a power cut",
        Durability::Process => "the process",
    };
    let pinned: Vec<String> = report.cpus.iter().flatten().map(usize::to_string).collect();
    let place = match pinned.is_empty() {
        true => "unpinned".to_string(),
        false => format!("on CPU {}", pinned.join(", ")),
    };
    let (cores, rounds, slice_s) = (
        many(report.cpus.len(), "core"),
        report.rounds,
        report.slice_s,
    );
    let head = [
        ("machine", report.machine.to_string()),
        ("version", format!("vervain {}", report.version)),
        (
            "device",
            format!("{location}, blocks of {block} B, {direct}"),
        ),
        (
            "items",
            format!("{keys} of {key_len} + {value_len} B; a PUT survives {survives}"),
        ),
        (
            "load",
            format!("{cores} {place}; medians of {rounds} times {slice_s} s, in turn"),
        ),
    ];
    facts(out, head)?;
    let heads = [
        "",
        "depth",
        "engine",
        "store/s",
        "raw/s",
        "ratio",
        "p50 us",
        "raw",
        "ratio",
        "p99 us",
        "raw",
        "CPU us",
        "reads/GET",
        "written/B",
    ];
    let mut table = Table::new(1, &heads).text(2);
    for row in &report.rows {
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
        let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
        let (store, raw) = (&row.store, &row.raw);
        table.row([
            name_of(&row.mix),
            row.depth.to_string(),
            row.engine.to_string(),
            format!("{:.0}", store.per_second.mid),
            format!("{:.0}", raw.per_second.mid),
            ratio(Some(row.throughput_vs_raw.mid)),
            us(store.latency.p50_ns),
            us(raw.latency.p50_ns),
            ratio(Some(row.p50_vs_raw.mid)),
            us(store.latency.p99_ns),
            us(raw.latency.p99_ns),
            match row.idle {
                Idle::Spin => "all".to_string(),
                Idle::Sleep => format!("{:.1}", store.cpu_us.mid),
            },
            ratio(row.reads_per_get),
            ratio(row.write_amplification),
        ]);
    }
    writeln!(
        out,
        "\n{table}\n\
         raw is the machine's limit: the same transfers of the same file, by the same calls at the same \
         depth, without\nan index: reads of the blocks that a record lies in, anywhere; records added \
         to a log, those of a time with one write.\nwritten/B counts bytes at the device by bytes of keys \
         and values. CPU us is CPU time of a request; cores that spin use it all."
    )
}
