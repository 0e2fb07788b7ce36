//! An engine that promises some of its answers, and keeps the promises late.

use std::task::{Context, Poll};

use memcache::{Engine, MapEngine, Reply, Request};

/// Carries requests out at once, and tells some of the answers later.
pub(super) struct LateEngine {
    inner: MapEngine,
    random: fastrand::Rng,
}

/// An answer that is told after so many polls.
pub(super) struct Late {
    polls_left: u32,
    reply: Reply<'static>,
    value: Vec<u8>,
}

impl LateEngine {
    pub(super) fn new(inner: MapEngine, seed: u64) -> Self {
        LateEngine {
            inner,
            random: fastrand::Rng::with_seed(seed),
        }
    }
}

impl Engine for LateEngine {
    type Ticket = Late;

    fn start<R>(
        &mut self,
        now_s: u64,
        request: Request<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Late> {
        let polls_left = self.random.u32(..3);
        if self.random.bool() {
            let Ok(told) = self.inner.start(now_s, request, reply);
            return Ok(told);
        }
        let Ok((reply, value)) = self.inner.start(now_s, request, |reply| {
            let value = match reply {
                Reply::Value { value, .. } => value.to_vec(),
                _ => Vec::new(),
            };
            (reply.with_bytes(b""), value)
        });
        Err(Late {
            polls_left,
            reply,
            value,
        })
    }

    fn poll<R>(
        &mut self,
        late: &mut Late,
        context: &mut Context<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Poll<R> {
        if late.polls_left > 0 {
            late.polls_left -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(reply(late.reply.with_bytes(&late.value)))
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
