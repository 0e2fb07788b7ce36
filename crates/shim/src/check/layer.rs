//! What passes between a program and its NIC, looked at on the way.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbs::batch::Wqe;
use verbs::decorate::{Layer, Made};
use verbs::nic::{Nic, NicCq, NicSrq, QpCtl, QpParts, RecvHalf, SendHalf};
use verbs::{
    CqError, CqInit, Polled, PostError, PostReason, QpAttr, QpInit, QpState, RecvBatch, SendBatch,
    SendFlags, SrqInit, VerbsError, Wc, WcOpcode, WcStatus,
};

use super::report::{Finding, tell};
use super::requests::{Request, request, take};
use super::state::{Cq, Pair, Recvs, State, lock};
use super::{bytes, connect, explain, regions};
use crate::process::aside;
use crate::process::caller::Stack;

/// The layer around a context's NIC.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(super) state: Arc<State>,
}

/// Kept with a receive half.
#[derive(Debug)]
pub(crate) struct RecvKept {
    recvs: Arc<Recvs>,
    /// None for a shared receive queue's.
    pair: Option<Arc<Pair>>,
}

/// Kept with a completion queue.
#[derive(Debug)]
pub(crate) struct CqKept(Arc<Cq>);

/// Kept with the other parts of a queue pair.
#[derive(Debug)]
pub(crate) struct PairKept(Arc<Pair>);

impl Layer for Checks {
    type Ctl = PairKept;
    type Send = PairKept;
    type Recv = RecvKept;
    type Cq = CqKept;

    fn make_qp(
        &self,
        nic: &dyn Nic,
        init: &QpInit,
    ) -> Result<(QpParts, (PairKept, PairKept, RecvKept)), VerbsError> {
        aside(|| {
            let parts = nic.create_qp(init)?;
            let pair = self
                .state
                .make_pair(parts.num(), init, parts.ctl.caps().send_wr_max);
            let recv = RecvKept {
                recvs: Arc::clone(&pair.recvs),
                pair: Some(Arc::clone(&pair)),
            };
            let kept = (PairKept(Arc::clone(&pair)), PairKept(pair), recv);
            Ok((parts, kept))
        })
    }

    fn make_cq(&self, nic: &dyn Nic, init: &CqInit) -> Result<Made<dyn NicCq, CqKept>, VerbsError> {
        aside(|| {
            let made = nic.create_cq(init)?;
            let cq = Arc::new(Cq::new(init));
            lock(&self.state.cqs).insert(made.num().0, Arc::clone(&cq));
            Ok((made, CqKept(cq)))
        })
    }

    fn make_srq(
        &self,
        nic: &dyn Nic,
        init: &SrqInit,
    ) -> Result<Made<dyn NicSrq, RecvKept>, VerbsError> {
        aside(|| {
            let made = nic.create_srq(init)?;
            let recvs = Arc::new(Recvs::new(true));
            lock(&self.state.srqs).insert(made.num().0, Arc::clone(&recvs));
            Ok((made, RecvKept { recvs, pair: None }))
        })
    }

    fn modify(&self, kept: &PairKept, ctl: &dyn QpCtl, attr: &QpAttr) -> Result<(), VerbsError> {
        aside(|| {
            ctl.modify(attr)?;
            let pair = &kept.0;
            let is_stopped = matches!(attr.state, Some(QpState::Err | QpState::Reset));
            pair.is_stopped.store(is_stopped, Ordering::Relaxed);
            if attr.state == Some(QpState::Reset) {
                pair.has_failed.store(false, Ordering::Relaxed);
                pair.clear(&self.state.posted);
            }
            connect::changed(pair, &ctl.query());
            Ok(())
        })
    }

    fn post_send(
        &self,
        kept: &mut PairKept,
        half: &mut dyn SendHalf,
        batch: &SendBatch,
    ) -> Result<(), PostError> {
        aside(|| {
            let pair = &kept.0;
            let here = Stack::here();
            // Before they are carried out: another thread may poll their completions at once.
            let requests = batch
                .wqes()
                .iter()
                .map(|wqe| self.sending(pair, wqe, batch, here));
            let requests: Vec<Request> = requests.collect();
            let signaled = requests.iter().filter(|one| one.is_signaled).count();
            lock(&pair.sends).posted.extend(requests);
            if let Some(cq) = &pair.send_cq {
                cq.expect(signaled, here);
            }
            let posted = half.post(batch);
            let done = posted.map_or_else(|error| error.index, |()| batch.len());
            let mut sends = lock(&pair.sends);
            if !sends.refused.is_empty() {
                for wqe in &batch.wqes()[..done] {
                    sends.refused.remove(&wqe.id());
                }
            }
            if let Err(PostError { index, reason }) = posted {
                let left = sends.posted.len().saturating_sub(batch.len() - index);
                let refused = sends.posted.split_off(left);
                for one in &refused {
                    sends.refuse(one.id, here);
                }
                let signaled = refused.iter().filter(|one| one.is_signaled).count();
                if let Some(cq) = &pair.send_cq {
                    cq.settle(signaled);
                }
                let under_way = sends.under_way();
                drop(sends);
                refuse_send(pair, reason, under_way, here);
            } else {
                drop(sends);
                look_for_failure(pair, here);
            }
            posted
        })
    }

    fn post_recv(
        &self,
        kept: &mut RecvKept,
        half: &mut dyn RecvHalf,
        batch: &RecvBatch,
    ) -> Result<(), PostError> {
        aside(|| {
            let here = Stack::here();
            let count = batch.iter().len();
            for wr in batch.iter() {
                let mut recv = request(wr.id, WcOpcode::Recv, wr.sges, here);
                self.look_at_elements(&mut recv);
                self.state.posted.add(self.state.number, &recv);
                lock(&kept.recvs.posted).push_back(recv);
            }
            let cq = kept.pair.as_ref().and_then(|pair| pair.recv_cq.as_ref());
            if let Some(cq) = cq {
                cq.expect(count, here);
            }
            let posted = half.post(batch);
            if let Some(pair) = &kept.pair {
                connect::recvs_posted(pair, posted.map_or_else(|error| error.index, |()| count));
            }
            if let Err(PostError { index, reason }) = posted {
                let mut recvs = lock(&kept.recvs.posted);
                let left = recvs.len().saturating_sub(count - index);
                let refused = recvs.split_off(left);
                drop(recvs);
                refused
                    .iter()
                    .for_each(|recv| self.state.posted.remove(recv));
                if let Some(cq) = cq {
                    cq.settle(refused.len());
                }
                refuse_recv(kept.pair.as_deref(), reason, here);
            }
            posted
        })
    }

    fn poll(
        &self,
        kept: &mut CqKept,
        cq: &mut dyn NicCq,
        out: &mut Polled,
    ) -> Result<usize, CqError> {
        aside(|| {
            // What has come is looked at when the program gets it.
            let polled = cq.poll(out);
            if polled.is_err() {
                tell_overrun(&kept.0);
            }
            polled
        })
    }

    fn arm(
        &self,
        _kept: &mut CqKept,
        cq: &mut dyn NicCq,
        solicited_only: bool,
    ) -> Result<(), VerbsError> {
        aside(|| cq.arm(solicited_only))
    }
}

impl Checks {
    /// A send work request that is about to be posted.
    fn sending(&self, pair: &Pair, wqe: &Wqe, batch: &SendBatch, here: Stack) -> Request {
        let mut one = request(wqe.id(), wqe.opcode(), batch.elements(wqe), here);
        one.is_signaled = pair.signal_all || wqe.flags().contains(SendFlags::SIGNALED);
        one.len = wqe.len().into();
        one.remote = wqe.remote();
        if one.elements.is_empty() {
            return one;
        }
        self.look_at_elements(&mut one);
        self.state.posted.look(&one);
        if one.sends() {
            one.hash = bytes::hash(&one.places);
        } else {
            for sge in &one.elements {
                regions::note_written(self.state.number, sge.lkey.0);
            }
        }
        one
    }

    /// Finds the memory that a request names, and tells where it has gone.
    fn look_at_elements(&self, request: &mut Request) {
        for number in 0..request.elements.len() {
            let sge = request.elements[number];
            if let Some(region) = regions::live(self.state.number, sge.lkey.0) {
                request.look_lost(&region);
                if region.holds(sge.addr, sge.len.into()) {
                    request.places[number].addr = region.place(sge.addr);
                }
            }
        }
    }
}

/// The program gets completions, which the shim may have taken from the NIC before.
pub(super) fn taken(state: &State, completions: &[Wc]) {
    aside(|| completions.iter().for_each(|wc| completed(state, wc)));
}

/// The program gets a completion.
fn completed(state: &State, wc: &Wc) {
    let Some(pair) = state.pair(wc.qpn) else {
        return;
    };
    let is_flushed = wc.status == WcStatus::WrFlushErr;
    if !wc.is_ok() {
        pair.fail();
    }
    let is_recv = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm);
    // What failed is not said; a send is looked for first.
    if !is_recv && !explain::is_recvs(wc) {
        let taken = take(&mut lock(&pair.sends).posted, wc.id, wc.is_ok(), is_flushed);
        if let Some(last) = taken.last() {
            if let Some(cq) = &pair.send_cq {
                cq.settle(taken.iter().filter(|one| one.is_signaled).count());
            }
            if !is_flushed {
                taken
                    .iter()
                    .for_each(|one| look_at_bytes(state, &pair, one));
            }
            if !wc.is_ok() && !is_flushed {
                explain::tell(state, &pair, last, wc);
            }
            return;
        }
    }
    let mut recvs = lock(&pair.recvs.posted);
    let found = recvs.iter().position(|recv| recv.id == wc.id);
    let Some(recv) = found.and_then(|at| recvs.remove(at)) else {
        return;
    };
    drop(recvs);
    state.posted.remove(&recv);
    connect::recv_completed(&pair);
    if let (Some(cq), false) = (&pair.recv_cq, pair.recvs.is_shared) {
        cq.settle(1);
    }
    if !wc.is_ok() && !is_flushed {
        explain::tell(state, &pair, &recv, wc);
    }
}

/// Whether a request's bytes are those that were posted.
fn look_at_bytes(state: &State, pair: &Pair, one: &Request) {
    let Some(before) = one.hash else {
        return;
    };
    // What is not there any more cannot be compared.
    if bytes::hash(&one.places).is_none_or(|now| now == before) {
        return;
    }
    let writers = one.elements.iter().zip(&one.places).any(|(sge, place)| {
        // A region that has gone may have been one that others wrote to.
        regions::live(state.number, sge.lkey.0).is_none()
            || regions::is_written_by_others(place.addr, place.len.into())
    });
    let (name, id) = (one.name(), one.id);
    let what = format!(
        "qp {}: the bytes of {name} {id} changed before its completion was polled",
        pair.num
    );
    let finding = match writers {
        true => Finding::warning("changed-buffer", what).fact(
            "It may have been a peer, or a message: its region can be written by others.".into(),
        ),
        false => Finding::error("changed-buffer", what)
            .fact("Nobody but the program writes into its region.".into()),
    };
    let finding = finding
        .fact("A card may read the bytes at any time until then, and again when it repeats a packet.".into())
        .at("posted", one.posted)
        .at("completion polled", Stack::here())
        .advice("leave a request's bytes alone until its completion has been polled, or send them inline");
    tell(&finding);
}

fn tell_overrun(cq: &Cq) {
    let most = cq.possible_max.load(Ordering::Relaxed);
    let depth = cq.depth.load(Ordering::Relaxed);
    let what = format!("a completion queue of {depth} entries has overrun");
    let finding = Finding::error("cq-overrun", what)
        .fact(format!("Up to {most} requests were under way whose completions come here."))
        .at("the queue was made", cq.made)
        .at("polled", Stack::here())
        .advice("make the queue as deep as the RECVs and signaled requests of all of its queue pairs together, or poll it more often");
    tell(&finding);
}

/// Tells why a send queue has refused a request.
pub(super) fn refuse_send(
    pair: &Pair,
    reason: PostReason,
    (outstanding, unsignaled): (usize, usize),
    here: Stack,
) {
    let num = pair.num;
    if reason != PostReason::QueueFull {
        return tell_refused(pair, "SEND, WRITE, READ or atomic", reason, here);
    }
    let what = match outstanding == unsignaled {
        true => format!(
            "qp {num}: the send queue is full, and none of its {outstanding} requests is signaled"
        ),
        false => format!(
            "qp {num}: the send queue is full, and the last {unsignaled} of its {outstanding} requests are unsignaled"
        ),
    };
    let finding = match outstanding == unsignaled {
        true => Finding::error("starved-send-queue", what)
            .fact("Requests give their room back when a completion of theirs or of a later one is polled: there will be none.".into()),
        false if unsignaled * 2 > pair.send_wr_max as usize => Finding::warning("starved-send-queue", what)
            .fact("Unsignaled requests give their room back when a later one's completion is polled.".into()),
        // It is posted until it is full, and then polled.
        false => return,
    };
    let finding = finding
        .at("refused", here)
        .at("the queue pair was made", pair.made)
        .advice("set IBV_SEND_SIGNALED on some requests, at least one for each send queue's length, and poll their completions");
    tell(&finding);
}

fn refuse_recv(pair: Option<&Pair>, reason: PostReason, here: Stack) {
    if let Some(pair) = pair
        && reason != PostReason::QueueFull
    {
        tell_refused(pair, "RECV", reason, here);
    }
}

/// Tells of a request that no such queue pair takes.
fn tell_refused(pair: &Pair, what: &str, reason: PostReason, here: Stack) {
    let (check, advice) = match reason {
        PostReason::State(_) => (
            "wrong-state",
            "post RECVs from INIT on, and all else from RTS on",
        ),
        _ => (
            "bad-request",
            "look at the request, to which bad_wr points, and at the queue pair's limits; ibv_wr_complete has posted none of those since ibv_wr_start",
        ),
    };
    let what = format!("qp {}: a {what} was refused: {reason}", pair.num);
    let finding = Finding::error(check, what)
        .at("posted", here)
        .at("the queue pair was made", pair.made);
    tell(&finding.advice(advice));
}

/// Tells of what is posted to a queue pair whose failure the program has polled, and did not bring about.
fn look_for_failure(pair: &Pair, here: Stack) {
    if !pair.has_failed.load(Ordering::Relaxed) || pair.is_stopped.load(Ordering::Relaxed) {
        return;
    }
    let what = format!(
        "qp {}: a request was posted though the queue pair has failed",
        pair.num
    );
    let finding = Finding::warning("post-after-error", what)
        .fact("An error completion of it was polled before: this request is flushed.".into())
        .at("posted", here)
        .advice("connect the queue pair again, from RESET, before you go on");
    tell(&finding);
}
