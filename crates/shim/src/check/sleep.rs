//! Sleeping on a completion queue that was armed when completions were in it already: they raise no event.

use std::collections::HashMap;
use std::sync::Mutex;

use super::report::{Finding, tell};
use super::state::lock;
use crate::process::caller::Stack;

/// Queues, by address, that held completions when they were armed, and have not been drained since.
pub(super) static UNDRAINED: Mutex<Option<HashMap<usize, Stack>>> = Mutex::new(None);

/// A queue was armed.
pub(crate) fn armed(cq: usize, has_completions: bool) {
    let mut undrained = lock(&UNDRAINED);
    let undrained = undrained.get_or_insert_default();
    match has_completions {
        true => undrained.insert(cq, Stack::here()),
        false => undrained.remove(&cq),
    };
}

/// A program's poll found a queue empty, or it is destroyed.
pub(crate) fn drained(cq: usize) {
    if let Some(undrained) = &mut *lock(&UNDRAINED) {
        undrained.remove(&cq);
    }
}

/// A thread goes to sleep on a channel; `has_some` says whether one of the channel's queues still holds completions.
pub(crate) fn sleeps(cqs: &[usize], has_some: impl Fn(usize) -> bool) {
    let found = |cq: &usize| Some((*cq, *lock(&UNDRAINED).as_ref()?.get(cq)?));
    let undrained: Vec<_> = cqs.iter().filter_map(found).collect();
    for (cq, armed) in undrained {
        if !has_some(cq) {
            continue;
        }
        // Told once for each time that it was armed.
        drained(cq);
        let what = "a thread sleeps on a completion queue in which completions wait".into();
        let finding = Finding::warning("undrained-sleep", what)
            .fact("They came before the queue was armed, so they raise no event: it sleeps until another one comes.".into())
            .at("armed", armed)
            .at("sleeping", Stack::here())
            .advice("after ibv_req_notify_cq poll until the queue is empty, and only then wait for an event");
        tell(&finding);
    }
}
