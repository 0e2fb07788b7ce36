//! Random operations against a map.

use std::collections::HashMap;

use cache::herd::StoreMode;
use cache::mica::{KeyHash, Options, PagePolicy, Partition, Probe};
use checker::history::Action;
use checker::{Exact, partition};
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
    exact: Exact,
    probes: HashMap<Vec<u8>, Probe>,
}

fn key(number: usize) -> Vec<u8> {
    let mut key = vec![b'k'; [1, 16, 10, 28, 37][number % 5]];
    key[0] = number as u8;
    key
}

impl Pair {
    fn new(options: &Options, hashes: Hashes) -> Pair {
        let partition = Partition::new(options).unwrap();
        Pair {
            exact: Exact::new(1000, partition.item_bytes_max()),
            partition,
            hashes,
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

    fn look(&mut self, key: &[u8], ahead: Ahead) {
        let probe = self.probe(key, ahead);
        partition::look(&mut self.partition, probe, key, &mut self.exact);
    }

    fn expiry_s(&self, ttl_s: u32) -> u32 {
        if ttl_s == 0 {
            0
        } else {
            self.exact.now_s() + ttl_s
        }
    }

    fn run(&mut self, step: Step) {
        self.exact.pass(step.pause_s);
        let key = key(step.key);
        self.look(&key, step.ahead);
        let probe = self.probe(&key, step.ahead);
        let expiry_s = |ttl_s| self.expiry_s(ttl_s);
        let store = |mode, new: New| Action::Store {
            mode,
            value: new.value,
            flags: new.flags,
            expiry_s: expiry_s(new.ttl_s),
        };
        let extend = |mode, value| {
            let (flags, ttl_s) = (0, 0);
            let new = New {
                value,
                flags,
                ttl_s,
            };
            store(mode, new)
        };
        let action = match step.op {
            Op::Get => Action::Get,
            Op::GetAndTouch { ttl_s } => Action::GetAndTouch {
                expiry_s: expiry_s(ttl_s),
            },
            Op::Touch { ttl_s } => Action::Touch {
                expiry_s: expiry_s(ttl_s),
            },
            Op::Set(new) => store(StoreMode::Set, new),
            Op::Add(new) => store(StoreMode::Add, new),
            Op::Replace(new) => store(StoreMode::Replace, new),
            Op::Cas { new, stale } => {
                let token = self.exact.item(&key).map_or(1, |(cas, _)| cas);
                store(StoreMode::Cas(token ^ u64::from(stale)), new)
            }
            Op::Append(bytes) => extend(StoreMode::Append, bytes),
            Op::Prepend(bytes) => extend(StoreMode::Prepend, bytes),
            Op::Delete => Action::Delete,
            Op::Incr(delta) => Action::Incr { delta },
            Op::Decr(delta) => Action::Decr { delta },
            Op::FlushAll { delay_s } => {
                let now_s = self.exact.now_s();
                self.partition.flush_all(now_s + delay_s, now_s);
                self.exact.flush_at(now_s + delay_s);
                return self.check_accounts();
            }
        };
        partition::step(&mut self.partition, probe, &key, &action, &mut self.exact);
        self.check_accounts();
    }

    fn lost(&self) -> u64 {
        self.exact.forgotten()
    }

    fn evictions(&self) -> u64 {
        self.partition.stats().index_evictions + self.partition.stats().log_evictions
    }

    fn check_accounts(&self) {
        partition::check_accounts(&self.partition);
        assert!(self.lost() <= self.evictions(), "lost without an eviction");
    }

    fn look_at_all(&mut self) {
        for number in 0..KEYS {
            self.look(&key(number), Ahead::Now);
        }
    }
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
        prop_assert_eq!(pair.lost(), 0);
        prop_assert_eq!(pair.evictions(), 0);
        prop_assert_eq!(pair.partition.stats().live_items, pair.exact.keys().count() as u64);
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
            prop_assert_eq!(pair.lost(), pair.evictions());
            prop_assert_eq!(pair.partition.stats().live_items, pair.exact.keys().count() as u64);
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
