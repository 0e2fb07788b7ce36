//! The cache as the Memcache door sees it from one core.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use cache::mica::{Partition, Probe};
use cache::route::Route;
use engine::{Answer, Ask, Command, Engine, Failure, Limits, StatsPage};
use memcache::{Event, Host};

use super::clock::ServeClock;
use super::mail::Post;
use super::stats::Board;

/// One core's engine, shared by its connections.
pub(super) struct CoreEngine {
    partition: Rc<RefCell<Partition>>,
    post: Rc<Post>,
    board: Arc<Board>,
    clock: Arc<ServeClock>,
    route: Route,
    limits: Limits,
}

impl CoreEngine {
    pub(super) fn new(
        partition: Rc<RefCell<Partition>>,
        post: Rc<Post>,
        board: Arc<Board>,
        clock: Arc<ServeClock>,
        route: Route,
    ) -> Self {
        let limits = partition.borrow().limits();
        CoreEngine {
            partition,
            post,
            board,
            clock,
            route,
            limits,
        }
    }
}

/// What is known of a key before its command is started.
#[derive(Clone, Copy, Default)]
pub(super) struct KeyProbe {
    /// The core that has it.
    owner: u32,
    probe: Probe,
}

/// A promise of another core's answer.
pub(super) struct Ticket {
    post: Rc<Post>,
    token: Option<usize>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.post.give_up(token);
        }
    }
}

impl CoreEngine {
    fn stats<R>(&self, section: &str, answer: impl FnOnce(Answer<'_>) -> R) -> R {
        self.board
            .publish_cache(self.post.core, &self.partition.borrow());
        let mut page = StatsPage::default();
        let known = self
            .board
            .tell(section, &mut |name, value| page.add(name, value));
        answer(if known {
            Answer::Stats(&page)
        } else {
            Answer::Failed(Failure::Unsupported)
        })
    }
}

impl Engine for CoreEngine {
    type Probe = KeyProbe;
    type Ticket = Ticket;

    #[inline]
    fn probe(&self, key: &[u8]) -> KeyProbe {
        let owner = self.route.core(key);
        // All cores hash alike.
        let partition = self.partition.borrow();
        let hash = partition.hash(key);
        let probe = match owner as usize == self.post.core {
            true => partition.probe(hash),
            false => hash.into(),
        };
        KeyProbe { owner, probe }
    }

    fn refine(&self, key: &mut KeyProbe) {
        if key.owner as usize == self.post.core {
            self.partition.borrow().refine(&mut key.probe);
        }
    }

    #[inline]
    fn start<R>(
        &mut self,
        ask: &Ask<'_>,
        KeyProbe { owner, probe }: KeyProbe,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Ticket> {
        let hash = probe.hash();
        let (here, cores) = (self.post.core, self.post.cores());
        let command = &ask.command;
        let token = match *command {
            Command::Stats { section } => return Ok(self.stats(section, answer)),
            Command::FlushAll { .. } | Command::ResetStats => {
                let mut partition = self.partition.borrow_mut();
                let done = partition.run(hash, command, ask.now_s, |_| Answer::Done);
                if matches!(command, Command::ResetStats) {
                    self.board.publish_reset(here, &partition);
                    self.board.reset();
                }
                if cores == 1 {
                    return Ok(answer(done));
                }
                let others = (0..cores).filter(|core| *core != here);
                self.post.ask(others, hash, command, ask.asker)
            }
            Command::Get { .. }
            | Command::Store { .. }
            | Command::Delete { .. }
            | Command::Arith { .. }
            | Command::Touch { .. } => {
                let owner = owner as usize;
                if owner == here {
                    let mut partition = self.partition.borrow_mut();
                    return Ok(partition.run(probe, command, ask.now_s, answer));
                }
                self.post
                    .ask(std::iter::once(owner), hash, command, ask.asker)
            }
        };
        Err(Ticket {
            post: Rc::clone(&self.post),
            token: Some(token),
        })
    }

    fn fetch<R>(
        &mut self,
        ticket: &mut Ticket,
        context: &mut Context<'_>,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Poll<R> {
        let Some(token) = ticket.token else {
            let spent = Failure::Busy("the answer was fetched already");
            return Poll::Ready(answer(Answer::Failed(spent)));
        };
        let polled = self.post.poll(token, context, answer);
        if polled.is_ready() {
            ticket.token = None;
        }
        polled
    }

    #[inline]
    fn limits(&self) -> Limits {
        self.limits
    }
}

impl Host for CoreEngine {
    fn note(&mut self, event: Event) {
        self.board.doors().note(event);
    }

    fn moment_s(&self, date_s: u64) -> u64 {
        self.clock.moment_s(date_s)
    }

    fn allows_upgrade(&self, _arguments: &[u8]) -> bool {
        true
    }
}
