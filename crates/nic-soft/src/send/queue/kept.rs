//! Kept requests: what waits in a send queue, and the retry policy.
//!
//! What cannot be carried out at once is kept, in order, and tried again by whoever posts to the
//! queue pair or polls its completion queue next, or by the NIC's own thread (`device/unfinished.rs`),
//! until it is done or has been tried as often as the attributes say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs::attr::rnr_timer_us;
use verbs::{Op, Payload, QpState, SendFlags, SendWr, Sge, UdDest};

use crate::contact::contacts::Contact;
use crate::path::connection::{Outcome, Progress, Wait};
use crate::queue::qp::QpShared;
use crate::send::address::Address;
use crate::send::queue::{SendQueue, opcode};
use crate::shared::cause::Cause;

/// Between two looks at contacts that are being made.
const CONTACT_PAUSE: Duration = Duration::from_millis(100);

/// A kept request.
#[derive(Debug)]
pub(super) struct Kept {
    /// Requests posted up to this one.
    position: u64,
    id: u64,
    op: Op,
    flags: SendFlags,
    to: Option<UdDest>,
    /// Where the address handle led when the request was posted.
    address: Option<Address>,
    inline: Option<Box<[u8]>>,
    sges: Box<[Sge]>,
    len: u32,
    progress: Progress,
    waiting: Option<(Wait, Instant)>,
    tries: u32,
}

impl SendQueue {
    /// Completes everything that waits: as flushed, but for what was under way to a peer that has
    /// died.
    pub(crate) fn flush(&mut self, qp: &Arc<QpShared>) {
        self.dests.end_waiting();
        self.connection.forget_asked();
        let dead = self.connection.is_peer_gone();
        while let Some(kept) = self.kept.pop_front() {
            let cause = kept.waiting.filter(|_| dead).map(|_| Cause::PeerGone);
            self.complete(qp, kept.position, kept.id, cause);
        }
    }

    #[cold]
    pub(super) fn keep(
        &mut self,
        wr: &SendWr<'_>,
        len: u32,
        progress: Progress,
        waiting: Option<(Wait, Instant)>,
    ) {
        let address = |to: UdDest| self.dests.address(to.ah).ok();
        let address = wr.to.and_then(address);
        let (inline, sges): (Option<Box<[u8]>>, Box<[Sge]>) = match wr.payload {
            Payload::Inline(bytes) => (Some(bytes.into()), Box::default()),
            Payload::InlineParts(parts) => (Some(parts.concat().into()), Box::default()),
            Payload::Gather(sges) => (None, sges.into()),
        };
        self.kept.push_back(Kept {
            position: self.posted,
            id: wr.id,
            op: wr.op,
            flags: wr.flags,
            to: wr.to,
            address,
            inline,
            sges,
            len,
            progress,
            waiting,
            tries: 0,
        });
    }

    /// Carries on with kept requests, and with datagrams that wait for contact. While some are left, says after which time the NIC's own
    /// thread is to try again; zero for as soon as it does.
    pub(crate) fn progress(&mut self, qp: &Arc<QpShared>) -> Option<Duration> {
        self.dests.carry_on(&qp.adapter);
        self.try_again(qp);
        // Also for a part of a message, which may have filled the lane.
        self.connection.ring();
        let pause = self.is_unfinished().then(|| self.pause());
        if let Some(pause) = pause {
            if pause < self.paused {
                qp.adapter.wake_agent();
            }
            self.paused = pause;
        }
        pause
    }

    /// The contact that the first kept request waits for, if it does.
    pub(crate) fn awaited(&self) -> Option<Arc<Contact>> {
        let (wait, _) = self.kept.front()?.waiting?;
        (wait == Wait::Contact).then(|| self.dests.awaited())?
    }

    fn try_again(&mut self, qp: &Arc<QpShared>) {
        let state = qp.state();
        match state {
            QpState::Rts | QpState::Sqd => {}
            QpState::Sqe | QpState::Err => {
                self.flush(qp);
                return;
            }
            _ => return,
        }
        // In SQD what has begun comes to its end, and the rest waits.
        let may_begin = state == QpState::Rts;
        while let Some(mut kept) = self.next_kept(may_begin) {
            let wr = SendWr {
                id: kept.id,
                op: kept.op,
                payload: match &kept.inline {
                    Some(bytes) => Payload::Inline(bytes),
                    None => Payload::Gather(&kept.sges),
                },
                flags: kept.flags,
                to: kept.to,
            };
            match self.execute(qp, &wr, kept.address, kept.len, &mut kept.progress) {
                Outcome::Done => {
                    self.dests.end_waiting();
                    // First: the peer may hear of the completion, and arm its queue anew.
                    self.connection.ring();
                    let (flags, len) = (wr.flags, kept.len);
                    if !self.succeed(qp, kept.position, wr.id, flags, opcode(&wr.op), len) {
                        self.flush(qp);
                        return;
                    }
                }
                Outcome::Failed(cause) => {
                    self.dests.end_waiting();
                    self.fail(qp, kept.position, kept.id, cause);
                    return;
                }
                Outcome::Wait(wait) => {
                    if let Some(cause) = self.give_up(&mut kept, wait, Instant::now()) {
                        self.dests.end_waiting();
                        self.fail(qp, kept.position, kept.id, cause);
                        return;
                    }
                    self.kept.push_front(kept);
                    break;
                }
            }
        }
    }

    /// Takes the first kept request, if it has begun or may begin.
    fn next_kept(&mut self, may_begin: bool) -> Option<Kept> {
        let first = self.kept.front()?;
        if may_begin || first.progress.has_begun() {
            return self.kept.pop_front();
        }
        None
    }

    /// Whether a request has waited long enough, and what becomes of it then.
    fn give_up(&self, kept: &mut Kept, wait: Wait, now: Instant) -> Option<Cause> {
        let since = match kept.waiting {
            Some((before, since)) if before == wait => since,
            _ => {
                kept.waiting = Some((wait, now));
                kept.tries = 0;
                return self.give_up_at_once(wait);
            }
        };
        let (limit, max, cause) = match wait {
            // There will be room when the peer polls, however long that takes.
            Wait::Room => return None,
            // Whoever looks for the answer knows how long that may take.
            Wait::Answer => return None,
            // It ends by itself, and is looked at when it has.
            Wait::Contact => return None,
            Wait::Recv => {
                // The first try was before the first time that it waited for.
                let max = self.rnr_retries.map(|max| max.saturating_sub(1));
                (Some(self.rnr_timer()), max, Cause::NoRecv)
            }
            Wait::Peer => {
                if self.connection.is_peer_gone() {
                    return Some(Cause::PeerGone);
                }
                (self.timeout, Some(self.retries), Cause::PeerNotReady)
            }
        };
        let limit = limit?;
        if now - since < limit {
            return None;
        }
        kept.tries += 1;
        kept.waiting = Some((wait, now));
        max.filter(|max| kept.tries > *max).map(|_| cause)
    }

    /// What becomes of a request that is not tried a second time.
    pub(super) fn give_up_at_once(&self, wait: Wait) -> Option<Cause> {
        let is_last = wait == Wait::Recv && self.rnr_retries == Some(0);
        is_last.then_some(Cause::NoRecv)
    }

    /// How long the peer asks to wait when it has no RECV.
    fn rnr_timer(&self) -> Duration {
        Duration::from_micros(rnr_timer_us(self.connection.rnr_timer()))
    }

    /// How long the NIC's own thread waits before it tries again, if that is longer than usual.
    fn pause(&self) -> Duration {
        match self.kept.front().map(|kept| kept.waiting) {
            Some(Some((Wait::Recv, _))) => self.rnr_timer(),
            Some(Some((Wait::Contact, _))) => CONTACT_PAUSE,
            Some(_) => Duration::ZERO,
            // Datagrams that were put by alone: the end of a contact brings whoever sends them here.
            None => CONTACT_PAUSE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use rustix::mm::{MapFlags, ProtFlags};
    use verbs::nic::{Nic, NicMr};
    use verbs::typed::Wr;
    use verbs::{Access, Iova, QpAttr, RecvWr, VendorErr, Wc, WcStatus};

    use super::*;
    use crate::SoftNic;
    use crate::memory::pages::asked;
    use crate::shared::layout::{LANE_LINES, LINE};
    use crate::testing::{Host, Side, send_queue};

    fn kept() -> Kept {
        Kept {
            position: 1,
            id: 0,
            op: Op::Send { imm: None },
            flags: SendFlags::empty(),
            to: None,
            address: None,
            inline: None,
            sges: Box::default(),
            len: 0,
            progress: Progress::default(),
            waiting: None,
            tries: 0,
        }
    }

    #[test]
    fn requests_are_tried_as_often_as_the_attributes_say() {
        let mut sender = send_queue(&Host::new().open());
        // How many times such a request waits, which is found to wait once in each step.
        let waits = |sender: &SendQueue, wait, step| {
            let (mut kept, mut now) = (kept(), Instant::now());
            (0..100).find(|_| {
                let given_up = sender.give_up(&mut kept, wait, now);
                now += step;
                given_up.is_some()
            })
        };
        for count in 0..=7 {
            let mut attr = QpAttr::default();
            attr.timeout = Some(8);
            attr.retry_count = Some(count);
            attr.rnr_retry = Some(count);
            sender.set_attributes(&attr);
            let (timeout, rnr) = (Duration::from_nanos(4096 << 8), sender.rnr_timer());
            let count = u32::from(count);
            // 7 is for ever.
            let finite = (count < 7).then_some(count);
            assert_eq!(waits(&sender, Wait::Recv, rnr), finite);
            assert_eq!(waits(&sender, Wait::Recv, rnr / 2), finite.map(|n| 2 * n));
            assert_eq!(waits(&sender, Wait::Peer, timeout), Some(count + 1));
            assert_eq!(waits(&sender, Wait::Room, timeout), None);
        }
    }

    /// Memory of its own mapping, whose pages come and go.
    struct OnDemand {
        region: Arc<dyn NicMr>,
        range: Range<usize>,
    }

    impl OnDemand {
        fn new(nic: &SoftNic, side: &Side, len: usize) -> Self {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new mapping at an address of the kernel's choice.
            let start =
                unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags) };
            let start = start.expect("memory").expose_provenance();
            asked::forget(&(start..start + len));
            let (pd, iova) = (side.pd.num(), Iova(start as u64));
            // SAFETY: nobody uses the memory but requests.
            let region =
                unsafe { nic.register_on_demand(pd, start, len, iova, Access::EVERYTHING) };
            OnDemand {
                region: region.expect("registered"),
                range: start..start + len,
            }
        }

        fn sge(&self) -> [Sge; 1] {
            [Sge {
                addr: self.range.start as u64,
                len: self.range.len() as u32,
                lkey: self.region.lkey(),
            }]
        }

        fn unmap(&self) {
            let start = std::ptr::with_exposed_provenance_mut(self.range.start);
            // SAFETY: the mapping's own range.
            unsafe { rustix::mm::munmap(start, self.range.len()) }.expect("unmapped");
        }
    }

    /// Two sides that are connected.
    fn sides(host: &Host) -> (Arc<SoftNic>, Side, Side) {
        let (us, them) = (host.open(), host.open());
        let (mut ours, mut theirs) = (Side::on(&us), Side::on(&them));
        ours.connect(&theirs.qp.endpoint().expect("a GID"));
        theirs.connect(&ours.qp.endpoint().expect("a GID"));
        (us, ours, theirs)
    }

    fn next(side: &mut Side) -> Wc {
        let mut out = [Wc::default()];
        while side.cq.poll(&mut out).expect("no overrun") == 0 {
            std::thread::yield_now();
        }
        out[0]
    }

    fn wait_in_vain(side: &mut Side) {
        for _ in 0..500 {
            assert_eq!(side.cq.poll(&mut [Wc::default()]), Ok(0));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_request_that_waits_asks_for_no_pages_however_often_it_is_tried() {
        let host = Host::new();
        let (us, mut ours, mut theirs) = sides(&host);
        let lane = LANE_LINES * LINE;
        let memory = OnDemand::new(&us, &ours, 2 * lane);
        let room = theirs
            .pd
            .allocate(4 * lane, Access::EVERYTHING)
            .expect("memory");
        let sges = memory.sge();
        let asked = || asked::inside(&memory.range);
        // For a RECV, and then for room in the lane.
        ours.qp.post_send(&[Wr::send(&sges).id(1)]).expect("posted");
        wait_in_vain(&mut ours);
        assert_eq!(asked(), []);
        let recv = [room.sge(0..2 * lane)];
        let recv = RecvWr { id: 2, sges: &recv };
        theirs.qp.post_recv(&[recv]).expect("posted");
        wait_in_vain(&mut ours);
        let first = memory.range.start..memory.range.start + lane;
        assert_eq!(asked(), [first]);
        std::thread::scope(|scope| {
            let received = scope.spawn(|| next(&mut theirs).status);
            assert_eq!(next(&mut ours).status, WcStatus::Success);
            assert_eq!(received.join().expect("received"), WcStatus::Success);
        });
        // For the answer where the peer's memory is.
        let before = asked().len();
        let write = Wr::write(&sges, room.remote(0)).id(3);
        ours.qp.post_send(&[write]).expect("posted");
        assert_eq!(next(&mut ours).status, WcStatus::Success);
        let whole = std::slice::from_ref(&memory.range);
        assert_eq!(&asked()[before..], whole);
        let read = Wr::read(&sges, room.remote(0)).id(4);
        ours.qp.post_send(&[read]).expect("posted");
        assert_eq!(next(&mut ours).status, WcStatus::Success);
        assert_eq!(asked().len(), before + 2);
        memory.unmap();
    }

    #[test]
    fn pages_that_go_while_a_request_waits_fail_it() {
        let host = Host::new();
        let (us, mut ours, mut theirs) = sides(&host);
        let memory = OnDemand::new(&us, &ours, 4096);
        let room = theirs
            .pd
            .allocate(4096, Access::EVERYTHING)
            .expect("memory");
        let sges = memory.sge();
        ours.qp.post_send(&[Wr::send(&sges).id(1)]).expect("posted");
        wait_in_vain(&mut ours);
        memory.unmap();
        let recv = [room.sge(0..4096)];
        let recv = RecvWr { id: 2, sges: &recv };
        theirs.qp.post_recv(&[recv]).expect("posted");
        let failed = next(&mut ours);
        assert_eq!((failed.id, failed.status), (1, WcStatus::LocProtErr));
        assert_eq!(failed.vendor_err, VendorErr::from(Cause::LocalPages));
    }
}
