//! `vervain serve`, started for a measurement.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use serde::Deserialize;

use super::child::Child;
use super::{NicPlace, ProcessError, START_MAX, Server, ServerSettings, directory};
use crate::cache::Address;

/// The line by which it says that it serves.
#[derive(Deserialize)]
struct Hello {
    version: String,
    listen: String,
}

/// Starts a server of ours with every door it has: TCP, a Unix socket, and the software NIC.
/// `exe` is the `vervain` command.
///
/// # Errors
/// It cannot be started, or does not serve.
pub fn start(exe: &Path, settings: &ServerSettings) -> Result<Server, ProcessError> {
    let dir = directory()?;
    let (run_dir, unix) = (dir.path().join("run"), dir.path().join("door"));
    let mut command = Command::new(exe);
    command
        .args(["--json", "serve", "--listen", "127.0.0.1:0", "--prefault"])
        .arg("--unix")
        .arg(&unix)
        .arg("--run-dir")
        .arg(&run_dir)
        .args(["--cores", &settings.cores.to_string()])
        .args(["--memory", &settings.memory.to_string()])
        .args(["--clients", &settings.connections_max.to_string()])
        .args(["--window", &settings.window_max.to_string()])
        .stdout(Stdio::piped());
    if !settings.cpus.is_empty() {
        command.arg("--pin");
    }
    let mut child = Child::start("vervain", &mut command, &settings.cpus, dir.path())?;
    // Reading a pipe cannot be given up, so a thread does it; it ends with the pipe.
    let (tell, told) = channel();
    if let Some(stdout) = child.stdout() {
        std::thread::spawn(move || {
            let mut line = String::new();
            if BufReader::new(stdout).read_line(&mut line).is_ok() && !line.is_empty() {
                // Nobody may be waiting any more.
                drop(tell.send(line));
            }
        });
    }
    let line = child.wait_for(START_MAX, || told.try_recv().ok())?;
    let hello: Hello = serde_json::from_str(&line).map_err(|_| child.odd(&line))?;
    let listen = hello.listen.parse().map_err(|_| child.odd(&line))?;
    Ok(Server {
        name: format!("vervain {}", hello.version),
        address: Address::Tcp(listen),
        unix: Some(Address::Unix(unix)),
        nic: Some(NicPlace { run_dir }),
        child,
        _dir: dir,
    })
}
