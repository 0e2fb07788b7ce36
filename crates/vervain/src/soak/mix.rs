//! What a client asks: batches of requests on keys of its own and on shared ones.

use std::collections::HashMap;

use super::model::{Action, Content, Expiry, Mode, OpId, Own, REGISTER_LEN_MIN};
use super::wire::{Kind, Request};
use super::world::Door;

/// Keys that all clients write, and numbers that all count up.
pub(super) const REGISTERS: usize = 16;
pub(super) const COUNTERS: usize = 4;

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
    pub(super) model: Own,
    class: Class,
}

/// Which key a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Own(usize),
    Register(usize),
    Counter(usize),
}

/// One question: what the model has to know of it, and what is sent.
pub(super) struct Question {
    pub(super) id: OpId,
    pub(super) target: Target,
    pub(super) action: Action,
    pub(super) request: Request,
}

/// What a client knows of a counter: enough to change it by compare-and-swap, or to start it.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// The number and its token.
    pub(super) item: Option<(u64, u64)>,
    pub(super) missed: bool,
}

/// A client's questions.
pub(super) struct Mix {
    client: usize,
    door: Door,
    random: fastrand::Rng,
    next_id: OpId,
    next_key: u64,
    pub(super) slots: Vec<Slot>,
    pub(super) seen: [Seen; COUNTERS],
    begin_life: Box<dyn FnMut(usize) -> u64 + Send>,
    date: Box<dyn Fn() -> u64 + Send>,
}

impl Mix {
    /// `begin_life` gives the number that a counter is started with, `date` the server's unix second.
    pub(super) fn new(
        client: usize,
        door: Door,
        seed: u64,
        begin_life: Box<dyn FnMut(usize) -> u64 + Send>,
        date: Box<dyn Fn() -> u64 + Send>,
    ) -> Self {
        let mut mix = Mix {
            client,
            door,
            random: fastrand::Rng::with_seed(seed),
            next_id: (client as u64 + 1) << 40,
            next_key: 0,
            slots: Vec::new(),
            seen: [Seen::default(); COUNTERS],
            begin_life,
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
            model: Own::new(),
            class,
        }
    }

    /// Gives keys up of which too little is known.
    pub(super) fn renew(&mut self) {
        for at in 0..self.slots.len() {
            if self.slots[at].model.is_worn() {
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
            let action = self.action(target, id);
            let question = self.question(id, target, action, all.last());
            all.push(question);
        }
        all
    }

    /// A batch that reads all there is.
    pub(super) fn look_at_all(&mut self) -> Vec<Question> {
        let own = (0..self.slots.len()).map(Target::Own);
        let shared = (0..REGISTERS).map(Target::Register);
        let targets: Vec<Target> = own
            .chain(shared)
            .chain((0..COUNTERS).map(Target::Counter))
            .collect();
        let mut all: Vec<Question> = Vec::new();
        for target in targets {
            let id = self.next_id();
            let question = self.question(id, target, Action::Get, all.last());
            all.push(question);
        }
        all
    }

    /// A batch that takes long: its last request brings a large value.
    pub(super) fn large_put(&mut self) -> Vec<Question> {
        let large = |slot: &Slot| slot.class == Class::Large;
        let slot = self.slots.iter().position(large).unwrap_or(0);
        let id = self.next_id();
        let action = Action::Store {
            mode: Mode::Set,
            content: Content::of(id, VALUE_MAX),
            flags: id as u32,
            expiry: Expiry::Never,
        };
        vec![self.question(id, Target::Own(slot), action, None)]
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
            79..90 => return Target::Register(self.random.usize(..REGISTERS)),
            _ => return Target::Counter(self.random.usize(..COUNTERS)),
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

    fn action(&mut self, target: Target, id: OpId) -> Action {
        match target {
            Target::Own(slot) if self.slots[slot].class == Class::Number => self.count(slot),
            Target::Own(slot) => self.change(slot, id),
            Target::Register(register) => self.write(register, id),
            Target::Counter(counter) => self.count_shared(counter),
        }
    }

    /// Something with a value of a key of one's own.
    fn change(&mut self, slot: usize, id: OpId) -> Action {
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
        let item = self.slots[slot].model.item();
        let (known, token) = (
            item.map(|item| item.content.len()),
            item.and_then(|item| Some((item.token?, item.version))),
        );
        let store = |mode, len: usize| Action::Store {
            mode,
            content: Content::of(id, len),
            flags: (id as u32).rotate_left(16),
            expiry,
        };
        let grows = known.is_some_and(|known| known < 16 << 10);
        match self.random.u8(..100) {
            0..38 => Action::Get,
            38..66 => store(Mode::Set, len),
            66..71 => store(Mode::Add, len),
            71..75 => store(Mode::Replace, len),
            75..79 if grows => store(Mode::Append, len.min(200)),
            79..82 if grows => store(Mode::Prepend, len.min(200)),
            82..89 => match token {
                Some((token, of)) => store(Mode::Cas { token, of }, len),
                None => Action::Get,
            },
            89..93 => Action::Delete,
            93..96 => Action::Touch(self.expiry(class)),
            96..99 => Action::GetAndTouch(self.expiry(class)),
            _ => Action::Count { up: true, by: 1 },
        }
    }

    /// Something with a number of one's own.
    fn count(&mut self, slot: usize) -> Action {
        let number = match self.random.u8(..4) {
            0 => u64::MAX - self.random.u64(..3),
            1 => 10_u64.pow(self.random.u32(..19)),
            _ => self.random.u64(..1000),
        };
        let store = |mode| Action::Store {
            mode,
            content: Content::Number(number),
            flags: slot as u32,
            expiry: Expiry::Never,
        };
        let by = self.random.u64(..20);
        match self.random.u8(..100) {
            0..40 => Action::Count { up: true, by },
            40..60 => Action::Count { up: false, by },
            60..80 => Action::Get,
            80..88 => store(Mode::Set),
            88..96 => store(Mode::Add),
            _ => Action::Delete,
        }
    }

    /// Something with a shared key.
    fn write(&mut self, register: usize, id: OpId) -> Action {
        let len_max = match register {
            0 => 200 << 10,
            1..4 => 8 << 10,
            _ => 300,
        };
        let len = self.random.usize(REGISTER_LEN_MIN..len_max);
        let store = |mode| Action::Store {
            mode,
            content: Content::of(id, len),
            flags: super::model::Register::flags_of(id),
            expiry: Expiry::Never,
        };
        match self.random.u8(..100) {
            0..60 => Action::Get,
            60..90 => store(Mode::Set),
            90..95 => store(Mode::Add),
            _ => Action::Delete,
        }
    }

    /// Something with a shared number.
    fn count_shared(&mut self, counter: usize) -> Action {
        let store = |mode, number| Action::Store {
            mode,
            content: Content::Number(number),
            flags: 0,
            expiry: Expiry::Never,
        };
        let seen = std::mem::take(&mut self.seen[counter]);
        match (seen, self.random.u8(..100)) {
            (Seen { missed: true, .. }, 0..60) => store(Mode::Add, (self.begin_life)(counter)),
            (
                Seen {
                    item: Some((number, token)),
                    ..
                },
                0..50,
            ) => store(Mode::Cas { token, of: 0 }, number + 1),
            (_, 0..60) => Action::Count { up: true, by: 1 },
            (_, 60..99) => Action::Get,
            _ => Action::Delete,
        }
    }

    fn expiry(&mut self, class: Class) -> Expiry {
        let seconds = self.random.u32(1..4);
        let kinds = if class == Class::Brief { 2 } else { 10 };
        match (self.random.u8(..kinds), self.door) {
            (0, Door::Tcp | Door::Unix) => Expiry::In(seconds),
            (0 | 1, _) => Expiry::At((self.date)() as u32 + seconds),
            _ => Expiry::Never,
        }
    }

    /// A question as it is sent. `before` is the one before it.
    fn question(
        &mut self,
        id: OpId,
        target: Target,
        action: Action,
        before: Option<&Question>,
    ) -> Question {
        let key = match target {
            Target::Own(slot) => self.slots[slot].key.clone(),
            Target::Register(register) => format!("shared-{register}").into_bytes(),
            Target::Counter(counter) => format!("counter-{counter}").into_bytes(),
        };
        let expiry = |expiry: &Expiry| match *expiry {
            Expiry::Never => 0,
            Expiry::In(seconds) => seconds.into(),
            Expiry::At(second) => i64::from(second),
        };
        let is_own = matches!(target, Target::Own(_));
        let mut request = Request {
            kind: Kind::Get,
            noreply: false,
            joined: false,
            flags: 0,
            expiry: 0,
            number: 0,
            key,
            value: Vec::new(),
        };
        match &action {
            Action::Get => {
                // Whether its token is wanted.
                request.number = self.random.u64(..2).max(u64::from(!is_own));
                request.joined = self.random.u8(..4) > 0;
            }
            Action::GetAndTouch(at) => {
                request.kind = Kind::GetAndTouch;
                request.expiry = expiry(at);
            }
            Action::Store {
                mode,
                content,
                flags,
                expiry: at,
            } => {
                (request.kind, request.number) = match mode {
                    Mode::Set => (Kind::Set, 0),
                    Mode::Add => (Kind::Add, 0),
                    Mode::Replace => (Kind::Replace, 0),
                    Mode::Append => (Kind::Append, 0),
                    Mode::Prepend => (Kind::Prepend, 0),
                    Mode::Cas { token, .. } => (Kind::Cas, *token),
                };
                request.flags = *flags;
                request.expiry = expiry(at);
                request.value = content.bytes();
            }
            Action::Delete => request.kind = Kind::Delete,
            Action::Count { up, by } => {
                request.kind = if *up { Kind::Incr } else { Kind::Decr };
                request.number = *by;
            }
            Action::Touch(at) => {
                request.kind = Kind::Touch;
                request.expiry = expiry(at);
            }
        }
        if request.joined
            && let Some(before) = before.filter(|before| before.request.kind == Kind::Get)
        {
            request.number = before.request.number;
        } else {
            request.joined = false;
        }
        let is_read = matches!(request.kind, Kind::Get | Kind::GetAndTouch);
        // Nobody would learn that there was no room for a large value.
        let is_small = request.value.len() < SILENT_MAX;
        request.noreply =
            is_own && !is_read && is_small && self.door != Door::Herd && self.random.u8(..10) == 0;
        Question {
            id,
            target,
            action,
            request,
        }
    }
}
