//! A file system in a temporary directory, and the core of its tasks.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use conformance::files::{Clock, Fixture};
use fs::{Local, LocalError, LocalFormat, LocalOptions};
use index::Quota;
use rt::{Config, Core};

/// Bytes of data of a file system here.
const DATA_BYTES: u64 = 64 << 20;

pub(crate) fn core() -> Core {
    Core::new(Config::default()).expect("a core")
}

/// Makes a file system, with the small volume that the suite wants.
pub(crate) fn make(core: &mut Core, dir: &Path, seed: u64) -> Result<(), LocalError> {
    let handle = core.handle();
    core.block_on(async {
        let format = LocalFormat::new(DATA_BYTES, seed, Clock::default().now());
        Local::format(&handle, dir, &format).await
    })
}

pub(crate) fn open(core: &mut Core, dir: &Path, clock: &Clock) -> Result<Local, LocalError> {
    let (handle, clock) = (core.handle(), clock.clone());
    let mut options = LocalOptions::new(Rc::new(move || clock.now()), 7);
    options.cache_bytes = 1 << 20;
    options.rows_bytes = 1 << 20;
    options.grace = false;
    core.block_on(Local::open(&handle, dir, &options))
}

/// A new file system in a directory of its own.
pub(crate) fn fixture() -> Fixture {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = core();
    make(&mut core, dir.path(), 3).expect("an empty directory");
    let clock = Clock::default();
    let fs = open(&mut core, dir.path(), &clock).expect("it was made");
    let quota = Quota {
        bytes: Some(Fixture::SMALL_BYTES),
        files: Some(Fixture::SMALL_FILES),
    };
    let made = core.block_on(fs.set_quota(Fixture::SMALL, quota));
    made.expect("a second volume");
    let core = RefCell::new(core);
    Fixture::run_by(Rc::new(fs), clock, move |future| {
        core.borrow_mut().block_on(future);
        // As long as the core.
        let _ = &dir;
    })
}
