//! Programs that are compiled here.

use std::path::{Path, PathBuf};
use std::process::Command;

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
