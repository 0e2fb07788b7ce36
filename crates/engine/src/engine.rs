//! How a door asks.

use std::task::{Context, Poll};

use crate::{Answer, Command};

/// The largest item that an engine keeps, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Key and value together.
    pub item_size_max: usize,
    /// The value alone.
    pub value_size_max: usize,
}

impl Limits {
    /// Whether an item with a key and a value of these lengths is kept.
    #[inline]
    #[must_use]
    pub const fn allow(&self, key_len: usize, value_len: usize) -> bool {
        value_len <= self.value_size_max && key_len.saturating_add(value_len) <= self.item_size_max
    }
}

/// Who asks, and how much of an answer may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The connection: a number that no other one has.
    pub connection: u64,
    /// Bytes of a promised value that may be kept until it is fetched.
    pub room: usize,
}

impl Asker {
    /// One that is not told apart from others and takes values of any length.
    pub const ANYBODY: Asker = Asker {
        connection: u64::MAX,
        room: usize::MAX,
    };
}

/// A command, and what belongs to its being asked.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Unix time in seconds.
    pub now_s: u64,
    /// Who asks.
    pub asker: Asker,
    /// What is asked.
    pub command: Command<'a>,
}

/// A keeper of items that doors can serve.
///
/// **Order.** What an asker starts takes effect in the order of its starts, command by command, as
/// far as a key's readers can tell, whether or not answers are at hand: a `Get` sees the `Store`
/// before it. Answers may become ready in any order.
pub trait Engine {
    /// What is known of a key before its command is started: its hash, where its entry is thought
    /// to be. A hint: [`Engine::start`] checks what it relies on.
    type Probe: Copy + Default;

    /// A promise of an answer. Dropping one gives up the answer, not the operation. An engine that
    /// always has its answers at hand has [`std::convert::Infallible`].
    type Ticket;

    /// Begins to look a key up: hashes it, and asks for the memory of its place in the index. Doors
    /// that have many keys at once probe all of them, then refine all probes, then start all
    /// commands, so that the memory of each is on its way while others are looked at.
    fn probe(&self, key: &[u8]) -> Self::Probe;

    /// Goes on with a lookup: finds the entry in the index, and asks for the memory of the item.
    fn refine(&self, _probe: &mut Self::Probe) {}

    /// Carries out a command, or begins to. The probe is that of the command's key, or of nothing.
    ///
    /// With the answer at hand, calls `answer` with it and returns what that returned; otherwise
    /// returns a ticket and does not call `answer`. The command is borrowed only for the call. A
    /// promised value longer than the asker's room need not be kept: the engine gets it once the
    /// ticket is fetched, and what the asker has started since does not take effect before.
    ///
    /// # Errors
    /// The ticket of an answer that is not at hand; no failure.
    fn start<R>(
        &mut self,
        ask: &Ask<'_>,
        probe: Self::Probe,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Self::Ticket>;

    /// Fetches a promised answer, or has the context's waker called when it is there.
    ///
    /// Once it returned `Ready` the ticket is spent and is not fetched again.
    fn fetch<R>(
        &mut self,
        ticket: &mut Self::Ticket,
        context: &mut Context<'_>,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Poll<R>;

    /// The largest item that is kept. Doors refuse a larger value before it arrives.
    fn limits(&self) -> Limits;

    /// Asks for memory that commands on these keys will need. They may not come, and others may come
    /// between.
    fn look_ahead(&self, keys: &[&[u8]]) {
        // As many lines as processors have under way at a time, or some more.
        const AT_ONCE: usize = 32;
        for keys in keys.chunks(AT_ONCE) {
            let mut probes = [Self::Probe::default(); AT_ONCE];
            for (probe, key) in probes.iter_mut().zip(keys) {
                *probe = self.probe(key);
            }
            for probe in &mut probes[..keys.len()] {
                self.refine(probe);
            }
        }
    }

    /// Asks for one command, as somebody who has no others.
    ///
    /// # Errors
    /// As [`Engine::start`].
    fn ask<R>(
        &mut self,
        now_s: u64,
        command: Command<'_>,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Self::Ticket> {
        let probe = command.key().map(|key| self.probe(key));
        let ask = Ask {
            now_s,
            asker: Asker::ANYBODY,
            command,
        };
        self.start(&ask, probe.unwrap_or_default(), answer)
    }
}
