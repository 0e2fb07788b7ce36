//! The usual requests, carried out in far fewer instructions than any: with nothing before them to
//! wait for, to a peer that was heard of before, in memory that is mapped.
//!
//! | request | is usual |
//! | --- | --- |
//! | datagram | inline, without immediate data |
//! | WRITE | the same |
//! | READ, atomic | into one element |
//!
//! Each returns before it has done anything when something is odd; then the long way finds out
//! what (`send.rs`). A request is checked here as there, so that the two ways differ in time alone.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use verbs::batch::Wqe;
use verbs::{Access, Mtu, SendBatch, SendFlags, Transport, UdDest, WcOpcode, mem};

use super::{Sender, message_flags};
use crate::dests::{Dests, Missing};
use crate::lane::PIECE_MAX;
use crate::layout::{FIRST, Kind, LAST};
use crate::link::Link;
use crate::memory;
use crate::qp::QpShared;

// A datagram goes in one piece: none is longer than the queue pair's packets.
const _: () = assert!(Mtu::B4096.bytes() <= PIECE_MAX);

/// Requests of a list between asking for a WRITE's line and writing it.
const AHEAD: usize = 8;

impl Sender {
    /// Carries out requests of a batch, from one on up to the first that is not usual, and returns
    /// that one's position. The batch was made for the queue pair, which is in RTS with nothing
    /// unfinished.
    #[inline(always)]
    pub(crate) fn post_usual(
        &mut self,
        qp: &Arc<QpShared>,
        batch: &SendBatch,
        from: usize,
    ) -> usize {
        debug_assert!(self.kept.is_empty());
        // Room is counted for all of them at once; where it is short, it is counted one by one.
        let posted = self.posted + (batch.len() - from) as u64;
        if posted - self.freed > u64::from(qp.caps.send_wr_max) && !self.has_room_for(qp, posted) {
            return from;
        }
        match qp.transport {
            Transport::Ud => self.post_datagrams(qp, batch, from),
            Transport::Rc | Transport::Uc => self.post_connected(qp, batch, from),
        }
    }

    #[inline(always)]
    fn post_connected(&mut self, qp: &Arc<QpShared>, batch: &SendBatch, from: usize) -> usize {
        let mut at = from;
        while let Some(wqe) = batch.wqes().get(at) {
            let reached = match wqe.opcode() {
                WcOpcode::Write => self.post_writes(qp, batch, at),
                _ => self.post_fetches(qp, batch, at),
            };
            // A completion queue that overran has ended the queue pair.
            if reached == at || !qp.is_rts() {
                return reached;
            }
            at = reached;
        }
        at
    }

    #[cold]
    #[inline(never)]
    fn has_room_for(&mut self, qp: &QpShared, posted: u64) -> bool {
        self.has_room(qp);
        posted - self.freed <= u64::from(qp.caps.send_wr_max)
    }

    // A function for each kind, which keeps in registers what its loop needs: all that it calls there
    // is cold.
    #[inline(never)]
    fn post_datagrams(&mut self, qp: &Arc<QpShared>, batch: &SendBatch, from: usize) -> usize {
        self.dests.refresh(&qp.adapter);
        let wqes = &batch.wqes()[from..];
        for (index, wqe) in wqes.iter().enumerate() {
            if !wqe.is_plain() {
                return self.advance(from, index);
            }
            let bytes = batch.inline_bytes(wqe);
            let dest = wqe.dest();
            // A datagram to nobody is lost, as datagrams are; to look again would only cost the time
            // of another contact.
            let link = match self.dests.prepared(&dest) {
                Some(link) => self.dests.at(link),
                None => match link_to(&mut self.dests, qp, &dest.to) {
                    Ok(link) => Some(link),
                    Err(Missing::Peer) => None,
                    Err(Missing::Handle) => return self.advance(from, index),
                },
            };
            if let Some(link) = link
                && link.is_up(&self.us)
            {
                if link.plain_qkey != u64::from(dest.to.qkey.0) {
                    return self.advance(from, index);
                }
                let (from, len) = (bytes.as_ptr(), bytes.len());
                // SAFETY: the lane has room for the bytes.
                let fill = |to: *mut u8| unsafe { mem::put(to, from, len) };
                let flags = message_flags(None, wqe.flags()) | FIRST | LAST;
                let (adapter, us) = (&qp.adapter, &self.us);
                let pushed =
                    link.push_inline(adapter, us, Kind::Send, flags, 0, len as u32, len, fill);
                // If the lane is full the datagram is dropped, as UD allows.
                if pushed.is_ok() {
                    link.ring();
                }
            }
            if is_signaled(qp, wqe) && !self.signal_usual(qp, wqe, index) {
                return self.advance(from, index + 1);
            }
        }
        self.advance(from, wqes.len())
    }

    #[inline(never)]
    fn post_writes(&mut self, qp: &Arc<QpShared>, batch: &SendBatch, from: usize) -> usize {
        let wqes = &batch.wqes()[from..];
        // One alone is written at once.
        if wqes.len() > 1 {
            wqes.iter().take(AHEAD).for_each(|wqe| self.claim(wqe));
        }
        for (index, wqe) in wqes.iter().enumerate() {
            if let Some(later) = wqes.get(index + AHEAD) {
                self.claim(later);
            }
            if !self.write_usual(batch, wqe) {
                return self.advance(from, index);
            }
            if is_signaled(qp, wqe) && !self.signal_usual(qp, wqe, index) {
                return self.advance(from, index + 1);
            }
        }
        self.advance(from, wqes.len())
    }

    #[inline(never)]
    fn post_fetches(&mut self, qp: &Arc<QpShared>, batch: &SendBatch, from: usize) -> usize {
        let wqes = &batch.wqes()[from..];
        for (index, wqe) in wqes.iter().enumerate() {
            if !self.fetch_usual(qp, batch, wqe) {
                return self.advance(from, index);
            }
            if is_signaled(qp, wqe) {
                let position = self.posted + index as u64 + 1;
                if !self.signal(qp, position, wqe.id(), wqe.opcode(), wqe.len()) {
                    return self.advance(from, index + 1);
                }
            }
        }
        self.advance(from, wqes.len())
    }

    /// Counts requests that were carried out.
    #[inline(always)]
    fn advance(&mut self, from: usize, done: usize) -> usize {
        self.posted += done as u64;
        from + done
    }

    /// Asks for the line that a WRITE will go to, to be written: it may be in the peer's cache, from
    /// where it takes as long as carrying out some requests.
    #[inline(always)]
    fn claim(&self, wqe: &Wqe) {
        if wqe.opcode() == WcOpcode::Write
            && wqe.is_inline()
            && let Some(to) = self.remote.guess(wqe.remote())
        {
            mem::prefetch_to_write(to.wrapping_add((wqe.len() as usize).wrapping_sub(1)));
        }
    }

    #[cold]
    #[inline(never)]
    fn signal_usual(&self, qp: &Arc<QpShared>, wqe: &Wqe, index: usize) -> bool {
        let position = self.posted + index as u64 + 1;
        self.signal(qp, position, wqe.id(), wqe.opcode(), wqe.len())
    }

    #[inline(always)]
    fn write_usual(&mut self, batch: &SendBatch, wqe: &Wqe) -> bool {
        let needed = Access::REMOTE_WRITE;
        let Some(link) = &mut self.link else {
            return false;
        };
        let usual = wqe.opcode() == WcOpcode::Write && wqe.is_plain();
        if !usual || !link.is_up(&self.us) || !link.allowed().contains(needed) {
            return false;
        }
        let (bytes, remote) = (batch.inline_bytes(wqe), wqe.remote());
        let known = self
            .remote
            .known(&link.peer, link.pd, remote, bytes.len(), needed);
        let Some(to) = known else {
            return false;
        };
        // SAFETY: `known` has checked the place for this length.
        unsafe { mem::place(to, bytes.as_ptr(), bytes.len()) };
        true
    }

    /// A READ or an atomic.
    #[inline(always)]
    fn fetch_usual(&mut self, qp: &QpShared, batch: &SendBatch, wqe: &Wqe) -> bool {
        let needed = match wqe.opcode() {
            WcOpcode::Read => Access::REMOTE_READ,
            WcOpcode::CompareSwap | WcOpcode::FetchAdd => Access::REMOTE_ATOMIC,
            _ => return false,
        };
        let (Some(link), [sge]) = (&mut self.link, batch.elements(wqe)) else {
            return false;
        };
        if !link.is_up(&self.us) || !link.allowed().contains(needed) {
            return false;
        }
        let (remote, len) = (wqe.remote(), wqe.len() as usize);
        let known = self.remote.known(&link.peer, link.pd, remote, len, needed);
        let Some(from) = known else {
            return false;
        };
        let Some(to) = memory::local(&qp.adapter, qp.pd as u32, sge, Access::LOCAL_WRITE) else {
            return false;
        };
        if wqe.opcode() == WcOpcode::Read {
            // SAFETY: both places were checked for this length.
            unsafe { mem::fetch(to, from, len) };
            return true;
        }
        if !(from.addr() | remote.addr as usize).is_multiple_of(8) {
            return false;
        }
        // SAFETY: the place was checked for eight bytes, those of every atomic, and is aligned.
        let word = unsafe { AtomicU64::from_ptr(from.cast()) };
        let [first, second] = wqe.operands();
        let before = match wqe.opcode() {
            WcOpcode::CompareSwap => match word.compare_exchange(first, second, AcqRel, Acquire) {
                Ok(before) | Err(before) => before,
            },
            _ => word.fetch_add(first, AcqRel),
        };
        let before = before.to_ne_bytes();
        // SAFETY: the element has these eight bytes and was checked for local writing.
        unsafe { mem::place(to, before.as_ptr(), 8) };
        true
    }
}

#[inline(always)]
fn is_signaled(qp: &QpShared, wqe: &Wqe) -> bool {
    wqe.flags().contains(SendFlags::SIGNALED) || qp.signal_all
}

/// The link to a destination that was not prepared.
#[cold]
#[inline(never)]
fn link_to<'a>(dests: &'a mut Dests, qp: &QpShared, to: &UdDest) -> Result<&'a mut Link, Missing> {
    dests.link(&qp.adapter, to)
}
