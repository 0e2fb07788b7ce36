//! What is known of a context's objects and of the requests that are under way there.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use verbs::{CqInit, Gid, PdNum, QpAttr, QpInit, QpNum, Transport};

use super::board;
use super::regions::Region;
use super::report::{Finding, tell};
use super::requests::{Posted, Request};
use crate::process::caller::Stack;
use crate::process::generation;

/// Requests that were refused and are remembered, a queue pair.
const REFUSED_MAX: usize = 4096;

/// All contexts that are open.
pub(super) static CONTEXTS: Mutex<Vec<Weak<State>>> = Mutex::new(Vec::new());

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a lock is given back soon. It is not where the one who has it is what a signal's handler has interrupted.
pub(super) fn is_free<T>(mutex: &Mutex<T>) -> bool {
    const TRIES: usize = 100;
    (0..TRIES).any(|number| {
        if number > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        !matches!(mutex.try_lock(), Err(TryLockError::WouldBlock))
    })
}

/// Tells that a child uses what its parent has opened.
pub(crate) fn inherited() {
    let what = "a child process uses a context that its parent has opened".into();
    let mut finding = Finding::error("fork", what)
        .fact("With a card the parent and the child tear each other's queues apart: both have them mapped.".into())
        .at("used in the child", Stack::here());
    let contexts = CONTEXTS.try_lock();
    let opened = contexts
        .ok()
        .and_then(|contexts| contexts.first()?.upgrade());
    if let Some(state) = opened {
        finding = finding.at("opened", state.made);
    }
    tell(&finding.advice("open the device in the child, or fork before it is opened"));
}

/// The contexts of this process; none while another thread opens or closes one.
pub(super) fn contexts() -> Vec<Arc<State>> {
    let Ok(contexts) = CONTEXTS.try_lock() else {
        return Vec::new();
    };
    let ours = contexts.iter().filter_map(Weak::upgrade);
    ours.filter(|state| state.generation == generation())
        .collect()
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    pub(super) depth: AtomicU32,
    pub(super) made: Stack,
    /// Requests under way whose completions come here.
    possible: AtomicU64,
    pub(super) possible_max: AtomicU64,
    /// It was told that there may be too many, or the program has said that it polls in time.
    is_told: AtomicBool,
}

impl Cq {
    pub(super) fn new(init: &CqInit) -> Self {
        Cq {
            depth: AtomicU32::new(init.depth),
            made: Stack::here(),
            possible: AtomicU64::new(0),
            possible_max: AtomicU64::new(0),
            is_told: AtomicBool::new(init.ignores_overrun),
        }
    }

    /// So many more completions may come, for what is posted just now.
    pub(super) fn expect(&self, count: usize, posted: Stack) {
        let count = count as u64;
        let possible = self.possible.fetch_add(count, Ordering::Relaxed) + count;
        self.possible_max.fetch_max(possible, Ordering::Relaxed);
        let depth = self.depth.load(Ordering::Relaxed);
        if possible <= depth.into() || self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let what = format!(
            "a completion queue of {depth} entries may have to hold {possible} completions"
        );
        let finding = Finding::warning("cq-depth", what)
            .fact("If they are not polled in time the queue overruns, and all of its queue pairs fail.".into())
            .at("the queue was made", self.made)
            .at("the request that is too many was posted", posted)
            .advice("make the queue as deep as the RECVs and signaled requests of all of its queue pairs together");
        tell(&finding);
    }

    /// So many have been polled, or will never come.
    pub(super) fn settle(&self, count: usize) {
        let count = count as u64;
        // It may have been counted when checks were told of less than there is.
        let left = |possible: u64| Some(possible.saturating_sub(count));
        let _ = self
            .possible
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }
}

/// A queue of RECVs, a queue pair's own or shared.
#[derive(Debug)]
pub(super) struct Recvs {
    pub(super) posted: Mutex<VecDeque<Request>>,
    pub(super) is_shared: bool,
    pub(super) made: Stack,
}

impl Recvs {
    pub(super) fn new(is_shared: bool) -> Self {
        Recvs {
            posted: Mutex::default(),
            is_shared,
            made: Stack::here(),
        }
    }
}

/// A send queue.
#[derive(Debug, Default)]
pub(super) struct Sends {
    pub(super) posted: VecDeque<Request>,
    /// Requests that were not accepted, and not posted again since.
    pub(super) refused: HashMap<u64, Stack>,
}

impl Sends {
    pub(super) fn refuse(&mut self, id: u64, by: Stack) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.insert(id, by);
        }
    }

    /// Requests under way, and how many of them are behind the last signaled one.
    pub(super) fn under_way(&self) -> (usize, usize) {
        let latest = self.posted.iter().rev();
        let unsignaled = latest.take_while(|one| !one.is_signaled).count();
        (self.posted.len(), unsignaled)
    }
}

/// A port has many GIDs, any of which peers may use; others know a process by the first.
pub(super) fn canonical(gids: &[Gid], gid: Gid) -> Gid {
    match gids.first() {
        Some(first) if gids.contains(&gid) => *first,
        _ => gid,
    }
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) num: QpNum,
    pub(super) transport: Transport,
    pub(super) pd: PdNum,
    pub(super) send_wr_max: u32,
    pub(super) signal_all: bool,
    pub(super) made: Stack,
    pub(super) send_cq: Option<Arc<Cq>>,
    pub(super) recv_cq: Option<Arc<Cq>>,
    pub(super) recvs: Arc<Recvs>,
    pub(super) sends: Mutex<Sends>,
    /// All that it was changed to by now.
    pub(super) attr: Mutex<QpAttr>,
    /// An error of its was polled.
    pub(super) has_failed: AtomicBool,
    /// The program has put it into ERR or RESET.
    pub(super) is_stopped: AtomicBool,
    /// What was told of its peer, so that it is not told again with the next change.
    pub(super) told: Mutex<Vec<String>>,
    pub(super) entry: Option<board::Entry>,
    /// Of its context.
    pub(super) gids: Arc<[Gid]>,
}

impl Pair {
    /// The queue pair that it leads to: a GID, the first of its process where that is known, and a number.
    pub(super) fn peer(&self) -> Option<(Gid, QpNum)> {
        let attr = *lock(&self.attr);
        Some((canonical(&self.gids, attr.dest_gid()?), attr.dest_qpn?))
    }

    /// Notes that an error completion of it was polled, and has others know.
    pub(super) fn fail(&self) {
        if !self.has_failed.swap(true, Ordering::Relaxed)
            && let Some(entry) = &self.entry
        {
            entry.fail();
        }
    }

    /// Forgets the requests that are under way: they vanish without completions.
    pub(super) fn clear(&self, posted: &Posted) {
        let sends = std::mem::take(&mut lock(&self.sends).posted);
        let signaled = sends.iter().filter(|one| one.is_signaled).count();
        if let Some(cq) = &self.send_cq {
            cq.settle(signaled);
        }
        if self.recvs.is_shared {
            return;
        }
        let recvs = std::mem::take(&mut *lock(&self.recvs.posted));
        recvs.iter().for_each(|recv| posted.remove(recv));
        if let Some(cq) = &self.recv_cq {
            cq.settle(recvs.len());
        }
    }
}

/// A context.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) number: u32,
    /// All of its port's.
    gids: Arc<[Gid]>,
    generation: u32,
    pub(super) made: Stack,
    pub(super) posted: Posted,
    pub(super) pairs: Mutex<HashMap<u32, Arc<Pair>>>,
    pub(super) cqs: Mutex<HashMap<u32, Arc<Cq>>>,
    pub(super) srqs: Mutex<HashMap<u32, Arc<Recvs>>>,
}

impl State {
    pub(super) fn open(gids: Arc<[Gid]>) -> Arc<State> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let state = Arc::new(State {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            gids,
            generation: generation(),
            made: Stack::here(),
            posted: Posted::default(),
            pairs: Mutex::default(),
            cqs: Mutex::default(),
            srqs: Mutex::default(),
        });
        let mut contexts = lock(&CONTEXTS);
        contexts.retain(|one| one.strong_count() > 0);
        contexts.push(Arc::downgrade(&state));
        state
    }

    /// Whether nobody keeps what is known of it for long.
    pub(super) fn is_free(&self) -> bool {
        is_free(&self.cqs)
            && is_free(&self.srqs)
            && is_free(&self.pairs)
            && (self.all_pairs().iter())
                .all(|pair| is_free(&pair.sends) && is_free(&pair.recvs.posted))
    }

    /// The GID that others know it by.
    pub(super) fn gid(&self) -> Gid {
        self.gids.first().copied().unwrap_or(Gid([0; 16]))
    }

    /// Notes that the program has closed it.
    pub(super) fn close(&self) {
        lock(&CONTEXTS).retain(|one| !std::ptr::eq(one.as_ptr(), self));
    }

    pub(super) fn pair(&self, num: QpNum) -> Option<Arc<Pair>> {
        lock(&self.pairs).get(&num.0).cloned()
    }

    pub(super) fn all_pairs(&self) -> Vec<Arc<Pair>> {
        lock(&self.pairs).values().cloned().collect()
    }

    /// What a queue pair is made of, that the NIC has made.
    pub(super) fn make_pair(&self, num: QpNum, init: &QpInit, send_wr_max: u32) -> Arc<Pair> {
        let cq = |num: u32| lock(&self.cqs).get(&num).cloned();
        let srq = init
            .srq
            .and_then(|srq| lock(&self.srqs).get(&srq.0).cloned());
        let pair = Arc::new(Pair {
            num,
            transport: init.transport,
            pd: init.pd,
            send_wr_max,
            signal_all: init.signal_all,
            made: Stack::here(),
            send_cq: cq(init.send_cq.0),
            recv_cq: cq(init.recv_cq.0),
            recvs: srq.unwrap_or_else(|| Arc::new(Recvs::new(false))),
            sends: Mutex::default(),
            attr: Mutex::default(),
            has_failed: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            told: Mutex::default(),
            entry: board::entry(self.gid(), num),
            gids: Arc::clone(&self.gids),
        });
        lock(&self.pairs).insert(num.0, Arc::clone(&pair));
        pair
    }

    /// Whether requests under way name a region.
    pub(super) fn is_posted(&self, region: &Region) -> bool {
        if region.context != self.number {
            return false;
        }
        let Ok(pairs) = self.pairs.try_lock() else {
            return false;
        };
        pairs.values().any(|pair| {
            let is_named =
                |posted: &VecDeque<Request>| posted.iter().any(|one| one.names(region.lkey));
            pair.sends
                .try_lock()
                .is_ok_and(|sends| is_named(&sends.posted))
                || pair
                    .recvs
                    .posted
                    .try_lock()
                    .is_ok_and(|recvs| is_named(&recvs))
        })
    }
}
