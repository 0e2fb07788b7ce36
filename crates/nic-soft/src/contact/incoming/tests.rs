//! What peers may do to those who serve them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tempfile::TempDir;

use super::*;
use crate::contact::atomic::{AtomicRequest, Change};
use crate::contact::copy::{CopyRequest, Way};
use crate::contact::membership::Membership;
use crate::contact::over::Over;
use crate::contact::peer::Peer;
use crate::shared::cause::Cause;
use crate::shared::layout::QP_INDEX_BITS;
use crate::shared::route::Route;
use crate::testing::adapter_without_agent;

/// Names of nobody's.
const ROUTE: Route = Route {
    from: Gid([1; 16]),
    to: Gid([2; 16]),
};

/// An adapter's objects when it has none.
struct Nothing;

impl Objects for Nothing {
    fn region_file(&self, _key: u32, _peer: Peerage) -> Option<Arc<OwnedFd>> {
        None
    }
    fn carry_out(&self, _request: &Delegated, _inbox: &PeerInbox) -> Result<u64, Cause> {
        Err(Cause::RemoteKey)
    }
    fn lane_opened(&self, _lane: NewLane) {}
    fn peer_gone(&self, _peer: &Peer) {}
    fn senders_gone(&self) {}
}

fn connections(run_dir: &TempDir) -> Connections {
    let adapter = Arc::new(adapter_without_agent(run_dir.path()));
    Connections::new(&adapter, &Arc::default())
}

fn sockets() -> (PeerSocket, PeerSocket) {
    let flags = SocketFlags::NONBLOCK;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (one, other) = pair.expect("sockets");
    let of_us = |socket| PeerSocket::new(socket).expect("of this user");
    (of_us(one), of_us(other))
}

/// A connection of a peer that has said who it is, and the peer's end of it.
fn connect(incoming: &mut Connections, token: u64) -> PeerSocket {
    let (socket, theirs) = sockets();
    let peer = Peerage {
        gid: incoming.adapter.gid,
        instance: 9,
        incarnation: 9,
    };
    let pid = rustix::process::getpid();
    let inbox = incoming.inboxes.add(&incoming.adapter, peer, pid, 9);
    let (_, inbox) = inbox.expect("made").expect("its first");
    let mut connection = Connection::new(socket);
    connection.inbox = Some(inbox);
    incoming.connections.insert(token, connection);
    theirs
}

/// What the agent does, without its lock.
fn answer_all(incoming: &mut Connections) {
    for _ in 0..incoming.asking.len() {
        if let Some(mut turn) = incoming.answer_first(&Nothing) {
            turn.carry_out(&Nothing);
            incoming.end_turn(&Nothing, turn);
        }
    }
}

#[test]
fn whoever_arms_or_polls_clears_no_lanes_however_many_are_announced() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut incoming = connections(&run_dir);
    let theirs = connect(&mut incoming, 7);
    let inbox = incoming.connections[&7].inbox.clone().expect("an inbox");
    let say = |message| protocol::send(theirs.as_fd(), &message, &[]).expect("sent");
    let lane = |number: u32| Message::lane(number, 9 << QP_INDEX_BITS, 77, 1, ROUTE);
    // Closed before they are announced, which leads nowhere, with a request to look behind each.
    for number in 0..40 {
        inbox.close_as_sender(number, 1);
        say(lane(number as u32));
        say(Message::sweep());
        incoming.serve_all_known(&Nothing);
        assert_eq!(inbox.lanes_used(), number + 1, "nobody has looked");
    }
    assert_eq!(incoming.asking.len(), 1, "the agent looks once for all");
    answer_all(&mut incoming);
    assert_eq!((inbox.lanes_used(), incoming.connections.len()), (0, 1));
    // Each can be announced again; not twice before the agent has looked.
    say(lane(3));
    say(lane(3));
    incoming.serve_all_known(&Nothing);
    assert_eq!(incoming.connections.len(), 0);
}

#[test]
fn a_peer_that_asks_while_the_agent_is_busy_for_it_is_answered_again() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut incoming = connections(&run_dir);
    let theirs = connect(&mut incoming, 7);
    let (region, sweep) = (Message::region(1 << 16 | 1), Message::sweep());
    let say = |incoming: &mut Connections, message| {
        protocol::send(theirs.as_fd(), message, &[]).expect("sent");
        incoming.serve_all_known(&Nothing);
        incoming.asking.len()
    };
    for first in [&region, &sweep] {
        for meanwhile in [&region, &sweep] {
            assert_eq!(say(&mut incoming, first), 1);
            let sweeps = incoming.answer_first(&Nothing);
            assert_eq!(sweeps.is_some(), first == &sweep);
            // The agent clears lanes now, without the lock.
            assert_eq!(say(&mut incoming, meanwhile), 1);
            answer_all(&mut incoming);
            assert_eq!(incoming.asking.len(), 0);
        }
    }
    let answers = std::iter::from_fn(|| theirs.receive().ok()?).count();
    assert_eq!(answers, 4, "one each time that a region was asked for");
}

#[test]
fn a_peer_that_takes_no_more_calls_is_not_taken_for_an_impostor() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut incoming = connections(&run_dir);
    let gid = incoming.adapter.gid;
    let membership = Membership::join(run_dir.path(), gid).expect("a number");
    let listens = membership.listen().expect("listens");
    // Somebody calls it again and again, and it does not come to take the calls.
    let call = || incoming.adapter.membership.dial(gid, membership.number());
    while call().is_ok() {}
    assert_eq!(call().err(), Some(Errno::AGAIN));
    let (socket, theirs) = sockets();
    incoming.connections.insert(7, Connection::new(socket));
    let mut answer = || {
        let hello = Message::hello(gid, membership.number(), 9);
        protocol::send(theirs.as_fd(), &hello, &[]).expect("sent");
        incoming.serve(&Nothing, 7);
        assert_eq!((incoming.connections.len(), incoming.refused), (1, 0));
        let answer = theirs.receive().expect("an answer");
        answer.expect("no end").0.code
    };
    assert_eq!(answer(), STATUS_LATER);
    while rustix::net::accept(&listens).is_ok() {}
    assert_eq!(answer(), STATUS_OK);
}

#[test]
fn whoever_arms_or_polls_does_not_answer_a_flood_of_questions() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut incoming = connections(&run_dir);
    let theirs = connect(&mut incoming, 7);
    let ask = |message| protocol::send(theirs.as_fd(), &message, &[]).expect("sent");
    let answers = || std::iter::from_fn(|| theirs.receive().ok()?).count();
    for round in 0..100 {
        (0..QUESTIONS_MAX as u32).for_each(|key| ask(Message::region(key << 16 | 1)));
        incoming.serve_all_known(&Nothing);
        assert_eq!(
            (incoming.connections.len(), answers()),
            (1, 0),
            "round {round}"
        );
        answer_all(&mut incoming);
        if incoming.connections.is_empty() {
            // It asked for too much of what is not there.
            assert!(round as usize * QUESTIONS_MAX >= REFUSALS_MAX as usize - QUESTIONS_MAX);
            break;
        }
        assert_eq!(answers(), QUESTIONS_MAX);
    }
    let theirs = connect(&mut incoming, 8);
    let refused = incoming.refused;
    for key in 0..=QUESTIONS_MAX as u32 {
        let asked = Message::region(key << 16 | 1);
        protocol::send(theirs.as_fd(), &asked, &[]).expect("sent");
    }
    incoming.serve_all_known(&Nothing);
    assert_eq!(
        (incoming.connections.len(), incoming.refused),
        (0, refused + 1)
    );
    let theirs = connect(&mut incoming, 9);
    for _ in 0..=SWEEPS_MAX {
        assert_eq!(incoming.connections.len(), 1);
        protocol::send(theirs.as_fd(), &Message::sweep(), &[]).expect("sent");
        incoming.serve_all_known(&Nothing);
    }
    assert_eq!(
        (incoming.connections.len(), incoming.refused),
        (0, refused + 2)
    );
}

#[test]
fn lanes_that_were_closed_do_not_count_when_another_one_is_announced() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut incoming = connections(&run_dir);
    let announce = |incoming: &mut Connections, theirs: &PeerSocket, lane: usize| {
        let announcement = Message::lane(lane as u32, 9 << QP_INDEX_BITS, 77, 1, ROUTE);
        protocol::send(theirs.as_fd(), &announcement, &[]).expect("sent");
        incoming.serve_all_known(&Nothing);
    };
    let full = [7, 8].map(|token| {
        let theirs = connect(&mut incoming, token);
        (0..LANES).for_each(|lane| announce(&mut incoming, &theirs, lane));
        (
            incoming.connections[&token]
                .inbox
                .clone()
                .expect("an inbox"),
            theirs,
        )
    });
    let third = connect(&mut incoming, 9);
    announce(&mut incoming, &third, 0);
    // Whoever arms goes on without it, and reads nothing behind it.
    announce(&mut incoming, &third, 1);
    let inbox = incoming.connections[&9].inbox.clone().expect("an inbox");
    assert_eq!((inbox.lanes_used(), incoming.asking.len()), (0, 1));
    for lane in 0..LANES {
        full[0].0.close_as_sender(lane, 1);
    }
    answer_all(&mut incoming);
    assert_eq!((inbox.lanes_used(), full[0].0.lanes_used()), (1, 0));
    incoming.serve_all_known(&Nothing);
    assert_eq!((inbox.lanes_used(), incoming.refused), (2, 0));
    // Those that are left open do count.
    for lane in 2..LANES {
        announce(&mut incoming, &third, lane);
    }
    let last = connect(&mut incoming, 10);
    announce(&mut incoming, &last, 0);
    answer_all(&mut incoming);
    assert_eq!((incoming.connections.len(), incoming.refused), (3, 1));
    assert!(!incoming.connections.contains_key(&10));
}

#[test]
fn a_peer_that_cannot_be_answered_just_now_is_answered_later() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut incoming = connections(&run_dir);
    let theirs = connect(&mut incoming, 7);
    let ask = |key: u32| {
        protocol::send(theirs.as_fd(), &Message::region(key << 16 | 1), &[]).expect("sent");
    };
    let answers = || std::iter::from_fn(|| theirs.receive().ok()?).map(|(answer, _)| answer.a);
    (0..3).for_each(ask);
    incoming.serve_all_known(&Nothing);
    for error in [Errno::TOOMANYREFS, Errno::NOBUFS, Errno::NOMEM] {
        incoming.send = match error {
            Errno::TOOMANYREFS => |_, _, _| Err(Errno::TOOMANYREFS),
            Errno::NOBUFS => |_, _, _| Err(Errno::NOBUFS),
            _ => |_, _, _| Err(Errno::NOMEM),
        };
        answer_all(&mut incoming);
        assert_eq!((incoming.asking.len(), incoming.refused), (1, 0), "{error}");
    }
    incoming.send = protocol::send;
    ask(3);
    incoming.serve_all_known(&Nothing);
    answer_all(&mut incoming);
    let keys: Vec<u32> = answers().map(|key| key >> 16).collect();
    assert_eq!(keys, [0, 1, 2, 3]);
    // One that does not take its answers has had its chance.
    incoming.send = |_, _, _| Err(Errno::AGAIN);
    ask(4);
    incoming.serve_all_known(&Nothing);
    answer_all(&mut incoming);
    assert_eq!((incoming.connections.len(), incoming.refused), (0, 1));
}

/// The connection over which everything is asked for.
const OVER: Over = Over {
    qpn: 2,
    epoch: 0,
    from_epoch: 0,
};

/// An adapter's objects when it has one word.
struct Word(AtomicU64);

impl Objects for Word {
    fn region_file(&self, _key: u32, _peer: Peerage) -> Option<Arc<OwnedFd>> {
        None
    }
    fn carry_out(&self, request: &Delegated, _inbox: &PeerInbox) -> Result<u64, Cause> {
        match request {
            Delegated::Atomic(request) => Ok(request.change.make(&self.0)),
            Delegated::Copy(_) => Ok(0),
        }
    }
    fn lane_opened(&self, _lane: NewLane) {}
    fn peer_gone(&self, _peer: &Peer) {}
    fn senders_gone(&self) {}
}

#[test]
fn an_atomic_is_carried_out_once_however_often_its_answer_is_sent() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut incoming = connections(&run_dir);
    let theirs = connect(&mut incoming, 7);
    let word = Word(AtomicU64::new(40));
    let add = AtomicRequest {
        over: OVER,
        key: 1 << 16 | 1,
        addr: 8,
        change: Change::FetchAdd { add: 1 },
    };
    for _ in 0..3 {
        protocol::send(theirs.as_fd(), &add.message(), &[]).expect("sent");
    }
    incoming.serve_all_known(&word);
    assert_eq!(word.0.load(Ordering::Relaxed), 40, "that is for the agent");
    incoming.send = |_, _, _| Err(Errno::NOBUFS);
    for _ in 0..5 {
        assert!(incoming.answer_first(&word).is_none());
        assert_eq!(incoming.asking.len(), 1);
    }
    incoming.send = protocol::send;
    assert!(incoming.answer_first(&word).is_none());
    let answers = std::iter::from_fn(|| theirs.receive().ok()?);
    let answers: Vec<_> = answers.map(|(answer, _)| (answer.code, answer.c)).collect();
    assert_eq!(answers, [40, 41, 42].map(|before| (STATUS_OK, before)));
    assert_eq!(word.0.load(Ordering::Relaxed), 43);
    // What asks for no atomic breaks the rules.
    let none = Message::operands(OP_ATOMIC, 1 << 16 | 1, 2, 8, Gid::default());
    protocol::send(theirs.as_fd(), &none, &[]).expect("sent");
    incoming.serve_all_known(&word);
    assert_eq!((incoming.connections.len(), incoming.refused), (0, 1));
}

#[test]
fn what_is_asked_while_the_agent_copies_is_answered_behind_the_copy() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut incoming = connections(&run_dir);
    let theirs = connect(&mut incoming, 7);
    let word = Word(AtomicU64::new(40));
    let copy = CopyRequest {
        over: OVER,
        key: 1 << 16 | 1,
        addr: 8,
        len: 100,
        stage: 3,
        way: Way::Read,
    };
    let add = AtomicRequest {
        over: OVER,
        key: 1 << 16 | 1,
        addr: 8,
        change: Change::FetchAdd { add: 1 },
    };
    let say = |incoming: &mut Connections, message: Message| {
        protocol::send(theirs.as_fd(), &message, &[]).expect("sent");
        incoming.serve_all_known(&word);
    };
    let heard = || -> Vec<u64> {
        let answers = std::iter::from_fn(|| theirs.receive().ok()?);
        answers.map(|(answer, _)| answer.c).collect()
    };
    say(&mut incoming, copy.message());
    let mut turn = incoming.answer_first(&word).expect("it takes long");
    // The agent copies now, without the lock.
    say(&mut incoming, add.message());
    assert_eq!(incoming.asking.len(), 0, "that waits for the copy");
    assert!(heard().is_empty());
    turn.carry_out(&word);
    // Neither can be told just now; what was asked since is still behind it.
    incoming.send = |_, _, _| Err(Errno::NOBUFS);
    incoming.end_turn(&word, turn);
    assert_eq!(incoming.asking.len(), 1);
    incoming.send = protocol::send;
    assert!(incoming.answer_first(&word).is_none());
    assert_eq!(heard(), [0, 40]);
    // Without a hindrance the same.
    say(&mut incoming, copy.message());
    let mut turn = incoming.answer_first(&word).expect("it takes long");
    say(&mut incoming, add.message());
    turn.carry_out(&word);
    incoming.end_turn(&word, turn);
    assert_eq!((heard(), incoming.asking.len()), (vec![0], 1));
    assert!(incoming.answer_first(&word).is_none());
    assert_eq!(heard(), [41]);
    // A process that goes meanwhile is answered nothing.
    say(&mut incoming, copy.message());
    let mut turn = incoming.answer_first(&word).expect("it takes long");
    incoming.end(&word, 7);
    turn.carry_out(&word);
    incoming.end_turn(&word, turn);
    assert_eq!((incoming.connections.len(), incoming.asking.len()), (0, 0));
}

#[test]
fn a_peer_whose_introduction_cannot_be_answered_just_now_calls_again() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut incoming = connections(&run_dir);
    let gid = incoming.adapter.gid;
    let membership = Membership::join(run_dir.path(), gid).expect("a number");
    let _listens = membership.listen().expect("listens");
    let (socket, theirs) = sockets();
    incoming.connections.insert(7, Connection::new(socket));
    incoming.send = |socket, message, fds| match fds {
        [] => protocol::send(socket, message, fds),
        _ => Err(Errno::TOOMANYREFS),
    };
    let hello = Message::hello(gid, membership.number(), 9);
    protocol::send(theirs.as_fd(), &hello, &[]).expect("sent");
    incoming.serve(&Nothing, 7);
    let answer = theirs.receive().expect("an answer").expect("no end");
    assert_eq!((answer.0.code, incoming.refused), (STATUS_LATER, 0));
    assert!(incoming.connections[&7].inbox.is_none());
}
