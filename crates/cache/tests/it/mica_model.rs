//! Random operations against a map.

use std::collections::{HashMap, HashSet};

use cache::mica::{Arith, KeyHash, NewValue, Options, PagePolicy, Partition, Probe, Store};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Get,
    GetAndTouch { ttl_s: u32 },
    Touch { ttl_s: u32 },
    Set(New),
    Add(New),
    Replace(New),
    Cas { new: New, stale: bool },
    Append(Vec<u8>),
    Prepend(Vec<u8>),
    Delete,
    Incr(u64),
    Decr(u64),
    FlushAll { delay_s: u32 },
}

#[derive(Clone, Debug)]
struct New {
    value: Vec<u8>,
    flags: u32,
    ttl_s: u32,
}

#[derive(Clone, Debug)]
struct Step {
    key: usize,
    op: Op,
    pause_s: u32,
    ahead: Ahead,
}

/// How much the partition was told of a key ahead of the operation.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    /// Nothing.
    Never,
    /// It has looked right before.
    Now,
    /// It has looked before an earlier operation, after which anything may have happened.
    Long,
}

const KEYS: usize = 48;

/// Few sizes, so that values are often updated in place, and some numbers.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let fill = |(byte, len)| vec![byte; len];
    prop_oneof![
        2 => (any::<u8>(), 0_usize..150).prop_map(fill),
        2 => (any::<u8>(), prop::sample::select(vec![0, 16, 32, 100])).prop_map(fill),
        1 => any::<u64>().prop_map(|number| number.to_string().into_bytes()),
        1 => (0_u64..200).prop_map(|number| number.to_string().into_bytes()),
    ]
}

fn ttls() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(0), 1 => 1_u32..30]
}

fn news() -> impl Strategy<Value = New> {
    (values(), any::<u32>(), ttls()).prop_map(|(value, flags, ttl_s)| New {
        value,
        flags,
        ttl_s,
    })
}

fn ops() -> impl Strategy<Value = Op> {
    let deltas = || prop_oneof![Just(1), 0_u64..1000, any::<u64>()];
    prop_oneof![
        4 => Just(Op::Get),
        1 => ttls().prop_map(|ttl_s| Op::GetAndTouch { ttl_s }),
        1 => ttls().prop_map(|ttl_s| Op::Touch { ttl_s }),
        12 => news().prop_map(Op::Set),
        2 => news().prop_map(Op::Add),
        2 => news().prop_map(Op::Replace),
        2 => (news(), any::<bool>()).prop_map(|(new, stale)| Op::Cas { new, stale }),
        2 => values().prop_map(Op::Append),
        2 => values().prop_map(Op::Prepend),
        2 => Just(Op::Delete),
        2 => deltas().prop_map(Op::Incr),
        2 => deltas().prop_map(Op::Decr),
    ]
}

fn steps(len: usize) -> impl Strategy<Value = Vec<Step>> {
    let op = prop_oneof![
        60 => ops(),
        1 => (0_u32..20).prop_map(|delay_s| Op::FlushAll { delay_s }),
    ];
    let pause = prop_oneof![4 => Just(0), 1 => 0_u32..4];
    let ahead = prop::sample::select(vec![Ahead::Never, Ahead::Now, Ahead::Long, Ahead::Long]);
    let step = (0..KEYS, op, pause, ahead).prop_map(|(key, op, pause_s, ahead)| Step {
        key,
        op,
        pause_s,
        ahead,
    });
    prop::collection::vec(step, 1..len)
}

#[derive(Clone, Debug)]
struct Stored {
    value: Vec<u8>,
    flags: u32,
    expiry_s: u32,
    cas: u64,
}

#[derive(Clone, Copy)]
enum Hashes {
    /// As in use.
    Keyed,
    /// All keys in few buckets, with three tags.
    Clashing,
}

/// The partition and what it should hold.
struct Pair {
    partition: Partition,
    hashes: Hashes,
    items: HashMap<Vec<u8>, Stored>,
    tokens: HashSet<(Vec<u8>, u64)>,
    flush_due_s: Option<u32>,
    now_s: u32,
    /// Items that were found missing.
    lost: u64,
    probes: HashMap<Vec<u8>, Probe>,
}

fn key(number: usize) -> Vec<u8> {
    let mut key = vec![b'k'; [1, 16, 10, 28, 37][number % 5]];
    key[0] = number as u8;
    key
}

impl Pair {
    fn new(options: &Options, hashes: Hashes) -> Pair {
        Pair {
            partition: Partition::new(options).unwrap(),
            hashes,
            items: HashMap::new(),
            tokens: HashSet::new(),
            flush_due_s: None,
            now_s: 1000,
            lost: 0,
            probes: HashMap::new(),
        }
    }

    fn hash(&self, key: &[u8]) -> KeyHash {
        match self.hashes {
            Hashes::Keyed => KeyHash::new(11, key),
            Hashes::Clashing => {
                let number = u64::from(key[0]);
                KeyHash::from_bits((number % 3) << 48 | (number % 4) << 30)
            }
        }
    }

    fn probe(&mut self, key: &[u8], ahead: Ahead) -> Probe {
        let hash = self.hash(key);
        let mut new = self.partition.probe(hash);
        self.partition.refine(&mut new);
        match ahead {
            Ahead::Never => hash.into(),
            Ahead::Now => {
                self.probes.insert(key.to_vec(), new);
                new
            }
            Ahead::Long => *self.probes.entry(key.to_vec()).or_insert(new),
        }
    }

    fn expiry_s(&self, ttl_s: u32) -> u32 {
        if ttl_s == 0 { 0 } else { self.now_s + ttl_s }
    }

    fn pass(&mut self, pause_s: u32) {
        self.now_s += pause_s;
        let now_s = self.now_s;
        if self.flush_due_s.is_some_and(|due_s| due_s <= now_s) {
            self.items.clear();
            self.flush_due_s = None;
        }
        self.items
            .retain(|_, item| item.expiry_s == 0 || item.expiry_s > now_s);
    }

    /// What is there must be right; what is missing is noted and forgotten.
    fn look(&mut self, key: &[u8], ahead: Ahead) {
        let probe = self.probe(key, ahead);
        let found = self.partition.get(probe, key, self.now_s);
        match (found, self.items.get(key)) {
            (None, None) => {}
            (None, Some(_)) => {
                self.items.remove(key);
                self.lost += 1;
            }
            (Some(item), None) => panic!("{item:?} should be gone"),
            (Some(item), Some(stored)) => {
                assert_eq!(item.value, stored.value);
                assert_eq!(item.flags, stored.flags);
                assert_eq!(item.expiry_s, stored.expiry_s);
                assert_eq!(item.cas, stored.cas);
            }
        }
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>, flags: u32, expiry_s: u32, cas: u64) {
        assert!(self.tokens.insert((key.clone(), cas)), "a token came twice");
        let stored = Stored {
            value,
            flags,
            expiry_s,
            cas,
        };
        self.items.insert(key, stored);
    }

    fn check_store(&mut self, key: Vec<u8>, new: New, store: Store, expected: Result<(), Store>) {
        match (store, expected) {
            (Store::Stored { cas }, Ok(())) => {
                let expiry_s = self.expiry_s(new.ttl_s);
                self.put(key, new.value, new.flags, expiry_s, cas);
            }
            (store, expected) => assert_eq!(Err(store), expected),
        }
    }

    fn run(&mut self, step: Step) {
        self.pass(step.pause_s);
        let (key, now_s) = (key(step.key), self.now_s);
        self.look(&key, step.ahead);
        let probe = self.probe(&key, step.ahead);
        let old = self.items.get(&key).cloned();
        let exists = old.is_some();
        let partition = &mut self.partition;
        match step.op {
            Op::Get => {}
            Op::GetAndTouch { ttl_s } => {
                let expiry_s = self.expiry_s(ttl_s);
                let item = self.partition.get_and_touch(probe, &key, expiry_s, now_s);
                assert_eq!(
                    item.map(|item| (item.value.to_vec(), item.expiry_s)),
                    old.map(|old| (old.value, expiry_s))
                );
                if let Some(item) = self.items.get_mut(&key) {
                    item.expiry_s = expiry_s;
                }
            }
            Op::Touch { ttl_s } => {
                let expiry_s = self.expiry_s(ttl_s);
                assert_eq!(self.partition.touch(probe, &key, expiry_s, now_s), exists);
                if let Some(item) = self.items.get_mut(&key) {
                    item.expiry_s = expiry_s;
                }
            }
            Op::Set(new) => {
                let value = self.new_value(&new);
                let store = self.partition.set(probe, &key, value, now_s).unwrap();
                self.check_store(key, new, store, Ok(()));
            }
            Op::Add(new) => {
                let value = self.new_value(&new);
                let store = self.partition.add(probe, &key, value, now_s).unwrap();
                let expected = if exists {
                    Err(Store::NotStored)
                } else {
                    Ok(())
                };
                self.check_store(key, new, store, expected);
            }
            Op::Replace(new) => {
                let value = self.new_value(&new);
                let store = self.partition.replace(probe, &key, value, now_s).unwrap();
                let expected = if exists {
                    Ok(())
                } else {
                    Err(Store::NotStored)
                };
                self.check_store(key, new, store, expected);
            }
            Op::Cas { new, stale } => {
                let value = self.new_value(&new);
                let token = old.as_ref().map_or(1, |old| old.cas) ^ u64::from(stale);
                let store = self
                    .partition
                    .cas(probe, &key, value, token, now_s)
                    .unwrap();
                let expected = match (exists, stale) {
                    (false, _) => Err(Store::NotFound),
                    (true, true) => Err(Store::Exists),
                    (true, false) => Ok(()),
                };
                self.check_store(key, new, store, expected);
            }
            Op::Append(bytes) => self.extend(key, old, &[], &bytes),
            Op::Prepend(bytes) => self.extend(key, old, &bytes, &[]),
            Op::Delete => {
                assert_eq!(partition.delete(probe, &key, now_s), exists);
                self.items.remove(&key);
            }
            Op::Incr(delta) => {
                let result = partition.incr(probe, &key, delta, now_s).unwrap();
                self.check_arith(key, old, result, |number| number.wrapping_add(delta));
            }
            Op::Decr(delta) => {
                let result = partition.decr(probe, &key, delta, now_s).unwrap();
                self.check_arith(key, old, result, |number| number.saturating_sub(delta));
            }
            Op::FlushAll { delay_s } => {
                partition.flush_all(now_s + delay_s, now_s);
                self.flush_due_s = Some(now_s + delay_s);
                self.pass(0);
            }
        }
        self.check_accounts();
    }

    fn new_value<'a>(&self, new: &'a New) -> NewValue<'a> {
        NewValue {
            bytes: &new.value,
            flags: new.flags,
            expiry_s: self.expiry_s(new.ttl_s),
        }
    }

    fn extend(&mut self, key: Vec<u8>, old: Option<Stored>, before: &[u8], after: &[u8]) {
        let (probe, now_s) = (self.probe(&key, Ahead::Long), self.now_s);
        let result = if before.is_empty() {
            self.partition.append(probe, &key, after, now_s)
        } else {
            self.partition.prepend(probe, &key, before, now_s)
        };
        let Some(old) = old else {
            return assert_eq!(result, Ok(Store::NotStored));
        };
        let value = [before, &old.value, after].concat();
        let fits = key.len() + value.len() <= self.partition.item_bytes_max();
        assert_eq!(result.is_ok(), fits);
        if let Ok(store) = result {
            let cas = store.cas().expect("there is an item to extend");
            self.put(key, value, old.flags, old.expiry_s, cas);
        }
    }

    fn check_arith(
        &mut self,
        key: Vec<u8>,
        old: Option<Stored>,
        result: Arith,
        compute: impl Fn(u64) -> u64,
    ) {
        let Some(old) = old else {
            return assert_eq!(result, Arith::NotFound);
        };
        let Some(number) = number_in(&old.value) else {
            return assert_eq!(result, Arith::NotANumber);
        };
        let Arith::Number { value, cas } = result else {
            panic!("{number} is a number");
        };
        assert_eq!(value, compute(number));
        let text = format!("{value:<width$}", width = old.value.len());
        self.put(key, text.into_bytes(), old.flags, old.expiry_s, cas);
    }

    fn evictions(&self) -> u64 {
        self.partition.stats().index_evictions + self.partition.stats().log_evictions
    }

    fn check_accounts(&self) {
        let (stats, census) = (self.partition.stats(), self.partition.census());
        assert_eq!(census.index_items, stats.live_items);
        assert_eq!(census.log_items, stats.live_items);
        assert_eq!(census.index_bytes, stats.live_bytes);
        assert_eq!(census.log_bytes, stats.live_bytes);
        assert_eq!(stats.hits + stats.misses, stats.gets);
        assert!(self.lost <= self.evictions(), "lost without an eviction");
    }

    fn look_at_all(&mut self) {
        for number in 0..KEYS {
            self.look(&key(number), Ahead::Now);
        }
    }
}

/// The number that a value spells: blanks, a plus sign, digits, up to a blank or a NUL.
fn number_in(value: &[u8]) -> Option<u64> {
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text: Vec<u8> = value.iter().skip_while(is_blank).copied().collect();
    let text = text.strip_prefix(b"+").unwrap_or(&text);
    let ends = |byte: &u8| is_blank(&byte) || *byte == 0;
    let text = std::str::from_utf8(text.split(ends).next()?).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

fn options(bytes: usize, index_permille: u32) -> Options {
    Options {
        bytes,
        index_permille,
        pages: PagePolicy::Plain,
        prefault: false,
        ..Options::new(0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// With room for everything the partition is a map.
    #[test]
    fn is_a_map_while_nothing_need_be_evicted(steps in steps(500)) {
        let mut pair = Pair::new(&options(4 << 20, 200), Hashes::Keyed);
        for step in steps {
            pair.run(step);
        }
        pair.look_at_all();
        prop_assert_eq!(pair.lost, 0);
        prop_assert_eq!(pair.evictions(), 0);
        prop_assert_eq!(pair.partition.stats().live_items, pair.items.len() as u64);
    }

    /// When every key is looked at after every step, each eviction is one loss.
    #[test]
    fn loses_exactly_what_it_counts_as_evicted(
        steps in steps(400),
        units in 0_usize..64,
        clashing in any::<bool>(),
    ) {
        let hashes = if clashing { Hashes::Clashing } else { Hashes::Keyed };
        let mut pair = Pair::new(&options(3000 + units * 64, 100), hashes);
        for step in steps {
            pair.run(step);
            pair.look_at_all();
            prop_assert_eq!(pair.lost, pair.evictions());
            prop_assert_eq!(pair.partition.stats().live_items, pair.items.len() as u64);
        }
    }

    /// Never a wrong value, whatever has been forgotten meanwhile.
    #[test]
    fn never_has_a_wrong_value(
        steps in steps(1500),
        units in 0_usize..64,
        index_permille in 20_u32..500,
        clashing in any::<bool>(),
    ) {
        let hashes = if clashing { Hashes::Clashing } else { Hashes::Keyed };
        let mut pair = Pair::new(&options(3000 + units * 64, index_permille), hashes);
        for step in steps {
            pair.run(step);
        }
        pair.look_at_all();
    }
}
