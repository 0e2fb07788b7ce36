//! How the vocabulary's values look on the stream: little-endian fields one after the other,
//! lists with a count, options with a flag.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use verbs::attr::{
    Access, AhAttr, AtomicScope, CqInit, DeviceAttr, GidEntry, GidKind, LentRecvs, LinkLayer, Mtu,
    PortAttr, PortState, QpAttr, QpCaps, QpInit, QpState, SrqInit, Transport,
};
use verbs::batch::{Dest, SendLimits};
use verbs::error::{CqError, PostError, PostReason, VerbsError};
use verbs::names::{
    AhNum, ChannelNum, CqNum, Gid, Guid, Iova, Lkey, PdNum, Pkey, Psn, Qkey, QpNum, RemoteAddr,
    Rkey, SrqNum, VendorErr,
};
use verbs::nic::AsyncEvent;
use verbs::wc::{Wc, WcFlags, WcOpcode, WcStatus};
use verbs::wr::{Op, Payload, RecvWr, SendFlags, SendWr, Sge, UdDest};

/// Bytes that are no value of the expected type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message of the NIC proxy is corrupt: no {0} where one is expected")]
pub(super) struct Corrupt(pub(super) &'static str);

type Taken<T> = Result<T, Corrupt>;

/// A value on the stream.
pub(super) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut &[u8]) -> Taken<Self>;
}

macro_rules! wire_int {
    ($($int:ty)*) => { $(
        impl Wire for $int {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut &[u8]) -> Taken<Self> {
                let (bytes, rest) = from.split_first_chunk().ok_or(Corrupt("number"))?;
                *from = rest;
                Ok(<$int>::from_le_bytes(*bytes))
            }
        }
    )* };
}
wire_int!(u8 u16 u32 u64 i32);

/// Structs, field by field. One that may get more fields starts from a value, `new => Name { .. }`, and a test
/// compares its fields with those here, as the compiler does for the others.
macro_rules! wire_struct {
    ($($name:ident { $($field:ident)* })*) => { $(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $( self.$field.put(out); )*
            }
            fn take(from: &mut &[u8]) -> Taken<Self> {
                Ok($name { $( $field: Wire::take(from)? ),* })
            }
        }
    )* };
    ($new:expr => $name:ident { $($field:ident)* }) => {
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $( self.$field.put(out); )*
            }
            fn take(from: &mut &[u8]) -> Taken<Self> {
                let mut value = $new;
                $( value.$field = Wire::take(from)?; )*
                Ok(value)
            }
        }

        #[cfg(test)]
        impl tests::Fields for $name {
            const FIELDS: &[&str] = &[$( stringify!($field) ),*];
        }
    };
}
pub(super) use wire_struct;

wire_struct! {
    DeviceAttr::named(String::new()) => DeviceAttr {
        name firmware guid vendor part revision ports pd_max ah_max mcast_max mcast_attach_max qp_max qp_wr_max sge_max cq_max
        cqe_max mr_max mr_len_max srq_max srq_wr_max srq_sge_max rd_atomic_max atomics inline_max
        message_len_max
    }
}
wire_struct! {
    PortAttr::default() => PortAttr { state link_layer mtu_max mtu rate_mbps lid gids pkeys }
}
wire_struct! {
    AhAttr::to(Gid::default()) => AhAttr {
        gid port gid_index hop_limit traffic_class flow_label lid service_level
    }
}
wire_struct! { CqInit::new(0) => CqInit { depth channel ignores_overrun } }
wire_struct! { SrqInit::new(PdNum(0), 0, 0) => SrqInit { pd wr_max sge_max } }
wire_struct! {
    QpInit::new(PdNum(0), Transport::Rc, CqNum(0), CqNum(0)) => QpInit {
        pd transport send_cq recv_cq srq lent_recvs caps signal_all blocks_own_multicast
    }
}
wire_struct! {
    QpAttr::default() => QpAttr {
        state access pkey_index port qkey path dest_qpn path_mtu rq_psn sq_psn rd_atomic_max
        dest_rd_atomic_max min_rnr_timer timeout retry_count rnr_retry
    }
}
wire_struct! {
    RemoteAddr { addr rkey }
    GidEntry { gid kind interface }
    QpCaps { send_wr_max recv_wr_max send_sge_max recv_sge_max inline_max }
    LentRecvs { count len }
    SendLimits { transport inline_max sge_max message_len_max }
    Dest { to hint }
    Sge { addr len lkey }
    UdDest { ah qpn qkey }
    Wc { id status opcode flags byte_len imm qpn src_qpn vendor_err }
    PostError { index reason }
    OwnedSend { id op payload flags to }
    OwnedRecv { id sges }
}

macro_rules! wire_number {
    ($($name:ident)*) => { $(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(from: &mut &[u8]) -> Taken<Self> {
                Wire::take(from).map($name)
            }
        }
    )* };
}
wire_number!(
    PdNum CqNum ChannelNum SrqNum AhNum QpNum Lkey Rkey Psn Qkey Pkey Guid Iova VendorErr
);

/// Enums: a tag, then the fields of the variant.
macro_rules! wire_enum {
    ($($name:ident {
        $( $tag:literal $variant:ident $(( $($item:ident)* ))? $({ $($field:ident)* })? )*
    })*) => { $(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( $name::$variant $(( $($item),* ))? $({ $($field),* })? => {
                        out.push($tag);
                        $( $( $item.put(out); )* )?
                        $( $( $field.put(out); )* )?
                    } )*
                    // Enums that may get more variants ask for this arm.
                    #[allow(unreachable_patterns)]
                    other => panic!("the NIC proxy has no encoding of {other:?}"),
                }
            }
            fn take(from: &mut &[u8]) -> Taken<Self> {
                Ok(match u8::take(from)? {
                    $( $tag => {
                        $( $( let $item = Wire::take(from)?; )* )?
                        $( $( let $field = Wire::take(from)?; )* )?
                        $name::$variant $(( $($item),* ))? $({ $($field),* })?
                    } )*
                    _ => return Err(Corrupt(stringify!($name))),
                })
            }
        }
    )* };
}
pub(super) use wire_enum;

wire_enum! {
    Transport { 0 Rc 1 Uc 2 Ud }
    QpState { 0 Reset 1 Init 2 Rtr 3 Rts 4 Sqd 5 Sqe 6 Err }
    Mtu { 0 B256 1 B512 2 B1024 3 B2048 4 B4096 }
    PortState { 0 Down 1 Init 2 Armed 3 Active }
    LinkLayer { 0 InfiniBand 1 Ethernet }
    GidKind { 0 InfiniBand 1 RoceV1 2 RoceV2 }
    AtomicScope { 0 None 1 Device 2 Global }
    Op {
        0 Send { imm }
        1 Write { remote imm }
        2 Read { remote }
        3 CompareSwap { remote expect swap }
        4 FetchAdd { remote add }
    }
    OwnedPayload { 0 Inline(bytes) 1 Gather(sges) }
    WcOpcode { 0 Send 1 Write 2 Read 3 CompareSwap 4 FetchAdd 5 Recv 6 RecvWriteImm }
    WcStatus {
        0 Success 1 LocLenErr 2 LocQpOpErr 3 LocEecOpErr 4 LocProtErr 5 WrFlushErr 6 MwBindErr
        7 BadRespErr 8 LocAccessErr 9 RemInvReqErr 10 RemAccessErr 11 RemOpErr 12 RetryExcErr
        13 RnrRetryExcErr 14 LocRddViolErr 15 RemInvRdReqErr 16 RemAbortErr 17 InvEecnErr
        18 InvEecStateErr 19 FatalErr 20 RespTimeoutErr 21 GeneralErr
    }
    CqError { 0 Overrun }
    AsyncEvent { 0 QpFatal(qp) 1 CqError(cq) 2 PeerGone(qp) }
    PostReason {
        0 QueueFull
        1 State(state)
        2 Operation(transport)
        3 InlineTooLong
        4 Payload
        5 TooManySges
        6 TooLong
        7 Address
        8 SharedReceiveQueue
        9 BatchFull
        10 LentRecvs
    }
    VerbsError {
        0 Limit { what value max }
        1 Exhausted { what max }
        2 Invalid { what why }
        3 NoSuch { what number }
        4 Transition { transport from to }
        5 MissingAttribute { from to attribute }
        6 UnexpectedAttribute { from to attribute }
        7 Busy { what }
        8 Unreachable { peer why }
        9 Unsupported { what }
        10 Io { what source }
    }
}

macro_rules! wire_flags {
    ($($name:ident)*) => { $(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.bits().put(out);
            }
            fn take(from: &mut &[u8]) -> Taken<Self> {
                $name::from_bits(Wire::take(from)?).ok_or(Corrupt(stringify!($name)))
            }
        }
    )* };
}
wire_flags!(Access SendFlags WcFlags);

impl Wire for () {
    fn put(&self, _: &mut Vec<u8>) {}
    fn take(_: &mut &[u8]) -> Taken<Self> {
        Ok(())
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(from: &mut &[u8]) -> Taken<Self> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Corrupt("truth value")),
        }
    }
}

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }
    fn take(from: &mut &[u8]) -> Taken<Self> {
        usize::try_from(u64::take(from)?).map_err(|_| Corrupt("size"))
    }
}

impl Wire for Gid {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(from: &mut &[u8]) -> Taken<Self> {
        let (bytes, rest) = from.split_first_chunk().ok_or(Corrupt("GID"))?;
        *from = rest;
        Ok(Gid(*bytes))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|item| item.put(out));
    }
    fn take(from: &mut &[u8]) -> Taken<Self> {
        let count = usize::take(from)?;
        (0..count).map(|_| T::take(from)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }
    fn take(from: &mut &[u8]) -> Taken<Self> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }
    fn take(from: &mut &[u8]) -> Taken<Self> {
        Ok(match bool::take(from)? {
            true => Ok(T::take(from)?),
            false => Err(E::take(from)?),
        })
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().to_vec().put(out);
    }
    fn take(from: &mut &[u8]) -> Taken<Self> {
        String::from_utf8(Vec::take(from)?).map_err(|_| Corrupt("text"))
    }
}

impl Wire for &'static str {
    fn put(&self, out: &mut Vec<u8>) {
        String::from(*self).put(out);
    }
    /// Errors name their subject by a constant, so that there are few of them to keep for ever.
    fn take(from: &mut &[u8]) -> Taken<Self> {
        static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let text = String::take(from)?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match known.get(text.as_str()) {
            Some(text) => text,
            None => {
                let text: &'static str = text.leak();
                known.insert(text);
                text
            }
        })
    }
}

impl Wire for std::io::Error {
    fn put(&self, out: &mut Vec<u8>) {
        self.raw_os_error().put(out);
        self.to_string().put(out);
    }
    fn take(from: &mut &[u8]) -> Taken<Self> {
        let (code, text): (Option<i32>, _) = (Wire::take(from)?, String::take(from)?);
        Ok(match code {
            Some(code) => std::io::Error::from_raw_os_error(code),
            None => std::io::Error::other(text),
        })
    }
}

/// A send work request with its bytes.
#[derive(Clone, Debug)]
pub(super) struct OwnedSend {
    pub(super) id: u64,
    pub(super) op: Op,
    pub(super) payload: OwnedPayload,
    pub(super) flags: SendFlags,
    pub(super) to: Option<UdDest>,
}

#[derive(Clone, Debug)]
pub(super) enum OwnedPayload {
    Inline(Vec<u8>),
    Gather(Vec<Sge>),
}

impl OwnedSend {
    pub(super) fn copy(wr: &SendWr<'_>) -> OwnedSend {
        OwnedSend {
            id: wr.id,
            op: wr.op,
            payload: match wr.payload {
                Payload::Inline(bytes) => OwnedPayload::Inline(bytes.to_vec()),
                Payload::InlineParts(parts) => OwnedPayload::Inline(parts.concat()),
                Payload::Gather(sges) => OwnedPayload::Gather(sges.to_vec()),
            },
            flags: wr.flags,
            to: wr.to,
        }
    }

    pub(super) fn borrow(&self) -> SendWr<'_> {
        SendWr {
            id: self.id,
            op: self.op,
            payload: match &self.payload {
                OwnedPayload::Inline(bytes) => Payload::Inline(bytes),
                OwnedPayload::Gather(sges) => Payload::Gather(sges),
            },
            flags: self.flags,
            to: self.to,
        }
    }
}

/// A RECV with its elements.
#[derive(Clone, Debug)]
pub(super) struct OwnedRecv {
    pub(super) id: u64,
    pub(super) sges: Vec<Sge>,
}

impl OwnedRecv {
    pub(super) fn copy(wr: &RecvWr<'_>) -> OwnedRecv {
        OwnedRecv {
            id: wr.id,
            sges: wr.sges.to_vec(),
        }
    }

    pub(super) fn borrow(&self) -> RecvWr<'_> {
        RecvWr {
            id: self.id,
            sges: &self.sges,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// The fields that go through the codec.
    pub(super) trait Fields {
        const FIELDS: &[&str];
    }

    /// The names of a struct's own fields, which its derived `Debug` has all of, each on a line that is indented once.
    fn fields_of(value: &impl Debug) -> Vec<String> {
        let text = format!("{value:#?}");
        let name = |line: &str| {
            let field = line.strip_prefix("    ")?;
            let (name, _) = field.split_once(": ")?;
            (!name.starts_with(' ')).then(|| name.to_string())
        };
        text.lines().filter_map(name).collect()
    }

    /// All fields go through.
    #[track_caller]
    fn goes_through<T: Wire + Fields + Debug>(value: &T) {
        let (mut all, mut coded) = (fields_of(value), T::FIELDS.to_vec());
        all.sort();
        coded.sort_unstable();
        assert_eq!(coded, all);
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        let mut from = bytes.as_slice();
        let taken = T::take(&mut from).expect("a value");
        assert!(from.is_empty());
        assert_eq!(format!("{taken:?}"), format!("{value:?}"));
    }

    #[test]
    fn every_field_of_what_may_get_more_goes_through() {
        let mut cq = CqInit::new(7).on(ChannelNum(3));
        cq.ignores_overrun = true;
        goes_through(&cq);
        goes_through(&SrqInit::new(PdNum(1), 2, 3));
        let mut qp = QpInit::new(PdNum(1), Transport::Uc, CqNum(2), CqNum(3));
        qp.srq = Some(SrqNum(4));
        qp.lent_recvs = Some(LentRecvs { count: 5, len: 6 });
        qp.signal_all = true;
        goes_through(&qp);
        goes_through(&DeviceAttr::named("device"));
        goes_through(&PortAttr::active(Gid([1; 16]), Mtu::B4096));
        goes_through(&AhAttr::to(Gid([2; 16])));
        goes_through(&QpAttr::to(QpState::Rts));
    }
}
