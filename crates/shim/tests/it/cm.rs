//! Programs of rdma-core and perftest that use librdmacm and rsocket, as Debian has them.

use std::path::Path;
use std::process::Command;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::pair::{Host, Listens, RSPRELOAD, Running, alone, has, leave_out};
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

#[test]
fn a_channel_is_what_programs_take_it_for() {
    let place = Place::new();
    let program = compile("channel", place.run_dir(), &[]);
    place
        .call(&[&program.display().to_string()])
        .expect("all is well");
}

#[test]
fn rping_pings() {
    if !has("rping") {
        return;
    }
    let place = Place::new();
    let server = place.serve(&["rping", "-s", "-a", "127.0.0.1", "-C", "10", "-v"]);
    let client = place.call(&["rping", "-c", "-a", "127.0.0.1", "-C", "10", "-v"]);
    client.expect("ping data: rdma-ping-9: JKLMN");
    server.end().expect("server ping data: rdma-ping-9: JKLMN");
}

#[test]
fn addresses_of_ipv6_and_of_other_devices_are_called() {
    if !has("rping") {
        return;
    }
    let place = Place::new();
    let server = place.serve(&["rping", "-s", "-a", "::1", "-C", "3", "-v"]);
    let client = place.call(&["rping", "-c", "-a", "::1", "-C", "3", "-v"]);
    client.expect("ping data: rdma-ping-2: CDEFG");
    server.end().expect("rdma-ping-2: CDEFG");
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
    client.expect("ping data: rdma-ping-2: CDEFG");
    server.end().expect("rdma-ping-2: CDEFG");
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
        client.expect("ping data: rdma-ping-2: CDEFG");
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
fn ucmatose_transfers() {
    if !has("ucmatose") {
        return;
    }
    let place = Place::new();
    let server = place.serve(&["ucmatose", "-c", "4"]);
    let client = place.call(&["ucmatose", "-s", "127.0.0.1", "-c", "4"]);
    client.expect("test complete\nreturn status 0");
    server.end().expect("test complete\nreturn status 0");
}

#[test]
fn udaddy_transfers() {
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

#[test]
fn endpoints_are_made_in_one_call() {
    if !has("rdma_server") {
        return;
    }
    let place = Place::new();
    let server = place.serve(&["rdma_server", "-s", "127.0.0.1"]);
    let client = place.call(&["rdma_client", "-s", "127.0.0.1"]);
    client.expect("rdma_client: end 0");
    server.end().expect("rdma_server: end 0");
}

#[test]
fn many_connections_are_made() {
    if !has("cmtime") {
        return;
    }
    let place = Place::new();
    let _server = place.serve(&["cmtime", "-b", "127.0.0.1", "-c", "50"]);
    let client = place.call(&["cmtime", "-s", "127.0.0.1", "-c", "50"]);
    client.expect("destroy ");
}

#[test]
fn perftest_connects_by_it() {
    if !has("ib_send_bw") {
        return;
    }
    for program in [
        &["ib_send_bw", "-R", "-F", "-n", "100"][..],
        &["ib_write_bw", "-R", "-F", "-n", "100"],
        &["ib_read_lat", "-R", "-F", "-n", "100"],
        &["ib_send_lat", "-R", "-F", "-n", "100", "-c", "UD"],
    ] {
        let place = Place::new();
        let port = next_port().to_string();
        let program = [program, &["-p", &port]].concat();
        let server = place.serve(&program);
        let client = place.call(&[&program[..], &["127.0.0.1"]].concat());
        client.expect("rdma_cm QPs\t : ON");
        server.end().expect("rdma_cm QPs\t : ON");
    }
}

/// A port for a program that also asks for one of TCP.
fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let step = NEXT.fetch_add(1, Ordering::Relaxed);
    // Spread by process, below what the system chooses from.
    20_000 + (std::process::id() % 1000) as u16 * 10 + step % 10
}

#[test]
fn rsockets_stream() {
    if !has("rstream") {
        return;
    }
    for how in [&[][..], &["-T", "b"], &["-T", "n"]] {
        let place = Place::new();
        let size = ["-S", "4096", "-I", "5", "-C", "10"];
        let server = [&["rstream", "-b", "127.0.0.1"], &size[..], how].concat();
        let client = [&["rstream", "-s", "127.0.0.1"], &size[..], how].concat();
        let server = place.serve(&server);
        place.call(&client).expect("4k      10      5       400k");
        server.end().expect("4k      10      5       400k");
    }
}

#[test]
fn rsockets_write_into_each_others_memory() {
    if !has("riostream") {
        return;
    }
    let place = Place::new();
    let size = ["-S", "4096", "-I", "5", "-C", "10"];
    for _ in 0..10 {
        let server = place.serve(&[&["riostream", "-b", "127.0.0.1"], &size[..]].concat());
        let client = place.call(&[&["riostream", "-s", "127.0.0.1"], &size[..]].concat());
        // It listens before it says how much may be mapped, and clients may be as quick.
        if client.text().contains("riomap: Cannot allocate memory") {
            continue;
        }
        client.expect("4k      10      5       400k");
        server.end().expect("4k      10      5       400k");
        return;
    }
    panic!("always too early");
}

#[test]
fn rcopy_copies_a_file() {
    if !has("rcopy") {
        return;
    }
    let place = Place::new();
    let (from, to) = (place.run_dir().join("from"), place.run_dir().join("to"));
    let bytes: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8).collect();
    std::fs::write(&from, &bytes).expect("written");
    let _server = place.serve(&["rcopy"]);
    let target = format!("127.0.0.1:{}", to.display());
    let from = from.display().to_string();
    place
        .call(&["rcopy", &from, &target])
        .expect("300000 bytes");
    assert!(std::fs::read(&to).expect("a copy") == bytes);
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
    // All but those of multicast groups.
    assert_eq!(passed.count(), 7, "{said}");
}
