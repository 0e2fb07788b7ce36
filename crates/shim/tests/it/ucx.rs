//! Debian's UCX: its transports `rc_verbs` and `ud_verbs`.

use crate::pair::{Host, has};

/// With nothing but one transport of the device. The letter stands for "verbs", and has UCX make contact by `ud_verbs`.
fn host(transport: &str) -> Host {
    Host::new()
        .with_variable("UCX_TLS", transport)
        .with_variable("UCX_NET_DEVICES", "vervain0:1")
        .with_variable("UCX_WARN_UNUSED_ENV_VARS", "n")
}

#[test]
fn both_transports_are_listed() {
    if !has("ucx_info") {
        return;
    }
    let said = Host::new().say("ucx_info", &["-d"]);
    for transport in ["rc_verbs", "ud_verbs"] {
        let listed = format!("#      Transport: {transport}\n#         Device: vervain0:1");
        assert!(said.contains(&listed), "{transport} is missing in {said}");
    }
}

/// Runs a test of `ucx_perftest` and looks at its last line.
#[track_caller]
fn measure(host: &Host, test: &str, size: usize, iterations: usize) {
    let (size, count) = (size.to_string(), iterations.to_string());
    let arguments = ["-t", test, "-s", &size, "-n", &count, "-w", "10"];
    let [_, client] = host.pair("ucx_perftest", &arguments);
    let last = client.lines().find(|line| line.starts_with("Final:"));
    let last = last.unwrap_or_else(|| panic!("{test} of {size} bytes has no end: {client}"));
    let numbers: Vec<f64> = (last.split_whitespace().skip(1))
        .map(|word| word.parse().unwrap_or_else(|_| panic!("{last}")))
        .collect();
    assert_eq!(numbers.first(), Some(&(iterations as f64)), "{last}");
    assert!(numbers.len() == 8 && numbers[7] > 0.0, "{last}");
}

/// All of UCP's operations, short ones and those that need a rendezvous.
#[track_caller]
fn measure_all(transport: &str) {
    if !has("ucx_perftest") {
        return;
    }
    let host = host(transport);
    for test in ["tag_lat", "tag_bw", "ucp_am_lat", "stream_bw"] {
        measure(&host, test, 8, 200);
        measure(&host, test, 300_000, 20);
    }
    for test in ["ucp_put_lat", "ucp_put_bw", "ucp_get"] {
        measure(&host, test, 8, 200);
        measure(&host, test, 300_000, 20);
    }
    for test in ["ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"] {
        measure(&host, test, 8, 200);
    }
}

#[test]
fn all_operations_go_by_reliable_connections() {
    measure_all("rc_v");
}

#[test]
fn all_operations_go_by_datagrams() {
    measure_all("ud_v");
}

#[test]
fn what_is_put_and_got_are_writes_and_reads_of_the_device() {
    if !has("ucx_perftest") {
        return;
    }
    let host = host("rc_v");
    for (test, operation) in [("ucp_put_bw", "write"), ("ucp_get", "read")] {
        let trace = host.run_dir().join(test);
        let traced = [("VERVAIN_TRACE", trace.to_str().expect("a path"))];
        let [_, client] = host.pair_with(
            "ucx_perftest",
            &["-t", test, "-s", "4096", "-n", "50", "-w", "1"],
            &traced,
        );
        assert!(client.status.success(), "{}", crate::pair::text(&client));
        let lines = std::fs::read_to_string(&trace).expect("a trace");
        let count = lines
            .lines()
            .filter(|line| line.to_lowercase().contains(operation))
            .count();
        assert!(count >= 50, "{count} times {operation}: {lines}");
    }
}
