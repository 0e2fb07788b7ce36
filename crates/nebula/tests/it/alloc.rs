//! In the steady state a read allocates nothing, nor does an append.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use block::{Disk, Durable, FileDevice, Options};
use nebula::extents::{ExtentServer, FormatOptions};
use nebula::streams::StreamServer;
use nebula::{Epoch, StreamError};
use rt::{Config, Core};

use super::rig::{record, sums_of};

/// The system's allocator, which counts for each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn reads_and_appends_allocate_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let device = FileDevice::open(dir.path().join("disk"), &Options::create(8 << 20)).unwrap();
    let disk = Disk::open(&device, 8).unwrap();
    let mut core = Core::new(Config::default()).unwrap();
    let handle = core.handle();
    let polled = handle.register_poller(disk.poller());
    core.block_on(async {
        let mut options = FormatOptions::new(1, 2);
        options.segment_bytes = 2 << 20;
        ExtentServer::format(&device, &disk, &options).await?;
        let extents = ExtentServer::open(&handle, &device, &disk).await?;
        let engine = meta::Model::new(3).handle();
        let streams = StreamServer::open(&handle, engine, vec![extents]).await?;
        let stream = streams.create().await?;
        let writer = streams.open_for_writing(stream, Epoch(1)).await?;
        let reader = writer.reader();
        let sums = sums_of(1, 2);
        let mut counts = [(0, 0); 2];
        for (appends, reads) in &mut counts {
            let mut filled: Vec<_> = (0..20).map(|_| record(&writer, 1, 2)).collect();
            let before = COUNT.get();
            let mut last = None;
            for record in filled.drain(..) {
                last = Some(writer.append(record, Durable::Yes).await?.at);
            }
            *appends = COUNT.get() - before;
            let at = last.expect("some were appended");
            let before = COUNT.get();
            for _ in 0..50 {
                drop(reader.read(at, &sums).await?);
            }
            *reads = COUNT.get() - before;
        }
        // The first round may grow what is kept.
        assert_eq!(counts[1], (0, 0), "{counts:?}");
        Ok::<(), StreamError>(())
    })
    .unwrap();
    drop(polled);
}
