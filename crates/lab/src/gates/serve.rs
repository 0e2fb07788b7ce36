//! System calls of a whole server, `vervain serve`, a request.
//!
//! What a server calls at its start and when clients come and go cancels out: the counts are the
//! difference of two runs of different lengths. Looking for events (`epoll_pwait`) is left out, as
//! a server that never sleeps does it as often as it has the time.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bench::process::vervain::{self, Home};
use bench::process::{Server, ServerSettings};
use rustix::process::{Pid, Signal, kill_process};

/// Requests of the shorter and the longer run.
const LENGTHS: [u64; 2] = [2_000, 12_000];
/// Items of the server.
const ITEMS: u64 = 10_000;
/// How long anything may take that takes no time.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the server is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// HERD, a full window under way.
    Herd,
    /// `get` after `get` on a connection of the door, over epoll.
    Socket,
}

/// System calls a request of the core's thread.
///
/// # Errors
/// When `vervain` or `strace` is missing or fails.
pub fn syscalls(vervain: &Path, way: Way) -> anyhow::Result<f64> {
    let server = Watched::start(vervain, way)?;
    // Stores the items, and everything has grown to its size.
    server.bench(&["--operations", "1000"])?;
    let mut counts = [0; LENGTHS.len()];
    for (count, requests) in counts.iter_mut().zip(LENGTHS) {
        *count = server.watched(|| match way {
            Way::Herd => server.bench(&["--no-preload", "--operations", &requests.to_string()]),
            Way::Socket => server.gets(requests),
        })?;
    }
    let [short, long] = counts.map(|count| count as f64);
    let requests = (LENGTHS[1] - LENGTHS[0]) as f64;
    Ok(((long - short) / requests).max(0.0))
}

/// A server in a directory of its own.
struct Watched {
    vervain: PathBuf,
    server: Server,
    /// The thread of its one core.
    core: u32,
    // Behind the server, which uses it.
    home: Home,
    dir: tempfile::TempDir,
}

impl Watched {
    fn start(exe: &Path, way: Way) -> anyhow::Result<Watched> {
        let dir = tempfile::tempdir()?;
        let home = Home {
            dir: dir.path().to_path_buf(),
            port: 0,
        };
        let io = match way {
            Way::Herd => "auto",
            Way::Socket => "epoll",
        };
        let settings = ServerSettings {
            memory: 64 << 20,
            ..ServerSettings::default()
        };
        let flags = ["--poll", "--io", io].map(str::to_string);
        let server = vervain::start_in(exe, &settings, &home, &flags, &[])?;
        Ok(Watched {
            vervain: exe.to_path_buf(),
            core: core_thread(server.pid())?,
            server,
            home,
            dir,
        })
    }

    /// `vervain bench cache` against it.
    fn bench(&self, flags: &[&str]) -> anyhow::Result<()> {
        let output = Command::new(&self.vervain)
            .args([
                "bench",
                "cache",
                "--server",
                &self.server.address().to_string(),
            ])
            .arg("--run-dir")
            .arg(self.home.run_dir())
            // A traced server is slow at times.
            .args([
                "--items",
                &ITEMS.to_string(),
                "--warm-up",
                "1ms",
                "--timeout",
                "20s",
            ])
            .args(flags)
            .output()?;
        ensure!(
            output.status.success(),
            "`vervain bench cache` failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// So many `get`s, each after the answer to the one before.
    fn gets(&self, count: u64) -> anyhow::Result<()> {
        let mut stream = self.server.address().dial(PATIENCE)?;
        // A miss: the path through the server is the same, and the answer is known.
        let mut answer = [0; 5];
        for _ in 0..count {
            stream.write_all(b"get nothing\r\n")?;
            stream.read_exact(&mut answer)?;
            ensure!(&answer == b"END\r\n", "an odd answer to a get");
        }
        Ok(())
    }

    /// The system calls of the core's thread while `load` runs.
    fn watched(&self, load: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<u64> {
        let summary = self.dir.path().join("summary");
        let mut strace = Command::new("strace")
            .args(["-c", "-p", &self.core.to_string(), "-o"])
            .arg(&summary)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting strace, which counts system calls (apt-get install strace)")?;
        let loaded = wait_until_traced(self.server.pid(), self.core).and_then(|()| load());
        let pid = Pid::from_child(&strace);
        // It may have ended by itself, which the file shows.
        let told = kill_process(pid, Signal::INT);
        strace.wait()?;
        loaded?;
        told.context("strace ended early: the system forbids ptrace")?;
        let text = std::fs::read_to_string(&summary).context("reading what strace has counted")?;
        let calls = calls(&text)?;
        let looks = ["epoll_pwait", "epoll_wait", "epoll_pwait2"];
        let counted = calls
            .iter()
            .filter(|(name, _)| !looks.contains(&name.as_str()));
        Ok(counted.map(|(_, count)| count).sum())
    }
}

fn core_thread(pid: u32) -> anyhow::Result<u32> {
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        if std::fs::read_to_string(entry.path().join("comm"))?.starts_with("core-") {
            let name = entry.file_name();
            return name
                .to_string_lossy()
                .parse()
                .context("a thread has a number");
        }
    }
    bail!("the server has no thread called core-0")
}

fn wait_until_traced(pid: u32, thread: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/task/{thread}/status");
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let status = std::fs::read_to_string(&path)?;
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        if tracer.is_some_and(|tracer| tracer.trim() != "0") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("strace did not attach to the server: the system forbids ptrace")
}

/// The calls in a summary of strace: `% time  seconds  usecs/call  calls  [errors]  syscall`.
fn calls(text: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(first), Some(name)) = (words.first(), words.last()) else {
            continue;
        };
        if words.len() < 4 || first.parse::<f64>().is_err() || *name == "total" {
            continue;
        }
        // The total has no time a call in some versions; rows of calls always have one.
        let count = words[3]
            .parse()
            .with_context(|| format!("an odd line of strace: {line}"))?;
        calls.insert((*name).to_string(), count);
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::calls;

    #[test]
    fn a_summary_is_read() {
        let text = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.30    0.063123           6     10004           sendto
 38.70    0.039854           3     10006         2 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.102977           5     20010         2 total
";
        let calls = calls(text).unwrap();
        assert_eq!(calls.len(), 2);
        assert_eq!((calls["sendto"], calls["recvfrom"]), (10_004, 10_006));
        assert!(super::calls("").unwrap().is_empty());
    }
}
