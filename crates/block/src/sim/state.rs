//! Requests under way, and what each does when it ends.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use slab::Slab;

use super::crash::Volatile;
use super::{Image, Kind, Rates, SimConfig, Snapshot, Totals};
use crate::sync::take;
use crate::{Done, Durable, Op, Request};
use rt::Arm;
use rt::Instant;

pub(super) struct State {
    config: SimConfig,
    rng: fastrand::Rng,
    /// The device's own time, without a clock.
    now: Instant,
    visible: Image,
    durable: Image,
    /// Writes that have taken effect but may be forgotten, oldest first. Those at the front that
    /// cannot be are in `durable`.
    volatile: VecDeque<Arc<Volatile>>,
    /// How many have left `volatile`.
    settled: u64,
    under_way: Slab<UnderWay>,
    /// What ends when: the time, a number that keeps equals in order, the request.
    due: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    serial: u64,
    /// When each channel is free again.
    channels: Vec<Instant>,
    bus_free: Instant,
    queues: Slab<Ends>,
    injected: Vec<Injected>,
    events: u64,
    recorded: Option<Vec<Snapshot>>,
    totals: Totals,
    is_off: bool,
    /// Blocks that cannot be read until they are written again.
    unreadable: BTreeSet<u64>,
}

/// One queue.
struct Ends {
    /// What has ended.
    done: Vec<Done>,
    depth: usize,
    /// Under way, or ended and not polled.
    in_flight: usize,
}

struct UnderWay {
    queue: usize,
    token: u64,
    due: Instant,
    action: Action,
}

enum Action {
    Read {
        at: u64,
        memory: Memory,
        len: usize,
    },
    Write {
        write: Arc<Volatile>,
        /// Bytes that will be taken; all but for a short transfer.
        len: usize,
    },
    /// Covers the writes that had taken effect when it began.
    Flush {
        covers: u64,
    },
    Fail {
        /// A failed write may leave some of its blocks.
        write: Option<Arc<Volatile>>,
        /// How many writes a failed flush, or the flush of a failed durable write, was to cover. What it did not
        /// bring to the medium never gets there, whatever a later flush says.
        covers: Option<u64>,
        errno: Errno,
    },
}

/// Where a read goes.
struct Memory(*mut u8);

// SAFETY: the memory belongs to the request until its completion has been polled, whichever thread
// ends it, under the device's lock.
unsafe impl Send for Memory {}

struct Injected {
    kind: Kind,
    pass: u64,
    errno: Errno,
}

impl State {
    pub(super) fn new(config: SimConfig, image: Image) -> Self {
        let channels = config.speed.channels.max(1);
        Self {
            rng: fastrand::Rng::with_seed(config.seed),
            now: Instant::ZERO,
            visible: image.clone(),
            durable: image,
            volatile: VecDeque::new(),
            settled: 0,
            under_way: Slab::new(),
            due: BinaryHeap::new(),
            serial: 0,
            channels: vec![Instant::ZERO; channels],
            bus_free: Instant::ZERO,
            queues: Slab::new(),
            injected: Vec::new(),
            events: 0,
            recorded: None,
            totals: Totals::default(),
            is_off: false,
            unreadable: BTreeSet::new(),
            config,
        }
    }

    pub(super) fn open_queue(&mut self, depth: usize) -> usize {
        self.queues.insert(Ends {
            done: Vec::with_capacity(depth),
            depth,
            in_flight: 0,
        })
    }

    /// Ends what the queue has under way at once. Its writes take effect: the device has them.
    pub(super) fn close_queue(&mut self, queue: usize) {
        let mine = |(key, request): (usize, &UnderWay)| (request.queue == queue).then_some(key);
        let mut keys: Vec<usize> = self.under_way.iter().filter_map(mine).collect();
        keys.sort_by_key(|key| self.under_way[*key].due);
        for key in keys {
            if !matches!(self.under_way[key].action, Action::Read { .. }) {
                self.end(key);
            } else {
                self.under_way.remove(key);
            }
        }
        let under_way = &self.under_way;
        let serials = &self.due;
        let left = serials
            .iter()
            .filter(|Reverse((due, _, key))| {
                under_way
                    .get(*key)
                    .is_some_and(|request| request.due == *due)
            })
            .copied();
        self.due = left.collect();
        self.queues.remove(queue);
    }

    /// Says when to poll. No time passes.
    pub(super) fn arm(&mut self, queue: usize) -> Arm<'static> {
        self.end_due(self.now());
        let deadline = self.next_due(queue);
        // Without a clock, the next poll has what is due next.
        let has_jump = self.config.clock.is_none() && deadline.is_some();
        if self.has_ended(queue) || has_jump {
            return Arm::Ready;
        }
        Arm::Sleep { fd: None, deadline }
    }

    fn has_ended(&self, queue: usize) -> bool {
        !self.queues[queue].done.is_empty()
    }

    /// Moves as many completions as fit.
    pub(super) fn take(&mut self, queue: usize, done: &mut [Done]) -> usize {
        let queue = &mut self.queues[queue];
        let count = take(&mut queue.done, done);
        queue.in_flight -= count;
        count
    }

    /// Takes a request.
    ///
    /// # Safety
    /// The memory of a read is the request's until its completion is taken from the queue's list, or
    /// the queue is closed; that of a write during the call.
    pub(super) unsafe fn begin(&mut self, queue: usize, request: &Request) {
        let kind = match request.op {
            Op::Read => Kind::Read,
            Op::Write(_) => Kind::Write,
            Op::Flush => Kind::Flush,
        };
        self.check(queue, request);
        self.count(kind, request.len);
        let mut len = request.len as usize;
        if self.chance(self.config.rates.short) && kind != Kind::Flush {
            let blocks = len / self.block();
            len = self.rng.usize(0..blocks) * self.block();
            // A device that makes no progress is broken, not slow.
            len = len.max(self.block());
        }
        let write = (kind == Kind::Write).then(|| {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(request.memory, len) };
            Arc::new(Volatile {
                at: request.at,
                bytes: bytes.into(),
                is_durable: request.op == Op::Write(Durable::Yes),
            })
        });
        let covers = self.settled + self.volatile.len() as u64;
        let action = match (self.failure(kind, request), write) {
            (Some(errno), write) => {
                let has_effect = errno != Errno::AGAIN && !self.is_off;
                let flushes = matches!(request.op, Op::Flush | Op::Write(Durable::Yes));
                Action::Fail {
                    write: write.filter(|_| has_effect),
                    covers: (has_effect && flushes).then_some(covers),
                    errno,
                }
            }
            (None, Some(write)) => Action::Write { write, len },
            (None, None) if kind == Kind::Read => Action::Read {
                at: request.at,
                memory: Memory(request.memory),
                len,
            },
            (None, None) => Action::Flush { covers },
        };
        let is_write = matches!(action, Action::Write { .. });
        let due = self.schedule(request.op, len);
        let key = self.under_way.insert(UnderWay {
            queue,
            token: request.token,
            due,
            action,
        });
        self.serial += 1;
        self.due.push(Reverse((due, self.serial, key)));
        if is_write {
            self.note_event();
        }
    }

    /// Ends what is due. Without a clock, time passes until the queue has something, if it can.
    pub(super) fn advance(&mut self, queue: usize) {
        self.end_due(self.now());
        if self.config.clock.is_none() {
            while !self.has_ended(queue)
                && let Some(due) = self.next_due(queue)
            {
                self.now = due;
                self.end_due(due);
            }
        }
    }

    /// When the queue has something next.
    pub(super) fn next_due(&self, queue: usize) -> Option<Instant> {
        let mine = self
            .under_way
            .iter()
            .filter(|(_, request)| request.queue == queue);
        mine.map(|(_, request)| request.due).min()
    }

    pub(super) fn now(&self) -> Instant {
        match &self.config.clock {
            Some(clock) => clock.now(),
            None => self.now,
        }
    }

    pub(super) fn inject(&mut self, kind: Kind, pass: u64, errno: Errno) {
        self.injected.push(Injected { kind, pass, errno });
    }

    pub(super) fn faults_to_come(&self) -> usize {
        self.injected.len()
    }

    pub(super) fn clear_faults(&mut self) {
        self.injected.clear();
    }

    pub(super) fn make_unreadable(&mut self, at: u64, len: u64) {
        let blocks = self.blocks(at, len as usize);
        self.unreadable.extend(blocks);
    }

    pub(super) fn set_rates(&mut self, rates: Rates) {
        self.config.rates = rates;
    }

    pub(super) fn flip(&mut self, at: u64, mask: u8) {
        for image in [&mut self.visible, &mut self.durable] {
            let mut byte = [0];
            image.read(at, &mut byte);
            image.write(at, &[byte[0] ^ mask]);
        }
    }

    pub(super) fn visible(&self) -> &Image {
        &self.visible
    }

    pub(super) fn snapshot(&mut self) -> Snapshot {
        self.events += 1;
        self.current()
    }

    pub(super) fn record(&mut self) {
        self.recorded.get_or_insert_default();
    }

    pub(super) fn take_snapshots(&mut self) -> Vec<Snapshot> {
        self.recorded
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn cut_power(&mut self) {
        if self.is_off {
            return;
        }
        self.is_off = true;
        for (_, request) in &mut self.under_way {
            // A write that was under way may have got anywhere: it stays in later snapshots.
            let write = match &request.action {
                Action::Write { write, .. } => Some(write.clone()),
                Action::Fail { write, .. } => write.clone(),
                Action::Read { .. } | Action::Flush { .. } => None,
            };
            let write = write.map(|write| {
                Arc::new(Volatile {
                    at: write.at,
                    bytes: write.bytes.clone(),
                    is_durable: false,
                })
            });
            self.volatile.extend(write);
            request.action = Action::Fail {
                write: None,
                covers: None,
                errno: Errno::NODEV,
            };
        }
    }

    fn block(&self) -> usize {
        self.config.geometry.block as usize
    }

    /// A device that is asked what it cannot do answers as it likes; this one points it out.
    fn check(&mut self, queue: usize, request: &Request) {
        let queue = &mut self.queues[queue];
        queue.in_flight += 1;
        assert!(queue.in_flight <= queue.depth, "more than the queue holds");
        let geometry = &self.config.geometry;
        let (at, len) = (request.at, u64::from(request.len));
        if request.op == Op::Flush {
            assert_eq!(len, 0, "a flush has no bytes");
            return;
        }
        let block = u64::from(geometry.block);
        let is_aligned = (at | len | request.memory as u64).is_multiple_of(block);
        let is_inside = len > 0 && at < geometry.len && len <= geometry.len - at;
        let is_whole = len <= geometry.io_max.into()
            && geometry
                .boundary
                .is_none_or(|boundary| at / boundary == (at + len - 1) / boundary);
        assert!(
            is_aligned && is_inside && is_whole,
            "{request:?} breaks the rules of {geometry:?}"
        );
    }

    fn count(&mut self, kind: Kind, len: u32) {
        let totals = &mut self.totals;
        match kind {
            Kind::Read => {
                totals.reads += 1;
                totals.read_bytes += u64::from(len);
            }
            Kind::Write => {
                totals.writes += 1;
                totals.written_bytes += u64::from(len);
            }
            Kind::Flush => totals.flushes += 1,
        }
    }

    fn chance(&mut self, rate: f64) -> bool {
        rate > 0.0 && self.rng.f64() < rate
    }

    /// Whether a request fails, and how.
    fn failure(&mut self, kind: Kind, request: &Request) -> Option<Errno> {
        if self.is_off {
            return Some(Errno::NODEV);
        }
        if kind == Kind::Read {
            let blocks = self.blocks(request.at, request.len as usize);
            if self.unreadable.range(blocks).next().is_some() {
                return Some(Errno::IO);
            }
        }
        let mut injected = None;
        self.injected.retain_mut(|fault| {
            if fault.kind != kind {
                return true;
            }
            if fault.pass > 0 {
                fault.pass -= 1;
                return true;
            }
            if injected.is_none() {
                injected = Some(fault.errno);
                return false;
            }
            true
        });
        if injected.is_some() {
            return injected;
        }
        let rates = self.config.rates;
        if self.chance(rates.again) {
            return Some(Errno::AGAIN);
        }
        let rate = match kind {
            Kind::Read => rates.read_error,
            Kind::Write => rates.write_error,
            Kind::Flush => rates.flush_error,
        };
        self.chance(rate).then_some(Errno::IO)
    }

    /// When a request that begins now ends.
    fn schedule(&mut self, op: Op, len: usize) -> Instant {
        let speed = self.config.speed;
        let base = match op {
            Op::Read => speed.read,
            Op::Write(Durable::No) => speed.write,
            Op::Write(Durable::Yes) => speed.write + speed.flush,
            Op::Flush => speed.flush,
        };
        let jitter = 1.0 + (speed.jitter - 1.0).max(0.0) * self.rng.f64();
        let latency = base.mul_f64(jitter);
        let now = self.now();
        let channels = self.channels.iter_mut();
        let channel = channels.min().expect("there is a channel");
        let mut end = (*channel).max(now) + latency;
        if speed.bytes_per_s > 0 && len > 0 {
            let ns = (len as u64).saturating_mul(1_000_000_000) / speed.bytes_per_s;
            // The bus is taken in the order of submission: near enough, and no event of its own.
            self.bus_free = self.bus_free.max(now) + Duration::from_nanos(ns);
            end = end.max(self.bus_free);
        }
        *channel = end;
        end
    }

    fn end_due(&mut self, now: Instant) {
        while let Some(&Reverse((due, _, key))) = self.due.peek()
            && due <= now
        {
            self.due.pop();
            self.end(key);
        }
    }

    /// Carries a request out.
    fn end(&mut self, key: usize) {
        let request = self.under_way.remove(key);
        let (result, is_event) = match request.action {
            Action::Read { at, memory, len } => {
                // SAFETY: the promise of `begin`.
                let bytes = unsafe { std::slice::from_raw_parts_mut(memory.0, len) };
                self.visible.read(at, bytes);
                (Ok(len), false)
            }
            Action::Write { write, len } => {
                self.take_effect(write);
                (Ok(len), true)
            }
            Action::Flush { covers } => {
                while self.settled < covers {
                    self.settle_first();
                }
                self.settle();
                (Ok(0), true)
            }
            Action::Fail {
                write,
                covers,
                errno,
            } => {
                let is_event = write.is_some() || covers.is_some();
                if let Some(write) = write {
                    self.take_some_effect(&write);
                }
                if let Some(covers) = covers {
                    self.lose(covers);
                }
                (Err(errno), is_event)
            }
        };
        let result = result.map(|len| u32::try_from(len).expect("a request's length"));
        self.queues[request.queue].done.push(Done {
            token: request.token,
            result,
        });
        if is_event {
            self.note_event();
        }
    }

    /// A flush has failed: of what it was to cover, the medium has nothing, everything or some blocks,
    /// and the rest is forgotten. Who reads goes on seeing it until the power goes.
    fn lose(&mut self, covers: u64) {
        let share = [0.0, 0.0, 1.0, 0.5][self.rng.usize(0..4)];
        while self.settled < covers {
            let write = self.volatile.pop_front().expect("a write to lose");
            self.settled += 1;
            let mut at = write.at;
            for block in write.bytes.chunks(self.block()) {
                if write.is_durable || self.rng.f64() < share {
                    self.durable.write(at, block);
                }
                at += block.len() as u64;
            }
        }
        self.settle();
    }

    /// The numbers of the blocks that a range touches.
    fn blocks(&self, at: u64, len: usize) -> std::ops::Range<u64> {
        let block = self.block() as u64;
        at / block..(at + len as u64).div_ceil(block)
    }

    fn take_effect(&mut self, write: Arc<Volatile>) {
        if !self.unreadable.is_empty() {
            let written = self.blocks(write.at, write.bytes.len());
            self.unreadable.retain(|block| !written.contains(block));
        }
        self.visible.write(write.at, &write.bytes);
        self.volatile.push_back(write);
        self.settle();
    }

    /// A write has failed: any of its blocks may be on the device.
    fn take_some_effect(&mut self, write: &Volatile) {
        let mut at = write.at;
        for block in write.bytes.chunks(self.block()) {
            if self.rng.bool() {
                self.take_effect(Arc::new(Volatile {
                    at,
                    bytes: block.into(),
                    is_durable: false,
                }));
            }
            at += block.len() as u64;
        }
    }

    /// What is durable and has nothing older before it needs no list.
    fn settle(&mut self) {
        while self.volatile.front().is_some_and(|write| write.is_durable) {
            self.settle_first();
        }
    }

    fn settle_first(&mut self) {
        let write = self.volatile.pop_front().expect("a write to settle");
        self.durable.write(write.at, &write.bytes);
        self.settled += 1;
    }

    fn note_event(&mut self) {
        self.events += 1;
        if self.recorded.is_some() {
            let snapshot = self.current();
            self.recorded.get_or_insert_default().push(snapshot);
        }
    }

    fn current(&self) -> Snapshot {
        let in_flight = |(_, request): (usize, &UnderWay)| match &request.action {
            Action::Write { write, .. } => Some(write.clone()),
            Action::Fail { write, .. } => write.clone(),
            Action::Read { .. } | Action::Flush { .. } => None,
        };
        Snapshot {
            event: self.events,
            block: self.block(),
            sector: self.config.sector.max(self.config.geometry.block) as usize,
            durable: self.durable.clone(),
            ended: self.volatile.iter().cloned().collect(),
            in_flight: self.under_way.iter().filter_map(in_flight).collect(),
        }
    }
}
