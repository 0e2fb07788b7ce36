//! Programs that tests run: compiled here, or installed, with the library before their own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::pair::is_listening;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a program is found.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
}

/// Compiles a program that stands beside this file.
pub(crate) fn compile(name: &str, into: &Path, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs");
    let binary = into.join(name);
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&binary)
        .arg(source.join(name).with_extension("c"))
        .args(flags)
        .output()
        .expect("cc, of gcc");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
    binary
}

/// A running program, killed if it is still there in the end.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(piped.spawn().expect("it starts"))
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }

    /// How it ended, and what it said on standard output and standard error.
    pub(crate) fn finish(mut self) -> (ExitStatus, String, String) {
        let (mut out, mut err) = (self.0.stdout.take(), self.0.stderr.take());
        let read = |from: &mut dyn std::io::Read| {
            let mut said = String::new();
            from.read_to_string(&mut said).expect("text");
            said
        };
        std::thread::scope(|scope| {
            let out = scope.spawn(move || out.as_mut().map(|out| read(out)).unwrap_or_default());
            let err = scope.spawn(move || err.as_mut().map(|err| read(err)).unwrap_or_default());
            let deadline = Instant::now() + PATIENCE;
            while !self.is_over() {
                if Instant::now() > deadline {
                    self.0.kill().expect("killed");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let status = self.0.wait().expect("a child");
            let said = (out.join().expect("read"), err.join().expect("read"));
            (status, said.0, said.1)
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Over already, or over now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a server listens.
pub(crate) fn until_listening(server: &mut Running, port: u16) {
    let deadline = Instant::now() + PATIENCE;
    while !is_listening(port) && !server.is_over() {
        assert!(Instant::now() < deadline, "nobody listens on {port}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
