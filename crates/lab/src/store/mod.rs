//! `cargo lab report --store`: everything about the store in one go.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`StoreRecord`], the document, its files, and the table for terminals |
//! | `run.rs` | [`WholeRun`], the run that measures it all |
//! | `figures.rs` | the plots |

pub mod command;
mod figures;
mod run;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::goals::StoreRatios;
use crate::index::IndexReport;
use crate::report::{Head, write_folder, write_goals};
use bench::store::{Collected, Recovered, StoreReport};

pub use self::figures::store_plots;
pub use self::run::{WholeRun, WholeScale};

/// The document's format. It changes when an old reader would misread a new document.
pub const STORE_FORMAT: u32 = 1;

/// All about the store on one machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct StoreRecord {
    /// What all reports have.
    #[serde(flatten)]
    pub head: Head,
    /// `quick` or `standard`.
    pub scale: String,
    /// The command line, without the program.
    pub flags: Vec<String>,
    /// What repeats the requests exactly.
    pub seed: u64,
    /// The figures that are compared with goals.
    pub ratios: StoreRatios,
    /// Values of 4 KiB.
    pub large: Option<StoreReport>,
    /// Values of 1 KiB.
    pub small: Option<StoreReport>,
    /// The index.
    pub index: Option<IndexReport>,
    /// Overwriting a store that is nearly full.
    pub collected: Option<Collected>,
    /// Opening after a crash and after a clean stop.
    pub recovery: Option<Recovered>,
}

impl AsMut<Head> for StoreRecord {
    fn as_mut(&mut self) -> &mut Head {
        &mut self.head
    }
}

/// Writes `store.json` and the plots into a folder, which is made if it is not there. Plots of an
/// earlier report that this one does not have are removed.
///
/// # Errors
/// A file cannot be written.
pub fn write_store_files(record: &StoreRecord, folder: &Path) -> anyhow::Result<()> {
    write_folder(
        folder,
        "store.json",
        record,
        &figures::NAMES,
        &store_plots(record),
        &[],
    )
}

/// Writes the figures, their goals, and the machine's limits beside them.
///
/// # Errors
/// The writer's.
pub fn write_store_summary(record: &StoreRecord, out: &mut impl Write) -> io::Result<()> {
    let mut more = String::from("\n");
    if let Some(recovered) = &record.recovery {
        let (keys, bytes, limit_s) = (recovered.keys, recovered.value_len, recovered.limit_s());
        let (crash_s, clean_s) = (recovered.crash_s, recovered.clean_s);
        let read_gb = recovered.log_read_bytes as f64 / 1e9;
        let gb_per_s = recovered.sequential_per_s / 1e9;
        let _ = write!(
            more,
            "{keys} records of {bytes} B: {crash_s:.2} s after a crash, {clean_s:.2} s after a clean stop\n\
             limit after a crash: the device reads the log's {read_gb:.2} GB in {limit_s:.2} s at {gb_per_s:.2} GB/s\n",
        );
    }
    write_goals(&record.head, record.ratios.rows(), &more, out)
}
