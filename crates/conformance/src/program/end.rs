//! One queue pair of a task: what it posts, what it is owed, what it left in memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::ledger::{Fate, Ledger, Sent, Slot};
use super::plan::{EndId, EndPlan, Farewell, Leave, RECV, Request, TARGET, TARGET_LEN};
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
    pub(super) region: Arc<dyn NicMr>,
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
    pub(super) fn post(
        &mut self,
        world: &World<'_>,
        count: usize,
        room: usize,
    ) -> Result<usize, String> {
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

    pub(super) fn post_recvs(&mut self) -> Result<(), String> {
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

    pub(super) fn completed(
        &mut self,
        wc: &Wc,
        shared: Option<&SharedRecvs>,
    ) -> Result<(), String> {
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
    pub(super) fn owes(&self) -> bool {
        let ledger = &self.ledger;
        let sends = !self.to_send.is_empty() || !ledger.sent.is_empty();
        let alive = self.pair.is_some() && !self.dead;
        let receives = !self.rooms.is_empty() || !ledger.arriving.is_empty();
        // What comes over a link that says farewell is seen when its ends part.
        alive && (sends || (receives && !self.torn))
    }

    pub(super) fn is_leaving_and_owes(&self) -> bool {
        self.leaving && (!self.to_send.is_empty() || !self.ledger.sent.is_empty())
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

    /// Forgets everything, for a new connection.
    pub(super) fn clear(&mut self, world: &World<'_>) {
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
