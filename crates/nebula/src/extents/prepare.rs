//! Segments written once before their first use.
//!
//! A file system that has allocated a file's blocks, and has never seen them written, notes each first write of a
//! block in its journal: a durable write waits for that, which takes longer than the write itself. One that
//! was written before, be it zeros, costs the write alone.

use block::Durable;

use super::{ExtentPlace, ExtentServer, Inner};
use crate::format::PAGE;

/// Pages that are written at once: 1 MiB.
const PIECE: u32 = 256;

impl ExtentServer {
    /// Has writers that make each frame durable write a segment once before its first use, while they still
    /// write the one before. For devices that are files; a drive gains nothing by it.
    pub fn write_segments_ahead(&self) {
        self.inner.writes_ahead.set(true);
    }

    /// Writes zeros to a segment that an extent has been given and nobody has written to, if it is the first one
    /// there. Ends when the extent is sealed or freed; whoever does that waits for the piece under way, so that no zeros
    /// come to an extent that has the segment afterwards.
    pub(crate) async fn prepare(&self, at: ExtentPlace) {
        let inner = self.inner.clone();
        // A task of its own: the device may still write when nobody waits for it any more.
        let task = self
            .inner
            .core
            .spawn(async move { inner.prepare(at).await });
        if task.await.is_err() {
            tracing::debug!(segment = at.segment, "the core was shut down");
        }
    }
}

impl Inner {
    async fn prepare(&self, at: ExtentPlace) {
        let inner = self;
        // Creating an extent is the first change of an entry, and one of a segment that was freed a later one.
        let is_first = inner.with(at, |segment| Ok(segment.entry.sequence <= 1));
        if !inner.writes_ahead.get() || !matches!(is_first, Ok(true)) {
            return;
        }
        let pages = inner.superblock.segment_pages();
        let mut buf = inner.disk.buffer(PIECE.min(pages) as usize * PAGE);
        buf.fill(0);
        for page in (0..pages).step_by(PIECE as usize) {
            buf.set_len(PIECE.min(pages - page) as usize * PAGE);
            let place = inner.superblock.page_at(at.segment, page);
            let begun = inner.with(at, |segment| {
                segment.is_preparing = !segment.is_closing;
                Ok(segment.is_preparing)
            });
            if !matches!(begun, Ok(true)) {
                return;
            }
            let (result, back) = inner.disk.write(buf, place, Durable::No).await;
            inner.prepared(at);
            if let Err(error) = result {
                // It would have been faster. Whoever writes there is told what is wrong.
                tracing::warn!(%error, segment = at.segment, "preparing a segment");
                return;
            }
            buf = back;
        }
        // The first durable write would wait for all of it.
        if let Err(error) = inner.flush().await {
            tracing::warn!(%error, segment = at.segment, "preparing a segment");
        }
    }

    /// A piece was written, or not.
    fn prepared(&self, at: ExtentPlace) {
        let ended = self.with(at, |segment| {
            segment.is_preparing = false;
            segment.landed.notify_all();
            Ok(())
        });
        debug_assert!(ended.is_ok(), "whoever frees the segment waits for this");
    }
}

#[cfg(test)]
mod tests {
    use block::Disk;
    use block::sim::{SimConfig, SimDevice};
    use rt::{Config, Core};

    use super::super::{FormatOptions, NewExtent};
    use super::*;
    use crate::ids::{Epoch, ExtentId, StreamId};

    #[test]
    fn a_segment_is_written_once_before_its_first_use_alone() {
        let mut core = Core::new(Config::default()).expect("a core");
        let handle = core.handle();
        // One segment of 2 MiB, and tables.
        let device = SimDevice::new(SimConfig::new(1, (2 << 20) + (96 << 10)));
        let disk = Disk::open(&device, 8).expect("a queue");
        let _polled = handle.register_poller(disk.poller());
        core.block_on(async {
            let mut options = FormatOptions::new(1, 2);
            options.segment_bytes = 2 << 20;
            let formatted = ExtentServer::format(&device, &disk, &options).await;
            formatted.expect("a blank device");
            let server = ExtentServer::open(&handle, &device, &disk).await;
            let server = server.expect("it was formatted");
            assert_eq!(server.segments(), 1);
            let create = |extent| {
                let new = NewExtent {
                    extent: ExtentId(extent),
                    stream: StreamId(1),
                    number: 0,
                    epoch: Epoch(1),
                };
                server.create(new)
            };
            let cost = async |at| {
                let before = disk.counts();
                server.prepare(at).await;
                let after = disk.counts();
                (after.writes - before.writes, after.flushes - before.flushes)
            };
            let at = create(1).await.expect("a segment");
            assert_eq!(cost(at).await, (0, 0), "nobody has asked for that");
            server.write_segments_ahead();
            assert_eq!(cost(at).await, (2, 1));
            server.free(at).await.expect("it is there");
            assert_eq!(cost(at).await, (0, 0), "it has no segment any more");
            let at = create(2).await.expect("the segment again");
            assert_eq!(cost(at).await, (0, 0), "it was used before");
        });
    }
}
