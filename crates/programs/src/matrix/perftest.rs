//! perftest.

use super::row::{Check, Row};

const PACKAGE: &str = "perftest";

/// Options that a program is run with, and the size and iterations of the row that it has to print.
type Case = (&'static str, u32, u32);

/// Of all programs that measure latencies.
const LATENCIES: &[Case] = &[
    ("-n 200", 2, 200),
    ("-n 100 -s 65536", 65536, 100),
    ("-n 200 -x 0", 2, 200),
    ("-n 200 -H -U", 2, 200),
];

/// Of all that measure bandwidths.
const BANDWIDTHS: &[Case] = &[
    ("-n 200", 65536, 200),
    ("-n 200 -b", 65536, 200),
    ("-n 200 -q 4", 65536, 800),
    ("-n 512 -s 64 -l 16", 64, 512),
    ("-n 200 -Q 1", 65536, 200),
    ("-n 200 -x 0 -N", 65536, 200),
    ("-n 200 -t 16 --mr_per_qp -q 2", 65536, 400),
    ("-n 200 -s 1048576", 1 << 20, 200),
    ("-n 200 --use_old_post_send", 65536, 200),
];

/// Those of one program.
const OWN: &[(&str, &[Case])] = &[
    (
        "ib_send_lat",
        &[
            ("-n 200 -c UC", 2, 200),
            ("-n 200 -c UD", 2, 200),
            ("-n 200 -e", 2, 200),
            ("-n 200 -c UD -e", 2, 200),
            ("-n 200 -I 0", 2, 200),
            ("-n 200 -s 256 -I 256", 256, 200),
            ("-n 200 --use-srq", 2, 200),
        ],
    ),
    (
        "ib_write_lat",
        &[("-n 200 -c UC", 2, 200), ("-n 200 -s 256 -I 256", 256, 200)],
    ),
    (
        "ib_send_bw",
        &[
            ("-n 200 -e", 65536, 200),
            ("-n 200 -c UC", 65536, 200),
            ("-n 200 -c UD", 4096, 200),
            ("-n 200 -c UD -q 4 -e", 4096, 800),
            ("-n 200 -c UD -b", 4096, 200),
            ("-n 200 -q 2 --use-srq", 65536, 400),
            ("-n 200 -r 64 --recv_post_list=8 -s 4096", 4096, 200),
            ("-n 200 -s 64 -I 64", 64, 200),
            ("-n 200 -q 64 -s 4096", 4096, 12800),
            ("-n 200 --reversed", 65536, 200),
        ],
    ),
    (
        "ib_write_bw",
        &[
            ("-n 200 -c UC", 65536, 200),
            ("-n 200 -c UC -b -q 2", 65536, 400),
            ("-n 200 -s 64 -I 64 -l 8", 64, 200),
            ("-n 200 --odp", 65536, 200),
            ("-n 200 -q 64 -s 4096", 4096, 12800),
            ("-n 200 --perform_warm_up", 65536, 200),
        ],
    ),
    (
        "ib_read_bw",
        &[
            ("-n 200 -e", 65536, 200),
            ("-n 200 -o 1", 65536, 200),
            ("-n 200 --perform_warm_up", 65536, 200),
        ],
    ),
    (
        "ib_read_lat",
        &[("-n 200 -e", 2, 200), ("-n 200 -o 1", 2, 200)],
    ),
];

/// Atomics take 8 bytes each, and no sizes.
const ATOMICS: &[&str] = &[
    "-A FETCH_AND_ADD",
    "-A CMP_AND_SWAP",
    "-A FETCH_AND_ADD -e",
    "-A CMP_AND_SWAP -x 0",
];

/// What tests run of these, beside the command: one of each sort of each program.
const TESTED: &[&str] = &[
    "-n 200",
    "-n 200 -e",
    "-n 200 -b",
    "-n 200 -q 4",
    "-n 512 -s 64 -l 16",
    "-n 100 -s 65536",
    "-n 200 -c UC",
    "-n 200 -c UD",
    "-n 200 -I 0",
    "-n 200 -q 2 --use-srq",
    "-n 200 -A FETCH_AND_ADD",
    "-n 200 -A CMP_AND_SWAP",
];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for program in ["ib_send_lat", "ib_write_lat", "ib_read_lat"] {
        rows.extend(LATENCIES.iter().map(|case| measure(program, case)));
        rows.push(all_sizes(program, 20));
        rows.push(by_manager(program, "-n 100", 2, 100));
    }
    for program in ["ib_send_bw", "ib_write_bw", "ib_read_bw"] {
        rows.extend(BANDWIDTHS.iter().map(|case| measure(program, case)));
        rows.push(all_sizes(program, 20));
        rows.push(endless(program, "-D 1 --run_infinitely"));
        rows.push(by_manager(program, "-n 100", 65536, 100));
        rows.push(by_manager(program, "-n 100 -b -q 2", 65536, 200));
    }
    for (program, cases) in OWN {
        rows.extend(cases.iter().map(|case| measure(program, case)));
    }
    rows.push(by_manager("ib_send_lat", "-n 100 -c UD", 2, 100));
    rows.push(by_manager("ib_send_lat", "-n 100 -e", 2, 100));
    rows.push(by_manager("ib_send_bw", "-n 100 -c UD", 4096, 100));
    for program in ["ib_atomic_lat", "ib_atomic_bw"] {
        for options in ATOMICS {
            let options = format!("-n 200 {options}");
            rows.push(figures(Row::by_tcp(PACKAGE, program, &options), 8, 200));
        }
    }
    rows.push(figures(
        Row::by_tcp(PACKAGE, "ib_atomic_bw", "-n 200 -q 2 -b"),
        8,
        400,
    ));
    rows.push(endless("ib_atomic_bw", "-D 1 --run_infinitely"));
    for row in &mut rows {
        row.in_tests |= TESTED.contains(&row.options.as_str());
    }
    rows.extend(refused());
    rows
}

/// What no device of this kind can do.
fn refused() -> Vec<Row> {
    let tcp = |program, options| Row::by_tcp(PACKAGE, program, options);
    let raw =
        |program, options| Row::alone(PACKAGE, program, options).refused("Unable to create QP.");
    vec![
        tcp("ib_send_bw", "-c XRC -n 100").refused("Error opening XRC domain"),
        tcp("ib_send_bw", "-c DC -n 100").refused("Unable to create QP."),
        // It says so itself: nothing completes where a WRITE arrives.
        tcp("ib_write_bw", "-n 200 -e").refused("Events feature not available on WRITE verb"),
        tcp("ib_write_lat", "-n 200 -e").refused("Events feature not available on WRITE verb"),
        raw(
            "raw_ethernet_bw",
            "--client -E 00:00:00:00:00:01 -B 00:00:00:00:00:02 -n 100",
        ),
        raw(
            "raw_ethernet_lat",
            "--client -E 00:00:00:00:00:01 -B 00:00:00:00:00:02 -n 100",
        ),
        raw(
            "raw_ethernet_burst_lat",
            "--client -E 00:00:00:00:00:01 -B 00:00:00:00:00:02 -n 100",
        )
        // It sends by a limiter of its own, and takes none here, before it asks for a queue pair.
        .refused("SW Rate limiter cann't be executed"),
        raw(
            "raw_ethernet_fs_rate",
            "--client -E 00:00:00:00:00:01 -B 00:00:00:00:00:02 -n 100",
        ),
    ]
    .into_iter()
    .map(Row::tested)
    .collect()
}

fn figures(row: Row, size: u32, iterations: u32) -> Row {
    row.check(Check::Figures { size, iterations })
}

fn measure(program: &'static str, &(options, size, iterations): &Case) -> Row {
    figures(Row::by_tcp(PACKAGE, program, options), size, iterations)
}

fn all_sizes(program: &'static str, iterations: u32) -> Row {
    let row = Row::by_tcp(PACKAGE, program, &format!("-n {iterations} -a"));
    row.check(Check::Sizes {
        up_to: 1 << 23,
        iterations,
    })
}

fn endless(program: &'static str, options: &str) -> Row {
    Row::by_tcp(PACKAGE, program, options).check(Check::Endless { rows: 2 })
}

/// Connected by the connection manager, at a port of its own.
fn by_manager(program: &'static str, options: &str, size: u32, iterations: u32) -> Row {
    let options = format!("-R -F {options}");
    let row = Row::by_manager(
        PACKAGE,
        &options,
        (program, "-p {port}"),
        (program, "127.0.0.1 -p {port}"),
    );
    figures(row, size, iterations)
}
