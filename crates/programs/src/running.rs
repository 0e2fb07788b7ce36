//! A program that runs, and what it says.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, ExitStatus, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::host::PATIENCE_S;

/// A program that runs. It is killed, with all that it has started, when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: File,
    err: File,
}

/// What a program has said, and how it ended.
#[derive(Debug)]
pub struct Said {
    /// How it ended; 124 if `timeout` had to end it.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Said {
    /// Both outputs.
    pub fn text(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    /// That it went well and said so.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn expect(self, words: &str) -> Self {
        let text = self.text();
        assert!(
            self.status.success() && text.contains(words),
            "{}, without {words:?}:\n{text}",
            self.status,
        );
        self
    }

    /// As the standard library has it.
    pub fn into_output(self) -> Output {
        Output {
            status: self.status,
            stdout: self.out.into_bytes(),
            stderr: self.err.into_bytes(),
        }
    }
}

impl Running {
    /// Starts a program, whose outputs go to files.
    ///
    /// # Panics
    /// The system refuses.
    pub fn start(command: &mut Command) -> Self {
        let file = || tempfile::tempfile().expect("a file");
        let same = |file: &File| file.try_clone().expect("a descriptor");
        let (out, err) = (file(), file());
        let command = command.stdout(same(&out)).stderr(same(&err));
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Running { child, out, err }
    }

    /// The process that was started; the program may be one that it has started.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// What it has said so far, on both outputs.
    pub fn text(&self) -> String {
        read(&self.out) + &read(&self.err)
    }

    /// Waits for something while it runs.
    ///
    /// # Errors
    /// It has ended, or the time is over.
    pub fn wait_until(&mut self, mut is_so: impl FnMut() -> bool) -> Result<(), &'static str> {
        let began = Instant::now();
        // It may also be so, and the program have ended since.
        while !is_so() {
            if self.is_over() {
                return Err("it has ended");
            }
            if began.elapsed() > Duration::from_secs(PATIENCE_S.into()) {
                return Err("it takes too long");
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits until it ends: what it is started with has to bound that.
    pub fn end(mut self) -> Said {
        let status = self.child.wait().expect("a child");
        Said {
            status,
            out: read(&self.out),
            err: read(&self.err),
        }
    }

    /// Asks it to end, and what it has started with it: `timeout` passes the signal on.
    pub fn terminate(&self) {
        signal(self.id(), Signal::TERM);
    }

    /// Kills the program itself, which the child has started.
    pub fn kill(&self) {
        for pid in descendants(self.id()) {
            signal(pid, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.kill();
            // Over already, or over now.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Signals a process, which may be over already.
fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // What it says of one that is over does not matter.
        let _ = kill_process(pid, signal);
    }
}

/// All of a file, without moving the place where its writer goes on.
fn read(file: &File) -> String {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 1 << 16]);
    loop {
        match file.read_at(&mut buffer, bytes.len() as u64) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) => panic!("what a program has said: {error}"),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A process's children, and theirs.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    // It may be over.
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = list.unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|word| word.parse().ok());
    children
        .flat_map(|child| [vec![child], descendants(child)].concat())
        .collect()
}
