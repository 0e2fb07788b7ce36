//! `cargo lab report --fs`: the file system beside NFS-Ganesha over the file system of the same disk.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`FsRecord`], the document, and the table for terminals |
//! | `run.rs` | [`FsRun`], the run that measures it all |
//! | `scale.rs` | [`FsScale`]: how much is measured |
//! | `servers.rs` | both servers, as processes |
//! | `load.rs` | the load: our own client, which is the same for both |
//! | `device.rs` | the same requests of the bare device |
//! | `place.rs` | on what file system that is, and how to have it forget what it cached |

pub mod command;
mod device;
mod load;
mod place;
mod run;
mod scale;
mod servers;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use bench::Measured;
use bench::print::Table;
use serde::Serialize;

use crate::goals::FsRatios;
use crate::report::{Head, write_folder, write_goals};

pub use self::run::FsRun;
pub use self::scale::FsScale;

/// The document's format. It changes when an old reader would misread a new document.
pub const FS_FORMAT: u32 = 1;

/// What one side did of one load.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Side {
    /// Requests a second; of streams, millions of bytes.
    pub rate: Measured,
    /// Microseconds of a request: the median of the rounds' medians.
    pub p50_us: f64,
    /// The same of the 99th percentiles.
    pub p99_us: f64,
}

/// A load, and what each side did in the same rounds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// The load.
    pub load: String,
    /// Requests under way.
    pub depth: usize,
    /// What `rate` counts a second: `requests` or `MB`.
    pub unit: &'static str,
    /// Ours.
    pub ours: Side,
    /// NFS-Ganesha's, if it is installed.
    pub ganesha: Option<Side>,
    /// The bare device's, where the load is one of its own.
    pub device: Option<Side>,
    /// Of the pages that ours read meanwhile, how many its cache had, by its own counters: 0 to 1. None: it read none.
    pub ours_from_cache: Option<f64>,
}

impl Point {
    /// Our median rate by theirs.
    pub fn vs_ganesha(&self) -> Option<f64> {
        by(self.ours, self.ganesha?)
    }

    /// Our median rate by the device's.
    pub fn vs_device(&self) -> Option<f64> {
        by(self.ours, self.device?)
    }
}

fn by(ours: Side, other: Side) -> Option<f64> {
    (other.rate.mid > 0.0).then(|| ours.rate.mid / other.rate.mid)
}

/// Whether what NFS-Ganesha makes survives the loss of power when it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Syncs {
    /// Files that were made while its system calls were counted.
    pub creates: u64,
    /// Its calls of fsync, fdatasync, sync_file_range and syncfs meanwhile.
    pub syncs: u64,
}

/// Opening after `kill -9`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Recovered {
    /// Bytes that were written before.
    pub bytes: u64,
    /// From the start of the process until it has answered.
    pub seconds: f64,
}

/// All about the file system on one machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct FsRecord {
    /// What all reports have.
    #[serde(flatten)]
    pub head: Head,
    /// `quick`, `standard` or `tiny`.
    pub scale: String,
    /// The command line, without the program.
    pub flags: Vec<String>,
    /// The file system that both are on.
    pub file_system: String,
    /// NFS-Ganesha's version, if it is installed.
    pub ganesha: Option<String>,
    /// Processes that were ready to run before the run began, a minute's average: without other load it is near 0.
    pub load_average: f64,
    /// Bytes of our cache. NFS-Ganesha has the kernel's page cache, which nothing bounds.
    pub cache_bytes: u64,
    /// Bytes of the file that is read and written: they fit into either cache.
    pub file_bytes: u64,
    /// The figures that are compared with goals.
    pub ratios: FsRatios,
    /// Each load.
    pub points: Vec<Point>,
    /// What NFS-Ganesha syncs.
    pub ganesha_syncs: Option<Syncs>,
    /// A request and an answer of 64 bytes over the loopback's TCP, in microseconds.
    pub loopback_us: Option<f64>,
    /// Opening after a crash.
    pub recovery: Option<Recovered>,
}

impl FsRecord {
    fn point(&self, load: &str, depth: usize) -> Option<&Point> {
        let mut points = self.points.iter();
        points.find(|point| point.load == load && point.depth == depth)
    }
}

impl AsMut<Head> for FsRecord {
    fn as_mut(&mut self) -> &mut Head {
        &mut self.head
    }
}

/// Writes `fs.json` into a folder, which is made if it is not there.
///
/// # Errors
/// The file cannot be written.
pub fn write_fs_files(record: &FsRecord, folder: &Path) -> anyhow::Result<()> {
    write_folder(folder, "fs.json", record, &[], &[], &[])
}

/// Writes the figures, their goals, and every load beside the limits.
///
/// # Errors
/// The writer's.
pub fn write_fs_summary(record: &FsRecord, out: &mut impl Write) -> io::Result<()> {
    let (rates, latencies) = (rates(&record.points), latencies(&record.points));
    let mut more = format!("\n{rates}\n{latencies}\n");
    if let Some(Syncs { creates, syncs }) = record.ganesha_syncs {
        let durable = if syncs < creates { "not " } else { "" };
        let _ = writeln!(
            more,
            "NFS-Ganesha syncs {syncs} times for {creates} creates: they are {durable}durable when they are answered; ours are"
        );
    }
    if let Some(us) = record.loopback_us {
        let _ = writeln!(more, "loopback, there and back: {us:.1} us");
    }
    if let Some(Recovered { bytes, seconds }) = record.recovery {
        let gb = bytes as f64 / 1e9;
        let _ = writeln!(
            more,
            "after kill -9 with {gb:.2} GB written: {seconds:.2} s"
        );
    }
    let (place, load) = (&record.file_system, record.load_average);
    let _ = writeln!(more, "on {place}; load average before: {load:.1}");
    write_goals(&record.head, record.ratios.rows(), &more, out)
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or("–".to_string())
}

/// What was done a second.
fn rates(points: &[Point]) -> Table {
    let heads = [
        "load",
        "depth",
        "",
        "ours",
        "Ganesha",
        "device",
        "by Ganesha",
        "cached",
    ];
    let mut table = Table::new(1, &heads).text(2);
    let rate = |side: Side| format!("{:.0}", side.rate.mid);
    for point in points {
        let share = point.ours_from_cache;
        table.row([
            point.load.clone(),
            point.depth.to_string(),
            format!("{}/s", point.unit),
            rate(point.ours),
            or_none(point.ganesha.map(rate)),
            or_none(point.device.map(rate)),
            or_none(point.vs_ganesha().map(|ratio| format!("{ratio:.2}×"))),
            or_none(share.map(|share| format!("{:.1} %", share * 100.0))),
        ]);
    }
    table
}

/// How long it took.
fn latencies(points: &[Point]) -> Table {
    let heads = [
        "load",
        "depth",
        "p50 us",
        "Ganesha's",
        "p99 us",
        "Ganesha's",
    ];
    let mut table = Table::new(1, &heads);
    let us = |us: f64| format!("{us:.0}");
    for point in points {
        let (ours, ganesha) = (point.ours, point.ganesha);
        table.row([
            point.load.clone(),
            point.depth.to_string(),
            us(ours.p50_us),
            or_none(ganesha.map(|side| us(side.p50_us))),
            us(ours.p99_us),
            or_none(ganesha.map(|side| us(side.p99_us))),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_for_terminals_is_narrow() {
        let side = |rate, us| Side {
            rate: Measured::of(&[rate]).expect("a figure"),
            p50_us: us,
            p99_us: us,
        };
        let point = Point {
            load: "stream written, with COMMIT".into(),
            depth: 16,
            unit: "requests",
            ours: side(123_456.0, 12_345.6),
            ganesha: Some(side(12_345.6, 123_456.7)),
            device: Some(side(123_456.0, 1.0)),
            ours_from_cache: Some(1.0),
        };
        let record = FsRecord {
            points: vec![point],
            ..FsRecord::default()
        };
        let mut out = Vec::new();
        write_fs_summary(&record, &mut out).expect("written");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains(" 10.00×  100.0 %\n"), "{text}");
        assert!(text.contains(" 12346     123457 "), "{text}");
        let is_narrow = |line: &str| line.chars().count() <= 100;
        let lines = text.lines().filter(|line| line.contains("COMMIT"));
        assert!(
            lines.clone().count() == 2 && lines.clone().all(is_narrow),
            "{text}"
        );
    }
}
