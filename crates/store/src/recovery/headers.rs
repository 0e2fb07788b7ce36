//! What each segment is used for.

use block::Disk;

use crate::error::StoreError;
use crate::format::FormatError;
use crate::format::batch::BatchHeader;
use crate::format::segment::{Contents, SegmentHeader, SegmentState, Settled};
use crate::format::superblock::Superblock;
use crate::maintain::Which;
use crate::scan::is_of_medium;

/// Segments whose headers are read at the same time.
const AT_ONCE: u32 = 64;

const FIRST: &str = "the header of a segment";
const COPY: &str = "the copy of a segment's header";

/// What is known of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) segment: u32,
    /// The newer of its two headers; if neither can be read, what its batches tell, if there are any.
    pub(crate) header: Option<SegmentHeader>,
    /// Neither of its headers can be read. It may have been free, and what stands in it may be of its last
    /// use.
    pub(crate) is_guessed: bool,
    /// What is wrong with each.
    pub(crate) problems: [Option<FormatError>; 2],
    /// Which of them do not say what they should and are to be written anew. It is no damage if there are no
    /// problems: a crash came between the two writes.
    pub(crate) outdated: [bool; 2],
}

impl Known {
    /// What it holds, if it is closed.
    pub(crate) fn contents(&self) -> Option<Contents> {
        let header = self.header?;
        (header.state == SegmentState::Closed).then_some(header.contents)
    }

    /// What each of the two headers is to be.
    pub(crate) fn expected(header: &SegmentHeader) -> [SegmentHeader; 2] {
        let mut first = *header;
        if first.state == SegmentState::Closed {
            first.state = SegmentState::Open;
            first.contents = Contents::default();
        }
        [first, *header]
    }
}

/// What is known of all segments.
pub(crate) struct Headers {
    pub(crate) segments: Vec<Known>,
    /// For what users wrote and for what was moved, positions before which everything in their segment
    /// had been durably written.
    settled: Vec<Settled>,
    /// The greatest sequence number.
    pub(crate) newest: u64,
}

impl Headers {
    /// The block before which everything in the segment with this sequence number had been written, as
    /// far as headers tell.
    pub(crate) fn settled(&self, seq: u64) -> u32 {
        // The newest is the first.
        let found = self.settled.binary_search_by(|s| seq.cmp(&s.seq));
        found.map_or(0, |at| self.settled[at].block)
    }
}

/// Reads the headers of all segments.
pub(crate) async fn read(superblock: &Superblock, disk: &Disk) -> Result<Headers, StoreError> {
    let layout = superblock.layout;
    let mut headers = Headers {
        segments: Vec::new(),
        settled: Vec::new(),
        newest: 0,
    };
    for first in (0..layout.segments).step_by(AT_ONCE as usize) {
        let last = (first + AT_ONCE).min(layout.segments);
        let start = |(segment, which): (u32, Which)| {
            let at = layout.block_at(segment, which.block(&layout));
            disk.read(disk.buffer(layout.block()), at)
        };
        let both = |segment| Which::BOTH.map(|which| (segment, which));
        let reads: Vec<_> = (first..last).flat_map(both).map(start).collect();
        let mut reads = reads.into_iter();
        for segment in first..last {
            let mut found = [Err(FormatError::Foreign { what: FIRST }); 2];
            for (found, what) in found.iter_mut().zip([FIRST, COPY]) {
                let read = reads.next().expect("two reads for each segment");
                let (result, buf) = read.await;
                *found = match result {
                    Ok(()) => {
                        SegmentHeader::parse(&buf, superblock.store, segment, layout.seq_end())
                            .map_err(|error| error.of(what))
                    }
                    Err(error) if is_of_medium(&error) => Err(FormatError::Unreadable { what }),
                    Err(error) => return Err(error.into()),
                };
            }
            let mut known = judge(segment, found);
            if known.header.is_none() {
                known.header = from_batches(superblock, disk, segment).await?;
                known.is_guessed = known.header.is_some();
                known.outdated = [known.header.is_some(); 2];
            }
            let both = found.iter().flatten().chain(&known.header);
            for header in both {
                headers.settled.extend([header.user, header.moved]);
                let seqs = [header.seq, header.user.seq, header.moved.seq];
                headers.newest = seqs.into_iter().fold(headers.newest, u64::max);
            }
            headers.segments.push(known);
        }
    }
    headers.settled.sort_unstable();
    headers.settled.dedup();
    // Of each segment only the last position says anything.
    let mut newest_first: Vec<Settled> = headers.settled.into_iter().rev().collect();
    newest_first.dedup_by_key(|settled| settled.seq);
    headers.settled = newest_first;
    Ok(headers)
}

/// Which of two headers counts, and whether the other one should be what it is.
fn judge(segment: u32, found: [Result<SegmentHeader, FormatError>; 2]) -> Known {
    let [first, copy] = found;
    let mut problems = [first.err(), copy.err()];
    let header = match (first, copy) {
        (Ok(first), Ok(copy)) => {
            // The copy is opened first and freed last. Whatever else differs was lost.
            if first.age() > copy.age() && first.state != SegmentState::Free {
                problems[1] = Some(FormatError::Stale { what: COPY });
            }
            let is_opening = copy.state == SegmentState::Open && first.seq < copy.seq;
            let is_closed = first.state == SegmentState::Open
                && copy.state == SegmentState::Closed
                && first.seq == copy.seq;
            if first.age() < copy.age() && !is_opening && !is_closed {
                problems[0] = Some(FormatError::Stale { what: FIRST });
            }
            Some(if first.age() > copy.age() {
                first
            } else {
                copy
            })
        }
        (Ok(header), Err(_)) | (Err(_), Ok(header)) => Some(header),
        (Err(_), Err(_)) => None,
    };
    Known {
        segment,
        header,
        is_guessed: false,
        problems,
        outdated: outdated(header, [first, copy]),
    }
}

/// Which of two headers do not say what they should.
fn outdated(
    header: Option<SegmentHeader>,
    found: [Result<SegmentHeader, FormatError>; 2],
) -> [bool; 2] {
    let Some(header) = header else {
        return [false; 2];
    };
    let [first, copy] = Known::expected(&header);
    let is_as = |found: Result<SegmentHeader, FormatError>, expected: SegmentHeader| {
        found.is_ok_and(|found| found.age() == expected.age())
    };
    [!is_as(found[0], first), !is_as(found[1], copy)]
}

/// The header of a segment neither of whose headers can be read, as the batches in it tell.
async fn from_batches(
    superblock: &Superblock,
    disk: &Disk,
    segment: u32,
) -> Result<Option<SegmentHeader>, StoreError> {
    let layout = &superblock.layout;
    let mut newest: Option<BatchHeader> = None;
    let mut buf = disk.buffer(layout.block());
    for block in 1..layout.copy_block() {
        let (result, returned) = disk.read(buf, layout.block_at(segment, block)).await;
        buf = returned;
        match result {
            Ok(()) => {}
            Err(error) if is_of_medium(&error) => continue,
            Err(error) => return Err(error.into()),
        }
        let header = BatchHeader::identify(&buf, superblock.check_seed, block);
        let Some(header) = header.filter(|header| (1..layout.seq_end()).contains(&header.seq))
        else {
            continue;
        };
        if newest.is_none_or(|newest| newest.seq < header.seq) {
            newest = Some(header);
        }
    }
    Ok(newest.map(|batch| SegmentHeader {
        seq: batch.seq,
        kind: batch.kind,
        state: SegmentState::Open,
        ..SegmentHeader::unused(superblock.store, segment)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::segment::Kind;

    fn header(seq: u64, state: SegmentState) -> Result<SegmentHeader, FormatError> {
        Ok(SegmentHeader {
            seq,
            state,
            kind: Kind::User,
            ..SegmentHeader::unused(1, 0)
        })
    }

    #[test]
    fn the_newer_header_counts_and_a_cut_between_two_writes_is_no_damage() {
        use SegmentState::{Closed, Free, Open};
        let lost = Err(FormatError::Checksum { what: "a header" });
        let free = header(3, Free);
        let cases = [
            // In the first block, in the last one, which counts, is either damaged, do they agree.
            (free, free, free, false, true),
            (free, header(9, Open), header(9, Open), false, false),
            (
                header(9, Open),
                header(9, Open),
                header(9, Open),
                false,
                true,
            ),
            (
                header(9, Open),
                header(9, Closed),
                header(9, Closed),
                false,
                true,
            ),
            (
                header(9, Free),
                header(9, Closed),
                header(9, Free),
                false,
                false,
            ),
            (
                header(9, Free),
                header(9, Open),
                header(9, Free),
                false,
                false,
            ),
            (
                header(9, Free),
                header(9, Free),
                header(9, Free),
                false,
                true,
            ),
            // Nobody has written these in this order.
            (header(9, Open), free, header(9, Open), true, false),
            (free, header(9, Closed), header(9, Closed), true, false),
            (free, header(9, Free), header(9, Free), true, false),
            (
                header(9, Open),
                header(9, Free),
                header(9, Free),
                true,
                false,
            ),
            (lost, header(9, Closed), header(9, Closed), true, false),
            (header(9, Open), lost, header(9, Open), true, false),
        ];
        for (first, copy, counts, is_damaged, agree) in cases {
            let known = judge(0, [first, copy]);
            let what = format!("{first:?} and {copy:?}");
            assert_eq!(known.header, counts.ok(), "{what}");
            assert_eq!(
                known.problems.iter().any(Option::is_some),
                is_damaged,
                "{what}"
            );
            assert_eq!(known.outdated == [false; 2], agree, "{what}");
        }
        assert_eq!(judge(0, [lost, lost]).header, None);
    }
}
