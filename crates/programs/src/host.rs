//! A host for programs: those of one meet, and those of different ones do not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use crate::listening::{free_port, is_listening, listens_as_manager};
use crate::running::{Running, Said};

/// No program takes longer, on the busiest machine.
pub const PATIENCE_S: u32 = 120;

/// How the files begin in which a sanitizer says what it has found.
const FINDINGS: &str = "sanitizer.";

/// librdmacm's library that makes TCP sockets rsockets, where Debian has it.
pub const RSPRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

/// The library that goes before programs: what `VERVAIN_VERBS_LIBRARY` says, else beside this program, where cargo puts it
/// for tests and for `cargo lab`. `None` when it is not there.
pub fn library() -> Option<PathBuf> {
    const NAME: &str = "libvervain_verbs.so";
    if let Some(given) = std::env::var_os("VERVAIN_VERBS_LIBRARY") {
        return Some(PathBuf::from(given)).filter(|given| given.is_file());
    }
    let program = std::env::current_exe().ok()?;
    let beside = [
        program.with_file_name(NAME),
        program.with_file_name("deps").join(NAME),
    ];
    beside.into_iter().find(|library| library.is_file())
}

/// The sanitizer's library that the library was built for and that has to come before it: what `VERVAIN_TEST_ASAN` names, as
/// `cargo x asan shim` sets it.
fn sanitizer() -> Option<OsString> {
    std::env::var_os("VERVAIN_TEST_ASAN").filter(|name| !name.is_empty())
}

/// Where `$PATH` has a program.
pub fn find(program: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// Has the machine to itself, as far as this process goes: both sides of most programs spin, each on a core.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a server shows that clients may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listens {
    /// It listens on this port of TCP.
    Tcp(u16),
    /// It, or a program that it has started, listens at the connection manager.
    Manager,
}

/// A host of its own: programs of one meet.
///
/// Methods panic where the system does not let them begin: without room for a directory or a file, or without coreutils. Where
/// programs run under a sanitizer, dropping this panics if it has found something.
#[derive(Debug)]
pub struct Host {
    dir: TempDir,
    /// Loaded before a program's own libraries.
    preload: OsString,
    variables: Vec<(String, String)>,
    patience_s: u32,
}

impl Host {
    /// With the software NIC.
    ///
    /// # Panics
    /// There is no [`library`].
    pub fn new() -> Self {
        let library = library().expect("libvervain_verbs.so, which `cargo build -p shim` makes");
        match sanitizer() {
            None => Host::without_library().with_library(&library),
            Some(sanitizer) => Host::without_library()
                .with_library(Path::new(&sanitizer))
                .with_library(&library)
                .sanitized(),
        }
    }

    /// As the machine is.
    pub fn without_library() -> Self {
        Host {
            dir: tempfile::tempdir().expect("a directory"),
            preload: OsString::new(),
            variables: Vec::new(),
            patience_s: PATIENCE_S,
        }
    }

    /// With another library behind those that it has: [`RSPRELOAD`].
    #[must_use]
    pub fn with_library(mut self, library: &Path) -> Self {
        if !self.preload.is_empty() {
            self.preload.push(":");
        }
        self.preload.push(library);
        self
    }

    /// With a variable for all of its programs.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_string(), value.to_string()));
        self
    }

    /// With a sanitizer's findings in files. What programs leave behind is their own affair.
    fn sanitized(self) -> Self {
        let findings = self.run_dir().join(FINDINGS);
        let options = format!(
            "detect_leaks=0:allocator_may_return_null=1:log_path={}",
            findings.display()
        );
        self.with_variable("ASAN_OPTIONS", &options)
    }

    /// With programs that are ended after so many seconds, and not after [`PATIENCE_S`].
    #[must_use]
    pub fn with_patience(mut self, patience_s: u32) -> Self {
        self.patience_s = patience_s;
        self
    }

    /// Where its programs meet, and a place for files.
    pub fn run_dir(&self) -> &Path {
        self.dir.path()
    }

    /// A program on the software NIC, which ends in bounded time.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        self.command_within(self.patience_s, program, arguments)
    }

    /// One that takes longer than others.
    pub fn command_within(&self, patience_s: u32, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &patience_s.to_string(), "env"]);
        if !self.preload.is_empty() {
            // The program's alone.
            let mut preload = OsString::from("LD_PRELOAD=");
            preload.push(&self.preload);
            command.arg(preload);
        }
        command
            .arg(program)
            .args(arguments)
            .env("VERVAIN_RUN_DIR", self.run_dir())
            .env_remove("VERVAIN_GID")
            .env_remove("LD_PRELOAD")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts a program, which writes its lines at once.
    pub fn start(&self, words: &[&str]) -> Running {
        let arguments = [&["-oL"], words].concat();
        Running::start(&mut self.command("stdbuf", &arguments))
    }

    /// Starts a server and waits until it listens.
    ///
    /// # Panics
    /// It ends, or does not listen.
    #[track_caller]
    pub fn serve(&self, words: &[&str], listens: Listens) -> Running {
        let mut server = self.start(words);
        if let Err(why) = until_listening(&mut server, listens) {
            panic!("{}: {why}:\n{}", words.join(" "), server.text());
        }
        server
    }

    /// Runs a program to its end.
    pub fn call(&self, words: &[&str]) -> Said {
        self.start(words).end()
    }

    /// What a program says, which has to succeed.
    ///
    /// # Panics
    /// It fails.
    #[track_caller]
    pub fn say(&self, program: &str, arguments: &[&str]) -> String {
        let said = self.call(&[&[program], arguments].concat());
        said.expect("").text()
    }

    /// What a server and its client say, both of which have to succeed. They are told a port by `-p`, and the client an
    /// address.
    ///
    /// # Panics
    /// One fails.
    #[track_caller]
    pub fn pair(&self, program: &str, arguments: &[&str]) -> [String; 2] {
        let sides = self.pair_with(program, arguments, &[]);
        let [server, client] = sides.map(|side| (side.status, text(&side)));
        assert!(
            server.0.success() && client.0.success(),
            "{program} {}:\nserver: {}\n{}\nclient: {}\n{}",
            arguments.join(" "),
            server.0,
            server.1,
            client.0,
            client.1,
        );
        [server.1, client.1]
    }

    /// A server and its client, which has these variables, to their ends.
    ///
    /// # Panics
    /// The server does not listen.
    #[track_caller]
    pub fn pair_with(
        &self,
        program: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> [Output; 2] {
        let _alone = alone();
        let port = free_port();
        let port_text = port.to_string();
        let arguments = [arguments, &["-p", &port_text]].concat();
        let server = self.serve(&[&[program], &arguments[..]].concat(), Listens::Tcp(port));
        let mut client = self.command(program, &[&arguments[..], &["127.0.0.1"]].concat());
        client.envs(variables.iter().copied());
        let client = client.output().expect("it runs");
        if !client.status.success() {
            // It may be waiting for its client for ever.
            server.terminate();
        }
        [server.end().into_output(), client]
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let entries = std::fs::read_dir(self.run_dir()).into_iter().flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        let is_finding = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with(FINDINGS)
        };
        for path in paths.filter(is_finding) {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| error.to_string());
            if std::thread::panicking() {
                eprintln!("{text}");
            } else {
                panic!("{text}");
            }
        }
    }
}

impl Default for Host {
    fn default() -> Self {
        Host::new()
    }
}

/// Waits until a server listens.
///
/// # Errors
/// It has ended, or does not listen in time.
pub fn until_listening(server: &mut Running, listens: Listens) -> Result<(), &'static str> {
    let pid = server.id();
    server.wait_until(|| match listens {
        Listens::Tcp(port) => is_listening(port),
        Listens::Manager => listens_as_manager(pid),
    })
}

/// Both outputs of a program.
pub fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts.map(|part| String::from_utf8_lossy(part)).join("")
}
