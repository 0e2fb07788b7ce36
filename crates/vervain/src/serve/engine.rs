//! The cache as the Memcache door sees it from one core.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use cache::mica::{KeyHash, Partition};
use memcache::{Asker, Engine, Event, Reply, Request};

use super::clock::ServeClock;
use super::execute::execute;
use super::mail::{Mail, Post};
use super::stats::Board;

/// Keys whose memory is loaded at once.
const PREFETCH_MAX: usize = 32;

/// One core's engine, shared by its connections.
pub(super) struct CoreEngine {
    partition: Rc<RefCell<Partition>>,
    post: Rc<Post>,
    board: Arc<Board>,
    clock: Arc<ServeClock>,
    hash_seed: u64,
    item_size_max: usize,
    value_size_max: usize,
}

impl CoreEngine {
    pub(super) fn new(
        partition: Rc<RefCell<Partition>>,
        post: Rc<Post>,
        board: Arc<Board>,
        clock: Arc<ServeClock>,
        hash_seed: u64,
    ) -> Self {
        let (item_size_max, value_size_max) = {
            let partition = partition.borrow();
            (partition.item_bytes_max(), partition.value_bytes_max())
        };
        CoreEngine {
            partition,
            post,
            board,
            clock,
            hash_seed,
            item_size_max,
            value_size_max,
        }
    }
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

impl Engine for CoreEngine {
    type Ticket = Ticket;

    fn start<R>(
        &mut self,
        now_s: u64,
        request: Request<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Ticket> {
        let asker = Asker {
            connection: u64::MAX,
            room: usize::MAX,
        };
        self.start_within(asker, now_s, request, reply)
    }

    #[inline]
    fn start_within<R>(
        &mut self,
        asker: Asker,
        now_s: u64,
        request: Request<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Ticket> {
        let (here, cores) = (self.post.core, self.post.cores());
        let token = match request.key() {
            Some(key) => {
                let hash = KeyHash::new(self.hash_seed, key);
                let owner = hash.partition(cores as u32) as usize;
                if owner == here {
                    let mut partition = self.partition.borrow_mut();
                    return Ok(execute(&mut partition, hash, &request, now_s, reply));
                }
                self.post.ask(std::iter::once(owner), hash, &request, asker)
            }
            None => {
                let hash = KeyHash::from_bits(0);
                let mut partition = self.partition.borrow_mut();
                execute(&mut partition, hash, &request, now_s, |_| ());
                if cores == 1 {
                    return Ok(reply(Reply::Flushed));
                }
                let others = (0..cores).filter(|core| *core != here);
                self.post.ask(others, hash, &request, asker)
            }
        };
        Err(Ticket {
            post: Rc::clone(&self.post),
            token: Some(token),
        })
    }

    fn prefetch(&mut self, keys: &[&[u8]]) {
        let (here, cores) = (self.post.core, self.post.cores());
        let partition = self.partition.borrow();
        for keys in keys.chunks(PREFETCH_MAX) {
            let mut hashes = [KeyHash::from_bits(0); PREFETCH_MAX];
            let mut len = 0;
            for key in keys {
                let hash = KeyHash::new(self.hash_seed, key);
                if hash.partition(cores as u32) as usize == here {
                    partition.prefetch_bucket(hash);
                    hashes[len] = hash;
                    len += 1;
                }
            }
            // All buckets are under way when the first one is read.
            for hash in &hashes[..len] {
                partition.prefetch_entry(*hash);
            }
        }
    }

    fn poll<R>(
        &mut self,
        ticket: &mut Ticket,
        context: &mut Context<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Poll<R> {
        let Some(token) = ticket.token else {
            return Poll::Ready(reply(Reply::Busy("the answer was fetched already")));
        };
        let polled = self.post.poll(token, context, reply);
        if polled.is_ready() {
            ticket.token = None;
        }
        polled
    }

    fn item_size_max(&self) -> usize {
        self.item_size_max
    }

    fn value_size_max(&self) -> usize {
        self.value_size_max
    }

    fn version(&self) -> &str {
        concat!("vervain-", env!("CARGO_PKG_VERSION"))
    }

    fn stats(&self, section: &str, out: &mut dyn FnMut(&str, &str)) -> bool {
        self.board
            .publish(self.post.core, &self.partition.borrow(), None);
        self.board.tell(section, out)
    }

    fn reset_stats(&mut self) {
        for core in 0..self.post.cores() {
            self.post.send(core, Mail::ResetStats);
        }
    }

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
