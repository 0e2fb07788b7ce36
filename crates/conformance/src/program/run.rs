//! Runs a program: a thread for each task, all of them in the same round.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ledger::Slot;
use super::plan::{EndId, OUT_LEN, Plan, TARGET_LEN};
use super::task::Task;
use crate::fixture::Fixture;
use crate::rig::{Node, pattern};
use verbs::attr::Access;
use verbs::names::{Gid, QpNum, SrqNum};
use verbs::nic::NicMr;

/// Bytes of a RECV of the shared queue.
const SHARED_ROOM: usize = 20 << 10;

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
#[derive(Default)]
pub(super) struct Known {
    /// What its requests gather from.
    pub(super) out: Vec<u8>,
    pub(super) address: Mutex<(Gid, QpNum)>,
    pub(super) region: Mutex<Option<Arc<dyn NicMr>>>,
    /// What stands in its target, as far as its peer has posted.
    pub(super) target: Mutex<Vec<u8>>,
    /// Messages that it saw complete, and that it received.
    pub(super) counts: Mutex<(usize, usize)>,
}

impl<'p> World<'p> {
    fn new(plan: &'p Plan, patience: Duration) -> World<'p> {
        let known = |seed| Known {
            out: pattern(seed, OUT_LEN),
            target: Mutex::new(vec![0; TARGET_LEN]),
            ..Known::default()
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

    /// The region that a peer's requests go to.
    pub(super) fn region(&self, end: EndId) -> Arc<dyn NicMr> {
        let region = lock(&self.known(end).region).clone();
        region.expect("every end has its region before anybody posts")
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
            let mut srq = None;
            if ends().any(|end| end.task.0 == number && end.shared) {
                let queue = node.srq(self.plan.srq_depth as u32);
                shared = Some(Arc::new(SharedRecvs::new(
                    node,
                    queue.num(),
                    self.plan.srq_depth,
                )));
                srq = Some(queue);
            }
            for task in 0..self.plan.tasks[number] {
                let id = (number, task);
                let mut task = Task::new(self, fixture, node, id, rounds, shared.clone())?;
                task.srq = srq.take();
                task.mortal = if number == 2 { mortal.take() } else { None };
                tasks.push(task);
            }
        }
        self.gate.parties.store(tasks.len(), Ordering::Relaxed);
        Ok(tasks)
    }
}

/// The RECVs that several queue pairs of a node share.
pub(super) struct SharedRecvs {
    pub(super) srq: SrqNum,
    pub(super) region: Arc<dyn NicMr>,
    free: Mutex<Vec<usize>>,
    posted: Mutex<BTreeMap<u64, Slot>>,
    last: AtomicUsize,
}

impl SharedRecvs {
    fn new(node: &Node, srq: SrqNum, depth: usize) -> Self {
        SharedRecvs {
            srq,
            region: node.region(depth * SHARED_ROOM, Access::EVERYTHING),
            free: Mutex::new((0..depth).map(|slot| slot * SHARED_ROOM).collect()),
            posted: Mutex::new(BTreeMap::new()),
            last: AtomicUsize::new(0),
        }
    }

    /// Takes up to `count` places for RECVs that are going to be posted.
    pub(super) fn prepare(&self, count: usize) -> Vec<Slot> {
        let mut free = lock(&self.free);
        let kept = free.len().saturating_sub(count);
        let slots: Vec<Slot> = free
            .drain(kept..)
            .map(|offset| Slot {
                id: 1 << 40 | self.last.fetch_add(1, Ordering::Relaxed) as u64,
                offset,
                len: SHARED_ROOM,
            })
            .collect();
        lock(&self.posted).extend(slots.iter().map(|slot| (slot.id, *slot)));
        slots
    }

    pub(super) fn take(&self, id: u64) -> Option<Slot> {
        lock(&self.posted).remove(&id)
    }

    /// A message has been read out of its RECV.
    pub(super) fn give_back(&self, slot: Slot) {
        lock(&self.free).push(slot.offset);
    }
}
