//! What the door asks of the program around an engine.

use engine::{Engine, LateEngine, MapEngine};

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
    /// A request that failed was not answered: its client had asked for silence.
    FailedInSilence,
}

/// An engine, and the program that serves it.
pub trait Host: Engine {
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

/// For tests: there is no program.
impl Host for MapEngine {
    fn allows_upgrade(&self, arguments: &[u8]) -> bool {
        arguments == b"test"
    }
}

impl Host for LateEngine<MapEngine> {
    fn allows_upgrade(&self, arguments: &[u8]) -> bool {
        self.inner.allows_upgrade(arguments)
    }
}
