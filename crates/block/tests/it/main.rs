//! Block devices: one body over all engines.

mod cores;
mod model;
mod refusals;
mod sim;
mod striped;
mod waking;

use std::path::PathBuf;

use block::{Device, Disk, Engine, FileDevice, Options};
use tempfile::TempDir;

/// A directory for the files of a test, on the disk that the build is on: `/tmp` may be memory.
fn dir() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file of `len` bytes in `dir`.
fn file(dir: &TempDir, len: u64, engine: Engine) -> (PathBuf, FileDevice) {
    let path = dir.path().join("disk");
    let options = Options::create(len).with_engine(engine);
    let device = FileDevice::open(&path, &options).unwrap();
    (path, device)
}

fn disk(device: &dyn Device, depth: usize) -> Disk {
    Disk::open(device, depth).unwrap()
}
