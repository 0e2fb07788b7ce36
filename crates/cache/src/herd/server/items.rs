//! The requests of a batch, copied out of their slots: from then on their owners cannot change them.

use engine::Engine;

use super::config::ServerConfig;
use crate::herd::memory::{Chunk, Lines};
use crate::herd::slots::{Geometry, next_id};
use crate::herd::wire::request::{self, HEADER_LEN, Header, LINE, Op, SHORT_KEY_LEN, WANT_CAS};
use crate::mica::Probe;
use crate::route::Route;

/// A request: two cache lines, the first of them the end of its slot.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Item<P> {
    line: [u8; LINE],
    /// Of the key, where there is one.
    pub(super) probe: P,
    pub(super) client: u32,
    pub(super) id: u32,
    len: u16,
    /// Its place in the batch.
    number: u16,
    pub(super) op: Op,
    /// Its lengths add up.
    pub(super) sound: bool,
    /// There is a key, of this core.
    pub(super) ours: bool,
    /// Its answer was lost.
    pub(super) replay: bool,
    /// A GET of a key of the usual length that is of this core.
    is_short_get: bool,
}

const _: () = assert!(size_of::<Item<Probe>>() == 2 * LINE);

impl<P: Copy + Default> Item<P> {
    fn none(number: usize) -> Self {
        Item {
            number: number as u16,
            line: [0; LINE],
            probe: P::default(),
            client: 0,
            id: 0,
            len: 0,
            op: Op::Noop,
            sound: false,
            ours: false,
            replay: false,
            is_short_get: false,
        }
    }

    /// The key of a sound GET of the usual length that is of this core.
    #[inline]
    pub(super) fn short_get(&self) -> Option<&[u8; SHORT_KEY_LEN]> {
        self.is_short_get
            .then_some(key_before::<HEADER_LEN>(&self.line))
    }

    /// Where its bytes end in [`Items::long`] if it is longer than a line.
    #[inline]
    fn long_end(&self, geometry: &Geometry) -> usize {
        usize::from(self.number) * geometry.stride + geometry.slot_len
    }

    /// The rest of [`Items::copy_out`] for what is neither a short GET nor a short SET. A request longer
    /// than a line goes to the end of `long`.
    #[inline(never)]
    fn copy_any(
        &mut self,
        place: Place,
        engine: &impl Engine<Probe = P>,
        chunk: &Chunk,
        end: usize,
        (slot_len, long): (usize, &mut [u8]),
    ) {
        self.is_short_get = false;
        self.ours = false;
        self.sound = false;
        self.op = Op::Noop;
        self.len = HEADER_LEN as u16;
        let header = Header::parse(&self.line).expect("a line holds a header");
        let Ok((op, len)) = header.check(slot_len) else {
            return;
        };
        if header.id != self.id {
            return;
        }
        self.sound = true;
        self.op = op;
        self.len = len as u16;
        let bytes = if len > LINE {
            let start = long.len() - len;
            let long = &mut long[start..];
            let (before, line) = long.split_at_mut(len - LINE);
            chunk.read(end - len, before);
            line.copy_from_slice(&self.line);
            &*long
        } else {
            &self.line[LINE - len..]
        };
        if op.has_key() {
            let key_end = len - HEADER_LEN - op.extras_len();
            let key = &bytes[key_end - usize::from(header.key_len)..key_end];
            self.ours = place.has(key);
            self.probe = engine.probe(key);
        }
    }

    /// Whether it is the repeat of this client's request.
    pub(super) fn repeats(&self, client: u32, id: u32) -> bool {
        self.replay && self.client == client && self.id == id
    }

    /// Whether the answer shall hold the item's token.
    #[inline]
    pub(super) fn wants_cas(&self) -> bool {
        self.line[LINE - HEADER_LEN] & WANT_CAS != 0
    }
}

/// The key of the usual length before the last `TAIL` bytes.
#[inline(always)]
fn key_before<const TAIL: usize>(line: &[u8; LINE]) -> &[u8; SHORT_KEY_LEN] {
    let key = line[..LINE - TAIL].last_chunk();
    key.expect("a line has room for a short key")
}

/// The requests of a batch.
#[derive(Debug)]
pub(super) struct Items<P> {
    all: Box<[Item<P>]>,
    count: usize,
    replays: usize,
    /// Where requests longer than a line lie as a whole, each at the end of a part of its own.
    long: Lines,
    geometry: Geometry,
    place: Place,
}

/// Which keys a core has.
#[derive(Clone, Copy, Debug)]
struct Place {
    route: Route,
    core: u32,
}

impl Place {
    #[inline(always)]
    fn has(self, key: &[u8]) -> bool {
        self.route.is_of(self.core, key)
    }
}

impl<P: Copy + Default> Items<P> {
    pub(super) fn new(core: u32, config: &ServerConfig, geometry: Geometry) -> Self {
        let batch_max = config.batch_max as usize;
        Items {
            all: (0..batch_max).map(Item::none).collect(),
            count: 0,
            replays: 0,
            long: Lines::new(batch_max * geometry.stride),
            geometry,
            place: Place {
                route: config.route(),
                core,
            },
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many are repeats.
    #[inline]
    pub(super) fn replays(&self) -> usize {
        self.replays
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        (self.count, self.replays) = (0, 0);
    }

    #[inline]
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Item<P>> {
        self.all[..self.count].iter()
    }

    /// All bytes of a request, the header last.
    #[inline]
    pub(super) fn bytes<'a>(&'a self, item: &'a Item<P>) -> &'a [u8] {
        let len = usize::from(item.len);
        if len <= LINE {
            return &item.line[LINE - len..];
        }
        let end = item.long_end(&self.geometry);
        &self.long[end - len..end]
    }

    /// Copies requests out of a client's chunk, so many from `first` on, and adds them to the batch, which
    /// has room for them. Returns the id behind them. The first stage of the pipeline: a key's bucket is on
    /// its way while the next requests are copied.
    #[inline(always)]
    pub(super) fn copy_out(
        &mut self,
        engine: &impl Engine<Probe = P>,
        chunk: &Chunk,
        (client, mask): (u32, u16),
        (first, ready): (u32, usize),
        replay: bool,
    ) -> u32 {
        let (geometry, place) = (self.geometry, self.place);
        let mut id = first;
        for item in &mut self.all[self.count..][..ready] {
            let end = (id & u32::from(mask)) as usize * geometry.stride + geometry.slot_len;
            chunk.read(end - LINE, &mut item.line);
            item.client = client;
            item.id = id;
            item.replay = replay;
            let word = u64::from_le_bytes(*item.line.last_chunk().expect("a line holds a header"));
            if request::is_short_get(word, id) {
                item.sound = true;
                item.op = Op::Get;
                item.len = (SHORT_KEY_LEN + HEADER_LEN) as u16;
                let key = key_before::<HEADER_LEN>(&item.line);
                item.ours = place.has(key);
                item.is_short_get = item.ours;
                item.probe = engine.probe(key);
            } else if let Some(len) = request::short_set_len(word, id) {
                item.is_short_get = false;
                item.sound = true;
                item.op = Op::Set;
                item.len = len as u16;
                let key = key_before::<{ HEADER_LEN + Op::Set.extras_len() }>(&item.line);
                item.ours = place.has(key);
                item.probe = engine.probe(key);
            } else {
                let long_end = item.long_end(&geometry);
                let long = &mut self.long[..long_end];
                item.copy_any(place, engine, chunk, end, (geometry.slot_len, long));
            }
            id = next_id(id);
        }
        self.count += ready;
        self.replays += usize::from(replay) * ready;
        id
    }

    /// The second stage of the pipeline: the entries are on their way.
    #[inline]
    pub(super) fn refine(&mut self, engine: &impl Engine<Probe = P>) {
        for item in &mut self.all[..self.count] {
            if item.ours {
                engine.refine(&mut item.probe);
            }
        }
    }
}
