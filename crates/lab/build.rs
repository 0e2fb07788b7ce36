//! Which commit this is, for reports.
//!
//! `VERVAIN_COMMIT` in the environment says it where there is no repository.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=VERVAIN_COMMIT");
    let (commit, is_dirty) = match std::env::var("VERVAIN_COMMIT") {
        Ok(commit) if !commit.trim().is_empty() => (commit.trim().to_string(), false),
        _ => repository(),
    };
    println!("cargo:rustc-env=LAB_BUILD_COMMIT={commit}");
    println!("cargo:rustc-env=LAB_BUILD_DIRTY={is_dirty}");
}

/// The commit, and whether tracked files differ from it. A build without a repository is no error.
fn repository() -> (String, bool) {
    // The sources: whether they have been changed is part of the answer.
    println!("cargo:rerun-if-changed=..");
    for name in ["HEAD", "logs/HEAD", "index"] {
        let path = git(&["rev-parse", "--git-path", name]);
        // A file that is not there would have the script run each time.
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return ("unknown".to_string(), false);
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no", ".."]);
    (commit, changed.is_some_and(|files| !files.is_empty()))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
