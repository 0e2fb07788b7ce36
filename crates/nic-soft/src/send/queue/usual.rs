//! The usual requests, carried out in far fewer instructions than any: with nothing before them to
//! wait for, to a peer that was heard of before, in memory that is mapped.
//!
//! | request | is usual |
//! | --- | --- |
//! | datagram | inline, without immediate data |
//! | WRITE | inline or of one element, without immediate data |
//! | READ, atomic | into one element |
//!
//! Each returns before it has done anything when something is odd; then the long way finds out
//! what (`queue.rs`). A request is checked here as there, so that the two ways differ in time alone.

use std::sync::Arc;

use verbs::batch::Wqe;
use verbs::{Mtu, SendBatch, SendFlags, Transport, UdDest, WcOpcode};

use crate::path::connection::message_flags;
use crate::path::link::Link;
use crate::queue::qp::QpShared;
use crate::send::dests::{Dests, Missing};
use crate::send::queue::SendQueue;
use crate::shared::lane::PIECE_MAX;
use crate::shared::layout::{FIRST, LAST};

// A datagram goes in one piece: none is longer than the queue pair's packets.
const _: () = assert!(Mtu::B4096.bytes() <= PIECE_MAX);

impl SendQueue {
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
                WcOpcode::Write if wqe.is_inline() => self.post_writes(qp, batch, at),
                _ => self.post_transfers(qp, batch, at),
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
        let mut index = 0;
        while let Some(first) = wqes.get(index).filter(|wqe| wqe.is_plain()) {
            let dest = first.dest();
            // A datagram to nobody is lost, as datagrams are; to look again would only cost the time
            // of another contact.
            let link = match self.dests.prepared(&dest) {
                Some(link) => self.dests.at(link),
                None => match link_to(&mut self.dests, qp, &dest.to) {
                    Ok(link) => Some(link),
                    Err(Missing::Peer) => {
                        let lost = run_of(qp, &wqes[index..]);
                        lost.iter().for_each(|_| qp.adapter.count_unsent());
                        None
                    }
                    Err(Missing::Handle | Missing::Contact(..) | Missing::Group(_)) => break,
                },
            };
            let run = run_of(qp, &wqes[index..]);
            if let Some(link) = link
                && link.is_up(&self.us)
            {
                if link.plain_qkey != u64::from(dest.to.qkey.0) {
                    break;
                }
                let datagram = |wqe| (flags_of(wqe), batch.inline_bytes(wqe));
                link.push_datagrams(&qp.adapter, &self.us, run.iter().map(datagram));
                link.ring();
            }
            index += run.len();
            if let [.., last] = run
                && is_signaled(qp, last)
                && !signal(qp, self.posted + index as u64, last)
            {
                break;
            }
        }
        self.advance(from, index)
    }

    #[inline(never)]
    fn post_writes(&mut self, qp: &Arc<QpShared>, batch: &SendBatch, from: usize) -> usize {
        let posted = self.posted;
        let note = |wqe: &Wqe, done| !is_signaled(qp, wqe) || signal(qp, posted + done as u64, wqe);
        let done = self.connection.write_list(batch, from, note);
        self.advance(from, done)
    }

    #[inline(never)]
    fn post_transfers(&mut self, qp: &Arc<QpShared>, batch: &SendBatch, from: usize) -> usize {
        let wqes = &batch.wqes()[from..];
        for (index, wqe) in wqes.iter().enumerate() {
            if !self
                .connection
                .transfer(&qp.adapter, qp.pd as u32, batch, wqe)
            {
                return self.advance(from, index);
            }
            if is_signaled(qp, wqe) {
                let position = self.posted + index as u64 + 1;
                if !qp.signal_send(position, wqe.id(), wqe.opcode(), wqe.len()) {
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
}

/// The requests that go where the first one goes, up to one that is signaled.
#[inline(always)]
fn run_of<'b>(qp: &QpShared, wqes: &'b [Wqe]) -> &'b [Wqe] {
    let goes_on = |pair: &[Wqe]| {
        let [before, next] = pair else { return false };
        !is_signaled(qp, before) && next.is_plain() && next.has_dest_of(before)
    };
    let more = wqes.windows(2).take_while(|pair| goes_on(pair)).count();
    &wqes[..wqes.len().min(1 + more)]
}

/// What a datagram's message says.
#[inline(always)]
fn flags_of(wqe: &Wqe) -> u8 {
    message_flags(None, wqe.flags()) | FIRST | LAST
}

#[inline(always)]
fn is_signaled(qp: &QpShared, wqe: &Wqe) -> bool {
    wqe.flags().contains(SendFlags::SIGNALED) || qp.signal_all
}

/// Completes a request, the `position`th.
#[cold]
#[inline(never)]
fn signal(qp: &Arc<QpShared>, position: u64, wqe: &Wqe) -> bool {
    qp.signal_send(position, wqe.id(), wqe.opcode(), wqe.len())
}

/// The link to a destination that was not prepared.
#[cold]
#[inline(never)]
fn link_to<'a>(dests: &'a mut Dests, qp: &QpShared, to: &UdDest) -> Result<&'a mut Link, Missing> {
    dests.link(&qp.adapter, to)
}
