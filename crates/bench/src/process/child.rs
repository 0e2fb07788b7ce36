//! A pinned process that ends with its guard.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{ProcessError, running};
use crate::machine::pin_to;

/// How long a process may take to end after it was asked to.
const END_MAX: Duration = Duration::from_secs(5);
/// How often to look whether something has happened.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A process. Dropping it asks it to end, and kills it if it does not.
#[derive(Debug)]
pub struct Child {
    name: String,
    child: std::process::Child,
    stderr: PathBuf,
    /// While its number is its own.
    watcher: Option<Watcher>,
}

/// A shell that ends a process and removes its directory when this process has died without doing so,
/// as it does of SIGKILL: its input is a pipe that ends then. (The kernel's own signal at the death
/// of a parent comes at the end of the *thread* that started the child.)
#[derive(Debug)]
struct Watcher(std::process::Child);

impl Watcher {
    /// Starts it, before what it is to end: [`Watcher::watch`] names that.
    fn start(dir: &Path) -> std::io::Result<Self> {
        // A process that is just being killed may still make a file behind the back of `rm`.
        let script = "read -r pid; read -r line; kill -KILL $pid; \
            for try in 1 2 3 4 5 6 7 8 9; do rm -rf -- \"$@\" && break; sleep 1; done";
        let watcher = Command::new("sh")
            .args(["-c", script, "watcher"])
            .args(running::has_made(dir).then_some(dir))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for whoever measures, who ends it then.
            .process_group(0)
            .spawn()?;
        Ok(Watcher(watcher))
    }

    /// Says which process it is.
    fn watch(&mut self, pid: u32) -> std::io::Result<()> {
        let input = self.0.stdin.as_mut();
        input.map_or(Ok(()), |input| writeln!(input, "{pid}"))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Before its pipe is closed. One that has ended already is what we want.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Child {
    /// Starts a program on some CPUs, or anywhere. It says what goes wrong in a file of `dir`.
    ///
    /// # Errors
    /// The system refuses, or it ended or stayed silent.
    pub fn start(
        name: &str,
        command: &mut Command,
        cpus: &[usize],
        dir: &Path,
    ) -> Result<Self, ProcessError> {
        let stderr = dir.join("stderr");
        let errors = File::create(&stderr)
            .map_err(ProcessError::system("a file for the server's errors"))?;
        command.stdin(Stdio::null()).stderr(errors);
        let starting = || ProcessError::system(format!("cannot start {name}"));
        let mut watcher = Watcher::start(dir).map_err(starting())?;
        // A process inherits the CPUs of the thread that starts it, so that thread is one that
        // does nothing else.
        let spawned = std::thread::scope(|scope| {
            let starter = scope.spawn(|| {
                if !cpus.is_empty() && !pin_to(cpus) {
                    let text = format!("the kernel refuses the CPUs {cpus:?}");
                    return Err(std::io::Error::other(text));
                }
                running::start(|| command.spawn())
            });
            starter.join()
        });
        let child = match spawned {
            Ok(child) => child.map_err(starting())?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let mut child = child;
        let watched = watcher.watch(child.id()).inspect_err(|_| {
            // Nobody would end it.
            let _ = child.kill();
            let _ = child.wait();
            running::remove(child.id());
        });
        watched.map_err(starting())?;
        Ok(Child {
            name: name.to_string(),
            child,
            stderr,
            watcher: Some(watcher),
        })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output, once.
    pub fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// The first line of its standard output, which is a pipe.
    ///
    /// # Errors
    /// It ended or stayed silent.
    pub fn first_line(&mut self, within: Duration) -> Result<String, ProcessError> {
        // Reading a pipe cannot be given up, so a thread does it; it ends with the pipe.
        let (tell, told) = channel();
        if let Some(stdout) = self.stdout() {
            std::thread::spawn(move || {
                let mut line = String::new();
                if BufReader::new(stdout).read_line(&mut line).is_ok() && !line.is_empty() {
                    // Nobody may be waiting any more.
                    drop(tell.send(line));
                }
            });
        }
        self.wait_for(within, || told.try_recv().ok())
    }

    /// What it has said on standard error.
    pub fn stderr(&self) -> String {
        match std::fs::read(&self.stderr) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("(its standard error cannot be read: {error})"),
        }
    }

    /// Asks again and again until there is something, the process has ended, or the time is over.
    ///
    /// # Errors
    /// The system refuses, or it ended or stayed silent.
    pub fn wait_for<T>(
        &mut self,
        within: Duration,
        mut ask: impl FnMut() -> Option<T>,
    ) -> Result<T, ProcessError> {
        let began = Instant::now();
        loop {
            if let Some(found) = ask() {
                return Ok(found);
            }
            if let Some(status) = self.status()? {
                return Err(ProcessError::Ended {
                    name: self.name.clone(),
                    status: status.to_string(),
                    stderr: self.stderr(),
                });
            }
            if began.elapsed() > within {
                return Err(ProcessError::Silent {
                    name: self.name.clone(),
                    waited: within,
                    stderr: self.stderr(),
                });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// What it said is not what such a server says.
    pub fn odd(&self, answer: &str) -> ProcessError {
        ProcessError::Odd {
            name: self.name.clone(),
            answer: answer.trim().to_string(),
            stderr: self.stderr(),
        }
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// The system refuses, or it ended or stayed silent.
    pub fn status(&mut self) -> Result<Option<ExitStatus>, ProcessError> {
        let waiting = ProcessError::system(format!("waiting for {}", self.name));
        let status = self.child.try_wait().map_err(waiting)?;
        if status.is_some() {
            self.reaped();
        }
        Ok(status)
    }

    /// Sends a signal, unless it has been waited for: its number may be another's then.
    ///
    /// # Errors
    /// The system refuses, or it ended or stayed silent.
    pub fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        match Pid::from_raw(self.child.id() as i32) {
            Some(pid) if running::has(self.child.id()) => {
                kill_process(pid, signal).map_err(|error| {
                    ProcessError::system(format!("signalling {}", self.name))(error.into())
                })
            }
            _ => Ok(()),
        }
    }

    /// Kills it and waits for its end.
    ///
    /// # Errors
    /// The system refuses, or it ended or stayed silent.
    pub fn kill(&mut self) -> Result<(), ProcessError> {
        let failed = |what: &str| ProcessError::system(format!("{what} {}", self.name));
        self.child.kill().map_err(failed("killing"))?;
        self.child.wait().map_err(failed("waiting for"))?;
        self.reaped();
        Ok(())
    }

    /// From now on its number may be another's.
    fn reaped(&mut self) {
        running::remove(self.child.id());
        self.watcher = None;
    }

    /// Waits for its end; whether there was one in time, and without complaint.
    ///
    /// # Errors
    /// The system refuses, or it ended or stayed silent.
    pub fn wait_end(&mut self, within: Duration) -> Result<bool, ProcessError> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.status()? {
                return Ok(status.success());
            }
            if began.elapsed() > within {
                return Ok(false);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Until it is reaped its number is its own. One that has ended already is what we want.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32)
            && matches!(self.child.try_wait(), Ok(None))
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        running::remove(self.child.id());
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < END_MAX {
            std::thread::sleep(LOOK_EVERY);
        }
        // Of one that has ended these do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
