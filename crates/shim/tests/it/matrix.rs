//! The rows of the matrix that are tests, package by package. `cargo x matrix` runs all.

use programs::matrix::{Outcome, Row, rows};

use crate::pair::leave_out;

/// Runs a package's rows, and tells all that fail.
fn run(package: &str, is_asked: impl Fn(&Row) -> bool) {
    let rows = rows().into_iter().filter(|row| row.in_tests);
    let rows: Vec<Row> = rows
        .filter(|row| row.package == package && is_asked(row))
        .collect();
    assert!(!rows.is_empty(), "no rows of {package}");
    let mut failures = String::new();
    for row in rows {
        match row.run().outcome {
            Outcome::Passed | Outcome::Waits(_) => {}
            Outcome::Absent(program) => leave_out(&program),
            Outcome::Failed(why) => {
                failures += &format!("{} {}: {why}\n", row.program, row.options);
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn ibverbs_utils() {
    run("ibverbs-utils", |_| true);
}

#[test]
fn latencies_of_perftest() {
    run("perftest", |row| row.program.ends_with("_lat"));
}

#[test]
fn bandwidths_of_perftest() {
    run("perftest", |row| !row.program.ends_with("_lat"));
}

#[test]
fn rdmacm_utils() {
    run("rdmacm-utils", |_| true);
}

#[test]
fn netpipe_over_rsockets() {
    run("netpipe-tcp", |_| true);
}
