//! A peer adapter, seen from here: its segments, and its regions as far as they were used.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::event::epoll::{self, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::Timespec;
use rustix::net::Shutdown;
use rustix::process::Pid;
use verbs::{Gid, VerbsError};

use crate::contact::adapter::Adapter;
use crate::contact::copy::{Staged, Stages, Waits};
use crate::contact::delegated::DelegatedQuestion;
use crate::contact::doorbell::Doorbell;
use crate::contact::foreign::Foreign;
use crate::contact::protocol::{self, Message, PeerSocket, STATUS_OK};
use crate::contact::question::{QUESTIONS_MAX, Question};
use crate::shared::allotment::Allotment;
use crate::shared::layout::{
    CHANNELS, Inbox, LANE_LINES, LaneHead, Line, MrEntry, Published, mr_index, qp_index,
};
use crate::shared::mr_entry::Described;
use crate::shared::qp_entry;
use crate::shared::route::Route;
use crate::shared::segment::Mapping;

/// Messages of a peer taken in one turn.
const ANSWERS: usize = 16;
/// Answers of a peer with files that cannot be mapped, at most.
const WRONG_MAX: u32 = 64;

/// What a peer was asked.
#[derive(Clone, Debug)]
enum Asked {
    Region(Arc<Question>),
    Delegated(Arc<DelegatedQuestion>),
}

/// The process that a connection was opened to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called {
    pub(crate) gid: Gid,
    pub(crate) instance: u32,
    /// Names the connection to the agent. Ours: two peers can say that they are the same
    /// incarnation, and the end of one must not be the other's.
    pub(crate) token: u64,
}

/// A peer adapter. It stays mapped while somebody holds it, also after it has died.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) gid: Gid,
    pub(crate) instance: u32,
    pub(crate) incarnation: u64,
    pub(crate) pid: Pid,
    token: u64,
    published: Mapping,
    /// What the peer has made for us to write.
    inbox: Mapping,
    allotment: Allotment,
    stages: Arc<Stages>,
    /// The kernel does not copy to and from its memory for this process.
    out_of_reach: AtomicBool,
    /// Lanes were closed since the peer was last asked to look for such.
    any_closed: AtomicBool,
    /// Its channels, while some lane of ours rings them.
    doorbells: Mutex<HashMap<usize, Weak<Doorbell>>>,
    /// What it was asked over the connection and has not answered, in order.
    asked: Mutex<VecDeque<Asked>>,
    /// Held by whoever takes answers: what has been read is dealt with before it is given back.
    hearing: Mutex<()>,
    /// Answers that brought what cannot be mapped.
    wrong: AtomicU32,
    /// Its answers wait for descriptors of this process, and the agent is not told of them. Changed under
    /// the lock of the questions.
    unwatched: AtomicBool,
    /// Until the peer has gone: whoever still holds it then holds no descriptor.
    socket: Mutex<Option<Arc<PeerSocket>>>,
    dead: AtomicBool,
    /// RECVs that links to its queue pairs have used which are there no more: by number, with the epoch.
    used_recvs: Mutex<HashMap<u32, (u16, u32)>>,
    /// Its regions by key, each as it was described when it was mapped.
    regions: Mutex<HashMap<u32, (Described, Arc<Mapping>)>>,
}

impl Peer {
    /// The peer that has answered over a connection, with the files of its segments.
    pub(crate) fn new(
        adapter: &Adapter,
        called: Called,
        socket: PeerSocket,
        incarnation: u64,
        [published, inbox]: [&Foreign; 2],
    ) -> Result<Self, VerbsError> {
        let source = &adapter.source;
        let map = |file: &Foreign, len, writable| source.map_foreign(file.as_fd(), len, writable);
        let peer = Peer {
            gid: called.gid,
            instance: called.instance,
            incarnation,
            pid: socket.pid(),
            token: called.token,
            published: map(published, size_of::<Published>(), false)?,
            inbox: map(inbox, size_of::<Inbox>(), true)?,
            allotment: Allotment::default(),
            stages: Arc::default(),
            out_of_reach: AtomicBool::new(false),
            any_closed: AtomicBool::new(false),
            doorbells: Mutex::new(HashMap::new()),
            asked: Mutex::new(VecDeque::new()),
            hearing: Mutex::new(()),
            wrong: AtomicU32::new(0),
            unwatched: AtomicBool::new(false),
            socket: Mutex::new(Some(Arc::new(socket))),
            dead: AtomicBool::new(false),
            used_recvs: Mutex::new(HashMap::new()),
            regions: Mutex::new(HashMap::new()),
        };
        for header in [&peer.published().header, &peer.inbox().header] {
            Adapter::check_header(header, peer.instance, incarnation)?;
        }
        Ok(peer)
    }

    pub(crate) fn published(&self) -> &Published {
        // SAFETY: the mapping has the layout's size, cannot shrink, and holds only atomics, for
        // which any bytes are valid.
        unsafe { self.published.start().cast::<Published>().as_ref() }
    }

    fn inbox(&self) -> &Inbox {
        // SAFETY: as for `published`.
        unsafe { self.inbox.start().cast::<Inbox>().as_ref() }
    }

    pub(crate) fn mr_entry(&self, index: usize) -> Option<&MrEntry> {
        self.published().mrs.get(index)
    }

    /// The epoch of one of its queue pairs.
    pub(crate) fn epoch_of(&self, qpn: u32) -> u16 {
        let entry = &self.published().qps[qp_index(qpn)];
        qp_entry::epoch(entry.epoch_and_timer.load(Ordering::Relaxed))
    }

    /// Takes a stage of our inbox there, if any is free.
    pub(crate) fn take_stage(&self, waits: &mut Option<Waits>) -> Option<Staged> {
        self.stages.take(waits)
    }

    /// The first byte of a stage, of [`STAGE_LEN`](crate::shared::layout::STAGE_LEN).
    pub(crate) fn stage(&self, stage: &Staged) -> *mut u8 {
        let stage = &self.inbox().stages[stage.number()];
        std::ptr::from_ref(stage).cast_mut().cast()
    }

    /// Whether the kernel was found not to copy to and from its memory for this process.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.out_of_reach.load(Ordering::Relaxed)
    }

    /// Notes that the kernel does not copy to and from its memory for this process.
    pub(crate) fn note_out_of_reach(&self) {
        if !self.out_of_reach.swap(true, Ordering::Relaxed) {
            let pid = self.pid.as_raw_nonzero();
            tracing::debug!(pid, "the kernel does not copy: a peer's process does");
        }
    }

    /// Names the connection to the agent.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// The connection, while there is one.
    fn socket(&self) -> rustix::io::Result<Arc<PeerSocket>> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.clone().ok_or(rustix::io::Errno::CONNRESET)
    }

    /// Whether the peer's process holds its end of the connection. As long as it does, its number is
    /// not another process's.
    pub(crate) fn is_connected(&self) -> bool {
        let Ok(socket) = self.socket() else {
            return false;
        };
        let mut fds = [PollFd::new(&*socket, PollFlags::RDHUP)];
        let now = Timespec::default();
        loop {
            match rustix::event::poll(&mut fds, Some(&now)) {
                // A signal says nothing of the peer, though nothing was waited for.
                Err(rustix::io::Errno::INTR) => {}
                polled => return matches!(polled, Ok(0)),
            }
        }
    }

    fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Notes how many RECVs of a queue pair, in an epoch of it, a link has used that goes.
    pub(crate) fn note_used_recvs(&self, qpn: u32, epoch: u16, count: u32) {
        let mut used = self
            .used_recvs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        used.insert(qpn, (epoch, count));
    }

    /// How many such RECVs the last link has used, if there was one from here in this epoch.
    pub(crate) fn take_used_recvs(&self, qpn: u32, epoch: u16) -> Option<u32> {
        let mut used = self
            .used_recvs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (of, count) = used.remove(&qpn)?;
        (of == epoch).then_some(count)
    }

    /// Takes the peer for gone. The agent is told by the connection, which ends here if it has not
    /// ended already.
    pub(crate) fn hang_up(&self) {
        self.mark_dead();
        // What has ended already is as good.
        if let Ok(socket) = self.socket() {
            let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
        }
    }

    /// Closes what leads to a peer that has gone.
    pub(crate) fn close(&self, adapter: &Adapter) {
        let socket = self
            .socket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(socket) = socket
            // Somebody may be using it just now. Level-triggered: the hang-up would be reported
            // until he has done.
            && let Err(e) = epoll::delete(&adapter.agent_epoll, &*socket)
        {
            tracing::debug!(error = %e, "forgetting a peer's connection");
        }
        let doorbells = {
            let mut doorbells = self
                .doorbells
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *doorbells)
        };
        for doorbell in doorbells.into_values().filter_map(|one| one.upgrade()) {
            doorbell.close();
        }
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// The memory of one of its shared regions, if it is mapped here already.
    pub(crate) fn mapped(&self, key: u32, region: &Described) -> Option<Arc<Mapping>> {
        let regions = self.regions();
        let (known, mapping) = regions.get(&key)?;
        (known == region).then(|| Arc::clone(mapping))
    }

    fn regions(&self) -> MutexGuard<'_, HashMap<u32, (Described, Arc<Mapping>)>> {
        // Every change is a single step.
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, VecDeque<Asked>> {
        // Every change is a single step.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has questions to answer.
    pub(crate) fn is_asked(&self) -> bool {
        !self.asked().is_empty()
    }

    /// Sends a question, unless it was sent or the peer takes no more: then later. Waits for nobody;
    /// the agent takes the answer.
    pub(crate) fn ask(&self, adapter: &Adapter, question: &Arc<Question>) {
        if self.unwatched.load(Ordering::Relaxed) {
            self.set_watched(adapter, true);
        }
        if question.is_sent() {
            return;
        }
        // Under the lock, so that answers come in the order in which questions are noted.
        let mut asked = self.asked();
        let is_mapped = || self.mapped(question.key(), question.region()).is_some();
        // Another's answer may just have come.
        if asked.len() >= QUESTIONS_MAX || is_mapped() {
            return;
        }
        match self.tell(&Message::region(question.key())) {
            Ok(()) => {
                question.note_sent();
                asked.push_back(Asked::Region(Arc::clone(question)));
            }
            // Its end is noticed elsewhere.
            Err(error) => tracing::debug!(%error, "a peer takes no question"),
        }
    }

    /// Sends what the peer is to carry out, unless it was sent or the peer takes no more questions: then
    /// later. Waits for nobody; the agent takes the answer.
    pub(crate) fn delegate(&self, adapter: &Adapter, question: &Arc<DelegatedQuestion>) {
        if self.unwatched.load(Ordering::Relaxed) {
            self.set_watched(adapter, true);
        }
        if question.is_sent() {
            return;
        }
        let mut asked = self.asked();
        if asked.len() >= QUESTIONS_MAX {
            return;
        }
        match self.tell(&question.message()) {
            Ok(()) => {
                question.note_sent();
                asked.push_back(Asked::Delegated(Arc::clone(question)));
            }
            Err(error) => tracing::debug!(%error, "a peer takes no request"),
        }
    }

    /// Has the agent told of answers, or not: it would spin while this process has no descriptors for
    /// what they bring. Whoever waits for one has it try again.
    fn set_watched(&self, adapter: &Adapter, watched: bool) {
        let _asked = self.asked();
        let Ok(socket) = self.socket() else {
            return;
        };
        self.unwatched.store(!watched, Ordering::Relaxed);
        let events = match watched {
            true => EventFlags::IN,
            false => EventFlags::empty(),
        };
        if let Err(error) = adapter.watch_anew(&*socket, self.token, events) {
            tracing::debug!(%error, watched, "cannot change how a peer's answers are watched");
        }
    }

    /// Takes the answers that have come by now; false when no more will: the connection is at its
    /// end, or the peer broke the rules.
    pub(crate) fn take_answers(&self, adapter: &Adapter) -> bool {
        use rustix::io::Errno;
        let Ok(socket) = self.socket() else {
            return false;
        };
        let _one_at_a_time = self.hearing.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..ANSWERS {
            match socket.receive() {
                Ok(Some((reply, fds))) => {
                    let first = self.asked().front().cloned();
                    let Some(question) = first else {
                        tracing::debug!("a peer answers what it was not asked");
                        return false;
                    };
                    let is_right = match &question {
                        Asked::Region(question) => {
                            let is_right = self.take_answer(adapter, question, &reply, fds);
                            question.note_answered();
                            is_right
                        }
                        Asked::Delegated(question) => question.take(&reply) && fds.is_empty(),
                    };
                    // Only now: whoever finds none left has them all answered.
                    self.asked().pop_front();
                    if !is_right && self.wrong.fetch_add(1, Ordering::Relaxed) >= WRONG_MAX {
                        tracing::debug!("a peer keeps answering with what cannot be mapped");
                        return false;
                    }
                }
                Err(Errno::AGAIN) => return true,
                // The answer stays there until there are descriptors for what it brings.
                Err(Errno::MFILE) if self.is_connected() => {
                    self.set_watched(adapter, false);
                    return true;
                }
                // What the peer left unread when it went is told once, and before what it had sent.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }

    /// Maps what an answer brings; false when that is not what it should be. That this process is short
    /// of room for it says nothing.
    fn take_answer(
        &self,
        adapter: &Adapter,
        question: &Question,
        reply: &Message,
        fds: Vec<Foreign>,
    ) -> bool {
        use verbs::Access;
        let (key, region) = (question.key(), question.region());
        if reply.code != STATUS_OK && fds.is_empty() {
            return true; // There is no such region any more, or it is not for us.
        }
        if reply.code == STATUS_OK && fds.len() == 1 && self.mapped(key, region).is_some() {
            // Another queue pair asked first.
            return true;
        }
        let writable = region
            .access
            .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let mapped = match (reply.code, fds.as_slice(), usize::try_from(region.len)) {
            (STATUS_OK, [file], Ok(len)) => {
                let file = file.as_fd();
                (adapter.source).map_part(file, region.in_file, len, writable)
            }
            _ => Err(VerbsError::invalid("peer's answer", "it is no file")),
        };
        let mapping = match mapped {
            Ok(mapping) => Arc::new(mapping),
            Err(error) => {
                tracing::debug!(%error, key, "cannot map a peer's region");
                return is_shortage(&error);
            }
        };
        let gone: (Vec<_>, _) = {
            let mut regions = self.regions();
            // Regions that are there no more let go of their memory. A peer may write what it likes into
            // its entries: it loses mappings of its own memory by that.
            let is_gone = |old: &u32| {
                let entry = self.mr_entry(mr_index(*old));
                entry.is_none_or(|entry| entry.key.load(Ordering::Acquire) != *old)
            };
            let gone = regions.extract_if(|old, _| is_gone(old)).collect();
            (gone, regions.insert(key, (*region, mapping)))
        };
        // Not under the lock.
        drop(gone);
        true
    }

    /// What rings one of its channels. Waits for nobody.
    pub(crate) fn doorbell(
        &self,
        adapter: &Adapter,
        channel: usize,
    ) -> Result<Arc<Doorbell>, VerbsError> {
        if channel >= CHANNELS {
            let why = "its completion channel";
            return Err(VerbsError::invalid("peer's queue pair", why));
        }
        let mut doorbells = self
            .doorbells
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that no doorbell comes after those that the peer's end has closed.
        if self.is_dead() {
            return Err(self.unreachable(rustix::io::Errno::CONNRESET));
        }
        if let Some(doorbell) = doorbells.get(&channel).and_then(Weak::upgrade) {
            return Ok(doorbell);
        }
        let path = adapter
            .membership
            .channel_of(self.gid, self.instance, channel);
        let doorbell = Doorbell::new(&path)
            .map_err(|e| VerbsError::io("connecting to a peer's completion channel", e))?;
        let doorbell = Arc::new(doorbell);
        doorbells.retain(|_, one| one.strong_count() > 0);
        doorbells.insert(channel, Arc::downgrade(&doorbell));
        Ok(doorbell)
    }

    /// A lane of our inbox there: its lines, and how far the peer has come.
    pub(crate) fn lane(&self, lane: usize) -> (&[Line; LANE_LINES], &LaneHead) {
        (&self.inbox().lines[lane].0, &self.inbox().heads[lane])
    }

    /// Opens a lane between two queue pairs: its number, and how many times it was opened. Waits
    /// for nobody. One that is to go on behind a full lane is refused when too many lanes are left to
    /// be read.
    pub(crate) fn open_lane(
        &self,
        (src_qpn, dst_qpn): (u32, u32),
        epoch: u16,
        route: Route,
        is_behind: bool,
    ) -> Result<(usize, u32), VerbsError> {
        let heads = &self.inbox().heads;
        let taken = match is_behind {
            true => self.allotment.take_behind(heads),
            false => self.allotment.take(heads),
        };
        // There may be lanes that were closed since the peer looked last. If this does not go through
        // either, the next attempt asks again.
        if taken.is_err()
            && self.any_closed.swap(false, Ordering::AcqRel)
            && self.tell(&Message::sweep()).is_err()
        {
            self.any_closed.store(true, Ordering::Release);
        }
        let lane = taken?;
        if let Err(e) = self.tell(&Message::lane(lane as u32, src_qpn, dst_qpn, epoch, route)) {
            self.allotment.give_back(lane);
            return Err(VerbsError::io("announcing a lane", e));
        }
        Ok((lane, self.allotment.opened(lane)))
    }

    /// Gives a lane back, in which nothing will be written any more.
    pub(crate) fn close_lane(&self, lane: usize, opened: u32) {
        let tail = &self.inbox().tails[lane];
        tail.closed.store(opened, Ordering::Release);
        self.any_closed.store(true, Ordering::Release);
        self.allotment.give_back(lane);
    }

    /// How many times the peer has given lanes back: as long as that is the same, there are no more
    /// than before.
    pub(crate) fn given_back(&self) -> u32 {
        self.inbox().given_back.load(Ordering::Acquire)
    }

    /// Whether the peer has read a lane to its end that was closed.
    pub(crate) fn has_read(&self, lane: usize, opened: u32) -> bool {
        let released = self.inbox().heads[lane].released.load(Ordering::Relaxed);
        // Another link may have used it since.
        released.wrapping_sub(opened) as i32 >= 0
    }

    /// Sends what has no answer.
    fn tell(&self, message: &Message) -> rustix::io::Result<()> {
        protocol::send(self.socket()?.as_fd(), message, &[])
    }

    fn unreachable(&self, error: rustix::io::Errno) -> VerbsError {
        VerbsError::Unreachable {
            peer: format!("instance {} of {}", self.instance, self.gid),
            why: error.to_string(),
        }
    }
}

/// Whether this process was short of something, which says nothing of the peer.
fn is_shortage(error: &VerbsError) -> bool {
    const SHORT_OF: [i32; 3] = [libc::ENOMEM, libc::EMFILE, libc::ENFILE];
    let code = match error {
        VerbsError::Io { source, .. } => source.raw_os_error(),
        _ => None,
    };
    code.is_some_and(|code| SHORT_OF.contains(&code))
}
