//! Why this NIC failed requests, as completions say it in [`verbs::Wc::vendor_err`].

use verbs::{VendorErr, WcStatus};

/// Why a request failed. Its number is the completion's vendor error, so it keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Cause {
    /// No region here has the key of a local element.
    LocalKey = 0x01,
    /// A local element's region is of another protection domain.
    LocalDomain = 0x02,
    /// A local element lies outside its region.
    LocalRange = 0x03,
    /// The region of a local element may not be written.
    LocalRight = 0x04,
    /// The RECV named memory that it may not write when it was posted.
    RecvMemory = 0x05,
    /// The message is longer than its RECV.
    RecvRoom = 0x06,
    /// The queue pair leads nowhere.
    NotConnected = 0x07,
    /// The address handle is none of the queue pair's protection domain.
    NoHandle = 0x08,
    /// No window of this protection domain, or none bound over this queue pair, has the key.
    WindowKey = 0x09,
    /// The window is bound, and of the kind that is not bound anew before its key was taken away; or it is to be
    /// bound to nothing.
    WindowState = 0x0a,
    /// The window's region allows no windows, is not there, is of another protection domain or does not grant
    /// what the window would.
    WindowRegion = 0x0b,
    /// What the window is to cover lies outside its region.
    WindowRange = 0x0c,
    /// The pages of a local element are not there, or not for that use.
    LocalPages = 0x0d,
    /// No region of the peer has the key, or none that others may reach.
    RemoteKey = 0x11,
    /// The peer's region is of another protection domain than its queue pair.
    RemoteDomain = 0x12,
    /// The range is not inside the peer's region.
    RemoteRange = 0x13,
    /// The peer's region does not grant the operation.
    RemoteRight = 0x14,
    /// The peer's queue pair does not grant the operation.
    QueuePairRight = 0x15,
    /// The peer does not give the memory of its region, as to those to whom no queue pair of its domain
    /// leads, or what it gives is not what it described.
    RemoteMemory = 0x16,
    /// The pages of the peer's region are not there.
    RemotePages = 0x17,
    /// The address of an atomic is not aligned.
    Misaligned = 0x18,
    /// The word of an atomic is not aligned where it lies.
    OutOfAtomics = 0x19,
    /// The message is longer than the peer's RECV.
    PeerRecvRoom = 0x1a,
    /// The peer's RECV names memory that it may not write.
    PeerRecvMemory = 0x1b,
    /// The kernel failed to copy to or from the peer's memory, though it does so for this process.
    Kernel = 0x1c,
    /// The peer's process has gone.
    PeerGone = 0x21,
    /// The peer's queue pair takes no messages from this one.
    PeerNotReady = 0x22,
    /// The peer's process does not say where its memory is, or what has become of an operation that it alone can carry out.
    NoAnswer = 0x23,
    /// The connection on which the message began has ended.
    ConnectionEnded = 0x24,
    /// The peer has no RECV.
    NoRecv = 0x31,
}

impl Cause {
    /// The status that it completes with.
    pub const fn status(self) -> WcStatus {
        match self {
            Cause::LocalKey
            | Cause::LocalDomain
            | Cause::LocalRange
            | Cause::LocalRight
            | Cause::LocalPages
            | Cause::RecvMemory => WcStatus::LocProtErr,
            Cause::RecvRoom => WcStatus::LocLenErr,
            Cause::WindowKey | Cause::WindowState | Cause::WindowRegion | Cause::WindowRange => {
                WcStatus::MwBindErr
            }
            Cause::NotConnected | Cause::NoHandle => WcStatus::LocQpOpErr,
            Cause::RemoteKey
            | Cause::RemoteDomain
            | Cause::RemoteRange
            | Cause::RemoteRight
            | Cause::QueuePairRight
            | Cause::RemoteMemory
            | Cause::RemotePages => WcStatus::RemAccessErr,
            Cause::Misaligned | Cause::OutOfAtomics | Cause::PeerRecvRoom => WcStatus::RemInvReqErr,
            Cause::PeerRecvMemory | Cause::Kernel => WcStatus::RemOpErr,
            Cause::PeerGone | Cause::PeerNotReady | Cause::NoAnswer | Cause::ConnectionEnded => {
                WcStatus::RetryExcErr
            }
            Cause::NoRecv => WcStatus::RnrRetryExcErr,
        }
    }
}

impl From<Cause> for VendorErr {
    fn from(cause: Cause) -> Self {
        VendorErr(cause as u32)
    }
}
