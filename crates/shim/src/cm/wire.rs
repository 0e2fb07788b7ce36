//! Messages between two processes' connection managers: one of a seqpacket socket each, which is of one connection.
//!
//! ```text
//! caller                        listener
//!   | -- Request --------------> |
//!   | <-------- Reply or Reject  |   for datagrams, that is all
//!   | -- Ready ----------------> |
//!   | <-- Disconnect from either |   answered by closing the socket
//! ```
//!
//! A side that is gone closes the socket as well. Numbers are little-endian.

use std::net::SocketAddr;

use verbs::Gid;

use super::abi::{ConnParam, PRIVATE_MAX, Private};
use super::addresses;

/// Of this form of the messages.
const MAGIC: u32 = u32::from_le_bytes(*b"VCM1");
/// No message is longer.
pub(super) const LEN_MAX: usize = 512;

/// Where a side's queue pair is, and what it offers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Side {
    pub(super) gid: Gid,
    /// Of its first packet.
    pub(super) psn: u32,
    pub(super) param: ConnParam,
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// Asks for a connection, or for a queue pair to send datagrams to.
    Request {
        from: SocketAddr,
        to: SocketAddr,
        is_datagram: bool,
        side: Side,
    },
    Reply(Side),
    /// Asks for nothing more: with a reason of InfiniBand's.
    Reject {
        reason: u32,
        private: Private,
    },
    /// The caller's queue pair can receive.
    Ready,
    Disconnect,
}

impl Message {
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut out = MAGIC.to_le_bytes().to_vec();
        match self {
            Message::Request {
                from,
                to,
                is_datagram,
                side,
            } => {
                out.push(1);
                put_address(&mut out, *from);
                put_address(&mut out, *to);
                out.push((*is_datagram).into());
                put_side(&mut out, side);
            }
            Message::Reply(side) => {
                out.push(2);
                put_side(&mut out, side);
            }
            Message::Reject { reason, private } => {
                out.push(3);
                out.extend(reason.to_le_bytes());
                out.extend(private.bytes());
            }
            Message::Ready => out.push(4),
            Message::Disconnect => out.push(5),
        }
        debug_assert!(out.len() <= LEN_MAX);
        out
    }

    /// None for what no connection manager sends.
    pub(super) fn parse(bytes: &[u8]) -> Option<Message> {
        let mut from = Reader(bytes);
        if from.u32()? != MAGIC {
            return None;
        }
        let message = match from.u8()? {
            1 => Message::Request {
                from: from.address()?,
                to: from.address()?,
                is_datagram: from.u8()? != 0,
                side: from.side()?,
            },
            2 => Message::Reply(from.side()?),
            3 => Message::Reject {
                reason: from.u32()?,
                private: from.private()?,
            },
            4 => Message::Ready,
            5 => Message::Disconnect,
            _ => return None,
        };
        from.0.is_empty().then_some(message)
    }
}

/// As long as a `struct sockaddr_in6`, whichever it is.
const ADDRESS_LEN: usize = 28;

fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    let mut bytes = addresses::emit(address);
    bytes.resize(ADDRESS_LEN, 0);
    out.extend(bytes);
}

/// Its private data comes last and says by its end how long it is.
fn put_side(out: &mut Vec<u8>, side: &Side) {
    let param = &side.param;
    out.extend(side.gid.0);
    for number in [side.psn, param.qp_num, param.qkey] {
        out.extend(number.to_le_bytes());
    }
    out.extend([
        param.srq,
        param.responder_resources,
        param.initiator_depth,
        param.flow_control,
        param.retry_count,
        param.rnr_retry_count,
    ]);
    out.extend(param.private.bytes());
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn address(&mut self) -> Option<SocketAddr> {
        addresses::parse(self.take(ADDRESS_LEN)?)
    }

    fn private(&mut self) -> Option<Private> {
        let bytes = self.take(self.0.len())?;
        (bytes.len() <= PRIVATE_MAX).then(|| Private::new(bytes))
    }

    fn side(&mut self) -> Option<Side> {
        let gid = Gid(self.take(16)?.try_into().ok()?);
        Some(Side {
            gid,
            psn: self.u32()? & 0xff_ffff,
            param: ConnParam {
                qp_num: self.u32()? & 0xff_ffff,
                qkey: self.u32()?,
                srq: self.u8()?,
                responder_resources: self.u8()?,
                initiator_depth: self.u8()?,
                flow_control: self.u8()?,
                retry_count: self.u8()?,
                rnr_retry_count: self.u8()?,
                private: self.private()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let param = ConnParam {
            qp_num: 77,
            qkey: 0x0123_4567,
            private: Private::new(b"hello"),
            responder_resources: 3,
            initiator_depth: 4,
            ..ConnParam::default()
        };
        let side = Side {
            gid: Gid([9; 16]),
            psn: 0x00ab_cdef,
            param,
        };
        vec![
            Message::Request {
                from: "127.0.0.1:4000".parse().expect("an address"),
                to: "[::1]:7471".parse().expect("an address"),
                is_datagram: true,
                side: side.clone(),
            },
            Message::Reply(side),
            Message::Reject {
                reason: 28,
                private: Private::new(&[]),
            },
            Message::Ready,
            Message::Disconnect,
        ]
    }

    #[test]
    fn messages_come_back() {
        for message in messages() {
            assert_eq!(Message::parse(&message.emit()), Some(message));
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_no_other_message_and_no_crash() {
        for message in messages() {
            let bytes = message.emit();
            for len in 0..bytes.len() {
                assert_ne!(Message::parse(&bytes[..len]).as_ref(), Some(&message));
            }
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 0xff;
                // Some of it is data.
                let _ = Message::parse(&changed);
            }
        }
        assert_eq!(Message::parse(&[0; LEN_MAX]), None);
    }
}
