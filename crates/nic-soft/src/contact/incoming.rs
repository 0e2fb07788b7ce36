//! Connections that peers have opened: who is there, and what they ask for.
//!
//! A connecting process says which adapter it is: GID, instance, incarnation. It is believed when
//! the process that listens as that instance is the one that has connected, which the kernel
//! knows. From then on, whatever comes through the connection and through the inbox that it was
//! given is of that adapter.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use verbs::{Gid, QpNum, VerbsError};

use crate::contact::adapter::{Adapter, TOKEN_FIRST};
use crate::contact::delegated::{self, Delegated};
use crate::contact::inbox::{InboxLane, Inboxes, PeerInbox, Peerage};
use crate::contact::listener::{Accepted, Listener};
use crate::contact::objects::{NewLane, Objects};
use crate::contact::protocol::{
    self, Message, OP_ATOMIC, OP_COPY, OP_HELLO, OP_LANE, OP_REGION, OP_SWEEP, PeerSocket,
    STATUS_EXHAUSTED, STATUS_IDENTITY, STATUS_LATER, STATUS_NO_SUCH, STATUS_OK, STATUS_REFUSED,
    STATUS_VERSION,
};
use crate::contact::question::QUESTIONS_MAX;
use crate::shared::layout::{INSTANCES, LANES, VERSION, qp_instance};

/// Connections at most, of all peers.
pub(crate) const CONNECTIONS_MAX: usize = 4096;
/// Connections of one process at most. Each of its adapters has one.
pub(crate) const CONNECTIONS_OF_ONE_MAX: usize = 128;
/// Lanes of one process at most: each costs its receiver a look now and then.
pub(crate) const LANES_OF_ONE_MAX: usize = 2 * LANES;
/// Connections of one process that have not said who they are, at most.
const STRANGERS_OF_ONE_MAX: usize = 64;
/// Connections taken in one turn.
const ACCEPTS: usize = 64;
/// Messages of one connection read in one turn.
const MESSAGES: usize = 16;
/// Times that a connection may ask to look for closed lanes, besides once for each that it has announced:
/// no peer of ours asks again before it has closed another one.
const SWEEPS_MAX: u32 = 64;
/// Times that a connection may ask for what it cannot have, or cannot have yet.
const REFUSALS_MAX: u32 = 1024;

/// What a connection has asked, in its order.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// For the file behind the region with a key.
    Region(u32),
    /// For an operation on memory that it cannot reach.
    Delegated(Delegated),
    /// The answer to one that was carried out and has not been told yet: it is not carried out again.
    Carried(Message),
}

impl Asked {
    /// Whether it takes as long as copying does. Such are carried out while nobody is kept out.
    fn takes_long(&self) -> bool {
        matches!(self, Asked::Delegated(Delegated::Copy(_)))
    }

    /// Carries out what is to be, for the peer with this inbox.
    fn carry_out(&mut self, objects: &dyn Objects, inbox: &PeerInbox) {
        if let Asked::Delegated(request) = self {
            let outcome = objects.carry_out(request, inbox);
            *self = Asked::Carried(delegated::answer(outcome));
        }
    }
}

#[derive(Debug)]
struct Connection {
    socket: PeerSocket,
    pid: Pid,
    /// The inbox, once it is known whose it is.
    inbox: Option<Arc<PeerInbox>>,
    refusals: u32,
    /// Lanes that it may still ask to look for.
    sweeps: u32,
    /// It has asked to look for closed lanes, until the agent does: once, however often it asks.
    asks_to_sweep: bool,
    /// What it has asked, until the agent answers.
    asked: Vec<Asked>,
    /// The agent is carrying out what it has asked before. What it asks meanwhile waits for that, because answers
    /// go in order.
    is_answering: bool,
    /// A lane that its process has one too many for, until the agent has looked which were closed. What
    /// comes behind it is not read.
    held: Option<Message>,
}

impl Connection {
    fn new(socket: PeerSocket) -> Self {
        Connection {
            pid: socket.pid(),
            socket,
            inbox: None,
            refusals: 0,
            sweeps: SWEEPS_MAX,
            asks_to_sweep: false,
            asked: Vec::new(),
            is_answering: false,
            held: None,
        }
    }

    /// Whether the agent has something to do for it.
    fn asks(&self) -> bool {
        self.asks_to_sweep || !self.asked.is_empty() || self.held.is_some()
    }

    /// Whether it is in the agent's hands, or waits for it.
    fn is_noted(&self) -> bool {
        self.is_answering || self.asks()
    }
}

/// What the agent does for a connection when it has given the lock back: giving pages back takes long, and copying.
#[derive(Debug)]
struct Turn {
    token: u64,
    inbox: Arc<PeerInbox>,
    /// What the connection has asked, if any of that takes long. It is answered afterwards.
    asked: Vec<Asked>,
    /// Where it looks for lanes that were closed.
    inboxes: Vec<Arc<PeerInbox>>,
    /// The connection's lane that is held is opened afterwards.
    opens_held: bool,
}

/// How an answer is sent.
type Send = fn(BorrowedFd<'_>, &Message, &[BorrowedFd<'_>]) -> rustix::io::Result<()>;

/// The connections that have come over an adapter's listening socket.
#[derive(Debug)]
struct Connections {
    adapter: Arc<Adapter>,
    inboxes: Arc<Inboxes>,
    listener: Option<Listener>,
    connections: HashMap<u64, Connection>,
    /// Those that wait for the agent, each once.
    asking: VecDeque<u64>,
    next_token: u64,
    /// Connections refused or ended because they broke the rules.
    refused: u64,
    send: Send,
}

/// Who has called an adapter.
#[derive(Debug)]
pub(crate) struct Incoming {
    connections: Mutex<Connections>,
    pub(crate) inboxes: Arc<Inboxes>,
}

impl Incoming {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Self {
        let inboxes = Arc::<Inboxes>::default();
        Incoming {
            connections: Mutex::new(Connections::new(adapter, &inboxes)),
            inboxes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        // A panic while the lock was held left a connection half served, which is dropped later.
        let connections = &self.connections;
        connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the adapter's socket.
    pub(crate) fn listen(&self) -> Result<(), VerbsError> {
        let mut connections = self.lock();
        let adapter = &connections.adapter;
        let socket = adapter.membership.listen();
        let listener = socket.and_then(|socket| Listener::new(socket, adapter));
        let listener = listener.map_err(|e| VerbsError::io("listening for peers", e))?;
        connections.listener = Some(listener);
        Ok(())
    }

    /// Ends everything: peers notice that this adapter has gone.
    pub(crate) fn close(&self, objects: &dyn Objects) {
        self.lock().close(objects);
    }

    /// How many connections there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().connections.len()
    }

    /// Connections refused or ended because they broke the rules.
    pub(crate) fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// Takes new connections; false when that fails just now, and the listener is not watched any more.
    pub(crate) fn accept(&self) -> bool {
        self.lock().accept()
    }

    /// Watches the listener again after [`Incoming::accept`] has failed.
    pub(crate) fn watch(&self) -> rustix::io::Result<()> {
        let connections = self.lock();
        let listener = connections.listener.as_ref();
        listener.map_or(Ok(()), |listener| listener.watch(&connections.adapter))
    }

    /// Serves a connection that has something to say.
    pub(crate) fn serve(&self, objects: &dyn Objects, token: u64) {
        self.lock().serve(objects, token);
    }

    /// The same, for a connection that has said who it is.
    pub(crate) fn serve_known(&self, objects: &dyn Objects, token: u64) {
        let mut connections = self.lock();
        let one = connections.connections.get(&token);
        if one.is_some_and(|one| one.inbox.is_some()) {
            connections.serve(objects, token);
        }
    }

    /// Serves what those who have said who they are have sent by now.
    pub(crate) fn serve_all_known(&self, objects: &dyn Objects) {
        self.lock().serve_all_known(objects);
    }

    /// The same without allocating, for those who have few connections.
    pub(crate) fn serve_few_known(&self, objects: &dyn Objects) {
        self.lock().serve_few_known(objects);
    }

    /// Waits until what another thread has read by now is dealt with.
    pub(crate) fn wait(&self) {
        drop(self.lock());
    }

    /// Does what peers have asked for by now; false when something is left to be tried again. Those who
    /// arm, and wait for what the agent is reading, wait for what one of them has asked, and not for all.
    pub(crate) fn answer_all(&self, objects: &dyn Objects) -> bool {
        let count = self.lock().asking.len();
        for _ in 0..count {
            let turn = self.lock().answer_first(objects);
            if let Some(mut turn) = turn {
                turn.carry_out(objects);
                self.lock().end_turn(objects, turn);
            }
        }
        self.lock().asking.is_empty()
    }
}

impl Turn {
    fn carry_out(&mut self, objects: &dyn Objects) {
        self.inboxes.iter().for_each(|inbox| inbox.sweep());
        let asked = self.asked.iter_mut();
        asked.for_each(|question| question.carry_out(objects, &self.inbox));
    }
}

impl Connections {
    fn new(adapter: &Arc<Adapter>, inboxes: &Arc<Inboxes>) -> Self {
        Connections {
            adapter: Arc::clone(adapter),
            inboxes: Arc::clone(inboxes),
            listener: None,
            connections: HashMap::new(),
            asking: VecDeque::new(),
            next_token: TOKEN_FIRST,
            refused: 0,
            send: protocol::send,
        }
    }

    fn close(&mut self, objects: &dyn Objects) {
        self.listener = None;
        let tokens: Vec<u64> = self.connections.keys().copied().collect();
        for token in tokens {
            self.end(objects, token);
        }
    }

    fn refuse(&mut self, why: &str, pid: Option<Pid>) {
        self.refused += 1;
        // Whoever wants to fill the log gets a line for twice as much work each time.
        if self.refused.is_power_of_two() {
            let (pid, refused) = (pid.map(Pid::as_raw_nonzero), self.refused);
            tracing::warn!(pid, why, refused, "refused a peer");
        }
    }

    fn accept(&mut self) -> bool {
        for _ in 0..ACCEPTS {
            let Some(listener) = &mut self.listener else {
                return true;
            };
            let socket = match listener.accept(&self.adapter) {
                Accepted::Connection(socket) => socket,
                Accepted::Refused(pid) => {
                    self.refuse("there is no descriptor for it", pid);
                    continue;
                }
                Accepted::Nobody => return true,
                Accepted::Failed => return false,
            };
            let socket = match PeerSocket::new(socket) {
                Ok(socket) => socket,
                Err(e) => {
                    tracing::debug!(error = %e, "nothing is taken from a peer");
                    let why = match e {
                        Errno::PERM => "it is not of this user",
                        _ => "too many of its descriptors wait to be closed",
                    };
                    self.refuse(why, None);
                    continue;
                }
            };
            let pid = socket.pid();
            let is_stranger = |one: &&Connection| one.pid == pid && one.inbox.is_none();
            let strangers = self.connections.values().filter(is_stranger).count();
            if self.connections.len() >= CONNECTIONS_MAX || strangers >= STRANGERS_OF_ONE_MAX {
                self.refuse("too many connections", Some(pid));
                continue;
            }
            let token = self.next_token;
            self.next_token += 1;
            let data = EventData::new_u64(token);
            if let Err(e) = epoll::add(&self.adapter.agent_epoll, &socket, data, EventFlags::IN) {
                tracing::warn!(error = %e, "cannot watch a peer");
                continue;
            }
            self.connections.insert(token, Connection::new(socket));
        }
        true
    }

    fn serve_all_known(&mut self, objects: &dyn Objects) {
        let known = self
            .connections
            .iter()
            .filter(|(_, one)| one.inbox.is_some());
        let tokens: Vec<u64> = known.map(|(token, _)| *token).collect();
        for token in tokens {
            self.serve_whole(objects, token);
        }
    }

    fn serve_few_known(&mut self, objects: &dyn Objects) {
        let mut last = 0;
        loop {
            let known = self.connections.iter();
            let known = known.filter(|(token, one)| **token > last && one.inbox.is_some());
            let Some(token) = known.map(|(token, _)| *token).min() else {
                return;
            };
            self.serve_whole(objects, token);
            last = token;
        }
    }

    /// Serves what a connection has sent by now.
    fn serve_whole(&mut self, objects: &dyn Objects, token: u64) {
        // A peer has so many lanes to announce at most, and what it asks besides is its own affair.
        let turns = LANES.div_ceil(MESSAGES) + 1;
        let _ = (0..turns).find(|_| !self.serve(objects, token));
    }

    /// Serves what a connection has sent by now, but not more than its share of a turn; whether there
    /// may be more.
    fn serve(&mut self, objects: &dyn Objects, token: u64) -> bool {
        for _ in 0..MESSAGES {
            let Some(connection) = self.connections.get(&token) else {
                return false;
            };
            if connection.held.is_some() {
                return false;
            }
            let pid = connection.pid;
            let served = match connection.socket.receive() {
                Ok(Some((_, fds))) if !fds.is_empty() => Err("it sent descriptors"),
                Ok(Some((request, _))) => self.answer(objects, token, &request),
                Err(Errno::AGAIN) => return false,
                // An answer that the peer left unread when it went is told once, and before what it
                // had sent.
                Err(Errno::INTR | Errno::CONNRESET) => continue,
                Err(Errno::BADMSG) => Err("it sent a message of a wrong length"),
                // The end, however it came.
                Ok(None) | Err(_) => {
                    self.end(objects, token);
                    return false;
                }
            };
            if let Err(why) = served {
                self.refuse(why, Some(pid));
                self.end(objects, token);
                return false;
            }
        }
        true
    }

    fn end(&mut self, objects: &dyn Objects, token: u64) {
        let Some(ended) = self.connections.remove(&token) else {
            return;
        };
        if let Some(inbox) = ended.inbox {
            inbox.mark_gone();
            self.adapter.peer_epoch.advance();
            if inbox.lanes_used() > 0 {
                objects.senders_gone();
            }
        }
    }

    /// Answers a request. An error ends the connection.
    fn answer(
        &mut self,
        objects: &dyn Objects,
        token: u64,
        request: &Message,
    ) -> Result<(), &'static str> {
        if request.version != VERSION && request.code == OP_HELLO {
            self.reply(token, STATUS_VERSION, 0, &[])?;
            return Err("it speaks another version");
        }
        let known = self
            .connections
            .get(&token)
            .and_then(|one| one.inbox.clone());
        match (request.code, known) {
            (OP_HELLO, None) => self.hello(token, request),
            (OP_REGION, Some(_)) => self.note_question(token, Asked::Region(request.a)),
            (OP_ATOMIC | OP_COPY, Some(_)) => {
                let request = Delegated::of(request);
                let request = request.ok_or("it asked for an operation that is none")?;
                self.note_question(token, Asked::Delegated(request))
            }
            (OP_LANE, Some(inbox)) => {
                if let Some(connection) = self.connections.get_mut(&token) {
                    connection.sweeps = connection.sweeps.saturating_add(1);
                }
                if inbox.lanes_of_process() >= LANES_OF_ONE_MAX {
                    self.hold(token, request);
                    return Ok(());
                }
                open_lane(&self.adapter, objects, &inbox, request)
            }
            (OP_SWEEP, Some(_)) => self.note_sweep(token),
            (OP_HELLO, Some(_)) => Err("it introduced itself twice"),
            (OP_REGION | OP_LANE | OP_SWEEP | OP_ATOMIC | OP_COPY, None) => {
                Err("it did not introduce itself")
            }
            _ => Err("it asked for something unknown"),
        }
    }

    /// Sends an answer; false when that does not succeed just now, which is not the peer's fault.
    fn reply(
        &self,
        token: u64,
        status: u32,
        a: u32,
        fds: &[BorrowedFd<'_>],
    ) -> Result<bool, &'static str> {
        let message = Message::answer(status, a, self.adapter.incarnation);
        self.say(token, &message, fds)
    }

    /// As [`Self::reply`], for a message of any kind.
    fn say(
        &self,
        token: u64,
        message: &Message,
        fds: &[BorrowedFd<'_>],
    ) -> Result<bool, &'static str> {
        let Some(connection) = self.connections.get(&token) else {
            return Ok(true);
        };
        match (self.send)(connection.socket.as_fd(), message, fds) {
            // It has gone; what it sent before is read all the same.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(true),
            Err(Errno::AGAIN) => Err("it does not take its answer"),
            // Too many descriptors of this user are under way, or memory is short.
            Err(error) => {
                tracing::debug!(%error, "no answer for a peer just now");
                Ok(false)
            }
        }
    }

    /// Has a peer that cannot be served just now call again.
    fn put_off(&mut self, token: u64) -> Result<(), &'static str> {
        self.count_refusal(token)?;
        match self.reply(token, STATUS_LATER, 0, &[])? {
            true => Ok(()),
            false => Err("nothing can be said to it"),
        }
    }

    fn hello(&mut self, token: u64, request: &Message) -> Result<(), &'static str> {
        let Some(pid) = self.connections.get(&token).map(|one| one.pid) else {
            return Ok(());
        };
        let peer = Peerage {
            gid: request.gid,
            instance: request.a,
            incarnation: request.c,
        };
        match is_held_by(&self.adapter, peer.gid, peer.instance, pid) {
            Ok(true) => {}
            Ok(false) => {
                self.reply(token, STATUS_IDENTITY, 0, &[])?;
                return Err("it is not the instance that it says it is");
            }
            Err(e) => {
                tracing::debug!(error = %e, peer.instance, "cannot find out who a peer is");
                return self.put_off(token);
            }
        }
        let made = self
            .inboxes
            .add(&self.adapter, peer, pid, CONNECTIONS_OF_ONE_MAX);
        let (file, inbox) = match made {
            Ok(Some(made)) => made,
            Ok(None) => {
                let max = CONNECTIONS_OF_ONE_MAX as u32;
                self.reply(token, STATUS_EXHAUSTED, max, &[])?;
                return Err("its process has too many connections");
            }
            Err(error) => {
                tracing::warn!(%error, "no inbox for a peer");
                let max = CONNECTIONS_MAX as u32;
                self.reply(token, STATUS_EXHAUSTED, max, &[])?;
                return Ok(());
            }
        };
        let fds = [self.adapter.published_file.as_fd(), file.as_fd()];
        if !self.reply(token, STATUS_OK, 0, &fds)? {
            return self.put_off(token);
        }
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.inbox = Some(inbox);
        }
        Ok(())
    }

    /// Leaves the look for closed lanes to the agent, as questions are.
    fn note_sweep(&mut self, token: u64) -> Result<(), &'static str> {
        let Some(connection) = self.connections.get_mut(&token) else {
            return Ok(());
        };
        let left = connection.sweeps.checked_sub(1);
        connection.sweeps = left.ok_or("it keeps asking to look for closed lanes")?;
        let asked = connection.is_noted();
        connection.asks_to_sweep = true;
        if !asked {
            self.has_asked(token);
        }
        Ok(())
    }

    /// Leaves a lane to the agent, which looks first whether the process has closed others.
    fn hold(&mut self, token: u64, announcement: &Message) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let asked = connection.is_noted();
        connection.held = Some(*announcement);
        if !asked {
            self.has_asked(token);
        }
    }

    /// Opens a lane that was held, now that those that were closed are free.
    fn open_held(&mut self, objects: &dyn Objects, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let (held, pid) = (connection.held.take(), connection.pid);
        let (Some(announcement), Some(inbox)) = (held, connection.inbox.clone()) else {
            return;
        };
        if let Err(why) = open_lane(&self.adapter, objects, &inbox, &announcement) {
            self.refuse(why, Some(pid));
            self.end(objects, token);
        }
    }

    fn has_asked(&mut self, token: u64) {
        self.asking.push_back(token);
        self.adapter.wake_agent();
    }

    /// Leaves a question to the agent: whoever arms or polls reads on for lanes, and does not pay for what
    /// a peer asks.
    fn note_question(&mut self, token: u64, question: Asked) -> Result<(), &'static str> {
        let Some(connection) = self.connections.get_mut(&token) else {
            return Ok(());
        };
        if connection.asked.len() >= QUESTIONS_MAX {
            return Err("it asks more than it may at once");
        }
        let asked = connection.is_noted();
        connection.asked.push(question);
        if !asked {
            self.has_asked(token);
        }
        Ok(())
    }

    /// Answers what one connection has asked by now, and says what is to be done for it without the lock. What it
    /// asks from here on has it wait for the agent anew, as does what cannot be answered just now.
    fn answer_first(&mut self, objects: &dyn Objects) -> Option<Turn> {
        let token = self.asking.pop_front()?;
        let connection = self.connections.get_mut(&token)?;
        if connection.is_answering {
            // Answers go in order: whoever carries the first ones out has it wait anew.
            return None;
        }
        let mut asked = std::mem::take(&mut connection.asked);
        let sweeps = std::mem::take(&mut connection.asks_to_sweep);
        let (inbox, pid) = (connection.inbox.clone()?, connection.pid);
        let opens_held = connection.held.is_some();
        let inboxes = match opens_held {
            true => self.inboxes.of(pid),
            false if sweeps => vec![Arc::clone(&inbox)],
            false => Vec::new(),
        };
        connection.is_answering = asked.iter().any(Asked::takes_long);
        if !connection.is_answering {
            asked
                .iter_mut()
                .for_each(|one| one.carry_out(objects, &inbox));
            self.tell(objects, token, (&inbox, pid), &asked);
            asked.clear();
        }
        let has_work = !asked.is_empty() || !inboxes.is_empty();
        has_work.then_some(Turn {
            token,
            inbox,
            asked,
            inboxes,
            opens_held,
        })
    }

    /// Ends what was begun by [`Self::answer_first`].
    fn end_turn(&mut self, objects: &dyn Objects, turn: Turn) {
        let token = turn.token;
        if let Some(connection) = self.connections.get_mut(&token)
            && !turn.asked.is_empty()
        {
            connection.is_answering = false;
            // What it holds is taken up below.
            let asks = connection.asks_to_sweep
                || !connection.asked.is_empty()
                || (connection.held.is_some() && !turn.opens_held);
            let pid = connection.pid;
            let is_told = self.tell(objects, token, (&turn.inbox, pid), &turn.asked);
            // What it has asked meanwhile; or else it waits already.
            if asks && is_told && self.connections.contains_key(&token) {
                self.has_asked(token);
            }
        }
        if turn.opens_held {
            self.open_held(objects, token);
        }
    }

    /// Answers a connection what it has asked, of which all else was carried out; false when some has to wait for the
    /// agent's next turn.
    fn tell(
        &mut self,
        objects: &dyn Objects,
        token: u64,
        (inbox, pid): (&PeerInbox, Pid),
        asked: &[Asked],
    ) -> bool {
        for (answered, question) in asked.iter().enumerate() {
            let told = match question {
                Asked::Region(key) => self.region(objects, token, inbox.peer, *key),
                Asked::Carried(answer) => self.carried(token, answer),
                Asked::Delegated(_) => Err("it was asked and not carried out"),
            };
            match told {
                Ok(true) => {}
                Ok(false) => {
                    self.put_back(token, &asked[answered..]);
                    return false;
                }
                Err(why) => {
                    self.refuse(why, Some(pid));
                    self.end(objects, token);
                    return true;
                }
            }
        }
        true
    }

    /// Keeps what could not be answered for the agent's next turn, before what has been asked since.
    fn put_back(&mut self, token: u64, asked: &[Asked]) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.asked.splice(..0, asked.iter().copied());
            self.asking.push_back(token);
        }
    }

    /// Hands out the file behind a region; false when that does not succeed just now. It goes to those that a queue pair of its protection
    /// domain is connected to, and to nobody else.
    fn region(
        &mut self,
        objects: &dyn Objects,
        token: u64,
        peer: Peerage,
        key: u32,
    ) -> Result<bool, &'static str> {
        if let Some(file) = objects.region_file(key, peer) {
            return self.reply(token, STATUS_OK, key, &[(*file).as_fd()]);
        }
        let told = self.reply(token, STATUS_NO_SUCH, key, &[])?;
        if told {
            self.count_refusal(token)?;
        }
        Ok(told)
    }

    /// Tells what has become of an operation; false when that does not succeed just now.
    fn carried(&mut self, token: u64, answer: &Message) -> Result<bool, &'static str> {
        let told = self.say(token, answer, &[])?;
        if told && answer.code == STATUS_REFUSED {
            self.count_refusal(token)?;
        }
        Ok(told)
    }

    fn count_refusal(&mut self, token: u64) -> Result<(), &'static str> {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.refusals += 1;
            if connection.refusals > REFUSALS_MAX {
                return Err("it keeps asking for what it cannot have");
            }
        }
        Ok(())
    }
}

/// Takes up a lane that a peer has opened.
fn open_lane(
    adapter: &Adapter,
    objects: &dyn Objects,
    inbox: &Arc<PeerInbox>,
    request: &Message,
) -> Result<(), &'static str> {
    let (lane, src_qpn) = (request.a as usize, request.b);
    let (dst_qpn, epoch) = (request.c as u32, (request.c >> 32) as u16);
    if src_qpn > QpNum::MAX.0 || qp_instance(src_qpn) != inbox.peer.instance {
        return Err("it opened a lane for a queue pair of somebody else");
    }
    if inbox.lanes_of_process() >= LANES_OF_ONE_MAX {
        return Err("its process has too many lanes");
    }
    let route = adapter.received_route(inbox.peer.gid, request);
    let lane = InboxLane::open(inbox, lane).ok_or("it opened a lane twice, or one that is none")?;
    objects.lane_opened(NewLane {
        lane,
        src_qpn,
        dst_qpn,
        epoch,
        route,
    });
    Ok(())
}

/// Whether an instance's socket is listened on by a process. An error says that this cannot be found out
/// just now: whoever listens takes no more calls, or there is no descriptor left to call with.
fn is_held_by(adapter: &Adapter, gid: Gid, instance: u32, pid: Pid) -> rustix::io::Result<bool> {
    if instance >= INSTANCES {
        return Ok(false);
    }
    let dialed = adapter.membership.dial(gid, instance);
    match dialed.and_then(PeerSocket::new) {
        Ok(holder) => Ok(holder.pid() == pid),
        // Nobody listens there, or another user does.
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::PERM) => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests;
