//! `cargo lab report --store`: everything about the store in one go.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`StoreRecord`], the document, and its files |
//! | `goals.rs` | [`StoreRatios`], the figures with [`STORE_GOALS`] |
//! | `run.rs` | [`WholeRun`], the run that measures it all |
//! | `figures.rs` | the plots |
//! | `summary.rs` | the table for terminals |

pub mod command;
mod figures;
mod goals;
mod run;
mod summary;

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::index::IndexReport;
use crate::report::{Commit, FileError, Hardware, LeftOut, StepTime};
use bench::store::{Recovered, StoreReport};

pub use self::figures::store_plots;
pub use self::goals::{STORE_GOALS, StoreRatios};
pub use self::run::{WholeRun, WholeScale};
pub use self::summary::write_store_summary;

/// The document's format. It changes when an old reader would misread a new document.
pub const STORE_FORMAT: u32 = 1;

/// All about the store on one machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct StoreRecord {
    /// [`STORE_FORMAT`].
    pub format: u32,
    /// The program's version.
    pub version: String,
    /// What it was built from.
    pub commit: Commit,
    /// When the run began, UTC.
    pub date: String,
    /// How long it took.
    pub seconds: f64,
    /// Where.
    pub machine: Hardware,
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
    /// Opening after a crash and after a clean stop.
    pub recovery: Option<Recovered>,
    /// The steps of the run.
    pub steps: Vec<StepTime>,
    /// What was not measured, and why.
    pub left_out: Vec<LeftOut>,
}

impl StoreRecord {
    /// One line: machine, version, commit, day.
    pub fn source(&self) -> String {
        let (machine, version, commit) = (self.machine.line(), &self.version, self.commit.show());
        let day = self.date.split('T').next().unwrap_or_default();
        format!("{machine} · vervain {version} ({commit}) · {day}")
    }

    /// Whether every measurement that was tried succeeded.
    pub fn is_whole(&self) -> bool {
        !self.left_out.iter().any(|left| left.failed)
    }

    fn leave_out(&mut self, what: &str, why: impl ToString, failed: bool) {
        self.left_out.push(LeftOut {
            what: what.to_string(),
            why: why.to_string(),
            failed,
        });
    }
}

/// Writes `store.json` and the plots into a folder, which is made if it is not there. Plots of an
/// earlier report that this one does not have are removed.
///
/// # Errors
/// A file cannot be written.
pub fn write_store_files(record: &StoreRecord, folder: &Path) -> Result<(), FileError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |error| FileError { path, error }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let path = folder.join("store.json");
    let mut json =
        serde_json::to_string_pretty(record).map_err(|error| failed(&path)(error.into()))?;
    json.push('\n');
    fs::write(&path, json).map_err(failed(&path))?;
    let plots = store_plots(record);
    for name in figures::NAMES {
        let path = folder.join(format!("{name}.svg"));
        match plots.iter().find(|figure| figure.name == name) {
            Some(figure) => fs::write(&path, &figure.svg).map_err(failed(&path))?,
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed(&path)(error));
                }
                _ => {}
            },
        }
    }
    Ok(())
}
