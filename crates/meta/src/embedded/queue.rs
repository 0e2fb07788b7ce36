//! Commands from all cores to the thread that commits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rt::cross::{Notified, Notifier, OneshotSender, notify};

use crate::{MetaError, Outcome, Transaction};

/// How a command's sender hears of its end. Dropped without a word: the thread has died.
pub(super) type Answer<T> = OneshotSender<Result<T, MetaError>>;

/// What the thread is asked for.
pub(super) enum Command {
    Commit(Transaction, Answer<Outcome>),
    /// Bring all rows to the database.
    Checkpoint(Answer<()>),
}

/// The end that sends.
#[derive(Clone)]
pub(super) struct Sender {
    shared: Arc<Shared>,
    notifier: Notifier,
}

/// The end that receives. Dropping it closes the queue.
pub(super) struct Receiver {
    shared: Arc<Shared>,
    notified: Notified,
}

struct Shared(Mutex<State>);

struct State {
    // As long as there are tasks that wait for an answer.
    commands: VecDeque<Command>,
    is_closed: bool,
}

/// A queue without a bound of its own.
pub(super) fn queue() -> (Sender, Receiver) {
    let (notifier, notified) = notify();
    let shared = Arc::new(Shared(Mutex::new(State {
        commands: VecDeque::new(),
        is_closed: false,
    })));
    let sender = Sender {
        shared: shared.clone(),
        notifier,
    };
    (sender, Receiver { shared, notified })
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Sends a command; `false` if the queue is closed.
    #[must_use]
    pub(super) fn send(&self, command: Command) -> bool {
        let mut state = self.shared.lock();
        if state.is_closed {
            return false;
        }
        state.commands.push_back(command);
        drop(state);
        self.notifier.notify();
        true
    }

    /// Takes no more commands. Those that are there are still carried out.
    pub(super) fn close(&self) {
        self.shared.lock().is_closed = true;
        self.notifier.notify();
    }
}

impl Receiver {
    /// Appends what has been sent to `commands`, waiting until there is something. `false` if nothing will
    /// come any more.
    pub(super) async fn receive(&mut self, commands: &mut VecDeque<Command>) -> bool {
        loop {
            if let Some(is_open) = self.take(commands) {
                return is_open;
            }
            self.notified.wait().await;
        }
    }

    /// Appends what has been sent; `None` if that is nothing yet, `Some(false)` if nothing will come.
    fn take(&self, commands: &mut VecDeque<Command>) -> Option<bool> {
        let mut state = self.shared.lock();
        if !state.commands.is_empty() {
            commands.append(&mut state.commands);
            return Some(true);
        }
        state.is_closed.then_some(false)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        // Their senders hear of it.
        let commands = std::mem::take(&mut state.commands);
        drop(state);
        drop(commands);
    }
}
