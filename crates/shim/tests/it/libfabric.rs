//! Debian's libfabric: its provider `verbs`.

use crate::pair::{Host, Listens, alone, has};

#[test]
fn the_provider_lists_the_device() {
    if !has("fi_info") {
        return;
    }
    let said = Host::new().say("fi_info", &["-p", "verbs"]);
    for part in [
        "domain: vervain0\n",
        "type: FI_EP_MSG\n    protocol: FI_PROTO_RDMA_CM_IB_RC",
        "type: FI_EP_DGRAM\n    protocol: FI_PROTO_IB_UD",
    ] {
        assert!(said.contains(part), "{part:?} is missing in {said}");
    }
}

/// Runs a pingpong of all sizes whose both sides check every byte.
#[track_caller]
fn pingpong(provider: &str, endpoint: &str) {
    if !has("fi_pingpong") {
        return;
    }
    let _alone = alone();
    let host = Host::new();
    let port = programs::free_port();
    let text = port.to_string();
    let words = [
        "fi_pingpong",
        "-p",
        provider,
        "-e",
        endpoint,
        "-c",
        "-I",
        "5",
    ];
    let server = host.serve(&[&words[..], &["-B", &text]].concat(), Listens::Tcp(port));
    let client = host.call(&[&words[..], &["-P", &text, "127.0.0.1"]].concat());
    let client = client.expect("MB/sec");
    let server = server.end().expect("MB/sec");
    for said in [client.text(), server.text()] {
        for size in ["64", "4k", "1m"] {
            let is_row = |line: &str| line.split_whitespace().next() == Some(size);
            assert!(said.lines().any(is_row), "no {size} in {said}");
        }
    }
}

#[test]
fn messages_go_by_connections() {
    pingpong("verbs", "msg");
}
