//! Attributes of devices, ports and queue pairs.

use crate::names::{ChannelNum, CqNum, Gid, Guid, PdNum, Pkey, Psn, Qkey, QpNum, SrqNum};

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
        /// Memory windows may be bound to the region.
        const WINDOW_BIND = 1 << 4;
        /// Peers' writes may appear in any order until their message completes.
        const RELAXED_ORDERING = 1 << 20;
        /// What a NIC that knows nothing of it may ignore: bits 20 to 29, those of
        /// `IBV_ACCESS_OPTIONAL_RANGE`. All other bits are granted or refused.
        const OPTIONAL = 0x3ff0_0000;
    }
}

impl Access {
    /// All that peers and the NIC may do: every right, and no optional bit.
    pub const EVERYTHING: Access = Access::LOCAL_WRITE
        .union(Access::REMOTE_WRITE)
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_ATOMIC);
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Mtu {
    /// 256 bytes.
    B256,
    /// 512 bytes.
    B512,
    /// 1024 bytes.
    #[default]
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

/// Among whom a device's atomics are atomic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum AtomicScope {
    /// There are none.
    #[default]
    None,
    /// Among queue pairs of the device.
    Device,
    /// With the processors' and other devices' too.
    Global,
}

/// A device's name and limits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DeviceAttr {
    /// What the device is called, e.g. `soft0`.
    pub name: String,
    /// The version of what runs on it.
    pub firmware: String,
    /// The device's identity.
    pub guid: Guid,
    /// The vendor: an IEEE company number; 0 for none.
    pub vendor: u32,
    /// The vendor's number of the model.
    pub part: u32,
    /// The revision of the hardware.
    pub revision: u32,
    /// Number of ports.
    pub ports: u8,
    /// Protection domains at most.
    pub pd_max: u32,
    /// Address handles at most.
    pub ah_max: u32,
    /// Multicast groups that a queue pair can be in; 0 where there are none.
    pub mcast_max: u32,
    /// Queue pairs that can be in a multicast group.
    pub mcast_attach_max: u32,
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
    /// Bytes at most in a memory region.
    pub mr_len_max: u64,
    /// Shared receive queues at most.
    pub srq_max: u32,
    /// RECVs at most in a shared receive queue.
    pub srq_wr_max: u32,
    /// Scatter elements at most in one of its RECVs.
    pub srq_sge_max: u32,
    /// READs and atomics that may be under way on a queue pair, as initiator and as responder.
    pub rd_atomic_max: u8,
    /// Among whom atomics are atomic.
    pub atomics: AtomicScope,
    /// Bytes at most that a work request may carry inline.
    pub inline_max: u32,
    /// Bytes at most in one message.
    pub message_len_max: u32,
}

impl DeviceAttr {
    /// Attributes of a device with one port and every limit at zero, for a NIC to fill in.
    pub fn named(name: impl Into<String>) -> Self {
        DeviceAttr {
            name: name.into(),
            ports: 1,
            ..DeviceAttr::default()
        }
    }
}

/// Whether a port carries traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum PortState {
    /// No link.
    #[default]
    Down,
    /// There is a link, and it is being set up.
    Init,
    /// It is set up, and carries only what management sends.
    Armed,
    /// Up.
    Active,
}

/// What a port's link speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum LinkLayer {
    /// Ports have LIDs, and a subnet manager.
    InfiniBand,
    /// Ports have GIDs made from their IP addresses.
    #[default]
    Ethernet,
}

/// How packets to and from a GID look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum GidKind {
    /// InfiniBand's own.
    InfiniBand,
    /// In Ethernet frames.
    RoceV1,
    /// In UDP datagrams.
    #[default]
    RoceV2,
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// How its packets look.
    pub kind: GidKind,
    /// The index of the network interface that has the address; 0 where there is none.
    pub interface: u32,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PortAttr {
    /// Whether it carries traffic.
    pub state: PortState,
    /// What its link speaks.
    pub link_layer: LinkLayer,
    /// The largest packet it could carry.
    pub mtu_max: Mtu,
    /// The largest packet it carries now: what a path through it may use.
    pub mtu: Mtu,
    /// Megabits a second of the link; 0 where no link limits it.
    pub rate_mbps: u32,
    /// Its local identifier (InfiniBand); 0 on Ethernet.
    pub lid: u16,
    /// Its addresses: the GID table. An address vector names one by its index.
    pub gids: Vec<GidEntry>,
    /// Its partitions: the P_Key table. A queue pair names one by its index.
    pub pkeys: Vec<Pkey>,
}

impl PortAttr {
    /// An Ethernet port that is up and has one address, in the default partition.
    pub fn active(gid: Gid, mtu: Mtu) -> Self {
        PortAttr {
            state: PortState::Active,
            mtu_max: mtu,
            mtu,
            gids: vec![GidEntry {
                gid,
                kind: GidKind::RoceV2,
                interface: 0,
            }],
            pkeys: vec![Pkey::DEFAULT],
            ..PortAttr::default()
        }
    }
}

/// What a completion queue is made with.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CqInit {
    /// Completions it must be able to hold. More than that at once is an overrun, which is fatal.
    pub depth: u32,
    /// The channel its events go to.
    pub channel: Option<ChannelNum>,
    /// More completions than that at once are no overrun: their user says that it polls in time, or
    /// bears what they cost in memory.
    pub ignores_overrun: bool,
}

impl CqInit {
    /// A queue that is only polled.
    pub const fn new(depth: u32) -> Self {
        CqInit {
            depth,
            channel: None,
            ignores_overrun: false,
        }
    }

    /// Has its events go to a channel.
    #[must_use]
    pub const fn on(mut self, channel: ChannelNum) -> Self {
        self.channel = Some(channel);
        self
    }
}

/// What a shared receive queue is made with.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SrqInit {
    /// Its protection domain.
    pub pd: PdNum,
    /// RECVs it must be able to hold.
    pub wr_max: u32,
    /// Scatter elements a RECV may have.
    pub sge_max: u32,
}

impl SrqInit {
    /// A queue of this size.
    pub const fn new(pd: PdNum, wr_max: u32, sge_max: u32) -> Self {
        SrqInit {
            pd,
            wr_max,
            sge_max,
        }
    }
}

/// Queue sizes of a queue pair: what is asked for, and what was granted, which may be more.
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
#[non_exhaustive]
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
    /// What it sends to a multicast group that it is in does not come back to it (UD). Other queue pairs receive it all the same,
    /// those of this device too.
    pub blocks_own_multicast: bool,
}

impl QpInit {
    /// A queue pair with a receive queue of its own and usual sizes.
    pub fn new(pd: PdNum, transport: Transport, send_cq: CqNum, recv_cq: CqNum) -> Self {
        QpInit {
            pd,
            transport,
            send_cq,
            recv_cq,
            srq: None,
            lent_recvs: None,
            caps: QpCaps::default(),
            signal_all: false,
            blocks_own_multicast: false,
        }
    }
}

/// An address vector: the way to a peer's port (`ibv_ah_attr`). NICs whose packets do not have one
/// of these fields ignore it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub struct AhAttr {
    /// The peer's GID.
    pub gid: Gid,
    /// Our port, counted from 1.
    pub port: u8,
    /// Our own address: an index into the port's GID table.
    pub gid_index: u8,
    /// Routers that a packet may pass.
    pub hop_limit: u8,
    /// How routers are to treat it.
    pub traffic_class: u8,
    /// What packets of one flow have in common, 20 bits; 0 for none.
    pub flow_label: u32,
    /// The peer's local identifier (InfiniBand); 0 on Ethernet.
    pub lid: u16,
    /// Which lane of the link it takes, 4 bits; the priority on Ethernet.
    pub service_level: u8,
}

impl AhAttr {
    /// From port 1's first address to this one, as flows go by default.
    pub const fn to(gid: Gid) -> Self {
        AhAttr {
            gid,
            port: 1,
            gid_index: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            lid: 0,
            service_level: 0,
        }
    }
}

/// Attributes to change with a state transition. What a transition needs and allows is in
/// [`crate::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
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
    /// The way to the peer's port (RC, UC).
    pub path: Option<AhAttr>,
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

impl QpAttr {
    /// Goes to a state, and changes nothing else.
    pub fn to(state: QpState) -> Self {
        QpAttr {
            state: Some(state),
            ..QpAttr::default()
        }
    }

    /// The GID that the path leads to.
    #[inline]
    pub fn dest_gid(&self) -> Option<Gid> {
        self.path.map(|path| path.gid)
    }
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
