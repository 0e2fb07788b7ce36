//! Hosts, and programs on them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use crate::Vervain;

/// What an outer run would say to programs, and this one does not.
const OF_A_RUN: [&str; 4] = [
    "VERVAIN_RUN_DIR",
    "VERVAIN_GID",
    "VERVAIN_FAULTS",
    "VERVAIN_TRACE",
];

/// A host with the device `vervain0`, in a run directory of its own: programs of different directories do not reach each other, so
/// that tests that run side by side have nothing to do with each other. The directory is removed with the last host in it.
#[derive(Clone, Debug)]
pub struct Rdma {
    vervain: Vervain,
    run_dir: Arc<TempDir>,
    gid: Option<OsString>,
    faults: Option<OsString>,
    seed: Option<u64>,
    is_traced: bool,
    options: Vec<OsString>,
}

impl Rdma {
    /// A host, in a new run directory.
    ///
    /// # Errors
    /// Those of [`Vervain::find`], and of making a directory.
    pub fn new() -> io::Result<Self> {
        Rdma::of(Vervain::find()?)
    }

    /// A host whose programs a given `vervain` starts.
    ///
    /// # Errors
    /// Those of making a directory.
    pub fn of(vervain: Vervain) -> io::Result<Self> {
        Ok(Rdma {
            vervain,
            run_dir: Arc::new(tempfile::Builder::new().prefix("vervain-").tempdir()?),
            gid: None,
            faults: None,
            seed: None,
            is_traced: false,
            options: Vec::new(),
        })
    }

    /// Another host, which programs of this one reach: the same run directory, and another IP address. It has no faults.
    #[must_use]
    pub fn host(&self, gid: impl AsRef<OsStr>) -> Self {
        Rdma {
            gid: Some(gid.as_ref().to_owned()),
            faults: None,
            seed: None,
            ..self.clone()
        }
    }

    /// What goes wrong in programs of this host, as `vervain run --faults` takes it: `rc-error@7`.
    #[must_use]
    pub fn faults(mut self, faults: impl AsRef<OsStr>) -> Self {
        self.faults = Some(faults.as_ref().to_owned());
        self
    }

    /// Has faults with shares happen again.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Has programs of this host leave lines for [`Rdma::trace`]. It costs them microseconds a request.
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.is_traced = true;
        self
    }

    /// One more flag of `vervain run`.
    #[must_use]
    pub fn option(mut self, flag: impl AsRef<OsStr>) -> Self {
        self.options.push(flag.as_ref().to_owned());
        self
    }

    /// Where programs of this host and of those made from it meet.
    #[must_use]
    pub fn run_dir(&self) -> &Path {
        self.run_dir.path()
    }

    /// A program and its arguments, on this host. The process is the program's own: its exit code, its signals. What cannot be run so
    /// ends with 1 and a sentence on standard error.
    ///
    /// # Panics
    /// If there is not even a program.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, program: impl IntoIterator<Item = S>) -> Command {
        let mut flags = vec![OsString::from("--run-dir"), self.run_dir().into()];
        flags.extend(self.options.iter().cloned());
        let seed = self.seed.map(|seed| seed.to_string().into());
        let trace = self.is_traced.then(|| self.trace_file().into());
        for (flag, value) in [
            ("--gid", &self.gid),
            ("--faults", &self.faults),
            ("--seed", &seed),
            ("--trace", &trace),
        ] {
            if let Some(value) = value {
                flags.extend([flag.into(), value.clone()]);
            }
        }
        let mut command = self.vervain.run(&flags);
        let mut program = program.into_iter().peekable();
        assert!(program.peek().is_some(), "there is no program");
        command.args(program);
        for name in OF_A_RUN {
            command.env_remove(name);
        }
        command
    }

    fn trace_file(&self) -> PathBuf {
        self.run_dir().join("trace.jsonl")
    }

    /// What programs of these hosts have traced so far: an object of JSON for each request, completion and change of a queue pair, in
    /// the order in which they were written.
    ///
    /// # Errors
    /// Those of reading the file; `NotFound` where nothing was traced.
    pub fn trace(&self) -> io::Result<Vec<String>> {
        let text = std::fs::read_to_string(self.trace_file())?;
        Ok(text.lines().map(str::to_string).collect())
    }
}
