//! What a client asks: batches of requests on keys of its own and on shared ones.

use std::collections::HashMap;

use super::model::{Item, OpId, first_id, value_of};
use super::tally::Tally;
use super::wire::{Kind, Request};
use super::world::Door;

/// Keys that all clients write: values first, then numbers that all count up.
pub(super) const SHARED: usize = REGISTERS + 4;
const REGISTERS: usize = 16;

/// Bytes of a value at most.
const VALUE_MAX: usize = 1 << 20;
/// Bytes of a key at most.
const KEY_MAX: usize = 250;
/// Bytes of a value that is stored without an answer.
const SILENT_MAX: usize = 8 << 10;
/// How often a key of a client's own comes in one batch.
const REPEATS_MAX: usize = 4;

/// What a key of a client's own holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Small,
    Medium,
    Large,
    Number,
    /// With a time to go, and asked for so seldom that the time comes.
    Brief,
}

/// How many keys of each class a client has, one class behind the other.
const CLASSES: [(Class, usize); 5] = [
    (Class::Small, 64),
    (Class::Medium, 12),
    (Class::Large, 2),
    (Class::Number, 8),
    (Class::Brief, 96),
];

/// A key of a client's own.
pub(super) struct Slot {
    pub(super) key: Vec<u8>,
    pub(super) item: Item,
    class: Class,
}

/// Which key a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Own(usize),
    Shared(usize),
}

/// One question: whom it is about, and what is sent.
pub(super) struct Question {
    pub(super) id: OpId,
    pub(super) target: Target,
    pub(super) request: Request,
}

/// A client's questions.
pub(super) struct Mix {
    client: usize,
    door: Door,
    random: fastrand::Rng,
    next_id: OpId,
    next_key: u64,
    pub(super) slots: Vec<Slot>,
    /// The token last seen of each shared key.
    pub(super) tokens: [Option<u64>; SHARED],
    shared_key: Box<dyn Fn(usize) -> Vec<u8> + Send>,
    date: Box<dyn Fn() -> u64 + Send>,
}

impl Mix {
    /// `shared_key` gives the key that all clients write, `date` the server's unix second.
    pub(super) fn new(
        client: usize,
        door: Door,
        seed: u64,
        shared_key: Box<dyn Fn(usize) -> Vec<u8> + Send>,
        date: Box<dyn Fn() -> u64 + Send>,
    ) -> Self {
        let mut mix = Mix {
            client,
            door,
            random: fastrand::Rng::with_seed(seed),
            next_id: first_id(client),
            next_key: 0,
            slots: Vec::new(),
            tokens: [None; SHARED],
            shared_key,
            date,
        };
        for (class, count) in CLASSES {
            for _ in 0..count {
                let slot = mix.fresh(class);
                mix.slots.push(slot);
            }
        }
        mix
    }

    /// A key that nobody has used.
    fn fresh(&mut self, class: Class) -> Slot {
        self.next_key += 1;
        let mut key = format!("c{}-{class:?}-{}", self.client, self.next_key).into_bytes();
        if self.random.u8(..4) == 0 {
            let len = self.random.usize(key.len()..=KEY_MAX);
            while key.len() < len {
                key.push(match self.door {
                    // Over the NIC a key is any bytes.
                    Door::Herd => self.random.u8(..),
                    Door::Tcp | Door::Unix => self.random.u8(b'!'..=b'~'),
                });
            }
        }
        Slot {
            key,
            item: Item::default(),
            class,
        }
    }

    /// Gives keys up of which too little is known.
    pub(super) fn renew(&mut self, tally: &mut Tally) {
        for at in 0..self.slots.len() {
            if self.slots[at].item.is_worn() {
                self.slots[at].item.give_up(tally);
                self.slots[at] = self.fresh(self.slots[at].class);
            }
        }
    }

    /// The next batch.
    pub(super) fn batch(&mut self) -> Vec<Question> {
        let len = match self.random.u8(..10) {
            0..3 => 1,
            3..7 => self.random.usize(2..=8),
            _ => self.random.usize(9..=48),
        };
        let mut used: HashMap<Target, usize> = HashMap::new();
        let mut all: Vec<Question> = Vec::with_capacity(len);
        for _ in 0..len {
            let target = self.target();
            let repeats_max = match (self.door, target) {
                // Over the NIC reads may be sent again after what came behind them.
                (Door::Tcp | Door::Unix, Target::Own(_)) => REPEATS_MAX,
                _ => 1,
            };
            let uses = used.entry(target).or_default();
            if *uses == repeats_max {
                continue;
            }
            *uses += 1;
            let id = self.next_id();
            let request = self.request(target, id);
            let question = self.question(id, target, request, all.last());
            all.push(question);
        }
        all
    }

    /// A batch that reads all there is.
    pub(super) fn look_at_all(&mut self) -> Vec<Question> {
        let own = (0..self.slots.len()).map(Target::Own);
        let mut all: Vec<Question> = Vec::new();
        for target in own.chain((0..SHARED).map(Target::Shared)) {
            let id = self.next_id();
            let question = self.question(id, target, Request::default(), all.last());
            all.push(question);
        }
        all
    }

    /// A batch that takes long: its last request brings a large value.
    pub(super) fn large_put(&mut self) -> Vec<Question> {
        let large = |slot: &Slot| slot.class == Class::Large;
        let slot = self.slots.iter().position(large).unwrap_or(0);
        let id = self.next_id();
        let request = Request {
            kind: Kind::Set,
            value: value_of(id, VALUE_MAX),
            flags: id as u32,
            ..Request::default()
        };
        vec![self.question(id, Target::Own(slot), request, None)]
    }

    fn next_id(&mut self) -> OpId {
        self.next_id += 1;
        self.next_id
    }

    fn target(&mut self) -> Target {
        let class = match self.random.u8(..100) {
            0..62 => Class::Small,
            62..68 => Class::Medium,
            // Few: else they push out all that is to expire in time.
            68 if self.random.u8(..3) == 0 => Class::Large,
            68 => Class::Small,
            69..76 => Class::Number,
            76..79 => Class::Brief,
            79..90 => return Target::Shared(self.random.usize(..REGISTERS)),
            _ => return Target::Shared(self.random.usize(REGISTERS..SHARED)),
        };
        let mut first = 0;
        for (other, count) in CLASSES {
            if other == class {
                return Target::Own(first + self.random.usize(..count));
            }
            first += count;
        }
        unreachable!("a class that has keys")
    }

    /// What is asked: all but the key and how it is sent.
    fn request(&mut self, target: Target, id: OpId) -> Request {
        match target {
            Target::Own(slot) if self.slots[slot].class == Class::Number => self.count(slot),
            Target::Own(slot) => self.change(slot, id),
            Target::Shared(register @ ..REGISTERS) => self.write(register, id),
            Target::Shared(counter) => self.count_shared(counter, id),
        }
    }

    /// Something with a value of a key of one's own.
    fn change(&mut self, slot: usize, id: OpId) -> Request {
        let class = self.slots[slot].class;
        let len = match (class, self.random.u8(..16)) {
            (Class::Medium, _) => self.random.usize(1 << 10..16 << 10),
            (Class::Large, 0) => VALUE_MAX,
            (Class::Large, _) => self.random.usize(64 << 10..VALUE_MAX),
            (_, 0) => 0,
            (_, 1..8) => 40,
            _ => self.random.usize(1..1 << 10),
        };
        let expiry = self.expiry(class);
        let item = self.slots[slot].item.stands();
        let store = |kind, len: usize| Request {
            kind,
            value: value_of(id, len),
            flags: (id as u32).rotate_left(16),
            expiry,
            ..Request::default()
        };
        let grows = item.is_some_and(|(known, _)| known < 16 << 10);
        match self.random.u8(..100) {
            0..38 => Request::default(),
            38..66 => store(Kind::Set, len),
            66..71 => store(Kind::Add, len),
            71..75 => store(Kind::Replace, len),
            75..79 if grows => store(Kind::Append, len.min(200)),
            79..82 if grows => store(Kind::Prepend, len.min(200)),
            82..89 => match item.and_then(|(_, token)| token) {
                Some(number) => Request {
                    number,
                    ..store(Kind::Cas, len)
                },
                None => Request::default(),
            },
            89..93 => plain(Kind::Delete),
            93..96 => Request {
                expiry: self.expiry(class),
                ..plain(Kind::Touch)
            },
            96..99 => Request {
                expiry: self.expiry(class),
                ..plain(Kind::GetAndTouch)
            },
            _ => by(Kind::Incr, 1),
        }
    }

    /// Something with a number of one's own.
    fn count(&mut self, slot: usize) -> Request {
        let number = match self.random.u8(..4) {
            0 => u64::MAX - self.random.u64(..3),
            1 => 10_u64.pow(self.random.u32(..19)),
            _ => self.random.u64(..1000),
        };
        let store = |kind| Request {
            flags: slot as u32,
            ..store_number(kind, number)
        };
        let delta = self.random.u64(..20);
        match self.random.u8(..100) {
            0..40 => by(Kind::Incr, delta),
            40..60 => by(Kind::Decr, delta),
            60..80 => Request::default(),
            80..88 => store(Kind::Set),
            88..96 => store(Kind::Add),
            _ => plain(Kind::Delete),
        }
    }

    /// Something with a shared key.
    fn write(&mut self, register: usize, id: OpId) -> Request {
        let len_max = match register {
            0 => 200 << 10,
            1..4 => 8 << 10,
            _ => 300,
        };
        let len = self.random.usize(..len_max);
        let store = |kind| Request {
            kind,
            value: value_of(id, len),
            flags: (id as u32).rotate_left(16),
            ..Request::default()
        };
        match self.random.u8(..100) {
            0..60 => Request::default(),
            60..90 => store(Kind::Set),
            90..95 => store(Kind::Add),
            _ => plain(Kind::Delete),
        }
    }

    /// Something with a shared number.
    fn count_shared(&mut self, counter: usize, id: OpId) -> Request {
        match (self.tokens[counter].take(), self.random.u8(..100)) {
            (Some(number), 0..50) => Request {
                number,
                ..store_number(Kind::Cas, id)
            },
            (_, 0..50) => by(Kind::Incr, 1),
            (_, 50..60) => store_number(Kind::Add, id),
            (_, 60..99) => Request::default(),
            _ => plain(Kind::Delete),
        }
    }

    fn expiry(&mut self, class: Class) -> i64 {
        let seconds = self.random.i64(1..4);
        let kinds = if class == Class::Brief { 2 } else { 10 };
        match (self.random.u8(..kinds), self.door) {
            (0, Door::Tcp | Door::Unix) => seconds,
            (0 | 1, _) => (self.date)() as i64 + seconds,
            _ => 0,
        }
    }

    /// A question as it is sent. `before` is the one before it.
    fn question(
        &mut self,
        id: OpId,
        target: Target,
        mut request: Request,
        before: Option<&Question>,
    ) -> Question {
        request.key = match target {
            Target::Own(slot) => self.slots[slot].key.clone(),
            Target::Shared(shared) => (self.shared_key)(shared),
        };
        let is_own = matches!(target, Target::Own(_));
        if request.kind == Kind::Get {
            // Whether its token is wanted.
            request.number = self.random.u64(..2).max(u64::from(!is_own));
            let before = before.filter(|before| before.request.kind == Kind::Get);
            if let (true, Some(before)) = (self.random.u8(..4) > 0, before) {
                request.joined = true;
                request.number = before.request.number;
            }
        }
        let is_read = matches!(request.kind, Kind::Get | Kind::GetAndTouch);
        // Nobody would learn that there was no room for a large value.
        let is_small = request.value.len() < SILENT_MAX;
        request.noreply =
            is_own && !is_read && is_small && self.door != Door::Herd && self.random.u8(..10) == 0;
        Question {
            id,
            target,
            request,
        }
    }
}

fn plain(kind: Kind) -> Request {
    Request {
        kind,
        ..Request::default()
    }
}

fn by(kind: Kind, number: u64) -> Request {
    Request {
        number,
        ..plain(kind)
    }
}

fn store_number(kind: Kind, number: u64) -> Request {
    Request {
        value: number.to_string().into_bytes(),
        ..plain(kind)
    }
}
