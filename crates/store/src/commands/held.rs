//! Commands that wait: for the room that a long value needs, or for one of their asker before them.
//!
//! An asker that does not fetch its answers has one long value at most in memory, and none before it
//! has taken all that comes before. Until then the get of that value waits, and behind it what the
//! asker has started since: so a later change does not take effect before an earlier read.

use std::collections::VecDeque;
use std::rc::Rc;

use ::engine::{Answer, Charge, Failure};

use super::carry_out::Reply;
use super::slot::{Slot, Ticket, Work};
use super::{Inner, STOPPING, VALUE_ALWAYS_LEN};

/// What waits of one asker, in the order of its starts.
#[derive(Default)]
pub(super) struct Held {
    queue: VecDeque<(Rc<Slot>, Work)>,
    /// A flush of the asker is being carried out; all of these come behind it.
    pub(super) is_flushing: bool,
    /// One that comes before the flush waits as well.
    pub(super) is_overtaken: bool,
}

impl Inner {
    /// Begins a command, or has it wait for its asker.
    pub(super) fn take(self: &Rc<Self>, slot: &Rc<Slot>, work: Work) {
        let mut held = self.held.borrow_mut();
        if !held.is_empty()
            && let Some(held) = held.get_mut(&work.asker.connection)
        {
            held.queue.push_back((Rc::clone(slot), work));
        } else if self.is_long(&work) {
            let held = held.entry(work.asker.connection).or_default();
            held.queue.push_back((Rc::clone(slot), work));
        } else {
            drop(held);
            self.begin(slot, work);
        }
    }

    /// Whether an earlier command of the asker on the same key waits.
    pub(super) fn is_held_up(&self, work: &Work) -> bool {
        let held = self.held.borrow();
        !held.is_empty()
            && held.get(&work.asker.connection).is_some_and(|held| {
                let mut before = held.queue.iter().map(|(_, before)| before);
                before.any(|before| before.number < work.number && before.key == work.key)
            })
    }

    /// Has a command that was begun wait after all.
    pub(super) fn hold(self: &Rc<Self>, slot: &Rc<Slot>, work: Work) {
        *slot.state.borrow_mut() = super::State::Held;
        let connection = work.asker.connection;
        let is_given_up = slot.is_given_up();
        let mut all = self.held.borrow_mut();
        let held = all.entry(connection).or_default();
        held.is_overtaken |= held.is_flushing;
        let later = |(_, other): &(Rc<Slot>, Work)| other.number > work.number;
        let at = held.queue.iter().position(later);
        let at = at.unwrap_or(held.queue.len());
        held.queue.insert(at, (Rc::clone(slot), work));
        drop(all);
        if is_given_up && at == 0 {
            // Nobody will fetch it.
            self.go_on(connection);
        }
    }

    /// Ends the wait for a flush of an asker, and says whether an earlier command has come before it.
    pub(super) fn stop_flushing(&self, connection: u64) -> bool {
        let mut held = self.held.borrow_mut();
        let Some(held) = held.get_mut(&connection) else {
            return false;
        };
        if held.is_overtaken {
            held.is_flushing = false;
            held.is_overtaken = false;
            return true;
        }
        false
    }

    /// The flush of an asker is over, or the command for which the others waited has gone: begins them,
    /// up to the next one that has to wait.
    pub(super) fn let_go(self: &Rc<Self>, connection: u64) {
        if let Some(held) = self.held.borrow_mut().get_mut(&connection) {
            held.is_flushing = false;
        }
        self.go_on(connection);
    }

    /// Begins what an asker has started behind a long value, up to the next one or a flush.
    fn go_on(self: &Rc<Self>, connection: u64) {
        loop {
            let mut all = self.held.borrow_mut();
            let Some(held) = all.get_mut(&connection) else {
                return;
            };
            if held.is_flushing || self.is_closing.get() {
                return;
            }
            let Some((slot, work)) = held.queue.pop_front() else {
                all.remove(&connection);
                return;
            };
            if slot.is_given_up() {
                drop(all);
                // Nobody wants a read any more; a change was asked for all the same.
                if work.changes() {
                    self.begin(&slot, work);
                }
            } else if self.is_long(&work) {
                held.queue.push_front((slot, work));
                return;
            } else {
                drop(all);
                self.begin(&slot, work);
            }
        }
    }

    /// Begins the command of a ticket that is fetched, and what waits behind it.
    pub(super) fn fetch_held(self: &Rc<Self>, ticket: &Ticket) {
        if self.is_closing.get() {
            ticket.slot.answer(Reply::Plain(Answer::Failed(STOPPING)));
            return;
        }
        loop {
            let next = {
                let mut held = self.held.borrow_mut();
                let held = held.get_mut(&ticket.connection);
                held.and_then(|held| held.queue.pop_front())
            };
            let Some((slot, work)) = next else {
                return;
            };
            if Rc::ptr_eq(&slot, &ticket.slot) {
                self.begin_fetched(&slot, work);
                break;
            }
            // Those before it have no ticket any more.
            if work.changes() {
                self.begin(&slot, work);
            }
        }
        self.go_on(ticket.connection);
    }

    /// Begins a command whose asker waits for its answer, unless memory is out.
    fn begin_fetched(self: &Rc<Self>, slot: &Rc<Slot>, work: Work) {
        let len = if self.is_long(&work) {
            self.value_len_max(&work.key)
        } else {
            0
        };
        if len > VALUE_ALWAYS_LEN {
            if !self.budget.has_room() {
                let failure = Answer::Failed(Failure::OutOfMemory);
                slot.answer(Reply::Plain(failure));
                return;
            }
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let len = len.min(self.limits.value_size_max);
            slot.charge(Charge::new(self.budget.clone(), len));
        }
        self.begin(slot, work);
    }

    /// The asker of a ticket that waits does not want it any more.
    pub(super) fn give_up_held(self: &Rc<Self>, ticket: &Ticket) {
        let is_first = self
            .held
            .borrow()
            .get(&ticket.connection)
            .is_some_and(|held| {
                let first = held.queue.front();
                first.is_some_and(|(slot, _)| Rc::ptr_eq(slot, &ticket.slot))
            });
        // If it is what the others wait for, they go on.
        if is_first {
            self.go_on(ticket.connection);
        }
    }
}
