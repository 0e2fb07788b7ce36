//! What stands where on a store's device, as the crate itself tells: all that a test knows of regions
//! it knows from here.

use std::ops::Range;

use block::sim::{Image, SimDevice};
use store::examine::examine;
use store::format::batch::{BATCH_HEADER_LEN, BatchHeader};
use store::format::record::{Header, Record};
use store::format::segment::{Kind, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState};
use store::format::superblock::{SUPERBLOCK_LEN, SUPERBLOCKS};

use super::world::shared;

/// A stretch of bytes of one use.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    /// What it is used for.
    pub(crate) name: &'static str,
    pub(crate) bytes: Range<u64>,
}

/// All regions that hold something, and pieces of what is free.
pub(crate) fn regions(device: &SimDevice) -> Vec<Region> {
    let examined = examine(&shared(device), |_, _| (), |_| ()).expect("a store");
    let superblock = examined.superblock;
    let (layout, seed) = (superblock.layout, superblock.check_seed);
    let image = device.image();
    let mut found = Vec::new();
    let mut add = |name, at: u64, len: usize| {
        if len > 0 {
            let bytes = at..at + len as u64;
            found.push(Region { name, bytes });
        }
    };
    for (at, name) in SUPERBLOCKS.into_iter().zip(["superblock", "its copy"]) {
        add(name, at, SUPERBLOCK_LEN);
    }
    for segment in 0..layout.segments {
        let start = layout.segment_at(segment);
        let bytes = read(&image, start, layout.segment_bytes() as usize);
        let copy_at = layout.copy_block() as usize * layout.block();
        let parse = |bytes| {
            SegmentHeader::parse(bytes, superblock.store, segment, layout.seq_end())
                .expect("whole headers")
        };
        let (first, header) = (parse(&bytes), parse(&bytes[copy_at..]));
        let copy = start + copy_at as u64;
        if header.state == SegmentState::Free {
            assert_eq!(first.state, SegmentState::Free);
            add("a free segment's header", start, SEGMENT_HEADER_LEN);
            add(
                "the copy of a free segment's header",
                copy,
                SEGMENT_HEADER_LEN,
            );
            add("free", start + 2 * layout.block() as u64, layout.block());
            continue;
        }
        let (name, is_index) = match header.kind {
            Kind::User => ("a user segment's header", false),
            Kind::Moved => ("a moved segment's header", false),
            Kind::Index => ("an index segment's header", true),
        };
        let name_of_copy = match header.state {
            SegmentState::Closed => "what a closed segment says that it holds",
            _ => "the copy of an open segment's header",
        };
        add(name, start, SEGMENT_HEADER_LEN);
        add(name_of_copy, copy, SEGMENT_HEADER_LEN);
        let mut block = 1;
        while block < layout.copy_block() {
            let at = block as usize * layout.block();
            let Ok(batch) = BatchHeader::parse(&bytes[at..], seed, header.seq, block) else {
                block += 1;
                continue;
            };
            let name = if is_index {
                "an index batch's header"
            } else {
                "a batch's header"
            };
            add(name, start + at as u64, BATCH_HEADER_LEN);
            let end = at + batch.bytes as usize;
            let mut at = at + layout.batch_start();
            while at < end {
                let grain = (at / layout.grain()) as u32;
                let Ok(record) = Record::parse(&bytes[at..end], seed, header.seq, grain) else {
                    at += layout.grain();
                    continue;
                };
                let parsed = Header::parse(&bytes[at..end]).expect("it was parsed");
                let place = start + at as u64;
                let value_at = parsed.key_at + parsed.key_len;
                let [head, key, value] = match (is_index, record.meta.tombstone) {
                    (true, _) => ["a piece of the index"; 3],
                    (false, Some(_)) => ["a tombstone's header", "a tombstone's key", ""],
                    (false, None) => ["a record's header", "a key", "a value"],
                };
                add(head, place, parsed.key_at);
                add(key, place + parsed.key_at as u64, parsed.key_len);
                add(value, place + value_at as u64, record.value.len());
                at += record.encoded_len().next_multiple_of(layout.grain());
            }
            block += layout.blocks_of(batch.bytes as usize);
        }
    }
    found
}

pub(crate) fn read(image: &Image, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    image.read(at, &mut bytes);
    bytes
}

/// Where the records of segments are that no header says to be closed, from the first to the last of each.
pub(crate) fn records_of_open_segments(device: &SimDevice) -> Vec<Vec<Range<u64>>> {
    let mut last = None;
    let mut found: Vec<(u32, Vec<Range<u64>>)> = Vec::new();
    let examined = examine(
        &shared(device),
        |_, _| (),
        |record| {
            let encoded = Record {
                meta: record.meta,
                key: record.key,
                value: &vec![0; record.value_len],
            };
            if last != Some(record.segment) {
                found.push((record.segment, Vec::new()));
                last = Some(record.segment);
            }
            let (_, records) = found.last_mut().expect("there is one");
            records.push(record.at..record.at + encoded.encoded_len() as u64);
        },
    );
    let segments = examined.expect("a store").segments;
    let is_open = |number: u32| {
        let mut of_number = segments.iter().filter(|segment| segment.segment == number);
        of_number.any(|segment| {
            let header = segment.header.expect("whole headers");
            header.state == SegmentState::Open && header.kind != Kind::Index
        })
    };
    found.retain(|(segment, _)| is_open(*segment));
    found.into_iter().map(|(_, records)| records).collect()
}
