//! The programs that have to work, each with its options and what is looked at: one list for tests and for the command that
//! prints the table.
//!
//! | file | what |
//! | --- | --- |
//! | `row.rs` | [`Row`]: a program, its options, and what it has to say |
//! | `run.rs` | runs one |
//! | `perftest.rs`, `ibverbs.rs`, `rdmacm.rs`, `above.rs`, `tcp.rs` | the rows |

mod above;
mod ibverbs;
mod perftest;
mod rdmacm;
mod row;
mod run;
mod tcp;

pub use row::Row;
pub use run::{Outcome, Ran, figures};

/// All rows, in the order of the table.
pub fn rows() -> Vec<Row> {
    let parts = [
        ibverbs::rows(),
        perftest::rows(),
        rdmacm::rows(),
        above::rows(),
        tcp::rows(),
    ];
    parts.into_iter().flatten().collect()
}
