//! Clients that come and go: processes that are told to connect, work a little, and are killed.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ::cache::herd::client::{Address, Door, Pace};
use ::cache::herd::{BlockingClient, ClientConfig};
use anyhow::{Context as _, ensure};
use bench::process::resident_bytes;
use rustix::process::{Pid, Signal, kill_process};
use verbs::typed::Context;

/// How long anything may take in a victim.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Between two rounds of a victim's work: it is there, and leaves CPUs to others.
const PAUSE: Duration = Duration::from_millis(10);
/// How much less a victim has of a CPU that others want.
const NICENESS: i32 = 10;
/// Bytes of a value that goes in pieces.
const LARGE_LEN: usize = 5000;

/// A victim's process.
#[derive(Debug)]
pub(super) struct Victim {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Victim {
    /// Starts it; it opens its NIC and waits.
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Victim> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .context("starting a client that is to be killed")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.context("a client without pipes")?;
        let mut victim = Victim {
            child,
            input,
            output: BufReader::new(output),
        };
        victim.hear("ready")?;
        Ok(victim)
    }

    /// Has it connect, and waits until it works.
    pub(super) fn connect(&mut self) -> anyhow::Result<()> {
        writeln!(self.input, "connect")?;
        self.hear("connected")
    }

    /// What it has of memory, as far as the kernel tells.
    pub(super) fn resident_bytes(&self) -> u64 {
        resident_bytes(self.child.id()).unwrap_or(0)
    }

    fn hear(&mut self, word: &str) -> anyhow::Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let said = line.trim();
        ensure!(said == word, "a client says `{said}` and not `{word}`");
        Ok(())
    }

    /// Kills it. The process that is left is waited for later: that is work of its own.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill()?)
    }

    /// Stops it, or lets it go on.
    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may have been killed already, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sleeps while it waits: a victim shall not take others' CPU.
struct Patient(Instant);

impl Pace for Patient {
    fn now_ns(&mut self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn wait(&mut self) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Tells whoever has started this process.
fn say(word: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{word}")?;
    out.flush()
}

/// Leaves CPUs to whoever wants them.
pub(super) fn be_modest() {
    // A kernel that refuses makes the run no worse than without.
    let _ = rustix::process::nice(NICENESS);
}

/// What the process of somebody who is no client does: it has memory, and waits to be killed.
///
/// # Errors
/// The standard output is gone.
pub(super) fn play_stranger(bytes: u64) -> anyhow::Result<()> {
    be_modest();
    let memory = vec![1u8; bytes as usize];
    std::hint::black_box(&memory);
    say("ready")?;
    // To the end of the input: nobody wants it any more.
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// What a victim's process does: says that it is ready, connects when it is told to, and works
/// until it is killed or its input ends.
///
/// # Errors
/// The server cannot be reached, or does not answer.
pub(super) fn play_victim(context: &Context, door: Address) -> anyhow::Result<()> {
    be_modest();
    say("ready")?;
    if io::stdin().read_line(&mut String::new())? == 0 {
        return Ok(());
    }
    let config = ClientConfig {
        deadline_ns: TIMEOUT.as_nanos() as u64,
        lost_ns: TIMEOUT.as_nanos() as u64,
        ..ClientConfig::default()
    };
    let dial: Box<dyn FnMut() -> io::Result<Door>> = Box::new(move || door.dial(TIMEOUT));
    let pace = Patient(Instant::now());
    let mut client = BlockingClient::connect(context.alloc_pd()?, config, dial, pace)?;
    say("connected")?;
    // The thread ends with the process.
    std::thread::spawn(|| {
        // At the end of the input, and when there is none, nobody wants a victim any more.
        let _ = io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    let large = vec![7; LARGE_LEN];
    for round in 0u64.. {
        let key = format!("victim-{}-{}", std::process::id(), round % 16);
        let value: &[u8] = if round % 16 == 0 { &large } else { b"a value" };
        client.set(key.as_bytes(), value)?;
        client.get(key.as_bytes())?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
