//! Servers started for a measurement, and stopped after it.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`Server`]: a running one, whichever it is; [`ServerSettings`] |
//! | `vervain.rs` | starting `vervain serve` |
//! | `child.rs` | a pinned process that ends with its guard |
//! | `running.rs` | [`stop_all`], for a process that is told to end |
//! | `usage.rs` | what a process has used |
//!
//! ```no_run
//! use bench::process::{ServerSettings, vervain};
//!
//! let settings = ServerSettings {
//!     cpus: vec![0],
//!     ..ServerSettings::default()
//! };
//! let server = vervain::start("target/release/vervain".as_ref(), &settings)?;
//! println!("{} serves on {}", server.name(), server.address());
//! let before = server.usage()?;
//! # Ok::<(), bench::process::ProcessError>(())
//! ```

mod child;
mod running;
mod usage;
pub mod vervain;

use std::path::PathBuf;
use std::time::Duration;

pub use rustix::process::Signal;

pub use self::child::Child;
pub use self::running::{Directory, stop_all};
pub use self::usage::{Usage, resident_bytes};
use crate::cache::Address;

/// How long a server may take until it answers: it may have to touch all of its memory.
pub const START_MAX: Duration = Duration::from_secs(30);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It is not installed.
    #[error("there is no {0} on this machine")]
    Missing(&'static str),
    /// It could not be started, or the system does not tell of it.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// It ended instead of serving.
    #[error("{name} has ended with {status}{}", said(.stderr))]
    Ended {
        /// Which program.
        name: String,
        /// How it ended.
        status: String,
        /// What it said on standard error.
        stderr: String,
    },
    /// It does not answer.
    #[error("{name} does not answer within {}s{}", .waited.as_secs(), said(.stderr))]
    Silent {
        /// Which program.
        name: String,
        /// How long it had.
        waited: Duration,
        /// What it said on standard error.
        stderr: String,
    },
    /// It answers, but not as such a server does.
    #[error("{name} says `{answer}`{}", said(.stderr))]
    Odd {
        /// Which program.
        name: String,
        /// What it said.
        answer: String,
        /// What it said on standard error.
        stderr: String,
    },
}

/// What a program said, behind the news of its end.
fn said(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!("; it says: {text}"),
    }
}

impl ProcessError {
    /// What the system says to something that was tried.
    pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| ProcessError::System { what, error }
    }
}

/// The socket that a server is to be reached by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listen {
    /// A free TCP port of the loopback.
    Tcp,
    /// A Unix socket in a directory of its own.
    Unix,
}

/// What servers of all kinds are told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerSettings {
    /// The CPUs it may run on; none for all.
    pub cpus: Vec<usize>,
    /// Cores, or threads, that serve.
    pub cores: usize,
    /// Bytes for items.
    pub memory: usize,
    /// Connections, or HERD clients, at most.
    pub connections_max: usize,
    /// Requests that a HERD client may have under way to one core, a power of two.
    pub window_max: u32,
    /// Bytes of a value at most.
    pub value_len_max: usize,
}

impl Default for ServerSettings {
    /// One core anywhere, 256 MiB, 1024 connections, a window of 64, values of a million bytes.
    fn default() -> Self {
        ServerSettings {
            cpus: Vec::new(),
            cores: 1,
            memory: 256 << 20,
            connections_max: 1024,
            window_max: 64,
            value_len_max: 1_000_000,
        }
    }
}

/// Where the software NIC finds a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicAddress {
    /// The run directory.
    pub run_dir: PathBuf,
}

/// A server that runs for a measurement. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    name: String,
    address: Address,
    unix: Option<Address>,
    nic: Option<NicAddress>,
    // Before the directory, which it uses.
    child: Child,
    _dir: Option<Directory>,
}

impl Server {
    /// One that was started by other means, with one door and its directory.
    pub fn of(name: String, address: Address, child: Child, dir: Directory) -> Self {
        let unix = matches!(address, Address::Unix(_)).then(|| address.clone());
        Server {
            name,
            address,
            unix,
            nic: None,
            child,
            _dir: Some(dir),
        }
    }

    /// The program and its version.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its door.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its door on a Unix socket, when it has one.
    pub fn unix(&self) -> Option<&Address> {
        self.unix.as_ref()
    }

    /// Where the software NIC finds it; nothing for a server without RDMA.
    pub fn nic(&self) -> Option<&NicAddress> {
        self.nic.as_ref()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// What it has used so far.
    ///
    /// # Errors
    /// The process is gone, or the kernel does not tell.
    pub fn usage(&self) -> Result<Usage, ProcessError> {
        usage::of(self.pid()).map_err(ProcessError::system(format!("what {} has used", self.name)))
    }

    /// Descriptors that it has open.
    ///
    /// # Errors
    /// The process is gone, or the kernel does not tell.
    pub fn descriptors(&self) -> Result<usize, ProcessError> {
        usage::descriptors(self.pid())
            .map_err(ProcessError::system(format!("what {} has open", self.name)))
    }

    /// What it has said on standard error.
    pub fn stderr(&self) -> String {
        self.child.stderr()
    }

    /// Sends it a signal. One that has ended gets none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        self.child.signal(signal)
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn status(&mut self) -> Result<Option<String>, ProcessError> {
        Ok(self.child.status()?.map(|status| status.to_string()))
    }

    /// Kills it, and returns when it has ended.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill(&mut self) -> Result<(), ProcessError> {
        self.child.kill()
    }

    /// Asks it to end and waits for that; whether it ended by itself, and without complaint.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn end(mut self, within: Duration) -> Result<bool, ProcessError> {
        self.signal(Signal::TERM)?;
        self.child.wait_end(within)
    }
}

fn directory() -> Result<Directory, ProcessError> {
    Directory::new().map_err(ProcessError::system("a directory for the server"))
}
