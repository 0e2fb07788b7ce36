//! What every file system must do.

use std::rc::Rc;

use conformance::files::{Clock, Fixture};
use index::Quota;

use crate::harness::{Disk, IndexFs, STEP, Slow, open_slow};
use crate::spy::Spy;

/// An empty disk as the suite wants it, and its clock.
fn disk() -> (Disk, Clock) {
    let clock = Clock::default();
    let mut disk = Disk::new(5, |format| {
        format.volumes[1].1 = Quota {
            bytes: Some(Fixture::SMALL_BYTES),
            files: Some(Fixture::SMALL_FILES),
        };
    });
    let time = clock.clone();
    disk.clock = Some(Rc::new(move || time.now()));
    (disk, clock)
}

/// An empty file system over an index.
fn fixture() -> Fixture {
    let (disk, clock) = disk();
    let node = disk.open();
    let (fs, core) = (node.fs, node.core);
    Fixture::new(fs, clock, move || {
        core.turn();
    })
}

/// The same over an engine that takes time, so that much is under way at once.
fn slow() -> Fixture {
    let (disk, clock) = disk();
    let blocks = disk.blocks.clone();
    let Slow {
        index,
        core,
        clock: time,
    } = open_slow(&disk, |engine| engine);
    let fs = Rc::new(IndexFs { index, blocks });
    Fixture::new(fs, clock, move || {
        core.turn();
        time.advance(STEP);
    })
}

/// The same over an engine of which no commit says how it ended, with the background at work.
fn vague() -> Fixture {
    let (disk, clock) = disk();
    let (engine, seen) = Spy::around(disk.rows.handle());
    let node = disk.open_with(|options| options.engine = engine);
    seen.is_vague.set(true);
    let (fs, core, index) = (node.fs, node.core, node.index);
    let work = async move { index.work().await };
    drop(core.handle().spawn(work));
    Fixture::new(fs, clock, move || {
        core.turn();
    })
}

conformance::files_tests!(fixture());

mod over_a_vague_engine {
    use super::vague;

    conformance::files_tests!(vague(), 4);
}

mod over_a_slow_engine {
    use super::slow;

    #[test]
    fn some_order_explains_what_tasks_are_told() {
        conformance::files::history::some_order_explains_what_tasks_are_told(&slow);
    }

    #[test]
    fn random_programs_match_the_model() {
        conformance::files::program::random_programs_match_the_model(&slow);
    }
}
