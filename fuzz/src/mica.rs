//! A partition: any operations on any keys, beside what the checker says.
//!
//! A cache may forget an item, but what it tells of one is what was last written. The partition is
//! small, so that its log wraps, and in some runs keys clash in bucket and tag.

use std::collections::HashMap;

use arbitrary::{Arbitrary, Unstructured};
use cache::herd::StoreMode;
use cache::mica::{KeyHash, NewValue, Options, PagePolicy, Partition, Probe, StoreError};
use checker::history::Action;
use checker::{Exact, partition};

use crate::spelt;

/// Operations of an input.
const STEPS_MAX: usize = 400;
/// Longest key; one more is refused.
const KEY_LEN_MAX: usize = 250;

/// How keys are hashed.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Hashes {
    /// As in use.
    Keyed,
    /// All in few buckets, with few tags.
    Clashing,
    /// All alike.
    Same,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Bytes<'a> {
    /// So many of one byte.
    Run(u8, u16),
    /// Any.
    Any(&'a [u8]),
    /// A number's digits.
    Number(u64),
}

impl Bytes<'_> {
    fn to_vec(self) -> Vec<u8> {
        match self {
            Bytes::Run(byte, len) => vec![byte; usize::from(len) % 9000],
            Bytes::Any(bytes) => bytes.to_vec(),
            Bytes::Number(number) => number.to_string().into_bytes(),
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Key<'a> {
    /// One of a few, of several lengths.
    Few(u8),
    /// Any bytes.
    Any(&'a [u8]),
}

impl Key<'_> {
    fn to_vec(self) -> Vec<u8> {
        match self {
            // Keys of 16 bytes have a short way.
            Key::Few(number) => {
                let lens = [1, 16, 73, 16, 145, 17, 217, KEY_LEN_MAX];
                vec![number; lens[usize::from(number % 8)]]
            }
            Key::Any(bytes) => bytes.to_vec(),
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op<'a> {
    Get,
    GetAndTouch,
    Touch,
    Set(Bytes<'a>),
    Add(Bytes<'a>),
    Replace(Bytes<'a>),
    Cas(Bytes<'a>, u8),
    Append(Bytes<'a>),
    Prepend(Bytes<'a>),
    Delete,
    Incr(u64),
    Decr(u64),
    FlushAll,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Step<'a> {
    key: Key<'a>,
    op: Op<'a>,
    flags: u32,
    /// Of the item's expiry, and of the flush.
    delay_s: u8,
    pause_s: u8,
}

struct Pair {
    partition: Partition,
    hashes: Hashes,
    exact: Exact,
    /// Of when a key was first asked for, or last looked ahead for: operations get along with any.
    probes: HashMap<Vec<u8>, Probe>,
}

/// Carries out the operations that the input spells.
///
/// # Panics
/// When the partition tells what was not written, or its accounts do not agree.
pub fn run(input: &[u8]) {
    let mut input = Unstructured::new(input);
    // An input that ends early ends the run.
    let _ = steps(&mut input);
}

fn steps(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let hashes = input.arbitrary()?;
    let bytes = [16 << 10, 64 << 10, 256 << 10][input.int_in_range(0..=2usize)?];
    let mut options = Options::new(bytes);
    options.pages = PagePolicy::Plain;
    let partition = Partition::new(&options).expect("a partition");
    let mut pair = Pair {
        exact: Exact::new(1000, partition.item_bytes_max()),
        partition,
        hashes,
        probes: HashMap::new(),
    };
    for step in spelt(input, STEPS_MAX) {
        pair.step(step);
    }
    pair.finish();
    Ok(())
}

impl Pair {
    fn hash(&self, key: &[u8]) -> KeyHash {
        let short = key.first().copied().map_or(0, u64::from) + key.len() as u64;
        match self.hashes {
            Hashes::Keyed => KeyHash::new(11, key),
            Hashes::Clashing => KeyHash::from_bits((short % 3) << 48 | (short % 4) << 30),
            Hashes::Same => KeyHash::from_bits(0),
        }
    }

    /// A new probe, one that has looked ahead, or an old one.
    fn probe(&mut self, key: &[u8], kind: u8) -> Probe {
        let hash = self.hash(key);
        let mut new = self.partition.probe(hash);
        self.partition.refine(&mut new);
        match kind {
            0 => hash.into(),
            1 => {
                self.probes.insert(key.to_vec(), new);
                new
            }
            _ => *self.probes.entry(key.to_vec()).or_insert(new),
        }
    }

    fn step(&mut self, step: Step<'_>) {
        self.exact.pass(u32::from(step.pause_s % 4));
        let (key, now_s) = (step.key.to_vec(), self.exact.now_s());
        let expiry_s = match step.delay_s {
            0..=127 => 0,
            delay_s => now_s + u32::from(delay_s % 16),
        };
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            return self.refuse(&key);
        }
        let (hash, probe) = (self.hash(&key), self.probe(&key, step.pause_s >> 6));
        let (exact, partition) = (&mut self.exact, &mut self.partition);
        // Looking carries out what is due, so the operation is to do that itself as well.
        match step.pause_s >> 4 & 3 {
            0 | 1 => {}
            2 => partition::look(partition, probe, &key, exact),
            _ => partition::look(partition, hash.into(), &key, exact),
        }
        let store = |mode, bytes: Bytes<'_>| Action::Store {
            mode,
            value: bytes.to_vec(),
            flags: step.flags,
            expiry_s,
        };
        let action = match step.op {
            Op::Get => Action::Get,
            Op::GetAndTouch => Action::GetAndTouch { expiry_s },
            Op::Touch => Action::Touch { expiry_s },
            Op::Delete => Action::Delete,
            Op::FlushAll => {
                let at_s = now_s + u32::from(step.delay_s % 16);
                partition.flush_all(at_s, now_s);
                return exact.flush_at(at_s);
            }
            Op::Incr(delta) => Action::Incr { delta },
            Op::Decr(delta) => Action::Decr { delta },
            Op::Set(bytes) => store(StoreMode::Set, bytes),
            Op::Add(bytes) => store(StoreMode::Add, bytes),
            Op::Replace(bytes) => store(StoreMode::Replace, bytes),
            Op::Append(bytes) => store(StoreMode::Append, bytes),
            Op::Prepend(bytes) => store(StoreMode::Prepend, bytes),
            Op::Cas(bytes, off) => {
                let token = exact.item(&key).map_or(0, |(cas, _)| cas);
                let token = token.wrapping_add(u64::from(off & 3));
                store(StoreMode::Cas(token), bytes)
            }
        };
        partition::step(partition, probe, &key, &action, exact);
    }

    /// No key but one of 1 to 250 bytes is taken.
    fn refuse(&mut self, key: &[u8]) {
        let (hash, now_s) = (self.hash(key), self.exact.now_s());
        assert!(self.partition.get(hash, key, now_s).is_none());
        assert!(!self.partition.delete(hash, key, now_s));
        let told = self.partition.set(hash, key, NewValue::new(b"1"), now_s);
        assert!(
            matches!(told, Err(StoreError::KeyLength { .. })),
            "{told:?}"
        );
    }

    fn finish(mut self) {
        let keys: Vec<Vec<u8>> = self.exact.keys().cloned().collect();
        for key in keys {
            let hash = self.hash(&key);
            partition::look(&mut self.partition, hash.into(), &key, &mut self.exact);
        }
        partition::check_accounts(&self.partition);
        let (live, kept) = (self.partition.stats().live_items, self.exact.keys().count());
        assert!(live >= kept as u64, "{live} items live of {kept}");
    }
}
