//! A store's device that holds anything: rot, another program's bytes, or well-formed structures
//! that say what is not so.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arbitrary::{Arbitrary, Unstructured};
use block::Device;
use block::sim::{Image, SimConfig, SimDevice};
use store::examine::examine;
use store::format::Version;
use store::format::batch::{BATCH_HEADER_LEN, BatchHeader};
use store::format::record::{Meta, Record, tie};
use store::format::segment::{
    Contents, Kind, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState, Settled,
};
use store::format::superblock::{SUPERBLOCK_LEN, Superblock};
use store::{Options, Store};

const SEGMENTS: u32 = 9;
const SEGMENT: u64 = 64 << 10;
const LEN: u64 = (64 << 10) + SEGMENTS as u64 * SEGMENT;
const BLOCK: u64 = 512;
const KEYS: u8 = 24;
const DEEDS_MAX: usize = 40;

/// A change of the device's bytes.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Deed<'a> {
    /// Any bytes anywhere.
    Write { at: u32, bytes: &'a [u8] },
    /// The header of a batch, with a checksum that is right.
    Batch {
        block: u16,
        bytes: u32,
        records: u32,
        kind: u8,
        settled: u32,
    },
    /// A record, with a checksum that is right, of a key that the store knows.
    Record {
        at: u32,
        key: u8,
        tombstone: Option<u64>,
        origin: Option<u64>,
        expiry: u32,
        value: u8,
    },
    /// A piece of an index, or what says how to put it together.
    Piece { at: u32, key: u64, value: &'a [u8] },
    /// A header of a segment, with a checksum that is right.
    Segment {
        segment: u8,
        copy: bool,
        seq: u64,
        kind: u8,
        state: u8,
        contents: [u32; 3],
        settled: [(u64, u32); 2],
    },
    /// A superblock of other sizes.
    Superblock {
        copy: bool,
        shifts: [u8; 3],
        segments: u32,
        cache: bool,
    },
}

/// A device with a store, closed or not.
struct Filled {
    image: Image,
    superblock: Superblock,
}

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(SEGMENT);
    options.seed = Some(1);
    options.recovery_threads = Some(1);
    options.index_bytes_max = Some(16 << 20);
    options
}

fn device(image: Option<Image>) -> SimDevice {
    let config = SimConfig::new(1, LEN);
    match image {
        None => SimDevice::new(config),
        Some(image) => SimDevice::with_image(config, image),
    }
}

fn value(key: u8, version: u8) -> Vec<u8> {
    vec![key ^ version; 20 + usize::from(key) * 40]
}

fn kind_of(kind: u8) -> Kind {
    [Kind::User, Kind::Moved, Kind::Index][usize::from(kind) % 3]
}

fn filled(is_closed: bool) -> &'static Filled {
    static FILLED: [OnceLock<Filled>; 2] = [const { OnceLock::new() }; 2];
    FILLED[usize::from(is_closed)].get_or_init(|| {
        let device = device(None);
        let shared: Arc<dyn Device> = Arc::new(device.clone());
        let (store, _maintenance) = Store::unmaintained(shared, &options()).expect("a store");
        for version in [0, 0x80] {
            for key in 0..KEYS {
                store.put(&[key], &value(key, version)).expect("put");
            }
        }
        let superblock = store.superblock();
        if is_closed {
            store.close().expect("closed");
        }
        Filled {
            image: device.image(),
            superblock,
        }
    })
}

impl Deed<'_> {
    fn apply(&self, image: &mut Image, superblock: &Superblock) {
        let layout = superblock.layout;
        let seed = superblock.check_seed;
        // The sequence number that the segment's header tells now.
        let seq_of = |image: &Image, segment: u32| {
            let mut bytes = [0; SEGMENT_HEADER_LEN];
            image.read(layout.segment_at(segment), &mut bytes);
            SegmentHeader::parse(&bytes, superblock.store, segment, layout.seq_end())
                .map_or(1, |header| header.seq)
        };
        let put = |image: &mut Image, at: u64, bytes: &[u8]| {
            let at = at.min(LEN - bytes.len() as u64);
            image.write(at, bytes);
        };
        let record = |image: &mut Image, at: u32, record: Record<'_>| {
            let place = u64::from(at) % (u64::from(SEGMENTS) * SEGMENT / 4);
            let (segment, grain) = layout.segment_of(place);
            let mut bytes = vec![0; record.encoded_len()];
            record.emit(&mut bytes);
            tie(&mut bytes, seed, seq_of(image, segment), grain);
            put(image, layout.place_at(place), &bytes);
        };
        match *self {
            Self::Write { at, bytes } => {
                let bytes = &bytes[..bytes.len().min(4096)];
                put(image, u64::from(at) % LEN, bytes);
            }
            Self::Batch {
                block,
                bytes,
                records,
                kind,
                settled,
            } => {
                let (segment, block) = (u32::from(block) / 128 % SEGMENTS, u32::from(block) % 128);
                let header = BatchHeader {
                    kind: kind_of(kind),
                    settled,
                    seq: seq_of(image, segment),
                    block,
                    bytes,
                    records,
                };
                let mut out = [0; BATCH_HEADER_LEN];
                header.emit(seed, &mut out);
                put(image, layout.block_at(segment, block), &out);
            }
            Self::Record {
                at,
                key,
                tombstone,
                origin,
                expiry,
                value: version,
            } => {
                let key = key % KEYS;
                let value = value(key, version);
                let meta = Meta {
                    tombstone,
                    replaces: true,
                    origin: origin.map(Version),
                    expiry,
                    flags: 0,
                };
                record(
                    image,
                    at,
                    Record {
                        meta,
                        key: &[key],
                        value: if tombstone.is_some() { b"" } else { &value },
                    },
                );
            }
            Self::Piece { at, key, value } => record(
                image,
                at,
                Record {
                    meta: Meta::default(),
                    key: &key.to_le_bytes(),
                    value: &value[..value.len().min(4096)],
                },
            ),
            Self::Segment {
                segment,
                copy,
                seq,
                kind,
                state,
                contents: [end, batches, records],
                settled,
            } => {
                let segment = u32::from(segment) % SEGMENTS;
                let states = [SegmentState::Open, SegmentState::Closed, SegmentState::Free];
                let [user, moved] = settled.map(|(seq, block)| Settled { seq, block });
                let header = SegmentHeader {
                    store: superblock.store,
                    seq,
                    segment,
                    kind: kind_of(kind),
                    state: states[usize::from(state) % 3],
                    contents: Contents {
                        end,
                        batches,
                        records,
                        sum: 0,
                    },
                    user,
                    moved,
                };
                let mut out = [0; SEGMENT_HEADER_LEN];
                header.emit(&mut out);
                let block = if copy { layout.copy_block() } else { 0 };
                put(image, layout.block_at(segment, block), &out);
            }
            Self::Superblock {
                copy,
                shifts,
                segments,
                cache,
            } => {
                let mut superblock = *superblock;
                let layout = &mut superblock.layout;
                [layout.block_shift, layout.grain_shift, layout.segment_shift] = shifts;
                layout.segments = segments;
                superblock.cache = cache;
                let mut out = [0; SUPERBLOCK_LEN];
                superblock.emit(&mut out);
                put(image, if copy { 64 * BLOCK } else { 0 }, &out);
            }
        }
    }
}

/// Does what the input spells, and opens the store.
///
/// # Panics
/// When a key shows what was never stored for it, or a store that opened cannot be used.
pub fn run(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let filled = filled(input.arbitrary().unwrap_or(false));
    let mut image = filled.image.clone();
    // What each key may show.
    let mut shown: HashMap<u8, Vec<Vec<u8>>> = (0..KEYS)
        .map(|key| (key, vec![value(key, 0), value(key, 0x80)]))
        .collect();
    for _ in 0..DEEDS_MAX {
        let Ok(deed) = input.arbitrary::<Deed<'_>>() else {
            break;
        };
        deed.apply(&mut image, &filled.superblock);
        if let Deed::Record {
            key,
            value: version,
            ..
        } = deed
        {
            let key = key % KEYS;
            shown.entry(key).or_default().push(value(key, version));
        }
        if input.is_empty() {
            break;
        }
    }
    let device = device(Some(image));
    let shared: Arc<dyn Device> = Arc::new(device);
    // Neither of them may do more than refuse.
    let _ = examine(&shared, |_, _| (), |_| ());
    let mut options = options();
    options.create = false;
    let Ok((store, _maintenance)) = Store::unmaintained(shared, &options) else {
        return;
    };
    for (key, shown) in &shown {
        if let Ok(Some(value)) = store.get(&[*key]) {
            assert!(
                shown.contains(&value),
                "key {key} shows {} strange bytes",
                value.len()
            );
        }
    }
    let written = store.close();
    assert!(written.is_ok(), "{written:?}");
}
