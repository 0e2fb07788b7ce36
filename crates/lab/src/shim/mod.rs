//! `cargo lab report --shim`: unmodified programs on the software NIC, beside what uses it directly.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`ShimRecord`], the document, and the table for terminals |
//! | `run.rs` | [`ShimRun`], the run that measures it all |
//! | `perftest.rs` | perftest's programs, each side on a CPU |
//! | `echo.rs` | a program of TCP, which rsockets carry as well |

pub mod command;
pub mod echo;
mod perftest;
mod run;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use bench::Measured;
use serde::Serialize;

use crate::goals::ShimRatios;
use crate::report::{Head, write_folder, write_goals};

pub use self::run::{ShimRun, ShimScale};

/// The document's format. It changes when an old reader would misread a new document.
pub const SHIM_FORMAT: u32 = 1;

/// What a ConnectX takes one way for a small message, in microseconds: what the moonshot is measured by.
pub const CARD_US: f64 = 0.8;

/// A figure of a program, beside its counterpart's in the same rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Beside {
    /// The unmodified program's.
    pub program: Measured,
    /// What it is compared with.
    pub counterpart: Measured,
}

impl Beside {
    /// The program's median by its counterpart's.
    pub fn ratio(&self) -> Option<f64> {
        (self.counterpart.mid > 0.0).then(|| self.program.mid / self.counterpart.mid)
    }
}

/// All about unmodified programs on one machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ShimRecord {
    /// What all reports have.
    #[serde(flatten)]
    pub head: Head,
    /// `quick`, `standard` or `tiny`.
    pub scale: String,
    /// The command line, without the program.
    pub flags: Vec<String>,
    /// The CPUs of server and client.
    pub cpus: Option<[usize; 2]>,
    /// The figures that are compared with goals.
    pub ratios: ShimRatios,
    /// One way of a WRITE of 64 bytes, in microseconds: `ib_write_lat` over UC, and our own echoes.
    pub write_lat_us: Option<Beside>,
    /// SENDs of 64 bytes over RC, in millions a second: `ib_send_bw`, and our own.
    pub send_mops: Option<Beside>,
    /// WRITEs of 1 MiB, in billions of bytes a second: `ib_write_bw`, and copies by the processor.
    pub write_gb_per_s: Option<Beside>,
    /// A request and an answer of 64 bytes, in microseconds: over rsockets, and over TCP.
    pub echo_us: Option<Beside>,
    /// One way of 64 bytes over RC, in microseconds, by program: what a card is compared with.
    pub one_way_us: Vec<(String, Measured)>,
    /// The same of a ConnectX, about.
    pub card_us: f64,
}

impl AsMut<Head> for ShimRecord {
    fn as_mut(&mut self) -> &mut Head {
        &mut self.head
    }
}

/// Writes `shim.json` into a folder, which is made if it is not there.
///
/// # Errors
/// The file cannot be written.
pub fn write_shim_files(record: &ShimRecord, folder: &Path) -> anyhow::Result<()> {
    write_folder(folder, "shim.json", record, &[], &[], &[])
}

/// Writes the figures, their goals, and what each is compared with.
///
/// # Errors
/// The writer's.
pub fn write_shim_summary(record: &ShimRecord, out: &mut impl Write) -> io::Result<()> {
    let mut more = String::from("\n");
    let rows = [
        (
            "ib_write_lat, 64 B, UC",
            record.write_lat_us,
            "us",
            "direct",
        ),
        ("ib_send_bw, 64 B, RC", record.send_mops, "Mop/s", "direct"),
        (
            "ib_write_bw, 1 MiB",
            record.write_gb_per_s,
            "GB/s",
            "memcpy",
        ),
        ("echo of 64 B, rsockets", record.echo_us, "us", "TCP"),
    ];
    for (name, beside, unit, counterpart) in rows {
        if let Some(Beside {
            program,
            counterpart: other,
        }) = beside
        {
            let _ = writeln!(
                more,
                "{name}: {:.2} {unit}; {counterpart}: {:.2} {unit}",
                program.mid, other.mid
            );
        }
    }
    for (name, one_way) in &record.one_way_us {
        let (mid, card) = (one_way.mid, record.card_us);
        let _ = writeln!(
            more,
            "{name}, one way: {mid:.2} us; a ConnectX: about {card} us"
        );
    }
    write_goals(&record.head, record.ratios.rows(), &more, out)
}
