//! A machine that does a job, while the host listens to what it says.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::Image;
use crate::job::{Job, Said};

/// A machine that runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    lines: Receiver<String>,
    complaint: Option<JoinHandle<String>>,
    console: String,
    ends: Instant,
    _scratch: TempDir,
}

impl Image {
    /// Boots a machine, which does the job.
    ///
    /// # Errors
    /// The machine does not start.
    pub fn start(&self, job: &Job) -> Result<Machine> {
        let scratch = tempfile::tempdir()?;
        let initrd = job.archive(self, scratch.path())?;
        let mut command = job.machine(self, &initrd);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("starting qemu-system-x86_64")?;
        let out = child.stdout.take().context("a pipe")?;
        let complaint = child.stderr.take().context("a pipe")?;
        let (to, lines) = channel();
        drop(spawn(move || tell_lines(out, &to)));
        Ok(Machine {
            child,
            lines,
            complaint: Some(spawn(move || all_of(complaint))),
            console: String::new(),
            ends: Instant::now() + job.timeout_of(),
            _scratch: scratch,
        })
    }

    /// Boots a machine, has it do the job, and waits for its end.
    ///
    /// # Errors
    /// The machine does not start, or does not come to the job's end in time: what it said so far is
    /// in the message. A job that fails is no error here, but a [`Said::code`].
    pub fn run(&self, job: &Job) -> Result<Said> {
        self.start(job)?.finish()
    }
}

impl Machine {
    /// Waits for a line that has this text in it, and returns the line.
    ///
    /// # Errors
    /// The job ends without one, or its time is over: all that it said so far is in the message.
    pub fn wait_for(&mut self, text: &str) -> Result<String> {
        while let Some(line) = self.next_line()? {
            if line.contains(text) {
                return Ok(line);
            }
        }
        bail!("the guest ended without {text:?}:\n{}", self.console)
    }

    /// Waits for the job's end.
    ///
    /// # Errors
    /// The machine does not come to it in time: what it said so far is in the message.
    pub fn finish(mut self) -> Result<Said> {
        while self.next_line()?.is_some() {}
        self.child.wait()?;
        let complaint = self.complaint.take().map(JoinHandle::join);
        let complaint = complaint.and_then(Result::ok).unwrap_or_default();
        Said::of(std::mem::take(&mut self.console), &complaint)
    }

    /// The next line of the console; nothing after the last.
    fn next_line(&mut self) -> Result<Option<String>> {
        let left = self.ends.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.console += &line;
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the guest came to no end in time:\n{}", self.console)
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Tells the lines of a console, which may have bytes that are no text.
fn tell_lines(out: ChildStdout, to: &Sender<String>) {
    let mut out = BufReader::new(out);
    let mut line = Vec::new();
    while matches!(out.read_until(b'\n', &mut line), Ok(1..)) {
        let text = String::from_utf8_lossy(&line).replace('\r', "");
        if to.send(text).is_err() {
            return;
        }
        line.clear();
    }
}

fn all_of(mut from: ChildStderr) -> String {
    let mut all = Vec::new();
    if let Err(error) = from.read_to_end(&mut all) {
        return format!("its complaints cannot be read: {error}");
    }
    String::from_utf8_lossy(&all).into_owned()
}
