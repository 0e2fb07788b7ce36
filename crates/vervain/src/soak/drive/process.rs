//! The client's process: started, asked, and waited for.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::{Driver, Pipes};
use crate::soak::faults::Fault;
use crate::soak::wire::{self, Report};
use crate::soak::world::{Door, Failure, lock};

/// How long a client process may take to end after its input has: only one that hangs takes so long.
const END_MAX: Duration = Duration::from_secs(30);

impl Driver {
    /// The process's pipes; the process is started if there is none.
    pub(super) fn pipes(&mut self) -> anyhow::Result<&mut Pipes> {
        if self.pipes.is_none() {
            let pipes = self.spawn().context("starting a client process")?;
            self.pipes = Some(pipes);
        }
        self.pipes.as_mut().context("a client process")
    }

    fn spawn(&mut self) -> anyhow::Result<Pipes> {
        let start = Arc::clone(&self.start);
        let mut command = Command::new(&start.exe);
        command
            .arg("soak-client")
            .args(["--server", &start.listen.to_string()])
            .arg("--run-dir")
            .arg(&start.run_dir);
        let slot = self.slot();
        let (door, number) = (slot.door, slot.number);
        if door != Door::Herd {
            command.arg("--socket");
        }
        // HERD clients come in through both kinds of sockets.
        let by_unix = door == Door::Unix || (door == Door::Herd && number % 2 == 1);
        if let Some(unix) = start.unix.as_ref().filter(|_| by_unix) {
            command.arg("--unix").arg(unix);
        }
        if door == Door::Herd && start.loss_ppm_max > 0 && self.random.bool() {
            let ppm = self.random.u32(1..=start.loss_ppm_max);
            command.args(["--nic-loss", &ppm.to_string()]);
            self.world.count(Fault::Loss);
            self.world
                .note(&format!("client {number} loses {ppm} ppm of its messages"));
        }
        let errors = self.world.dir.join(format!("client-{number}.stderr"));
        let errors = File::options().create(true).append(true).open(errors)?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            // Ctrl-C is for whoever runs the soak, who ends its clients then.
            .process_group(0);
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = pipes else {
            anyhow::bail!("a client process without pipes");
        };
        let slot = self.slot();
        slot.killed.store(false, Ordering::Release);
        slot.stopped.store(false, Ordering::Release);
        *lock(&slot.process) = Some(child);
        lock(&slot.tally).processes += 1;
        Ok(Pipes {
            input,
            output: BufReader::new(output),
        })
    }

    pub(super) fn exchange(&mut self, requests: &[wire::Request]) -> io::Result<Option<Report>> {
        let Some(pipes) = &mut self.pipes else {
            return Ok(None);
        };
        wire::send(&mut pipes.input, &requests)?;
        wire::receive(&mut pipes.output)
    }

    /// The process has ended. That is a failure unless it was killed.
    pub(super) fn reap(&mut self, error: Option<io::Error>) -> anyhow::Result<()> {
        self.pipes = None;
        self.connects = (self.connects.0 + self.connects.1, 0);
        let slot = self.slot();
        let Some(mut process) = lock(&slot.process).take() else {
            return Ok(());
        };
        let killed = slot.killed.load(Ordering::Acquire);
        if killed {
            // It is dying.
            process.wait().context("waiting for a client process")?;
            return Ok(());
        }
        let status = wait_end(&mut process, END_MAX)?;
        let errors = self
            .world
            .dir
            .join(format!("client-{}.stderr", self.number));
        let errors = std::fs::read_to_string(errors).unwrap_or_default();
        let status = status.map_or("its pipe closed".into(), |status| status.to_string());
        let error = error.map_or(String::new(), |error| format!(" ({error})"));
        anyhow::bail!(
            "its process ended by itself: {status}{error}; it says: {}",
            errors.trim()
        );
    }

    /// Ends the process by the end of its input.
    pub(super) fn end(&mut self) {
        self.pipes = None;
        self.connects = (self.connects.0 + self.connects.1, 0);
        let slot = self.slot();
        let Some(mut process) = lock(&slot.process).take() else {
            return;
        };
        match wait_end(&mut process, END_MAX) {
            Ok(Some(status)) if status.success() || slot.killed.load(Ordering::Acquire) => {}
            Ok(Some(status)) => self.world.fail(Failure::Ended(format!(
                "{}: its process ended with {status}",
                slot.name()
            ))),
            Ok(None) | Err(_) => {
                // One that has ended meanwhile is what we want.
                drop(process.kill());
                drop(process.wait());
                self.world.fail(Failure::Hang(format!(
                    "{}: its process does not end",
                    slot.name()
                )));
            }
        }
    }
}

/// Waits a while for a process to end.
fn wait_end(
    process: &mut std::process::Child,
    within: Duration,
) -> io::Result<Option<std::process::ExitStatus>> {
    let give_up = Instant::now() + within;
    loop {
        let status = process.try_wait()?;
        if status.is_some() || Instant::now() > give_up {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
