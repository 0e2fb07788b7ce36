//! The server: one engine per core, and an acceptor that connects clients off the cores.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`Server`]: the sweep, the batch, kicks, sleeping |
//! | `items.rs` | the batch: requests copied out of their slots |
//! | `execute.rs` | a request against the partition |
//! | `outbox.rs` | answers, posted in batches |
//! | `staging.rs` | large values on their way in |
//! | `acceptor.rs` | [`Acceptor`]: connecting and releasing clients |
//! | `attachment.rs` | what a core holds of a client |
//! | `config.rs` | sizes and times |

#![forbid(unsafe_code)]

mod acceptor;
mod attachment;
mod config;
mod execute;
mod items;
mod outbox;
mod staging;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use verbs::typed::{CompletionChannel, CompletionQueue, ProtectionDomain, SharedReceiveQueue};
use verbs::{CqError, QpNum, RecvWr, VerbsError, Wc, WcStatus};

pub use acceptor::{AcceptError, Acceptor, AcceptorUsage, ControlReply, CorePort};
pub use attachment::Attachment;
pub use config::ServerConfig;

use self::items::Items;
use self::outbox::Outbox;
use self::staging::Staging;
use super::memory::Chunk;
use super::slots::{Geometry, is_before, kick, next_id, parse_kick};
use crate::mica::Partition;

/// RECVs for kicks; a kick that finds none is lost, and its client kicks again.
const KICK_RECVS: u32 = 256;
/// Kicks taken in one step.
const KICKS_PER_STEP: usize = 16;
/// Kicks are looked for once in so many polls, or when a poll found nothing else.
const POLLS_PER_KICK_CHECK: u32 = 64;
/// Kicks are looked for after so many requests at the latest: each may have come with one.
const REQUESTS_PER_KICK_CHECK: usize = KICK_RECVS as usize / 2;

/// What a core has done, in requests unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ServerStats {
    /// Sweeps over the clients.
    pub sweeps: u64,
    /// Batches carried out.
    pub batches: u64,
    /// Requests carried out, without repeats.
    pub requests: u64,
    /// Kicks received.
    pub kicks: u64,
    /// Kicks for a request that had been carried out: its answer was sent again.
    pub replays: u64,
    /// Requests that made no sense.
    pub invalid: u64,
    /// Requests for another core's key.
    pub wrong_core: u64,
    /// Answers posted.
    pub answers: u64,
    /// Of these, too long for inlining.
    pub answers_ring: u64,
    /// Answers that the NIC did not take.
    pub post_errors: u64,
    /// Completions with an error.
    pub send_errors: u64,
    /// Polls of a completion queue that has failed.
    pub queue_errors: u64,
}

/// Whether the core may sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Armed {
    /// Too early, or never: poll again.
    Busy,
    /// Work showed up: poll at once.
    Ready,
    /// Sleep until [`Server::channel`] is readable.
    Sleep,
}

/// The part of a client that a sweep looks at: 32 bytes, two to a cache line.
#[derive(Debug)]
struct Cursor {
    chunk: Chunk,
    mask: u32,
    next: u32,
}

const _: () = assert!(size_of::<Cursor>() == 32);

/// One core's engine.
///
/// It looks for requests in the memory that each client writes them into, and owns the queue pair
/// that answers come from. [`Server::poll`] does bounded work and never waits.
#[derive(Debug)]
pub struct Server {
    core: u32,
    config: ServerConfig,
    geometry: Geometry,
    answer_len_max: usize,
    cursors: Vec<Cursor>,
    clients: Vec<Attachment>,
    by_qpn: HashMap<QpNum, u32>,
    sweep_start: usize,
    polls: u32,
    items: Items,
    outbox: Outbox,
    staging: Staging,
    srq: SharedReceiveQueue,
    recv_cq: CompletionQueue,
    channel: CompletionChannel,
    held: [Wc; KICKS_PER_STEP],
    held_count: usize,
    /// Whether the last look at kicks left some: a kick that finds no RECV is lost, and the request
    /// with it, so they must not pile up.
    more_kicks: bool,
    /// Requests carried out since the last look.
    since_kicks: usize,
    worked_ns: u64,
    dates: execute::Dates,
    stats: ServerStats,
}

impl Server {
    /// Makes core `core`'s engine, and what the acceptor must know of it.
    ///
    /// # Errors
    /// `Invalid` for a configuration that makes no sense; what the NIC says.
    pub fn new(
        pd: &ProtectionDomain,
        core: u32,
        config: &ServerConfig,
    ) -> Result<(Server, CorePort), VerbsError> {
        config.check()?;
        let context = pd.context();
        let geometry = config.geometry()?;
        let answer_len_max = config::ANSWER_LEN_MAX.min(context.port(1)?.mtu.bytes());
        let batch_max = config.batch_max as usize;
        let channel = context.create_channel()?;
        let recv_cq = context.create_cq_on(KICK_RECVS, &channel)?;
        let mut srq = pd.create_srq(KICK_RECVS, 1)?;
        let recv = RecvWr { id: 0, sges: &[] };
        srq.post_recv(&[recv; KICK_RECVS as usize])
            .map_err(|error| VerbsError::invalid("receive queue", error.to_string()))?;
        let outbox = Outbox::new(pd, batch_max, answer_len_max, config.qkey)?;
        let port = CorePort {
            recv_cq: recv_cq.handle(),
            srq: srq.handle(),
            ud_qpn: outbox.qpn(),
        };
        let server = Server {
            core,
            geometry,
            answer_len_max,
            cursors: Vec::with_capacity(config.clients_max as usize),
            clients: Vec::with_capacity(config.clients_max as usize),
            by_qpn: HashMap::with_capacity(config.clients_max as usize),
            sweep_start: 0,
            polls: 0,
            items: Items::new(core, config, geometry),
            outbox,
            staging: Staging::new(
                config.staging_count as usize,
                config.value_len_max as usize,
                config.staging_idle_ns,
            ),
            srq,
            recv_cq,
            channel,
            held: [Wc::default(); KICKS_PER_STEP],
            held_count: 0,
            more_kicks: false,
            since_kicks: 0,
            worked_ns: 0,
            dates: execute::Dates::default(),
            stats: ServerStats::default(),
            config: config.clone(),
        };
        Ok((server, port))
    }

    /// Takes a client on.
    ///
    /// # Panics
    /// When the attachment is of another core.
    pub fn attach(&mut self, attachment: Attachment) {
        assert_eq!(attachment.core, self.core, "an attachment of another core");
        self.cursors.push(Cursor {
            chunk: attachment.chunk.clone(),
            mask: attachment.geometry.window as u32 - 1,
            next: self.config.first_id,
        });
        let index = self.clients.len() as u32;
        self.by_qpn.insert(attachment.uc.num(), index);
        self.outbox.attach(&attachment);
        self.clients.push(attachment);
    }

    /// Says by how many seconds the clock that clients read is ahead of the time that the server is
    /// told. Expiries are dates by their clock.
    pub fn set_dates_ahead(&mut self, ahead_s: i64) {
        self.dates.ahead_s = ahead_s;
    }

    /// Lets a client go; its attachment goes back to the acceptor.
    pub fn detach(&mut self, client: u32) -> Option<Attachment> {
        let index = self.clients.iter().position(|at| at.client == client)?;
        self.cursors.swap_remove(index);
        let gone = self.clients.swap_remove(index);
        self.outbox.detach(index);
        self.by_qpn.remove(&gone.uc.num());
        if let Some(moved) = self.clients.get(index) {
            self.by_qpn.insert(moved.uc.num(), index as u32);
        }
        self.staging.release_client(client);
        Some(gone)
    }

    /// Carries out up to about `budget` requests and returns how many it did.
    ///
    /// `now_s` is unix time in seconds, by which items expire. Cost without work: one load per
    /// client.
    pub fn poll(
        &mut self,
        partition: &mut Partition,
        now_ns: u64,
        now_s: u32,
        budget: usize,
    ) -> usize {
        let mut done = 0;
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_KICK_CHECK) || self.held_count > 0 {
            self.take_kicks(partition);
        }
        loop {
            if self.more_kicks || self.since_kicks >= REQUESTS_PER_KICK_CHECK {
                self.take_kicks(partition);
                if self.more_kicks {
                    // A batch may bring twice as many as one look takes.
                    self.take_kicks(partition);
                }
            }
            self.sweep(partition);
            let batch = self.items.len();
            if batch == 0 {
                break;
            }
            self.since_kicks += batch;
            self.carry_out(partition, now_ns, now_s);
            done += batch;
            if done >= budget {
                break;
            }
        }
        if done == 0 {
            self.take_kicks(partition);
            if !self.items.is_empty() {
                done = self.items.len();
                self.carry_out(partition, now_ns, now_s);
            }
        }
        if done > 0 {
            self.worked_ns = now_ns;
        }
        done
    }

    /// Looks at each client's next slot, and copies new requests out until the batch is full.
    #[inline]
    fn sweep(&mut self, partition: &Partition) {
        self.stats.sweeps += 1;
        let room = self.outbox.room(&mut self.stats);
        let batch_max = room.min(self.config.batch_max as usize);
        let count = self.cursors.len();
        let mut index = self.sweep_start;
        for _ in 0..count {
            if index >= count {
                index = 0;
            }
            let cursor = &self.cursors[index];
            let room = batch_max - self.items.len();
            let ready = self.count_ready(cursor, room);
            let mut id = cursor.next;
            for _ in 0..ready {
                let end = self.slot_end(&self.cursors[index], id);
                let chunk = &self.cursors[index].chunk;
                self.items
                    .copy_out(partition, chunk, index as u32, (id, end), false);
                id = next_id(id);
            }
            self.cursors[index].next = id;
            index += 1;
            if self.items.len() >= batch_max {
                break;
            }
        }
        self.sweep_start = index;
    }

    /// How many new requests lie in a client's next slots, `room` at most.
    ///
    /// A request's line comes from the client's core, which takes as long as hundreds of
    /// instructions. A loop that does nothing else has many of them under way at once.
    #[inline]
    fn count_ready(&self, cursor: &Cursor, room: usize) -> u32 {
        let room = (room as u32).min(cursor.mask + 1);
        let (mut id, mut ready) = (cursor.next, 0);
        while ready < room {
            let end = self.slot_end(cursor, id);
            if cursor.chunk.word(end - 4) != id {
                break;
            }
            id = next_id(id);
            ready += 1;
        }
        ready
    }

    /// Where the slot of `id` ends in the client's chunk.
    #[inline]
    fn slot_end(&self, cursor: &Cursor, id: u32) -> usize {
        (id & cursor.mask) as usize * self.geometry.stride + self.geometry.slot_len
    }

    /// The rest of the pipeline: all entries are fetched, then all requests are carried out.
    #[inline]
    fn carry_out(&mut self, partition: &mut Partition, now_ns: u64, now_s: u32) {
        self.items.refine(partition);
        let mut execution = execute::Execution {
            partition,
            outbox: &mut self.outbox,
            staging: &mut self.staging,
            stats: &mut self.stats,
            clients: &mut self.clients,
            answer_len_max: self.answer_len_max,
            now_ns,
            now_s,
            dates: self.dates,
        };
        for (number, item) in self.items.iter().enumerate() {
            execution.run(item, number, &self.items);
        }
        self.stats.batches += 1;
        self.stats.requests += (self.items.len() - self.items.replays()) as u64;
        self.items.clear();
        self.outbox.post(&mut self.stats);
    }

    /// Takes kicks, and puts requests whose answers were lost into the batch once more. A kick
    /// for a request that the sweep has not come to needs nothing: the sweep will.
    fn take_kicks(&mut self, partition: &Partition) {
        let room = self.outbox.room(&mut self.stats);
        let batch_max = room.min(self.config.batch_max as usize);
        // Each may ask for a place in the batch, and a kick that has been taken is gone.
        let count_max = batch_max
            .saturating_sub(self.items.len())
            .min(KICKS_PER_STEP);
        if count_max == 0 {
            return;
        }
        let mut completions = [Wc::default(); KICKS_PER_STEP];
        let count = if self.held_count > 0 {
            let count = self.held_count.min(count_max);
            completions[..count].copy_from_slice(&self.held[..count]);
            self.held.copy_within(count..self.held_count, 0);
            self.held_count -= count;
            count
        } else {
            let polled = self.recv_cq.poll(&mut completions[..count_max]);
            self.count_polled(polled)
        };
        self.since_kicks = 0;
        self.more_kicks = count == count_max || self.held_count > 0;
        if count == 0 {
            return;
        }
        let recv = RecvWr { id: 0, sges: &[] };
        if let Err(error) = self.srq.post_recv(&[recv; KICKS_PER_STEP][..count]) {
            self.stats.post_errors += (count - error.index) as u64;
        }
        for completion in &completions[..count] {
            self.stats.kicks += 1;
            if completion.status != WcStatus::Success {
                continue;
            }
            let (Some(imm), Some(&index)) =
                (completion.immediate(), self.by_qpn.get(&completion.qpn))
            else {
                continue;
            };
            // The first time a kick only wakes: the sweep finds the request.
            let (low, repeat) = parse_kick(imm);
            let cursor = &self.cursors[index as usize];
            let end = self.slot_end(cursor, low);
            let id = cursor.chunk.word(end - 4);
            let passed =
                parse_kick(kick(id, true)).0 == low && id != 0 && is_before(id, cursor.next);
            if repeat && passed {
                self.stats.replays += 1;
                self.items
                    .copy_out(partition, &cursor.chunk, index, (id, end), true);
            }
        }
    }

    /// The queue has an entry for each RECV, so an overrun is a failing device: it is counted, and
    /// clients find out by their deadlines.
    fn count_polled(&mut self, polled: Result<usize, CqError>) -> usize {
        polled.unwrap_or_else(|_| {
            self.stats.queue_errors += 1;
            0
        })
    }

    /// Gets ready for sleep: asks for an event at the next kick, and looks once more for what came
    /// before. After `Sleep`, wait for [`Server::channel`], then call [`Server::disarm`].
    ///
    /// # Errors
    /// What the NIC says.
    pub fn arm(&mut self, now_ns: u64) -> Result<Armed, VerbsError> {
        let idle_ns = self.config.idle_ns;
        if idle_ns == 0 || now_ns.saturating_sub(self.worked_ns) < idle_ns {
            return Ok(Armed::Busy);
        }
        self.recv_cq.arm(false)?;
        let waiting = self.cursors.iter().any(|cursor| {
            let end = self.slot_end(cursor, cursor.next);
            cursor.chunk.word(end - 4) == cursor.next
        });
        if self.held_count == 0 {
            let polled = self.recv_cq.poll(&mut self.held);
            self.held_count = self.count_polled(polled);
        }
        if waiting || self.held_count > 0 {
            return Ok(Armed::Ready);
        }
        Ok(Armed::Sleep)
    }

    /// Takes the events that woke the core.
    ///
    /// # Errors
    /// What the NIC says.
    pub fn disarm(&mut self) -> Result<(), VerbsError> {
        while self.channel.event()?.is_some() {}
        Ok(())
    }

    /// Becomes readable when a kick comes after [`Server::arm`].
    pub fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// The core's number.
    pub fn core(&self) -> u32 {
        self.core
    }

    /// Clients attached.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// What the core has done.
    pub fn stats(&self) -> ServerStats {
        self.stats
    }

    /// Sets the counters to zero.
    pub fn reset_stats(&mut self) {
        self.stats = ServerStats::default();
    }

    /// Buffers of large values in use.
    pub fn staging_in_use(&self) -> usize {
        self.staging.in_use()
    }

    /// Bytes of a datagram at most, without the global route header.
    pub fn answer_len_max(&self) -> usize {
        self.answer_len_max
    }
}
