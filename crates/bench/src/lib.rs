//! Workloads, measurements and reports.
//!
//! What an engineer runs to learn what a service does on this machine: a workload that one seed
//! repeats exactly, a closed loop that drives it, and a report that says on what and with which
//! settings it was measured.
//!
//! | module | what |
//! | --- | --- |
//! | [`workload`] | YCSB's mixes, uniform and Zipf draws, keys, checkable values, request tapes |
//! | [`cache`] | closed-loop runs against a cache server, over a NIC or a socket |
//! | [`process`] | servers started for a measurement, and stopped after it |
//! | [`limit`] | what the machine can do at all |
//! | [`mica`] | the cache's table alone, beside the standard hash map |
//! | [`index`] | the store's index alone, beside concurrent maps |
//! | [`store`] | the store on flash beside its bare device |
//! | [`report`] | a run of everything as JSON, plots and a page |
//! | [`plot`] | SVG plots |
//! | [`verbs`](mod@verbs) | microbenchmarks of a NIC, between two processes |
//! | [`death`] | what a client notices when others die |
//! | [`machine`] | what it runs on, and pinning threads |
//! | [`print`](mod@print) | reports as a table and as JSON |
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
pub mod death;
pub mod index;
pub mod limit;
pub mod machine;
pub mod mica;
pub mod plot;
pub mod print;
pub mod process;
pub mod report;
pub mod store;
pub mod verbs;
pub mod workload;
