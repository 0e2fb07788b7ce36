//! The program, and what it says.

use std::process::Command;

use serde_json::Value;

/// What a run came to.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    text: String,
    pub(crate) err: String,
}

impl Said {
    /// Its standard output.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// The program.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lab"))
}

/// Runs it.
pub(crate) fn said(command: &mut Command) -> Said {
    let output = command.output().expect("starting the lab");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Said {
        code: output.status.code(),
        text: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Runs it with these words.
pub(crate) fn lab(words: &str) -> Said {
    said(program().args(words.split_whitespace()))
}

/// The report that it printed.
pub(crate) fn json(said: &Said) -> Value {
    serde_json::from_str(said.text()).expect("one JSON object")
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether memcached is here; in CI it must be.
pub(crate) fn has_memcached() -> bool {
    let found = is_installed("memcached");
    let required = std::env::var("VERVAIN_TEST_PEERS").is_ok_and(|peers| peers == "required");
    assert!(found || !required, "memcached is required, and missing");
    if !found {
        eprintln!("left out: memcached is not installed");
    }
    found
}
