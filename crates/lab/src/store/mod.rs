//! `cargo lab report --store`: everything about the store in one go.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`StoreRecord`], the document, and its files |
//! | `run.rs` | [`WholeRun`], the run that measures it all |
//! | `figures.rs` | the plots |
//! | `summary.rs` | the table for terminals |

pub mod command;
mod figures;
mod run;
mod summary;

use std::path::Path;

use serde::Serialize;

use crate::goals::StoreRatios;
use crate::index::IndexReport;
use crate::report::{FileError, Head, write_folder};
use bench::store::{Collected, Recovered, StoreReport};

pub use self::figures::store_plots;
pub use self::run::{WholeRun, WholeScale};
pub use self::summary::write_store_summary;

/// The document's format. It changes when an old reader would misread a new document.
pub const STORE_FORMAT: u32 = 1;

/// All about the store on one machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
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
pub fn write_store_files(record: &StoreRecord, folder: &Path) -> Result<(), FileError> {
    write_folder(
        folder,
        "store.json",
        record,
        &figures::NAMES,
        &store_plots(record),
        &[],
    )
}
