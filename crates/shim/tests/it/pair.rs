//! Programs that nobody here wrote, in pairs: a server and a client on the loopback interface.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// No program of a test takes longer, on the busiest machine.
const PATIENCE_S: u32 = 120;

/// The library under test: cargo puts it beside the tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let library = test.with_file_name("libvervain_verbs.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

/// Says that a test is left out for want of something, or fails where that is not allowed.
pub(crate) fn leave_out(what: &str) {
    assert!(
        std::env::var_os("VERVAIN_TEST_PEERS").is_none(),
        "{what}: missing"
    );
    eprintln!("left out: {what}: missing");
}

/// Whether a program is there. In CI it has to be.
pub(crate) fn has(program: &str) -> bool {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search).any(|dir| dir.join(program).is_file());
    if !found {
        leave_out(program);
    }
    found
}

/// Has the machine to itself, as far as these tests go: both sides of most programs spin, each on a core.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A host of its own: programs of one meet.
pub(crate) struct Host(TempDir);

impl Host {
    pub(crate) fn new() -> Self {
        Host(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn run_dir(&self) -> &Path {
        self.0.path()
    }

    /// A program on the software NIC, which ends in bounded time.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        self.command_within(PATIENCE_S, program, arguments)
    }

    /// One that takes longer than others.
    pub(crate) fn command_within(
        &self,
        patience_s: u32,
        program: &str,
        arguments: &[&str],
    ) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", &patience_s.to_string(), program])
            .args(arguments)
            .env("LD_PRELOAD", library())
            .env("VERVAIN_RUN_DIR", self.run_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// What a program says, which has to succeed.
    #[track_caller]
    pub(crate) fn say(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments).output().expect("it runs");
        said(&format!("{program} {}", arguments.join(" ")), &output)
    }

    /// What a server and its client say, both of which have to succeed.
    #[track_caller]
    pub(crate) fn pair(&self, program: &str, arguments: &[&str]) -> [String; 2] {
        let [server, client] = self.pair_with(program, arguments, &[]);
        let name = format!("{program} {}", arguments.join(" "));
        // What the server says helps to understand the client.
        if !client.status.success() {
            eprintln!("server: {}", text(&server));
        }
        [
            said(&format!("{name}, server"), &server),
            said(&format!("{name}, client"), &client),
        ]
    }

    /// A server and its client, which has these variables, to their ends.
    #[track_caller]
    pub(crate) fn pair_with(
        &self,
        program: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> [Output; 2] {
        let _alone = alone();
        let port = free_port();
        let port_text = port.to_string();
        let arguments = [arguments, &["-p", &port_text]].concat();
        let server = self.command(program, &arguments).spawn().expect("it runs");
        let mut server = Bounded(Some(server));
        server.wait_until(|| is_listening(port));
        let mut client = self.command(program, &[&arguments[..], &["127.0.0.1"]].concat());
        client.envs(variables.iter().copied());
        let client = client.output().expect("it runs");
        let server = server.0.take().expect("taken once");
        if !client.status.success() {
            // It may be waiting for its client for ever.
            end(&server);
        }
        let server = server.wait_with_output().expect("it ends");
        [server, client]
    }
}

pub(crate) fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts.map(|part| String::from_utf8_lossy(part)).join("")
}

#[track_caller]
fn said(name: &str, output: &Output) -> String {
    let text = text(output);
    assert!(output.status.success(), "{name}: {}\n{text}", output.status);
    text
}

/// Asks `timeout` to end its program, which a SIGKILL would leave behind.
fn end(server: &Child) {
    let timeout = rustix::process::Pid::from_child(server);
    // It may have ended already.
    let _ = rustix::process::kill_process(timeout, rustix::process::Signal::TERM);
}

/// Ends its program when the test ends before.
struct Bounded(Option<Child>);

impl Bounded {
    #[track_caller]
    fn wait_until(&mut self, is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            let server = self.0.as_mut().expect("not taken yet");
            let ended = server.try_wait().expect("it can be asked");
            if ended.is_some() || since.elapsed() > Duration::from_secs(PATIENCE_S.into()) {
                let server = self.0.take().expect("not taken yet");
                let said = server.wait_with_output().expect("it ends");
                panic!("the server does not listen: {}", text(&said));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        if let Some(mut server) = self.0.take() {
            end(&server);
            // There is nobody to tell.
            let _ = server.wait();
        }
    }
}

/// A port of no other test of this process, nor of one that the kernel gives to whoever connects.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Tests of several processes begin at different places.
        let next = std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + next % COUNT).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Whether somebody listens on a TCP port, as the kernel says.
pub(crate) fn is_listening(port: u16) -> bool {
    const LISTEN: &str = "0A";
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (local, state) = (words.next().unwrap_or(""), words.nth(1).unwrap_or(""));
            local.ends_with(&format!(":{port:04X}")) && state == LISTEN
        })
    })
}
