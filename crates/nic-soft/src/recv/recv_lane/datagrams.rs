//! Datagrams of a lane: with a header each, short, and lost where there is no room for them.

use verbs::wr::GRH_LEN;
use verbs::{
    Access, Gid, Polled, QpNum, Sge, Transport, VendorErr, Wc, WcFlags, WcOpcode, WcStatus, mem,
};

use super::{Left, RecvLane, Taken, Way, scatter};
use crate::contact::adapter::Adapter;
use crate::memory::mr;
use crate::shared::cause::Cause;
use crate::shared::lane::{self, Message};
use crate::shared::layout::IMM;
use crate::shared::recv_queue::Recv;

impl RecvLane {
    #[inline(always)]
    pub(super) fn takes_datagrams(&self) -> bool {
        self.qp.transport == Transport::Ud
            && matches!(self.way, Way::Short)
            && self.qp.takes_messages()
    }

    /// A datagram: into the next RECV, or nowhere.
    #[inline(always)]
    pub(super) fn datagram(
        &mut self,
        adapter: &Adapter,
        message: &Message,
        out: &mut Polled,
    ) -> Taken {
        if let Some(len_max) = self.qp.lent_len() {
            // What is longer than was agreed is lost.
            return match GRH_LEN + message.len as usize > len_max {
                true => Taken::Nothing,
                false if self.lender().lend(message, out) => Taken::Completed,
                false => Taken::Later(Left::Room),
            };
        }
        if !self.qp.next_recv(adapter, &mut self.recv) {
            adapter.count_unreceived();
            return Taken::Nothing;
        }
        let is_usual = matches!(self.recv.sges(), [sge] if self.put(adapter, message, sge));
        let put = match is_usual {
            true => Ok(()),
            false => self.scatter_datagram(adapter, message),
        };
        match put {
            Ok(()) => {
                let mut wc = self.completion(message, GRH_LEN + message.len as usize);
                wc.flags |= header_flags(&self.grh);
                out.push(wc);
                Taken::Completed
            }
            Err(Cause::RecvRoom) => {
                // A datagram longer than its RECV is lost, and the RECV is for the next one.
                self.qp.hold(self.recv);
                Taken::Nothing
            }
            Err(cause) => self.recv_failed(cause, out),
        }
    }

    /// Puts a datagram into an element that has room for all of it; false if it is none of ours, or has
    /// not.
    #[inline(always)]
    fn put(&self, adapter: &Adapter, message: &Message, sge: &Sge) -> bool {
        let len = message.len as usize;
        if GRH_LEN + len > sge.len as usize {
            return false;
        }
        let Some(to) = mr::local(adapter, self.qp.pd as u32, sge, Access::LOCAL_WRITE) else {
            return false;
        };
        // SAFETY: `local` has checked the element, and it has room for both parts.
        unsafe {
            mem::put(to, self.grh.as_ptr(), GRH_LEN);
            lane::copy_out(message, 0, to.add(GRH_LEN), len);
        }
        true
    }

    /// A datagram into a RECV of several elements, or none.
    #[inline(never)]
    fn scatter_datagram(&self, adapter: &Adapter, message: &Message) -> Result<(), Cause> {
        let parts = [
            (self.grh.as_ptr(), GRH_LEN),
            (message.payload, message.len as usize),
        ];
        scatter_parts(adapter, self.qp.pd as u32, &self.recv, &parts)
    }

    /// Moves datagrams into RECVs as long as each is the usual one, which has one element with room for
    /// all: the shortest way. As for [`lend_datagrams`](Self::lend_datagrams), whether the queue pair
    /// takes them was asked once.
    #[inline(always)]
    pub(super) fn take_datagrams(&mut self, adapter: &Adapter, out: &mut Polled) {
        let Some(recvs) = self.qp.usual_recvs() else {
            return;
        };
        let lender = self.lender();
        while !out.is_full()
            && let Some(message) = self.reader.peek_send()
            && let Some((id, sge)) = recvs.first_single()
            && self.put(adapter, &message, &sge)
        {
            recvs.take_first();
            out.push(Wc {
                id,
                ..lender.completion(&message)
            });
            self.reader.consume(&message);
        }
    }

    /// Lends datagrams as long as there are such, no longer than `len_max` with their header: the usual
    /// messages of a queue pair that lends, the shortest way. Whether it takes them was asked once:
    /// who changes the queue pair meanwhile waits for the poll's end.
    #[inline(never)]
    pub(super) fn lend_datagrams(&mut self, len_max: usize, out: &mut Polled) {
        let (lender, mut reader) = (self.lender(), self.reader.clone());
        let mut lending = out.lending();
        while let Some(message) = reader.peek_send()
            && GRH_LEN + message.len as usize <= len_max
            && let Some(room) = lending.push(lender.completion(&message))
        {
            lender.fill(&message, room);
            reader.consume(&message);
        }
        self.reader = reader;
    }

    #[inline(always)]
    fn lender(&self) -> Lender {
        Lender {
            qpn: QpNum(self.qp.num),
            src_qpn: QpNum(self.src_qpn),
            grh: self.grh,
        }
    }
}

/// What is the same for all datagrams of a lane.
struct Lender {
    qpn: QpNum,
    src_qpn: QpNum,
    grh: [u8; GRH_LEN],
}

impl Lender {
    /// Puts a datagram into the poller's own memory; false when there is no room for it now.
    #[inline(always)]
    fn lend(&self, message: &Message, out: &mut Polled) -> bool {
        let wc = self.completion(message);
        let Some(room) = out.lend(wc.byte_len as usize) else {
            return false;
        };
        self.fill(message, room);
        out.push_lent(wc);
        true
    }

    #[inline(always)]
    fn completion(&self, message: &Message) -> Wc {
        let mut flags = header_flags(&self.grh);
        flags.set(WcFlags::WITH_IMM, message.flags & IMM != 0);
        Wc {
            id: 0,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            flags,
            byte_len: (GRH_LEN + message.len as usize) as u32,
            imm: message.imm,
            qpn: self.qpn,
            src_qpn: self.src_qpn,
            vendor_err: VendorErr::default(),
        }
    }

    /// Puts a datagram into room of the length that its completion says.
    #[inline(always)]
    fn fill(&self, message: &Message, room: &mut [u8]) {
        let (header, payload) = room.split_at_mut(GRH_LEN);
        header.copy_from_slice(&self.grh);
        let len = message.len as usize;
        assert_eq!(payload.len(), len, "room of its length");
        // SAFETY: the room is the message's length.
        unsafe { lane::copy_out(message, 0, payload.as_mut_ptr(), len) };
    }
}

/// Scatters pieces one behind the other, or nothing if they do not fit.
fn scatter_parts(
    adapter: &Adapter,
    pd: u32,
    recv: &Recv,
    parts: &[(*const u8, usize)],
) -> Result<(), Cause> {
    let room: usize = recv.sges().iter().map(|sge| sge.len as usize).sum();
    if room < parts.iter().map(|(_, len)| len).sum() {
        return Err(Cause::RecvRoom);
    }
    let mut from = 0;
    for (source, len) in parts {
        scatter(adapter, pd, recv, from, *source, *len)?;
        from += len;
    }
    Ok(())
}

/// The global route header of a datagram: over IPv4 the first 20 bytes are zero and an IPv4 header
/// follows; otherwise an IPv6 header (RoCEv2 annex A17.9).
pub(super) fn grh(from: Gid, to: Gid) -> [u8; GRH_LEN] {
    const UDP: u8 = 17;
    let mut grh = [0u8; GRH_LEN];
    match (from.ipv4(), to.ipv4()) {
        (Some(from), Some(to)) => {
            grh[20] = 0x45;
            grh[28] = 64;
            grh[29] = UDP;
            grh[32..36].copy_from_slice(&from.octets());
            grh[36..40].copy_from_slice(&to.octets());
        }
        _ => {
            grh[0] = 0x60;
            grh[6] = UDP;
            grh[7] = 64;
            grh[8..24].copy_from_slice(&from.0);
            grh[24..40].copy_from_slice(&to.0);
        }
    }
    grh
}

/// What a completion says of the header.
#[inline(always)]
fn header_flags(grh: &[u8; GRH_LEN]) -> WcFlags {
    match grh[0] >> 4 {
        6 => WcFlags::GRH | WcFlags::GRH_IPV6,
        _ => WcFlags::GRH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_route_header_names_both_ends() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let header = grh(Gid::from_ipv4(a), Gid::from_ipv4(b));
        assert_eq!(header[..20], [0; 20]);
        assert_eq!(header_flags(&header), WcFlags::GRH);
        assert_eq!(header[32..36], a.octets());
        assert_eq!(header[36..40], b.octets());
        let header = grh(Gid([1; 16]), Gid([2; 16]));
        assert!(header_flags(&header).contains(WcFlags::GRH_IPV6));
        assert_eq!(
            (header[0], &header[8..24], &header[24..40]),
            (0x60, &[1; 16][..], &[2; 16][..])
        );
    }
}
