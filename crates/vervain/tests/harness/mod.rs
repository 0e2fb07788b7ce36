//! Processes under test. Every wait is bounded and says what it waited for; every process ends
//! with its guard.

mod raw;
mod server;
mod shell;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use raw::Raw;
pub(crate) use server::{Place, Server, fixed_port};
pub(crate) use shell::Shell;

/// Longer than anything takes on a machine with many times more to do than it has processors; only
/// a failure waits for so long.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A process that is killed and reaped with its guard.
pub(crate) struct Guard(pub(crate) Child);

impl Guard {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("signalling a child that is not reaped");
    }

    /// Whether it does something of its own at SIGTERM (proc_pid_status(5)).
    pub(crate) fn takes_signals(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("a process");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.expect("a line").trim(), 16).expect("a mask");
        caught >> (rustix::process::Signal::TERM.as_raw() - 1) & 1 == 1
    }

    /// Kills with SIGKILL and reaps.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("killing a child");
        self.0.wait().expect("reaping a child");
    }

    /// Waits for its end by itself; its exit code.
    pub(crate) fn wait_end(&mut self) -> Option<i32> {
        self.wait_end_within(LIMIT)
    }

    fn wait_end_within(&mut self, limit: Duration) -> Option<i32> {
        let mut code = None;
        eventually_within(limit, "a process ends", || {
            code = self.0.try_wait().expect("asking for a child");
            code.is_some()
        });
        code.and_then(|status| status.code())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Asks until the answer is yes.
#[track_caller]
pub(crate) fn eventually(what: &str, done: impl FnMut() -> bool) {
    eventually_within(LIMIT, what, done);
}

/// Asks until the answer is yes, for longer than usual or not as long.
#[track_caller]
fn eventually_within(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let give_up = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < give_up, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The program, free of the environment's wishes.
pub(crate) fn vervain() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vervain"));
    for name in ["RUST_LOG", "XDG_RUNTIME_DIR", "RUST_BACKTRACE"] {
        command.env_remove(name);
    }
    command
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("output that is text")
    }

    /// The output as JSON, a value a line.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let parse = |line| {
            serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{line:?} is no JSON: {error}"))
        };
        self.text().lines().map(parse).collect()
    }

    /// Checks code and output; errors must be silent where the code is 0.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, out: &str) {
        let shown = String::from_utf8_lossy(&self.out);
        assert_eq!((self.code, &*shown), (Some(code), out), "{}", self.err);
        assert!(code != 0 || self.err.is_empty(), "{}", self.err);
    }
}

/// Runs a command to its end, with some input.
#[track_caller]
pub(crate) fn run(command: &mut Command, input: &[u8]) -> Said {
    run_within(LIMIT, command, input)
}

/// As [`run`], for a command that takes longer than others.
#[track_caller]
pub(crate) fn run_within(limit: Duration, command: &mut Command, input: &[u8]) -> Said {
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starting a command");
    let mut child = Guard(child);
    let mut stdin = child.0.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // A command that does not want its input closes it.
    let feed = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let out = read_all(child.0.stdout.take().expect("a pipe"));
    let err = read_all(child.0.stderr.take().expect("a pipe"));
    let code = child.wait_end_within(limit);
    feed.join().expect("feeding a command");
    let join = |reader: std::thread::JoinHandle<Vec<u8>>| reader.join().expect("reading a command");
    Said {
        code,
        out: join(out),
        err: String::from_utf8_lossy(&join(err)).into_owned(),
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("reading a pipe");
        bytes
    })
}
