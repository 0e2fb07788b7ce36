//! A store as an engine that doors serve: commands that wait for the device.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`StoreEngine`]: tickets, and how much of their answers waits in memory |
//! | `key_locks.rs` | the order of commands on one key |
//! | `carry_out.rs` | a command as operations of a session |

mod carry_out;
mod key_locks;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use ::engine::{Answer, Ask, Asker, Command, Engine, Failure, Limits, Segments, StatsPage};

use self::carry_out::{Reply, carry_out};
use self::key_locks::{KeyLocks, Permit};
use crate::index::{Candidates, Place};
use crate::session::Session;

/// What a record takes besides key and value, at most.
const RECORD_OVERHEAD_MAX: usize = 64;

/// One core's engine over a store. Every command is promised and carried out by a task of the core,
/// but those on the engine itself.
///
/// **Order.** Commands on one key that this core has started take effect in the order of their
/// starts; those of several cores in some order. **Durability**: as the store was opened; an answer
/// comes when the change has it. **Tokens** are the store's versions. A new expiry is a new record: so
/// `Touch` and a `Get` that touches cost a write, and the item gets another token. `FlushAll` and
/// `ResetStats` are not supported.
///
/// **Memory.** A value that is longer than its asker has room for is read once the asker fetches it;
/// what the asker has started since waits until then.
pub struct StoreEngine {
    inner: Rc<Inner>,
    limits: Limits,
}

/// Commands that wait for one before them, and where their answers go.
type Held = VecDeque<(Weak<Slot>, Work)>;

struct Inner {
    session: Session,
    core: rt::Handle,
    locks: Rc<KeyLocks>,
    limits: Limits,
    /// Commands of askers that have to fetch a long value first, in their order. The first one of
    /// each is that of the value.
    held: RefCell<HashMap<u64, Held>>,
}

/// A command, in memory of its own.
struct Work {
    shape: Command<'static>,
    key: Vec<u8>,
    value: Vec<u8>,
    asker: Asker,
}

impl Work {
    fn command(&self) -> Command<'_> {
        self.shape.with_bytes(&self.key, (&self.value).into())
    }

    fn is_get(&self) -> bool {
        matches!(self.shape, Command::Get { .. })
    }

    fn changes(&self) -> bool {
        !matches!(self.shape, Command::Get { touch: None, .. })
    }
}

/// Where a command's answer arrives.
#[derive(Default)]
struct Slot {
    state: RefCell<State>,
}

#[derive(Default)]
enum State {
    /// It waits behind a long value, its own or an earlier one of its asker.
    #[default]
    Held,
    /// It is being carried out.
    Started(Option<Waker>),
    /// The answer is there.
    Done(Reply),
}

/// A promise of an answer. Dropping it gives up the answer, not a change that has been started.
pub struct Ticket {
    slot: Rc<Slot>,
    engine: Weak<Inner>,
    connection: u64,
}

impl StoreEngine {
    /// An engine over a session, whose commands are tasks of `core`, which also drives the session
    /// ([`crate::Store::session_on`]). Values are at most `value_size_max` bytes, and what a segment
    /// of the store takes.
    pub fn new(session: Session, core: rt::Handle, value_size_max: usize) -> Self {
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
                held: RefCell::default(),
            }),
            limits,
        }
    }

    fn stats(&self, page: &mut StatsPage) {
        let shared = &self.inner.session.shared;
        let stats = shared.stats();
        let live = shared.live.load(Ordering::Relaxed);
        page.add("cmd_get", stats.gets);
        page.add("get_hits", stats.hits);
        // Other cores count meanwhile.
        page.add("get_misses", stats.gets.saturating_sub(stats.hits));
        page.add("cmd_set", stats.puts);
        page.add("delete_hits", stats.deletes);
        page.add("curr_items", shared.index.len());
        page.add("bytes", live * shared.layout().grain() as u64);
        page.add("reads", stats.reads);
        page.add("read_bytes", stats.read_bytes);
        page.add("written_bytes", stats.written_bytes);
        page.add("moved_bytes", stats.moved_bytes);
        page.add("collected_segments", stats.collected);
        page.add("evictions", stats.evicted);
        page.add("expired", stats.expired);
        page.add("damaged", stats.damaged);
    }
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

    /// Begins a command, or has it wait for its asker.
    fn take(self: &Rc<Self>, slot: &Rc<Slot>, work: Work) {
        let connection = work.asker.connection;
        let mut held = self.held.borrow_mut();
        if let Some(queue) = held.get_mut(&connection) {
            queue.push_back((Rc::downgrade(slot), work));
        } else if self.is_long(&work) {
            let queue = VecDeque::from([(Rc::downgrade(slot), work)]);
            held.insert(connection, queue);
        } else {
            drop(held);
            self.begin(slot, work);
        }
    }

    /// Has a command carried out by a task of its own.
    fn begin(self: &Rc<Self>, slot: &Rc<Slot>, work: Work) {
        *slot.state.borrow_mut() = State::Started(None);
        let permit = self
            .locks
            .request(self.session.shared.hash(&work.key), work.changes());
        let (inner, slot) = (Rc::clone(self), Rc::downgrade(slot));
        // A change ends though nobody waits for its answer; the task ends by itself.
        drop(self.core.spawn(async move {
            run(&inner, &slot, &work, permit).await;
        }));
    }

    /// Begins what an asker has started behind a long value, up to the next one.
    fn go_on(self: &Rc<Self>, connection: u64) {
        let Some(mut queue) = self.held.borrow_mut().remove(&connection) else {
            return;
        };
        while let Some((slot, work)) = queue.pop_front() {
            let Some(slot) = slot.upgrade() else {
                // Nobody wants a read any more; a change was asked for all the same.
                if work.changes() {
                    self.begin(&Rc::default(), work);
                }
                continue;
            };
            if self.is_long(&work) {
                queue.push_front((Rc::downgrade(&slot), work));
                self.held.borrow_mut().insert(connection, queue);
                return;
            }
            self.begin(&slot, work);
        }
    }
}

async fn run(inner: &Inner, slot: &Weak<Slot>, work: &Work, permit: Permit) {
    permit.granted().await;
    if slot.strong_count() == 0 && !work.changes() {
        return;
    }
    let reply = carry_out(&inner.session, &work.command(), &inner.limits).await;
    drop(permit);
    let Some(slot) = slot.upgrade() else {
        return;
    };
    let before = slot.state.replace(State::Done(reply));
    if let State::Started(Some(waker)) = before {
        waker.wake();
    }
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
        let Some(key) = ask.command.key() else {
            let Command::Stats { section: "" } = ask.command else {
                return Ok(answer(Answer::Failed(Failure::Unsupported)));
            };
            let mut page = StatsPage::default();
            self.stats(&mut page);
            return Ok(answer(Answer::Stats(&page)));
        };
        let slot = Rc::<Slot>::default();
        let work = Work {
            shape: ask.command.with_bytes(b"", Segments::EMPTY),
            key: key.to_vec(),
            value: ask
                .command
                .value()
                .map_or_else(Vec::new, |value| value.to_vec()),
            asker: ask.asker,
        };
        self.inner.take(&slot, work);
        Err(Ticket {
            slot,
            engine: Rc::downgrade(&self.inner),
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

impl Inner {
    /// Begins the command of a ticket that is the first of its asker's queue, and those behind it.
    fn fetch_held(self: &Rc<Self>, ticket: &Ticket) {
        let Some(mut queue) = self.held.borrow_mut().remove(&ticket.connection) else {
            return;
        };
        // Those before it have no ticket any more.
        while let Some((slot, work)) = queue.pop_front() {
            let is_it = slot.as_ptr() == Rc::as_ptr(&ticket.slot);
            if is_it {
                self.begin(&ticket.slot, work);
                break;
            }
            if work.changes() {
                self.begin(&Rc::default(), work);
            }
        }
        self.held.borrow_mut().insert(ticket.connection, queue);
        self.go_on(ticket.connection);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let State::Held = *self.slot.state.borrow() else {
            return;
        };
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        // If it is what the others wait for, they go on.
        let is_first = |queue: &VecDeque<(Weak<Slot>, Work)>| {
            queue
                .front()
                .is_some_and(|(slot, _)| slot.as_ptr() == Rc::as_ptr(&self.slot))
        };
        let mut held = engine.held.borrow_mut();
        let Some(queue) = held
            .get_mut(&self.connection)
            .filter(|queue| is_first(queue))
        else {
            return;
        };
        let first = queue.pop_front();
        drop(held);
        if let Some((_, work)) = first
            && work.changes()
        {
            engine.begin(&Rc::default(), work);
        }
        engine.go_on(self.connection);
    }
}
