//! What a datagram's header says of its way.

use verbs::Gid;

/// The two addresses that its sender chose: any of a device's names, or a multicast group's. It is the same for all that goes
/// through a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) from: Gid,
    pub(crate) to: Gid,
}

impl Route {
    /// The multicast group that it leads to, if it leads to one.
    pub(crate) fn group(&self) -> Option<Gid> {
        Some(self.to).filter(Gid::is_multicast)
    }
}
