//! One measurement: what is done, over which transport, and how.

use serde::{Deserialize, Serialize};
use verbs::{DeviceAttr, Op, Transport, rules};

use super::experiment::Experiment;

/// Work requests in one post call at most.
pub const POSTLIST_MAX: u32 = 64;
/// Bytes of a message at most.
pub const SIZE_MAX: usize = 1 << 20;
/// Queue pairs at most.
pub const QPS_MAX: u32 = 4096;
/// Bytes that the messages of one direction lie in at most, unless the window asks for more.
const RING_BYTES: usize = 256 << 10;
/// Messages of a ring at most, unless the window asks for more; as many as the raw ring has lines.
const RING_SLOTS: usize = 1024;
/// Send work requests of an echo's queue pair that may be under way.
const ECHO_DEPTH: u32 = 128;

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// WRITE.
    Write,
    /// READ.
    Read,
    /// SEND, into a RECV.
    Send,
    /// Compare-and-swap.
    Cas,
    /// Fetch-and-add.
    Faa,
}

impl Verb {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Write => "WRITE",
            Verb::Read => "READ",
            Verb::Send => "SEND",
            Verb::Cas => "CAS",
            Verb::Faa => "FAA",
        }
    }

    /// Whether it works on one word of 8 bytes.
    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Verb::Cas | Verb::Faa)
    }

    fn op(self) -> Op {
        let remote = verbs::RemoteAddr::default();
        match self {
            Verb::Write => Op::Write { remote, imm: None },
            Verb::Read => Op::Read { remote },
            Verb::Send => Op::Send { imm: None },
            Verb::Cas => Op::CompareSwap {
                remote,
                expect: 0,
                swap: 0,
            },
            Verb::Faa => Op::FetchAdd { remote, add: 0 },
        }
    }
}

/// `Transport` as it crosses between the processes.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Transport", rename_all = "UPPERCASE")]
enum TransportName {
    Rc,
    Uc,
    Ud,
}

/// A transport as people write it.
pub(super) fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Rc => "RC",
        Transport::Uc => "UC",
        Transport::Ud => "UD",
    }
}

/// An operation and the transport that carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Way {
    pub(super) verb: Verb,
    #[serde(with = "TransportName")]
    pub(super) transport: Transport,
}

impl Way {
    pub(super) const fn new(verb: Verb, transport: Transport) -> Self {
        Way { verb, transport }
    }
}

/// Who posts the requests.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// This process, on the first CPU; the figure is what its NIC sends.
    Outbound,
    /// The peer, on the second CPU; the figure is what arrives here.
    Inbound,
}

/// What the target's CPU does.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// It polls for each message and reads it, so that each line crosses between the cores.
    Polling,
    /// Nothing: the requester's NIC does it all.
    Idle,
}

/// A rung of HERD's ladder (Fig 5): each keeps what the ones before it have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Rung {
    /// Reliable, each request signaled, nothing inlined.
    #[serde(rename = "basic")]
    Basic,
    /// WRITE over UC, SEND over UD.
    #[serde(rename = "+unreliable")]
    Unreliable,
    /// One completion in many requests.
    #[serde(rename = "+unsignaled")]
    Unsignaled,
    /// The message within the work request.
    #[serde(rename = "+inlined")]
    Inlined,
}

impl Rung {
    /// From the lowest to the highest.
    pub const ALL: [Rung; 4] = [
        Rung::Basic,
        Rung::Unreliable,
        Rung::Unsignaled,
        Rung::Inlined,
    ];

    /// As in the figure.
    pub fn name(self) -> &'static str {
        match self {
            Rung::Basic => "basic",
            Rung::Unreliable => "+unreliable",
            Rung::Unsignaled => "+unsignaled",
            Rung::Inlined => "+inlined",
        }
    }
}

/// One measurement. Both processes make the same objects from it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// The experiment.
    pub experiment: Experiment,
    pub(super) request: Way,
    /// Of echoes: a message there and one back. The others are requests in one direction.
    pub(super) answer: Option<Way>,
    /// The rung of the ladder, for echoes.
    pub rung: Option<Rung>,
    /// Who posts.
    pub role: Role,
    /// What the target's CPU does.
    pub target: Target,
    /// Whether atomics all meet on one word.
    pub one_word: bool,
    /// Whether answers are numbers of a sequence instead of the requests themselves.
    pub sequence: bool,
    /// Whether one request is under way at a time, each of them timed.
    pub timed: bool,
    /// Bytes of a message.
    pub size: usize,
    /// Requests under way. One way: send work requests of a queue pair. Echo: requests without an
    /// answer yet.
    pub window: u32,
    /// Work requests in a post call at most.
    pub postlist: u32,
    /// One completion in so many work requests.
    pub signal_every: u32,
    /// Whether messages are carried within the work request.
    pub inline: bool,
    /// Queue pairs.
    pub qps: u32,
}

impl Case {
    /// The way of the requests, and that of the answers if there are any.
    pub(super) fn ways(&self) -> impl Iterator<Item = Way> {
        std::iter::once(self.request).chain(self.answer)
    }

    /// Send work requests of a queue pair that may be under way.
    pub(super) fn depth(&self) -> u32 {
        self.answer
            .map_or(self.window, |_| (self.window * 2).max(ECHO_DEPTH))
    }

    /// Messages that lie side by side in memory for each queue pair; a power of two.
    pub(super) fn slots(&self) -> usize {
        if self.answer.is_some() {
            return (self.window as usize).next_power_of_two();
        }
        let least = (self.window.max(self.postlist) as usize * 4).next_power_of_two();
        let fit = RING_BYTES / (self.size.next_multiple_of(64) * self.qps as usize).max(1);
        let most = fit.clamp(1, RING_SLOTS);
        least.max(1 << most.ilog2())
    }

    /// Puts the signaling within what the window allows: as long as a post waits for room, one
    /// of those under way must be signaled. A timed list ends with a signaled request in any case.
    pub(super) fn settle(mut self) -> Self {
        self.postlist = self.postlist.clamp(1, POSTLIST_MAX).min(self.window.max(1));
        let most = match self.answer {
            None if self.timed => self.postlist,
            _ => self.depth() - self.postlist + 1,
        };
        self.signal_every = self.signal_every.clamp(1, most);
        self
    }

    /// Why a device cannot do this, if it cannot.
    pub(super) fn refusal(&self, device: &DeviceAttr, mtu: usize) -> Option<String> {
        for way in self.ways() {
            let (verb, transport) = (way.verb.name(), transport_name(way.transport));
            if !rules::carries(way.transport, &way.verb.op()) {
                return Some(format!("{transport} does not carry {verb}"));
            }
            if way.transport == Transport::Ud && self.size > mtu {
                return Some(format!("a datagram has {mtu} bytes at most"));
            }
            if way.verb.is_atomic() && self.size != 8 {
                return Some("atomics have 8 bytes".into());
            }
        }
        let size = self.size;
        if size < 4 || !size.is_multiple_of(4) || size > SIZE_MAX {
            return Some(format!(
                "a message has a multiple of 4 bytes, up to 1 MiB, not {size}"
            ));
        }
        if size > device.message_len_max as usize {
            let max = device.message_len_max;
            return Some(format!("the device takes messages of {max} bytes at most"));
        }
        if self.inline && size > device.inline_max as usize {
            let max = device.inline_max;
            return Some(format!("the device takes {max} bytes inline at most"));
        }
        let recvs = match self.ways().any(|way| way.verb == Verb::Send) {
            true => self.slots() as u32,
            false => 0,
        };
        let wrs = self.depth().max(recvs);
        if wrs > device.qp_wr_max {
            let max = device.qp_wr_max;
            return Some(format!(
                "the device's queues hold {max} requests, not {wrs}"
            ));
        }
        if self.qps + 1 > device.qp_max {
            let max = device.qp_max;
            return Some(format!("the device has {max} queue pairs at most"));
        }
        None
    }

    /// The operation, or those of request and answer: `WRITE/SEND`.
    pub(super) fn verb(&self) -> String {
        let names: Vec<&str> = self.ways().map(|way| way.verb.name()).collect();
        names.join("/")
    }

    /// The transport, or those of request and answer: `UC/UD`.
    pub(super) fn transport(&self) -> String {
        let names: Vec<&str> = self
            .ways()
            .map(|way| transport_name(way.transport))
            .collect();
        names.join("/")
    }
}
