//! One identifier (`struct rdma_cm_id`): its state, and what it knows of its peer.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Instant;

use rustix::net::SendFlags;
use verbs::Gid;

use super::abi::ConnParam;
use super::names::Sharing;
use super::wire::{Message, Side};

/// `enum rdma_ucm_port_space`.
pub(super) mod port_space {
    pub(in crate::cm) const IPOIB: u16 = 0x0002;
    pub(in crate::cm) const TCP: u16 = 0x0106;
    pub(in crate::cm) const UDP: u16 = 0x0111;
    pub(in crate::cm) const IB: u16 = 0x013f;
}

/// `IBV_QPT_RC`.
pub(super) const QPT_RC: u8 = 2;
/// `IBV_QPT_UD`.
pub(super) const QPT_UD: u8 = 4;

/// Where an identifier is between its making and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Bound,
    AddrResolved,
    RouteResolved,
    Listening,
    /// The listener has no room for a caller now, or is about to listen: it is to be called again.
    Calling,
    RequestSent,
    RequestReceived,
    /// The program's queue pair is not ready yet.
    ReplyReceived,
    ReplySent,
    Established,
    DisconnectSent,
    /// Disconnected; its queue pair's last packets may be under way.
    TimeWait,
    /// Refused, unreachable, answered (datagrams), or disconnected long ago.
    Over,
}

/// An identifier.
pub(super) struct Id {
    /// The program's name for it; 0 until it accepts a request.
    pub(super) uid: u64,
    /// Where its events go.
    pub(super) channel: RawFd,
    pub(super) port_space: u16,
    pub(super) qp_type: u8,
    pub(super) state: State,
    /// Established with its first message, on purpose.
    pub(super) is_late: bool,
    /// Made by a peer's request.
    pub(super) is_called: bool,
    pub(super) from: Option<SocketAddr>,
    pub(super) to: Option<SocketAddr>,
    /// The device that it is bound to: its own GID.
    pub(super) device: Option<Gid>,
    pub(super) sharing: Sharing,
    /// As `RDMA_OPTION_ID_ACK_TIMEOUT` and `_TOS` say.
    pub(super) ack_timeout: Option<u8>,
    pub(super) traffic_class: u8,
    /// Hold its port; a listener is called there.
    pub(super) bound: Vec<OwnedFd>,
    /// The way to the connection's other side.
    pub(super) socket: Option<OwnedFd>,
    /// Our first packet's number.
    pub(super) psn: u32,
    /// What we have offered, or accepted.
    pub(super) ours: ConnParam,
    pub(super) peer: Option<Side>,
    /// Chosen for datagrams.
    pub(super) qkey: Option<u32>,
    /// When to give up, or to go on.
    pub(super) deadline: Option<Instant>,
    /// When a call that gets no answer has failed.
    pub(super) call_until: Option<Instant>,
    /// Requests that a listener still takes before the program has seen any.
    pub(super) backlog: u32,
    /// Events that the program was given, and acknowledges before it is done with this.
    pub(super) events_reported: u32,
}

impl Id {
    pub(super) fn new(channel: RawFd, port_space: u16, qp_type: u8) -> Self {
        Id {
            uid: 0,
            channel,
            port_space,
            qp_type,
            state: State::Idle,
            is_late: false,
            is_called: false,
            from: None,
            to: None,
            device: None,
            sharing: Sharing::default(),
            ack_timeout: None,
            traffic_class: 0,
            bound: Vec::new(),
            socket: None,
            psn: 0,
            ours: ConnParam::default(),
            peer: None,
            qkey: None,
            deadline: None,
            call_until: None,
            backlog: 0,
            events_reported: 0,
        }
    }

    pub(super) fn is_datagram(&self) -> bool {
        self.qp_type == QPT_UD
    }

    /// Tells the other side. One that has gone shows by its socket's end.
    pub(super) fn tell(&self, message: &Message) {
        if let Some(socket) = &self.socket {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            // A socket has room for all messages of its connection.
            let _ = rustix::net::send(socket, &message.emit(), flags);
        }
    }
}
