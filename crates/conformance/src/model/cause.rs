//! Why the reference NIC fails requests: the vendor errors of its completions.

use verbs::names::VendorErr;
use verbs::wc::{Wc, WcStatus};

/// Why a request failed. Its number is the completion's vendor error.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum Cause {
    /// A local element names memory that may not be used so.
    LocalElement = 1,
    /// The address handle is none of the queue pair's protection domain, or the queue pair is gone.
    NoHandle = 2,
    /// The peer's memory may not be used so.
    RemoteRange = 3,
    /// The address of an atomic is not aligned.
    Misaligned = 4,
    /// The message is longer than the peer's RECV.
    PeerRecvRoom = 5,
    /// The peer's RECV names memory that may not be used so.
    PeerRecvMemory = 6,
    /// The peer does not answer.
    NoAnswer = 7,
    /// The peer has no RECV.
    NoRecv = 8,
    /// The message is longer than its RECV.
    RecvRoom = 9,
    /// The RECV names memory that may not be used so.
    RecvMemory = 10,
    /// There is no such window: this NIC has none.
    Window = 11,
}

impl Cause {
    fn status(self) -> WcStatus {
        match self {
            Cause::LocalElement | Cause::RecvMemory => WcStatus::LocProtErr,
            Cause::NoHandle => WcStatus::LocQpOpErr,
            Cause::Window => WcStatus::MwBindErr,
            Cause::RemoteRange => WcStatus::RemAccessErr,
            Cause::Misaligned | Cause::PeerRecvRoom => WcStatus::RemInvReqErr,
            Cause::PeerRecvMemory => WcStatus::RemOpErr,
            Cause::NoAnswer => WcStatus::RetryExcErr,
            Cause::NoRecv => WcStatus::RnrRetryExcErr,
            Cause::RecvRoom => WcStatus::LocLenErr,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// Carried out, with this many bytes read or swapped.
    Done(u32),
    Failed(Cause),
    Flushed,
}

impl End {
    /// Says so in a completion.
    pub(super) fn note(self, wc: &mut Wc) {
        match self {
            End::Done(len) => wc.byte_len = len,
            End::Failed(cause) => {
                (wc.status, wc.vendor_err) = (cause.status(), VendorErr(cause as u32));
            }
            End::Flushed => wc.status = WcStatus::WrFlushErr,
        }
    }
}
