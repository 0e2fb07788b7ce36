//! What the door asks of the engine behind it.
//!
//! Requests are borrowed from the connection's input and answers from the engine's memory, so that
//! a hit costs one copy: from where the engine keeps the value into the connection's output. An
//! answer that is not at hand (the key belongs to another core, the value is on a disk) is promised
//! with a [`Engine::Ticket`] and fetched later with [`Engine::poll`].

use std::task::{Context, Poll};

use crate::Expiry;

/// How a store treats what is already under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Stores in any case.
    Set,
    /// Stores only where no item is.
    Add,
    /// Stores only where an item is.
    Replace,
    /// Puts the value behind the one there; the item keeps its flags and its expiry.
    Append,
    /// Puts the value before the one there; the item keeps its flags and its expiry.
    Prepend,
    /// Stores only if the item still has this unique number.
    Cas(u64),
}

/// Which way an arithmetic request moves a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Adds, and wraps at 64 bits.
    Up,
    /// Subtracts, and stops at zero.
    Down,
}

/// One operation on one key, or on all of them. Keys have 1 to [`KEY_SIZE_MAX`](crate::KEY_SIZE_MAX)
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Asks for the value. Answers: `Value`, `Miss`.
    Get {
        /// The item's key.
        key: &'a [u8],
    },
    /// Asks for the value and gives the item a new expiry. Answers: `Value`, `Miss`.
    GetAndTouch {
        /// The item's key.
        key: &'a [u8],
        /// The item's new expiry.
        expiry: Expiry,
    },
    /// Writes a value. Answers: `Stored`, `NotStored`; with `Mode::Cas` also `Exists`, `NotFound`.
    ///
    /// An append or prepend that would pass [`Engine::item_size_max`] is `NotStored`.
    Store {
        /// How to treat an item already there.
        mode: Mode,
        /// The item's key.
        key: &'a [u8],
        /// The value, whole.
        value: &'a [u8],
        /// The client's own 32 bits, kept beside the value.
        flags: u32,
        /// When the item ceases to be.
        expiry: Expiry,
    },
    /// Removes an item. Answers: `Deleted`, `NotFound`.
    Delete {
        /// The item's key.
        key: &'a [u8],
    },
    /// Moves a counter kept as decimal digits; [`counter`](crate::counter) has the rules. Answers:
    /// `Number`, `NotANumber`, `NotFound`.
    Arith {
        /// The item's key.
        key: &'a [u8],
        /// How far to move.
        delta: u64,
        /// Which way to move.
        direction: Direction,
    },
    /// Gives an item a new expiry. Answers: `Touched`, `NotFound`.
    Touch {
        /// The item's key.
        key: &'a [u8],
        /// The item's new expiry.
        expiry: Expiry,
    },
    /// Makes every item stored before a moment vanish at that moment. Answers: `Flushed`.
    FlushAll {
        /// The moment, in seconds of Unix time; now or earlier means at once, and 0 also where
        /// another core's date is not as far yet.
        at_s: u64,
    },
}

/// The answer to a [`Request`]. Any request may also be answered with `OutOfMemory` or `Busy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// The item.
    Value {
        /// Its value.
        value: &'a [u8],
        /// The client's flags.
        flags: u32,
        /// The unique number that every write of the item changes.
        cas: u64,
    },
    /// No item to read.
    Miss,
    /// The value was written.
    Stored,
    /// The mode's condition did not hold.
    NotStored,
    /// The item changed since its unique number was read.
    Exists,
    /// No item to change.
    NotFound,
    /// The item is gone.
    Deleted,
    /// The item has its new expiry.
    Touched,
    /// The counter's new value.
    Number(u64),
    /// The value is no counter.
    NotANumber,
    /// The flush is done, or will be when its moment comes.
    Flushed,
    /// The item is larger than the engine keeps. An older item under the key is gone, so that no
    /// reader takes it for the new one.
    TooLarge,
    /// No room, and none could be made. A store is refused as under `TooLarge`.
    OutOfMemory,
    /// The engine cannot serve now; the text, one line without a line end, says why.
    Busy(&'static str),
}

impl Request<'_> {
    /// The key; `FlushAll` has none.
    #[must_use]
    pub const fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Get { key }
            | Self::GetAndTouch { key, .. }
            | Self::Store { key, .. }
            | Self::Delete { key }
            | Self::Arith { key, .. }
            | Self::Touch { key, .. } => Some(key),
            Self::FlushAll { .. } => None,
        }
    }

    /// The same request for another key and value, for those who keep its bytes elsewhere. Where
    /// the request has no key or no value, the one given is not used.
    #[must_use]
    pub const fn with_bytes<'b>(&self, key: &'b [u8], value: &'b [u8]) -> Request<'b> {
        match *self {
            Self::Get { .. } => Request::Get { key },
            Self::GetAndTouch { expiry, .. } => Request::GetAndTouch { key, expiry },
            Self::Store {
                mode,
                flags,
                expiry,
                ..
            } => Request::Store {
                mode,
                key,
                value,
                flags,
                expiry,
            },
            Self::Delete { .. } => Request::Delete { key },
            Self::Arith {
                delta, direction, ..
            } => Request::Arith {
                key,
                delta,
                direction,
            },
            Self::Touch { expiry, .. } => Request::Touch { key, expiry },
            Self::FlushAll { at_s } => Request::FlushAll { at_s },
        }
    }
}

impl Reply<'_> {
    /// The same reply, but [`Reply::OutOfMemory`] in place of a value longer than `size_max`.
    #[must_use]
    #[inline]
    pub(crate) const fn up_to(self, size_max: usize) -> Self {
        match self {
            Self::Value { value, .. } if value.len() > size_max => Self::OutOfMemory,
            reply => reply,
        }
    }

    /// The same reply with another value, for those who keep its bytes elsewhere. Where the reply
    /// has no value, the one given is not used.
    #[must_use]
    pub const fn with_bytes<'b>(&self, value: &'b [u8]) -> Reply<'b> {
        match *self {
            Self::Value { flags, cas, .. } => Reply::Value { value, flags, cas },
            Self::Miss => Reply::Miss,
            Self::Stored => Reply::Stored,
            Self::NotStored => Reply::NotStored,
            Self::Exists => Reply::Exists,
            Self::NotFound => Reply::NotFound,
            Self::Deleted => Reply::Deleted,
            Self::Touched => Reply::Touched,
            Self::Number(number) => Reply::Number(number),
            Self::NotANumber => Reply::NotANumber,
            Self::Flushed => Reply::Flushed,
            Self::TooLarge => Reply::TooLarge,
            Self::OutOfMemory => Reply::OutOfMemory,
            Self::Busy(why) => Reply::Busy(why),
        }
    }
}

/// What a connection has to tell of itself, for whoever counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It let others have their turn, with more to do.
    Yielded,
    /// A value larger than any item was refused.
    ValueTooLarge,
    /// A line without an end in sight was refused.
    LineTooLong,
    /// A list of too many keys was refused.
    TooManyKeys,
    /// A request was refused because memory is short.
    OutOfMemory,
}

/// Who starts a request, and how much of an answer may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The connection: a number that no other one has.
    pub connection: u64,
    /// Bytes of a promised value that may be kept until it is fetched.
    pub room: usize,
}

/// A store of items that the door can serve.
///
/// What a connection starts must take effect in the order of its starts, request by request, as far
/// as a key's readers can tell, whether or not answers are at hand: a pipelined `get` sees the `set`
/// before it. Answers may become ready in any order.
pub trait Engine {
    /// A promise of an answer. Dropping one gives up the answer, not the operation.
    type Ticket;

    /// Carries out a request, or begins to.
    ///
    /// With the answer at hand, calls `reply` with it and returns what that returned; otherwise
    /// returns a ticket and does not call `reply`. The request is borrowed only for the call. `now_s`
    /// is Unix time in seconds.
    ///
    /// # Errors
    /// The ticket of an answer that is not at hand; no failure.
    fn start<R>(
        &mut self,
        now_s: u64,
        request: Request<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Self::Ticket>;

    /// As [`Engine::start`], for a connection that has room for only so much of a value that is not at
    /// hand.
    ///
    /// An engine that keeps promised values until they are fetched should then keep no more than that
    /// of each, and get a longer value once its ticket is polled. What the connection has started
    /// since must not take effect before.
    ///
    /// # Errors
    /// The ticket of an answer that is not at hand; no failure.
    #[inline]
    fn start_within<R>(
        &mut self,
        _asker: Asker,
        now_s: u64,
        request: Request<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Self::Ticket> {
        self.start(now_s, request, reply)
    }

    /// Hints that requests for these keys come next, so that what they need can be loaded into the
    /// processor's caches all at once. They may not come, and others may come between.
    fn prefetch(&mut self, _keys: &[&[u8]]) {}

    /// Fetches a promised answer, or has the context's waker called when it is there.
    ///
    /// Once it returned `Ready` the ticket is spent and is not polled again.
    fn poll<R>(
        &mut self,
        ticket: &mut Self::Ticket,
        context: &mut Context<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Poll<R>;

    /// Largest sum of key and value, in bytes, that an item may have.
    ///
    /// The door refuses a larger value before it arrives, and keeps at most this much of one value.
    fn item_size_max(&self) -> usize;

    /// Largest value, in bytes, that an item may have. The door refuses a larger one as well.
    fn value_size_max(&self) -> usize {
        self.item_size_max()
    }

    /// The version that clients are told.
    fn version(&self) -> &str;

    /// Tells the counters of a section, by name and value, and whether there is such a section. The
    /// general section has the empty name.
    fn stats(&self, section: &str, out: &mut dyn FnMut(&str, &str)) -> bool;

    /// Sets the counters that can be reset to zero.
    fn reset_stats(&mut self) {}

    /// Learns what befell a connection.
    fn note(&mut self, _event: Event) {}

    /// The moment of a date, on the scale on which the engine is told the time. The two differ where
    /// the wall clock was set while the engine ran.
    fn moment_s(&self, date_s: u64) -> u64 {
        date_s
    }

    /// Whether a connection may leave the protocol with the line `vervain <arguments>`.
    ///
    /// After a yes the connection reports the arguments to its driver, which takes over the socket.
    fn allows_upgrade(&self, _arguments: &[u8]) -> bool {
        false
    }
}
