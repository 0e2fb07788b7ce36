//! Which segments are in use.

use std::collections::HashSet;

use block::Disk;

use crate::error::StoreError;
use crate::format::batch::BatchHeader;
use crate::format::segment::{Kind, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::maintain::put_header;
use crate::shared::Shared;

/// Headers that are read at the same time.
const AT_ONCE: u32 = 64;

/// The segments that are in use, the oldest first.
pub(crate) struct Used {
    pub(crate) headers: Vec<SegmentHeader>,
    /// The sequence numbers of those in which a batch stands where the first one belongs.
    pub(crate) begun: HashSet<u64>,
}

/// Reads the headers of all segments.
///
/// One that is damaged is restored from the segment's first batch: a segment whose header is not
/// zero was in use.
pub(crate) async fn read(shared: &Shared, disk: &Disk) -> Result<Used, StoreError> {
    let layout = *shared.layout();
    let store = shared.superblock.store;
    let seed = shared.superblock.check_seed;
    let mut used = Vec::new();
    let mut begun = HashSet::new();
    for first in (0..layout.segments).step_by(AT_ONCE as usize) {
        let last = (first + AT_ONCE).min(layout.segments);
        // The second block too: it holds the first batch's header.
        let start = |segment| {
            disk.read(
                disk.buffer(2 * layout.block()),
                shared.layout().block_at(segment, 0),
            )
        };
        let reads: Vec<_> = (first..last).map(start).collect();
        for (segment, read) in (first..last).zip(reads) {
            let (result, buf) = read.await;
            result?;
            let seq_of_first = BatchHeader::seq_of_first(&buf[layout.block()..], seed);
            begun.extend(seq_of_first);
            match SegmentHeader::parse(&buf, store, segment) {
                Ok(header) => used.push(header),
                Err(_) if buf[..SEGMENT_HEADER_LEN].iter().all(|&byte| byte == 0) => {}
                Err(error) => {
                    let device = shared.device.name();
                    let Some(seq) = seq_of_first else {
                        tracing::warn!(%device, segment, %error, "a segment without a batch is free");
                        continue;
                    };
                    tracing::warn!(%device, segment, %error, "a segment's header is restored");
                    let header = SegmentHeader {
                        store,
                        seq,
                        session: 0,
                        segment,
                        kind: Kind::User,
                        torn: false,
                    };
                    put_header(shared, disk, &header).await?;
                    used.push(header);
                }
            }
        }
    }
    used.sort_unstable_by_key(|header| header.seq);
    Ok(Used {
        headers: used,
        begun,
    })
}
