//! What callers share with a writer's task: what was asked for, and the answers.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Poll, Waker};

use block::{Disk, Durable};
use slab::Slab;

use super::Appended;
use crate::error::StreamError;
use crate::ids::{Address, Epoch, StreamId};
use crate::record::Record;
use crate::streams::{Held, StreamMap, StreamServer, start_of};

/// What an append or a flush ends with.
pub(super) type Answer = Result<Appended, StreamError>;

/// What was asked of a writer.
pub(super) enum Asked {
    Append {
        record: Record,
        durable: Durable,
        slot: usize,
        /// Those that it was asked for together with, if it was.
        group: Option<u64>,
    },
    Flush {
        slot: usize,
    },
    Close {
        slot: usize,
    },
}

impl Asked {
    pub(super) fn slot(&self) -> usize {
        match self {
            Self::Append { slot, .. } | Self::Flush { slot } | Self::Close { slot } => *slot,
        }
    }
}

/// A writer, as its callers and its task see it.
pub(super) struct Shared {
    pub(super) stream: StreamId,
    pub(super) epoch: Epoch,
    pub(super) server: StreamServer,
    pub(super) map: Rc<StreamMap>,
    pub(super) state: RefCell<State>,
}

pub(super) struct State {
    /// In the order in which it was asked for.
    pub(super) asked: VecDeque<Asked>,
    slots: Slab<Slot>,
    /// Groups of records that were asked for.
    groups: u64,
    /// The task, while it waits.
    pub(super) task: Option<Waker>,
    /// All writers have gone: nothing more will be asked.
    pub(super) is_left: bool,
    /// The task has ended: nothing is answered any more but this.
    over: Option<StreamError>,
    /// Where the acknowledged part ends.
    pub(super) end: Address,
    /// How often what was written came to be in doubt.
    pub(super) doubts: u32,
    /// What is written now.
    held: Held,
}

/// Where an answer is waited for.
enum Slot {
    Waiting(Option<Waker>),
    Answered(Answer),
    GivenUp,
}

impl Shared {
    pub(super) fn new(
        server: &StreamServer,
        stream: StreamId,
        epoch: Epoch,
        first: &Held,
    ) -> Rc<Self> {
        Rc::new(Self {
            stream,
            epoch,
            server: server.clone(),
            map: server.map_of_writer(stream),
            state: RefCell::new(State {
                asked: VecDeque::new(),
                slots: Slab::new(),
                groups: 0,
                task: None,
                is_left: false,
                over: None,
                end: start_of(first.number),
                doubts: 0,
                held: first.clone(),
            }),
        })
    }

    /// Asks for something, and has the task look at it in this turn, after all tasks that are ready.
    pub(super) fn ask(&self, asked: impl FnOnce(usize) -> Asked) -> usize {
        let mut state = self.state.borrow_mut();
        if let Some(error) = &state.over {
            let error = error.clone();
            return state.refuse(error);
        }
        let slot = state.slots.insert(Slot::Waiting(None));
        state.asked.push_back(asked(slot));
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
        slot
    }

    /// The name of another group.
    pub(super) fn group(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.groups += 1;
        state.groups
    }

    /// The last writer has gone.
    pub(super) fn leave(&self) {
        let mut state = self.state.borrow_mut();
        state.is_left = true;
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Answers what waits in a slot.
    pub(super) fn answer(&self, slot: usize, answer: Answer) {
        let mut state = self.state.borrow_mut();
        let waker = match std::mem::replace(&mut state.slots[slot], Slot::GivenUp) {
            Slot::Waiting(waker) => {
                state.slots[slot] = Slot::Answered(answer);
                waker
            }
            Slot::Answered(_) => unreachable!("it is answered once"),
            Slot::GivenUp => {
                state.slots.remove(slot);
                None
            }
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nothing is carried out any more.
    pub(super) fn end(&self, error: StreamError) {
        loop {
            let mut state = self.state.borrow_mut();
            state.over = Some(error.clone());
            let Some(asked) = state.asked.pop_front() else {
                return;
            };
            drop(state);
            self.answer(asked.slot(), Err(error.clone()));
        }
    }
}

impl State {
    /// The disk that is written now: where buffers come from.
    pub(super) fn disk(&self) -> &Disk {
        self.held.server.disk()
    }

    /// Pages of an extent.
    pub(super) fn capacity(&self) -> u32 {
        self.held.server.segment_pages()
    }

    /// Another extent is written from now on.
    pub(super) fn hold(&mut self, held: &Held) {
        self.held = held.clone();
    }

    /// A slot that is answered already.
    pub(super) fn refuse(&mut self, error: StreamError) -> usize {
        self.slots.insert(Slot::Answered(Err(error)))
    }

    pub(super) fn poll(&mut self, slot: usize, waker: &Waker) -> Poll<Answer> {
        match &mut self.slots[slot] {
            Slot::Waiting(old) => {
                match old {
                    Some(old) => old.clone_from(waker),
                    None => *old = Some(waker.clone()),
                }
                Poll::Pending
            }
            _ => match self.slots.remove(slot) {
                Slot::Answered(answer) => Poll::Ready(answer),
                _ => unreachable!("what was given up is not polled"),
            },
        }
    }

    /// Nobody waits for this answer any more.
    pub(super) fn give_up(&mut self, slot: usize) {
        match self.slots[slot] {
            Slot::Waiting(_) => self.slots[slot] = Slot::GivenUp,
            Slot::Answered(_) => drop(self.slots.remove(slot)),
            Slot::GivenUp => unreachable!("it is given up once"),
        }
    }
}
