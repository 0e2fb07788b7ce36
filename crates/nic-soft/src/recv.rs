//! The receiving end of a lane: from lines to RECVs and completions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbs::wr::GRH_LEN;
use verbs::{Access, Gid, QpNum, QpState, Transport, Wc, WcFlags, WcOpcode, WcStatus};

use crate::adapter::Adapter;
use crate::lane::{self, Found, Message, Reader};
use crate::layout::{FIRST, IMM, Kind, LANES, LAST, qp_index};
use crate::memory;
use crate::qp::QpShared;
use crate::recv_queue::Recv;

/// A lane that leads to one of our queue pairs.
#[derive(Debug)]
pub(crate) struct RecvLane {
    adapter: Arc<Adapter>,
    lane: usize,
    owner: u64,
    reader: Reader,
    qp: Arc<QpShared>,
    epoch: u16,
    src_qpn: u32,
    grh: [u8; GRH_LEN],
    /// The RECV taken last. It lives here because it is large and a message short.
    recv: Recv,
    /// How far the RECV is filled, while pieces of its message are still coming in.
    partial: Option<usize>,
    /// Bytes of a message that is thrown away are skipped until its last piece.
    skipping: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// The sender has gone: what is there is the rest.
    Orphaned,
    Ended,
}

impl RecvLane {
    /// Takes up an announced lane; `None` if what the announcement says is not so.
    pub(crate) fn adopt(adapter: &Arc<Adapter>, lane: usize, cq: usize) -> Option<Self> {
        let header = adapter.lane_header(lane);
        let owner = header.owner.load(Ordering::Acquire);
        if owner == 0 || adapter.adopted[lane].swap(true, Ordering::AcqRel) {
            return None;
        }
        let dst = header.dst_qpn.load(Ordering::Relaxed);
        let qp = adapter
            .qp_at(qp_index(dst))
            .filter(|qp| qp.num == dst && qp.recv_cq.num == cq);
        let Some(qp) = qp else {
            // The queue pair has gone meanwhile, or never was. The lane waits for its sender to
            // close it or to go.
            adapter.retire_lane(lane);
            return None;
        };
        let src_gid = Gid(gid_bytes(&header.src_gid));
        Some(RecvLane {
            adapter: Arc::clone(adapter),
            lane,
            owner,
            reader: Reader::new(
                adapter.lane_lines(lane),
                &adapter.published().lane_heads[lane].consumed,
            ),
            epoch: qp.epoch(),
            src_qpn: header.src_qpn.load(Ordering::Relaxed) & QpNum::MAX.0,
            grh: grh(src_gid, adapter.gid),
            qp,
            recv: Recv::default(),
            partial: None,
            skipping: false,
            state: if adapter.is_gone(owner) {
                State::Orphaned
            } else {
                State::Open
            },
        })
    }

    /// Whether the queue pair is still the one the lane was opened for.
    pub(crate) fn is_current(&self, _adapter: &Adapter) -> bool {
        self.qp.epoch() == self.epoch && !self.qp.is_destroyed()
    }

    pub(crate) fn note_departures(&mut self, adapter: &Adapter) {
        if self.state == State::Open && adapter.is_gone(self.owner) {
            self.state = State::Orphaned;
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Moves messages into RECVs and makes their completions. Stops when the lane is empty, the
    /// RECVs are used up or `out` is full.
    #[inline]
    pub(crate) fn drain(&mut self, adapter: &Adapter, out: &mut [Wc]) -> usize {
        let mut n = 0;
        while n < out.len() {
            let message = match self.reader.peek() {
                Found::Message(message) => message,
                Found::Nothing => {
                    if self.state == State::Orphaned {
                        self.sender_left(adapter);
                    }
                    break;
                }
                Found::Garbage => {
                    self.fail(adapter, "unreadable bytes in a lane");
                    break;
                }
            };
            match self.take(adapter, &message) {
                Taken::Nothing => self.reader.consume(&message),
                Taken::Completion(wc) => {
                    self.reader.consume(&message);
                    out[n] = wc;
                    n += 1;
                }
                Taken::Later => break,
                Taken::Ended => {
                    self.reader.consume(&message);
                    self.state = State::Ended;
                    break;
                }
            }
        }
        n
    }

    #[inline]
    fn take(&mut self, adapter: &Adapter, message: &Message) -> Taken {
        if !self.qp.receives() {
            return match message.kind {
                Kind::Close => Taken::Ended,
                _ => Taken::Nothing,
            };
        }
        match message.kind {
            Kind::Send if self.qp.transport == Transport::Ud => self.datagram(adapter, message),
            Kind::Send => self.piece(adapter, message),
            Kind::WriteImm => self.write_imm(adapter, message),
            Kind::TooLong => self.failed_recv(adapter, WcStatus::LocLenErr),
            Kind::BadRecv => self.failed_recv(adapter, WcStatus::LocProtErr),
            Kind::Fail => {
                self.qp.enter_error(false);
                Taken::Nothing
            }
            Kind::Close => Taken::Ended,
            Kind::Pad => Taken::Nothing,
        }
    }

    fn completion(&self, message: &Message, byte_len: usize) -> Wc {
        let mut flags = WcFlags::empty();
        flags.set(WcFlags::WITH_IMM, message.flags & IMM != 0);
        Wc {
            id: self.recv.id,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            flags,
            byte_len: byte_len as u32,
            imm: message.imm,
            qpn: QpNum(self.qp.num),
            src_qpn: QpNum(self.src_qpn),
        }
    }

    /// A datagram: into the next RECV, or nowhere.
    #[inline]
    fn datagram(&mut self, adapter: &Adapter, message: &Message) -> Taken {
        if !self.qp.next_recv(adapter, &mut self.recv) {
            return Taken::Nothing;
        }
        let len = message.len as usize;
        let pd = self.qp.pd as u32;
        // The usual RECV: one element with room for all.
        if let [sge] = self.recv.sges()
            && sge.len as usize >= GRH_LEN + len
            && let Some(to) = memory::local(adapter, pd, sge, Access::LOCAL_WRITE)
        {
            // SAFETY: `local` has checked the element, and it has room for both parts.
            unsafe {
                std::ptr::copy_nonoverlapping(self.grh.as_ptr(), to, GRH_LEN);
                lane::copy_out(message, 0, to.add(GRH_LEN), len);
            }
        } else {
            let parts = [(self.grh.as_ptr(), GRH_LEN), (message.payload, len)];
            if let Err(status) = scatter_parts(adapter, pd, &self.recv, &parts) {
                let mut wc = self.completion(message, 0);
                wc.status = status;
                return Taken::Completion(wc);
            }
        }
        let mut wc = self.completion(message, GRH_LEN + len);
        wc.flags |= WcFlags::GRH;
        Taken::Completion(wc)
    }

    /// A piece of a message of a connected queue pair.
    #[inline]
    fn piece(&mut self, adapter: &Adapter, message: &Message) -> Taken {
        let last = message.flags & LAST != 0;
        let filled = if message.flags & FIRST != 0 {
            self.skipping = false;
            self.partial = None;
            if !self.qp.next_recv(adapter, &mut self.recv) {
                return self.no_recv(adapter);
            }
            0
        } else {
            match self.partial.take() {
                Some(filled) if !self.skipping => filled,
                _ => {
                    self.skipping = !last;
                    return Taken::Nothing;
                }
            }
        };
        let (pd, len) = (self.qp.pd as u32, message.len as usize);
        match scatter(adapter, pd, &self.recv, filled, message.payload, len) {
            Ok(()) if last => Taken::Completion(self.completion(message, filled + len)),
            Ok(()) => {
                self.partial = Some(filled + len);
                Taken::Nothing
            }
            Err(status) => {
                self.skipping = !last;
                self.recv_failed(status)
            }
        }
    }

    fn write_imm(&mut self, adapter: &Adapter, message: &Message) -> Taken {
        if !self.qp.next_recv(adapter, &mut self.recv) {
            return self.no_recv(adapter);
        }
        let mut wc = self.completion(message, message.len as usize);
        wc.opcode = WcOpcode::RecvWriteImm;
        Taken::Completion(wc)
    }

    /// A message for which the sender saw a RECV, but there is none. With a shared receive queue
    /// another queue pair took it, and the message waits. Otherwise the sender is wrong.
    fn no_recv(&mut self, adapter: &Adapter) -> Taken {
        if self.qp.srq.is_some() {
            return Taken::Later;
        }
        if self.qp.transport == Transport::Rc {
            self.fail(adapter, "a message without a RECV");
        }
        self.skipping = true;
        Taken::Nothing
    }

    fn failed_recv(&mut self, adapter: &Adapter, status: WcStatus) -> Taken {
        if !self.qp.next_recv(adapter, &mut self.recv) {
            return Taken::Nothing;
        }
        self.recv_failed(status)
    }

    /// The RECV taken last completes with an error, which its queue pair does not survive.
    fn recv_failed(&mut self, status: WcStatus) -> Taken {
        self.qp.enter_error(false);
        Taken::Completion(Wc {
            id: self.recv.id,
            status,
            qpn: QpNum(self.qp.num),
            ..Wc::default()
        })
    }

    #[cold]
    fn sender_left(&mut self, adapter: &Adapter) {
        tracing::debug!(
            lane = self.lane,
            qp = self.qp.num,
            "a lane's sender has gone"
        );
        if self.qp.transport == Transport::Rc && self.qp.is_peer(self.src_qpn) {
            adapter
                .events
                .force_push(verbs::nic::AsyncEvent::PeerGone(QpNum(self.qp.num)));
            if self.qp.state() != QpState::Reset {
                self.qp.enter_error(false);
            }
        }
        self.state = State::Ended;
    }

    #[cold]
    fn fail(&mut self, adapter: &Adapter, why: &'static str) {
        tracing::warn!(
            lane = self.lane,
            qp = self.qp.num,
            why,
            "a peer broke the rules"
        );
        if self.qp.transport != Transport::Ud && self.qp.is_peer(self.src_qpn) {
            self.qp.enter_error(false);
        }
        let _ = adapter;
        self.state = State::Ended;
    }
}

impl Drop for RecvLane {
    fn drop(&mut self) {
        self.adapter.retire_lane(self.lane);
        debug_assert!(self.lane < LANES);
    }
}

enum Taken {
    /// The message is done with, without a completion.
    Nothing,
    Completion(Wc),
    /// The message stays where it is.
    Later,
    /// The sender has closed the lane.
    Ended,
}

/// Scatters bytes into a RECV from its byte `from` on.
fn scatter(
    adapter: &Adapter,
    pd: u32,
    recv: &Recv,
    from: usize,
    mut source: *const u8,
    mut len: usize,
) -> Result<(), WcStatus> {
    let mut skip = from;
    for sge in recv.sges() {
        if len == 0 {
            return Ok(());
        }
        let room = sge.len as usize;
        if skip >= room {
            skip -= room;
            continue;
        }
        let to =
            memory::local(adapter, pd, sge, Access::LOCAL_WRITE).ok_or(WcStatus::LocProtErr)?;
        let now = len.min(room - skip);
        // SAFETY: `local` has checked the element; `skip + now` is within it, and `source` has
        // `len` bytes left.
        unsafe {
            verbs::mem::fetch(to.add(skip), source, now);
            source = source.add(now);
        }
        len -= now;
        skip = 0;
    }
    if len == 0 {
        Ok(())
    } else {
        Err(WcStatus::LocLenErr)
    }
}

/// Scatters pieces one behind the other, or nothing if they do not fit.
fn scatter_parts(
    adapter: &Adapter,
    pd: u32,
    recv: &Recv,
    parts: &[(*const u8, usize)],
) -> Result<(), WcStatus> {
    let room: usize = recv.sges().iter().map(|sge| sge.len as usize).sum();
    if room < parts.iter().map(|(_, len)| len).sum() {
        return Err(WcStatus::LocLenErr);
    }
    let mut from = 0;
    for (source, len) in parts {
        scatter(adapter, pd, recv, from, *source, *len)?;
        from += len;
    }
    Ok(())
}

pub(crate) fn gid_words(gid: Gid) -> [u64; 2] {
    let (low, high) = gid.0.split_at(8);
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    [word(low), word(high)]
}

pub(crate) fn gid_bytes(words: &[std::sync::atomic::AtomicU64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].load(Ordering::Relaxed).to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].load(Ordering::Relaxed).to_le_bytes());
    bytes
}

/// The global route header of a datagram: over IPv4 the first 20 bytes are zero and an IPv4 header
/// follows; otherwise an IPv6 header (RoCEv2 annex A17.9).
fn grh(from: Gid, to: Gid) -> [u8; GRH_LEN] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn gids_survive_the_shared_words() {
        let gid = Gid(std::array::from_fn(|i| i as u8 * 3));
        assert_eq!(gid_bytes(&gid_words(gid).map(AtomicU64::new)), gid.0);
    }

    #[test]
    fn the_route_header_names_both_ends() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let header = grh(Gid::from_ipv4(a), Gid::from_ipv4(b));
        assert_eq!(header[..20], [0; 20]);
        assert_eq!(header[32..36], a.octets());
        assert_eq!(header[36..40], b.octets());
        let header = grh(Gid([1; 16]), Gid([2; 16]));
        assert_eq!(
            (header[0], &header[8..24], &header[24..40]),
            (0x60, &[1; 16][..], &[2; 16][..])
        );
    }
}
