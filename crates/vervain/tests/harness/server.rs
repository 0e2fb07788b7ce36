//! A server process, and the directory it lives in.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use rustix::process::Signal;

use super::{Guard, LIMIT, Raw, Said, Shell, eventually, run, vervain};

/// A directory with a run directory, removed at the end. Servers come and go in it.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("vervain-e2e-")
            .tempdir()
            .expect("a directory");
        Place { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    /// `vervain serve` here, on a free port.
    pub(crate) fn serve(&self, flags: &[&str]) -> Command {
        self.serve_at(0, flags)
    }

    /// `vervain serve` here, on this port, once the kernel has closed it for a server that was killed:
    /// on a busy machine that may take longer than a server waits.
    pub(crate) fn serve_on(&self, port: u16, flags: &[&str]) -> Command {
        eventually("the port is free", || {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        self.serve_at(port, flags)
    }

    /// `vervain serve` here, on this port, whoever has it.
    pub(crate) fn serve_at(&self, port: u16, flags: &[&str]) -> Command {
        let mut command = vervain();
        command.args(["--json", "serve", "--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--run-dir").arg(self.run_dir());
        if !flags.contains(&"--contact-timeout") {
            command.args(&Server::PATIENT[2..]);
        }
        // A store refuses what only a cache has.
        let is_store = flags.starts_with(&["--engine", "store"]);
        if !is_store && !flags.contains(&"--memory") {
            command.args(["--memory", "32M"]);
        }
        command.args(flags);
        command
    }

    /// Starts a server and waits until it serves.
    pub(crate) fn start(&self, flags: &[&str]) -> Server {
        Server::start(self, self.serve(flags))
    }

    /// Names of all files below the run directory.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        let mut folders = vec![self.run_dir()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a run directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    all.push(path);
                }
            }
        }
        all.sort();
        all
    }

    /// The sockets among them.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock");
        self.files().into_iter().filter(is_socket).collect()
    }
}

/// A TCP port that a server can come back to.
pub(crate) fn fixed_port() -> u16 {
    let mut random = fastrand::Rng::new();
    bench::process::vervain::fixed_port(&mut random).expect("a free port among a thousand")
}

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    pub(crate) child: Guard,
    pub(crate) address: SocketAddr,
    /// Its first line.
    pub(crate) hello: serde_json::Value,
    run_dir: PathBuf,
    stderr: PathBuf,
}

impl Server {
    /// Flags of a client for which a busy machine is no reason to give up.
    pub(crate) const PATIENT: [&str; 4] = ["--timeout", "120s", "--contact-timeout", "120s"];

    /// Starts a command made by [`Place::serve`] and waits for its first line.
    pub(crate) fn start(place: &Place, mut command: Command) -> Self {
        let stderr = place.path(&format!("stderr-{:016x}", fastrand::u64(..)));
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr).expect("a file for errors"))
            .spawn()
            .expect("starting a server");
        let mut child = Guard(child);
        let stdout = child.0.stdout.take().expect("a pipe");
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // Nobody may be waiting any more.
            drop(send.send(BufReader::new(stdout).read_line(&mut line).map(|_| line)));
        });
        let said = || std::fs::read_to_string(&stderr).unwrap_or_default();
        let line = match receive.recv_timeout(LIMIT) {
            Ok(Ok(line)) if !line.is_empty() => line,
            other => panic!("no server: {other:?}; it says: {}", said()),
        };
        let hello: serde_json::Value = serde_json::from_str(&line).expect("a first line in JSON");
        let address = hello["listen"].as_str().expect("where it listens");
        Server {
            address: address.parse().expect("an address"),
            hello,
            child,
            run_dir: place.run_dir(),
            stderr,
        }
    }

    /// What it has said on standard error.
    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).expect("the file of errors")
    }

    /// A command with what it needs to reach this server over the NIC.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = vervain();
        command
            .args(words)
            .args(["--server", &self.address.to_string()])
            .arg("--run-dir")
            .arg(&self.run_dir)
            .args(Server::PATIENT);
        command
    }

    /// Runs a command over the NIC.
    #[track_caller]
    pub(crate) fn ask(&self, words: &[&str]) -> Said {
        run(&mut self.command(words), b"")
    }

    /// A shell over the NIC, JSON its answers.
    pub(crate) fn shell(&self) -> Shell {
        Shell::start(self.command(&["--json", "shell"]))
    }

    /// A raw connection to the door.
    pub(crate) fn raw(&self) -> Raw {
        Raw::connect(self.address)
    }

    /// Counters.
    pub(crate) fn stats(&self, section: &str) -> BTreeMap<String, String> {
        self.raw().stats(section)
    }

    /// One counter.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let all = self.stats("");
        all[name].parse().expect("a counter is a number")
    }

    /// Open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.pid()))
            .expect("a living server")
            .count()
    }

    /// Stops it with a signal; its exit code.
    pub(crate) fn stop(mut self, signal: Signal) -> (Option<i32>, String) {
        self.child.signal(signal);
        let code = self.child.wait_end();
        (code, self.stderr())
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }
}
