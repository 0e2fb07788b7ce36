//! What requests and answers take of the memory of the whole door.

use std::cell::Cell;
use std::time::Duration;

use rt::sync::Notify;

/// How long a request waits for room for its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of requests that are carried out, and of answers that wait for their clients, over all
/// connections.
pub(super) struct Budget {
    max: usize,
    taken: Cell<usize>,
    room: Notify,
}

impl Budget {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            taken: Cell::new(0),
            room: Notify::new(),
        }
    }

    pub(super) fn take(&self, size: usize) {
        self.taken.set(self.taken.get() + size);
    }

    pub(super) fn give(&self, size: usize) {
        self.taken.set(self.taken.get().saturating_sub(size));
        if !self.is_spent() {
            self.room.notify_all();
        }
    }

    /// How much is taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.get()
    }

    /// Whether more is taken than there should be.
    pub(super) fn is_spent(&self) -> bool {
        self.taken.get() > self.max
    }

    /// Takes some when there is room. Returns whether there was within [`PATIENCE`].
    async fn take_later(&self, core: &rt::Handle, size: usize) -> bool {
        let room = async {
            while self.is_spent() {
                self.given().await;
            }
        };
        let has_room = !self.is_spent() || core.timeout(PATIENCE, room).await.is_ok();
        if has_room {
            self.take(size);
        }
        has_room
    }

    /// Waits until some is given back: whether that is enough is to be looked at.
    pub(super) async fn given(&self) {
        if self.is_spent() {
            self.room.notified().await;
        }
    }
}

/// What a request has taken for an answer that is being put together, until it is sent.
pub(super) struct Reserved<'a> {
    budget: &'a Budget,
    size: Cell<usize>,
}

impl<'a> Reserved<'a> {
    pub(super) fn new(budget: &'a Budget) -> Self {
        Self {
            budget,
            size: Cell::new(0),
        }
    }

    /// Takes some more when there is room. Returns whether there was.
    pub(super) async fn add(&self, core: &rt::Handle, size: usize) -> bool {
        let is_taken = self.budget.take_later(core, size).await;
        if is_taken {
            self.size.set(self.size.get() + size);
        }
        is_taken
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.budget.give(self.size.get());
    }
}
