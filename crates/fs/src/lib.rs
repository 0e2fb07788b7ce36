//! The roles of the file system made one: an index over a file layer.
//!
//! ```text
//!              files::FileSystem
//!                     |
//!                    Local     WRITE: a plan of the index, then its data
//!                  /     \
//!        index::Index   filelayer::DataUnit
//!               \         /       \
//!               meta::Embedded   nebula streams over a block device
//! ```
//!
//! | module | what it is |
//! | --- | --- |
//! | `local` | [`Local`]: a file system of its [`Parts`]: made, opened, closed |
//! | `directory` | the parts in a directory of this machine |
//! | `requests` | what doors ask of it |
//! | `blocks` | what the index asks of the file layer |
//! | `gate` | who is at work: closing waits for them |
//! | `growth` | what each write adds to what a block occupies |
//! | `unit` | the row of the dataunit |
//! | `background` | compaction, checkpoints, deletions |
//! | `check` | [`check()`]: reads everything of a directory, and says what is wrong |
//! | `volumes` | volumes by their names, and what they may use |
//! | `figures` | what it has done and what it holds, for status and metrics |
//! | `error` | [`LocalError`] |
#![forbid(unsafe_code)]

mod background;
mod blocks;
mod check;
mod directory;
mod error;
mod figures;
mod gate;
mod growth;
mod local;
mod requests;
mod unit;
mod volumes;

pub use check::{Checked, Fault, Part, Progress, check, check_parts};
pub use error::LocalError;
pub use figures::{Compacted, Figures};
pub use index::{Quota, VolumeUse};
pub use local::{Drive, Local, LocalFormat, LocalOptions, Parts};
pub use volumes::{Volume, VolumeError};
