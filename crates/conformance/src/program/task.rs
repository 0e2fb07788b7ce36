//! One task of a program: a thread with a completion queue, and queue pairs that complete on it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ledger::{Fate, Ledger, Message, Sent, Slot};
use super::plan::{
    EndId, EndPlan, Farewell, Kind, Leave, Plan, RECV, REGION_LEN, Request, Step, TARGET,
    TARGET_LEN,
};
use super::port::{Events, Pair};
use super::run::{SharedRecvs, World, lock};
use crate::fixture::{Asleep, Fixture, Mortal};
use crate::rig::{Node, Options};
use verbs::attr::{Access, QpCaps, QpState, Transport};
use verbs::error::{PostError, PostReason};
use verbs::names::QpNum;
use verbs::nic::{NicMr, NicSrq, remote_addr};
use verbs::wc::{Wc, WcOpcode, WcStatus};
use verbs::wr::{Op, Payload, RecvWr, SendFlags, SendWr, Sge, UdDest};

/// What a task is doing, for the report of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Working,
    Sleeping,
    Polling,
    Waiting,
}

pub(super) struct Task<'w> {
    world: &'w World<'w>,
    pub(super) id: (usize, usize),
    rounds: usize,
    asleep: Asleep,
    rng: fastrand::Rng,
    ends: Vec<End>,
    pub(super) srq: Option<Box<dyn NicSrq>>,
    shared: Option<Arc<SharedRecvs>>,
    /// RECVs of the shared queue that are to be posted.
    shared_left: usize,
    /// Queue pairs that were destroyed: what is left of them in the completion queue is nobody's.
    destroyed: BTreeSet<QpNum>,
    events: Option<Events>,
    node: Option<Node>,
    pub(super) mortal: Option<Mortal>,
    doing: Doing,
}

/// One queue pair of the task.
struct End {
    id: EndId,
    plan: EndPlan,
    transport: Transport,
    options: Options,
    pair: Option<Pair>,
    /// Where its datagrams go.
    to: Option<UdDest>,
    region: Arc<dyn NicMr>,
    ledger: Ledger,
    to_send: VecDeque<Request>,
    /// How many of them may be posted by now.
    may_send: usize,
    /// Room of the RECVs that are to be posted, and how many of them may be by now.
    rooms: VecDeque<usize>,
    may_recv: usize,
    /// How much of the room for RECVs is used up in this round.
    recv_used: usize,
    last_id: u64,
    /// What READs and atomics of this round bring, and where.
    results: Vec<(usize, Vec<u8>)>,
    /// Its link says farewell in this round.
    torn: bool,
    /// It is about to leave, or has left: what it has posted must end.
    leaving: bool,
    dead: bool,
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

fn say<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String + '_ {
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
        // Exactly as deep as it must be.
        let depth: usize = plans
            .filter(own)
            .map(|end| end.send_depth + if end.shared { 64 } else { end.recv_depth })
            .sum();
        let wait = fixture
            .wait_readable
            .filter(|_| fixture.asleep != Asleep::StandsStill);
        let events = Events::new(node, depth.max(1) as u32, wait).map_err(say("a queue"))?;
        let mut task = Task {
            world,
            id,
            rounds,
            asleep: fixture.asleep,
            rng: fastrand::Rng::with_seed((id.0 * 7 + id.1) as u64),
            ends: Vec::new(),
            srq: None,
            shared,
            shared_left: 0,
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

    fn make_end(&self, id: EndId) -> Result<End, verbs::error::VerbsError> {
        let (node, link) = (self.node(), &self.world.plan.links[id.0]);
        let plan = link.ends[id.1].clone();
        let region = match plan.private {
            true => node.private_region(REGION_LEN)?,
            false => node.region(REGION_LEN, Access::EVERYTHING),
        };
        let known = self.world.known(id);
        region.write(0, &known.out);
        *lock(&known.region) = Some(Arc::clone(&region));
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
            ledger: Ledger::default(),
            to_send: VecDeque::new(),
            may_send: 0,
            rooms: VecDeque::new(),
            may_recv: 0,
            recv_used: 0,
            last_id: 0,
            results: Vec::new(),
            torn: false,
            leaving: false,
            dead: false,
            plan,
        };
        self.make_pair(&mut end)?;
        Ok(end)
    }

    fn make_pair(&self, end: &mut End) -> Result<(), verbs::error::VerbsError> {
        let (node, events) = (self.node(), self.events());
        let shared = self.shared.as_ref().filter(|_| end.plan.shared);
        let mut init = node.init(end.transport, events.num(), events.num());
        init.caps = end.options.caps;
        init.signal_all = end.options.signal_all;
        init.srq = shared.map(|shared| shared.srq);
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

    fn note(&self, what: impl FnOnce() -> String) {
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

    fn pass(&mut self) -> Result<(), String> {
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
        self.shared_left = 0;
        for index in 0..self.ends.len() {
            let (link, _) = self.ends[index].id;
            if round.links[link].recvs_first {
                self.post_recvs(index, usize::MAX)?;
            }
        }
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
        self.drain(torn, End::owes)?;
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

    fn has(&self, id: EndId) -> bool {
        self.ends.iter().any(|end| end.id == id)
    }

    fn index(&self, id: EndId) -> usize {
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
            Step::Recv { end, count } => self.post_recvs(self.index(end), count),
            Step::SharedRecv { count } => {
                self.shared_left += count;
                self.post_shared()
            }
            Step::Stop { end } => self.go_to(end, QpState::Sqd),
            Step::Go { end } => self.go_to(end, QpState::Rts),
            Step::Leave => farewell.map_or(Ok(()), |farewell| self.leave(farewell)),
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

    fn post_recvs(&mut self, index: usize, count: usize) -> Result<(), String> {
        let end = &mut self.ends[index];
        if end.plan.shared || end.pair.is_none() {
            return Ok(());
        }
        end.may_recv = end.may_recv.saturating_add(count).min(end.rooms.len());
        end.post_recvs()
    }

    fn post_shared(&mut self) -> Result<(), String> {
        let (Some(shared), Some(srq)) = (&self.shared, &mut self.srq) else {
            return Ok(());
        };
        let slots = shared.prepare(self.shared_left);
        self.shared_left -= slots.len();
        for slot in slots {
            let sges = sges_of(&*shared.region, slot, 3);
            let wr = RecvWr {
                id: slot.id,
                sges: &sges,
            };
            srq.post_recv(&[wr]).map_err(say("a shared RECV"))?;
        }
        Ok(())
    }

    /// Takes what has completed, and says how much that was.
    fn poll(&mut self) -> Result<usize, String> {
        let mut out = [Wc::default(); 8];
        let room = self.rng.usize(1..=out.len());
        let Some(events) = &mut self.events else {
            return Ok(0);
        };
        let count = events.poll(&mut out[..room])?;
        for wc in &out[..count] {
            self.note(|| format!("{wc:?}"));
            if self.destroyed.contains(&wc.qpn) {
                continue;
            }
            let is_its = |end: &&mut End| end.num() == Some(wc.qpn);
            let Some(end) = self.ends.iter_mut().find(is_its) else {
                return Err(format!("nobody's completion: {wc:?}"));
            };
            end.completed(wc, self.shared.as_deref())?;
        }
        Ok(count)
    }

    /// Polls until nothing comes.
    fn poll_all(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            while self.poll()? > 0 {}
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Posts what is left and takes what is owed, asleep or polling, until nothing is.
    fn drain(&mut self, torn: bool, owes: fn(&End) -> bool) -> Result<(), String> {
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
                self.post_recvs(index, usize::MAX)?;
            }
            self.post_shared()?;
            if self.shared_left == 0 && !self.ends.iter().any(owes) {
                return Ok(());
            }
            if self.world.gate.is_closed() {
                return Err("not done".into());
            }
            // Room in the shared queue comes with what another task polls, which wakes nobody.
            let came = match sleeps && self.shared_left == 0 {
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

    /// An end of this task says farewell.
    fn leave(&mut self, farewell: Farewell) -> Result<(), String> {
        let index = self.index(farewell.leaver);
        match farewell.how {
            Leave::Error => {
                let pair = self.ends[index].pair.as_mut();
                let gone = pair.map_or(Ok(()), |pair| pair.go_to(QpState::Err));
                return gone.map_err(say("to ERR"));
            }
            Leave::BadKey | Leave::TooLong | Leave::Starve => return Ok(()),
            Leave::Destroy | Leave::Die => {}
        }
        // What has completed by then was received.
        self.ends[index].leaving = true;
        self.drain(true, End::is_leaving_and_owes)?;
        self.ends[index].leave(self.world);
        // Its RECVs go with it.
        self.ends[index].leaving = false;
        let num = self.ends[index].num();
        if farewell.how == Leave::Destroy {
            self.destroyed.extend(num);
            self.ends[index].pair = None;
            return Ok(());
        }
        self.note(|| "dies".into());
        if let Some(mortal) = self.mortal.take() {
            (mortal.kill)();
        }
        self.ends[index].dead = true;
        self.ends[index].pair = None;
        self.events = None;
        self.node = None;
        Ok(())
    }

    /// The ends of a link that says farewell give up what they still have, see that what was
    /// confirmed was received, and begin anew.
    fn part(&mut self, farewell: Farewell) -> Result<(), String> {
        let of_link = |end: &&mut End| end.id.0 == farewell.leaver.0 && !end.dead;
        for end in self.ends.iter_mut().filter(of_link) {
            if let Some(pair) = &mut end.pair {
                pair.go_to(QpState::Err).map_err(say("to ERR"))?;
                end.leaving = true;
            }
        }
        self.drain(true, End::is_leaving_and_has_recvs)?;
        for end in self.ends.iter_mut().filter(of_link) {
            end.leave(self.world);
        }
        self.pass()?;
        for end in self.ends.iter().filter(|end| end.id.0 == farewell.leaver.0) {
            let (_, received) = *lock(&self.world.known(end.id).counts);
            let (confirmed, _) = *lock(&self.world.known(end.peer()).counts);
            // Whoever was destroyed did not look any more.
            let looked = end.pair.is_some();
            if looked && received < confirmed {
                return Err(format!(
                    "{:?} received {received} messages, but {confirmed} completed at their sender",
                    end.id
                ));
            }
        }
        let mut ends = std::mem::take(&mut self.ends);
        for end in ends.iter_mut().filter(of_link) {
            match &mut end.pair {
                Some(pair) => pair.go_to(QpState::Reset).map_err(say("to RESET"))?,
                None => self.make_pair(end).map_err(say("a queue pair"))?,
            }
            end.clear(self.world);
        }
        self.ends = ends;
        self.pass()?;
        let died = farewell.how == Leave::Die;
        for end in self.ends.iter_mut().filter(of_link) {
            match died {
                true => end.dead = true,
                false => end.connect(self.world, self.node.as_ref())?,
            }
        }
        self.pass()
    }
}

impl End {
    fn num(&self) -> Option<QpNum> {
        self.pair.as_ref().map(Pair::num)
    }

    fn peer(&self) -> EndId {
        (self.id.0, 1 - self.id.1)
    }

    fn describe(&self) -> String {
        let ledger = &self.ledger;
        format!(
            "  {:?} {:?}, {:?}: {} requests to post, {} to complete, {} RECVs to post, {} posted, \
             {} messages to come",
            self.id,
            self.transport,
            self.plan,
            self.to_send.len(),
            ledger.sent.len(),
            self.rooms.len(),
            ledger.recvs.len(),
            ledger.arriving.len()
        )
    }

    fn connect(&mut self, world: &World<'_>, node: Option<&Node>) -> Result<(), String> {
        let peer = *lock(&world.known(self.peer()).address);
        let (Some(pair), Some(node)) = (&mut self.pair, node) else {
            return Ok(());
        };
        let connected = pair.connect(self.transport, peer, &self.options);
        connected.map_err(say("connecting"))?;
        if self.transport == Transport::Ud {
            self.to = Some(node.dest(peer.0, peer.1));
        }
        Ok(())
    }

    /// Takes up a round's requests, RECVs and messages to come.
    fn begin(&mut self, world: &World<'_>, number: usize) {
        let round = &world.plan.rounds[number];
        let exchange = &round.links[self.id.0];
        (self.may_send, self.may_recv, self.recv_used) = (0, 0, 0);
        self.leaving = false;
        self.torn = round.farewell.is_some_and(|it| it.leaver.0 == self.id.0);
        self.results.clear();
        if self.dead || self.pair.is_none() {
            return;
        }
        self.to_send = exchange.sends[self.id.1].iter().cloned().collect();
        self.rooms = match self.plan.shared {
            true => VecDeque::new(),
            false => exchange.rooms[self.id.1].iter().copied().collect(),
        };
        self.ledger.fate = match round.farewell.filter(|it| it.leaver.0 == self.id.0) {
            None => Fate::Healthy,
            Some(farewell) if farewell.leaver != self.id => Fate::Torn,
            Some(farewell) => match farewell.how {
                Leave::Error => Fate::Torn,
                Leave::Destroy | Leave::Die => Fate::Healthy,
                Leave::BadKey => Fate::Last(WcStatus::RemAccessErr),
                Leave::TooLong => Fate::Last(WcStatus::RemInvReqErr),
                Leave::Starve => Fate::Last(WcStatus::RnrRetryExcErr),
            },
        };
        let out = &world.known(self.peer()).out;
        let sends = exchange.sends[1 - self.id.1].iter();
        let messages = sends.filter(|request| request.consumes());
        self.ledger.arriving = messages.map(|request| message(request, out)).collect();
    }

    /// Posts the next `count` requests, of which `room` fit.
    fn post(&mut self, world: &World<'_>, count: usize, room: usize) -> Result<usize, String> {
        let peer = world.region(self.peer());
        let out = &world.known(self.id).out;
        let mut target = lock(&world.known(self.peer()).target);
        let fits = count.min(room);
        let requests: Vec<Request> = self.to_send.iter().take(count).cloned().collect();
        let bytes: Vec<Vec<u8>> = requests.iter().map(|one| gathered(one, out)).collect();
        let parts: Vec<[&[u8]; 2]> = bytes
            .iter()
            .map(|bytes| bytes.split_at(bytes.len() / 3).into())
            .collect();
        let sges: Vec<Vec<Sge>> = requests.iter().map(|one| self.sges(one)).collect();
        let mut wrs = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let (op, result) = match index < fits {
                true => carry_out(request, &*peer, &bytes[index], &mut target),
                // It must not be taken.
                false => carry_out(request, &*peer, &bytes[index], &mut target.clone()),
            };
            self.results.extend(result.filter(|_| index < fits));
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, request.signaled);
            flags.set(SendFlags::FENCE, request.fence);
            flags.set(SendFlags::SOLICITED, request.solicited);
            wrs.push(SendWr {
                id: self.last_id + 1 + index as u64,
                op,
                payload: match (request.inline, index % 2) {
                    (true, 0) => Payload::Inline(&bytes[index]),
                    (true, _) => Payload::InlineParts(&parts[index]),
                    _ => Payload::Gather(&sges[index]),
                },
                flags,
                to: self.to,
            });
        }
        let Some(pair) = &mut self.pair else {
            return Ok(0);
        };
        let posted = match pair.post(&wrs) {
            Ok(()) => count,
            Err(PostError {
                index,
                reason: PostReason::QueueFull,
            }) => index,
            Err(error) => return Err(format!("posting {:?}: {error}", wrs[error.index])),
        };
        if posted != fits {
            return Err(format!(
                "{:?}: {posted} of {count} requests were taken where {room} fit",
                self.id
            ));
        }
        for (wr, request) in wrs.iter().zip(&requests).take(posted) {
            self.ledger.sent.push_back(Sent {
                id: wr.id,
                opcode: crate::rig::opcode(&wr.op),
                signaled: request.signaled,
                consumes: request.consumes(),
            });
        }
        self.last_id += posted as u64;
        self.to_send.drain(..posted);
        Ok(posted)
    }

    fn sges(&self, request: &Request) -> Vec<Sge> {
        let pieces = request.pieces.iter();
        let sge = |(offset, len): &(usize, usize)| Sge {
            addr: self.region.addr() + *offset as u64,
            len: *len as u32,
            lkey: self.region.lkey(),
        };
        pieces.map(sge).collect()
    }

    fn post_recvs(&mut self) -> Result<(), String> {
        let Some(pair) = &mut self.pair else {
            return Ok(());
        };
        let room = self.plan.recv_depth - self.ledger.recvs.len();
        let count = room.min(self.may_recv);
        if count == 0 {
            return Ok(());
        }
        self.may_recv -= count;
        let mut slots = Vec::new();
        for len in self.rooms.drain(..count) {
            self.last_id += 1;
            slots.push(Slot {
                id: self.last_id,
                offset: RECV + self.recv_used,
                len,
            });
            self.recv_used += len.next_multiple_of(64);
        }
        let pieces = 1 + self.last_id as usize % 3;
        let sges: Vec<Vec<Sge>> = slots
            .iter()
            .map(|slot| sges_of(&*self.region, *slot, pieces))
            .collect();
        let wrs: Vec<RecvWr<'_>> = slots
            .iter()
            .zip(&sges)
            .map(|(slot, sges)| RecvWr { id: slot.id, sges })
            .collect();
        pair.post_recv(&wrs).map_err(say("posting RECVs"))?;
        self.ledger.recvs.extend(slots);
        Ok(())
    }

    fn completed(&mut self, wc: &Wc, shared: Option<&SharedRecvs>) -> Result<(), String> {
        let shared_slot = shared
            .filter(|_| self.plan.shared)
            .and_then(|shared| shared.take(wc.id));
        // A RECV's id is none of a request under way; failures do not say what they were.
        let own = self.ledger.recvs.iter().any(|slot| slot.id == wc.id);
        if shared_slot.is_none() && !own {
            return self.ledger.sent(wc);
        }
        let (slot, region) = match shared_slot.zip(shared) {
            Some((slot, shared)) => (slot, &shared.region),
            None => {
                let first = self.ledger.recvs.pop_front();
                let slot = first.filter(|slot| slot.id == wc.id);
                let slot = slot.ok_or_else(|| format!("{first:?} was to come before {wc:?}"))?;
                (slot, &self.region)
            }
        };
        let read = |offset, len| {
            let mut bytes = vec![0; len];
            region.read(offset, &mut bytes);
            bytes
        };
        self.ledger.received(self.transport, slot, wc, read)?;
        if let Some((slot, shared)) = shared_slot.zip(shared) {
            shared.give_back(slot);
        }
        Ok(())
    }

    /// Whether something is still to come or to be posted.
    fn owes(&self) -> bool {
        let ledger = &self.ledger;
        let sends = !self.to_send.is_empty() || !ledger.sent.is_empty();
        let alive = self.pair.is_some() && !self.dead;
        let receives = !self.rooms.is_empty() || !ledger.arriving.is_empty();
        // What comes over a link that says farewell is seen when its ends part.
        alive && (sends || (receives && !self.torn))
    }

    fn is_leaving_and_owes(&self) -> bool {
        self.leaving && (!self.to_send.is_empty() || !self.ledger.sent.is_empty())
    }

    fn is_leaving_and_has_recvs(&self) -> bool {
        self.is_leaving_and_owes() || (self.leaving && !self.ledger.recvs.is_empty())
    }

    /// Whether it waits for nothing but solicited messages.
    fn owes_solicited_only(&self) -> bool {
        let ledger = &self.ledger;
        let all = ledger.arriving.iter().all(|message| message.solicited);
        !self.torn && all && ledger.sent.is_empty() && self.to_send.is_empty()
    }

    /// Tells what it saw complete and received.
    fn leave(&mut self, world: &World<'_>) {
        let ledger = &self.ledger;
        *lock(&world.known(self.id).counts) = (ledger.confirmed, ledger.received);
    }

    /// Forgets everything, for a new connection.
    fn clear(&mut self, world: &World<'_>) {
        self.ledger.clear();
        self.to_send.clear();
        self.rooms.clear();
        let known = world.known(self.id);
        let zeros = vec![0; TARGET_LEN];
        self.region.write(TARGET, &zeros);
        *lock(&known.target) = zeros;
        *lock(&known.counts) = (0, 0);
    }

    /// Compares what its requests have brought and left with the model.
    fn check_memory(&self, world: &World<'_>, farewell: Option<Farewell>) -> Result<(), String> {
        if farewell.is_some_and(|it| it.leaver.0 == self.id.0) {
            return Ok(());
        }
        for (offset, expected) in &self.results {
            let mut bytes = vec![0; expected.len()];
            self.region.read(*offset, &mut bytes);
            if bytes != *expected {
                return Err(format!("{:?} fetched other bytes to {offset}", self.id));
            }
        }
        let target = lock(&world.known(self.peer()).target);
        let region = world.region(self.peer());
        let mut bytes = vec![0; TARGET_LEN];
        let deadline = Instant::now() + world.patience;
        loop {
            region.read(TARGET, &mut bytes);
            let differs = bytes.iter().zip(&*target).position(|(is, was)| is != was);
            let Some(at) = differs else {
                return Ok(());
            };
            // An unreliable WRITE may land after its completion.
            if self.transport == Transport::Rc || Instant::now() > deadline {
                return Err(format!("{:?} left other bytes at {at}", self.id));
            }
            std::thread::yield_now();
        }
    }
}

fn gathered(request: &Request, out: &[u8]) -> Vec<u8> {
    if request.fetches() {
        return Vec::new();
    }
    let pieces = request.pieces.iter();
    pieces
        .flat_map(|(offset, len)| &out[*offset..offset + len])
        .copied()
        .collect()
}

fn message(request: &Request, out: &[u8]) -> Message {
    let sends = request.kind == Kind::Send;
    Message {
        opcode: match sends {
            true => WcOpcode::Recv,
            false => WcOpcode::RecvWriteImm,
        },
        imm: request.imm,
        len: request.len(),
        bytes: sends.then(|| gathered(request, out)),
        solicited: request.solicited,
    }
}

/// A RECV's elements.
fn sges_of(region: &dyn NicMr, slot: Slot, pieces: usize) -> Vec<Sge> {
    let each = slot.len / pieces;
    (0..pieces)
        .map(|piece| Sge {
            addr: region.addr() + (slot.offset + piece * each) as u64,
            len: match piece + 1 == pieces {
                true => (slot.len - piece * each) as u32,
                false => each as u32,
            },
            lkey: region.lkey(),
        })
        .collect()
}

/// The operation of a request, what it does to the peer's target, and what it brings, and where.
fn carry_out(
    request: &Request,
    peer: &dyn NicMr,
    bytes: &[u8],
    target: &mut [u8],
) -> (Op, Option<(usize, Vec<u8>)>) {
    let imm = request.imm;
    if request.at == usize::MAX {
        let remote = remote_addr(peer, peer.len());
        return (Op::Write { remote, imm }, None);
    }
    let (at, len) = (request.at, request.len());
    let remote = remote_addr(peer, TARGET + at);
    let result = request.fetches().then(|| {
        let (offset, len) = request.pieces[0];
        (offset, target[at..at + len].to_vec())
    });
    let mut word = [0; 8];
    word[..len.min(8)].copy_from_slice(&target[at..at + len.min(8)]);
    let old = u64::from_le_bytes(word);
    let op = match request.kind {
        Kind::Send => Op::Send { imm },
        Kind::Write => {
            target[at..at + len].copy_from_slice(bytes);
            Op::Write { remote, imm }
        }
        Kind::Read => Op::Read { remote },
        Kind::CompareSwap { hits, swap } => {
            let expect = if hits { old } else { !old };
            if hits {
                target[at..at + 8].copy_from_slice(&swap.to_le_bytes());
            }
            Op::CompareSwap {
                remote,
                expect,
                swap,
            }
        }
        Kind::FetchAdd { add } => {
            let new = old.wrapping_add(add).to_le_bytes();
            target[at..at + 8].copy_from_slice(&new);
            Op::FetchAdd { remote, add }
        }
    };
    (op, result)
}
