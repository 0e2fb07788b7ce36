//! Where `libvervain_verbs.so` is: beside the program, or where an installation puts it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

const NAME: &str = "libvervain_verbs.so";

/// Says where it is, for tests and installations of another shape.
const GIVEN: &str = "VERVAIN_VERBS_LIBRARY";

pub(super) fn find() -> anyhow::Result<PathBuf> {
    if let Some(given) = std::env::var_os(GIVEN) {
        let given = PathBuf::from(given);
        if !given.is_file() {
            bail!("{GIVEN} says {}, which is no file", given.display());
        }
        return Ok(std::path::absolute(given)?);
    }
    let program = std::env::current_exe().context("where this program is")?;
    let dir = program.parent().unwrap_or(Path::new("/"));
    let places = [
        dir.join(NAME),
        dir.join("../lib").join(NAME),
        dir.join("../lib/vervain").join(NAME),
    ];
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Ok(found.canonicalize()?);
    }
    bail!(
        "{NAME} is neither beside {} nor in ../lib: build it with `cargo build --release -p shim`, or say in {GIVEN} where it is",
        program.display()
    )
}
