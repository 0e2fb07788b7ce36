//! One task of a program: a thread with a completion queue, and queue pairs that complete on it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::end::End;
use super::ledger::Ledger;
use super::plan::{
    EndId, EndPlan, Farewell, Plan, QUEUES, REGION_LEN, ROOM, Recvs, Step, TARGET_LEN,
};
use super::port::{Events, Pair};
use super::run::{SharedRecvs, World, lock};
use crate::fixture::{Asleep, Fixture, Mortal};
use crate::rig::{Node, Options};
use verbs::attr::{Access, LentRecvs, QpCaps, QpState};
use verbs::error::VerbsError;
use verbs::names::QpNum;
use verbs::nic::{NicMr, remote_addr};
use verbs::wr::GRH_LEN;

/// What a task is doing, for the report of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    Working,
    Sleeping,
    Polling,
    Waiting,
}

pub(super) struct Task<'w> {
    pub(super) world: &'w World<'w>,
    pub(super) id: (usize, usize),
    pub(super) rounds: usize,
    pub(super) asleep: Asleep,
    pub(super) rng: fastrand::Rng,
    pub(super) ends: Vec<End>,
    pub(super) shared: Option<Arc<SharedRecvs>>,
    /// Queue pairs that were destroyed: what is left of them in the completion queue is nobody's.
    pub(super) destroyed: BTreeSet<QpNum>,
    pub(super) events: Option<Events>,
    pub(super) node: Option<Node>,
    pub(super) mortal: Option<Mortal>,
    pub(super) doing: Doing,
}

/// Stops the others when a task panics.
struct ClosesOnPanic<'w>(&'w World<'w>);

impl Drop for ClosesOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.gate.close();
        }
    }
}

pub(super) fn say<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String + '_ {
    move |error| format!("{what}: {error}")
}

impl<'w> Task<'w> {
    pub(super) fn new(
        world: &'w World<'w>,
        fixture: &Fixture,
        node: &Node,
        id: (usize, usize),
        rounds: usize,
        shared: Option<Arc<SharedRecvs>>,
    ) -> Result<Self, String> {
        let own = |end: &&EndPlan| end.task == id;
        let plans = world.plan.links.iter().flat_map(|link| &link.ends);
        // Exactly as deep as they must be.
        let mut depths = [0; QUEUES];
        for end in plans.filter(own) {
            depths[end.queues.0] += end.send_depth as u32;
            depths[end.queues.1] += match end.recvs {
                Recvs::Shared => world.plan.srq_depth as u32,
                Recvs::Own | Recvs::Lent => end.recv_depth as u32,
            };
        }
        let mut rng = fastrand::Rng::with_seed((id.0 * 7 + id.1) as u64);
        // What is lent may need more polls than its completions.
        let lent_len = [0, 3000, 64 << 10][rng.usize(0..3)];
        let wait = fixture
            .wait_readable
            .filter(|_| fixture.asleep != Asleep::StandsStill);
        let events = Events::new(node, depths, lent_len, wait).map_err(say("a queue"))?;
        let mut task = Task {
            world,
            id,
            rounds,
            asleep: fixture.asleep,
            rng,
            ends: Vec::new(),
            shared,
            destroyed: BTreeSet::new(),
            events: Some(events),
            node: Some(node.clone()),
            mortal: None,
            doing: Doing::Working,
        };
        for (link, plan) in world.plan.links.iter().enumerate() {
            for side in (0..2).filter(|side| plan.ends[*side].task == id) {
                let end = task.make_end((link, side)).map_err(say("an end"))?;
                task.ends.push(end);
            }
        }
        Ok(task)
    }

    fn make_end(&self, id: EndId) -> Result<End, VerbsError> {
        let link = &self.world.plan.links[id.0];
        let plan = link.ends[id.1].clone();
        let region = self.make_region(&plan, REGION_LEN)?;
        region.write(0, &self.world.known(id).out);
        let options = Options {
            caps: QpCaps {
                send_wr_max: plan.send_depth as u32,
                recv_wr_max: plan.recv_depth as u32,
                send_sge_max: 3,
                recv_sge_max: 3,
                inline_max: self.world.plan.inline_max as u32,
            },
            rnr_retry: link.rnr_retry,
            // Two seconds with all retries: a peer that a busy machine does not run answers late.
            timeout: 16,
            signal_all: plan.signal_all,
            ..Options::default()
        };
        let mut end = End {
            id,
            transport: link.transport,
            options,
            pair: None,
            to: None,
            region,
            target: None,
            ledger: Ledger::default(),
            to_send: VecDeque::new(),
            may_send: 0,
            rooms: VecDeque::new(),
            may_recv: 0,
            recv_used: 0,
            last_id: 0,
            forgotten: 0,
            results: Vec::new(),
            torn: false,
            leaving: false,
            dead: false,
            plan,
        };
        self.make_target(&mut end)?;
        self.make_pair(&mut end)?;
        Ok(end)
    }

    fn make_region(&self, plan: &EndPlan, len: usize) -> Result<Arc<dyn NicMr>, VerbsError> {
        match plan.private {
            true => self.node().private_region(len, None),
            false => Ok(self.node().region(len, Access::EVERYTHING)),
        }
    }

    /// Makes the region that the end's peer reads and writes.
    pub(super) fn make_target(&self, end: &mut End) -> Result<(), VerbsError> {
        let target = self.make_region(&end.plan, TARGET_LEN)?;
        let known = self.world.known(end.id);
        *lock(&known.remote) = remote_addr(&*target, 0);
        *lock(&known.region) = Some(Arc::clone(&target));
        end.target = Some(target);
        Ok(())
    }

    pub(super) fn make_pair(&self, end: &mut End) -> Result<(), VerbsError> {
        let (node, events) = (self.node(), self.events());
        let recvs = end.plan.recvs;
        let shared = self.shared.as_ref().filter(|_| recvs == Recvs::Shared);
        let (send, recv) = end.plan.queues;
        let mut init = node.init(end.transport, events.num(send), events.num(recv));
        init.lent_recvs = (recvs == Recvs::Lent).then_some(LentRecvs {
            count: end.plan.recv_depth as u32,
            len: (ROOM - GRH_LEN) as u32,
        });
        init.caps = end.options.caps;
        init.signal_all = end.options.signal_all;
        init.srq = shared.map(|shared| shared.num);
        let pair = Pair::new(node, &init)?;
        *lock(&self.world.known(end.id).address) = (node.gid, pair.num());
        end.pair = Some(pair);
        Ok(())
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("a task that lives has its node")
    }

    fn events(&self) -> &Events {
        self.events
            .as_ref()
            .expect("a task that lives has its queue")
    }

    fn plan(&self) -> &'w Plan {
        self.world.plan
    }

    fn name(&self) -> String {
        format!("{}{}", ["A", "B", "C"][self.id.0], self.id.1)
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        let line = format!("{}: {}", self.name(), what());
        lock(&self.world.trace).push(line);
    }

    /// Runs all rounds, and says what the task was at when something failed.
    pub(super) fn run(mut self) -> String {
        let _guard = ClosesOnPanic(self.world);
        let ended = self.connect_all().and_then(|()| {
            (0..self.rounds).try_for_each(|round| {
                self.round(round)
                    .map_err(|why| format!("round {round}: {why}"))
            })
        });
        let Err(why) = ended else {
            return String::new();
        };
        let report = format!("{}, {:?}: {why}", self.name(), self.doing);
        let mut first = lock(&self.world.first);
        if first.is_empty() {
            first.clone_from(&report);
        }
        drop(first);
        self.world.gate.close();
        let owed: Vec<String> = self.ends.iter().map(End::describe).collect();
        format!("{report}\n{}", owed.join("\n"))
    }

    pub(super) fn pass(&mut self) -> Result<(), String> {
        self.doing = Doing::Waiting;
        self.world.gate.pass()?;
        self.doing = Doing::Working;
        Ok(())
    }

    fn connect_all(&mut self) -> Result<(), String> {
        self.pass()?;
        for end in &mut self.ends {
            end.connect(self.world, self.node.as_ref())?;
        }
        self.pass()
    }

    fn round(&mut self, number: usize) -> Result<(), String> {
        let round = &self.plan().rounds[number];
        self.note(|| format!("round {number}"));
        for end in &mut self.ends {
            end.begin(self.world, number);
        }
        for index in 0..self.ends.len() {
            let (link, _) = self.ends[index].id;
            if round.links[link].recvs_first {
                self.post_recvs(index, usize::MAX, true)?;
            }
        }
        self.begin_shared(number)?;
        self.pass()?;
        let unseen = round.farewell.filter(|it| it.unseen);
        let looks =
            |task: &Self| !unseen.is_some_and(|it| task.has((it.leaver.0, 1 - it.leaver.1)));
        for step in &round.steps[self.id.0][self.id.1] {
            self.step(*step, round.farewell, looks(self))?;
        }
        if unseen.is_some() {
            self.pass()?;
        }
        let torn = round.farewell.is_some();
        self.drain(torn, |task| {
            task.ends.iter().any(|end| end.owes(task.world))
        })?;
        if torn {
            // What has come over a link that ends keeps others from RECVs of the shared queue.
            self.poll_all()?;
            self.post_shared()?;
        }
        self.note(|| "has got everything".into());
        self.pass()?;
        if let Some(farewell) = round.farewell {
            self.part(farewell)?;
        }
        self.poll_all()?;
        for end in self.ends.iter().filter(|end| !end.dead) {
            end.check_memory(self.world, round.farewell)?;
        }
        self.pass()
    }

    pub(super) fn has(&self, id: EndId) -> bool {
        self.ends.iter().any(|end| end.id == id)
    }

    pub(super) fn index(&self, id: EndId) -> usize {
        let found = self.ends.iter().position(|end| end.id == id);
        found.expect("steps are those of the task's own ends")
    }

    fn step(&mut self, step: Step, farewell: Option<Farewell>, looks: bool) -> Result<(), String> {
        self.note(|| format!("{step:?}"));
        match step {
            Step::Send { end, count } => {
                let index = self.index(end);
                let end = &mut self.ends[index];
                end.may_send = end.may_send.saturating_add(count);
                self.post(index, true)
            }
            Step::Recv { end, count } => self.post_recvs(self.index(end), count, false),
            Step::SharedRecv { count } => {
                if let Some(shared) = &self.shared {
                    shared.want(count);
                }
                self.post_shared()
            }
            Step::Stop { end } => self.go_to(end, QpState::Sqd),
            Step::Go { end } => self.go_to(end, QpState::Rts),
            Step::Leave => farewell.map_or(Ok(()), |farewell| self.leave(farewell)),
            Step::Aside(aside) => self.aside(aside),
            Step::Poll if looks => self.poll().map(|_| ()),
            Step::Poll => Ok(()),
            Step::Pause => {
                std::thread::sleep(Duration::from_micros(self.rng.u64(0..300)));
                Ok(())
            }
        }
    }

    fn go_to(&mut self, end: EndId, state: QpState) -> Result<(), String> {
        let index = self.index(end);
        let pair = self.ends[index].pair.as_mut();
        pair.map_or(Ok(()), |pair| pair.go_to(state))
            .map_err(say("changing states"))
    }

    /// Posts requests as far as there is room. `over` tries one more, which must be refused.
    fn post(&mut self, index: usize, over: bool) -> Result<(), String> {
        let end = &mut self.ends[index];
        let room = end.plan.send_depth - end.ledger.sent.len();
        let wanted = end.may_send.min(end.to_send.len());
        let count = wanted.min(room + usize::from(over));
        if count == 0 || end.pair.is_none() {
            return Ok(());
        }
        let posted = end.post(self.world, count, room)?;
        end.may_send = end.may_send.saturating_sub(posted);
        let (id, left) = (end.id, end.to_send.len());
        self.note(|| format!("posted {posted} of {id:?}, {left} are left"));
        Ok(())
    }

    fn post_recvs(&mut self, index: usize, count: usize, over: bool) -> Result<(), String> {
        let end = &mut self.ends[index];
        if end.plan.recvs != Recvs::Own || end.pair.is_none() {
            return Ok(());
        }
        end.may_recv = end.may_recv.saturating_add(count).min(end.rooms.len());
        end.post_recvs(over)
    }

    /// Who is first on its node begins the round of its shared queue.
    fn begin_shared(&self, number: usize) -> Result<(), String> {
        let (plan, (node, task)) = (self.plan(), self.id);
        let round = &plan.rounds[number];
        let own = self.shared.as_ref().filter(|_| task == 0);
        own.map_or(Ok(()), |shared| {
            let first = plan.is_shared_first(node);
            shared.begin(round.shared[node], first, round.fills[node])
        })
    }

    fn post_shared(&self) -> Result<(), String> {
        self.shared.as_ref().map_or(Ok(()), |shared| shared.post())
    }

    /// Takes what has completed, and says how much that was.
    fn poll(&mut self) -> Result<usize, String> {
        let room = self.rng.usize(1..=8);
        let Some(events) = &mut self.events else {
            return Ok(0);
        };
        let found = events.poll(room)?;
        for (wc, lent) in &found {
            self.note(|| format!("{wc:?}"));
            if self.destroyed.contains(&wc.qpn) {
                continue;
            }
            let is_its = |end: &&mut End| end.num() == Some(wc.qpn);
            let Some(end) = self.ends.iter_mut().find(is_its) else {
                return Err(format!("nobody's completion: {wc:?}"));
            };
            end.completed(wc, lent.as_deref(), self.shared.as_deref())?;
        }
        Ok(found.len())
    }

    /// Polls until nothing comes.
    pub(super) fn poll_all(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            while self.poll()? > 0 {}
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Posts what is left and takes what is owed, asleep or polling, until nothing is. Who waits for
    /// less than everything must not wait for what another task has to do first.
    pub(super) fn drain(&mut self, torn: bool, owes: fn(&Self) -> bool) -> Result<(), String> {
        let may_sleep = match self.asleep {
            Asleep::Runs => true,
            Asleep::RunsWithPosts => !torn,
            Asleep::StandsStill => false,
        };
        let sleeps = may_sleep
            && self.rng.u8(0..4) > 0
            && self.events.as_ref().is_some_and(Events::can_sleep);
        let mut deadline = Instant::now() + self.world.patience;
        loop {
            for index in 0..self.ends.len() {
                self.ends[index].may_send = usize::MAX;
                self.post(index, false)?;
                self.post_recvs(index, usize::MAX, false)?;
                self.ends[index].tell(self.world);
            }
            self.post_shared()?;
            // Before it is seen whether all is over: nobody wakes whom others do not wait for any more.
            let is_waited_for = self.is_waited_for();
            if !owes(self) {
                return Ok(());
            }
            if self.world.gate.is_closed() {
                return Err("not done".into());
            }
            // Room in the shared queue comes with what another task polls, which wakes nobody.
            let came = match sleeps && !is_waited_for {
                true => self.sleep(deadline)?,
                false => self.poll()? > 0,
            };
            if came {
                deadline = Instant::now() + self.world.patience;
            } else if Instant::now() > deadline {
                self.doing = Doing::Polling;
                return Err("what is owed does not come".into());
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Whether others wait for what it does without being told.
    fn is_waited_for(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| !shared.is_done())
            || self.ends.iter().any(|end| end.is_waited_for(self.world))
    }

    /// Arms, polls once more, and sleeps until there is an event; says whether there is reason to
    /// believe that something has come.
    fn sleep(&mut self, deadline: Instant) -> Result<bool, String> {
        let solicited = self.ends.iter().all(End::owes_solicited_only);
        let (twice, clears) = (self.rng.bool(), self.rng.bool());
        let Some(events) = &mut self.events else {
            return Ok(false);
        };
        events.arm(solicited)?;
        if twice {
            // Arming for any completion is not undone by arming for solicited ones.
            events.arm(true)?;
        }
        if clears {
            // What was raised before; the queue stays armed.
            while events.take()? {}
        }
        if self.poll()? > 0 {
            return Ok(true);
        }
        self.note(|| {
            format!(
                "sleeps, armed for {}",
                if solicited { "solicited" } else { "any" }
            )
        });
        self.doing = Doing::Sleeping;
        while !self.events().wait(Duration::from_millis(50)) {
            if self.world.gate.is_closed() {
                return Err("not done".into());
            }
            if Instant::now() > deadline {
                return Err("nobody wakes it".into());
            }
        }
        self.doing = Doing::Working;
        if let Some(events) = &mut self.events {
            events.take()?;
        }
        Ok(self.poll()? > 0)
    }
}
