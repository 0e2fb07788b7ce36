//! Whom an adapter has called: first contact, which is calling another process, saying who we are,
//! and taking its answer, and the peers that have been met.
//!
//! An attempt begins with whoever needs the peer and ends with the agent, which takes the answer or
//! finds that none has come in time. So nobody waits but who says so: [`Contacts::peer_of`], for the
//! control path. There is one attempt at a time for a process, whoever needs it.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use verbs::{Gid, VerbsError};

use crate::contact::adapter::Adapter;
use crate::contact::foreign::Foreign;
use crate::contact::inbox::Peerage;
use crate::contact::objects::Objects;
use crate::contact::peer::{Called, Peer};
use crate::contact::protocol::{
    self, Message, PeerSocket, STATUS_EXHAUSTED, STATUS_IDENTITY, STATUS_LATER, STATUS_OK,
    STATUS_VERSION,
};

/// Attempts at once that datagrams begin, at most.
const UNDER_WAY_MAX: usize = 64;
/// Time between two calls to a process that takes no more of them, or cannot find out who calls, just now.
const CALL_AGAIN: Duration = Duration::from_millis(1);

/// Time between two looks of whoever waits.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// No attempt takes longer, whatever the options say.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// An attempt to make contact with the process that holds an instance number.
#[derive(Debug)]
pub(crate) struct Contact {
    pub(crate) called: Called,
    deadline: Instant,
    /// The process has gone, which says nothing of who takes its number next. Set before the outcome.
    is_gone: AtomicBool,
    outcome: OnceLock<Result<Arc<Peer>, VerbsError>>,
}

impl Contact {
    /// What has become of it, once it is over.
    pub(crate) fn outcome(&self) -> Option<Result<&Arc<Peer>, &VerbsError>> {
        self.outcome.get().map(Result::as_ref)
    }

    /// Whether it is over because the process went before it had answered.
    pub(crate) fn is_gone(&self) -> bool {
        self.outcome.get().is_some() && self.is_gone.load(Ordering::Relaxed)
    }

    /// The error of one whose process is there no more.
    fn gone(&self, why: impl Into<String>) -> VerbsError {
        self.is_gone.store(true, Ordering::Relaxed);
        self.unreachable(why)
    }

    fn unreachable(&self, why: impl Into<String>) -> VerbsError {
        unreachable(self.called.gid, self.called.instance, why)
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
    /// It is to be called again, when this time has come.
    Calling(Instant),
    /// It was told who we are.
    Introduced(PeerSocket),
    /// Its answer is being looked at.
    Answered,
}

impl Stage {
    fn call_again() -> Self {
        Stage::Calling(Instant::now() + CALL_AGAIN)
    }
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

/// An adapter's attempts, and the peers that it has met.
#[derive(Debug)]
pub(crate) struct Contacts {
    adapter: Arc<Adapter>,
    under_way: Mutex<UnderWay>,
    /// Some attempt is over.
    ended: Condvar,
    peers: Mutex<HashMap<(Gid, u32), Arc<Peer>>>,
    /// Peers that have gone, until the agent looks after what leads to them.
    departed: Mutex<Vec<Arc<Peer>>>,
    next_token: AtomicU64,
}

/// How a process is to be reached.
#[derive(Debug)]
pub(crate) enum Approach {
    Known(Arc<Peer>),
    UnderWay(Arc<Contact>),
}

impl Contacts {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Self {
        Contacts {
            adapter: Arc::clone(adapter),
            under_way: Mutex::default(),
            ended: Condvar::new(),
            peers: Mutex::default(),
            departed: Mutex::default(),
            next_token: AtomicU64::new(0),
        }
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<(Gid, u32), Arc<Peer>>> {
        // Every change is a single step.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many peers there are.
    pub(crate) fn count(&self) -> usize {
        self.peers().len()
    }

    fn departed(&self) -> MutexGuard<'_, Vec<Arc<Peer>>> {
        // Every change is a single step.
        self.departed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the peers that have gone since: what leads to them is to be looked after.
    pub(crate) fn take_departed(&self) -> Vec<Arc<Peer>> {
        std::mem::take(&mut *self.departed())
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        // Every change is a single step.
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends an attempt: says what has become of it before it is no longer to be found.
    fn end(&self, contact: &Contact, outcome: Result<Arc<Peer>, VerbsError>) {
        if let Err(error) = &outcome {
            tracing::debug!(%error, "contact in vain");
        }
        // Set before only when the adapter is being closed, or when its time was up while its answer
        // was looked at.
        let _ = contact.outcome.set(outcome);
        let ended = {
            let mut under_way = self.lock();
            let key = (contact.called.gid, contact.called.instance);
            let same = |attempt: &Attempt| std::ptr::eq(&*attempt.contact, contact);
            let is_there = under_way.attempts.get(&key).is_some_and(same);
            is_there.then(|| under_way.attempts.remove(&key))
        };
        drop(ended);
        self.ended.notify_all();
        // Datagrams wait for it.
        self.adapter.wake_agent();
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
    pub(crate) fn wait(&self, objects: &dyn Objects, contact: &Contact) {
        let mut under_way = self.lock();
        while contact.outcome.get().is_none() {
            let waited = self.ended.wait_timeout(under_way, LOOK_AGAIN);
            drop(waited);
            // It does not depend on the agent's turn.
            self.hear(objects, contact.called.token);
            self.carry_on();
            under_way = self.lock();
        }
    }

    /// The peer that holds an instance number, or the attempt to make contact with it, begun if need be.
    /// Waits for nobody.
    pub(crate) fn approach(&self, gid: Gid, instance: u32) -> Result<Approach, VerbsError> {
        self.begin(gid, instance, UNDER_WAY_MAX)
            .map(|(approach, _)| approach)
    }

    /// The peer that holds an instance number, contacted if it was not yet. Waits for the adapter's
    /// contact time-out at most, and once more when somebody else's attempt has failed meanwhile.
    pub(crate) fn peer_of(
        &self,
        objects: &dyn Objects,
        gid: Gid,
        instance: u32,
    ) -> Result<Arc<Peer>, VerbsError> {
        let mut is_last = false;
        loop {
            let (contact, is_ours) = match self.begin(gid, instance, usize::MAX)? {
                (Approach::Known(peer), _) => return Ok(peer),
                (Approach::UnderWay(contact), is_ours) => (contact, is_ours),
            };
            self.wait(objects, &contact);
            match contact.outcome() {
                Some(Ok(peer)) => return Ok(Arc::clone(peer)),
                Some(Err(error)) if is_ours || is_last => return Err(contact.error(error)),
                // One that began long ago says little.
                _ => is_last = true,
            }
        }
    }

    /// As [`Contacts::approach`], with so many attempts at most; also whether the attempt began just now.
    fn begin(
        &self,
        gid: Gid,
        instance: u32,
        attempts_max: usize,
    ) -> Result<(Approach, bool), VerbsError> {
        if let Some(peer) = self.known(gid, instance) {
            return Ok((Approach::Known(peer), false));
        }
        let key = (gid, instance);
        let mut under_way = self.lock();
        let attempt = under_way.attempts.get(&key);
        // One that is over stays for a moment, and is for nobody any more.
        if let Some(Attempt { contact, .. }) = attempt.filter(|one| one.contact.outcome().is_none())
        {
            return Ok((Approach::UnderWay(Arc::clone(contact)), false));
        }
        // An attempt may have ended since.
        if let Some(peer) = self.known(gid, instance) {
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
        let called = Called {
            gid,
            instance,
            token: self.next_token.fetch_add(1, Ordering::Relaxed),
        };
        let contact = Arc::new(Contact {
            called,
            deadline: Instant::now() + self.adapter.contact_timeout.min(TIMEOUT_MAX),
            is_gone: AtomicBool::new(false),
            outcome: OnceLock::new(),
        });
        let stage = self.call(&contact)?;
        let attempt = Attempt {
            contact: Arc::clone(&contact),
            stage,
        };
        under_way.attempts.insert(key, attempt);
        drop(under_way);
        // The agent is to know the deadline.
        self.adapter.wake_agent();
        Ok((Approach::UnderWay(contact), true))
    }

    /// An adapter that has called this one, if this one has called it, too.
    pub(crate) fn met(&self, caller: Peerage) -> Option<Arc<Peer>> {
        let peers = self.peers();
        let peer = peers.get(&(caller.gid, caller.instance));
        peer.filter(|peer| peer.incarnation == caller.incarnation)
            .cloned()
    }

    fn known(&self, gid: Gid, instance: u32) -> Option<Arc<Peer>> {
        let known = {
            let peers = self.peers();
            peers.get(&(gid, instance)).cloned()
        };
        // One whose end has not been noticed yet may have a successor of its number.
        known.filter(|peer| !peer.is_dead() && peer.is_connected())
    }

    /// Calls a process, and says who we are. Waits for nobody.
    fn call(&self, contact: &Contact) -> Result<Stage, VerbsError> {
        let socket = match self
            .adapter
            .membership
            .dial(contact.called.gid, contact.called.instance)
        {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => return Ok(Stage::call_again()),
            Err(e) => return Err(contact.gone(format!("no process answers there: {e}"))),
        };
        let socket = PeerSocket::new(socket).map_err(|e| match e {
            Errno::PERM => contact.unreachable("it belongs to another user"),
            e => contact.unreachable(format!("nothing more is taken from it: {e}")),
        })?;
        self.adapter.watch(&socket, contact.called.token)?;
        let us = (
            self.adapter.gid,
            self.adapter.membership.number(),
            self.adapter.incarnation,
        );
        protocol::send(socket.as_fd(), &Message::hello(us.0, us.1, us.2), &[])
            .map_err(|e| contact.gone(format!("it does not listen: {e}")))?;
        Ok(Stage::Introduced(socket))
    }

    /// Carries on with attempts: calls again, and ends those that are overdue. Says when to come again,
    /// if there are any.
    pub(crate) fn carry_on(&self) -> Option<Duration> {
        let mut over = Vec::new();
        let mut next: Option<Duration> = None;
        {
            let mut under_way = self.lock();
            for Attempt { contact, stage } in under_way.attempts.values_mut() {
                let now = Instant::now();
                let left = contact.deadline.saturating_duration_since(now);
                let error = match stage {
                    // Whoever looks at its answer may stand still, or have panicked.
                    _ if left.is_zero() => Some(contact.unreachable("it does not answer in time")),
                    Stage::Introduced(..) | Stage::Answered => None,
                    Stage::Calling(due) if now < *due => None,
                    Stage::Calling(_) => match self.call(contact) {
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
                    Stage::Calling(due) => left.min(due.saturating_duration_since(now)),
                    _ => left,
                };
                next = Some(next.map_or(pause, |next| next.min(pause)));
            }
        }
        for (contact, error) in over {
            self.end(&contact, Err(error));
        }
        next
    }

    /// Takes the answer to an introduction, if it has come; false when the connection with this name is
    /// none of an attempt.
    fn hear(&self, objects: &dyn Objects, token: u64) -> bool {
        let (contact, socket, answer) = {
            let mut under_way = self.lock();
            let mut attempts = under_way.attempts.values_mut();
            let Some(attempt) = attempts.find(|attempt| attempt.contact.called.token == token)
            else {
                return false;
            };
            let answer = match &attempt.stage {
                Stage::Introduced(socket) => socket.receive(),
                Stage::Calling(_) | Stage::Answered => return true,
            };
            let answer = match answer {
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Ok(Some((reply, fds))) if reply.code == STATUS_LATER && fds.is_empty() => {
                    attempt.stage = Stage::call_again();
                    // It is to know when.
                    self.adapter.wake_agent();
                    return true;
                }
                answer => answer,
            };
            match std::mem::replace(&mut attempt.stage, Stage::Answered) {
                Stage::Introduced(socket) => (Arc::clone(&attempt.contact), socket, answer),
                Stage::Calling(_) | Stage::Answered => return true,
            }
        };
        let outcome = match answer {
            Ok(Some((reply, fds))) => self.meet(objects, &contact, socket, &reply, fds),
            Ok(None) => Err(contact.gone("it does not answer: it hung up")),
            Err(Errno::CONNRESET) => Err(contact.gone("it does not answer: it went")),
            Err(e) => Err(contact.unreachable(format!("it does not answer: {e}"))),
        };
        self.end(&contact, outcome);
        true
    }

    /// Takes what has come for any attempt by now.
    fn hear_all(&self, objects: &dyn Objects) {
        let tokens: Vec<u64> = {
            let under_way = self.lock();
            let attempts = under_way.attempts.values();
            attempts
                .map(|attempt| attempt.contact.called.token)
                .collect()
        };
        for token in tokens {
            self.hear(objects, token);
        }
    }

    /// Keeps the peer that has answered.
    fn meet(
        &self,
        objects: &dyn Objects,
        contact: &Contact,
        socket: PeerSocket,
        reply: &Message,
        fds: Vec<Foreign>,
    ) -> Result<Arc<Peer>, VerbsError> {
        let refusal = match reply.code {
            STATUS_OK => None,
            STATUS_VERSION => Some(format!("it speaks version {}", reply.version)),
            STATUS_EXHAUSTED => {
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
            (None, [published, inbox]) => Peer::new(
                &self.adapter,
                contact.called,
                socket,
                reply.c,
                [published, inbox],
            ),
            (None, fds) => {
                let why = format!("it sent {} descriptors, not 2", fds.len());
                Err(contact.unreachable(why))
            }
        };
        let peer = Arc::new(made?);
        let replaced = {
            let mut peers = self.peers();
            peers.insert(
                (contact.called.gid, contact.called.instance),
                Arc::clone(&peer),
            )
        };
        if let Some(before) = replaced {
            // Nobody would notice its end any more.
            self.peer_ended(objects, before);
            self.adapter.peer_epoch.advance();
        }
        Ok(peer)
    }

    /// Takes the answers of a peer that has been met, or its end.
    fn take_answers(&self, objects: &dyn Objects, token: u64) {
        let peer = {
            let peers = self.peers();
            let mut peers = peers.values();
            peers.find(|peer| peer.token() == token).cloned()
        };
        if !peer.is_some_and(|peer| peer.take_answers(&self.adapter)) {
            self.outgoing_ended(objects, token);
        }
    }

    /// Takes what has come over a connection that this adapter opened, or its end.
    pub(crate) fn take_outgoing(&self, objects: &dyn Objects, token: u64) {
        // First: an attempt goes only when its peer is there.
        if !self.hear(objects, token) {
            self.take_answers(objects, token);
        }
    }

    /// Takes what peers have answered by now, without waiting for the agent's turn.
    pub(crate) fn take_all_outgoing(&self, objects: &dyn Objects) {
        self.hear_all(objects);
        let tokens: Vec<u64> = {
            let peers = self.peers();
            let asked = peers.values().filter(|peer| peer.is_asked());
            asked.map(|peer| peer.token()).collect()
        };
        for token in tokens {
            self.take_outgoing(objects, token);
        }
    }

    fn outgoing_ended(&self, objects: &dyn Objects, token: u64) {
        let ended: Vec<_> = {
            let mut peers = self.peers();
            let of_token = |_: &(Gid, u32), peer: &mut Arc<Peer>| peer.token() == token;
            peers.extract_if(of_token).map(|(_, peer)| peer).collect()
        };
        for peer in ended {
            self.peer_ended(objects, peer);
        }
        self.adapter.peer_epoch.advance();
    }

    /// Takes a peer for gone, and leaves to the agent what leads there.
    fn peer_ended(&self, objects: &dyn Objects, peer: Arc<Peer>) {
        peer.hang_up();
        objects.peer_gone(&peer);
        self.departed().push(peer);
    }
}

fn unreachable(gid: Gid, instance: u32, why: impl Into<String>) -> VerbsError {
    VerbsError::Unreachable {
        peer: format!("instance {instance} of {gid}"),
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::SocketFlags;

    use super::*;
    use crate::contact::membership::Membership;
    use crate::testing::adapter_without_agent;
    use crate::{SoftNic, SoftOptions};

    #[test]
    fn attempts_at_once_are_bounded() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let mut options = SoftOptions::new(run_dir.path());
        // None ends by itself.
        options.contact_timeout = Duration::MAX;
        let nic = SoftNic::open(&options).expect("an adapter");
        let (adapter, contacts) = (nic.adapter(), &nic.objects.contacts);
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
        let call = |instance| contacts.approach(adapter.gid, instance);
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
        contacts.wait(&*nic.objects, &contact);
        assert!(matches!(contact.outcome(), Some(Err(_))));
        assert!(matches!(call(last), Ok(Approach::UnderWay(_))));
    }

    #[test]
    fn an_attempt_ends_in_time_though_whoever_looks_at_its_answer_does_not_come_back() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let adapter = adapter_without_agent(run_dir.path());
        let silent = Membership::join(run_dir.path(), adapter.gid).expect("a number");
        let _socket = silent.listen().expect("listens");
        let contacts = Contacts::new(&Arc::new(adapter));
        let called = contacts.approach(contacts.adapter.gid, silent.number());
        let Ok(Approach::UnderWay(contact)) = called else {
            panic!("{called:?}");
        };
        for attempt in contacts.lock().attempts.values_mut() {
            attempt.stage = Stage::Answered;
        }
        while Instant::now() < contact.deadline {
            std::thread::yield_now();
        }
        contacts.carry_on();
        assert!(matches!(contact.outcome(), Some(Err(_))));
        assert!(contacts.lock().attempts.is_empty());
    }

    #[test]
    fn whoever_comes_while_an_attempt_ends_begins_another() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let adapter = adapter_without_agent(run_dir.path());
        let silent = Membership::join(run_dir.path(), adapter.gid).expect("a number");
        let _socket = silent.listen().expect("listens");
        let contacts = Contacts::new(&Arc::new(adapter));
        let call = || match contacts.approach(contacts.adapter.gid, silent.number()) {
            Ok(Approach::UnderWay(contact)) => contact,
            other => panic!("{other:?}"),
        };
        let first = call();
        assert!(Arc::ptr_eq(&first, &call()));
        // As in the middle of `end`.
        let outcome = Err(first.unreachable("it does not answer in time"));
        first.outcome.set(outcome).expect("not over yet");
        let second = call();
        assert!(second.outcome().is_none());
        // The end of the first one leaves the second one alone.
        contacts.end(&first, Err(first.unreachable("once more")));
        assert!(Arc::ptr_eq(&second, &call()));
    }

    #[test]
    fn a_process_that_says_later_is_called_again() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let options = SoftOptions::new(run_dir.path()).contact_timeout(Duration::from_secs(120));
        let nic = SoftNic::open(&options).expect("an adapter");
        let gid = nic.adapter().gid;
        let peer = Membership::join(run_dir.path(), gid).expect("a number");
        let listens = peer.listen().expect("listens");
        let called = nic.objects.contacts.approach(gid, peer.number());
        let Ok(Approach::UnderWay(contact)) = called else {
            panic!("{called:?}");
        };
        let answer = |message| {
            let call = loop {
                match rustix::net::accept_with(&listens, SocketFlags::empty()) {
                    Ok(call) => break call,
                    Err(e) => assert_eq!(e, Errno::AGAIN),
                }
                assert!(contact.outcome().is_none(), "it is not called");
                std::thread::yield_now();
            };
            let call = PeerSocket::new(call).expect("of this user");
            let hello = call.receive().expect("received");
            assert_eq!(
                hello.expect("no end").0.a,
                nic.adapter().membership.number()
            );
            protocol::send(call.as_fd(), &message, &[]).expect("sent");
        };
        answer(Message::answer(STATUS_LATER, 0, 9));
        answer(Message::answer(STATUS_IDENTITY, 0, 9));
        nic.objects.contacts.wait(&*nic.objects, &contact);
        assert!(matches!(contact.outcome(), Some(Err(_))));
    }
}
