//! Lies, nonsense and floods in the handshake.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use nic_soft::SoftNic;
use rustix::io::Errno;
use verbs::Wc;
use verbs::typed::{ConnectOptions, Context, QpOptions, QueuePair, Rc, Wr};

use crate::layout::{LANE_LINES, LANES, VERSION};
use crate::speaker::{
    EXHAUSTED, HELLO, IDENTITY, LANE, MESSAGE_LEN, Message, Met, NO_SUCH, OK, OTHER_VERSION,
    REGION, SWEEP, Speaker, ask, descriptors, home, qpn, receive, send,
};
use crate::victim::{Datagrams, Honest, QKEY, until};

/// Whether the other side has ended a connection.
fn has_ended(socket: &std::os::fd::OwnedFd) -> bool {
    match receive(socket) {
        Ok((bytes, fds)) => bytes.is_empty() && fds.is_empty(),
        Err(Errno::CONNRESET) => true,
        Err(e) => panic!("neither an answer nor the end: {e}"),
    }
}

fn open() -> (tempfile::TempDir, std::sync::Arc<SoftNic>) {
    let run_dir = tempfile::tempdir().expect("a directory");
    let nic = crate::pair::open(run_dir.path());
    (run_dir, nic)
}

#[test]
fn nobody_passes_for_another_process() {
    let _alone = crate::victim::alone();
    let (run_dir, nic) = open();
    let honest = Honest::start(run_dir.path());
    let speaker = Speaker::new(run_dir.path(), 100);
    let elsewhere = verbs::Gid::from_ipv4(std::net::Ipv4Addr::new(10, 0, 0, 9));
    let lies = [
        Message {
            a: honest.instance(),
            ..speaker.hello()
        },
        Message {
            a: 77,
            ..speaker.hello()
        },
        Message {
            a: 1 << 10,
            ..speaker.hello()
        },
        Message {
            a: u32::MAX,
            ..speaker.hello()
        },
        Message {
            gid: elsewhere,
            ..speaker.hello()
        },
    ];
    for lie in lies {
        let socket = speaker.dial(0).expect("connected");
        let (answer, fds) = ask(&socket, &lie).expect("an answer");
        assert_eq!((answer.code, fds.len()), (IDENTITY, 0), "{lie:?}");
        assert!(has_ended(&socket), "{lie:?}");
    }
    assert_eq!(nic.counters().refused, lies.len() as u64);
    assert!(speaker.meet(0).is_ok(), "the truth is believed");
}

#[test]
fn nonsense_ends_the_connection_and_nothing_else() {
    let _alone = crate::victim::alone();
    let (run_dir, nic) = open();
    let speaker = Speaker::new(run_dir.path(), 100);
    let hello = speaker.hello();
    let file = crate::speaker::plain_file(0);
    let before = descriptors();
    let mut tried = 0;
    // Before the introduction.
    for len in (1..MESSAGE_LEN).chain([MESSAGE_LEN + 1, 100, 4096]) {
        let socket = speaker.dial(0).expect("connected");
        send(&socket, &vec![1; len], &[]).expect("sent");
        assert!(has_ended(&socket), "length {len}");
        tried += 1;
    }
    for code in [0, REGION, LANE, SWEEP, 5, u32::MAX] {
        let socket = speaker.dial(0).expect("connected");
        send(&socket, &Message { code, ..hello }.bytes(), &[]).expect("sent");
        assert!(has_ended(&socket), "operation {code}");
        tried += 1;
    }
    for version in [0, VERSION - 1, VERSION + 1, u32::MAX] {
        let socket = speaker.dial(0).expect("connected");
        let (answer, fds) = ask(&socket, &Message { version, ..hello }).expect("an answer");
        assert_eq!((answer.code, fds.len()), (OTHER_VERSION, 0));
        assert!(has_ended(&socket), "version {version}");
        tried += 1;
    }
    for count in [1, 2, 3, 60] {
        let socket = speaker.dial(0).expect("connected");
        match send(&socket, &hello.bytes(), &vec![file.as_fd(); count]) {
            // The kernel passes none on where it can be told so.
            Err(Errno::PERM) => {}
            sent => {
                sent.expect("sent");
                assert!(has_ended(&socket), "{count} descriptors");
            }
        }
        tried += 1;
    }
    // After it.
    for code in [0, HELLO, 5, u32::MAX] {
        let met = speaker.meet(0).map_err(|_| "refused").expect("met");
        send(&met.socket, &Message { code, ..hello }.bytes(), &[]).expect("sent");
        assert!(has_ended(&met.socket), "operation {code}");
        tried += 1;
    }
    let ud = Datagrams::new(&nic);
    let mine = qpn(100, 2);
    for (lane, from, what) in [
        (LANES as u32, mine, "a lane that is none"),
        (u32::MAX, mine, "a lane that is none"),
        (0, qpn(99, 2), "somebody else's queue pair"),
        (0, qpn(0, 2), "the receiver's own queue pair"),
        (0, mine | 1 << 24, "a number that is none"),
    ] {
        let met = speaker.meet(0).map_err(|_| "refused").expect("met");
        let announcement = Message::new(LANE, lane, from, ud.address());
        send(&met.socket, &announcement.bytes(), &[]).expect("sent");
        assert!(has_ended(&met.socket), "{what}");
        tried += 1;
    }
    let met = speaker.meet(0).map_err(|_| "refused").expect("met");
    let announcement = Message::new(LANE, 0, mine, ud.address()).bytes();
    for _ in 0..2 {
        send(&met.socket, &announcement, &[]).expect("sent");
    }
    assert!(has_ended(&met.socket), "a lane opened twice");
    tried += 1;
    drop(met);
    assert!(speaker.meet(0).is_ok(), "others are served");
    until("connections to end", || {
        (nic.usage().connections == 0).then_some(())
    });
    drop(ud);
    // Those that came along are closed by threads of their own.
    until("every descriptor to be closed", || {
        (descriptors() == before).then_some(())
    });
    println!("{tried} inputs");
}

#[test]
fn one_that_reads_no_answers_loses_the_connection() {
    let _alone = crate::victim::alone();
    let (run_dir, nic) = open();
    let speaker = Speaker::new(run_dir.path(), 100);
    let met = speaker.meet(0).map_err(|_| "refused").expect("met");
    let request = Message::new(REGION, 5 << 16 | 1, 0, 0).bytes();
    let ended =
        (0..100_000).find_map(|sent| send(&met.socket, &request, &[]).err().map(|e| (sent, e)));
    let (sent, error) = ended.expect("the connection ends");
    assert!(matches!(error, Errno::PIPE | Errno::CONNRESET), "{error}");
    println!("{sent} requests");
    assert!(nic.counters().refused >= 1);
    assert!(speaker.meet(0).is_ok(), "others are served");
}

#[test]
fn one_that_asks_in_vain_for_ever_loses_the_connection() {
    let _alone = crate::victim::alone();
    let (run_dir, _nic) = open();
    let speaker = Speaker::new(run_dir.path(), 100);
    let met = speaker.meet(0).map_err(|_| "refused").expect("met");
    let mut refused = 0;
    while let Ok((answer, _)) = ask(&met.socket, &Message::new(REGION, refused << 16 | 1, 0, 0)) {
        assert_eq!(answer.code, NO_SUCH);
        refused += 1;
        assert!(refused < 100_000, "it may ask for ever");
    }
    println!("{refused} requests");
}

#[test]
fn one_process_cannot_take_all_connections() {
    let _alone = crate::victim::alone();
    let (run_dir, nic) = open();
    let mut honest = Honest::start(run_dir.path());
    let speaker = Speaker::new(run_dir.path(), 100);
    let before = descriptors();
    let mut held = Vec::new();
    let max = loop {
        let socket = speaker.dial(0).expect("connected");
        let (answer, _) = ask(&socket, &speaker.hello()).expect("an answer");
        if answer.code != OK {
            assert_eq!(answer.code, EXHAUSTED);
            break answer.a as usize;
        }
        held.push(socket);
        assert!(held.len() < 4096, "no limit");
    };
    assert_eq!(held.len(), max, "the limit is named");
    // Those that say nothing are counted as well.
    let strangers: Vec<_> = (0..300).filter_map(|_| speaker.dial(0).ok()).collect();
    until("the last to be refused", || {
        (nic.counters().refused > 1).then_some(())
    });
    assert!(nic.usage().connections < max + strangers.len());

    // Another process finds room.
    let context = Context::new(nic.clone());
    let (pd, cq) = (
        context.alloc_pd().expect("pd"),
        context.create_cq(16).expect("cq"),
    );
    let mut qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    honest.connect(&mut qp, &ConnectOptions::default());
    println!("{} inputs", held.len() + strangers.len());
    drop((held, strangers, qp, honest));
    until("connections to end", || {
        (nic.usage().connections == 0).then_some(())
    });
    drop((pd, cq));
    // The honest one's stream is closed as well.
    assert!(descriptors() <= before);
}

/// Opens lanes to the datagram queue, each from a queue pair of its own.
fn open_lanes(met: &Met, instance: u32, ud: &Datagrams, lanes: std::ops::Range<u32>) {
    for lane in lanes {
        let announcement = Message::new(LANE, lane, qpn(instance, 2 + lane), ud.address());
        send(&met.socket, &announcement.bytes(), &[]).expect("sent");
    }
}

#[test]
fn lanes_that_lead_nowhere_are_cleared_for_nobody_who_does_not_ask() {
    let _alone = crate::victim::alone();
    let (run_dir, nic) = open();
    let (mut ud, mut honest) = (Datagrams::new(&nic), Honest::start(run_dir.path()));
    let speaker = Speaker::new(run_dir.path(), 100);
    let met = speaker.meet(0).map_err(|_| "refused").expect("met");
    // To no queue pair, each closed before it is announced.
    let announce = |lane: usize, opened: u32| {
        met.inbox.tails[lane]
            .closed
            .store(opened, Ordering::Release);
        let nowhere = u64::from(qpn(0, 9000)) | 1 << 32;
        let announcement = Message::new(LANE, lane as u32, qpn(100, 7), nowhere);
        send(&met.socket, &announcement.bytes(), &[])
    };
    let released = |lane: usize| met.inbox.heads[lane].released.load(Ordering::Acquire);
    for lane in 0..LANES {
        announce(lane, 1).expect("sent");
        if lane % 32 == 0 {
            ud.arm();
            assert!(ud.poll().is_empty());
        }
    }
    let sweep = || send(&met.socket, &Message::new(SWEEP, 0, 0, 0).bytes(), &[]);
    assert_eq!((0..LANES).map(released).sum::<u32>(), 0, "nobody has asked");
    sweep().expect("sent");
    until("the lanes to be given back", || {
        (released(LANES - 1) == 1).then_some(())
    });
    // Whoever does not wait for that loses the connection, and no other one is concerned.
    announce(3, 2).expect("sent");
    // The second one may find it ended.
    let _ = announce(3, 3);
    assert!(has_ended(&met.socket), "announced twice");
    let ah = honest.pd.create_ah(home()).expect("an address");
    let wr = Wr::send_inline_to(&ah, ud.num, QKEY, b"honest");
    honest.ud.post_send(&[wr]).expect("posted");
    let wc = until("the honest datagram", || ud.poll().into_iter().next());
    assert_eq!(wc.src_qpn, honest.ud.num());
}

#[test]
fn a_process_can_use_up_its_lanes_and_nobody_elses() {
    let _alone = crate::victim::alone();
    let (run_dir, nic) = open();
    let mut ud = Datagrams::new(&nic);
    let mut honest = Honest::start(run_dir.path());
    let speakers = [100, 101].map(|instance| Speaker::new(run_dir.path(), instance));
    let mets: Vec<_> = speakers
        .iter()
        .map(|speaker| {
            let met = speaker.meet(0).map_err(|_| "refused").expect("met");
            open_lanes(&met, speaker.instance, &ud, 0..LANES as u32);
            met
        })
        .collect();
    until("the lanes", || {
        (nic.usage().lanes == 2 * LANES).then_some(())
    });
    ud.poll();
    let third = Speaker::new(run_dir.path(), 102);
    let met = third.meet(0).map_err(|_| "refused").expect("met");
    open_lanes(&met, 102, &ud, 0..1);
    assert!(has_ended(&met.socket), "one lane too many");
    // Another process finds room, and is heard.
    let ah = honest.pd.create_ah(home()).expect("an address");
    let wr = Wr::send_inline_to(&ah, ud.num, QKEY, b"honest");
    honest.ud.post_send(&[wr]).expect("posted");
    let wc = until("the honest datagram", || ud.poll().into_iter().next());
    assert_eq!(wc.src_qpn, honest.ud.num());

    // A lane that its sender has closed can be opened again, once nobody reads it.
    let met = &mets[0];
    met.inbox.tails[7].closed.store(1, Ordering::Release);
    ud.drop_queue_pair();
    until("lane 7 to be given back", || {
        ud.poll();
        send(&met.socket, &Message::new(SWEEP, 0, 0, 0).bytes(), &[]).expect("sent");
        (met.inbox.heads[7].released.load(Ordering::Acquire) == 1).then_some(())
    });
    drop((mets, ah, honest));
    until("the lanes to be given back", || {
        ud.poll();
        (nic.usage().lanes == 0).then_some(())
    });
}

#[test]
fn many_quiet_lanes_cost_a_poll_little_and_arming_overlooks_none() {
    const QUIET: u32 = 1000;
    let _alone = crate::victim::alone();
    let (run_dir, nic) = open();
    let mut ud = Datagrams::new(&nic);
    let speaker = Speaker::new(run_dir.path(), 100);
    let met = speaker.meet(0).map_err(|_| "refused").expect("met");
    open_lanes(&met, 100, &ud, 0..QUIET);
    until("the lanes", || {
        (nic.usage().lanes == QUIET as usize).then_some(())
    });
    assert!(ud.poll().is_empty());
    let from = |lane: u32| qpn(100, 2 + lane);
    let mut slow = 0;
    for lane in (0..QUIET).step_by(30) {
        crate::storm::write_line(&met.inbox, lane as usize, 0, 2, 3, 4);
        let mut polls = 1;
        let wc = loop {
            match ud.poll().first() {
                Some(wc) => break *wc,
                None => polls += 1,
            }
            assert!(polls <= QUIET / 64 + 1, "lane {lane} is not looked at");
        };
        assert_eq!(wc.src_qpn.0, from(lane));
        slow += u32::from(polls > 1);
    }
    assert!(slow > 10, "each poll looks at all lanes");
    for lane in (1..QUIET).step_by(30) {
        crate::storm::write_line(&met.inbox, lane as usize, 0, 2, 3, 4);
        ud.arm();
        let found = ud.poll();
        assert_eq!(found.len(), 1, "lane {lane} is overlooked");
        assert_eq!(found[0].src_qpn.0, from(lane));
    }
}

#[test]
fn messages_for_nothing_keep_no_poller() {
    let _alone = crate::victim::alone();
    let (run_dir, nic) = open();
    // Without RECVs, every datagram is lost.
    let mut ud = Datagrams::with_recvs(&nic, 0);
    let speaker = Speaker::new(run_dir.path(), 100);
    let met = speaker.meet(0).map_err(|_| "refused").expect("met");
    for line in 0..LANE_LINES {
        crate::storm::write_line(&met.inbox, 0, line, 2, 3, 4);
    }
    open_lanes(&met, 100, &ud, 0..1);
    until("the lane", || (nic.usage().lanes == 1).then_some(()));
    let consumed = || met.inbox.heads[0].consumed.load(Ordering::Acquire);
    let mut before = 0;
    until("the lane's end", || {
        assert!(ud.poll().is_empty());
        let now = consumed();
        assert!(now - before <= 512, "{} in one poll", now - before);
        before = now;
        (now == LANE_LINES as u64).then_some(())
    });
}

#[test]
fn a_queue_pair_hears_its_own_peer_and_nobody_else() {
    let _alone = crate::victim::alone();
    let (run_dir, nic) = open();
    let mut honest = Honest::start(run_dir.path());
    let context = Context::new(nic.clone());
    let (pd, mut cq) = (
        context.alloc_pd().expect("pd"),
        context.create_cq(16).expect("cq"),
    );
    let mut qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    honest.connect(&mut qp, &ConnectOptions::default());
    let memory = pd
        .allocate(4096, verbs::Access::LOCAL_WRITE)
        .expect("memory");
    qp.post_recv(&[verbs::RecvWr {
        id: 1,
        sges: &[memory.sge(0..64)],
    }])
    .expect("posted");
    let speaker = Speaker::new(run_dir.path(), 100);
    let met = speaker.meet(0).map_err(|_| "refused").expect("met");
    let to = u64::from(qp.num().0) | 1 << 32;
    for (lane, kind) in (1..=7).enumerate() {
        let announcement = Message::new(LANE, lane as u32, qpn(100, 2), to);
        send(&met.socket, &announcement.bytes(), &[]).expect("sent");
        crate::storm::write_line(&met.inbox, lane, 0, kind, 3, 4);
    }
    until("the lanes to be refused", || {
        (nic.usage().lanes == 7).then_some(())
    });
    for _ in 0..100 {
        assert_eq!(cq.poll(&mut [Wc::default()]), Ok(0));
    }
    assert_eq!(qp.state(), verbs::QpState::Rts);
    honest.send(b"from the true peer");
    let wc = until("the message", || {
        let mut out = [Wc::default()];
        (cq.poll(&mut out) == Ok(1)).then_some(out[0])
    });
    assert!(wc.is_ok() && wc.id == 1, "{wc:?}");
}
