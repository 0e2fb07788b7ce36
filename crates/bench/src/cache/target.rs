//! Which server, and by which way.

pub use ::cache::herd::client::{Address, Door};
use verbs::typed::Context;

/// The server of a run.
#[derive(Clone, Debug)]
pub enum Target {
    /// HERD's requests through a NIC.
    Nic {
        /// The opened NIC. Each thread makes its own queues on it.
        context: Context,
        /// Where to shake hands.
        door: Address,
    },
    /// The Memcache text protocol, with any server that speaks it.
    Socket(Address),
}

impl Target {
    /// The way's name in reports.
    pub fn transport(&self) -> &'static str {
        match self {
            Target::Nic { .. } => "nic",
            Target::Socket(Address::Tcp(_)) => "tcp",
            Target::Socket(Address::Unix(_)) => "unix",
        }
    }

    /// Where the server's door is.
    pub fn door(&self) -> &Address {
        match self {
            Target::Nic { door, .. } | Target::Socket(door) => door,
        }
    }
}
