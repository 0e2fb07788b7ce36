//! Attributes of devices, ports and queue pairs.

use crate::names::{ChannelNum, CqNum, Gid, PdNum, Psn, Qkey, QpNum, SrqNum};

bitflags::bitflags! {
    /// What may be done with a memory region, or through a queue pair. Local reading is always
    /// allowed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct Access: u32 {
        /// The NIC may write into the region for its owner: RECV, READ and atomic results.
        const LOCAL_WRITE = 1;
        /// Peers may WRITE. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may READ.
        const REMOTE_READ = 1 << 2;
        /// Peers may do atomics. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

/// A queue pair's transport service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Transport {
    /// Reliable connection: every operation, acknowledged, in order, exactly once.
    Rc,
    /// Unreliable connection: SEND and WRITE, not acknowledged.
    Uc,
    /// Unreliable datagram: SEND of one packet to anybody.
    Ud,
}

/// A queue pair's state (InfiniBand specification, volume 1, section 10.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum QpState {
    /// Newly made; nothing can be posted.
    Reset,
    /// RECVs can be posted; nothing arrives.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send and receive.
    Rts,
    /// Send queue drained: SENDs wait, RECVs go on.
    Sqd,
    /// Send queue error (UC, UD): SENDs are flushed, RECVs go on.
    Sqe,
    /// Error: everything is flushed.
    Err,
}

/// The largest packet of a path, in bytes of payload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mtu {
    /// 256 bytes.
    B256,
    /// 512 bytes.
    B512,
    /// 1024 bytes.
    B1024,
    /// 2048 bytes.
    B2048,
    /// 4096 bytes.
    B4096,
}

impl Mtu {
    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Mtu::B256 => 256,
            Mtu::B512 => 512,
            Mtu::B1024 => 1024,
            Mtu::B2048 => 2048,
            Mtu::B4096 => 4096,
        }
    }
}

/// A device's name and limits.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceAttr {
    /// What the device is called, e.g. `soft0`.
    pub name: String,
    /// Number of ports.
    pub ports: u8,
    /// Queue pairs at most.
    pub qp_max: u32,
    /// Work requests at most in one queue.
    pub qp_wr_max: u32,
    /// Scatter/gather elements at most in one work request.
    pub sge_max: u32,
    /// Completion queues at most.
    pub cq_max: u32,
    /// Entries at most in a completion queue.
    pub cqe_max: u32,
    /// Memory regions at most.
    pub mr_max: u32,
    /// Shared receive queues at most.
    pub srq_max: u32,
    /// READs and atomics that may be under way on a queue pair, as initiator and as responder.
    pub rd_atomic_max: u8,
    /// Bytes at most that a work request may carry inline.
    pub inline_max: u32,
    /// Bytes at most in one message.
    pub message_len_max: u32,
}

impl DeviceAttr {
    /// Attributes with every limit at zero, for a NIC to fill in.
    pub fn named(name: impl Into<String>) -> Self {
        DeviceAttr {
            name: name.into(),
            ports: 1,
            qp_max: 0,
            qp_wr_max: 0,
            sge_max: 0,
            cq_max: 0,
            cqe_max: 0,
            mr_max: 0,
            srq_max: 0,
            rd_atomic_max: 0,
            inline_max: 0,
            message_len_max: 0,
        }
    }
}

/// Whether a port carries traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortState {
    /// No link.
    Down,
    /// Up.
    Active,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortAttr {
    /// Whether it carries traffic.
    pub state: PortState,
    /// The largest packet it carries.
    pub mtu_max: Mtu,
    /// Its addresses.
    pub gids: Vec<Gid>,
}

/// What a completion queue is made with.
#[derive(Clone, Copy, Debug)]
pub struct CqInit {
    /// Completions it must be able to hold. More than that at once is an overrun, which is fatal.
    pub depth: u32,
    /// The channel its events go to.
    pub channel: Option<ChannelNum>,
}

/// What a shared receive queue is made with.
#[derive(Clone, Copy, Debug)]
pub struct SrqInit {
    /// Its protection domain.
    pub pd: PdNum,
    /// RECVs it must be able to hold.
    pub wr_max: u32,
    /// Scatter elements a RECV may have.
    pub sge_max: u32,
}

/// Queue sizes of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpCaps {
    /// Send work requests that may be under way.
    pub send_wr_max: u32,
    /// RECVs that may be posted; without effect with an SRQ.
    pub recv_wr_max: u32,
    /// Gather elements in a send work request.
    pub send_sge_max: u32,
    /// Scatter elements in a RECV.
    pub recv_sge_max: u32,
    /// Bytes a send work request may carry inline.
    pub inline_max: u32,
}

impl Default for QpCaps {
    fn default() -> Self {
        QpCaps {
            send_wr_max: 128,
            recv_wr_max: 128,
            send_sge_max: 4,
            recv_sge_max: 4,
            inline_max: 256,
        }
    }
}

/// RECVs that the NIC owns, and posts again by itself: each message is lent to the poller
/// ([`crate::polled::Polled`]), who posts none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LentRecvs {
    /// How many there are, as with RECVs posted: on RC and UC no more messages than this wait to be
    /// polled.
    pub count: u32,
    /// Bytes of a message at most; for UD without the route header.
    pub len: u32,
}

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// Its protection domain.
    pub pd: PdNum,
    /// Its transport.
    pub transport: Transport,
    /// Where completions of send work requests go.
    pub send_cq: CqNum,
    /// Where completions of RECVs go.
    pub recv_cq: CqNum,
    /// RECVs come from here instead of a queue of its own.
    pub srq: Option<SrqNum>,
    /// RECVs are the NIC's; then there is no SRQ.
    pub lent_recvs: Option<LentRecvs>,
    /// Queue sizes.
    pub caps: QpCaps,
    /// Every send work request is signaled, whatever its flags say.
    pub signal_all: bool,
}

/// Where datagrams go: the peer's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AhAttr {
    /// The peer's GID.
    pub gid: Gid,
    /// Our port, counted from 1.
    pub port: u8,
}

/// Attributes to change with a state transition. What a transition needs and allows is in
/// [`crate::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpAttr {
    /// The state to go to; `None` changes attributes within the state.
    pub state: Option<QpState>,
    /// What peers may do through this queue pair (RC, UC).
    pub access: Option<Access>,
    /// Partition key index.
    pub pkey_index: Option<u16>,
    /// Our port, counted from 1.
    pub port: Option<u8>,
    /// Queue key (UD).
    pub qkey: Option<Qkey>,
    /// The peer's port (RC, UC).
    pub dest_gid: Option<Gid>,
    /// The peer's queue pair (RC, UC).
    pub dest_qpn: Option<QpNum>,
    /// The path's packet size (RC, UC).
    pub path_mtu: Option<Mtu>,
    /// First sequence number expected.
    pub rq_psn: Option<Psn>,
    /// First sequence number sent.
    pub sq_psn: Option<Psn>,
    /// READs and atomics under way as initiator (RC).
    pub rd_atomic_max: Option<u8>,
    /// READs and atomics under way as responder (RC).
    pub dest_rd_atomic_max: Option<u8>,
    /// How long a peer without a RECV asks the sender to wait: code 0..=31, see
    /// [`rnr_timer_us`] (RC).
    pub min_rnr_timer: Option<u8>,
    /// Acknowledgement time-out, 4.096 us * 2^timeout; 0 waits for ever (RC).
    pub timeout: Option<u8>,
    /// Retries after a time-out, 0..=7 (RC).
    pub retry_count: Option<u8>,
    /// Retries after "receiver not ready", 0..=6; 7 retries for ever (RC).
    pub rnr_retry: Option<u8>,
}

/// Microseconds of a "receiver not ready" timer code (InfiniBand specification, volume 1,
/// table 45). Codes above 31 count as 31.
pub fn rnr_timer_us(code: u8) -> u64 {
    const US: [u64; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840,
        5120, 7680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
        245_760, 327_680, 491_520,
    ];
    US[usize::from(code.min(31))]
}
