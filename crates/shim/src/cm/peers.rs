//! Connections: calling, what is heard from the other side, and time-outs.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno as Os;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use super::abi::{ConnParam, Private, event};
use super::attributes::UDP_QKEY;
use super::events::{Event, Said};
use super::faults::{self, Kind};
use super::ids::{Id, State};
use super::manager::{Manager, free_number};
use super::names::{Place, is_this_users};
use super::service::Token;
use super::wire::{LEN_MAX, Message, Side};
use super::{addresses, interpose, names};
use crate::abi::errno::Errno;

/// How long an answer may take, which a program gives: about what InfiniBand's connection manager allows.
pub(super) const ANSWER: Duration = Duration::from_secs(60);
/// How long a disconnection may take, which needs no program.
const GOODBYE: Duration = Duration::from_secs(5);
/// How long a caller may take to say what it asks for.
const REQUEST: Duration = Duration::from_secs(5);
/// When a listener without room is called again.
const AGAIN: Duration = Duration::from_millis(10);
/// How long a listener that has been there may be gone.
const LISTENS_AGAIN: Duration = Duration::from_millis(500);
/// How long it is known that it has been there.
const LATELY: Duration = Duration::from_secs(10);
/// Listeners that are known to have been there.
const REACHED_MAX: usize = 64;
/// How long a connection that is established with its first message waits for it, as a fault.
const FIRST_MESSAGE: Duration = Duration::from_secs(3);
/// How long packets may be under way after a disconnection.
const TIME_WAIT: Duration = Duration::from_secs(1);
/// Callers that have not said what they ask for, at once.
const CALLERS_MAX: usize = 1024;

/// Lengths of private data in InfiniBand's messages, without what the connection manager itself says there.
pub(super) mod private_len {
    pub(in crate::cm) const REQUEST: usize = 56;
    pub(in crate::cm) const REPLY: usize = 196;
    pub(in crate::cm) const REJECT: usize = 148;
    pub(in crate::cm) const DATAGRAM_REQUEST: usize = 180;
    pub(in crate::cm) const DATAGRAM_REPLY: usize = 136;
}

/// Why a request is refused, as InfiniBand numbers it.
#[derive(Clone, Copy)]
pub(super) enum Reason {
    NobodyListens = 8,
    Consumer = 28,
}

/// Why a request for a queue pair for datagrams is refused.
#[derive(Clone, Copy)]
pub(super) enum DatagramReason {
    NobodyListens = 1,
    Rejected = 2,
}

/// A caller that has not said what it asks for.
pub(super) struct Caller {
    socket: OwnedFd,
    pub(super) listener: u32,
    pub(super) deadline: Option<Instant>,
}

/// Listeners that have been called, the last of them.
pub(super) struct Reached(Vec<(SocketAddr, Instant)>);

impl Reached {
    pub(super) const fn none() -> Self {
        Reached(Vec::new())
    }

    fn note(&mut self, address: SocketAddr) {
        self.0.retain(|(one, _)| *one != address);
        if self.0.len() == REACHED_MAX {
            self.0.remove(0);
        }
        self.0.push((address, Instant::now()));
    }

    /// In whichever port space: one that is for connections may announce one for datagrams.
    fn lately(&self, address: SocketAddr) -> bool {
        let mut reached = self.0.iter();
        reached.any(|(one, at)| *one == address && at.elapsed() < LATELY)
    }
}

/// A socket has ended, or says what no connection manager says.
struct Ended;

/// What a socket has for us, if it has something now.
fn receive(socket: &OwnedFd) -> Result<Option<Message>, Ended> {
    let mut bytes = [0u8; LEN_MAX];
    loop {
        match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((len, _)) => return Message::parse(&bytes[..len]).map(Some).ok_or(Ended),
            Err(Os::AGAIN) => return Ok(None),
            // The other side has closed without having read everything; what it has said is still there.
            Err(Os::INTR | Os::CONNRESET) => {}
            Err(_) => return Err(Ended),
        }
    }
}

/// What the other side offers, as events say it: its own view the other way round.
fn connection(side: &Side, private_len: usize) -> Said {
    let param = side.param;
    Said::Connection(ConnParam {
        responder_resources: param.initiator_depth,
        initiator_depth: param.responder_resources,
        private: param.private.padded(private_len),
        qkey: 0,
        ..param
    })
}

impl Manager {
    /// Calls who listens at an identifier's destination, which is resolved.
    pub(super) fn call(&mut self, number: u32) -> Result<(), Errno> {
        let Some(id) = self.ids.get_mut(&number) else {
            return Ok(());
        };
        let (Some(from), Some(to), Some(gid)) = (id.from, id.to, id.device) else {
            return Err(libc::EINVAL);
        };
        let socket = match id.socket.take() {
            Some(socket) => socket,
            // The one that holds the port will do.
            None if !id.bound.is_empty() => id.bound.remove(0),
            None => names::socket()?,
        };
        let place = Place {
            device: addresses::device_of(to.ip())?,
            port_space: id.port_space,
        };
        let called = place.call(&socket, to);
        let request = Message::Request {
            from,
            to,
            is_datagram: id.is_datagram(),
            side: Side {
                gid,
                psn: id.psn,
                param: id.ours,
            },
        };
        id.socket = Some(socket);
        match called {
            Ok(()) => {
                id.tell(&request);
                id.state = State::RequestSent;
                self.reached.note(to);
                self.watch(number)?;
                self.set_deadline(Token::Id(number), Some(ANSWER));
            }
            Err(errno) if self.may_call_again(number, to, errno) => {
                self.service()?;
                if let Some(id) = self.ids.get_mut(&number) {
                    id.state = State::Calling;
                }
                self.set_deadline(Token::Id(number), Some(AGAIN));
            }
            Err(libc::EAGAIN) => self.unreachable(number, -libc::ETIMEDOUT),
            Err(libc::ECONNREFUSED) => self.refused(number, None),
            Err(errno) => self.unreachable(number, -errno),
        }
        Ok(())
    }

    /// Whether a call in vain is no refusal yet. Who has a listener elsewhere is often called a second time while it is about
    /// to listen again, as perftest is; on a network that takes longer than here.
    fn may_call_again(&mut self, number: u32, to: SocketAddr, errno: Errno) -> bool {
        let patience = match errno {
            libc::EAGAIN => ANSWER,
            libc::ECONNREFUSED if self.reached.lately(to) => LISTENS_AGAIN,
            _ => return false,
        };
        let now = Instant::now();
        let until = |id: &mut Id| *id.call_until.get_or_insert(now + patience);
        self.ids.get_mut(&number).is_some_and(|id| now < until(id))
    }

    fn watch(&mut self, number: u32) -> Result<(), Errno> {
        self.service()?;
        let socket = self.ids.get(&number).and_then(|id| id.socket.as_ref());
        let socket = socket.ok_or(libc::EINVAL)?.as_fd();
        self.started()?.watch(socket, Token::Id(number))
    }

    /// Hears what has come on a socket.
    ///
    /// # Errors
    /// A lack of descriptors, which passes.
    pub(super) fn hear(&mut self, token: Token) -> Result<(), Errno> {
        match token {
            // Only times are of these.
            Token::Wake | Token::Late(_) => Ok(()),
            Token::Caller(number) => {
                self.hear_caller(number);
                Ok(())
            }
            Token::Id(number) => match self.ids.get(&number).map(|id| id.state) {
                Some(State::Listening) => self.accept(number),
                Some(_) => {
                    self.hear_peer(number);
                    Ok(())
                }
                None => Ok(()),
            },
        }
    }

    fn accept(&mut self, listener: u32) -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let bound = self.ids.get(&listener).map_or(0, |id| id.bound.len());
        for at in 0..bound {
            loop {
                let Some(id) = self.ids.get(&listener) else {
                    return Ok(());
                };
                match rustix::net::accept_with(&id.bound[at], flags) {
                    Ok(socket) => {
                        interpose::is_new(socket.as_raw_fd());
                        self.answer(listener, socket)?;
                    }
                    Err(Os::AGAIN) => break,
                    Err(Os::INTR | Os::CONNABORTED) => {}
                    Err(error) => return Err(error.raw_os_error()),
                }
            }
        }
        Ok(())
    }

    fn answer(&mut self, listener: u32, socket: OwnedFd) -> Result<(), Errno> {
        if !is_this_users(&socket) || self.callers.len() >= CALLERS_MAX {
            return Ok(());
        }
        let number = free_number(&self.callers);
        let token = Token::Caller(number);
        self.started()?.watch(socket.as_fd(), token)?;
        let caller = Caller {
            socket,
            listener,
            deadline: None,
        };
        self.callers.insert(number, caller);
        self.set_deadline(token, Some(REQUEST));
        Ok(())
    }

    pub(super) fn hang_up(&mut self, caller: u32) {
        self.set_deadline(Token::Caller(caller), None);
        if let Some(caller) = self.callers.remove(&caller) {
            self.close(caller.socket);
        }
    }

    fn hear_caller(&mut self, number: u32) {
        let Some(caller) = self.callers.get(&number) else {
            return;
        };
        match receive(&caller.socket) {
            Ok(None) => {}
            Ok(Some(message @ Message::Request { .. })) => self.request(number, message),
            Ok(Some(_)) | Err(Ended) => self.hang_up(number),
        }
    }

    /// Makes an identifier of a caller, and tells the program.
    fn request(&mut self, caller: u32, message: Message) {
        let Message::Request {
            from,
            to,
            is_datagram,
            side,
        } = message
        else {
            return;
        };
        let listener = self.callers.get(&caller).map(|caller| caller.listener);
        let found = listener.and_then(|number| Some((number, self.ids.get_mut(&number)?)));
        let device = addresses::own_gid();
        let (Some((listener, id)), Ok(gid)) = (found, device) else {
            return self.hang_up(caller);
        };
        if id.is_datagram() != is_datagram || id.backlog == 0 {
            self.turn_away(caller, is_datagram);
            return self.hang_up(caller);
        }
        id.backlog -= 1;
        let (uid, channel) = (id.uid, id.channel);
        let mut new = Id::new(channel, id.port_space, id.qp_type);
        new.qkey = id.qkey;
        new.traffic_class = id.traffic_class;
        new.ack_timeout = id.ack_timeout;
        new.is_called = true;
        new.state = State::RequestReceived;
        (new.from, new.to) = (Some(to), Some(from));
        new.device = Some(gid);
        new.psn = random_psn();
        let said = if is_datagram {
            Said::Datagrams {
                private: side.param.private.padded(private_len::DATAGRAM_REQUEST),
                qp_num: 0,
                qkey: 0,
                to: None,
            }
        } else {
            connection(&side, private_len::REQUEST)
        };
        new.peer = Some(side);
        let number = free_number(&self.ids);
        self.set_deadline(Token::Caller(caller), None);
        if let Some(caller) = self.callers.remove(&caller) {
            if let Ok(service) = self.started() {
                service.hand_over(caller.socket.as_fd(), Token::Id(number));
            }
            new.socket = Some(caller.socket);
        }
        self.ids.insert(number, new);
        let event = Event {
            id: number,
            charged: listener,
            group: None,
            uid,
            event: event::CONNECT_REQUEST,
            status: 0,
            said,
        };
        self.deliver(channel, event);
    }

    fn turn_away(&self, caller: u32, is_datagram: bool) {
        let Some(caller) = self.callers.get(&caller) else {
            return;
        };
        let refusal = Message::Reject {
            reason: refusal(is_datagram),
            private: Private::new(&[]),
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // A caller that is gone needs no answer.
        let _ = rustix::net::send(&caller.socket, &refusal.emit(), flags);
    }

    fn hear_peer(&mut self, number: u32) {
        loop {
            let id = self.ids.get(&number);
            let Some(socket) = id.and_then(|id| id.socket.as_ref()) else {
                return;
            };
            match receive(socket) {
                Ok(None) => return,
                Ok(Some(message)) => self.heard(number, message),
                Err(Ended) => return self.end(number),
            }
        }
    }

    fn heard(&mut self, number: u32, message: Message) {
        let Some(id) = self.ids.get_mut(&number) else {
            return;
        };
        match (id.state, message) {
            (State::RequestSent, Message::Reply(side)) if id.is_datagram() => {
                let said = Said::Datagrams {
                    private: side.param.private.padded(private_len::DATAGRAM_REPLY),
                    qp_num: side.param.qp_num,
                    qkey: side.param.qkey,
                    to: Some(side.gid),
                };
                id.qkey = Some(side.param.qkey);
                id.peer = Some(side);
                self.over(number, State::Over);
                self.report(number, event::ESTABLISHED, 0, Some(said));
            }
            (State::RequestSent, Message::Reply(side)) => {
                let said = connection(&side, private_len::REPLY);
                id.peer = Some(side);
                id.state = State::ReplyReceived;
                self.set_deadline(Token::Id(number), None);
                self.report(number, event::CONNECT_RESPONSE, 0, Some(said));
            }
            (
                State::RequestSent | State::ReplySent | State::ReplyReceived,
                Message::Reject { reason, private },
            ) => self.refused(number, Some((reason, private))),
            (State::ReplySent, Message::Ready) if faults::strikes(Kind::LateEstablished) => {
                faults::postpone(id);
                self.set_deadline(Token::Id(number), Some(FIRST_MESSAGE));
            }
            (State::ReplySent, Message::Ready) => self.established(number),
            (
                State::ReplySent
                | State::ReplyReceived
                | State::Established
                | State::DisconnectSent,
                Message::Disconnect,
            ) => self.end(number),
            // A peer that says something else has lost its way.
            _ => self.end(number),
        }
    }

    pub(super) fn established(&mut self, number: u32) {
        if let Some(id) = self.ids.get_mut(&number) {
            faults::is_known(id);
            id.state = State::Established;
        }
        self.set_deadline(Token::Id(number), None);
        self.report(number, event::ESTABLISHED, 0, None);
    }

    /// The other side has gone, or disconnects.
    fn end(&mut self, number: u32) {
        if self.ids.get(&number).is_some_and(|id| id.is_late) {
            self.established(number);
        }
        match self.ids.get(&number).map(|id| id.state) {
            Some(State::Established | State::ReplyReceived | State::DisconnectSent) => {
                self.disconnected(number, 0);
            }
            Some(State::RequestSent | State::ReplySent) => {
                self.unreachable(number, -libc::ETIMEDOUT);
            }
            Some(_) => self.over(number, State::Over),
            None => {}
        }
    }

    fn disconnected(&mut self, number: u32, status: i32) {
        self.over(number, State::TimeWait);
        self.set_deadline(Token::Id(number), Some(TIME_WAIT));
        self.report(number, event::DISCONNECTED, status, None);
    }

    pub(super) fn unreachable(&mut self, number: u32, status: i32) {
        self.over(number, State::Over);
        self.report(number, event::UNREACHABLE, status, None);
    }

    /// With what the listener says, if there is one.
    pub(super) fn refused(&mut self, number: u32, why: Option<(u32, Private)>) {
        let Some(id) = self.ids.get(&number) else {
            return;
        };
        let is_datagram = id.is_datagram();
        let (reason, private) = why.unwrap_or_else(|| {
            let nobody = match is_datagram {
                true => DatagramReason::NobodyListens as u32,
                false => Reason::NobodyListens as u32,
            };
            (nobody, Private::new(&[]))
        });
        self.over(number, State::Over);
        if is_datagram {
            self.report(number, event::UNREACHABLE, reason as i32, None);
            return;
        }
        let said = Said::Connection(ConnParam {
            private: private.padded(private_len::REJECT),
            ..ConnParam::default()
        });
        self.report(number, event::REJECTED, reason as i32, Some(said));
    }

    /// Nothing more is said on an identifier's connection.
    pub(super) fn over(&mut self, number: u32, state: State) {
        self.set_deadline(Token::Id(number), None);
        let Some(id) = self.ids.get_mut(&number) else {
            return;
        };
        id.state = state;
        if let Some(socket) = id.socket.take() {
            self.close(socket);
        }
    }

    /// Starts the end of a connection.
    pub(super) fn disconnect(&mut self, number: u32) {
        if let Some(id) = self
            .ids
            .get_mut(&number)
            .filter(|id| id.state == State::Established)
        {
            let is_lost = faults::strikes(Kind::LostDreq);
            if !is_lost {
                id.tell(&Message::Disconnect);
            }
            id.state = State::DisconnectSent;
            if is_lost {
                self.fall_silent(number);
            }
            self.set_deadline(Token::Id(number), Some(GOODBYE));
        }
    }

    /// Goes on, or gives up, where a time is out.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(token) = self.take_due(now) {
            match token {
                Token::Id(number) => self.id_due(number),
                Token::Caller(number) => self.hang_up(number),
                Token::Late(number) => self.late_due(number),
                Token::Wake => {}
            }
        }
    }

    fn id_due(&mut self, number: u32) {
        match self.ids.get(&number).map(|id| id.state) {
            Some(State::Calling) => {
                if let Err(errno) = self.call(number) {
                    self.unreachable(number, -errno);
                }
            }
            Some(State::ReplySent) if self.ids.get(&number).is_some_and(|id| id.is_late) => {
                self.established(number);
            }
            Some(State::RequestSent | State::ReplySent) => {
                self.unreachable(number, -libc::ETIMEDOUT);
            }
            Some(State::DisconnectSent) => self.disconnected(number, -libc::ETIMEDOUT),
            Some(State::TimeWait) => {
                self.over(number, State::Over);
                self.report(number, event::TIMEWAIT_EXIT, 0, None);
            }
            _ => {}
        }
    }
}

pub(super) fn refusal(is_datagram: bool) -> u32 {
    match is_datagram {
        true => DatagramReason::Rejected as u32,
        false => Reason::Consumer as u32,
    }
}

/// Where packets begin to be counted, so that those of an older connection are not taken for this one's.
pub(super) fn random_psn() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish() as u32
        & 0xff_ffff
}

/// What a program that accepts says, sent to the caller.
pub(super) fn reply(id: &mut Id, mut param: ConnParam, gid: verbs::Gid) -> Result<(), Errno> {
    let max = match id.is_datagram() {
        true => private_len::DATAGRAM_REPLY,
        false => private_len::REPLY,
    };
    if param.private.bytes().len() > max {
        return Err(libc::EINVAL);
    }
    if id.is_datagram() {
        if param.qkey == 0 {
            param.qkey = id.qkey.unwrap_or(UDP_QKEY);
        }
        id.qkey = Some(param.qkey);
    }
    id.ours = param;
    let psn = id.psn;
    id.tell(&Message::Reply(Side { gid, psn, param }));
    Ok(())
}
