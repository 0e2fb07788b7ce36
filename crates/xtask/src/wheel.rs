//! `cargo x wheel`: the Python package with the program and its library.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::cargo;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where the wheel goes [default: target/wheels].
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Takes `vervain` and `libvervain_verbs.so` from there, instead of building a release of them.
    #[arg(long, value_name = "DIRECTORY")]
    binaries: Option<PathBuf>,
}

/// Builds it, and prints where it is.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().context("where the workspace is")?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    // Relative to the workspace, as cargo is run there.
    let target = root.join(target);
    let binaries = match &arguments.binaries {
        Some(binaries) => binaries.clone(),
        None => {
            let workspace = root.join("Cargo.toml");
            let workspace = workspace.to_str().context("a path that is no text")?;
            let build = [
                "build",
                "--release",
                "--locked",
                "--manifest-path",
                workspace,
            ];
            cargo(
                &[&build[..], &["-p", "vervain", "-p", "shim"]].concat(),
                &[],
            )?;
            target.join("release")
        }
    };
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| target.join("wheels"));
    let status = Command::new("python3")
        .arg(root.join("python/wheel_of_binaries.py"))
        .args([binaries, out])
        .status();
    let status = status.context("starting python3, 3.11 or newer")?;
    ensure!(status.success(), "no wheel was built");
    Ok(())
}
