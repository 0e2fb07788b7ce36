//! An engine that promises some of its answers, and keeps the promises late.

use std::task::{Context, Poll};

use memcache::{Engine, MapEngine, Reply, Request};

/// Carries requests out at once, and tells the answers of randomly chosen ones later.
pub(crate) struct DelayEngine {
    pub(crate) inner: MapEngine,
    random: fastrand::Rng,
    /// The share of answers that come later, in percent.
    late_percent: u32,
    /// Whether new answers are promised.
    holds_new: bool,
    /// Whether promises are kept.
    keeps: bool,
}

/// An answer that is told after so many polls.
pub(crate) struct Late {
    polls_left: u32,
    held: bool,
    reply: Owned,
}

enum Owned {
    Value {
        value: Vec<u8>,
        flags: u32,
        cas: u64,
    },
    Plain(Reply<'static>),
}

impl Owned {
    fn new(reply: Reply<'_>) -> Self {
        match reply {
            Reply::Value { value, flags, cas } => Self::Value {
                value: value.to_vec(),
                flags,
                cas,
            },
            other => Self::Plain(other.with_bytes(b"")),
        }
    }

    fn as_reply(&self) -> Reply<'_> {
        match self {
            Self::Value { value, flags, cas } => Reply::Value {
                value,
                flags: *flags,
                cas: *cas,
            },
            Self::Plain(reply) => *reply,
        }
    }
}

impl DelayEngine {
    pub(crate) fn new(seed: u64, late_percent: u32) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let inner = MapEngine::default();
        Self {
            inner,
            random,
            late_percent,
            holds_new: false,
            keeps: false,
        }
    }

    /// Promises all answers from here on, for when they are let go.
    pub(crate) fn hold(&mut self) {
        self.holds_new = true;
    }

    /// Answers new requests as before, and keeps back what was promised.
    pub(crate) fn release(&mut self) {
        self.holds_new = false;
    }

    /// Keeps all promises.
    pub(crate) fn let_go(&mut self) {
        self.holds_new = false;
        self.keeps = true;
    }
}

impl Engine for DelayEngine {
    type Ticket = Late;

    fn start<R>(
        &mut self,
        now_s: u64,
        request: Request<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Late> {
        // A key by which a test asks for a failure.
        let fails = matches!(request, Request::Get { key: b"busy" });
        // And one for an answer that does not come.
        let holds = self.holds_new || matches!(request, Request::Get { key: b"held" });
        let owned = if fails {
            Owned::Plain(Reply::Busy("busy"))
        } else {
            let Ok(owned) = self.inner.start(now_s, request, Owned::new);
            owned
        };
        if holds || self.random.u32(..100) < self.late_percent {
            let polls_left = self.random.u32(..3);
            Err(Late {
                polls_left,
                held: holds,
                reply: owned,
            })
        } else {
            Ok(reply(owned.as_reply()))
        }
    }

    fn poll<R>(
        &mut self,
        ticket: &mut Late,
        context: &mut Context<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Poll<R> {
        if ticket.held {
            return if self.keeps {
                Poll::Ready(reply(ticket.reply.as_reply()))
            } else {
                Poll::Pending
            };
        }
        if ticket.polls_left > 0 {
            ticket.polls_left -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(reply(ticket.reply.as_reply()))
    }

    fn item_size_max(&self) -> usize {
        self.inner.item_size_max()
    }

    fn version(&self) -> &str {
        self.inner.version()
    }

    fn stats(&self, section: &str, out: &mut dyn FnMut(&str, &str)) -> bool {
        self.inner.stats(section, out)
    }

    fn reset_stats(&mut self) {
        self.inner.reset_stats();
    }

    fn allows_upgrade(&self, arguments: &[u8]) -> bool {
        self.inner.allows_upgrade(arguments)
    }
}
