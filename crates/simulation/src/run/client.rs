//! A client at work, and how what it is told enters the history.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cache::herd::client::{ConnectError, SubmitError};
use cache::herd::{Client, ClientConfig, Outcome};
use conformance::model::ModelNic;
use sim::Env;
use verbs::typed::Context;

use super::{Failure, Life, Shared, State, load, steps};
use crate::control::{Dialer, Exchanged, WireNum};
use checker::history::{Action, Answer, Operation};
use rt::Clock;

/// Commands of one item that are under way at once: the checker tries their orders.
const UNDER_WAY_MAX: u32 = 4;
/// Commands of one item without an answer that may still have an effect: each may or may not.
const OPEN_MAX: usize = 4;

/// A command that has no outcome yet.
pub(super) struct Pending {
    number: usize,
    want_cas: bool,
    /// On the client's clock.
    deadline_ns: u64,
}

/// A client, or the place where the next one will be.
pub(super) struct Actor {
    pub(super) client: Option<Client<Dialer>>,
    pub(super) pending: BTreeMap<u64, Pending>,
    /// When it ran last, and since when it has done so without standing still.
    ran_ns: u64,
    awake_since_ns: u64,
    /// Where its clock began, and how many thousandths it is fast.
    clock: (u64, i64),
    /// The last token seen of each item.
    tokens: Vec<Option<u64>>,
    random: fastrand::Rng,
}

impl Actor {
    pub(super) fn new(run: &mut fastrand::Rng, keys: usize, drift_permille: u64) -> Actor {
        let drift = drift_permille as i64;
        Actor {
            client: None,
            pending: BTreeMap::new(),
            ran_ns: 0,
            awake_since_ns: 0,
            clock: (run.u64(..1 << 40), run.i64(-drift..=drift)),
            tokens: vec![None; keys],
            random: fastrand::Rng::with_seed(run.u64(..)),
        }
    }

    fn local_ns(&self, now_ns: u64) -> u64 {
        let (begin_ns, fast) = self.clock;
        let gained = now_ns as i64 / 1000 * fast;
        begin_ns.wrapping_add(now_ns).wrapping_add_signed(gained)
    }

    /// Makes a client.
    pub(super) fn connect(
        &mut self,
        nic: &ModelNic,
        config: &ClientConfig,
        exchange: &Exchanged,
        owner: usize,
        now_ns: u64,
    ) -> Result<(), ConnectError> {
        let config = ClientConfig {
            seed: Some(self.random.u64(..)),
            ..config.clone()
        };
        let pd = Context::new(Arc::new(nic.clone())).alloc_pd()?;
        let dial = Dialer {
            exchange: Rc::clone(exchange),
            owner,
        };
        let local_ns = self.local_ns(now_ns);
        self.client = Some(Client::connect(pd, config, dial, local_ns)?);
        Ok(())
    }
}

/// The program of a client's node.
pub(super) async fn work(env: Env, state: Shared, index: usize) {
    let _life = Life::new(&state, move |state: &mut State| state.client_died(index));
    let step = move |state: &mut State| state.step_client(&env.nic, index);
    steps(env.core, state, step).await;
}

impl State {
    /// The stream of a client's connection, while it has one.
    pub(super) fn wire_of(&self, index: usize) -> Option<WireNum> {
        let client = self.actors[index].client.as_ref()?;
        client.info()?;
        self.exchange.borrow().last_of(index)
    }

    /// Lets a client run once: it connects, asks, takes answers. Returns how long it waits until the
    /// next time.
    fn step_client(&mut self, nic: &ModelNic, index: usize) -> Result<u64, Failure> {
        let (now_ns, poll_ns) = (self.now_ns(), self.plan.client_poll_ns);
        let wait_ns = self.random.u64(poll_ns / 2..=poll_ns * 2);
        // One more poll is allowed, for what a lost connection left over.
        let slack_ns = 4 * poll_ns;
        let actor = &mut self.actors[index];
        if now_ns > actor.ran_ns + slack_ns {
            actor.awake_since_ns = now_ns;
        }
        actor.ran_ns = now_ns;
        if actor.client.is_none() {
            let made = actor.connect(nic, &self.plan.client, &self.exchange, index, now_ns);
            if let Err(error) = made {
                self.note(|| format!("client {index} cannot connect: {error}"));
                return Ok(wait_ns);
            }
            self.learn_wire(index);
        }
        let wire = self.wire_of(index);
        self.ask(index, wire)?;
        let actor = &mut self.actors[index];
        let local_ns = actor.local_ns(now_ns);
        let mut told = Vec::new();
        if let Some(client) = &mut actor.client {
            let pending = &actor.pending;
            client.poll(local_ns, &mut |tag, outcome| {
                let want_cas = pending.get(&tag).is_some_and(|pending| pending.want_cas);
                told.push((tag, answer_of(&outcome, want_cas)));
            });
        }
        for (tag, answer) in told {
            self.take(index, tag, answer, wire)?;
        }
        self.learn_wire(index);
        let actor = &self.actors[index];
        let late = |pending: &&Pending| local_ns > pending.deadline_ns + slack_ns;
        match actor.pending.values().find(late) {
            Some(late) if actor.awake_since_ns + slack_ns < now_ns => {
                let operation = &self.history[late.number];
                Err(Failure::Stuck(format!(
                    "no outcome by its deadline: {operation}"
                )))
            }
            _ => Ok(wait_ns),
        }
    }

    /// Notes which number the server gave the client of a new connection.
    fn learn_wire(&mut self, index: usize) {
        let Some(wire) = self.wire_of(index) else {
            return;
        };
        let number = self
            .exchange
            .borrow()
            .wire(wire)
            .and_then(|wire| wire.client());
        if let Some(number) = number
            && self.wires_by_client.insert(number, wire) != Some(wire)
        {
            self.note(|| format!("client {index} is connected over stream {wire} as {number}"));
        }
    }

    /// Submits commands, as many as this poll is to bring.
    fn ask(&mut self, index: usize, wire: Option<WireNum>) -> Result<(), Failure> {
        if !self.asking || wire.is_none() || self.actors[index].random.bool() {
            return Ok(());
        }
        let count = self.actors[index].random.usize(1..=self.plan.burst_max);
        for _ in 0..count {
            if self.history.len() >= self.plan.operations {
                return Ok(());
            }
            let key = self.actors[index].random.usize(..self.plan.keys);
            let open = self.open_of(key);
            if self.under_way[key] >= UNDER_WAY_MAX || open >= OPEN_MAX {
                continue;
            }
            let clock_s = self.clock_s(self.core_of(key));
            let actor = &mut self.actors[index];
            let what = (key, self.history.len(), clock_s);
            let action = load::draw(&self.plan, &mut actor.random, what, actor.tokens[key]);
            if !self.submit(index, key, action)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The core that owns an item.
    pub(super) fn core_of(&self, key: usize) -> usize {
        self.plan.server.route().core(&self.keys[key]) as usize
    }

    /// Submits a command; `false` when there is no room for it now.
    pub(super) fn submit(
        &mut self,
        index: usize,
        key: usize,
        action: Action,
    ) -> Result<bool, Failure> {
        let number = self.history.len();
        let clock_s = self.clock_s(self.core_of(key));
        let want_cas = self.random.bool();
        let actor = &mut self.actors[index];
        let Some(client) = &mut actor.client else {
            return Ok(false);
        };
        let command = action.command(&self.keys[key]);
        // The deadline counts from the last poll.
        match client.submit(&command, want_cas, number as u64) {
            Ok(()) => {}
            Err(SubmitError::Full) => return Ok(false),
            Err(error) => return Err(Failure::Stuck(format!("client {index} refuses: {error}"))),
        }
        let deadline_ns = actor.local_ns(self.clock.now().as_ns()) + self.plan.client.deadline_ns;
        actor.pending.insert(
            number as u64,
            Pending {
                number,
                want_cas,
                deadline_ns,
            },
        );
        self.moment += 1;
        let operation = Operation {
            number,
            client: index,
            key,
            action,
            begins: self.moment,
            clock_s,
            answer: None,
            ends: None,
        };
        self.note(|| format!("asks {operation}"));
        self.under_way[key] += 1;
        self.history.push(operation);
        Ok(true)
    }

    /// Enters an answer.
    fn take(
        &mut self,
        index: usize,
        tag: u64,
        answer: Answer,
        wire: Option<WireNum>,
    ) -> Result<(), Failure> {
        let actor = &mut self.actors[index];
        let Some(pending) = actor.pending.remove(&tag) else {
            stuck!("client {index} hands out a second outcome of #{tag}: {answer}");
        };
        self.moment += 1;
        let (now, number) = (self.moment, pending.number);
        let operation = &mut self.history[number];
        if let Answer::Value { cas: Some(cas), .. } = answer {
            actor.tokens[operation.key] = Some(cas);
        }
        self.counts.note(
            match &answer {
                Answer::Value { .. } => "answered with an item",
                Answer::TimedOut => "timed out",
                Answer::Unknown => "connection lost",
                _ => "answered otherwise",
            },
            1,
        );
        let is_known = answer.is_known();
        let by_time = answer == Answer::TimedOut;
        operation.answer = Some(answer);
        if is_known {
            operation.ends = Some(now);
        }
        let (key, begins) = (operation.key, operation.begins);
        self.under_way[key] -= 1;
        let text = self.options.trace.then(|| operation.to_string());
        self.note(|| format!("told {}", text.unwrap_or_default()));
        let core = self.core_of(key);
        if is_known {
            self.passed((index, core, wire), begins);
        } else {
            self.leave_open(number, (index, core, wire), by_time);
        }
        Ok(())
    }

    /// A client has died with all that it had under way.
    fn client_died(&mut self, index: usize) {
        let wire = self.wire_of(index);
        self.moment += 1;
        let actor = &mut self.actors[index];
        if actor.client.take().is_none() {
            return;
        }
        let pending = std::mem::take(&mut actor.pending);
        if !self.is_calm {
            self.counts.note("clients died", 1);
        }
        self.note(|| {
            format!(
                "client {index} dies with {} commands under way",
                pending.len()
            )
        });
        for pending in pending.into_values() {
            let key = self.history[pending.number].key;
            self.under_way[key] -= 1;
            let core = self.core_of(key);
            self.leave_open(pending.number, (index, core, wire), false);
        }
    }
}

fn answer_of(outcome: &Outcome<'_>, want_cas: bool) -> Answer {
    let token = |cas: u64| want_cas.then_some(cas);
    match *outcome {
        Outcome::Value { value, flags, cas } => Answer::Value {
            value: value.to_vec(),
            flags,
            cas: token(cas),
        },
        Outcome::Done { cas } => Answer::Done { cas: token(cas) },
        Outcome::Number { value, cas } => Answer::Number {
            value,
            cas: token(cas),
        },
        Outcome::Refused(status) => Answer::Refused(status),
        Outcome::TimedOut => Answer::TimedOut,
        // The enum may grow; what is not known is unknown.
        _ => Answer::Unknown,
    }
}
