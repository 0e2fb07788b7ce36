//! Answers on their way out: composed in a batch, posted with it in one call.
//!
//! An answer that fits the NIC's inline limit is carried in the work request; a longer one lies in
//! a registered ring. One completion in [`SIGNAL_EVERY`] frees queue and ring entries.

use verbs::typed::{
    Batch, CompletionQueue, Destination, ProtectionDomain, QpOptions, QueuePair, Ud,
};
use verbs::{Access, Qkey, QpAttr, QpCaps, QpNum, QpState, SendFlags, VerbsError, Wc};

use super::ServerStats;
use super::attachment::Attachment;
use crate::herd::memory::Memory;
use crate::herd::wire::answer::{HEADER_LEN, Head};

/// A completion is asked for once in so many sends.
const SIGNAL_EVERY: u32 = 64;
/// And once in so many ring entries.
const SIGNAL_EVERY_RING: u32 = 16;
/// Ring entries; most stay usable while completions are outstanding.
const RING_SLOTS: u32 = 128;
/// With less room completions are looked for.
const ROOM_ENOUGH: u32 = 64;
/// Depth of the send queue.
const SEND_WR_MAX: u32 = 256;

/// The sending side of a core.
#[derive(Debug)]
pub(super) struct Outbox {
    qp: QueuePair<Ud>,
    cq: CompletionQueue,
    inline_max: usize,
    ring: Memory,
    ring_slot_len: usize,
    batch: Batch<Ud>,
    /// Positions in the batch of answers that lie in the ring.
    in_ring: Vec<u32>,
    /// Where each client's answers go.
    to: Vec<Destination>,
    // Running counts, wrapping; completions bring the counts at their post.
    sends_posted: u32,
    sends_done: u32,
    ring_used: u32,
    ring_done: u32,
    /// The send that asks for the next completion; none before it does.
    signal_at: u32,
    ring_signaled: u32,
}

impl Outbox {
    pub(super) fn new(
        pd: &ProtectionDomain,
        batch_max: usize,
        answer_len_max: usize,
        qkey: Qkey,
    ) -> Result<Self, VerbsError> {
        let context = pd.context();
        let inline_max = (context.device().inline_max as usize).min(256);
        let cq = context.create_cq(SEND_WR_MAX)?;
        let mut qp = pd.create_qp::<Ud>(&QpOptions::on(&cq).caps(QpCaps {
            send_wr_max: SEND_WR_MAX,
            recv_wr_max: 1,
            send_sge_max: 1,
            recv_sge_max: 1,
            inline_max: inline_max as u32,
        }))?;
        qp.activate(qkey)?;
        let ring_slot_len = answer_len_max.next_multiple_of(64) + 64;
        let ring = pd.allocate(ring_slot_len * RING_SLOTS as usize, Access::empty())?;
        Ok(Outbox {
            batch: qp.batch(batch_max),
            qp,
            cq,
            inline_max,
            ring: Memory::new(ring),
            ring_slot_len,
            in_ring: Vec::with_capacity(batch_max),
            to: Vec::new(),
            sends_posted: 0,
            sends_done: 0,
            ring_used: 0,
            ring_done: 0,
            signal_at: SIGNAL_EVERY,
            ring_signaled: 0,
        })
    }

    pub(super) fn qpn(&self) -> QpNum {
        self.qp.num()
    }

    /// How many answers of any length can be taken now.
    #[inline]
    pub(super) fn room(&mut self, stats: &mut ServerStats) -> usize {
        let room = self.count_room();
        if room < ROOM_ENOUGH {
            self.reap(stats);
            return self.count_room() as usize;
        }
        room as usize
    }

    #[inline]
    fn count_room(&self) -> u32 {
        let sends = SEND_WR_MAX.saturating_sub(self.sends_posted.wrapping_sub(self.sends_done));
        let ring = RING_SLOTS.saturating_sub(self.ring_used.wrapping_sub(self.ring_done));
        sends.min(ring)
    }

    fn reap(&mut self, stats: &mut ServerStats) {
        let mut completions = [Wc::default(); 16];
        loop {
            let count = match self.cq.poll(&mut completions) {
                Ok(count) => count,
                Err(_) => {
                    // The queue is as deep as the send queue, so this is a failing device;
                    // without room nothing more is answered, and clients see it as a dead server.
                    stats.queue_errors += 1;
                    return;
                }
            };
            for completion in &completions[..count] {
                self.sends_done = (completion.id >> 32) as u32;
                self.ring_done = completion.id as u32;
                if !completion.is_ok() {
                    stats.send_errors += 1;
                }
            }
            if count < completions.len() {
                break;
            }
        }
        if self.qp.state() == QpState::Sqe {
            // Answers were flushed; their clients ask again.
            let recovered = self.qp.modify(&QpAttr::to(QpState::Rts));
            if recovered.is_err() {
                stats.send_errors += 1;
            }
        }
    }

    /// Takes a client on, behind those that are there.
    pub(super) fn attach(&mut self, client: &Attachment) {
        let (ah, qpn, qkey) = (&client.ah, client.ud_qpn, client.qkey);
        let to = self.qp.prepare(ah, qpn, qkey);
        // One that cannot be reached just now may be later.
        self.to
            .push(to.unwrap_or_else(|_| Destination::unprepared(ah, qpn, qkey)));
    }

    /// Lets a client go, whose place the last one takes.
    pub(super) fn detach(&mut self, index: usize) {
        self.to.swap_remove(index);
    }

    /// Composes an answer. The caller has asked for room.
    #[inline(always)]
    pub(super) fn push(&mut self, client: u32, head: &Head, body: &[u8]) {
        let len = head.len() + body.len();
        if len > self.inline_max {
            return self.push_long(client, head, body);
        }
        let count = self.count();
        let to = &self.to[client as usize];
        match self.batch.push_to(to, len, count) {
            Ok(bytes) => {
                head.emit(body, bytes);
            }
            Err(error) => debug_assert!(false, "an answer that does not fit: {error}"),
        }
    }

    /// Composes an answer with a value, if that is short: the usual one. The caller has asked for
    /// room.
    #[inline(always)]
    pub(super) fn push_short(
        &mut self,
        client: u32,
        id: u32,
        item_flags: u32,
        value: &[u8],
    ) -> bool {
        let len = HEADER_LEN + value.len();
        if len > self.inline_max {
            return false;
        }
        let count = self.count();
        let to = &self.to[client as usize];
        match self.batch.push_to(to, len, count) {
            Ok(bytes) => Head::emit_item(id, item_flags, value, bytes),
            Err(error) => debug_assert!(false, "an answer that does not fit: {error}"),
        }
        true
    }

    #[inline(never)]
    fn push_long(&mut self, client: u32, head: &Head, body: &[u8]) {
        let slot = self.ring_used % RING_SLOTS;
        let at = slot as usize * self.ring_slot_len;
        let mut bytes = [0; 24];
        // The body's length goes into the head, the body itself straight into the ring.
        let head_len = head.emit_head(body.len(), &mut bytes);
        self.ring.write(at, &bytes[..head_len]);
        self.ring.write(at + head_len, body);
        let len = head_len + body.len();
        self.ring_used = self.ring_used.wrapping_add(1);
        if self.ring_used.wrapping_sub(self.ring_signaled) >= SIGNAL_EVERY_RING {
            self.signal_at = self.sends_posted.wrapping_add(1);
        }
        self.in_ring.push(self.batch.len() as u32);
        let (id, flags) = self.count();
        let (to, sges) = (&self.to[client as usize], [self.ring.sge(at..at + len)]);
        match self.batch.send_from_to(to, None, &sges) {
            Ok(draft) => draft.id(id).flags(flags).commit_gathered(),
            Err(error) => debug_assert!(false, "an answer that does not fit: {error}"),
        }
    }

    /// Counts one more answer: its number, and whether it is to complete.
    #[inline(always)]
    fn count(&mut self) -> (u64, SendFlags) {
        self.sends_posted = self.sends_posted.wrapping_add(1);
        let mut flags = SendFlags::empty();
        if self.sends_posted == self.signal_at {
            flags = SendFlags::SIGNALED;
            self.signal_at = self.sends_posted.wrapping_add(SIGNAL_EVERY);
            self.ring_signaled = self.ring_used;
        }
        let id = u64::from(self.sends_posted) << 32 | u64::from(self.ring_used);
        (id, flags)
    }

    /// Posts what was composed. An answer that the NIC does not take is lost; its client asks
    /// again.
    #[inline]
    pub(super) fn post(&mut self, stats: &mut ServerStats) {
        let count = self.batch.len();
        if count == 0 {
            return;
        }
        stats.answers += count as u64;
        stats.answers_ring += self.in_ring.len() as u64;
        if let Err(error) = self.qp.post(&mut self.batch) {
            // Those not posted take no room. Which of them was to be signaled does not matter:
            // the next one is.
            let unposted = |at: &&u32| **at as usize >= error.index;
            let ring_lost = self.in_ring.iter().filter(unposted).count() as u32;
            let lost = (count - error.index) as u32;
            self.ring_used = self.ring_used.wrapping_sub(ring_lost);
            stats.answers -= u64::from(lost);
            stats.answers_ring -= u64::from(ring_lost);
            stats.post_errors += u64::from(lost);
            self.sends_posted = self.sends_posted.wrapping_sub(lost);
            self.signal_at = self.sends_posted.wrapping_add(1);
            self.reap(stats);
        }
        self.in_ring.clear();
    }
}
