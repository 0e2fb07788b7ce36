//! A store as an engine that doors serve: commands that wait for the device.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`StoreEngine`]: starting, fetching, counting |
//! | `slot.rs` | a command under way, its [`Ticket`] and where its answer arrives |
//! | `held.rs` | commands that wait behind a long value or a flush |
//! | `key_locks.rs` | the order of commands on one key |
//! | `carry_out.rs` | a command as operations of a session |
//! | `flush.rs` | `FlushAll`: every key is deleted |
//! | `counts.rs` | what commands have come to |

mod carry_out;
mod counts;
mod flush;
mod held;
mod key_locks;
mod slot;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use ::engine::{Answer, Ask, Budget, Command, Engine, Failure, Limits, Segments, StatsPage};
use rt::JoinHandle;
use rt::sync::{Notify, Semaphore};

pub use self::slot::Ticket;

use self::carry_out::carry_out;
use self::counts::{Counts, NAMES};
use self::held::Held;
use self::key_locks::{KeyLocks, Permit};
use self::slot::{Begun, Epoch, Slot, State, Work};
use crate::counters::Stats;
use crate::index::{Candidates, Place};
use crate::session::Session;

/// What a record takes besides key and value, at most.
const RECORD_OVERHEAD_MAX: usize = 64;
/// A value up to this length is fetched, and rewritten, however short memory is.
const VALUE_ALWAYS_LEN: u64 = 16 << 10;
/// Longer values that a core rewrites at a time: each is in memory twice meanwhile.
const LONG_REWRITES_MAX: usize = 4;

/// Why commands are refused while the server stops.
const STOPPING: Failure = Failure::Busy("the server is stopping");

/// What the engines of all cores over one store share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// Flushes asked for, planned ones included.
    flushes: AtomicU64,
    /// What the commands of each core have come to.
    counts: Mutex<Vec<Arc<Counts>>>,
    /// What had been counted when the counters were reset.
    reset: Mutex<Counted>,
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    store: Stats,
    flushes: u64,
    commands: [u64; NAMES.len()],
}

impl Common {
    /// Counters for another core.
    fn count_apart(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        lock(&self.counts).push(counts.clone());
        counts
    }

    /// What has been counted so far, besides `store`'s own.
    fn counted(&self, store: Stats) -> Counted {
        let mut commands = [0; NAMES.len()];
        for counts in lock(&self.counts).iter() {
            counts.add_to(&mut commands);
        }
        Counted {
            store,
            flushes: self.flushes.load(Ordering::Relaxed),
            commands,
        }
    }
}

/// One core's engine over a store. Every command is promised and carried out by a task of the core,
/// but those on the engine itself.
///
/// **Order.** Commands on one key that this core has started take effect in the order of their
/// starts; those of several cores in some order. **Durability**: as the store was opened; an answer
/// comes when the change has it. **Tokens** are the store's versions. A new expiry is a new record: so
/// `Touch` and a `Get` that touches cost a write, and the item gets another token.
///
/// **`FlushAll`** deletes every key, as durably as any delete, which takes as long as reading the log and
/// deleting so many keys; keys go one by one, and each that was there when it was asked is gone when it
/// is answered. One for later is forgotten when the store is closed, or its core's engine dropped, before its moment.
///
/// **Memory.** A value that is longer than its asker has room for is read once the asker fetches it;
/// what the asker has started since on its key waits until then. How long it is is looked at when the
/// command is started, and again when it is carried out. What is held for askers that have gone, and
/// for long values, is accounted for in a [`Budget`].
pub struct StoreEngine {
    inner: Rc<Inner>,
    limits: Limits,
}

struct Inner {
    session: Session,
    core: rt::Handle,
    locks: Rc<KeyLocks>,
    limits: Limits,
    budget: Arc<dyn Budget>,
    counts: Arc<Counts>,
    /// Commands that wait for one before them, by asker.
    held: RefCell<HashMap<u64, Held>>,
    /// Commands so far.
    started: Cell<u64>,
    /// Those that are being carried out; `idle` is notified when none is left.
    under_way: Cell<usize>,
    idle: Notify,
    epoch: RefCell<Rc<Epoch>>,
    /// Sleeps until the moment of the flush that this core was asked for last, if that is for later.
    planned: RefCell<Option<JoinHandle<()>>>,
    long_rewrites: Semaphore,
    is_closing: Cell<bool>,
}

impl StoreEngine {
    /// An engine over a session, whose commands are tasks of `core`, which also drives the session
    /// ([`crate::Store::session_on`]). Values are at most `value_size_max` bytes, and what a segment
    /// of the store takes.
    pub fn new(
        session: Session,
        core: rt::Handle,
        value_size_max: usize,
        budget: Arc<dyn Budget>,
    ) -> Self {
        let counts = session.shared.commands.count_apart();
        let record_max = session.shared.layout().record_max() - RECORD_OVERHEAD_MAX;
        let limits = Limits {
            item_size_max: record_max.min(value_size_max + ::engine::KEY_SIZE_MAX),
            value_size_max: value_size_max.min(record_max),
        };
        Self {
            inner: Rc::new(Inner {
                session,
                core,
                locks: Rc::default(),
                limits,
                budget,
                counts,
                held: RefCell::default(),
                started: Cell::default(),
                under_way: Cell::default(),
                idle: Notify::new(),
                epoch: RefCell::default(),
                planned: RefCell::default(),
                long_rewrites: Semaphore::new(LONG_REWRITES_MAX),
                is_closing: Cell::default(),
            }),
            limits,
        }
    }

    /// Refuses commands from now on, and waits for those that are being carried out.
    pub fn finish(&self) -> impl Future<Output = ()> + use<> {
        let inner = Rc::clone(&self.inner);
        inner.is_closing.set(true);
        async move {
            while inner.under_way.get() > 0 {
                inner.idle.notified().await;
            }
        }
    }

    fn stats(&self, page: &mut StatsPage) {
        let shared = &self.inner.session.shared;
        let base = *lock(&shared.commands.reset);
        let counted = shared.commands.counted(shared.stats());
        let stats = counted.store.since(&base.store);
        let live = shared.segments.live_grains();
        page.add("cmd_flush", counted.flushes.saturating_sub(base.flushes));
        let commands = counted.commands.iter().zip(base.commands);
        for (name, (count, base)) in NAMES.into_iter().zip(commands) {
            page.add(name, count.saturating_sub(base));
        }
        page.add("curr_items", shared.index.len());
        page.add("bytes", live * shared.layout().grain() as u64);
        let grains_max = shared.fill.grains_max();
        page.add("bytes_max", grains_max * shared.layout().grain() as u64);
        page.add("reads", stats.reads);
        page.add("read_bytes", stats.read_bytes);
        page.add("written_bytes", stats.written_bytes);
        page.add("moved_bytes", stats.moved_bytes);
        page.add("collected_segments", stats.collected);
        page.add("evictions", stats.evicted);
        page.add("expired", stats.expired);
        page.add("damaged", stats.damaged);
        page.add("commands_under_way", self.inner.under_way.get());
    }

    fn reset_stats(&self) {
        let shared = &self.inner.session.shared;
        *lock(&shared.commands.reset) = shared.commands.counted(shared.stats());
    }
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Every change is a single step.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Whether the answer to a command may be longer than its asker has room for.
    fn is_long(&self, work: &Work) -> bool {
        work.is_get()
            && work.asker.room < self.limits.value_size_max
            && self.value_len_max(&work.key) > work.asker.room as u64
    }

    /// No value of the key is longer than this, as far as the index knows.
    fn value_len_max(&self, key: &[u8]) -> u64 {
        let shared = &self.session.shared;
        let mut candidates = Candidates::new();
        shared
            .index
            .candidates(shared.hash(key).index(), &mut candidates);
        let grains = |place: &Place| place.size().grains().unwrap_or(u64::MAX);
        let longest = candidates.iter().map(grains).max().unwrap_or(0);
        longest.saturating_mul(shared.layout().grain() as u64)
    }

    /// Has a command carried out by a task of its own.
    fn begin(self: &Rc<Self>, slot: &Rc<Slot>, work: Work) {
        if work.flushes() {
            self.begin_flush(slot, work);
            return;
        }
        let begun = Begun::new(self, slot);
        let hash = self.session.shared.hash(&work.key);
        let permit = self.locks.request(hash, work.sharing());
        // A change ends though nobody waits for its answer; the task ends by itself.
        drop(self.core.spawn(run(begun, work, permit)));
    }
}

async fn run(begun: Begun, work: Work, permit: Permit) {
    permit.granted().await;
    let (inner, slot) = (&begun.inner, &begun.slot);
    if slot.is_given_up() && !work.changes() {
        return;
    }
    let may_wait = !slot.is_awaited() && !slot.is_given_up();
    // When it was started, its key may have had a shorter value, or one before it was not held.
    if may_wait && (inner.is_long(&work) || inner.is_held_up(&work)) {
        drop(permit);
        inner.hold(slot, work);
        return;
    }
    let is_heavy = work.rewrites() && inner.value_len_max(&work.key) > VALUE_ALWAYS_LEN;
    let turn = match is_heavy {
        true => Some(inner.long_rewrites.acquire().await),
        false => None,
    };
    let reply = carry_out(&inner.session, &work.command(), &inner.limits, &permit).await;
    drop((permit, turn));
    if reply.len() > work.asker.room && !work.changes() && !slot.is_awaited() {
        // Another core has made it long meanwhile. It is read again when there is room.
        drop(reply);
        if !slot.is_given_up() {
            inner.hold(slot, work);
        }
        return;
    }
    inner.counts.note(&work.shape, &reply.answer());
    slot.answer(reply);
}

impl Engine for StoreEngine {
    type Probe = ();
    type Ticket = Ticket;

    fn probe(&self, _key: &[u8]) {}

    fn start<R>(
        &mut self,
        ask: &Ask<'_>,
        _probe: (),
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Ticket> {
        match ask.command {
            Command::Stats { section: "" } => {
                let mut page = StatsPage::default();
                self.stats(&mut page);
                return Ok(answer(Answer::Stats(&page)));
            }
            Command::Stats { .. } => return Ok(answer(Answer::Failed(Failure::Unsupported))),
            Command::ResetStats => {
                self.reset_stats();
                return Ok(answer(Answer::Done));
            }
            _ if self.inner.is_closing.get() => return Ok(answer(Answer::Failed(STOPPING))),
            _ => {}
        }
        let inner = &self.inner;
        let number = inner.started.get();
        inner.started.set(number + 1);
        let bytes = |value: Segments<'_>| value.to_vec();
        let work = Work {
            shape: ask.command.with_bytes(b"", Segments::EMPTY),
            key: ask.command.key().unwrap_or_default().to_vec(),
            value: ask.command.value().map_or_else(Vec::new, bytes),
            asker: ask.asker,
            number,
            now_s: ask.now_s,
        };
        let slot = Slot::new(&work);
        inner.take(&slot, work);
        Err(Ticket {
            slot,
            engine: Rc::downgrade(inner),
            connection: ask.asker.connection,
        })
    }

    fn fetch<R>(
        &mut self,
        ticket: &mut Ticket,
        context: &mut Context<'_>,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Poll<R> {
        let is_held = matches!(*ticket.slot.state.borrow(), State::Held);
        if is_held {
            // Its asker has sent all that comes before: there is room for one.
            self.inner.fetch_held(ticket);
        }
        match &mut *ticket.slot.state.borrow_mut() {
            State::Done(reply) => Poll::Ready(answer(reply.answer())),
            State::Started(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            State::Held => Poll::Ready(answer(Answer::Failed(Failure::Busy(
                "a command waits behind one that nobody fetches",
            )))),
        }
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}
