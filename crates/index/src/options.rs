//! What an index is made and opened with.

use std::fmt;
use std::rc::Rc;

use files::{Timestamp, VolumeId};
use meta::Engine;

use crate::Blocks;
use crate::names::HASH_BITS;

/// How an index is made.
#[derive(Clone, Debug)]
pub struct Format {
    /// Random bytes that nobody else knows: the key of names' hashes.
    pub name_key: [u8; 16],
    /// Random bytes that nobody else knows: what doors sign handles with.
    pub secret: [u8; 32],
    /// How many virtual nodes there are, ever: as many as owners can share the volume. At least one.
    pub virtual_nodes: u16,
    /// Bits of a name's hash in its cookie, 1 to 55. Fewer than 55 are for tests of what collides.
    pub hash_bits: u8,
    /// The volumes that there are at first.
    pub volumes: Vec<(VolumeId, Quota)>,
    /// The time at which their root directories are made.
    pub now: Timestamp,
}

impl Format {
    /// 64 virtual nodes, one volume of number 1 without bounds.
    #[must_use]
    pub fn new(name_key: [u8; 16], secret: [u8; 32], now: Timestamp) -> Self {
        Self {
            name_key,
            secret,
            virtual_nodes: 64,
            hash_bits: HASH_BITS,
            volumes: vec![(VolumeId(1), Quota::default())],
            now,
        }
    }
}

/// What a volume may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes that its files may occupy.
    pub bytes: Option<u64>,
    /// Objects in it, its root among them.
    pub files: Option<u64>,
}

/// What a volume uses now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeUse {
    /// Which.
    pub volume: VolumeId,
    /// What it may use.
    pub quota: Quota,
    /// Bytes that its files occupy.
    pub bytes: u64,
    /// Objects in it, its root among them.
    pub files: u64,
}

/// How an index is opened.
#[derive(Clone)]
pub struct Options {
    /// The core whose tasks carry requests out.
    pub core: rt::Handle,
    /// The rows.
    pub engine: Rc<dyn Engine>,
    /// The data.
    pub blocks: Rc<dyn Blocks>,
    /// The date.
    pub now: Rc<dyn Fn() -> Timestamp>,
    /// Of random choices: on which virtual node a new directory is.
    pub seed: u64,
    /// Who opens it. Another one at the same time takes virtual nodes away from this one.
    pub owner: u64,
    /// The virtual nodes to take over; `None` for all.
    pub nodes: Option<Vec<u16>>,
    /// Bytes of rows that are kept in memory.
    pub cache_bytes: u64,
    /// Objects at most with changes in memory that their rows do not have, besides those that are open.
    pub live_max: usize,
    /// Whether clients may have held something before: until [`files::Request::EndGrace`] they can only
    /// claim that again.
    pub grace: bool,
}

impl Options {
    /// 64 MiB of rows, all virtual nodes, no grace period.
    #[must_use]
    pub fn new(
        core: rt::Handle,
        engine: Rc<dyn Engine>,
        blocks: Rc<dyn Blocks>,
        now: Rc<dyn Fn() -> Timestamp>,
    ) -> Self {
        Self {
            core,
            engine,
            blocks,
            now,
            seed: 0,
            owner: 1,
            nodes: None,
            cache_bytes: 64 << 20,
            live_max: 4096,
            grace: false,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("seed", &self.seed)
            .field("owner", &self.owner)
            .field("nodes", &self.nodes)
            .field("cache_bytes", &self.cache_bytes)
            .field("live_max", &self.live_max)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}
