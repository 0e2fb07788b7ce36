//! What contact with other processes asks of the objects of this adapter, which stand above it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::contact::delegated::Delegated;
use crate::contact::inbox::{InboxLane, PeerInbox, Peerage};
use crate::contact::peer::Peer;
use crate::shared::cause::Cause;
use crate::shared::route::Route;

/// The adapter's queue pairs, completion queues and memory regions. Called when contact begins,
/// changes or ends, never by a post, nor by a poll that has nothing to take up.
pub(crate) trait Objects {
    /// The file behind a region, if there is one that this peer may have.
    fn region_file(&self, key: u32, peer: Peerage) -> Option<Arc<OwnedFd>>;
    /// Carries out what the peer with this inbox asks for on memory that is not shared: the word before an atomic.
    fn carry_out(&self, request: &Delegated, inbox: &PeerInbox) -> Result<u64, Cause>;
    /// A peer has opened a lane.
    fn lane_opened(&self, lane: NewLane);
    /// A peer that was called has gone.
    fn peer_gone(&self, peer: &Peer);
    /// Peers that had called have gone, and there may be something left in their lanes.
    fn senders_gone(&self);
}

/// A lane that a peer has opened from one of its queue pairs to one of ours.
#[derive(Debug)]
pub(crate) struct NewLane {
    pub(crate) lane: InboxLane,
    pub(crate) src_qpn: u32,
    pub(crate) dst_qpn: u32,
    /// The connection of our queue pair that it was opened for.
    pub(crate) epoch: u16,
    /// What its datagrams' headers say.
    pub(crate) route: Route,
}
