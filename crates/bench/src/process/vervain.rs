//! `vervain serve`, started for a measurement.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::child::Child;
use super::{NicAddress, ProcessError, START_MAX, Server, ServerSettings, directory};
use crate::cache::Address;

/// The line by which it says that it serves.
#[derive(Deserialize)]
struct Hello {
    version: String,
    listen: String,
}

/// Where a server of ours lives, so that another one can come there after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Home {
    /// Its directory: errors, the run directory and the Unix socket go here.
    pub dir: PathBuf,
    /// Its TCP port; 0 for a free one.
    pub port: u16,
}

impl Home {
    /// Where its software NIC meets others.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Its door on a Unix socket.
    pub fn unix(&self) -> PathBuf {
        self.dir.join("door")
    }
}

/// A TCP port of the loopback that a server can come back to: below those that the kernel hands out
/// by itself, so that no client gets it meanwhile. Nothing when none of a thousand is free.
pub fn fixed_port(random: &mut fastrand::Rng) -> Option<u16> {
    (0..1000)
        .map(|_| random.u16(20_000..32_000))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
}

/// Starts a server of ours with every door it has: TCP, a Unix socket, and the software NIC.
/// `exe` is the `vervain` command.
///
/// # Errors
/// It cannot be started, or does not serve.
pub fn start(exe: &Path, settings: &ServerSettings) -> Result<Server, ProcessError> {
    let dir = directory()?;
    let home = Home {
        dir: dir.path().to_path_buf(),
        port: 0,
    };
    let mut server = start_in(exe, settings, &home, &[], &[])?;
    server._dir = Some(dir);
    Ok(server)
}

/// As [`start`], in a home of the caller's, with more flags for `serve` and more environment.
///
/// # Errors
/// As [`start`].
pub fn start_in(
    exe: &Path,
    settings: &ServerSettings,
    home: &Home,
    flags: &[String],
    environment: &[(&str, &str)],
) -> Result<Server, ProcessError> {
    let (run_dir, unix) = (home.run_dir(), home.unix());
    let mut command = Command::new(exe);
    command
        // The lab is this program under another name.
        .arg0("vervain")
        .args(["--json", "serve", "--prefault", "--listen"])
        .arg(format!("127.0.0.1:{}", home.port))
        .arg("--unix")
        .arg(&unix)
        .arg("--run-dir")
        .arg(&run_dir)
        .args(["--cores", &settings.cores.to_string()])
        .args(["--memory", &settings.memory.to_string()])
        .args(["--clients", &settings.connections_max.to_string()])
        .args(["--window", &settings.window_max.to_string()])
        .args(flags)
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        // Ctrl-C is for whoever measures, who ends it then.
        .process_group(0);
    if !settings.cpus.is_empty() {
        command.arg("--pin");
    }
    // The kernel closes the port of a server that was killed a moment later. If another process
    // has it, the server says so.
    let give_up = Instant::now() + START_MAX;
    while TcpListener::bind((Ipv4Addr::LOCALHOST, home.port)).is_err() && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut child = Child::start("vervain", &mut command, &settings.cpus, &home.dir)?;
    let line = child.first_line(START_MAX)?;
    let hello: Hello = serde_json::from_str(&line).map_err(|_| child.odd(&line))?;
    let listen = hello.listen.parse().map_err(|_| child.odd(&line))?;
    Ok(Server {
        name: format!("vervain {}", hello.version),
        address: Address::Tcp(listen),
        unix: Some(Address::Unix(unix)),
        nic: Some(NicAddress { run_dir }),
        child,
        _dir: None,
    })
}
