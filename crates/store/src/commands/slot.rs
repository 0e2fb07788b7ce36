//! A command under way, and where its answer arrives.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::Waker;

use ::engine::{Answer, Asker, Charge, Command, Failure};
use rt::sync::Notify;

use super::Inner;
use super::carry_out::Reply;
use super::key_locks::Sharing;

/// What a command takes besides its bytes, about.
const COMMAND_OVERHEAD: usize = 512;

/// A command, in memory of its own.
pub(super) struct Work {
    pub(super) shape: Command<'static>,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) asker: Asker,
    /// How many commands this core had started before it.
    pub(super) number: u64,
    pub(super) now_s: u64,
}

impl Work {
    pub(super) fn command(&self) -> Command<'_> {
        self.shape.with_bytes(&self.key, (&self.value).into())
    }

    pub(super) fn is_get(&self) -> bool {
        matches!(self.shape, Command::Get { .. })
    }

    pub(super) fn changes(&self) -> bool {
        !matches!(self.shape, Command::Get { touch: None, .. })
    }

    /// With whom it may be under way at a time, on the same key.
    pub(super) fn sharing(&self) -> Sharing {
        use ::engine::Mode;
        match self.shape {
            Command::Get { touch: None, .. } => Sharing::Reads,
            Command::Store {
                mode: Mode::Set, ..
            } => Sharing::Puts,
            _ => Sharing::Nobody,
        }
    }

    /// Whether the old value is read whole, and written again.
    pub(super) fn rewrites(&self) -> bool {
        use ::engine::Mode::{Append, Prepend};
        match self.shape {
            Command::Get { touch, .. } => touch.is_some(),
            Command::Store { mode, .. } => matches!(mode, Append | Prepend),
            Command::Arith { .. } | Command::Touch { .. } => true,
            _ => false,
        }
    }

    pub(super) fn flushes(&self) -> bool {
        matches!(self.shape, Command::FlushAll { .. })
    }

    pub(super) fn size(&self) -> usize {
        self.key.len() + self.value.len() + COMMAND_OVERHEAD
    }
}

/// Where a command's answer arrives.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) state: RefCell<State>,
    /// Bytes of the command.
    size: usize,
    /// Nobody fetches the answer any more.
    given_up: Cell<bool>,
    /// What is accounted for on behalf of the asker, beyond what its door knows of.
    charge: RefCell<Option<Charge>>,
}

#[derive(Default)]
pub(super) enum State {
    /// It waits behind a long value, its own or an earlier one of its asker, or behind a flush.
    #[default]
    Held,
    /// It is being carried out. With a waker, its asker waits for this answer: all answers before
    /// it have gone, so that there is room for one of any length.
    Started(Option<Waker>),
    /// The answer is there.
    Done(Reply),
}

impl Slot {
    pub(super) fn new(work: &Work) -> Rc<Self> {
        Rc::new(Self {
            size: work.size(),
            ..Self::default()
        })
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.get()
    }

    pub(super) fn is_awaited(&self) -> bool {
        matches!(*self.state.borrow(), State::Started(Some(_)))
    }

    pub(super) fn charge(&self, charge: Charge) {
        *self.charge.borrow_mut() = Some(charge);
    }

    pub(super) fn answer(&self, reply: Reply) {
        let before = self.state.replace(State::Done(reply));
        if let State::Started(Some(waker)) = before {
            waker.wake();
        }
    }
}

/// The commands that were begun between two flushes; a flush waits for those before it.
#[derive(Default)]
pub(super) struct Epoch {
    pub(super) ended: Notify,
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.ended.notify_one();
    }
}

/// A command that is being carried out. However its task ends, its asker gets an answer.
pub(super) struct Begun {
    pub(super) slot: Rc<Slot>,
    pub(super) inner: Rc<Inner>,
    _epoch: Rc<Epoch>,
}

impl Begun {
    pub(super) fn new(inner: &Rc<Inner>, slot: &Rc<Slot>) -> Self {
        *slot.state.borrow_mut() = State::Started(None);
        inner.under_way.set(inner.under_way.get() + 1);
        Self {
            slot: Rc::clone(slot),
            inner: Rc::clone(inner),
            _epoch: inner.epoch.borrow().clone(),
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let is_open = matches!(*self.slot.state.borrow(), State::Started(_));
        if is_open {
            // The task has panicked, or the core ends.
            let why = Failure::Busy("the command was given up");
            self.slot.answer(Reply::Plain(Answer::Failed(why)));
        }
        let left = self.inner.under_way.get() - 1;
        self.inner.under_way.set(left);
        if left == 0 {
            self.inner.idle.notify_one();
        }
    }
}

/// A promise of an answer. Dropping it gives up the answer, not a change that has been started.
pub struct Ticket {
    pub(super) slot: Rc<Slot>,
    pub(super) engine: Weak<Inner>,
    pub(super) connection: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let is_held = match *self.slot.state.borrow() {
            State::Held => true,
            State::Started(_) => false,
            State::Done(_) => return,
        };
        self.slot.given_up.set(true);
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        // Its door does not account for it any more, but it is still there.
        let charge = Charge::new(engine.budget.clone(), self.slot.size);
        self.slot.charge(charge);
        if is_held {
            engine.give_up_held(self);
        }
    }
}
