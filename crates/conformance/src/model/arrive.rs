//! What arrives at a receiver: messages of all transports, and the RECVs that they consume.

use std::fmt;
use std::ops::Range;

use super::cause::{Cause, End};
use super::world::{Place, Receive, World};
use verbs::attr::{Access, Transport};
use verbs::names::{Gid, QpNum, RemoteAddr};
use verbs::wc::{Wc, WcFlags, WcOpcode};
use verbs::wr::{GRH_LEN, UdDest};

/// What became of a message at its receiver.
pub(super) enum Arrival {
    Taken,
    NoRecv,
    TooLong,
    BadBuffer,
}

/// A message of an unreliable transport. It does not need its sender any more.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) place: Place,
    pub(super) gid: Gid,
    pub(super) to: Place,
    pub(super) body: Body,
    pub(super) imm: Option<u32>,
    pub(super) solicited: bool,
    pub(super) bytes: Vec<u8>,
    /// So many bytes have landed.
    pub(super) landed: usize,
    /// Its end is lost.
    pub(super) is_cut: bool,
}

/// What a message is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// A WRITE over UC.
    Write { remote: RemoteAddr },
    /// A SEND over UC.
    Send,
    /// A datagram.
    Datagram { to: UdDest, gid: Gid },
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.body {
            Body::Write { .. } => "WRITE",
            Body::Send => "SEND",
            Body::Datagram { .. } => "datagram",
        };
        let (from, to, len) = (self.place, self.to, self.bytes.len());
        write!(
            f,
            "{what} of {len} bytes {}/{:#x} > {}/{:#x}",
            from.0, from.1, to.0, to.1
        )?;
        match self.imm {
            Some(imm) => write!(f, " imm {imm:#x}"),
            None => Ok(()),
        }
    }
}

impl World {
    /// Whether `to` is a connected queue pair that hears `from`.
    pub(super) fn hears(&self, to: Place, gid: Gid, from: Place, transport: Transport) -> bool {
        self.qp(to).is_some_and(|qp| {
            let attr = qp.machine.attr();
            attr.dest_gid() == Some(gid)
                && attr.dest_qpn == Some(QpNum(from.1))
                && qp.init.transport == transport
                && qp.machine.receives()
        })
    }

    /// Has a message land as a whole.
    pub(super) fn land_whole(&mut self, mut message: Message) {
        let len = message.bytes.len();
        // What an unreliable receiver does not take is lost.
        self.land(&mut message, len);
    }

    /// Has a message land up to this byte; `false` when it is lost.
    pub(super) fn land(&mut self, message: &mut Message, until: usize) -> bool {
        let to = message.to;
        match message.body {
            Body::Datagram { to: dest, gid } => return self.land_datagram(message, dest, gid),
            _ if !self.hears(to, message.gid, message.place, Transport::Uc) => return false,
            Body::Send => {}
            Body::Write { .. } => {
                let has_imm = message.imm.is_some();
                if message.landed == 0 && has_imm && self.first_recv(to).is_none() {
                    return false;
                }
                if until > 0 && !self.place_bytes(message, message.landed..until) {
                    return false;
                }
                message.landed = until;
                if until < message.bytes.len() || message.is_cut || !has_imm {
                    return true;
                }
            }
        }
        let is_write = matches!(message.body, Body::Write { .. });
        let wc = Wc {
            opcode: if is_write {
                WcOpcode::RecvWriteImm
            } else {
                WcOpcode::Recv
            },
            flags: message.imm.map_or(WcFlags::empty(), |_| WcFlags::WITH_IMM),
            byte_len: message.bytes.len() as u32,
            imm: message.imm.unwrap_or(0),
            ..Wc::default()
        };
        let bytes = if is_write { &[] } else { &message.bytes[..] };
        matches!(
            self.arrive(to, bytes, wc, message.solicited),
            Arrival::Taken
        )
    }

    /// Places bytes of a WRITE, whose whole range must be in reach.
    pub(super) fn place_bytes(&self, message: &Message, range: Range<usize>) -> bool {
        let Body::Write { remote } = message.body else {
            return false;
        };
        let (need, len) = (Access::REMOTE_WRITE, message.bytes.len() as u64);
        match self.remote_region(message.to, remote.rkey, need, remote.addr, len) {
            Some((memory, offset)) => {
                memory.write(offset + range.start, &message.bytes[range]);
                true
            }
            None => false,
        }
    }

    fn land_datagram(&mut self, message: &Message, to: UdDest, gid: Gid) -> bool {
        let wanted = self.qp(message.to).is_some_and(|qp| {
            qp.init.transport == Transport::Ud
                && qp.machine.receives()
                && qp.machine.attr().qkey == Some(to.qkey)
                && (!gid.is_multicast() || qp.groups.contains(&gid))
        });
        let Some(recv) = self.first_recv(message.to).filter(|_| wanted) else {
            return false;
        };
        if recv.room() < (GRH_LEN + message.bytes.len()) as u64 {
            return false;
        }
        let mut bytes = grh(message.gid, gid, message.bytes.len()).to_vec();
        bytes.extend_from_slice(&message.bytes);
        let imm = message.imm;
        let mut flags = WcFlags::GRH;
        flags.set(WcFlags::GRH_IPV6, bytes[0] >> 4 == 6);
        flags.set(WcFlags::WITH_IMM, imm.is_some());
        let wc = Wc {
            opcode: WcOpcode::Recv,
            flags,
            byte_len: bytes.len() as u32,
            imm: imm.unwrap_or(0),
            src_qpn: QpNum(message.place.1),
            ..Wc::default()
        };
        matches!(
            self.arrive(message.to, &bytes, wc, message.solicited),
            Arrival::Taken
        )
    }

    /// The RECV that the next message would consume.
    pub(super) fn first_recv(&self, peer: Place) -> Option<&Receive> {
        let qp = self.qp(peer)?;
        match qp.init.srq {
            Some(srq) => self.nodes[peer.0].srqs.get(&srq.0)?.recvs.front(),
            None => qp.recvs.front(),
        }
    }

    fn take_recv(&mut self, peer: Place) -> Option<Receive> {
        match self.qp(peer)?.init.srq {
            Some(srq) => {
                let srq = self.nodes[peer.0].srqs.get_mut(&srq.0)?;
                srq.recvs.pop_front()
            }
            None => self.qp_mut(peer)?.recvs.pop_front(),
        }
    }

    /// Consumes a RECV of `peer` with a message.
    pub(super) fn arrive(
        &mut self,
        peer: Place,
        message: &[u8],
        mut wc: Wc,
        solicited: bool,
    ) -> Arrival {
        let (Some(recv), Some(qp)) = (self.take_recv(peer), self.qp(peer)) else {
            return Arrival::NoRecv;
        };
        let pd = qp.init.pd.0;
        wc.id = recv.id;
        let arrival = if recv.room() < message.len() as u64 {
            End::Failed(Cause::RecvRoom).note(&mut wc);
            Arrival::TooLong
        } else if recv.lent.is_some() {
            Arrival::Taken
        } else if !message.is_empty() && !self.scatter(peer.0, pd, &recv.sges, message) {
            End::Failed(Cause::RecvMemory).note(&mut wc);
            Arrival::BadBuffer
        } else {
            Arrival::Taken
        };
        let failed = !wc.is_ok();
        let is_lent = recv.lent.is_some() && !failed && wc.opcode == WcOpcode::Recv;
        let lent = is_lent.then(|| message.to_vec());
        self.complete_recv(peer, wc, solicited, &recv, lent);
        if failed {
            self.fail(peer, false);
        }
        arrival
    }
}

/// The global route header of a datagram: for IPv4 addresses 20 bytes of nothing and an IPv4
/// header (InfiniBand annex A17.4.5.1).
fn grh(from: Gid, to: Gid, len: usize) -> [u8; GRH_LEN] {
    let mut header = [0; GRH_LEN];
    if let (Some(from), Some(to)) = (from.ipv4(), to.ipv4()) {
        // BTH, DETH and ICRC are part of what the IPv4 header counts, as are it and UDP's.
        let total = (20 + 8 + 12 + 8 + len + 4) as u16;
        header[20] = 0x45;
        header[22..24].copy_from_slice(&total.to_be_bytes());
        header[28] = 64;
        header[29] = 17;
        header[32..36].copy_from_slice(&from.octets());
        header[36..40].copy_from_slice(&to.octets());
    } else {
        header[0] = 0x60;
        header[8..24].copy_from_slice(&from.0);
        header[24..40].copy_from_slice(&to.0);
    }
    header
}
