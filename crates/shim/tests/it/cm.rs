//! Programs of rdma-core and perftest that use librdmacm and rsocket, as Debian has them.

use std::path::Path;
use std::process::Command;
use std::sync::MutexGuard;

use crate::pair::{Host, Listens, RSPRELOAD, Running, Said, alone, has, leave_out};
use crate::programs::compile;

/// A host whose programs meet by the connection manager, and that has the machine to itself.
struct Place {
    host: Host,
    _alone: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Place {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl Place {
    fn new() -> Place {
        Place::on(Host::new())
    }

    /// With TCP sockets that are rsockets.
    fn with_rsockets() -> Place {
        Place::on(Host::new().with_library(Path::new(RSPRELOAD)))
    }

    fn on(host: Host) -> Place {
        Place {
            host,
            _alone: alone(),
        }
    }

    /// Starts a server, and waits until it listens.
    #[track_caller]
    fn serve(&self, program: &[&str]) -> Running {
        self.host.serve(program, Listens::Manager)
    }
}

/// That an rping has pinged three times, and ended well: or that its thread has asked for another event when the program had taken the
/// channel apart, which it does without waiting for the thread.
#[track_caller]
fn expect_pings(said: &Said) {
    let is_late = said
        .err
        .lines()
        .last()
        .is_some_and(|line| line.starts_with("rdma_get_cm_event: "));
    let text = said.text();
    assert!(
        said.status.success() || is_late && text.contains("DISCONNECT EVENT"),
        "{}: {text}",
        said.status
    );
    assert!(text.contains("rdma-ping-2: CDEFG"), "{text}");
}

#[test]
fn a_channel_is_what_programs_take_it_for() {
    let place = Place::new();
    let program = compile("channel", place.run_dir(), &[]);
    place
        .call(&[&program.display().to_string()])
        .expect("all is well");
}

#[test]
fn addresses_of_ipv6_and_of_other_devices_are_called() {
    if !has("rping") {
        return;
    }
    let place = Place::new();
    let server = place.serve(&["rping", "-s", "-a", "::1", "-C", "3", "-v"]);
    let client = place.call(&["rping", "-c", "-a", "::1", "-C", "3", "-v"]);
    expect_pings(&client);
    expect_pings(&server.end());
    // The server's device has an address of its own, and all of its ports.
    let on = |gid: &str, more: &[&str]| -> Vec<String> {
        let gid = format!("VERVAIN_GID={gid}");
        let words = ["env", &gid, "rping", "-C", "3", "-v"];
        words.iter().chain(more).map(ToString::to_string).collect()
    };
    let words = |owned: &[String]| {
        owned
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let server = place.serve(&["sh", "-c", &words(&on("10.77.0.1", &["-s"]))]);
    let client = on("10.77.0.2", &["-c", "-a", "10.77.0.1"]);
    let client = place.call(&["sh", "-c", &words(&client)]);
    expect_pings(&client);
    expect_pings(&server.end());
}

#[test]
fn a_persistent_rping_serves_several() {
    if !has("rping") {
        return;
    }
    let place = Place::new();
    let server = place.serve(&["rping", "-s", "-P", "-v"]);
    for _ in 0..3 {
        let client = place.call(&["rping", "-c", "-a", "127.0.0.1", "-C", "3", "-v"]);
        expect_pings(&client);
    }
    assert_eq!(server.text().matches("rdma-ping-2: ").count(), 3);
}

#[test]
fn a_client_whose_server_dies_ends() {
    if !has("rping") {
        return;
    }
    let place = Place::new();
    let server = place.serve(&["rping", "-s", "-a", "127.0.0.1", "-v"]);
    let mut client = place.start(&["rping", "-c", "-a", "127.0.0.1", "-v"]);
    while !client.text().contains("rdma-ping-1: ") {
        assert!(!client.is_over(), "{}", client.text());
        std::thread::yield_now();
    }
    server.kill();
    let said = client.end();
    // Not by its time.
    assert_ne!(said.status.code(), Some(124), "{}", said.text());
    // It hears of it from the connection manager, unless it sends before: "transport retry counter exceeded".
    let words = ["DISCONNECT", "cq completion failed status 12"];
    let heard = words.iter().any(|words| said.text().contains(words));
    assert!(heard, "{}", said.text());
}

#[test]
fn a_call_to_nobody_is_refused() {
    if !has("rping") {
        return;
    }
    let place = Place::new();
    let said = place.call(&["rping", "-c", "-a", "127.0.0.1", "-C", "1", "-v"]);
    assert!(!said.status.success(), "{}", said.text());
    assert!(
        said.text().contains("RDMA_CM_EVENT_REJECTED"),
        "{}",
        said.text()
    );
}

#[test]
fn udaddy_sends_all_before_it_exits() {
    if !has("udaddy") {
        return;
    }
    let place = Place::new();
    // Contact with the client is made while the server answers, and the server exits when its answers have completed.
    for _ in 0..20 {
        let server = place.serve(&["udaddy", "-b", "127.0.0.1", "-c", "3"]);
        for side in [
            place.call(&["udaddy", "-s", "127.0.0.1", "-c", "3"]),
            server.end(),
        ] {
            side.expect("data transfers complete\ntest complete\nreturn status 0");
        }
    }
}

/// Two receivers and a sender of a group. Each joins with so many queue pairs.
fn mckey(address: &[&str]) {
    const DONE: &str = "data transfers complete\ntest complete\nreturn status 0";
    if !has("mckey") {
        return;
    }
    let place = Place::new();
    let program = [&["mckey", "-c", "2"], address].concat();
    let receivers = [(), ()].map(|()| {
        let mut receiver = place.start(&program);
        let mut said = String::new();
        while !said.contains("receiving data transfers") {
            assert!(!receiver.is_over(), "{said}");
            std::thread::sleep(std::time::Duration::from_millis(2));
            said = receiver.text();
        }
        receiver
    });
    place.call(&[&program[..], &["-s"]].concat()).expect(DONE);
    for receiver in receivers {
        receiver.end().expect(DONE);
    }
}

#[test]
fn mckey_sends_to_a_group() {
    mckey(&["-m", "239.1.2.3"]);
    mckey(&["-b", "::1", "-m", "ff0e::7"]);
}

#[test]
fn a_tcp_program_runs_over_rsockets() {
    if !Path::new(RSPRELOAD).exists() {
        leave_out(RSPRELOAD);
        return;
    }
    let place = Place::with_rsockets();
    let program = compile("tcp_echo", place.run_dir(), &[]);
    let program = program.display().to_string();
    // That it listens at a name of the connection manager says that it is no TCP.
    let server = place.serve(&[&program, "serve", "9"]);
    place
        .call(&[&program, "call", "9"])
        .expect("echoed 2000000 bytes");
    server.end().expect("served 2000000 bytes");
}

/// rdma-core's own tests of connections, of its Python binding. They look for the device's network interface by sysfs, which says
/// nothing of this one: they are told the address.
#[test]
fn rdma_cores_own_tests_pass() {
    const SHIPPED: &str = "/usr/share/doc/rdma-core/tests";
    let has_binding = Command::new("/usr/bin/python3")
        .args(["-c", "import pyverbs"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_binding || !Path::new(SHIPPED).exists() {
        leave_out("python3-pyverbs, and the tests beside it");
        return;
    }
    let place = Place::new();
    let tests = place.run_dir().join("tests").display().to_string();
    let address = "s/^        if not self.ip_addr:/        self.ip_addr = '127.0.0.1'\\n&/";
    let copy = format!(
        "cp -r {SHIPPED} {tests} && gunzip {tests}/*.gz && sed -i \"{address}\" {tests}/base.py"
    );
    assert!(
        Command::new("sh")
            .args(["-c", &copy])
            .status()
            .is_ok_and(|status| status.success())
    );
    let run = format!("cd {tests} && exec /usr/bin/python3 run_tests.py -v -k rdmacm.CMTest");
    let said = place
        .call(&["sh", "-c", &run])
        .expect("test_rdmacm_sync_traffic");
    let said = said.text();
    let passed = said.lines().filter(|line| line.ends_with("... ok"));
    assert_eq!(passed.count(), 10, "{said}");
}

/// A client whose process has these faults.
fn client_with<'a>(faults: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [
        &["env", faults, "rping", "-c", "-a", "127.0.0.1", "-v"],
        arguments,
    ]
    .concat()
}

#[test]
fn a_call_is_rejected_or_not_answered_on_purpose() {
    if !has("rping") {
        return;
    }
    for (faults, event) in [
        (
            "VERVAIN_FAULTS=cm-reject@0",
            "RDMA_CM_EVENT_REJECTED, error 28",
        ),
        (
            "VERVAIN_FAULTS=cm-timeout@0",
            "RDMA_CM_EVENT_UNREACHABLE, error -110",
        ),
    ] {
        let place = Place::new();
        let _server = place.serve(&["rping", "-s", "-a", "127.0.0.1", "-C", "3"]);
        let said = place.call(&client_with(faults, &["-C", "3"]));
        assert!(!said.status.success(), "{}", said.text());
        assert!(said.text().contains(event), "{faults}: {}", said.text());
    }
}

#[test]
fn a_message_comes_before_its_connection_is_established() {
    if !has("rping") {
        return;
    }
    // rping waits for the event before it looks at its message, and goes on. The event comes when the message is polled.
    let place = Place::new();
    let server = place.serve(&[
        "env",
        "VERVAIN_FAULTS=cm-late-established@0",
        "rping",
        "-s",
        "-a",
        "127.0.0.1",
        "-C",
        "3",
        "-v",
    ]);
    let client = place.call(&client_with("VERVAIN_FAULTS=", &["-C", "3"]));
    expect_pings(&client);
    expect_pings(&server.end());
}

#[test]
fn a_peer_that_is_killed_at_its_message_is_noticed() {
    if !has("rping") {
        return;
    }
    let place = Place::new();
    let words = [
        "env",
        "VERVAIN_FAULTS=kill@6",
        "rping",
        "-s",
        "-a",
        "127.0.0.1",
        "-v",
    ];
    let server = place.serve(&words);
    let said = place.call(&["rping", "-c", "-a", "127.0.0.1", "-v"]);
    assert_ne!(said.status.code(), Some(124), "{}", said.text());
    let heard = ["DISCONNECT", "cq completion failed status 12"];
    let heard = heard.iter().any(|words| said.text().contains(words));
    assert!(heard, "{}", said.text());
    // Four messages a ping: the seventh is of the second one.
    assert!(said.text().contains("rdma-ping-0: "), "{}", said.text());
    assert!(!said.text().contains("rdma-ping-1: "), "{}", said.text());
    assert!(!server.end().status.success());
}
