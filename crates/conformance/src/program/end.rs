//! One queue pair of a task: what it posts, what it is owed, what it left in memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::ledger::{Fate, Ledger, Sent, Slot};
use super::plan::{EndId, EndPlan, Farewell, Leave, RECV, Recvs, Request, TARGET_LEN};
use super::port::Pair;
use super::request::{carry_out, gathered, message, sges_of};
use super::run::{SharedRecvs, World, lock};
use super::task::say;
use crate::rig::{Node, Options};
use verbs::attr::Transport;
use verbs::error::{PostError, PostReason};
use verbs::names::QpNum;
use verbs::nic::NicMr;
use verbs::wc::{Wc, WcStatus};
use verbs::wr::{Payload, RecvWr, SendFlags, SendWr, Sge, UdDest};

/// One queue pair of the task.
pub(super) struct End {
    pub(super) id: EndId,
    pub(super) plan: EndPlan,
    pub(super) transport: Transport,
    pub(super) options: Options,
    pub(super) pair: Option<Pair>,
    /// Where its datagrams go.
    pub(super) to: Option<UdDest>,
    /// What its requests gather and fetch, and where its RECVs lead.
    pub(super) region: Arc<dyn NicMr>,
    /// What its peer reads and writes.
    pub(super) target: Option<Arc<dyn NicMr>>,
    pub(super) ledger: Ledger,
    pub(super) to_send: VecDeque<Request>,
    /// How many of them may be posted by now.
    pub(super) may_send: usize,
    /// Room of the RECVs that are to be posted, and how many of them may be by now.
    pub(super) rooms: VecDeque<usize>,
    pub(super) may_recv: usize,
    /// How much of the room for RECVs is used up in this round.
    pub(super) recv_used: usize,
    pub(super) last_id: u64,
    /// What was posted up to here is gone with a RESET, but may have completed before.
    pub(super) forgotten: u64,
    /// What READs and atomics of this round bring, and where.
    pub(super) results: Vec<(usize, Vec<u8>)>,
    /// Its link says farewell in this round.
    pub(super) torn: bool,
    /// It is about to leave, or has left: what it has posted must end.
    pub(super) leaving: bool,
    pub(super) dead: bool,
}

impl End {
    pub(super) fn num(&self) -> Option<QpNum> {
        self.pair.as_ref().map(Pair::num)
    }

    pub(super) fn peer(&self) -> EndId {
        (self.id.0, 1 - self.id.1)
    }

    pub(super) fn describe(&self) -> String {
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

    pub(super) fn connect(&mut self, world: &World<'_>, node: Option<&Node>) -> Result<(), String> {
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
    pub(super) fn begin(&mut self, world: &World<'_>, number: usize) {
        let round = &world.plan.rounds[number];
        let exchange = &round.links[self.id.0];
        (self.may_send, self.may_recv, self.recv_used) = (0, 0, 0);
        self.leaving = false;
        self.torn = round.farewell.is_some_and(|it| it.leaver.0 == self.id.0);
        self.results.clear();
        let known = world.known(self.id);
        known.has_sent.store(false, Ordering::Release);
        if self.dead || self.pair.is_none() {
            return;
        }
        self.to_send = exchange.sends[self.id.1].iter().cloned().collect();
        self.rooms = match self.plan.recvs {
            Recvs::Own => exchange.rooms[self.id.1].iter().copied().collect(),
            Recvs::Shared | Recvs::Lent => VecDeque::new(),
        };
        self.ledger.fate = match round.farewell.filter(|it| it.leaver.0 == self.id.0) {
            None => Fate::Healthy,
            Some(farewell) if farewell.leaver != self.id => match farewell.how {
                Leave::Forget => Fate::Refused(WcStatus::RemAccessErr),
                _ => Fate::Torn,
            },
            Some(farewell) => match farewell.how {
                Leave::Error | Leave::Reset | Leave::Forget => Fate::Torn,
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
    pub(super) fn post(
        &mut self,
        world: &World<'_>,
        count: usize,
        room: usize,
    ) -> Result<usize, String> {
        let peer = *lock(&world.known(self.peer()).remote);
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
                true => carry_out(request, peer, &bytes[index], &mut target),
                // It must not be taken.
                false => carry_out(request, peer, &bytes[index], &mut target.clone()),
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

    /// Posts RECVs as far as there is room. `over` tries one more when the queue becomes full, which
    /// must be refused.
    pub(super) fn post_recvs(&mut self, over: bool) -> Result<(), String> {
        let Some(pair) = &mut self.pair else {
            return Ok(());
        };
        let room = self.plan.recv_depth - self.ledger.recvs.len();
        let count = room.min(self.may_recv);
        if count == 0 {
            return Ok(());
        }
        let over = over && count == room;
        self.may_recv -= count;
        let mut slots = Vec::new();
        let lens = self.rooms.drain(..count);
        for len in lens.chain(over.then_some(0)) {
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
        let posted = pair.post_recv(&wrs);
        slots.truncate(count);
        self.ledger.recvs.extend(slots);
        let full = PostError {
            index: count,
            reason: PostReason::QueueFull,
        };
        match posted {
            Ok(()) if over => Err(format!("{:?}: {count} RECVs fit, not one more", self.id)),
            Err(error) if over && error == full => Ok(()),
            posted => posted.map_err(say("posting RECVs")),
        }
    }

    /// Takes a completion, and the message that is lent with it.
    pub(super) fn completed(
        &mut self,
        wc: &Wc,
        lent: Option<&[u8]>,
        shared: Option<&SharedRecvs>,
    ) -> Result<(), String> {
        if self.plan.recvs == Recvs::Lent && wc.id == 0 {
            let read = |offset: usize, len: usize| {
                let bytes = lent.and_then(|lent| lent.get(offset..offset + len));
                bytes.unwrap_or_default().to_vec()
            };
            return self.ledger.received(self.transport, wc, read);
        }
        if lent.is_some() {
            return Err(format!("nothing was to be lent: {wc:?}"));
        }
        let shares = self.plan.recvs == Recvs::Shared;
        let shared_slot = shared
            .filter(|_| shares)
            .and_then(|shared| shared.take(wc.id));
        // A RECV's id is none of a request under way; failures do not say what they were.
        let own = self.ledger.recvs.iter().any(|slot| slot.id == wc.id);
        if shared_slot.is_none() && !own {
            // It was posted before a RESET, and may have completed before it.
            let is_forgotten = wc.id <= self.forgotten;
            return if is_forgotten {
                Ok(())
            } else {
                self.ledger.sent(wc)
            };
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
            region.read(slot.offset + offset, &mut bytes);
            bytes
        };
        let received = self.ledger.received(self.transport, wc, read);
        received.map_err(|why| format!("{why}, in {slot:?}"))?;
        if let Some((slot, shared)) = shared_slot.zip(shared) {
            shared.give_back(slot);
        }
        Ok(())
    }

    /// Whether something is still to come or to be posted.
    pub(super) fn owes(&self, world: &World<'_>) -> bool {
        let alive = self.pair.is_some() && !self.dead;
        let receives = !self.rooms.is_empty() || !self.ledger.arriving.is_empty();
        // What comes over a link that says farewell is seen when its ends part.
        alive && (self.sends() || (receives && !self.torn) || self.is_waited_for(world))
    }

    fn sends(&self) -> bool {
        !self.to_send.is_empty() || !self.ledger.sent.is_empty()
    }

    /// Whether the peer, over a link that says farewell, may wait for RECVs of the shared queue, which
    /// become free as this end looks.
    pub(super) fn is_waited_for(&self, world: &World<'_>) -> bool {
        let shares = self.plan.recvs == Recvs::Shared && self.transport == Transport::Rc;
        let has_sent = || world.known(self.peer()).has_sent.load(Ordering::Acquire);
        self.torn && shares && self.pair.is_some() && !has_sent()
    }

    /// Tells its peer whether it has sent all.
    pub(super) fn tell(&self, world: &World<'_>) {
        let known = world.known(self.id);
        known.has_sent.store(!self.sends(), Ordering::Release);
    }

    pub(super) fn is_leaving_and_owes(&self) -> bool {
        self.leaving && self.sends()
    }

    pub(super) fn is_leaving_and_has_recvs(&self) -> bool {
        self.is_leaving_and_owes() || (self.leaving && !self.ledger.recvs.is_empty())
    }

    /// Whether it waits for nothing but solicited messages.
    pub(super) fn owes_solicited_only(&self) -> bool {
        let ledger = &self.ledger;
        let all = ledger.arriving.iter().all(|message| message.solicited);
        !self.torn && all && ledger.sent.is_empty() && self.to_send.is_empty()
    }

    /// Tells what it saw complete and received.
    pub(super) fn leave(&mut self, world: &World<'_>) {
        let ledger = &self.ledger;
        *lock(&world.known(self.id).counts) = (ledger.confirmed, ledger.received);
    }

    /// Whether messages that its peer has seen complete wait for RECVs of the shared queue.
    pub(super) fn is_behind(&self, world: &World<'_>) -> bool {
        let waits = self.plan.recvs == Recvs::Shared && self.transport == Transport::Rc;
        waits && self.pair.is_some() && self.ledger.received < world.confirmed(self.peer())
    }

    /// The queue pair has gone to RESET.
    pub(super) fn forget(&mut self) {
        self.forgotten = self.last_id;
        self.ledger.clear();
        self.to_send.clear();
        self.rooms.clear();
    }

    /// Forgets everything, for a new connection.
    pub(super) fn clear(&mut self, world: &World<'_>) {
        self.ledger.clear();
        self.to_send.clear();
        self.rooms.clear();
        let known = world.known(self.id);
        let zeros = vec![0; TARGET_LEN];
        if let Some(target) = &self.target {
            target.write(0, &zeros);
        }
        *lock(&known.target) = zeros;
        *lock(&known.counts) = (0, 0);
    }

    /// Compares what its requests have brought and left with the model.
    pub(super) fn check_memory(
        &self,
        world: &World<'_>,
        farewell: Option<Farewell>,
    ) -> Result<(), String> {
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
            region.read(0, &mut bytes);
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
