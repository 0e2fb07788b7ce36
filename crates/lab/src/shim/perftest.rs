//! perftest's programs on the software NIC, each side on a CPU of its own.

use anyhow::{Context as _, ensure};
use programs::host::Listens;
use programs::matrix::figures;
use programs::{Host, find, free_port, library};

/// Runs a pair, and gives the last row of the client's table: bytes, iterations, and figures.
///
/// # Errors
/// A program is missing, or fails.
pub(super) fn row(cpus: [usize; 2], program: &str, options: &[&str]) -> anyhow::Result<Vec<f64>> {
    ensure!(
        find(program).is_some(),
        "{program} is not installed (perftest)"
    );
    library().context("libvervain_verbs.so is not beside this program")?;
    let host = Host::new();
    let port = free_port();
    let [server_cpu, client_cpu] = cpus.map(|cpu| cpu.to_string());
    let port_text = port.to_string();
    let side = |cpu: &str, last: &[&str]| -> Vec<String> {
        let words = [
            &["taskset", "-c", cpu, program, "-F", "-p", &port_text],
            options,
            last,
        ];
        words.concat().into_iter().map(str::to_string).collect()
    };
    fn words(owned: &[String]) -> Vec<&str> {
        owned.iter().map(String::as_str).collect()
    }
    let server = host.serve(&words(&side(&server_cpu, &[])), Listens::Tcp(port));
    let client = host.call(&words(&side(&client_cpu, &["127.0.0.1"])));
    ensure!(
        client.status.success(),
        "{program}: {}: {}",
        client.status,
        client.text()
    );
    let server = server.end();
    ensure!(server.status.success(), "{program}: {}", server.text());
    let row = figures(&client.text()).pop();
    row.with_context(|| format!("{program} has no figures: {}", client.text()))
}

/// What a program that measures latencies takes typically, one way, in microseconds.
pub(super) fn latency_us(cpus: [usize; 2], program: &str, options: &[&str]) -> anyhow::Result<f64> {
    // Bytes, iterations, least, most, typical.
    let row = row(cpus, program, options)?;
    row.get(4).copied().context("no typical latency")
}

/// MiB a second, and millions of messages a second, of one that measures bandwidths.
pub(super) fn bandwidth(
    cpus: [usize; 2],
    program: &str,
    options: &[&str],
) -> anyhow::Result<(f64, f64)> {
    // Bytes, iterations, peak, average, messages.
    let row = row(cpus, program, options)?;
    let figures = row.get(3).zip(row.get(4));
    figures
        .map(|(bytes, messages)| (*bytes, *messages))
        .context("no bandwidth")
}
