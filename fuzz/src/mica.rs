//! A partition: any operations on any keys, beside a map that forgets nothing.
//!
//! A cache may forget an item, but what it tells of one is what was last written. The partition is
//! small, so that its log wraps, and in some runs keys clash in bucket and tag.

use std::collections::HashMap;

use arbitrary::{Arbitrary, Unstructured};
use cache::mica::{
    Arith, KeyHash, NewValue, Options, PagePolicy, Partition, Probe, Store, StoreError,
};

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
            Key::Few(number) => vec![number; 1 + usize::from(number % 8) * 36],
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

/// What was last written.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    expiry_s: u32,
    cas: u64,
}

struct Pair {
    partition: Partition,
    hashes: Hashes,
    items: HashMap<Vec<u8>, Item>,
    flush_due_s: Option<u32>,
    now_s: u32,
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
    let mut pair = Pair {
        partition: Partition::new(&options).expect("a partition"),
        hashes,
        items: HashMap::new(),
        flush_due_s: None,
        now_s: 1000,
        probes: HashMap::new(),
    };
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        pair.step(input.arbitrary()?);
    }
    pair.finish();
    Ok(())
}

/// The number that a value spells: blanks, a plus sign, digits, up to a blank or a NUL.
fn number(value: &[u8]) -> Option<u64> {
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text: Vec<u8> = value.iter().skip_while(is_blank).copied().collect();
    let text = text.strip_prefix(b"+").unwrap_or(&text);
    let ends = |byte: &u8| is_blank(&byte) || *byte == 0;
    let text = std::str::from_utf8(text.split(ends).next()?).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
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

    fn pass(&mut self, pause_s: u32) {
        self.now_s += pause_s;
        let now_s = self.now_s;
        if self.flush_due_s.is_some_and(|due_s| due_s <= now_s) {
            self.items.clear();
            self.flush_due_s = None;
        }
        let lives = |item: &Item| item.expiry_s == 0 || item.expiry_s > now_s;
        self.items.retain(|_, item| lives(item));
    }

    /// What is there must be right; what is missing was forgotten.
    fn look(&mut self, key: &[u8]) -> Option<Item> {
        let hash = self.hash(key);
        let found = self.partition.get(hash, key, self.now_s).map(|item| Item {
            value: item.value.to_vec(),
            flags: item.flags,
            expiry_s: item.expiry_s,
            cas: item.cas,
        });
        match &found {
            Some(found) => assert_eq!(self.items.get(key), Some(found), "of {key:?}"),
            None => {
                self.items.remove(key);
            }
        }
        found
    }

    fn step(&mut self, step: Step<'_>) {
        self.pass(u32::from(step.pause_s % 4));
        let (key, now_s) = (step.key.to_vec(), self.now_s);
        let expiry_s = match step.delay_s {
            0..=127 => 0,
            delay_s => now_s + u32::from(delay_s % 16),
        };
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            return self.refuse(&key);
        }
        let probe = self.probe(&key, step.pause_s >> 6);
        let old = self.look(&key);
        let new = |bytes| NewValue {
            bytes,
            flags: step.flags,
            expiry_s,
        };
        let partition = &mut self.partition;
        let len_max = partition.item_bytes_max() - key.len();
        // What is too large is refused before anything else is looked at.
        let refused = |told: &Result<Store, StoreError>, len: usize, expected: Store| match told {
            Err(_) => assert!(len > len_max, "{told:?} for {len} bytes"),
            Ok(store) => assert_eq!(*store, expected),
        };
        let (stored, value) = match step.op {
            Op::Get => return,
            Op::GetAndTouch => {
                let item = partition.get_and_touch(probe, &key, expiry_s, now_s);
                let item = item.map(|item| (item.value.to_vec(), item.expiry_s));
                assert_eq!(item, old.map(|old| (old.value, expiry_s)));
                return self.touched(&key, expiry_s);
            }
            Op::Touch => {
                assert_eq!(partition.touch(probe, &key, expiry_s, now_s), old.is_some());
                return self.touched(&key, expiry_s);
            }
            Op::Delete => {
                assert_eq!(partition.delete(probe, &key, now_s), old.is_some());
                self.items.remove(&key);
                return;
            }
            Op::FlushAll => {
                let at_s = now_s + u32::from(step.delay_s % 16);
                partition.flush_all(at_s, now_s);
                self.flush_due_s = Some(at_s);
                return self.pass(0);
            }
            Op::Incr(delta) => {
                let told = partition.incr(probe, &key, delta, now_s);
                return self.moved(key, old, told, |number| number.wrapping_add(delta));
            }
            Op::Decr(delta) => {
                let told = partition.decr(probe, &key, delta, now_s);
                return self.moved(key, old, told, |number| number.saturating_sub(delta));
            }
            Op::Set(bytes) => {
                let bytes = bytes.to_vec();
                (partition.set(probe, &key, new(&bytes), now_s), bytes)
            }
            Op::Add(bytes) => {
                let bytes = bytes.to_vec();
                let told = partition.add(probe, &key, new(&bytes), now_s);
                if old.is_some() {
                    return refused(&told, bytes.len(), Store::NotStored);
                }
                (told, bytes)
            }
            Op::Replace(bytes) => {
                let bytes = bytes.to_vec();
                let told = partition.replace(probe, &key, new(&bytes), now_s);
                if old.is_none() {
                    return refused(&told, bytes.len(), Store::NotStored);
                }
                (told, bytes)
            }
            Op::Cas(bytes, off) => {
                let bytes = bytes.to_vec();
                let off = u64::from(off & 3);
                let token = old.as_ref().map_or(0, |old| old.cas).wrapping_add(off);
                let told = partition.cas(probe, &key, new(&bytes), token, now_s);
                match &old {
                    None => return refused(&told, bytes.len(), Store::NotFound),
                    Some(_) if off != 0 => return refused(&told, bytes.len(), Store::Exists),
                    Some(_) => (told, bytes),
                }
            }
            Op::Append(bytes) | Op::Prepend(bytes) => {
                let bytes = bytes.to_vec();
                let behind = matches!(step.op, Op::Append(_));
                let told = if behind {
                    partition.append(probe, &key, &bytes, now_s)
                } else {
                    partition.prepend(probe, &key, &bytes, now_s)
                };
                let Some(old) = old else {
                    return refused(&told, bytes.len(), Store::NotStored);
                };
                let value = if behind {
                    [&old.value[..], &bytes].concat()
                } else {
                    [&bytes[..], &old.value].concat()
                };
                return self.stored(key, value, (old.flags, old.expiry_s), told);
            }
        };
        self.stored(key, value, (step.flags, expiry_s), stored);
    }

    /// No key but one of 1 to 250 bytes is taken.
    fn refuse(&mut self, key: &[u8]) {
        let hash = self.hash(key);
        assert!(self.partition.get(hash, key, self.now_s).is_none());
        assert!(!self.partition.delete(hash, key, self.now_s));
        let told = self
            .partition
            .set(hash, key, NewValue::new(b"1"), self.now_s);
        assert!(
            matches!(told, Err(StoreError::KeyLength { .. })),
            "{told:?}"
        );
    }

    fn touched(&mut self, key: &[u8], expiry_s: u32) {
        if let Some(item) = self.items.get_mut(key) {
            item.expiry_s = expiry_s;
        }
        self.pass(0);
    }

    fn stored(
        &mut self,
        key: Vec<u8>,
        value: Vec<u8>,
        (flags, expiry_s): (u32, u32),
        told: Result<Store, StoreError>,
    ) {
        let fits = key.len() + value.len() <= self.partition.item_bytes_max();
        match told {
            Ok(store) => {
                let cas = store.cas().expect("nothing speaks against storing");
                assert!(fits, "{} bytes were stored", value.len());
                let item = Item {
                    value,
                    flags,
                    expiry_s,
                    cas,
                };
                if let Some(old) = self.items.insert(key, item) {
                    assert_ne!(old.cas, cas, "a token came twice");
                }
                self.pass(0);
            }
            Err(error) => {
                assert!(!fits, "{error}");
                // Whether the old item is gone or not, the next look tells.
            }
        }
    }

    fn moved(
        &mut self,
        key: Vec<u8>,
        old: Option<Item>,
        told: Result<Arith, StoreError>,
        step: impl Fn(u64) -> u64,
    ) {
        let Some(old) = old else {
            return assert_eq!(told, Ok(Arith::NotFound));
        };
        match told {
            Ok(Arith::Number { value, cas }) => {
                let digits = value.to_string();
                let len = digits.len().max(old.value.len());
                let number = number(&old.value).expect("only a number counts");
                assert_eq!(value, step(number));
                let item = Item {
                    value: format!("{digits:<len$}").into_bytes(),
                    cas,
                    ..old
                };
                self.items.insert(key, item);
            }
            Ok(Arith::NotANumber) => {
                assert_eq!(number(&old.value), None, "{:?} counts", old.value);
            }
            other => panic!("{other:?} for a counter"),
        }
    }

    fn finish(mut self) {
        let keys: Vec<Vec<u8>> = self.items.keys().cloned().collect();
        for key in keys {
            self.look(&key);
        }
        check_accounts(&self.partition);
        let live = self.partition.stats().live_items;
        assert!(live >= self.items.len() as u64, "{live} items live");
    }
}

/// Index, log and counters agree.
pub(crate) fn check_accounts(partition: &Partition) {
    let (stats, census) = (partition.stats(), partition.census());
    assert_eq!(census.index_items, stats.live_items);
    assert_eq!(census.log_items, stats.live_items);
    assert_eq!(census.index_bytes, stats.live_bytes);
    assert_eq!(census.log_bytes, stats.live_bytes);
    assert_eq!(stats.hits + stats.misses, stats.gets);
}
