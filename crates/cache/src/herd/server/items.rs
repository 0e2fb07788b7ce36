//! The requests of a batch, copied out of their slots: from then on their owners cannot change them.

use engine::Engine;

use super::config::ServerConfig;
use crate::herd::memory::{Chunk, Lines};
use crate::herd::slots::Geometry;
use crate::herd::wire::request::{HEADER_LEN, Header, LINE, Op, SHORT_KEY_LEN, WANT_CAS};
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
    pub(super) op: Op,
    /// Its lengths add up.
    pub(super) sound: bool,
    /// The key, where there is one, is of this core.
    pub(super) ours: bool,
    /// Its answer was lost.
    pub(super) replay: bool,
    /// A GET of a key of the usual length.
    is_short_get: bool,
}

const _: () = assert!(size_of::<Item<Probe>>() == 2 * LINE);

impl<P: Copy + Default> Item<P> {
    fn none() -> Self {
        Item {
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

    /// The key of a sound GET of the usual length.
    #[inline]
    pub(super) fn short_get(&self) -> Option<&[u8; SHORT_KEY_LEN]> {
        let (request, _) = self.line.split_last_chunk::<HEADER_LEN>()?;
        self.is_short_get.then_some(request.last_chunk()?)
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

/// The requests of a batch.
#[derive(Debug)]
pub(super) struct Items<P> {
    all: Box<[Item<P>]>,
    count: usize,
    replays: usize,
    /// Where requests longer than a line lie as a whole, each at the end of a part of its own.
    long: Lines,
    geometry: Geometry,
    route: Route,
    core: u32,
}

impl<P: Copy + Default> Items<P> {
    pub(super) fn new(core: u32, config: &ServerConfig, geometry: Geometry) -> Self {
        let batch_max = config.batch_max as usize;
        Items {
            all: vec![Item::none(); batch_max].into(),
            count: 0,
            replays: 0,
            long: Lines::new(batch_max * geometry.stride),
            geometry,
            route: config.route(),
            core,
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
    pub(super) fn bytes<'a>(&'a self, number: usize, item: &'a Item<P>) -> &'a [u8] {
        let len = usize::from(item.len);
        if len <= LINE {
            return &item.line[LINE - len..];
        }
        let end = self.long_end(number);
        &self.long[end - len..end]
    }

    #[inline]
    fn long_end(&self, number: usize) -> usize {
        number * self.geometry.stride + self.geometry.slot_len
    }

    /// Copies the request that ends at `end` of a client's chunk and adds it to the batch. The first
    /// stage of the pipeline: the key's bucket is on its way while the next requests are copied.
    #[inline(always)]
    pub(super) fn copy_out(
        &mut self,
        engine: &impl Engine<Probe = P>,
        chunk: &Chunk,
        client: u32,
        (id, end): (u32, usize),
        replay: bool,
    ) {
        let item = &mut self.all[self.count];
        chunk.read(end - LINE, &mut item.line);
        item.client = client;
        item.id = id;
        item.replay = replay;
        self.replays += usize::from(replay);
        self.count += 1;
        let header = Header::parse(&item.line).expect("a line holds a header");
        if header.is_short_get(id) {
            item.is_short_get = true;
            item.sound = true;
            item.op = Op::Get;
            item.len = (SHORT_KEY_LEN + HEADER_LEN) as u16;
            let key = item.short_get().expect("so it says");
            let ours = self.route.core(key) == self.core;
            let probe = engine.probe(key);
            (item.ours, item.probe) = (ours, probe);
        } else if let Some(len) = header.short_set_len(id) {
            item.is_short_get = false;
            item.sound = true;
            item.op = Op::Set;
            item.len = len as u16;
            let (before, _) = item.line.split_at(LINE - HEADER_LEN - Op::Set.extras_len());
            let key: &[u8; SHORT_KEY_LEN] = before.last_chunk().expect("a line has a short key");
            let ours = self.route.core(key) == self.core;
            let probe = engine.probe(key);
            (item.ours, item.probe) = (ours, probe);
        } else {
            self.copy_any(engine, chunk, header, end);
        }
    }

    /// The rest of [`Items::copy_out`] for what is neither a short GET nor a short SET.
    #[inline(never)]
    fn copy_any(
        &mut self,
        engine: &impl Engine<Probe = P>,
        chunk: &Chunk,
        header: Header,
        end: usize,
    ) {
        let number = self.count - 1;
        let long_end = self.long_end(number);
        let item = &mut self.all[number];
        item.is_short_get = false;
        item.sound = false;
        item.op = Op::Noop;
        item.len = HEADER_LEN as u16;
        let Ok((op, len)) = header.check(self.geometry.slot_len) else {
            return;
        };
        if header.id != item.id {
            return;
        }
        item.sound = true;
        item.op = op;
        item.len = len as u16;
        if len > LINE {
            let long = &mut self.long[long_end - len..long_end];
            let (before, line) = long.split_at_mut(len - LINE);
            chunk.read(end - len, before);
            line.copy_from_slice(&item.line);
        }
        if op.has_key() {
            let bytes = self.bytes(number, &self.all[number]);
            let key_end = bytes.len() - HEADER_LEN - op.extras_len();
            let key = &bytes[key_end - usize::from(header.key_len)..key_end];
            let ours = self.route.core(key) == self.core;
            let probe = engine.probe(key);
            let item = &mut self.all[number];
            (item.ours, item.probe) = (ours, probe);
        }
    }

    /// The second stage of the pipeline: the entries are on their way.
    #[inline]
    pub(super) fn refine(&mut self, engine: &impl Engine<Probe = P>) {
        for item in &mut self.all[..self.count] {
            if item.op.has_key() {
                engine.refine(&mut item.probe);
            }
        }
    }
}
