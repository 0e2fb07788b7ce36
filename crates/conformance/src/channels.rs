//! Completion channels: events of armed queues.
//!
//! The channel is node A's, and node B sends, so that node B may be behind a proxy.

use std::time::{Duration, Instant};

use super::delivery::Shared;
use super::rig::{End, Node, Options, Pair, Queue, SEND, connect, until};
use super::{Fixture, Outcome, WaitReadable};
use verbs::attr::{CqInit, LentRecvs, QpAttr, QpState, Transport};
use verbs::error::VerbsError;
use verbs::names::CqNum;
use verbs::nic::NicChannel;
use verbs::polled::Polled;
use verbs::wc::WcStatus;
use verbs::wr::{GRH_LEN, Payload, SendFlags};

/// A pair whose A receives into a queue with a channel.
struct Rung {
    pair: Pair,
    /// Another one, on the same channel, whose A is armed.
    marker: Pair,
    channel: Box<dyn NicChannel>,
    wait: WaitReadable,
    patience: Duration,
}

impl Rung {
    fn new(fixture: &Fixture) -> Result<Rung, Outcome> {
        let Some(wait) = fixture.wait_readable else {
            let why = "the fixture cannot wait on a descriptor";
            return Err(Outcome::NotApplicable(why));
        };
        let channel = match fixture.a.create_channel() {
            Err(VerbsError::Unsupported { .. }) => {
                let why = "node A has no completion channels";
                return Err(Outcome::NotApplicable(why));
            }
            made => made.expect("a completion channel"),
        };
        let pair = || {
            let options = Options::default();
            let mut pair = Pair::unconnected(fixture, Transport::Rc, &options);
            let node = pair.a.node.clone();
            let init = CqInit::new(64).on(channel.num());
            let recv = Queue::new(node.nic.create_cq(&init).expect("a queue with a channel"));
            let send = node.queue(64);
            pair.a = End {
                qp: node.qp(&node.init(Transport::Rc, send.num(), recv.num())),
                send,
                recv,
                ..pair.a
            };
            pair.connect(&options);
            for id in 0..32 {
                pair.a.post_recv(id, 0, 64);
            }
            pair
        };
        let mut rung = Rung {
            pair: pair(),
            marker: pair(),
            channel,
            wait,
            patience: fixture.patience,
        };
        rung.arm_marker();
        Ok(rung)
    }

    /// B sends one message; it has been received when this returns, without A's queue polled.
    fn message(&mut self, flags: SendFlags) {
        let mut wr = self.pair.b.wr(1, SEND, Payload::Inline(b"ring"));
        wr.flags |= flags;
        self.pair.b.post_all(&[wr]);
        let b = &mut self.pair.b;
        let wc = super::rig::until(self.patience, "B's message", || b.send.take());
        assert!(wc.is_ok(), "{wc:?}");
    }

    /// Waits for an event as a sleeper does, on the descriptor, while B's side goes on.
    fn event(&mut self) -> CqNum {
        let deadline = Instant::now() + self.patience;
        loop {
            // Nothing is asked before: an event that leaves the descriptor as it is would never be
            // found.
            let readable = (self.wait)(self.channel.fd(), Duration::from_millis(20));
            if readable && let Some(num) = self.channel.event().expect("a channel without failures")
            {
                return num;
            }
            self.pair.b.poll();
            let waited = self.patience;
            assert!(Instant::now() < deadline, "waited {waited:?} for an event");
        }
    }

    fn arm_marker(&mut self) {
        let armed = self.marker.a.recv.cq.arm(false);
        armed.expect("a queue with a channel can be armed");
    }

    /// There is no event, and the descriptor comes to rest. What came before has raised its event when
    /// a message that is sent to another queue now has. That queue was armed before: arming may take
    /// wake-ups away.
    fn no_event(&mut self, why: &str) {
        let (marker, patience) = (&mut self.marker, self.patience);
        marker.b.post(0, SEND, Payload::Inline(b"mark"));
        let sent = super::rig::until(patience, "the mark", || marker.b.send.take());
        assert!(sent.is_ok(), "{sent:?}");
        let num = marker.a.recv.num();
        assert_eq!(self.event(), num, "{why}");
        let marker = &mut self.marker.a;
        super::rig::until(patience, "the mark", || marker.recv.take());
        marker.post_recv(0, 0, 64);
        let (channel, wait) = (&mut self.channel, self.wait);
        until(self.patience, "a descriptor that is not readable", || {
            // A wake-up that comes late, or twice, may make it readable for no event.
            let readable = wait(channel.fd(), Duration::ZERO);
            let event = channel.event().expect("a channel without failures");
            assert!(event.is_none(), "{why}, but got {event:?}");
            (!readable).then_some(())
        });
        self.arm_marker();
    }

    fn arm(&mut self, solicited_only: bool) {
        let armed = self.pair.a.recv.cq.arm(solicited_only);
        armed.expect("a queue with a channel can be armed");
    }
}

/// A queue of node A with a channel, and how to wait on that.
struct Sleeper {
    queue: Queue,
    channel: Box<dyn NicChannel>,
    wait: WaitReadable,
    patience: Duration,
}

impl Sleeper {
    fn new(fixture: &Fixture, node: &Node) -> Result<Sleeper, Outcome> {
        let Some(wait) = fixture.wait_readable else {
            let why = "the fixture cannot wait on a descriptor";
            return Err(Outcome::NotApplicable(why));
        };
        let channel = match node.nic.create_channel() {
            Err(VerbsError::Unsupported { .. }) => {
                return Err(Outcome::NotApplicable("node A has no completion channels"));
            }
            made => made.expect("a completion channel"),
        };
        let init = CqInit::new(64).on(channel.num());
        Ok(Sleeper {
            queue: Queue::new(node.nic.create_cq(&init).expect("a queue with a channel")),
            channel,
            wait,
            patience: fixture.patience,
        })
    }

    fn arm(&mut self, solicited_only: bool) {
        let armed = self.queue.cq.arm(solicited_only);
        armed.expect("a queue with a channel can be armed");
    }

    /// Sleeps until there is an event, and takes it. The peer's side goes on meanwhile.
    fn sleep(&mut self, mut meanwhile: impl FnMut()) {
        let (channel, wait) = (&mut self.channel, self.wait);
        until(self.patience, "an event", || {
            meanwhile();
            wait(channel.fd(), Duration::from_millis(20)).then_some(())
        });
        self.take_events();
    }

    fn take_events(&mut self) {
        let mut event = || self.channel.event().expect("a channel without failures");
        while event().is_some() {}
    }
}

/// Makes a case that stops where it does not apply.
macro_rules! rung {
    ($fixture:expr) => {
        match Rung::new($fixture) {
            Ok(rung) => rung,
            Err(outcome) => return outcome,
        }
    };
}

/// An armed queue raises one event at the next completion, and none until it is armed again; the
/// descriptor is readable while the event waits, and once there is none it stays so no longer than
/// looking for one takes.
pub fn arming_asks_for_one_event(fixture: &Fixture) -> Outcome {
    let mut rung = rung!(fixture);
    let num = rung.pair.a.recv.num();
    for round in 0..3 {
        rung.message(SendFlags::empty());
        rung.no_event("the queue is not armed");
        rung.arm(false);
        rung.no_event("what came before arming raises no event");
        rung.message(SendFlags::empty());
        rung.message(SendFlags::empty());
        assert_eq!(rung.event(), num, "round {round}");
        rung.no_event("one arming, one event");
        for _ in 0..3 {
            let recv = &mut rung.pair.a.recv;
            super::rig::until(fixture.patience, "a message", || recv.take());
        }
    }
    Outcome::Holds
}

/// A queue armed for solicited completions raises an event for a solicited message or a failure
/// only.
pub fn arming_for_solicited_passes_over_others(fixture: &Fixture) -> Outcome {
    let mut rung = rung!(fixture);
    let num = rung.pair.a.recv.num();
    rung.arm(true);
    rung.message(SendFlags::empty());
    rung.no_event("the message is not solicited");
    rung.message(SendFlags::SOLICITED);
    assert_eq!(rung.event(), num);
    rung.arm(true);
    rung.message(SendFlags::empty());
    rung.no_event("the message is not solicited");
    let failed = rung.pair.a.qp.modify(&QpAttr::to(QpState::Err));
    failed.expect("any state leads to ERR");
    assert_eq!(rung.event(), num);
    Outcome::Holds
}

/// Whoever arms, polls once more and then sleeps until the event misses no message, whenever it
/// comes.
pub fn no_message_is_missed_between_polling_and_arming(fixture: &Fixture) -> Outcome {
    const MESSAGES: u64 = 300;
    let Rung {
        pair,
        mut channel,
        wait,
        patience,
        ..
    } = rung!(fixture);
    let Pair { mut a, mut b, .. } = pair;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for id in 0..MESSAGES {
                b.post(id, SEND, Payload::Inline(b"now"));
                super::rig::until(patience, "B's message to be taken", || b.send.take());
                for _ in 0..id % 7 {
                    std::thread::yield_now();
                }
            }
        });
        let mut received = 0;
        while received < MESSAGES {
            a.recv
                .cq
                .arm(false)
                .expect("a queue with a channel can be armed");
            let mut taken = 0;
            while let Some(wc) = a.recv.take() {
                assert_eq!(wc.status, WcStatus::Success);
                a.post_recv(0, 0, 64);
                taken += 1;
            }
            received += taken;
            if taken == 0 && received < MESSAGES {
                let rung = wait(channel.fd(), patience);
                assert!(rung, "slept through message {received}");
            }
            while channel
                .event()
                .expect("a channel without failures")
                .is_some()
            {}
        }
    });
    Outcome::Holds
}

/// Several queues share a channel, and the event says which one it is of.
pub fn an_event_names_its_queue(fixture: &Fixture) -> Outcome {
    let mut rung = rung!(fixture);
    let num = rung.channel.num();
    let init = CqInit::new(16).on(num);
    let mut other = rung
        .pair
        .a
        .node
        .nic
        .create_cq(&init)
        .expect("a second queue");
    other.arm(false).expect("it has a channel");
    rung.no_event("nothing has completed");
    rung.arm(false);
    rung.message(SendFlags::empty());
    assert_eq!(rung.event(), rung.pair.a.recv.num());
    rung.no_event("the other queue has no completion");
    Outcome::Holds
}

/// A queue without a channel cannot be armed.
pub fn a_queue_without_channel_cannot_be_armed(fixture: &Fixture) {
    for nic in [&fixture.a, &fixture.b] {
        let armed = super::rig::Node::new(nic).queue(4).cq.arm(false);
        assert!(
            matches!(armed, Err(VerbsError::Invalid { .. })),
            "{armed:?}"
        );
    }
}

/// Node B, which sends datagrams, and a receiver on node A that sleeps, whose RECVs its NIC owns.
fn sender_and_sleeper(fixture: &Fixture, lent: LentRecvs) -> Result<(Pair, Sleeper), Outcome> {
    let swapped = Fixture::new(fixture.b.clone(), fixture.a.clone());
    let mut pair = Pair::unconnected(&swapped, Transport::Ud, &Options::default());
    let node = pair.b.node.clone();
    let sleeper = Sleeper::new(fixture, &node)?;
    let mut init = node.init(Transport::Ud, pair.b.send.num(), sleeper.queue.num());
    init.lent_recvs = Some(lent);
    pair.b.qp = node.qp(&init);
    pair.connect(&Options::default());
    Ok((pair, sleeper))
}

/// A poll takes a bounded number of messages that complete nothing. Whoever arms, polls, finds nothing
/// and sleeps, is woken although all that comes was there before.
pub fn a_poll_that_stops_early_does_not_put_to_sleep(fixture: &Fixture) -> Outcome {
    const LOST: u64 = 700;
    let lent = LentRecvs { count: 16, len: 64 };
    let (mut pair, mut sleeper) = match sender_and_sleeper(fixture, lent) {
        Ok(ends) => ends,
        Err(outcome) => return outcome,
    };
    let long = [0; 100];
    pair.a.region.write(0, &long);
    for id in 0..LOST {
        let sges = [pair.a.sge(0, long.len())];
        pair.a.post(id, SEND, Payload::Gather(&sges));
        let a = &mut pair.a;
        until(fixture.patience, "a datagram sent", || a.send.take());
    }
    pair.a.post(LOST, SEND, Payload::Inline(b"the one"));
    let mut polled = Polled::with_bytes(4, 256);
    loop {
        sleeper.arm(false);
        let found = sleeper.queue.cq.poll(&mut polled).expect("no overrun");
        if found > 0 {
            break;
        }
        sleeper.sleep(|| pair.a.poll());
    }
    let lent = polled.iter().next().and_then(|(_, message)| message);
    assert_eq!(
        lent.map(|message| &message[GRH_LEN..]),
        Some(&b"the one"[..])
    );
    Outcome::Holds
}

/// Whoever arms and polls until a poll finds nothing has received whatever was there before, or is woken
/// for it: from however many senders, and however little of it fits a poll.
pub fn a_poll_without_room_does_not_put_to_sleep(fixture: &Fixture) -> Outcome {
    const SENDERS: usize = 66;
    let lent = LentRecvs {
        count: 2 * SENDERS as u32,
        len: 600,
    };
    let (mut pair, mut sleeper) = match sender_and_sleeper(fixture, lent) {
        Ok(ends) => ends,
        Err(outcome) => return outcome,
    };
    let own = &pair.a;
    let of_sender = own.node.init(Transport::Ud, own.send.num(), own.recv.num());
    let mut others: Vec<_> = (1..SENDERS).map(|_| own.node.qp(&of_sender)).collect();
    let peer = (pair.b.node.gid, pair.b.qp.num());
    for other in &others {
        connect(other, peer, &Options::default());
    }
    // Each poll has room for one message.
    let mut polled = Polled::with_bytes(16, 1000);
    let mut send = |senders: &[usize]| {
        for &sender in senders {
            let sges = [pair.a.sge(0, 600)];
            let mut swap = |a: &mut End| match sender {
                0 => {}
                _ => std::mem::swap(&mut a.qp, &mut others[sender - 1]),
            };
            swap(&mut pair.a);
            pair.a.post(0, SEND, Payload::Gather(&sges));
            swap(&mut pair.a);
            let a = &mut pair.a;
            until(fixture.patience, "a datagram sent", || a.send.take());
        }
        // Nothing wakes but what comes of this arming.
        sleeper.take_events();
        let mut received = 0;
        sleeper.arm(false);
        loop {
            let found = sleeper.queue.cq.poll(&mut polled).expect("no overrun");
            received += found;
            if received == senders.len() {
                return;
            }
            if found == 0 {
                sleeper.sleep(|| pair.a.poll());
                sleeper.arm(false);
            }
        }
    };
    for sender in 0..SENDERS {
        send(&[sender]);
    }
    for sender in 0..SENDERS {
        send(&[sender, (sender + 1) % SENDERS]);
    }
    Outcome::Holds
}

/// Polls and sleeps as long as a message waits for a RECV, then posts one while asleep.
fn wakes_for_a_late_recv(fixture: &Fixture, behind: Option<SendFlags>) -> Outcome {
    let node = Node::new(&fixture.a);
    let mut sleeper = match Sleeper::new(fixture, &node) {
        Ok(sleeper) => sleeper,
        Err(outcome) => return outcome,
    };
    let mut shared = Shared::new(fixture, &sleeper.queue);
    shared.post_recv(0);
    for pair in 0..2 {
        shared.send(pair, 0, SendFlags::empty());
    }
    if let Some(flags) = behind {
        shared.send(1, 1, flags);
    }
    let first = until(fixture.patience, "the first message", || {
        shared.sends.poll();
        sleeper.queue.take()
    });
    assert!(first.is_ok(), "{first:?}");
    // What has come for the senders by now is over, so that nothing but the RECVs wakes.
    shared.sent();
    let more = 1 + usize::from(behind.is_some());
    let mut received = 0;
    sleeper.arm(behind.is_some());
    while sleeper.queue.take().is_some() {
        received += 1;
    }
    assert_eq!(received, 0, "there is no RECV");
    for id in 0..more as u64 {
        shared.post_recv(1 + id);
    }
    while received < more {
        sleeper.sleep(|| shared.sends.poll());
        // An event may come for what is still on its way.
        sleeper.arm(false);
        while let Some(wc) = sleeper.queue.take() {
            assert!(wc.is_ok(), "{wc:?}");
            received += 1;
        }
    }
    Outcome::Holds
}

/// A message may have to wait for a RECV of a shared queue at the receiver, whose RECVs others have
/// taken. Its poller is woken when there is one.
pub fn a_late_shared_recv_wakes_its_sleeper(fixture: &Fixture) -> Outcome {
    wakes_for_a_late_recv(fixture, None)
}

/// The same for a poller that is armed for solicited completions: what is solicited may be behind the
/// message that waits.
pub fn a_late_shared_recv_wakes_for_what_is_solicited(fixture: &Fixture) -> Outcome {
    wakes_for_a_late_recv(fixture, Some(SendFlags::SOLICITED))
}

/// Such a RECV may be one that was taken for another queue pair's message, whose end does not come.
pub fn a_shared_recv_given_back_wakes_its_sleeper(fixture: &Fixture) -> Outcome {
    let node = Node::new(&fixture.a);
    let mut sleeper = match Sleeper::new(fixture, &node) {
        Ok(sleeper) => sleeper,
        Err(outcome) => return outcome,
    };
    let mut recvs = node.queue(64);
    let mut shared = Shared::on(fixture, [&recvs, &sleeper.queue]);
    shared.post_long_recv(1);
    shared.send_long();
    // It may see the same RECV.
    shared.send(1, 1, SendFlags::empty());
    // The first message takes the RECV, if the NIC takes it for what has come of it.
    let whole = recvs.take();
    for _ in 0..20 {
        shared.sends.poll();
    }
    sleeper.arm(false);
    let mut received = sleeper.queue.take();
    let (from, to) = &shared.pairs[0];
    from.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
    to.modify(&QpAttr::to(QpState::Reset)).expect("to RESET");
    if recvs.take().or(whole).is_some() {
        shared.post_long_recv(2);
    }
    while received.is_none() {
        sleeper.sleep(|| shared.sends.poll());
        sleeper.arm(false);
        received = sleeper.queue.take();
    }
    assert!(received.is_some_and(|wc| wc.is_ok()), "{received:?}");
    Outcome::Holds
}

/// Armed for solicited completions, whoever polls, finds nothing and sleeps is woken for a failure, and
/// finds it.
fn wakes_for_a_failure(
    sleeper: &mut Sleeper,
    mut send: impl FnMut(),
    mut meanwhile: impl FnMut(),
    status: WcStatus,
) {
    sleeper.take_events();
    sleeper.arm(true);
    assert_eq!(sleeper.queue.take(), None, "nothing was sent");
    sleeper.take_events();
    sleeper.arm(true);
    assert_eq!(sleeper.queue.take(), None, "nothing was sent");
    send();
    let failed = loop {
        sleeper.sleep(&mut meanwhile);
        // An event may come for what is still on its way.
        sleeper.arm(true);
        if let Some(wc) = sleeper.queue.take() {
            break wc;
        }
    };
    assert_eq!((failed.id, failed.status), (7, status), "{failed:?}");
}

/// A RECV that cannot be used fails with the datagram that it is for, and wakes whoever waits for failures,
/// though the datagram is not solicited.
pub fn a_datagrams_failed_recv_wakes_for_what_is_solicited(fixture: &Fixture) -> Outcome {
    let swapped = Fixture::new(fixture.b.clone(), fixture.a.clone());
    let options = Options::default();
    let mut pair = Pair::unconnected(&swapped, Transport::Ud, &options);
    let node = pair.b.node.clone();
    let mut sleeper = match Sleeper::new(fixture, &node) {
        Ok(sleeper) => sleeper,
        Err(outcome) => return outcome,
    };
    let init = node.init(Transport::Ud, pair.b.send.num(), sleeper.queue.num());
    pair.b.qp = node.qp(&init);
    pair.connect(&options);
    // First contact is made, and its sender knows the queue pair as it was.
    pair.b.post_recv(1, 0, 128);
    pair.a.post(1, SEND, Payload::Inline(b"the first"));
    let first = until(fixture.patience, "the first datagram", || {
        pair.a.poll();
        sleeper.queue.take()
    });
    assert!(first.is_ok(), "{first:?}");
    let mut sge = pair.b.sge(0, 128);
    sge.lkey.0 ^= 0x007f_ff00;
    pair.b.post_recv_of(7, &[sge]);
    let a = std::cell::RefCell::new(&mut pair.a);
    let send = || {
        a.borrow_mut()
            .post(2, SEND, Payload::Inline(b"not solicited"));
    };
    let status = WcStatus::LocProtErr;
    wakes_for_a_failure(&mut sleeper, send, || a.borrow_mut().poll(), status);
    Outcome::Holds
}

/// So does one of a shared queue that is too short for its message, though another one is not.
pub fn a_shared_recv_too_short_wakes_for_what_is_solicited(fixture: &Fixture) -> Outcome {
    let node = Node::new(&fixture.a);
    let mut sleeper = match Sleeper::new(fixture, &node) {
        Ok(sleeper) => sleeper,
        Err(outcome) => return outcome,
    };
    let mut shared = Shared::new(fixture, &sleeper.queue);
    shared.post_recv(7);
    shared.post_long_recv(8);
    let shared = std::cell::RefCell::new(shared);
    let send = || shared.borrow_mut().send_long();
    let meanwhile = || shared.borrow_mut().sends.poll();
    wakes_for_a_failure(&mut sleeper, send, meanwhile, WcStatus::LocLenErr);
    Outcome::Holds
}
