//! First contact: calling another process, saying who we are, and taking its answer.
//!
//! An attempt begins with whoever needs the peer and ends with the agent, which takes the answer or
//! finds that none has come in time. So nobody waits but who says so: [`peer_of`], for the control
//! path. There is one attempt at a time for a process, whoever needs it.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Pid;
use verbs::{Gid, VerbsError};

use crate::contact::adapter::Adapter;
use crate::contact::objects::Objects;
use crate::contact::peer::Peer;
use crate::contact::protocol::{
    self, Message, STATUS_EXHAUSTED, STATUS_IDENTITY, STATUS_OK, STATUS_VERSION,
};
use crate::shared::segment::close_aside;

/// Attempts at once that datagrams begin, at most.
const UNDER_WAY_MAX: usize = 64;
/// Time between two calls to a process that takes no more of them just now.
const CALL_AGAIN: Duration = Duration::from_millis(1);

/// Time between two looks of whoever waits.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// No attempt takes longer, whatever the options say.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// An attempt to make contact with the process that holds an instance number.
#[derive(Debug)]
pub(crate) struct Contact {
    pub(crate) gid: Gid,
    pub(crate) instance: u32,
    /// Names the connection to the agent. Ours: two peers can say that they are the same
    /// incarnation, and the end of one must not be the other's.
    pub(crate) token: u64,
    deadline: Instant,
    outcome: OnceLock<Result<Arc<Peer>, VerbsError>>,
}

impl Contact {
    /// What has become of it, once it is over.
    pub(crate) fn outcome(&self) -> Option<Result<&Arc<Peer>, &VerbsError>> {
        self.outcome.get().map(Result::as_ref)
    }

    fn unreachable(&self, why: impl Into<String>) -> VerbsError {
        unreachable(self.gid, self.instance, why)
    }

    /// Its error, for each who waits.
    fn error(&self, error: &VerbsError) -> VerbsError {
        match error {
            VerbsError::Exhausted { what, max } => VerbsError::Exhausted { what, max: *max },
            VerbsError::Unreachable { why, .. } => self.unreachable(why),
            other => self.unreachable(other.to_string()),
        }
    }
}

/// How far an attempt has come.
#[derive(Debug)]
enum Stage {
    /// The process takes no more calls just now.
    Calling,
    /// It was told who we are.
    Introduced(OwnedFd, Pid),
    /// Its answer is being looked at.
    Answered,
}

#[derive(Debug)]
struct Attempt {
    contact: Arc<Contact>,
    stage: Stage,
}

#[derive(Debug, Default)]
struct UnderWay {
    attempts: HashMap<(Gid, u32), Attempt>,
    /// The adapter is being closed.
    is_closed: bool,
}

/// An adapter's attempts.
#[derive(Debug, Default)]
pub(crate) struct Contacts {
    under_way: Mutex<UnderWay>,
    /// Some attempt is over.
    ended: Condvar,
}

impl Contacts {
    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        // Every change is a single step.
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends an attempt: says what has become of it before it is no longer to be found.
    fn end(&self, adapter: &Adapter, contact: &Contact, outcome: Result<Arc<Peer>, VerbsError>) {
        if let Err(error) = &outcome {
            tracing::debug!(%error, "contact in vain");
        }
        // Set before only when the adapter is being closed.
        let _ = contact.outcome.set(outcome);
        let ended = {
            let mut under_way = self.lock();
            let key = (contact.gid, contact.instance);
            let same = |attempt: &Attempt| std::ptr::eq(&*attempt.contact, contact);
            let is_there = under_way.attempts.get(&key).is_some_and(same);
            is_there.then(|| under_way.attempts.remove(&key))
        };
        drop(ended);
        self.ended.notify_all();
        // Datagrams wait for it.
        adapter.wake_agent();
    }

    /// Ends all attempts, and lets no other begin.
    pub(crate) fn close(&self) {
        let mut under_way = self.lock();
        under_way.is_closed = true;
        for attempt in std::mem::take(&mut under_way.attempts).into_values() {
            let why = "the adapter is being closed";
            let outcome = Err(attempt.contact.unreachable(why));
            let _ = attempt.contact.outcome.set(outcome);
        }
        drop(under_way);
        self.ended.notify_all();
    }

    /// Waits until an attempt is over.
    fn wait(&self, adapter: &Adapter, objects: &dyn Objects, contact: &Contact) {
        let mut under_way = self.lock();
        while contact.outcome.get().is_none() {
            let waited = self.ended.wait_timeout(under_way, LOOK_AGAIN);
            drop(waited);
            // It does not depend on the agent's turn.
            hear(adapter, objects, contact.token);
            carry_on(adapter);
            under_way = self.lock();
        }
    }
}

/// How a process is to be reached.
#[derive(Debug)]
pub(crate) enum Approach {
    Known(Arc<Peer>),
    UnderWay(Arc<Contact>),
}

/// The peer that holds an instance number, or the attempt to make contact with it, begun if need be.
/// Waits for nobody.
pub(crate) fn approach(adapter: &Adapter, gid: Gid, instance: u32) -> Result<Approach, VerbsError> {
    begin(adapter, gid, instance, UNDER_WAY_MAX).map(|(approach, _)| approach)
}

/// The peer that holds an instance number, contacted if it was not yet. Waits for the adapter's
/// contact time-out at most, and once more when somebody else's attempt has failed meanwhile.
pub(crate) fn peer_of(
    adapter: &Adapter,
    objects: &dyn Objects,
    gid: Gid,
    instance: u32,
) -> Result<Arc<Peer>, VerbsError> {
    let mut is_last = false;
    loop {
        let (contact, is_ours) = match begin(adapter, gid, instance, usize::MAX)? {
            (Approach::Known(peer), _) => return Ok(peer),
            (Approach::UnderWay(contact), is_ours) => (contact, is_ours),
        };
        adapter.contacts.wait(adapter, objects, &contact);
        match contact.outcome() {
            Some(Ok(peer)) => return Ok(Arc::clone(peer)),
            Some(Err(error)) if is_ours || is_last => return Err(contact.error(error)),
            // One that began long ago says little.
            _ => is_last = true,
        }
    }
}

/// As [`approach`], with so many attempts at most; also whether the attempt began just now.
fn begin(
    adapter: &Adapter,
    gid: Gid,
    instance: u32,
    attempts_max: usize,
) -> Result<(Approach, bool), VerbsError> {
    if let Some(peer) = known(adapter, gid, instance) {
        return Ok((Approach::Known(peer), false));
    }
    let key = (gid, instance);
    let mut under_way = adapter.contacts.lock();
    if let Some(attempt) = under_way.attempts.get(&key) {
        let contact = Arc::clone(&attempt.contact);
        return Ok((Approach::UnderWay(contact), false));
    }
    // An attempt may have ended since.
    if let Some(peer) = known(adapter, gid, instance) {
        return Ok((Approach::Known(peer), false));
    }
    let refusal = match under_way.attempts.len() {
        _ if under_way.is_closed => Some("the adapter is being closed"),
        attempts if attempts >= attempts_max => Some("too many others are being contacted"),
        _ => None,
    };
    if let Some(why) = refusal {
        return Err(unreachable(gid, instance, why));
    }
    let contact = Arc::new(Contact {
        gid,
        instance,
        token: adapter.next_token(),
        deadline: Instant::now() + adapter.contact_timeout.min(TIMEOUT_MAX),
        outcome: OnceLock::new(),
    });
    let stage = call(adapter, &contact)?;
    let attempt = Attempt {
        contact: Arc::clone(&contact),
        stage,
    };
    under_way.attempts.insert(key, attempt);
    drop(under_way);
    // The agent is to know the deadline.
    adapter.wake_agent();
    Ok((Approach::UnderWay(contact), true))
}

fn known(adapter: &Adapter, gid: Gid, instance: u32) -> Option<Arc<Peer>> {
    let known = {
        let peers = adapter.peers();
        peers.get(&(gid, instance)).cloned()
    };
    // One whose end has not been noticed yet may have a successor of its number.
    known.filter(|peer| !peer.is_dead() && peer.is_connected())
}

/// Calls a process, and says who we are. Waits for nobody.
fn call(adapter: &Adapter, contact: &Contact) -> Result<Stage, VerbsError> {
    let socket = match adapter.membership.dial(contact.gid, contact.instance) {
        Ok(socket) => socket,
        Err(Errno::AGAIN) => return Ok(Stage::Calling),
        Err(e) => return Err(contact.unreachable(format!("no process answers there: {e}"))),
    };
    let pid = protocol::check_user(&socket)
        .map_err(|e| contact.unreachable(format!("it belongs to another user: {e}")))?;
    adapter.watch(&socket, contact.token)?;
    let us = (
        adapter.gid,
        adapter.membership.number(),
        adapter.incarnation,
    );
    protocol::send(socket.as_fd(), &Message::hello(us.0, us.1, us.2), &[])
        .map_err(|e| contact.unreachable(format!("it does not listen: {e}")))?;
    Ok(Stage::Introduced(socket, pid))
}

/// Carries on with attempts: calls again, and ends those that are overdue. Says when to come again,
/// if there are any.
pub(crate) fn carry_on(adapter: &Adapter) -> Option<Duration> {
    let mut over = Vec::new();
    let mut next: Option<Duration> = None;
    {
        let mut under_way = adapter.contacts.lock();
        for Attempt { contact, stage } in under_way.attempts.values_mut() {
            let left = contact.deadline.saturating_duration_since(Instant::now());
            let error = match stage {
                Stage::Answered => continue,
                _ if left.is_zero() => Some(contact.unreachable("it does not answer in time")),
                Stage::Introduced(..) => None,
                Stage::Calling => match call(adapter, contact) {
                    Ok(called) => {
                        *stage = called;
                        None
                    }
                    Err(error) => Some(error),
                },
            };
            if let Some(error) = error {
                // Whatever comes from there now, nobody looks at.
                *stage = Stage::Answered;
                over.push((Arc::clone(contact), error));
                continue;
            }
            let pause = match stage {
                Stage::Calling => left.min(CALL_AGAIN),
                _ => left,
            };
            next = Some(next.map_or(pause, |next| next.min(pause)));
        }
    }
    for (contact, error) in over {
        adapter.contacts.end(adapter, &contact, Err(error));
    }
    next
}

/// Takes the answer to an introduction, if it has come; false when the connection with this name is
/// none of an attempt.
pub(crate) fn hear(adapter: &Adapter, objects: &dyn Objects, token: u64) -> bool {
    let (contact, socket, pid, answer) = {
        let mut under_way = adapter.contacts.lock();
        let mut attempts = under_way.attempts.values_mut();
        let Some(attempt) = attempts.find(|attempt| attempt.contact.token == token) else {
            return false;
        };
        let answer = match &attempt.stage {
            Stage::Introduced(socket, _) => protocol::receive(socket.as_fd()),
            Stage::Calling | Stage::Answered => return true,
        };
        if matches!(answer, Err(Errno::AGAIN | Errno::INTR)) {
            return true;
        }
        match std::mem::replace(&mut attempt.stage, Stage::Answered) {
            Stage::Introduced(socket, pid) => (Arc::clone(&attempt.contact), socket, pid, answer),
            Stage::Calling | Stage::Answered => return true,
        }
    };
    let outcome = match answer {
        Ok(Some((reply, fds))) => meet(adapter, objects, &contact, socket, pid, &reply, fds),
        Ok(None) => Err(contact.unreachable("it does not answer: it hung up")),
        Err(e) => Err(contact.unreachable(format!("it does not answer: {e}"))),
    };
    adapter.contacts.end(adapter, &contact, outcome);
    true
}

/// Takes what has come for any attempt by now.
pub(crate) fn hear_all(adapter: &Adapter, objects: &dyn Objects) {
    let tokens: Vec<u64> = {
        let under_way = adapter.contacts.lock();
        let attempts = under_way.attempts.values();
        attempts.map(|attempt| attempt.contact.token).collect()
    };
    for token in tokens {
        hear(adapter, objects, token);
    }
}

/// Keeps the peer that has answered.
fn meet(
    adapter: &Adapter,
    objects: &dyn Objects,
    contact: &Contact,
    socket: OwnedFd,
    pid: Pid,
    reply: &Message,
    fds: Vec<OwnedFd>,
) -> Result<Arc<Peer>, VerbsError> {
    let refusal = match reply.code {
        STATUS_OK => None,
        STATUS_VERSION => Some(format!("it speaks version {}", reply.version)),
        STATUS_EXHAUSTED => {
            close_aside(fds);
            return Err(VerbsError::Exhausted {
                what: "connections to the peer",
                max: reply.a.into(),
            });
        }
        STATUS_IDENTITY => Some("it takes us for somebody else".into()),
        status => Some(format!("it answers {status}")),
    };
    let made = match (refusal, fds.as_slice()) {
        (Some(why), _) => Err(contact.unreachable(why)),
        (None, [published, inbox]) => {
            Peer::new(adapter, contact, pid, socket, reply.c, [published, inbox])
        }
        (None, fds) => {
            let why = format!("it sent {} descriptors, not 2", fds.len());
            Err(contact.unreachable(why))
        }
    };
    close_aside(fds);
    let peer = Arc::new(made?);
    let replaced = {
        let mut peers = adapter.peers();
        peers.insert((contact.gid, contact.instance), Arc::clone(&peer))
    };
    if let Some(before) = replaced {
        // Nobody would notice its end any more.
        peer_ended(adapter, objects, before);
        adapter.peer_epoch.advance();
    }
    Ok(peer)
}

/// Takes the answers of a peer that has been met, or its end.
fn take_answers(adapter: &Adapter, objects: &dyn Objects, token: u64) {
    let peer = {
        let peers = adapter.peers();
        let mut peers = peers.values();
        peers.find(|peer| peer.token() == token).cloned()
    };
    if !peer.is_some_and(|peer| peer.take_answers(adapter)) {
        outgoing_ended(adapter, objects, token);
    }
}

/// Takes what has come over a connection that this adapter opened, or its end.
pub(crate) fn take_outgoing(adapter: &Adapter, objects: &dyn Objects, token: u64) {
    // First: an attempt goes only when its peer is there.
    if !hear(adapter, objects, token) {
        take_answers(adapter, objects, token);
    }
}

/// Takes what peers have answered by now, without waiting for the agent's turn.
pub(crate) fn take_all_outgoing(adapter: &Adapter, objects: &dyn Objects) {
    hear_all(adapter, objects);
    let tokens: Vec<u64> = {
        let peers = adapter.peers();
        let asked = peers.values().filter(|peer| peer.is_asked());
        asked.map(|peer| peer.token()).collect()
    };
    for token in tokens {
        take_outgoing(adapter, objects, token);
    }
}

fn outgoing_ended(adapter: &Adapter, objects: &dyn Objects, token: u64) {
    let ended: Vec<_> = {
        let mut peers = adapter.peers();
        let of_token = |_: &(Gid, u32), peer: &mut Arc<Peer>| peer.token() == token;
        peers.extract_if(of_token).map(|(_, peer)| peer).collect()
    };
    for peer in ended {
        peer_ended(adapter, objects, peer);
    }
    adapter.peer_epoch.advance();
}

/// Takes a peer for gone, and leaves to the agent what leads there.
fn peer_ended(adapter: &Adapter, objects: &dyn Objects, peer: Arc<Peer>) {
    peer.hang_up();
    objects.peer_gone(&peer);
    adapter.departed().push(peer);
}

fn unreachable(gid: Gid, instance: u32, why: impl Into<String>) -> VerbsError {
    VerbsError::Unreachable {
        peer: format!("instance {instance} of {gid}"),
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contact::membership::Membership;
    use crate::{SoftNic, SoftOptions};

    #[test]
    fn attempts_at_once_are_bounded() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let mut options = SoftOptions::new(run_dir.path());
        // None ends by itself.
        options.contact_timeout = Duration::MAX;
        let nic = SoftNic::open(&options).expect("an adapter");
        let adapter = nic.adapter();
        // Processes that take calls and say nothing.
        let mut silent = Vec::new();
        let mut listen = |instance| {
            let held = Membership::join(run_dir.path(), adapter.gid).expect("a number");
            assert_eq!(held.number(), instance);
            let socket = held.listen().expect("listens");
            silent.push((socket, held));
        };
        let first = 1;
        let last = first + UNDER_WAY_MAX as u32;
        (first..=last).for_each(&mut listen);
        let call = |instance| approach(adapter, adapter.gid, instance);
        for instance in first..last {
            assert!(matches!(call(instance), Ok(Approach::UnderWay(_))));
        }
        assert!(call(last).is_err(), "there are enough");
        let again = call(first).expect("it is under way already");
        assert!(matches!(again, Approach::UnderWay(_)));
        // The first one hangs up.
        silent.remove(0);
        let Approach::UnderWay(contact) = again else {
            return;
        };
        adapter.contacts.wait(adapter, &*nic.objects, &contact);
        assert!(matches!(contact.outcome(), Some(Err(_))));
        assert!(matches!(call(last), Ok(Approach::UnderWay(_))));
    }
}
