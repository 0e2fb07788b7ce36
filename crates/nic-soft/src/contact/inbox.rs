//! An inbox as its owner sees it: made for one peer, which alone can write it.
//!
//! Who the peer is was found out when its connection began ([`Peerage`]); nothing in the inbox can
//! change it. Which lanes are in use stands here, in private memory. The inbox goes with the
//! connection, once the pollers have let go of its lanes.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::process::Pid;
use verbs::{Gid, VerbsError};

use crate::contact::adapter::Adapter;
use crate::shared::lane::Reader;
use crate::shared::layout::{Inbox, LANES, LaneHead, Line};
use crate::shared::segment::{Mapping, Writers};

/// Who is at the other end of a connection, as far as it has been proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Peerage {
    pub(crate) gid: Gid,
    pub(crate) instance: u32,
    pub(crate) incarnation: u64,
}

/// What a lane is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    /// Nobody uses it.
    Free,
    /// A poller reads it, or will.
    Read,
    /// Nobody reads it any more, but its sender has not closed it yet.
    Retired,
    /// Its sender has closed it, and somebody is giving its pages back.
    Clearing,
}

#[derive(Clone, Copy, Debug)]
struct LaneState {
    life: Life,
    /// How many times it was opened and given back.
    released: u32,
}

/// One peer's inbox.
#[derive(Debug)]
pub(crate) struct PeerInbox {
    pub(crate) peer: Peerage,
    pid: Pid,
    mapping: Mapping,
    /// As many as were ever used.
    lanes: Mutex<Vec<LaneState>>,
    /// How many of them are in use.
    used: AtomicUsize,
    /// How many are in use in all inboxes of the peer's process.
    used_by_process: Arc<AtomicUsize>,
    gone: AtomicBool,
    /// Times that the peer wrote what no peer of ours would write.
    complaints: AtomicU32,
}

impl PeerInbox {
    /// Makes an inbox, and the descriptor to give to its peer. Nobody else gets one: neither this
    /// process nor another one of the user's keeps a way to the file.
    fn new(
        adapter: &Adapter,
        peer: Peerage,
        pid: Pid,
        used_by_process: Arc<AtomicUsize>,
    ) -> Result<(OwnedFd, Self), VerbsError> {
        let source = &adapter.source;
        let (file, mapping) =
            source.create("vervain-inbox", size_of::<Inbox>(), Writers::Everybody)?;
        let inbox = PeerInbox {
            peer,
            pid,
            mapping,
            lanes: Mutex::new(Vec::new()),
            used: AtomicUsize::new(0),
            used_by_process,
            gone: AtomicBool::new(false),
            complaints: AtomicU32::new(0),
        };
        adapter.sign(&inbox.inbox().header);
        Ok((file, inbox))
    }

    fn inbox(&self) -> &Inbox {
        // SAFETY: the mapping has the layout's size, cannot shrink, and holds only atomics, for
        // which any bytes are valid; it lives as long as `self`.
        unsafe { self.mapping.start().cast::<Inbox>().as_ref() }
    }

    fn lines(&self, lane: usize) -> &[Line] {
        &self.inbox().lines[lane].0
    }

    /// A stage's first byte, of [`STAGE_LEN`](crate::shared::layout::STAGE_LEN).
    pub(crate) fn stage(&self, number: usize) -> *mut u8 {
        (&raw const self.inbox().stages[number]).cast_mut().cast()
    }

    fn head(&self, lane: usize) -> &LaneHead {
        &self.inbox().heads[lane]
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<LaneState>> {
        // Every change of a state is a single store.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lanes in use.
    pub(crate) fn lanes_used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Lanes in use in the inboxes of the peer's process.
    pub(crate) fn lanes_of_process(&self) -> usize {
        self.used_by_process.load(Ordering::Relaxed)
    }

    /// Takes a lane up that the peer has opened; false when it is none, or open already.
    #[must_use]
    fn open(&self, lane: usize) -> bool {
        if lane >= LANES {
            return false;
        }
        let mut lanes = self.lanes();
        if lanes.len() <= lane {
            let fresh = LaneState {
                life: Life::Free,
                released: 0,
            };
            lanes.resize(lane + 1, fresh);
        }
        let free = lanes[lane].life == Life::Free;
        if free {
            lanes[lane].life = Life::Read;
            self.used.fetch_add(1, Ordering::Relaxed);
            self.used_by_process.fetch_add(1, Ordering::Relaxed);
        }
        free
    }

    /// Gives a lane back that its sender has closed: another one can begin there.
    fn release(&self, lane: usize) {
        self.clear_if(lane, |_| true);
    }

    /// Puts a lane aside that nobody reads any more, until its sender has closed it and asks for it.
    fn retire(&self, lane: usize) {
        self.lanes()[lane].life = Life::Retired;
    }

    /// The same for one that was read. Its sender may have closed it, and asked, before.
    fn retire_read(&self, lane: usize) {
        self.retire(lane);
        self.clear_if_closed(lane);
    }

    /// Gives back the retired lanes whose sender has closed them.
    pub(crate) fn sweep(&self) {
        let count = self.lanes().len();
        (0..count).for_each(|number| self.clear_if_closed(number));
    }

    fn clear_if_closed(&self, number: usize) {
        let closed = &self.inbox().tails[number].closed;
        self.clear_if(number, |lane| {
            lane.life == Life::Retired
                && closed.load(Ordering::Acquire) == lane.released.wrapping_add(1)
        });
    }

    /// Makes a lane as it was before it was used first, if it is due.
    fn clear_if(&self, number: usize, is_due: impl FnOnce(&LaneState) -> bool) {
        if self.begin_clearing(number, is_due) {
            self.discard(number);
            self.end_clearing(number);
        }
    }

    /// Keeps a lane that is due to whoever clears it. The lock is not held meanwhile: lanes are opened
    /// under the lock that everybody waits for who arms, and giving pages back takes long.
    fn begin_clearing(&self, number: usize, is_due: impl FnOnce(&LaneState) -> bool) -> bool {
        let lane = &mut self.lanes()[number];
        let is_due = is_due(lane);
        if is_due {
            lane.life = Life::Clearing;
        }
        is_due
    }

    fn discard(&self, number: usize) {
        let start = &raw const self.inbox().lines[number];
        if let Err(e) = self
            .mapping
            .discard(start.addr(), size_of_val(&self.inbox().lines[number]))
        {
            // Without a hole the old bytes must go by hand.
            tracing::debug!(number, error = %e, "no hole in the inbox; clearing the lane");
            for line in self.lines(number) {
                line.word.store(0, Ordering::Relaxed);
            }
        }
    }

    fn end_clearing(&self, number: usize) {
        let lane = &mut self.lanes()[number];
        lane.released = lane.released.wrapping_add(1);
        lane.life = Life::Free;
        self.used.fetch_sub(1, Ordering::Relaxed);
        self.used_by_process.fetch_sub(1, Ordering::Relaxed);
        let head = self.head(number);
        head.consumed.store(0, Ordering::Relaxed);
        // The sender takes the lane anew once it sees this.
        head.released.store(lane.released, Ordering::Release);
        // Nor is this read here. Who has found no lane tries again once it has changed.
        self.inbox().given_back.fetch_add(1, Ordering::Release);
    }

    /// Closes a lane as its sender does.
    #[cfg(test)]
    pub(crate) fn close_as_sender(&self, lane: usize, opened: u32) {
        let tail = &self.inbox().tails[lane];
        tail.closed.store(opened, Ordering::Release);
    }

    /// Notes that the peer wrote what no peer of ours would write.
    pub(crate) fn complain(&self, why: &'static str, lane: usize, qp: u32) {
        let before = self.complaints.fetch_add(1, Ordering::Relaxed);
        // Once a peer, so that nobody fills the log.
        if before == 0 {
            let instance = self.peer.instance;
            tracing::warn!(instance, lane, qp, why, "a peer broke the rules");
        }
    }

    /// Notes that the peer has gone: what is in the lanes is the rest.
    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Drop for PeerInbox {
    fn drop(&mut self) {
        // Those that nobody reads any more and whose sender has not closed them.
        let used = self.used.load(Ordering::Relaxed);
        self.used_by_process.fetch_sub(used, Ordering::Relaxed);
    }
}

/// An adapter's inboxes, also those of peers that have gone while pollers still read their lanes.
#[derive(Debug, Default)]
pub(crate) struct Inboxes(Mutex<Vec<Weak<PeerInbox>>>);

impl Inboxes {
    /// Makes an inbox for a peer, and the descriptor to give to it; `None` when its process has
    /// `max` already.
    pub(crate) fn add(
        &self,
        adapter: &Adapter,
        peer: Peerage,
        pid: Pid,
        max: usize,
    ) -> Result<Option<(OwnedFd, Arc<PeerInbox>)>, VerbsError> {
        let theirs = self.of(pid);
        if theirs.len() >= max {
            return Ok(None);
        }
        let used = theirs.first().map(|one| Arc::clone(&one.used_by_process));
        let (file, inbox) = PeerInbox::new(adapter, peer, pid, used.unwrap_or_default())?;
        let inbox = Arc::new(inbox);
        let mut inboxes = self.lock();
        inboxes.retain(|one| one.strong_count() > 0);
        inboxes.push(Arc::downgrade(&inbox));
        Ok(Some((file, inbox)))
    }

    /// Lanes that peers have opened into the adapter.
    pub(crate) fn lanes_used(&self) -> usize {
        self.all().iter().map(|one| one.lanes_used()).sum()
    }

    /// Gives back lanes that nobody reads any more and whose senders have closed them.
    pub(crate) fn sweep(&self) {
        for inbox in self.all() {
            inbox.sweep();
        }
    }

    /// Those of a process.
    pub(crate) fn of(&self, pid: Pid) -> Vec<Arc<PeerInbox>> {
        let mut theirs = self.all();
        theirs.retain(|one| one.pid == pid);
        theirs
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<PeerInbox>>> {
        // Every change is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<PeerInbox>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// A lane of an inbox that its peer has opened, until nobody reads it any more.
#[derive(Debug)]
pub(crate) struct InboxLane {
    inbox: Arc<PeerInbox>,
    number: usize,
    fate: Fate,
}

/// What becomes of a lane that is dropped.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It leads nowhere. To make it as it was at once would cost us more than it costs a peer to
    /// announce such lanes.
    Refused,
    /// A poller has it.
    Read,
    /// Its sender has said that it writes no more.
    Closed,
}

impl InboxLane {
    /// Takes a lane up; `None` when it is no lane, or open already.
    pub(crate) fn open(inbox: &Arc<PeerInbox>, number: usize) -> Option<Self> {
        inbox.open(number).then(|| InboxLane {
            inbox: Arc::clone(inbox),
            number,
            fate: Fate::Refused,
        })
    }

    pub(crate) fn inbox(&self) -> &Arc<PeerInbox> {
        &self.inbox
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// What reads it, from its beginning. The memory is there as long as the lane.
    pub(crate) fn reader(&self) -> Reader {
        let head = self.inbox.head(self.number);
        Reader::new(self.inbox.lines(self.number), &head.consumed)
    }

    /// It leads to a queue pair, whose poller is to read it.
    pub(crate) fn accept(&mut self) {
        self.fate = Fate::Read;
    }

    /// The sender has said that it writes no more.
    pub(crate) fn note_closed(&mut self) {
        self.fate = Fate::Closed;
    }
}

impl Drop for InboxLane {
    fn drop(&mut self) {
        match self.fate {
            Fate::Refused => self.inbox.retire(self.number),
            Fate::Read => self.inbox.retire_read(self.number),
            Fate::Closed => self.inbox.release(self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::adapter_without_agent;

    #[test]
    fn while_a_lane_is_cleared_others_are_opened_and_it_is_not() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let adapter = adapter_without_agent(run_dir.path());
        let peer = Peerage {
            gid: adapter.gid,
            instance: 9,
            incarnation: 9,
        };
        let added = Inboxes::default().add(&adapter, peer, rustix::process::getpid(), 1);
        let (_, inbox) = added.expect("made").expect("its first");
        for number in 0..2 {
            drop(InboxLane::open(&inbox, number).expect("it is free"));
            inbox.close_as_sender(number, 1);
        }
        assert!(inbox.begin_clearing(0, |_| true));
        // A second sweep leaves that one alone, and clears the other.
        inbox.sweep();
        assert_eq!(inbox.lanes_used(), 1);
        assert!(InboxLane::open(&inbox, 0).is_none(), "it is not free yet");
        let other = InboxLane::open(&inbox, 1).expect("it is free");
        inbox.discard(0);
        inbox.end_clearing(0);
        let again = InboxLane::open(&inbox, 0).expect("it is free");
        assert_eq!(inbox.lanes_used(), 2);
        drop((other, again));
    }

    #[test]
    fn a_process_has_the_lanes_of_all_its_inboxes_that_are_left() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let adapter = adapter_without_agent(run_dir.path());
        let inboxes = Inboxes::default();
        let add = |pid, max| {
            let peer = Peerage {
                gid: adapter.gid,
                instance: 9,
                incarnation: 9,
            };
            let pid = Pid::from_raw(pid).expect("a number");
            let added = inboxes.add(&adapter, peer, pid, max).expect("made");
            added.map(|(_, inbox)| inbox)
        };
        let theirs = [add(7, 2), add(7, 2)].map(|one| one.expect("there is room"));
        assert!(add(7, 2).is_none());
        let other = add(8, 2).expect("it is another process");
        let open =
            |inbox: &Arc<PeerInbox>, number| InboxLane::open(inbox, number).expect("it is free");
        let mut lanes = vec![
            open(&theirs[0], 0),
            open(&theirs[1], 0),
            open(&theirs[1], 1),
        ];
        let of_other = open(&other, 5);
        let counts = |inbox: &PeerInbox| (inbox.lanes_used(), inbox.lanes_of_process());
        assert_eq!(counts(&theirs[0]), (1, 3));
        assert_eq!((counts(&other), inboxes.lanes_used()), ((1, 1), 4));
        // One is given back, and one stays until its sender closes it.
        let mut last = lanes.remove(2);
        last.note_closed();
        drop(last);
        drop(lanes.remove(1));
        assert_eq!(counts(&theirs[1]), (1, 2));
        // The sender goes instead.
        let [first, second] = theirs;
        drop(second);
        assert_eq!(counts(&first), (1, 1));
        let again = add(7, 2).expect("there is room again");
        let lane = open(&again, 3);
        assert_eq!((counts(&first), counts(&again)), ((1, 2), (1, 2)));
        drop((lane, of_other));
    }
}
