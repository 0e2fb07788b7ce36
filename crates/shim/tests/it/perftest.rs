//! Debian's perftest.

use crate::pair::{Host, has};

/// Runs a program and looks at its table: a row of numbers, the first of which is the size and the second how often.
#[track_caller]
fn measure(program: &str, arguments: &[&str], (size, iterations): (&str, &str)) {
    if !has(program) {
        return;
    }
    let [_, client] = Host::new().pair(program, arguments);
    let is_row = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let has_numbers = words.iter().skip(2).all(|word| word.parse::<f64>().is_ok());
        words.len() >= 4 && words[0] == size && words[1] == iterations && has_numbers
    };
    let row = client.lines().find(is_row);
    let row = row.unwrap_or_else(|| panic!("no row of {size} bytes in {client}"));
    let measured: f64 = (row
        .split_whitespace()
        .nth(3)
        .and_then(|word| word.parse().ok()))
    .unwrap_or_else(|| panic!("{row}"));
    assert!(measured > 0.0, "{row}");
}

#[test]
fn latencies_are_measured() {
    for program in ["ib_send_lat", "ib_write_lat", "ib_read_lat"] {
        measure(program, &["-n", "200"], ("2", "200"));
        measure(program, &["-n", "100", "-s", "65536"], ("65536", "100"));
    }
    measure("ib_send_lat", &["-n", "200", "-e"], ("2", "200"));
    measure("ib_send_lat", &["-n", "200", "-c", "UD"], ("2", "200"));
    measure("ib_send_lat", &["-n", "200", "-c", "UC"], ("2", "200"));
    measure("ib_write_lat", &["-n", "200", "-c", "UC"], ("2", "200"));
    measure("ib_send_lat", &["-n", "200", "-I", "0"], ("2", "200"));
}

#[test]
fn bandwidths_are_measured() {
    for program in ["ib_send_bw", "ib_write_bw", "ib_read_bw"] {
        measure(program, &["-n", "200"], ("65536", "200"));
        measure(program, &["-n", "200", "-b"], ("65536", "200"));
        measure(program, &["-n", "20", "-a"], ("8388608", "20"));
    }
    measure("ib_send_bw", &["-n", "200", "-c", "UD"], ("4096", "200"));
    measure("ib_write_bw", &["-n", "200", "-q", "4"], ("65536", "800"));
    measure(
        "ib_send_bw",
        &["-n", "200", "-q", "2", "--use-srq"],
        ("65536", "400"),
    );
    measure("ib_send_bw", &["-n", "200", "-e"], ("65536", "200"));
}
