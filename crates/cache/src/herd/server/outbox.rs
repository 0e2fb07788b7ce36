//! Answers on their way out: composed one by one, posted in one batch.
//!
//! An answer that fits the NIC's inline limit is carried in the work request; a longer one lies in
//! a registered ring. One completion in [`SIGNAL_EVERY`] frees queue and ring entries.

use verbs::typed::{CompletionQueue, ProtectionDomain, QpOptions, QueuePair, Ud, Wr};
use verbs::{Access, Qkey, QpAttr, QpCaps, QpNum, QpState, Sge, VerbsError, Wc};

use super::ServerStats;
use super::attachment::Attachment;
use crate::herd::memory::Memory;
use crate::herd::recycle::Recycled;
use crate::herd::wire::answer::Head;

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

#[derive(Clone, Copy, Debug)]
enum Place {
    /// In `inline`, at this offset.
    Inline(u32),
    /// In the ring: this entry of `sges`.
    Ring(u32),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    client: u32,
    len: u32,
    place: Place,
}

/// The sending side of a core.
#[derive(Debug)]
pub(super) struct Outbox {
    qp: QueuePair<Ud>,
    cq: CompletionQueue,
    inline_max: usize,
    inline: Vec<u8>,
    ring: Memory,
    ring_slot_len: usize,
    entries: Vec<Entry>,
    sges: Vec<Sge>,
    batch: Recycled<Wr<'static, Ud>>,
    // Running counts, wrapping; completions bring the counts at their post.
    sends_posted: u32,
    sends_done: u32,
    ring_used: u32,
    ring_done: u32,
    sends_signaled: u32,
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
            qp,
            cq,
            inline_max,
            inline: vec![0; batch_max * inline_max],
            ring: Memory::new(ring),
            ring_slot_len,
            entries: Vec::with_capacity(batch_max),
            sges: Vec::with_capacity(batch_max),
            batch: Recycled::with_capacity(batch_max),
            sends_posted: 0,
            sends_done: 0,
            ring_used: 0,
            ring_done: 0,
            sends_signaled: 0,
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
            let recovered = self.qp.modify(&QpAttr {
                state: Some(QpState::Rts),
                ..QpAttr::default()
            });
            if recovered.is_err() {
                stats.send_errors += 1;
            }
        }
    }

    /// Composes an answer. The caller has asked for room.
    #[inline(always)]
    pub(super) fn push(&mut self, client: u32, head: &Head, body: &[u8]) {
        let len = head.len() + body.len();
        let place = if len <= self.inline_max {
            let at = self.entries.len() * self.inline_max;
            head.emit(body, &mut self.inline[at..at + self.inline_max]);
            Place::Inline(at as u32)
        } else {
            self.push_long(head, body)
        };
        self.entries.push(Entry {
            client,
            len: len as u32,
            place,
        });
    }

    fn push_long(&mut self, head: &Head, body: &[u8]) -> Place {
        let slot = self.ring_used % RING_SLOTS;
        let at = slot as usize * self.ring_slot_len;
        let mut bytes = [0; 24];
        // The body's length goes into the head, the body itself straight into the ring.
        let head_len = head.emit_head(body.len(), &mut bytes);
        self.ring.write(at, &bytes[..head_len]);
        self.ring.write(at + head_len, body);
        let len = head_len + body.len();
        self.sges.push(self.ring.sge(at..at + len));
        self.ring_used = self.ring_used.wrapping_add(1);
        Place::Ring(self.sges.len() as u32 - 1)
    }

    /// Posts what was composed. An answer that the NIC does not take is lost; its client asks
    /// again.
    #[inline]
    pub(super) fn post(&mut self, clients: &[Attachment], stats: &mut ServerStats) {
        if self.entries.is_empty() {
            return;
        }
        let mut batch = self.batch.take();
        let mut ring_used = self.ring_used.wrapping_sub(self.sges.len() as u32);
        for entry in &self.entries {
            let client = &clients[entry.client as usize];
            let request = match entry.place {
                Place::Inline(at) => {
                    let at = at as usize;
                    let bytes = &self.inline[at..at + entry.len as usize];
                    Wr::send_inline_to(&client.ah, client.ud_qpn, client.qkey, bytes)
                }
                Place::Ring(index) => {
                    let index = index as usize;
                    ring_used = ring_used.wrapping_add(1);
                    let sges = &self.sges[index..=index];
                    Wr::send_to(&client.ah, client.ud_qpn, client.qkey, sges)
                }
            };
            self.sends_posted = self.sends_posted.wrapping_add(1);
            let signaled = self.sends_posted.wrapping_sub(self.sends_signaled) >= SIGNAL_EVERY
                || ring_used.wrapping_sub(self.ring_signaled) >= SIGNAL_EVERY_RING;
            if signaled {
                self.sends_signaled = self.sends_posted;
                self.ring_signaled = ring_used;
            }
            let counts = u64::from(self.sends_posted) << 32 | u64::from(ring_used);
            batch.push(request.id(counts).signaled_if(signaled));
        }
        stats.answers += self.entries.len() as u64;
        stats.answers_ring += self.sges.len() as u64;
        let posted = self.qp.post_send(&batch);
        if let Err(error) = posted {
            // Those not posted take no room. Which of them was to be signaled does not matter:
            // the next one is.
            let unposted = &self.entries[error.index..];
            let in_ring = |entry: &&Entry| matches!(entry.place, Place::Ring(_));
            let ring_lost = unposted.iter().filter(in_ring).count() as u32;
            let lost = unposted.len() as u32;
            self.ring_used = self.ring_used.wrapping_sub(ring_lost);
            stats.post_errors += u64::from(lost);
            self.sends_posted = self.sends_posted.wrapping_sub(lost);
            self.sends_signaled = self.sends_posted.wrapping_sub(SIGNAL_EVERY);
        }
        self.batch.put_back(batch);
        if posted.is_err() {
            self.reap(stats);
        }
        self.entries.clear();
        self.sges.clear();
    }
}
