//! Which server, and by which way.

pub use ::cache::herd::client::{Address, Door};
use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use verbs::typed::Context;

/// The server of a run. Reports have the way's name and the door.
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

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut shown = to.serialize_struct("Target", 2)?;
        shown.serialize_field("transport", self.transport())?;
        shown.serialize_field("door", &self.door().to_string())?;
        shown.end()
    }
}
