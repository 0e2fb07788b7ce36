//! Runs a program: a thread for each task, all of them in the same round.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ledger::Slot;
use super::plan::{EndId, OUT_LEN, Plan, ROOM, Recvs, TARGET_LEN};
use super::request::sges_of;
use super::task::Task;
use crate::fixture::Fixture;
use crate::rig::{Node, pattern};
use verbs::attr::Access;
use verbs::error::{PostError, PostReason};
use verbs::names::{Gid, QpNum, RemoteAddr, Rkey, SrqNum};
use verbs::nic::{NicMr, NicSrq};
use verbs::wr::RecvWr;

/// Why a program stopped.
pub(super) struct Failure {
    /// What was wrong first.
    pub(super) first: String,
    /// What every task was at.
    pub(super) all: String,
    pub(super) trace: Vec<String>,
}

/// Runs the first rounds of a program.
pub(super) fn run(
    fixture: &Fixture,
    plan: &Plan,
    rounds: usize,
    patience: Duration,
) -> Result<(), Failure> {
    let world = World::new(plan, patience);
    let tasks = match world.tasks(fixture, rounds) {
        Ok(tasks) => tasks,
        Err(why) => {
            return Err(Failure {
                first: why,
                all: String::new(),
                trace: Vec::new(),
            });
        }
    };
    let reports: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = tasks
            .into_iter()
            .map(|task| scope.spawn(move || task.run()))
            .collect();
        let joined = started.into_iter().map(|one| match one.join() {
            Ok(report) => report,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    });
    if !world.gate.is_closed() {
        return Ok(());
    }
    Err(Failure {
        first: std::mem::take(&mut *lock(&world.first)),
        all: reports.join("\n"),
        trace: std::mem::take(&mut *lock(&world.trace)),
    })
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A barrier that a task which has failed closes for all.
pub(super) struct Gate {
    /// How many wait, how often it opened, and whether it is closed.
    state: Mutex<(usize, usize, bool)>,
    changed: Condvar,
    parties: AtomicUsize,
}

impl Gate {
    pub(super) fn pass(&self) -> Result<(), String> {
        let mut state = lock(&self.state);
        state.0 += 1;
        let turn = state.1;
        if state.0 == self.parties.load(Ordering::Relaxed) {
            (state.0, state.1) = (0, turn + 1);
            self.changed.notify_all();
        }
        while state.1 == turn && !state.2 {
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        match state.2 {
            true => Err("at a barrier".into()),
            false => Ok(()),
        }
    }

    pub(super) fn close(&self) {
        lock(&self.state).2 = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).2
    }
}

/// What tasks share.
pub(super) struct World<'p> {
    pub(super) plan: &'p Plan,
    pub(super) patience: Duration,
    pub(super) gate: Gate,
    pub(super) trace: Mutex<Vec<String>>,
    /// What failed first.
    pub(super) first: Mutex<String>,
    ends: Vec<[Known; 2]>,
}

/// What the peer of an end knows of it.
pub(super) struct Known {
    /// What its requests gather from.
    pub(super) out: Vec<u8>,
    pub(super) address: Mutex<(Gid, QpNum)>,
    /// What its peer reads and writes, unless it is deregistered, and where that is or was.
    pub(super) region: Mutex<Option<Arc<dyn NicMr>>>,
    pub(super) remote: Mutex<RemoteAddr>,
    /// What stands in its target, as far as its peer has posted.
    pub(super) target: Mutex<Vec<u8>>,
    /// Messages that it saw complete, and that it received.
    pub(super) counts: Mutex<(usize, usize)>,
    /// Its requests of the round have completed.
    pub(super) has_sent: AtomicBool,
}

impl<'p> World<'p> {
    fn new(plan: &'p Plan, patience: Duration) -> World<'p> {
        let known = |seed| Known {
            out: pattern(seed, OUT_LEN),
            target: Mutex::new(vec![0; TARGET_LEN]),
            address: Mutex::default(),
            region: Mutex::new(None),
            remote: Mutex::new(RemoteAddr {
                addr: 0,
                rkey: Rkey(0),
            }),
            counts: Mutex::new((0, 0)),
            has_sent: AtomicBool::new(false),
        };
        World {
            plan,
            patience,
            gate: Gate {
                state: Mutex::new((0, 0, false)),
                changed: Condvar::new(),
                parties: AtomicUsize::new(0),
            },
            trace: Mutex::new(Vec::new()),
            first: Mutex::new(String::new()),
            ends: (0..plan.links.len() as u64)
                .map(|link| [known(2 * link), known(2 * link + 1)])
                .collect(),
        }
    }

    pub(super) fn known(&self, (link, side): EndId) -> &Known {
        &self.ends[link][side]
    }

    /// Messages that an end of a link that says farewell has seen complete.
    pub(super) fn confirmed(&self, end: EndId) -> usize {
        lock(&self.known(end).counts).0
    }

    /// The region that a peer's requests go to.
    pub(super) fn region(&self, end: EndId) -> Arc<dyn NicMr> {
        let region = lock(&self.known(end).region).clone();
        region.expect("every end has its region when a round ends")
    }

    /// Makes all objects.
    fn tasks<'w>(&'w self, fixture: &Fixture, rounds: usize) -> Result<Vec<Task<'w>>, String> {
        let mut nodes = vec![Node::new(&fixture.a), Node::new(&fixture.b)];
        let mut mortal = None;
        let ends = || self.plan.links.iter().flat_map(|link| &link.ends);
        if ends().any(|end| end.task.0 == 2) {
            let spawn = fixture.mortal.as_ref();
            let spawned = spawn
                .expect("mortal nodes are drawn where there are some")
                .spawn();
            nodes.push(Node::new(&spawned.nic));
            mortal = Some(spawned);
        }
        let mut tasks = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            let mut shared = None;
            if ends().any(|end| end.task.0 == number && end.recvs == Recvs::Shared) {
                shared = Some(Arc::new(SharedRecvs::new(node, self.plan.srq_depth)));
            }
            for task in 0..self.plan.tasks[number] {
                let id = (number, task);
                let mut task = Task::new(self, fixture, node, id, rounds, shared.clone())?;
                task.mortal = if number == 2 { mortal.take() } else { None };
                tasks.push(task);
            }
        }
        self.gate.parties.store(tasks.len(), Ordering::Relaxed);
        Ok(tasks)
    }
}

/// The RECVs that several queue pairs of a node share. Whichever task finds room for one posts it: who
/// waits for a message must not wait for another task, which may be done.
pub(super) struct SharedRecvs {
    pub(super) num: SrqNum,
    pub(super) region: Arc<dyn NicMr>,
    queue: Mutex<Box<dyn NicSrq>>,
    free: Mutex<Vec<usize>>,
    posted: Mutex<BTreeMap<u64, Slot>>,
    last: AtomicUsize,
    /// RECVs that are to be posted.
    left: Mutex<usize>,
    /// Those of the next that are there already, left of the rounds before.
    spare: AtomicUsize,
}

impl SharedRecvs {
    fn new(node: &Node, depth: usize) -> Self {
        let queue = node.srq(depth as u32);
        SharedRecvs {
            num: queue.num(),
            region: node.region(depth * ROOM, Access::EVERYTHING),
            queue: Mutex::new(queue),
            free: Mutex::new((0..depth).map(|slot| slot * ROOM).collect()),
            posted: Mutex::new(BTreeMap::new()),
            last: AtomicUsize::new(0),
            left: Mutex::new(0),
            spare: AtomicUsize::new(0),
        }
    }

    /// Begins a round, before anybody sends: with RECVs for all `needed` messages, or those that are
    /// left; or with as many as fit, and then one more is refused.
    pub(super) fn begin(&self, needed: usize, first: bool, fills: bool) -> Result<(), String> {
        let posted = lock(&self.posted).len();
        *lock(&self.left) = match first {
            _ if fills => lock(&self.free).len(),
            true => needed.saturating_sub(posted),
            false => 0,
        };
        self.post()?;
        let posted = lock(&self.posted).len();
        self.spare.store(posted, Ordering::Relaxed);
        if !fills {
            return Ok(());
        }
        let full = PostError {
            index: 0,
            reason: PostReason::QueueFull,
        };
        let over = [RecvWr { id: 0, sges: &[] }];
        match lock(&self.queue).post_recv(&over) {
            Err(error) if error == full => Ok(()),
            over => Err(format!("one shared RECV more than fits: {over:?}")),
        }
    }

    /// More are to be posted.
    pub(super) fn want(&self, count: usize) {
        let known = self.spare.load(Ordering::Relaxed).min(count);
        self.spare.fetch_sub(known, Ordering::Relaxed);
        *lock(&self.left) += count - known;
    }

    /// Whether all that are to be are posted.
    pub(super) fn is_done(&self) -> bool {
        *lock(&self.left) == 0
    }

    /// Posts RECVs as far as there is room.
    pub(super) fn post(&self) -> Result<(), String> {
        let mut left = lock(&self.left);
        let mut queue = lock(&self.queue);
        while *left > 0 {
            let Some(offset) = lock(&self.free).pop() else {
                return Ok(());
            };
            let slot = Slot {
                id: 1 << 40 | self.last.fetch_add(1, Ordering::Relaxed) as u64,
                offset,
                len: ROOM,
            };
            lock(&self.posted).insert(slot.id, slot);
            let sges = sges_of(&*self.region, slot, 3);
            let wr = RecvWr {
                id: slot.id,
                sges: &sges,
            };
            let posted = queue.post_recv(&[wr]);
            posted.map_err(|e| format!("a shared RECV: {e}"))?;
            *left -= 1;
        }
        Ok(())
    }

    /// A RECV has completed.
    pub(super) fn take(&self, id: u64) -> Option<Slot> {
        lock(&self.posted).remove(&id)
    }

    /// A message has been read out of its RECV.
    pub(super) fn give_back(&self, slot: Slot) {
        lock(&self.free).push(slot.offset);
    }
}
