//! Which operation goes on which transport, with which payload and which access.
//!
//! | | SEND/RECV | WRITE | READ | atomics |
//! | --- | --- | --- | --- | --- |
//! | RC | yes | yes | yes | yes |
//! | UC | yes | yes | | |
//! | UD | yes | | | |
//!
//! Memory windows are bound over RC and UC, and a SEND takes a peer's key away over RC.
//!
//! Source: HERD (SIGCOMM'14), Table 1, with READ and atomics on RC only.

use std::ptr::NonNull;

use crate::attr::{Access, AhAttr, PortAttr, QpAttr, Transport};
use crate::batch::SendLimits;
use crate::error::{PostReason, VerbsError};
use crate::names::{Gid, Iova};
use crate::wr::{Op, Payload, SendWr};

/// Whether a transport carries an operation.
#[inline]
pub fn carries(transport: Transport, op: &Op) -> bool {
    match op {
        Op::Send { .. } => true,
        Op::Write { .. } => transport != Transport::Ud,
        Op::BindWindow(_) | Op::LocalInvalidate { .. } => transport != Transport::Ud,
        Op::Read { .. }
        | Op::CompareSwap { .. }
        | Op::FetchAdd { .. }
        | Op::SendInvalidate { .. } => transport == Transport::Rc,
    }
}

/// The access that the peer's region and queue pair must grant for an operation.
#[inline]
pub fn remote_access(op: &Op) -> Access {
    match op {
        Op::Send { .. }
        | Op::SendInvalidate { .. }
        | Op::BindWindow(_)
        | Op::LocalInvalidate { .. } => Access::empty(),
        Op::Write { .. } => Access::REMOTE_WRITE,
        Op::Read { .. } => Access::REMOTE_READ,
        Op::CompareSwap { .. } | Op::FetchAdd { .. } => Access::REMOTE_ATOMIC,
    }
}

/// Checks an address vector: its port by asking `port`, its GID index by that port's table, its
/// numbers by the bits that they have in a packet.
///
/// # Errors
/// `port`'s; `NoSuch` for the GID index, `Invalid` for a number with too many bits.
pub fn check_path(
    path: &AhAttr,
    port: impl FnOnce(u8) -> Result<PortAttr, VerbsError>,
) -> Result<(), VerbsError> {
    if usize::from(path.gid_index) >= port(path.port)?.gids.len() {
        let (what, number) = ("GID index", u64::from(path.gid_index));
        return Err(VerbsError::NoSuch { what, number });
    }
    if path.flow_label >= 1 << 20 {
        let why = "it has more than 20 bits";
        return Err(VerbsError::invalid("flow label", why));
    }
    if path.service_level >= 1 << 4 {
        let why = "it has more than 4 bits";
        return Err(VerbsError::invalid("service level", why));
    }
    Ok(())
}

/// Checks that a queue pair can be in a multicast group.
///
/// # Errors
/// `Invalid`.
pub fn check_mcast(transport: Transport, group: Gid) -> Result<(), VerbsError> {
    let why = match (transport, group.is_multicast()) {
        (Transport::Ud, true) => return Ok(()),
        (Transport::Ud, false) => "its address is that of a single port",
        _ => "only datagrams go to groups",
    };
    Err(VerbsError::invalid("multicast group", why))
}

/// Checks what a queue pair's attributes name of its port, found by asking `port`: the port itself,
/// the partition, the path's own address.
///
/// # Errors
/// As [`check_path`]; `NoSuch` for the P_Key index.
pub fn check_names(
    attr: &QpAttr,
    own_port: Option<u8>,
    port: impl Fn(u8) -> Result<PortAttr, VerbsError>,
) -> Result<(), VerbsError> {
    let own_port = attr.port.or(own_port).map(&port).transpose()?;
    if let (Some(index), Some(own)) = (attr.pkey_index, &own_port)
        && usize::from(index) >= own.pkeys.len()
    {
        let (what, number) = ("P_Key index", u64::from(index));
        return Err(VerbsError::NoSuch { what, number });
    }
    attr.path.map_or(Ok(()), |path| check_path(&path, port))
}

/// Checks the READs and atomics that a queue pair is to have under way, as initiator and as
/// responder, against what the device has.
///
/// # Errors
/// `Limit`.
pub fn check_depths(attr: &QpAttr, rd_atomic_max: u8) -> Result<(), VerbsError> {
    let depths = [
        ("rd_atomic_max", attr.rd_atomic_max),
        ("dest_rd_atomic_max", attr.dest_rd_atomic_max),
    ];
    for (what, depth) in depths {
        if let Some(depth) = depth.filter(|depth| *depth > rd_atomic_max) {
            let (value, max) = (u64::from(depth), u64::from(rd_atomic_max));
            return Err(VerbsError::Limit { what, value, max });
        }
    }
    Ok(())
}

/// Checks the addresses that a region of `len` bytes at `start` is to have: they do not wrap around,
/// and lie in pages of 4096 bytes as the memory does, so that what is aligned in one is in the other.
/// Linux demands it of every registration.
///
/// # Errors
/// `Invalid`.
pub fn check_iova(start: NonNull<u8>, len: usize, iova: Iova) -> Result<(), VerbsError> {
    check_range(Iova::of(start).0, len, iova)
}

/// As [`check_iova`], of an address at which there need not be any memory.
///
/// # Errors
/// `Invalid`.
pub fn check_range(start: u64, len: usize, iova: Iova) -> Result<(), VerbsError> {
    const PAGE: u64 = 4096;
    if start % PAGE != iova.0 % PAGE {
        let why = "it is not as far from the beginning of a page as the memory";
        return Err(VerbsError::invalid("I/O address", why));
    }
    let wraps = |addr: u64| addr.checked_add(len as u64).is_none();
    if wraps(iova.0) || wraps(start) {
        let why = "it wraps around the address space";
        return Err(VerbsError::invalid("memory region", why));
    }
    Ok(())
}

/// Checks a send work request against its transport and queue pair: everything that does not
/// depend on memory or on the peer. Returns the payload's length in bytes.
///
/// # Errors
/// Why no queue with these limits takes it.
#[inline]
pub fn check(limits: &SendLimits, wr: &SendWr<'_>) -> Result<u32, PostReason> {
    let len = wr.payload.len();
    let (inline, sges) = match wr.payload {
        Payload::Gather(sges) => (false, sges.len()),
        Payload::Inline(_) | Payload::InlineParts(_) => (true, 0),
    };
    check_shape(limits, &wr.op, wr.to.is_some(), inline, sges, len)?;
    Ok(len as u32)
}

/// As [`check`], for a request that is not composed yet: `len` bytes inline, or in `sges` elements.
///
/// # Errors
/// As there.
#[inline(always)]
pub fn check_shape(
    limits: &SendLimits,
    op: &Op,
    has_dest: bool,
    inline: bool,
    sges: usize,
    len: usize,
) -> Result<(), PostReason> {
    let transport = limits.transport;
    if !carries(transport, op) {
        return Err(PostReason::Operation(transport));
    }
    if has_dest != (transport == Transport::Ud) {
        return Err(PostReason::Address);
    }
    if inline {
        if matches!(op, Op::Read { .. }) {
            return Err(PostReason::Payload);
        }
        if len > limits.inline_max as usize {
            return Err(PostReason::InlineTooLong);
        }
    } else if sges > limits.sge_max as usize {
        return Err(PostReason::TooManySges);
    }
    let is_atomic = matches!(op, Op::CompareSwap { .. } | Op::FetchAdd { .. });
    if is_atomic && (inline || sges != 1 || len != 8) {
        return Err(PostReason::Payload);
    }
    let has_no_bytes = matches!(op, Op::BindWindow(_) | Op::LocalInvalidate { .. });
    if has_no_bytes && (inline || sges != 0) {
        return Err(PostReason::Payload);
    }
    if len > limits.message_len_max as usize {
        return Err(PostReason::TooLong);
    }
    Ok(())
}

/// Whether access flags make sense together: remote writing and atomics need local writing.
pub fn access_is_consistent(access: Access) -> bool {
    access.contains(Access::LOCAL_WRITE)
        || !access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::RemoteAddr;

    #[test]
    fn table_1_holds() {
        let remote = RemoteAddr::default();
        let ops = [
            (Op::Send { imm: None }, [true, true, true]),
            (Op::Send { imm: Some(1) }, [true, true, true]),
            (Op::Write { remote, imm: None }, [true, true, false]),
            (
                Op::Write {
                    remote,
                    imm: Some(1),
                },
                [true, true, false],
            ),
            (Op::Read { remote }, [true, false, false]),
            (
                Op::CompareSwap {
                    remote,
                    expect: 0,
                    swap: 0,
                },
                [true, false, false],
            ),
            (Op::FetchAdd { remote, add: 0 }, [true, false, false]),
            (
                Op::SendInvalidate { rkey: remote.rkey },
                [true, false, false],
            ),
            (
                Op::LocalInvalidate { rkey: remote.rkey },
                [true, true, false],
            ),
        ];
        for (op, expected) in ops {
            let got = [Transport::Rc, Transport::Uc, Transport::Ud].map(|t| carries(t, &op));
            assert_eq!(got, expected, "{op:?}");
        }
    }

    #[test]
    fn remote_writing_needs_local_writing() {
        assert!(!access_is_consistent(Access::REMOTE_WRITE));
        assert!(!access_is_consistent(Access::REMOTE_ATOMIC));
        assert!(access_is_consistent(Access::REMOTE_READ));
        assert!(access_is_consistent(
            Access::REMOTE_WRITE | Access::LOCAL_WRITE
        ));
    }
}
