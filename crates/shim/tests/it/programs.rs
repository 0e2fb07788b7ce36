//! Programs that are compiled here.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pair::{installed, leave_out};

/// Whether programs of verbs can be compiled; tests that need one are left out where not.
pub(crate) fn can_compile() -> bool {
    let can = installed("cc").is_some() && Path::new("/usr/include/infiniband/verbs.h").is_file();
    if !can {
        leave_out("cc, of gcc, or libibverbs-dev");
    }
    can
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
