//! The server: one engine per core, and an acceptor that connects clients off the cores.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`Server`]: the sweep, the batch, kicks, sleeping |
//! | `items.rs` | the batch: requests copied out of their slots |
//! | `execute.rs`, `pieces.rs` | a request against the engine, for a piece of a large value as well |
//! | `pending.rs`, `ready.rs` | requests whose answers the engine has promised, and those of them that it has |
//! | `answers.rs`, `outbox.rs` | answers: composed, and posted in batches |
//! | `staging.rs`, `outgoing.rs` | large values on their way in, and out |
//! | `turns.rs` | which client is the next to have room for one |
//! | `acceptor.rs` | [`Acceptor`]: connecting and releasing clients |
//! | `attachment.rs` | what a core holds of a client |
//! | `config.rs` | sizes and times |

#![forbid(unsafe_code)]

mod acceptor;
mod answers;
mod attachment;
mod config;
mod execute;
mod items;
mod outbox;
mod outgoing;
mod pending;
mod pieces;
mod ready;
mod staging;
mod turns;

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use engine::Engine;
use verbs::typed::{CompletionChannel, CompletionQueue, ProtectionDomain};
use verbs::{CqError, PostReason, QpNum, RecvWr, VerbsError, Wc, WcStatus};

pub use acceptor::{AcceptError, Acceptor, AcceptorUsage, ControlReply, CorePort};
pub use attachment::Attachment;
pub use config::ServerConfig;

use self::items::Items;
use self::outbox::Outbox;
use self::outgoing::Outgoing;
use self::pending::Pending;
use self::staging::Staging;
use super::memory::{Chunk, WORD};
use super::slots::{Geometry, is_before, kick, next_id, parse_kick};
use crate::mica::Partition;

/// RECVs for a client's kicks at most. Each client has its own, so that one that kicks without end loses
/// its own kicks and no other's: a kick that finds no RECV is lost, and so is the request that it brings.
const KICK_RECVS_MAX: u32 = 64;
/// Entries of the queue of kicks for each RECV of each client: those that completed before the core knew
/// whose they are may lie there yet when it posts the client's RECVs anew.
const KICK_ENTRIES: u32 = 2;
/// A RECV for a kick: immediate data takes no memory.
const KICK_RECV: RecvWr<'static> = RecvWr { id: 0, sges: &[] };
/// Kicks taken in one step.
const KICKS_PER_STEP: usize = 16;
/// Kicks are looked for once in so many polls, or when a poll found nothing else.
const POLLS_PER_KICK_CHECK: u32 = 64;
/// Kicks are looked for after so many requests at the latest.
const REQUESTS_PER_KICK_CHECK: usize = 128;
/// While kicks come, they are looked for after so many: each request may have come with one, those of a
/// batch on top, and a client has no more RECVs than for both.
const REQUESTS_PER_KICK: usize = KICK_RECVS_MAX as usize / 2;

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
    /// Requests that the engine did not answer at once.
    pub waits: u64,
    /// Requests that made no sense.
    pub invalid: u64,
    /// Requests for another core's key.
    pub wrong_core: u64,
    /// Answers posted.
    pub answers: u64,
    /// Of these, too long for inlining.
    pub answers_ring: u64,
    /// Answers that the NIC did not take, and attempts to post RECVs for kicks.
    pub post_errors: u64,
    /// Completions with an error.
    pub send_errors: u64,
    /// Polls of a completion queue that has failed.
    pub queue_errors: u64,
}

/// How much of a batch repeats may take.
#[derive(Clone, Copy)]
enum Share {
    Half,
    All,
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
    mask: u16,
    /// Requests that may be taken now: the window, less those that wait for the engine.
    room: u16,
    next: u32,
}

const _: () = assert!(size_of::<Cursor>() == 32);

impl Cursor {
    /// How many new requests lie in the client's next slots, `room` at most.
    ///
    /// A request's line comes from the client's core, which takes as long as hundreds of
    /// instructions. A loop that does nothing else has many of them under way at once.
    #[inline]
    fn count_ready(&self, geometry: &Geometry, room: usize) -> usize {
        let room = room.min(self.room.into());
        let (mut id, mut ready) = (self.next, 0);
        while ready < room {
            if self.id_at(geometry, id) != id {
                break;
            }
            id = next_id(id);
            ready += 1;
        }
        ready
    }

    /// The id that lies in the slot of `id`.
    #[inline(always)]
    fn id_at(&self, geometry: &Geometry, id: u32) -> u32 {
        let (stride, slot_len) = (geometry.stride / WORD, geometry.slot_len / WORD);
        let slot = (id & u32::from(self.mask)) as usize;
        self.chunk.word(slot * stride + slot_len - 1)
    }
}

/// One core of the server, in front of an engine of the core's own.
///
/// It looks for requests in the memory that each client writes them into, and owns the queue pair
/// that answers come from. [`Server::poll`] does bounded work and never waits: a request that the
/// engine answers later keeps its slot, and others are carried out meanwhile.
pub struct Server<E: Engine = Partition> {
    core: u32,
    config: ServerConfig,
    geometry: Geometry,
    answer_len_max: usize,
    cursors: Vec<Cursor>,
    clients: Vec<Attachment>,
    by_qpn: HashMap<QpNum, u32>,
    sweep_start: usize,
    polls: u32,
    items: Items<E::Probe>,
    outbox: Outbox,
    staging: Staging,
    outgoing: Outgoing,
    pending: Pending<E::Ticket>,
    /// Promises that were woken, while they are looked at.
    woken: Vec<u32>,
    kick_recvs: u32,
    recv_cq: CompletionQueue,
    channel: CompletionChannel,
    held: [Wc; KICKS_PER_STEP],
    held_count: usize,
    /// Whether the last look at kicks left some: a kick that finds no RECV is lost, and the request
    /// with it, so they must not pile up.
    more_kicks: bool,
    /// Requests carried out since the last look; after one that found kicks it begins nearer to the next.
    since_kicks: usize,
    worked_ns: u64,
    dates: execute::Dates,
    stats: ServerStats,
}

impl<E: Engine> fmt::Debug for Server<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("core", &self.core)
            .field("clients", &self.clients.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// A core's server that has no engine yet: it travels to the core's thread, where the engine is, whose
/// tickets may be bound to that thread.
#[derive(Debug)]
pub struct Prepared {
    core: u32,
    config: ServerConfig,
    geometry: Geometry,
    answer_len_max: usize,
    outbox: Outbox,
    kick_recvs: u32,
    recv_cq: CompletionQueue,
    channel: CompletionChannel,
}

impl Prepared {
    /// Makes core `core`'s server, and what the acceptor must know of it.
    ///
    /// # Errors
    /// `Invalid` for a configuration that makes no sense; what the NIC says.
    pub fn new(
        pd: &ProtectionDomain,
        core: u32,
        config: &ServerConfig,
    ) -> Result<(Self, CorePort), VerbsError> {
        config.check()?;
        let context = pd.context();
        let geometry = config.geometry()?;
        let answer_len_max = config::ANSWER_LEN_MAX.min(context.port(1)?.mtu.bytes());
        let channel = context.create_channel()?;
        let entries_fit = context.device().cqe_max / config.clients_max;
        let kick_recvs = (entries_fit / KICK_ENTRIES).clamp(1, KICK_RECVS_MAX);
        let entries = (KICK_ENTRIES * kick_recvs).min(entries_fit) * config.clients_max;
        let recv_cq = context.create_cq_on(entries, &channel)?;
        let batch_max = config.batch_max as usize;
        let outbox = Outbox::new(pd, batch_max, answer_len_max, config.qkey)?;
        let port = CorePort {
            recv_cq: recv_cq.handle(),
            kick_recvs,
            ud_qpn: outbox.qpn(),
        };
        let prepared = Prepared {
            core,
            config: config.clone(),
            geometry,
            answer_len_max,
            outbox,
            kick_recvs,
            recv_cq,
            channel,
        };
        Ok((prepared, port))
    }

    /// The server, on the thread of its engine.
    #[must_use]
    pub fn serve<E: Engine>(self) -> Server<E> {
        let config = &self.config;
        let (clients_max, batch_max) = (config.clients_max as usize, config.batch_max as usize);
        let staging_count = config.staging_count as usize;
        Server {
            core: self.core,
            geometry: self.geometry,
            answer_len_max: self.answer_len_max,
            cursors: Vec::with_capacity(clients_max),
            clients: Vec::with_capacity(clients_max),
            by_qpn: HashMap::with_capacity(clients_max),
            sweep_start: 0,
            polls: 0,
            items: Items::new(self.core, config, self.geometry),
            outbox: self.outbox,
            staging: Staging::new(
                staging_count,
                config.value_len_max as usize,
                config.staging_idle_ns,
            ),
            outgoing: Outgoing::new(
                staging_count,
                config.value_len_max as usize,
                config.staging_idle_ns,
            ),
            pending: Pending::new(),
            woken: Vec::with_capacity(batch_max),
            kick_recvs: self.kick_recvs,
            recv_cq: self.recv_cq,
            channel: self.channel,
            held: [Wc::default(); KICKS_PER_STEP],
            held_count: 0,
            more_kicks: false,
            since_kicks: 0,
            worked_ns: 0,
            dates: execute::Dates::default(),
            stats: ServerStats::default(),
            config: self.config,
        }
    }
}

impl<E: Engine> Server<E> {
    /// Makes core `core`'s server, where its engine is on the same thread.
    ///
    /// # Errors
    /// As [`Prepared::new`].
    pub fn new(
        pd: &ProtectionDomain,
        core: u32,
        config: &ServerConfig,
    ) -> Result<(Self, CorePort), VerbsError> {
        let (prepared, port) = Prepared::new(pd, core, config)?;
        Ok((prepared.serve(), port))
    }

    /// Takes a client on.
    ///
    /// # Panics
    /// When the attachment is of another core.
    pub fn attach(&mut self, attachment: Attachment) {
        assert_eq!(attachment.core, self.core, "an attachment of another core");
        self.cursors.push(Cursor {
            chunk: attachment.chunk.clone(),
            mask: attachment.geometry.window as u16 - 1,
            room: attachment.room(),
            next: attachment.first_id,
        });
        let index = self.clients.len() as u32;
        self.by_qpn.insert(attachment.uc.num(), index);
        self.outbox.attach(&attachment);
        self.clients.push(attachment);
        // Kicks may have come before the core knew whose they are.
        self.post_recvs(index, self.kick_recvs);
    }

    /// Says by how many seconds the clock that clients read is ahead of the time that the server is
    /// told. Expiries are dates by their clock.
    pub fn set_dates_ahead(&mut self, ahead_s: i64) {
        self.dates.ahead_s = ahead_s;
    }

    /// Lets a client go; its attachment goes back to the acceptor. Requests that wait for the engine
    /// are carried out, and their answers given up.
    pub fn detach(&mut self, client: u32) -> Option<Attachment> {
        let index = self.clients.iter().position(|at| at.client == client)?;
        self.cursors.swap_remove(index);
        let gone = self.clients.swap_remove(index);
        self.outbox.detach(index);
        self.by_qpn.remove(&gone.uc.num());
        if let Some(moved) = self.clients.get(index) {
            self.by_qpn.insert(moved.uc.num(), index as u32);
        }
        self.pending.detach(index as u32, self.clients.len() as u32);
        self.staging.release_client(client);
        self.outgoing.release_client(client);
        Some(gone)
    }

    /// Carries out up to about `budget` requests and returns how many it did.
    ///
    /// `now_s` is unix time in seconds, by which items expire. Cost without work: one load per
    /// client.
    ///
    /// The engine is always the same one. What it promises becomes ready on the core's own thread, by
    /// a task or a message of the core: that wakes no sleeper, and [`Server::arm`] sees it.
    pub fn poll(&mut self, engine: &mut E, now_ns: u64, now_s: u32, budget: usize) -> usize {
        let mut done = 0;
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_KICK_CHECK) || self.held_count > 0 {
            self.take_kicks(engine, Share::Half);
        }
        if self.pending.has_ready() {
            done = self.answer_ready(engine, now_ns, now_s);
        }
        loop {
            if self.more_kicks || self.since_kicks >= REQUESTS_PER_KICK_CHECK {
                self.take_kicks(engine, Share::Half);
                if self.more_kicks {
                    // A batch may bring twice as many as one look takes.
                    self.take_kicks(engine, Share::Half);
                }
            }
            self.sweep(engine);
            if self.items.is_empty() && self.more_kicks {
                // A batch of one has no half.
                self.take_kicks(engine, Share::All);
            }
            let batch = self.items.len();
            if batch == 0 {
                break;
            }
            self.since_kicks += batch;
            self.carry_out(engine, now_ns, now_s);
            done += batch;
            if done >= budget {
                break;
            }
        }
        if done == 0 {
            self.take_kicks(engine, Share::All);
            if !self.items.is_empty() {
                done = self.items.len();
                self.carry_out(engine, now_ns, now_s);
            }
        }
        if done > 0 {
            self.worked_ns = now_ns;
        }
        done
    }

    /// Looks at each client's next slot, and copies new requests out until the batch is full.
    #[inline]
    fn sweep(&mut self, engine: &E) {
        self.stats.sweeps += 1;
        let batch_max = self.batch_max();
        let count = self.cursors.len();
        let mut index = self.sweep_start;
        for _ in 0..count {
            if index >= count {
                index = 0;
            }
            let cursor = &mut self.cursors[index];
            let room = batch_max - self.items.len();
            let ready = cursor.count_ready(&self.geometry, room);
            let requests = (cursor.next, ready);
            let owner = (index as u32, cursor.mask);
            cursor.next = self
                .items
                .copy_out(engine, &cursor.chunk, owner, requests, false);
            index += 1;
            if self.items.len() >= batch_max {
                break;
            }
        }
        self.sweep_start = index;
    }

    /// The rest of the pipeline: all entries are fetched, then all requests are carried out.
    #[inline]
    fn carry_out(&mut self, engine: &mut E, now_ns: u64, now_s: u32) {
        self.items.refine(engine);
        let (mut execution, items) = self.execution(engine, now_ns, now_s);
        for item in items.iter() {
            execution.run(item, items);
        }
        self.stats.batches += 1;
        self.stats.requests += (self.items.len() - self.items.replays()) as u64;
        self.items.clear();
        self.outbox.post(&mut self.stats);
    }

    /// What carrying out takes, and the batch.
    #[inline(always)]
    fn execution<'a>(
        &'a mut self,
        engine: &'a mut E,
        now_ns: u64,
        now_s: u32,
    ) -> (execute::Execution<'a, E>, &'a Items<E::Probe>) {
        let execution = execute::Execution {
            engine,
            outbox: &mut self.outbox,
            staging: &mut self.staging,
            outgoing: &mut self.outgoing,
            pending: &mut self.pending,
            stats: &mut self.stats,
            cursors: &mut self.cursors,
            clients: &mut self.clients,
            answer_len_max: self.answer_len_max,
            now_ns,
            now_s,
            dates: self.dates,
        };
        (execution, &self.items)
    }

    /// How many requests may be taken into the batch: each may be answered at once, or have to wait.
    #[inline]
    fn batch_max(&mut self) -> usize {
        let room = self.outbox.room(&mut self.stats).min(self.pending.room());
        room.min(self.config.batch_max as usize)
    }

    /// Answers requests whose answers have become ready. Returns how many it did.
    #[cold]
    fn answer_ready(&mut self, engine: &mut E, now_ns: u64, now_s: u32) -> usize {
        // Repeats that are in the batch already have theirs.
        let room = self.outbox.room(&mut self.stats) - self.items.len();
        let count_max = room.min(self.config.batch_max as usize);
        let mut woken = std::mem::take(&mut self.woken);
        self.pending.take_ready(count_max, &mut woken);
        let (mut execution, _) = self.execution(engine, now_ns, now_s);
        let looks = woken
            .drain(..)
            .map(|number| execution.look(number as usize));
        let done = looks.filter(|is_answered| *is_answered).count();
        self.woken = woken;
        self.outbox.post(&mut self.stats);
        done
    }

    /// Takes kicks, and puts requests whose answers were lost into the batch once more. A kick
    /// for a request that the sweep has not come to needs nothing: the sweep will.
    fn take_kicks(&mut self, engine: &E, share: Share) {
        let batch_max = self.batch_max();
        // Each may ask for a place in the batch, and a kick that has been taken is gone. While there
        // are new requests, half of the places are theirs, or every other batch where there is one
        // place: otherwise whoever kicks without end would be the only one that is served.
        let replays_max = match (share, batch_max) {
            (Share::All, _) => batch_max,
            (Share::Half, 1) => usize::from(self.stats.batches.is_multiple_of(2)),
            (Share::Half, _) => batch_max / 2,
        };
        let count_max = batch_max
            .saturating_sub(self.items.len())
            .min(replays_max.saturating_sub(self.items.replays()))
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
        self.since_kicks = match count {
            0 => 0,
            _ => REQUESTS_PER_KICK_CHECK - REQUESTS_PER_KICK,
        };
        self.more_kicks = count == count_max || self.held_count > 0;
        if count == 0 {
            return;
        }
        for completion in &completions[..count] {
            if completion.status != WcStatus::Success {
                continue;
            }
            self.stats.kicks += 1;
            let Some(&index) = self.by_qpn.get(&completion.qpn) else {
                continue;
            };
            self.post_recvs(index, 1);
            let Some(imm) = completion.immediate() else {
                continue;
            };
            // The first time a kick only wakes: the sweep finds the request.
            let (low, repeat) = parse_kick(imm);
            let cursor = &self.cursors[index as usize];
            let id = cursor.id_at(&self.geometry, low);
            let passed =
                parse_kick(kick(id, true)).0 == low && id != 0 && is_before(id, cursor.next);
            if !repeat || !passed {
                continue;
            }
            let client = &self.clients[index as usize];
            let mut batch = self.items.iter();
            // Its answer comes when the engine has it, or is being repeated just now.
            let waits = client.is_pending(id) || batch.any(|item| item.repeats(index, id));
            if !waits && cursor.room > 0 {
                self.stats.replays += 1;
                let owner = (index, cursor.mask);
                self.items
                    .copy_out(engine, &cursor.chunk, owner, (id, 1), true);
            }
        }
    }

    /// Gives a client RECVs for its kicks, as many as there is room for.
    fn post_recvs(&mut self, index: u32, count: u32) {
        let recvs = &[KICK_RECV; KICK_RECVS_MAX as usize][..count as usize];
        match self.clients[index as usize].uc.post_recv(recvs) {
            Err(error) if error.reason != PostReason::QueueFull => self.stats.post_errors += 1,
            _ => {}
        }
    }

    /// The queue has an entry for each RECV that may complete, so an overrun is a failing device: it is
    /// counted, and clients find out by their deadlines.
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
        // What cannot be taken before an answer has come does not keep the core awake.
        let may_take = self.pending.room() > 0;
        let waiting = self.cursors.iter().any(|cursor| {
            let next = cursor.next;
            may_take && cursor.room > 0 && cursor.id_at(&self.geometry, next) == next
        });
        if self.held_count == 0 {
            let polled = self.recv_cq.poll(&mut self.held);
            self.held_count = self.count_polled(polled);
        }
        let kicked = may_take && self.held_count > 0;
        if waiting || kicked || self.pending.has_ready() {
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

    /// Buffers of large values in use, both ways.
    pub fn staging_in_use(&self) -> usize {
        self.staging.in_use() + self.outgoing.len()
    }

    /// Requests that wait for the engine.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Bytes of a datagram at most, without the global route header.
    pub fn answer_len_max(&self) -> usize {
        self.answer_len_max
    }
}
