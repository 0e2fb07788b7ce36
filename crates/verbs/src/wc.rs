//! Work completions: what comes out of a completion queue.

use crate::names::{QpNum, VendorErr};

/// How a work request ended. The names and their meaning are `ibv_wc_status`'.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, thiserror::Error)]
#[repr(u8)]
pub enum WcStatus {
    /// It was carried out.
    #[default]
    #[error("success")]
    Success = 0,
    /// The message is longer than the room for it: the RECV's buffer, or a READ's.
    #[error("local length error")]
    LocLenErr = 1,
    /// An internal inconsistency of the local queue pair.
    #[error("local queue pair operation error")]
    LocQpOpErr = 2,
    /// An internal inconsistency of an end-to-end context.
    #[error("local EE context operation error")]
    LocEecOpErr = 3,
    /// A local scatter/gather element names no registered memory, or memory without the access.
    #[error("local protection error")]
    LocProtErr = 4,
    /// The queue pair went to the error state before this request was carried out.
    #[error("flushed: the queue pair is in error")]
    WrFlushErr = 5,
    /// Binding a memory window failed.
    #[error("memory window bind error")]
    MwBindErr = 6,
    /// The responder's answer was not one it may give.
    #[error("bad response")]
    BadRespErr = 7,
    /// A local buffer was not accessible while a message with immediate data was received.
    #[error("local access error")]
    LocAccessErr = 8,
    /// The responder found the request invalid: too long for its RECV, or not enabled.
    #[error("remote invalid request")]
    RemInvReqErr = 9,
    /// The responder's memory may not be accessed like this: key, bounds or rights.
    #[error("remote access error")]
    RemAccessErr = 10,
    /// The responder could not carry the request out for a reason of its own.
    #[error("remote operation error")]
    RemOpErr = 11,
    /// The peer does not answer.
    #[error("transport retries exceeded: the peer does not answer")]
    RetryExcErr = 12,
    /// The peer has posted no RECV, again and again.
    #[error("receiver-not-ready retries exceeded: the peer has posted no RECV")]
    RnrRetryExcErr = 13,
    /// The local EE context and the remote one do not fit.
    #[error("local reliable datagram domain violation")]
    LocRddViolErr = 14,
    /// The responder got a request of another domain.
    #[error("remote invalid reliable datagram request")]
    RemInvRdReqErr = 15,
    /// The operation was aborted.
    #[error("remote aborted")]
    RemAbortErr = 16,
    /// The EE context number is not valid.
    #[error("invalid EE context number")]
    InvEecnErr = 17,
    /// The EE context is in a state that does not allow this.
    #[error("invalid EE context state")]
    InvEecStateErr = 18,
    /// The device failed.
    #[error("fatal device error")]
    FatalErr = 19,
    /// The response timed out.
    #[error("response timed out")]
    RespTimeoutErr = 20,
    /// Anything else.
    #[error("general error")]
    GeneralErr = 21,
}

/// What kind of work request completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[repr(u8)]
pub enum WcOpcode {
    /// A SEND.
    #[default]
    Send = 0,
    /// A WRITE.
    Write = 1,
    /// A READ.
    Read = 2,
    /// A compare-and-swap.
    CompareSwap = 3,
    /// A fetch-and-add.
    FetchAdd = 4,
    /// A RECV, consumed by a SEND.
    Recv = 5,
    /// A RECV, consumed by a WRITE with immediate data.
    RecvWriteImm = 6,
    /// A memory window was bound.
    BindWindow = 7,
    /// A window's key was taken away.
    LocalInvalidate = 8,
}

bitflags::bitflags! {
    /// Which fields of a completion mean something.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct WcFlags: u8 {
        /// `imm` holds immediate data.
        const WITH_IMM = 1;
        /// The buffer starts with a global route header (UD).
        const GRH = 1 << 1;
        /// `imm` holds the key that the message has taken away.
        const WITH_INV = 1 << 2;
        /// The global route header is an IPv6 header; without this an IPv4 header is its second half.
        const GRH_IPV6 = 1 << 3;
    }
}

/// A work completion. When `status` is not `Success`, only `id`, `status`, `vendor_err` and `qpn` mean
/// something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wc {
    /// The work request's `id`.
    pub id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Which fields mean something.
    pub flags: WcFlags,
    /// Bytes received, read or swapped; for UD with the 40 bytes of the global route header.
    pub byte_len: u32,
    /// Immediate data, with `WcFlags::WITH_IMM`; a key, with `WcFlags::WITH_INV`.
    pub imm: u32,
    /// The local queue pair.
    pub qpn: QpNum,
    /// The sender's queue pair (UD).
    pub src_qpn: QpNum,
    /// Why it failed, in the NIC's own numbers; 0 when it was carried out, was flushed, or the NIC
    /// does not say.
    pub vendor_err: VendorErr,
}

// A batch of completions is copied often.
const _: () = assert!(size_of::<Wc>() == 32);

impl Wc {
    /// Whether the work request was carried out.
    #[inline]
    pub fn is_ok(&self) -> bool {
        self.status == WcStatus::Success
    }

    /// The immediate data, if there was any.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        self.flags.contains(WcFlags::WITH_IMM).then_some(self.imm)
    }
}
