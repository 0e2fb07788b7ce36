//! A proxy for a NIC in another process, so that a test can hold both ends of a link that two
//! processes share.
//!
//! The process that has the NIC calls [`serve_nic`] on a byte stream; the test holds a
//! [`RemoteNic`] at the stream's other end. Every call of the traits is one message there and one
//! back; objects are named by number. Speed is no concern.
//!
//! Memory of the caller cannot cross: `register` registers memory of the process that has the NIC
//! in its place, which is reached by the region's `read` and `write`. A channel's descriptor crosses
//! as a duplicate of the other process's, which takes the right to trace it (Linux only).
//!
//! ```text
//! message: length u32 | value        (length counts the bytes of the value)
//! call:    tag u8 | arguments        answer: the method's result
//! ```

mod client;
mod codec;
mod server;

pub use client::RemoteNic;
pub use server::serve_nic;

use std::io::{self, Read, Write};

use codec::{Corrupt, OwnedRecv, OwnedSend, Wire, wire_enum, wire_struct};
use verbs::attr::{Access, AhAttr, CqInit, QpAttr, QpInit, SrqInit};
use verbs::batch::SendLimits;
use verbs::names::{AhNum, ChannelNum, CqNum, Gid, Iova, Lkey, PdNum, QpNum, Rkey, SrqNum};
use verbs::nic::AsyncEvent;
use verbs::wc::Wc;
use verbs::wr::UdDest;

/// A call of one of the traits' methods.
#[derive(Debug)]
enum Call {
    Device,
    Port {
        port: u8,
    },
    AllocPd,
    DeallocPd {
        pd: PdNum,
    },
    Allocate {
        pd: PdNum,
        len: usize,
        access: Access,
    },
    Register {
        pd: PdNum,
        len: usize,
        /// `None` is the memory's own address.
        iova: Option<Iova>,
        access: Access,
    },
    ReadMr {
        mr: u64,
        offset: usize,
        len: usize,
    },
    WriteMr {
        mr: u64,
        offset: usize,
        bytes: Vec<u8>,
    },
    DropMr {
        mr: u64,
    },
    CreateChannel,
    TakeEvent {
        channel: ChannelNum,
    },
    DropChannel {
        channel: ChannelNum,
    },
    CreateCq {
        init: CqInit,
    },
    PollCq {
        cq: CqNum,
        count: usize,
        bytes: usize,
    },
    ArmCq {
        cq: CqNum,
        solicited_only: bool,
    },
    DropCq {
        cq: CqNum,
    },
    CreateSrq {
        init: SrqInit,
    },
    PostSrq {
        srq: SrqNum,
        recvs: Vec<OwnedRecv>,
    },
    DropSrq {
        srq: SrqNum,
    },
    CreateQp {
        init: QpInit,
    },
    Prepare {
        qp: QpNum,
        to: UdDest,
    },
    ModifyQp {
        qp: QpNum,
        attr: QpAttr,
    },
    AttachMcast {
        qp: QpNum,
        group: Gid,
    },
    DetachMcast {
        qp: QpNum,
        group: Gid,
    },
    QueryQp {
        qp: QpNum,
    },
    QpCaps {
        qp: QpNum,
    },
    PostSend {
        qp: QpNum,
        sends: Vec<OwnedSend>,
    },
    PostRecv {
        qp: QpNum,
        recvs: Vec<OwnedRecv>,
    },
    DropQp {
        qp: QpNum,
    },
    CreateAh {
        pd: PdNum,
        attr: AhAttr,
    },
    DestroyAh {
        ah: AhNum,
    },
    AsyncEvent,
    Acknowledge {
        event: AsyncEvent,
    },
    Progress {
        now_ns: u64,
    },
}

wire_enum! {
    Call {
        0 Device
        1 Port { port }
        2 AllocPd
        3 DeallocPd { pd }
        4 Allocate { pd len access }
        5 ReadMr { mr offset len }
        6 WriteMr { mr offset bytes }
        7 DropMr { mr }
        8 CreateCq { init }
        9 PollCq { cq count bytes }
        10 ArmCq { cq solicited_only }
        11 DropCq { cq }
        12 CreateSrq { init }
        13 PostSrq { srq recvs }
        14 DropSrq { srq }
        15 CreateQp { init }
        16 ModifyQp { qp attr }
        17 QueryQp { qp }
        18 PostSend { qp sends }
        19 PostRecv { qp recvs }
        20 DropQp { qp }
        21 CreateAh { pd attr }
        22 DestroyAh { ah }
        23 AsyncEvent
        24 Register { pd len iova access }
        25 CreateChannel
        26 TakeEvent { channel }
        27 DropChannel { channel }
        28 Prepare { qp to }
        29 Progress { now_ns }
        30 QpCaps { qp }
        31 Acknowledge { event }
        32 AttachMcast { qp group }
        33 DetachMcast { qp group }
    }
}

type Taken<T> = Result<T, Corrupt>;

/// A region as its owner describes it.
#[derive(Debug)]
struct MrInfo {
    mr: u64,
    addr: u64,
    len: usize,
    lkey: Lkey,
    rkey: Rkey,
}

/// A channel, and its descriptor in the process that has it.
#[derive(Debug)]
struct ChannelInfo {
    channel: ChannelNum,
    pid: i32,
    fd: i32,
}

/// A queue pair as its owner describes it.
#[derive(Debug)]
struct QpInfo {
    num: QpNum,
    limits: SendLimits,
}

/// A completion, and the message that is lent with it.
#[derive(Debug)]
struct PolledWc {
    wc: Wc,
    lent: Option<Vec<u8>>,
}

wire_struct! {
    MrInfo { mr addr len lkey rkey }
    ChannelInfo { channel pid fd }
    QpInfo { num limits }
    PolledWc { wc lent }
}

/// Messages are no longer than this, so that a corrupt length does not ask for all memory.
const MESSAGE_MAX: usize = 64 << 20;

fn send(to: &mut impl Write, value: &impl Wire) -> io::Result<()> {
    let mut message = vec![0; 4];
    value.put(&mut message);
    let len = message.len() - 4;
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "the message is too long");
    let len = u32::try_from(len)
        .ok()
        .filter(|len| *len as usize <= MESSAGE_MAX);
    message[..4].copy_from_slice(&len.ok_or_else(too_long)?.to_le_bytes());
    to.write_all(&message)?;
    to.flush()
}

fn receive<T: Wire>(from: &mut impl Read) -> io::Result<T> {
    let corrupt = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MESSAGE_MAX {
        return Err(corrupt("a message of the NIC proxy is too long"));
    }
    let mut message = vec![0; len];
    from.read_exact(&mut message)?;
    let mut rest = message.as_slice();
    let value = T::take(&mut rest).map_err(|error| corrupt(&error.to_string()))?;
    match rest {
        [] => Ok(value),
        _ => Err(corrupt(
            "a message of the NIC proxy is longer than its value",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::error::VerbsError;

    #[test]
    fn a_truncated_or_padded_message_is_an_error() {
        let mut stream = Vec::new();
        send(&mut stream, &Call::Port { port: 1 }).expect("a vector takes it");
        assert!(matches!(
            receive(&mut stream.as_slice()),
            Ok(Call::Port { port: 1 })
        ));
        for len in 0..stream.len() {
            assert!(receive::<Call>(&mut &stream[..len]).is_err(), "{len} bytes");
        }
        stream[0] += 1;
        stream.push(0);
        assert!(receive::<Call>(&mut stream.as_slice()).is_err());
        let unknown = [1, 0, 0, 0, 250];
        assert!(receive::<Call>(&mut &unknown[..]).is_err());
        let endless = [0xff; 8];
        assert!(receive::<Call>(&mut &endless[..]).is_err());
    }

    #[test]
    fn errors_cross_with_their_words() {
        let errors = [
            VerbsError::Limit {
                what: "depth",
                value: 9,
                max: 8,
            },
            VerbsError::invalid("access", "it makes no sense"),
            VerbsError::io("mapping", std::io::Error::from_raw_os_error(12)),
            VerbsError::io("thinking", std::io::Error::other("no idea")),
        ];
        for error in errors {
            let mut bytes = Vec::new();
            error.put(&mut bytes);
            let back = VerbsError::take(&mut bytes.as_slice()).expect("what was put");
            assert_eq!(back.to_string(), error.to_string());
        }
    }
}
