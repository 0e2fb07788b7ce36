//! A core that its owner turns: for simulations, on one thread, in whatever time its clock says.

use std::fmt;
use std::rc::Rc;

use crate::config::{Config, IdleMode};
use crate::handle::Handle;
use crate::io::{IoKind, Sockets};
use crate::scheduler::Inner;
use crate::task::{JoinError, enter};
use crate::time::Instant;

/// When a core has something to do next, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Now: a task is ready, or a poller has work or wants to be polled all the time.
    Now,
    /// Then, or when it is woken.
    At(Instant),
    /// When it is woken.
    Never,
}

/// A core that runs only while its owner turns it. It never sleeps, and has no system call of its own.
///
/// ```
/// use std::sync::Arc;
/// use rt::{Config, ManualClock, ManualCore};
///
/// let mut config = Config::default();
/// config.clock = Arc::new(ManualClock::new(0));
/// let core = ManualCore::new(config, None);
/// let task = core.handle().spawn(async { 42 });
/// core.turn();
/// assert!(task.is_finished());
/// ```
pub struct ManualCore {
    inner: Rc<Inner>,
}

impl ManualCore {
    /// A core with these sockets, or without any. It takes the seed, the clock and the budgets of
    /// `config`; the rest is for cores that run by themselves.
    #[must_use]
    pub fn new(config: Config, sockets: Option<Rc<dyn Sockets>>) -> Self {
        let config = Config {
            idle: IdleMode::Poll,
            io: Some(IoKind::None),
            ..config
        };
        let inner = Inner::new(config, false).expect("it opens nothing");
        if let Some(sockets) = sockets {
            *inner.io.borrow_mut() = crate::io::simulated(sockets);
        }
        Self { inner }
    }

    /// What tasks use.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(self.inner.clone())
    }

    /// One turn of the core's loop. Returns how much it did.
    pub fn turn(&self) -> usize {
        let _entered = enter(&self.inner.queue);
        self.inner.turn()
    }

    /// When the next turn has something to do. Simulated sockets are not asked.
    #[must_use]
    pub fn next(&self) -> Next {
        let _entered = enter(&self.inner.queue);
        self.inner.next()
    }

    /// Whether something outside a turn has made a task ready since the last one.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.inner.is_woken()
    }

    /// Whether it has pollers, whose work may come at any time.
    #[must_use]
    pub fn has_pollers(&self) -> bool {
        !self.inner.pollers.is_empty()
    }

    /// What the first task panicked with whose handle had been dropped, once: nobody else hears of it.
    #[must_use]
    pub fn take_unjoined(&self) -> Option<JoinError> {
        self.inner.take_unjoined()
    }

    /// Ends the core as dropping it does. Returns what [`take_unjoined`](Self::take_unjoined) would
    /// then.
    #[must_use]
    pub fn end(self) -> Option<JoinError> {
        let inner = self.inner.clone();
        drop(self);
        inner.take_unjoined()
    }

    /// Tasks that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.inner.tasks_alive()
    }
}

impl Drop for ManualCore {
    /// Drops every task and poller. Handles stay valid, and what they spawn is cancelled.
    fn drop(&mut self) {
        let _entered = enter(&self.inner.queue);
        self.inner.close();
    }
}

impl fmt::Debug for ManualCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualCore")
            .field("tasks", &self.tasks())
            .finish_non_exhaustive()
    }
}
