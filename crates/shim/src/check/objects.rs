//! Destroying objects while they are in use, using them after that, and leaving them behind.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::regions::{self, Region};
use super::report::{Finding, tell};
use super::requests::Request;
use super::state::{Pair, State, lock};
use crate::process::caller::Stack;

/// The handle of an object that was destroyed. Its memory stays, so that its use can be told.
pub(crate) const GONE: u32 = 0xdead_0b1e;

/// An object that was destroyed.
#[derive(Clone, Copy)]
pub(super) struct Grave {
    what: &'static str,
    made: Stack,
    destroyed: Stack,
}

/// Objects that were destroyed, by address.
pub(super) static GRAVES: Mutex<Option<HashMap<usize, Grave>>> = Mutex::new(None);

fn bury(object: usize, what: &'static str, made: Stack) {
    let destroyed = Stack::here();
    let mut graves = lock(&GRAVES);
    let graves = graves.get_or_insert_default();
    graves.insert(
        object,
        Grave {
            what,
            made,
            destroyed,
        },
    );
}

/// Whether an object with the handle [`GONE`] was destroyed; then that is told of `call`.
#[cold]
pub(crate) fn is_gone(object: usize, call: &str) -> bool {
    let grave = lock(&GRAVES)
        .as_ref()
        .and_then(|graves| graves.get(&object).copied());
    let Some(Grave {
        what,
        made,
        destroyed,
    }) = grave
    else {
        return false;
    };
    let finding = Finding::error(
        "use-after-destroy",
        format!("{call} of a {what} that was destroyed"),
    )
    .fact(
        "With a card this reads memory that was given back, and may ring another queue's doorbell."
            .into(),
    )
    .at("called", Stack::here())
    .at("destroyed", destroyed)
    .at("made", made)
    .advice("stop and join all threads that post and poll before objects are destroyed");
    tell(&finding);
    true
}

/// A queue pair is about to be destroyed; `is_posting` says whether another thread is in the middle of a post.
pub(crate) fn destroy_qp(state: &State, object: usize, num: u32, is_posting: bool) {
    let pair = lock(&state.pairs).remove(&num);
    let Some(pair) = pair else {
        return;
    };
    if is_posting {
        let what = format!(
            "qp {}: destroyed while another thread posts to it",
            pair.num
        );
        let finding = Finding::error("destroy-race", what)
            .at("destroyed", Stack::here())
            .at("made", pair.made)
            .advice("stop and join all threads that post before the queue pair is destroyed");
        tell(&finding);
    }
    let has_stopped =
        pair.has_failed.load(Ordering::Relaxed) || pair.is_stopped.load(Ordering::Relaxed);
    if !has_stopped {
        look_at_undrained(&pair);
    }
    look_at_refused(&pair);
    pair.clear(&state.posted);
    bury(object, "queue pair", pair.made);
}

/// Tells of requests whose completions nobody has polled.
fn look_at_undrained(pair: &Pair) {
    let sends = lock(&pair.sends);
    let outstanding = sends.posted.len();
    let Some(first) = sends.posted.front() else {
        return;
    };
    let signaled = sends.posted.iter().filter(|one| one.is_signaled).count();
    let (num, name, id, posted) = (pair.num, first.name(), first.id, first.posted);
    drop(sends);
    let what = format!(
        "qp {num}: destroyed with {outstanding} requests whose completion was not polled, {signaled} of them signaled; the first is {name} {id}"
    );
    let finding = Finding::warning("destroy-undrained", what)
        .fact("Whether they were carried out nobody knows: a card drops what it has not sent yet.".into())
        .at("posted", posted)
        .at("destroyed", Stack::here())
        .advice("poll the completion of the last request, which has to be signaled, before the queue pair is destroyed");
    tell(&finding);
}

/// Tells of requests that were refused, and that the program has let be.
fn look_at_refused(pair: &Pair) {
    let sends = lock(&pair.sends);
    let count = sends.refused.len();
    let first = sends.refused.iter().min_by_key(|(id, _)| **id);
    let Some((id, refused)) = first.map(|(id, refused)| (*id, *refused)) else {
        return;
    };
    drop(sends);
    let what = format!(
        "qp {}: {count} requests were refused and never posted again, such as the one with wr_id {id}",
        pair.num
    );
    let finding = Finding::warning("ignored-bad-wr", what)
        .fact("A post that fails has posted those before bad_wr, and none from there on: they never complete.".into())
        .at("refused", refused)
        .advice("when a post fails, wait for completions only of the requests before bad_wr, and post the rest again");
    tell(&finding);
}

/// A completion queue is about to be destroyed.
pub(crate) fn destroy_cq(state: &State, object: usize, num: u32) {
    if let Some(cq) = lock(&state.cqs).remove(&num) {
        bury(object, "completion queue", cq.made);
    }
    super::sleep::drained(object);
}

/// A shared receive queue is about to be destroyed.
pub(crate) fn destroy_srq(state: &State, object: usize, num: u32) {
    if let Some(srq) = lock(&state.srqs).remove(&num) {
        let recvs = std::mem::take(&mut *lock(&srq.posted));
        recvs.iter().for_each(|recv| state.posted.remove(recv));
        bury(object, "shared receive queue", srq.made);
    }
}

/// Tells why an object cannot be destroyed.
pub(crate) fn busy(state: &State, call: &'static str) {
    let pairs = state.all_pairs();
    let mut regions = regions::all(state.number);
    if call != "ibv_dealloc_pd" {
        regions.clear();
    }
    let what = format!("{call} was refused (EBUSY): other objects use it");
    let mut finding = Finding::warning("busy", what)
        .fact(format!(
            "The context has {} queue pairs and {} regions.",
            pairs.len(),
            regions.len()
        ))
        .at("refused", Stack::here());
    if let Some(pair) = pairs.first() {
        finding = finding.at("a queue pair was made", pair.made);
    }
    if let Some(region) = regions.first() {
        finding = finding.at("a region was registered", region.registered);
    }
    tell(&finding.advice("destroy queue pairs first, then address handles, regions, SRQs and CQs, then channels and the PD"));
}

/// Tells of requests under way that name a region which is being deregistered; whether there are any.
pub(super) fn look_at_posted(state: &State, region: &Region) -> bool {
    let names = |one: &&Request| one.names(region.lkey);
    let found = state.all_pairs().into_iter().find_map(|pair| {
        // What is flushed later, or never, is not carried out any more.
        if pair.has_failed.load(Ordering::Relaxed) || pair.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let send = lock(&pair.sends).posted.iter().find(names).cloned();
        let found = send.or_else(|| lock(&pair.recvs.posted).iter().find(names).cloned());
        found.map(|one| (pair, one))
    });
    let Some((pair, one)) = found else {
        return false;
    };
    let (name, id) = (one.name(), one.id);
    let what = format!(
        "qp {}: the region of {name} {id} is deregistered, whose completion was not polled: {}",
        pair.num,
        region.describe()
    );
    let finding = Finding::warning("deregistered-in-use", what)
        .fact(
            "If a card has not carried the request out yet it fails, and the connection with it."
                .into(),
        )
        .at("posted", one.posted)
        .at("deregistered", Stack::here())
        .at("registered", region.registered)
        .advice("poll the completion first, or destroy the queue pair");
    tell(&finding);
    true
}

/// Tells what a process has left behind in a context; `when` is a clause.
pub(super) fn left_behind(state: &State, when: &str) {
    let pairs = state.all_pairs();
    pairs.iter().for_each(|pair| look_at_refused(pair));
    let regions = regions::all(state.number);
    let (pairs_left, regions_left) = (pairs.len(), regions.len());
    let (cqs, srqs) = (lock(&state.cqs), lock(&state.srqs));
    let (cqs_left, srqs_left) = (cqs.len(), srqs.len());
    if pairs_left + regions_left + cqs_left + srqs_left == 0 {
        return;
    }
    let what = format!(
        "{when} with {pairs_left} queue pairs, {cqs_left} CQs, {srqs_left} SRQs and {regions_left} regions"
    );
    let mut finding = Finding::warning("left-behind", what)
        .fact("The kernel destroys them. A process that goes on as long as it makes such objects runs out of them.".into());
    let firsts = [
        ("a queue pair was made", pairs.first().map(|pair| pair.made)),
        ("a CQ was made", cqs.values().next().map(|cq| cq.made)),
        ("an SRQ was made", srqs.values().next().map(|srq| srq.made)),
        (
            "a region was registered",
            regions.first().map(|region| region.registered),
        ),
    ];
    drop((cqs, srqs));
    for (what, stack) in firsts {
        if let Some(stack) = stack {
            finding = finding.at(what, stack);
        }
    }
    tell(&finding.at("opened", state.made).advice("destroy in this order: queue pairs, address handles, regions, SRQs, CQs, channels, PDs, the context"));
}
