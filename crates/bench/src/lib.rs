//! Workloads, measurements and reports.
//!
//! What an engineer runs to learn what a service does on this machine: a workload that one seed
//! repeats exactly, a closed loop that drives it, and a report that says on what and with which
//! settings it was measured.
//!
//! | module | what |
//! | --- | --- |
//! | [`workload`] | YCSB's mixes, uniform and Zipf draws, keys, checkable values, request tapes |
//! | [`cache`] | runs against a cache server, over a NIC or a socket, in a closed loop or at a rate |
//! | [`store`] | the store on flash beside its bare device |
//! | [`verbs`](mod@verbs) | microbenchmarks of a NIC, between two processes |
//! | [`limit`] | what the machine can do at all |
//! | [`process`] | servers started for a measurement, and stopped after it |
//! | [`machine`] | what it runs on, and pinning threads |
//! | [`measured`] | a figure that was measured several times |
//! | [`print`](mod@print) | reports as a table and as JSON |
//! | [`units`] | sizes, durations and rates as people write them |
//!
//! Comparisons with other programs, plots and the big reports are in `lab`.
//!
//! This is an edge crate: it has threads and reads the clock. A NIC is still passed in.
//!
//! ```
//! use bench::workload::{Distribution, Mix, Tape, Workload};
//!
//! let workload = Workload {
//!     mix: Mix::B,
//!     distribution: Distribution::YCSB_ZIPF,
//!     items: 10_000,
//!     key_len: 16,
//! };
//! let tape = Tape::record(&workload.generator(7)?, 0, 1000);
//! let gets = tape.iter().filter(|(operation, _)| !operation.is_put()).count();
//! assert!((900..=1000).contains(&gets));
//! # Ok::<(), bench::workload::WorkloadError>(())
//! ```

#![forbid(unsafe_code)]

pub mod cache;
pub mod limit;
pub mod machine;
pub mod measured;
pub mod print;
pub mod process;
pub mod store;
pub mod units;
pub mod verbs;
pub mod workload;

pub use measured::{Measured, Rounds};
