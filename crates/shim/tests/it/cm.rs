//! Programs of rdma-core and perftest that use librdmacm and rsocket, as Debian has them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::pair::{alone, has, leave_out, library};
use crate::programs::compile;

/// Seconds for a whole program, on a machine that is busy.
const PATIENCE: &str = "120";
const RSPRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

/// A place where programs meet, and what they have said.
struct Place {
    dir: TempDir,
    /// Loaded before a program's libraries.
    preload: String,
    _alone: MutexGuard<'static, ()>,
}

/// A program that runs, and where its output goes.
struct Running {
    child: Child,
    output: PathBuf,
}

/// What a program has said, on both of its outputs.
struct Said {
    status: ExitStatus,
    text: String,
}

impl Said {
    /// That it went well and said so.
    fn expect(self, words: &str) -> Self {
        assert!(
            self.status.success() && self.text.contains(words),
            "{}, without {words:?}:\n{}",
            self.status,
            self.text
        );
        self
    }
}

impl Place {
    fn new() -> Place {
        Place {
            dir: tempfile::tempdir().expect("a directory"),
            preload: library().display().to_string(),
            _alone: alone(),
        }
    }

    /// With TCP sockets that are rsockets.
    fn with_rsockets() -> Place {
        let mut place = Place::new();
        place.preload = format!("{}:{RSPRELOAD}", place.preload);
        place
    }

    fn start(&self, name: &str, program: &[&str]) -> Running {
        let output = self.dir.path().join(name);
        let file = File::create(&output).expect("a file");
        // Lines as they are written; the preload is the program's alone.
        let preload = format!("LD_PRELOAD={}", self.preload);
        let child = Command::new("timeout")
            .args(["--kill-after=5", PATIENCE, "env"])
            .arg(preload)
            .args(["stdbuf", "-oL"])
            .args(program)
            .env("VERVAIN_RUN_DIR", self.dir.path().join("run"))
            .env_remove("VERVAIN_GID")
            .stdin(Stdio::null())
            .stderr(file.try_clone().expect("a descriptor"))
            .stdout(file)
            .spawn();
        Running {
            child: child.expect("timeout, of coreutils"),
            output,
        }
    }

    /// Starts a server, and waits until it listens.
    fn serve(&self, program: &[&str]) -> Running {
        let mut running = self.start("server", program);
        let pid = running.child.id();
        wait_until(|| {
            let status = running.child.try_wait().expect("a child");
            assert!(status.is_none(), "it has ended:\n{}", running.text());
            listens(pid)
        });
        running
    }

    fn call(&self, program: &[&str]) -> Said {
        self.start("client", program).end()
    }
}

impl Running {
    fn text(&self) -> String {
        let mut text = String::new();
        let file = File::open(&self.output).expect("its output");
        BufReader::new(file)
            .read_to_string(&mut text)
            .expect("its text");
        text
    }

    fn end(mut self) -> Said {
        let status = self.child.wait().expect("it ends");
        let text = self.text();
        Said { status, text }
    }

    /// Ends the program itself, which `timeout` has started.
    fn kill(&self) {
        for pid in descendants(self.child.id()) {
            // SAFETY: a signal to a process of ours.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.kill();
            // It has been told to; what it says of that does not matter.
            let _ = self.child.wait();
        }
    }
}

/// Waits for what another process does.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process's children, and theirs.
fn descendants(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = list.unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|word| word.parse().ok());
    children
        .flat_map(|child| [vec![child], descendants(child)].concat())
        .collect()
}

/// Whether one of a process's descendants listens at a name of the connection manager.
fn listens(pid: u32) -> bool {
    let Ok(sockets) = File::open("/proc/net/unix") else {
        return false;
    };
    let lines = BufReader::new(sockets).lines().map_while(Result::ok);
    // Number, count, protocol, flags (who listens), type, state, inode, name.
    let inodes: Vec<String> = lines
        .filter(|line| line.contains(" 00010000 ") && line.contains("@vervain-cm/"))
        .filter_map(|line| Some(format!("socket:[{}]", line.split_whitespace().nth(6)?)))
        .collect();
    descendants(pid).iter().any(|pid| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd"));
        fds.into_iter().flatten().flatten().any(|fd| {
            let target = std::fs::read_link(fd.path()).unwrap_or_default();
            inodes.iter().any(|inode| Path::new(inode) == target)
        })
    })
}

#[test]
fn a_channel_is_what_programs_take_it_for() {
    let place = Place::new();
    let program = compile("channel", place.dir.path(), &[]);
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
    let client = place.start("client", &["rping", "-c", "-a", "127.0.0.1", "-v"]);
    wait_until(|| client.text().contains("rdma-ping-1: "));
    server.kill();
    let said = client.end();
    // Not by its time.
    assert_ne!(said.status.code(), Some(124), "{}", said.text);
    // It hears of it from the connection manager, unless it sends before: "transport retry counter exceeded".
    let words = ["DISCONNECT", "cq completion failed status 12"];
    let heard = words.iter().any(|words| said.text.contains(words));
    assert!(heard, "{}", said.text);
}

#[test]
fn a_call_to_nobody_is_refused() {
    if !has("rping") {
        return;
    }
    let place = Place::new();
    let said = place.call(&["rping", "-c", "-a", "127.0.0.1", "-C", "1", "-v"]);
    assert!(!said.status.success(), "{}", said.text);
    assert!(
        said.text.contains("RDMA_CM_EVENT_REJECTED"),
        "{}",
        said.text
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
    let server = place.serve(&["udaddy", "-b", "127.0.0.1", "-c", "3"]);
    let client = place.start("client", &["udaddy", "-s", "127.0.0.1", "-c", "3"]);
    // It receives all that the client sends. What it sends back in its last moment may be lost with it, as datagrams are.
    server
        .end()
        .expect("data transfers complete\ntest complete\nreturn status 0");
    assert!(client.text().contains("initiating data transfers"));
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
        if client.text.contains("riomap: Cannot allocate memory") {
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
    let (from, to) = (place.dir.path().join("from"), place.dir.path().join("to"));
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
    let program = compile("tcp_echo", place.dir.path(), &[]);
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
    let tests = place.dir.path().join("tests").display().to_string();
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
    let passed = said.text.lines().filter(|line| line.ends_with("... ok"));
    // All but those of multicast groups.
    assert_eq!(passed.count(), 7, "{}", said.text);
}
