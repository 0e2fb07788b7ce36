//! Servers and clients that come, go, and sleep.

use cache::herd::client::BlockingError;
use cache::herd::slots::kick;
use cache::herd::wire::handshake::{Connect, Message, Refusal, VERSION};
use cache::herd::wire::request::Request;
use cache::herd::{ClientConfig, Command, Outcome, ServerConfig, StoreMode};

use super::raw::Raw;
use super::rig::Rig;

fn server(cores: u32) -> ServerConfig {
    ServerConfig {
        cores,
        clients_max: 4,
        handle_rest_ns: 100_000,
        first_id: Some(1),
        ..ServerConfig::default()
    }
}

fn patient() -> ClientConfig {
    ClientConfig {
        retry_ns: 20_000,
        deadline_ns: 10_000_000,
        lost_ns: 2_000_000,
        control_check_ns: 500_000,
        redial_ns: 50_000,
        ..ClientConfig::default()
    }
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    Command::Store {
        mode: StoreMode::Set,
        key,
        value,
        flags: 0,
        expiry_s: 0,
    }
}

#[test]
fn a_client_that_stood_still_itself_has_not_lost_its_server() {
    let rig = Rig::new(server(1));
    let mut client = rig.client(patient());
    for round in 0..3 {
        client.submit(&set(b"key", b"value"), false, round).unwrap();
        client.poll(rig.now_ns(), &mut |_, _| panic!("no answer yet"));
        // Nobody does anything, for longer than after which a server that is silent is lost.
        rig.world.borrow_mut().now_ns += 5_000_000;
        let mut outcomes = Vec::new();
        for _ in 0..100 {
            client.poll(rig.now_ns(), &mut |tag, outcome| {
                outcomes.push((tag, matches!(outcome, Outcome::Done { .. })));
            });
            rig.step();
        }
        assert_eq!(outcomes, [(round, true)]);
    }
    assert_eq!(client.stats().losses, 0);
}

#[test]
fn after_a_restart_reads_go_again_and_writes_are_unknown() {
    let rig = Rig::new(server(2));
    let mut client = rig.client(patient());
    let value = vec![1; 5000];
    client
        .submit(&Command::Get { key: b"a" }, false, 1)
        .unwrap();
    client.submit(&set(b"b", b"value"), false, 2).unwrap();
    let gat = Command::GetAndTouch {
        key: b"a",
        expiry_s: 0,
    };
    client.submit(&gat, false, 5).unwrap();
    client.poll(rig.now_ns(), &mut |_, _| panic!("no answer yet"));
    // Never posted, or not yet stored: these can go again like reads.
    client.submit(&set(b"c", b"value"), false, 3).unwrap();
    client.submit(&set(b"d", &value), false, 4).unwrap();
    rig.kill();
    let mut outcomes = Vec::new();
    for step in 0..3000 {
        if step == 1000 {
            rig.start();
        }
        if step < 1000 {
            // What is posted now goes nowhere.
            assert_eq!(rig.step(), 0);
        } else {
            rig.step();
        }
        let now_ns = rig.now_ns();
        if step == 0 {
            continue;
        }
        client.poll(now_ns, &mut |tag, outcome| {
            outcomes.push((tag, matches!(outcome, Outcome::Unknown)));
        });
        if step == 100 {
            assert!(outcomes.is_empty(), "{outcomes:?}");
        }
    }
    outcomes.sort_unstable();
    let tags: Vec<u64> = outcomes.iter().map(|&(tag, _)| tag).collect();
    assert_eq!(tags, [1, 2, 3, 4, 5]);
    // A GAT may have touched, so it goes the way of writes.
    let is_unknown = |tag: usize| outcomes[tag - 1].1;
    assert!(
        !is_unknown(1) && is_unknown(2) && !is_unknown(4) && is_unknown(5),
        "{outcomes:?}"
    );
    let stats = client.stats();
    assert_eq!((stats.losses, stats.connects, stats.timeouts), (1, 2, 0));
    assert!(stats.connect_errors > 1);
    client
        .submit(&Command::Get { key: b"d" }, false, 5)
        .unwrap();
    for _ in 0..100 {
        rig.step();
        client.poll(rig.now_ns(), &mut |_, outcome| {
            assert!(matches!(outcome, Outcome::Value { value, .. } if value.len() == 5000));
        });
    }
    assert_eq!(client.waiting(), 0);
}

#[test]
fn a_server_that_stays_away_is_a_time_out() {
    let rig = Rig::new(server(1));
    let mut client = rig.blocking(patient());
    client.set(b"key", b"value").unwrap();
    rig.kill();
    assert!(matches!(client.get(b"key"), Err(BlockingError::TimedOut)));
    assert!(matches!(
        client.set(b"key", b"x"),
        Err(BlockingError::TimedOut)
    ));
    rig.start();
    assert_eq!(client.get(b"key").unwrap(), None);
}

#[test]
fn a_client_that_dies_with_requests_under_way_leaves_no_trace() {
    let rig = Rig::new(server(1));
    let mut good = rig.blocking(patient());
    good.set(b"key", b"value").unwrap();
    for round in 0..20 {
        let mut dying = rig.client(patient());
        let large = vec![7; 20_000];
        for _ in 0..8 {
            dying.submit(&set(b"other", b"value"), false, 0).unwrap();
        }
        dying.submit(&set(b"large", &large), false, 0).unwrap();
        for _ in 0..round % 7 {
            dying.poll(rig.now_ns(), &mut |_, _| {});
            rig.step();
        }
        dying.flush(rig.now_ns());
        drop(dying);
        assert_eq!(good.get(b"key").unwrap().unwrap().value, b"value");
        rig.step();
        rig.machine(|machine| {
            assert_eq!(machine.servers[0].clients(), 1);
            assert_eq!(machine.servers[0].staging_in_use(), 0);
        });
    }
}

#[test]
fn ids_of_an_earlier_client_mean_nothing_to_a_later_one() {
    let rig = Rig::new(ServerConfig {
        clients_max: 1,
        ..server(1)
    });
    let mut slot = [0; 64];
    for round in 0..3 {
        let mut raw = Raw::connect(&rig, 64);
        rig.step();
        for id in 1..=16 {
            let incr = Command::Incr {
                key: b"n",
                delta: 1,
            };
            let len = Request::Command(incr).emit(id, false, &mut slot).unwrap();
            raw.write(id, &slot[64 - len..], None);
        }
        rig.settle();
        assert_eq!(raw.answers().len(), 16, "round {round}");
        drop(raw);
        rig.step();
    }
    let stats = rig.machine(|machine| machine.servers[0].stats());
    assert_eq!(stats.requests, 48);
}

#[test]
fn a_client_that_leaves_makes_room_for_another() {
    let rig = Rig::new(ServerConfig {
        clients_max: 1,
        ..server(2)
    });
    let connect =
        || cache::herd::Client::connect(rig.client_pd(), patient(), rig.dial(), rig.now_ns());
    let usage = || rig.machine(|machine| machine.door.usage());
    let empty = usage();
    let first = connect().unwrap();
    let held = usage();
    assert_eq!((held.clients, held.queue_pairs), (1, 2));
    assert!(held.registered_bytes > 0);
    assert!(connect().is_err());
    drop(first);
    rig.step();
    assert_eq!(usage().registered_bytes, empty.registered_bytes);
    assert_eq!(usage().refused, 1);
    drop(connect().unwrap());
    rig.step();
    assert_eq!((usage().clients, usage().queue_pairs), (0, 0));
}

#[test]
fn every_refusal_is_counted() {
    let rig = Rig::new(server(1));
    let version = Message::Hello(VERSION + 1, VERSION + 1).to_line();
    let refused = Message::Refuse(Refusal::Version).to_line();
    for (count, line) in (1..).zip([&*version, "vervain xyz", &*refused]) {
        let reply = rig.machine(|machine| machine.door.answer(line.as_bytes()));
        assert!(reply.close, "{}", reply.line);
        assert_eq!(rig.machine(|machine| machine.door.usage().refused), count);
    }
}

#[test]
fn the_handles_of_those_who_left_go_in_time_though_nobody_comes() {
    let rig = Rig::new(server(2));
    let usage = || rig.machine(|machine| machine.door.usage());
    drop([rig.client(patient()), rig.client(patient())]);
    rig.step();
    let left_ns = rig.now_ns();
    assert_eq!((usage().clients, usage().handles_resting), (0, 4));
    // An answer on its way out may still name them.
    while rig.now_ns() + 1_000 < left_ns + 100_000 {
        rig.step();
        assert_eq!(usage().handles_resting, 4);
    }
    rig.step();
    assert_eq!(usage().handles_resting, 0);
}

#[test]
fn a_client_reaches_only_its_own_slots() {
    let rig = Rig::new(server(1));
    let (mut honest, mut liar) = (Raw::connect(&rig, 4), Raw::connect(&rig, 4));
    let noop = |id: u32| {
        let mut slot = [0; 64];
        let len = Request::Noop.emit(id, false, &mut slot).unwrap();
        slot[64 - len..].to_vec()
    };
    let own = liar.accept.cores[0].chunk;
    liar.accept.cores[0].chunk = honest.accept.cores[0].chunk;
    liar.write(1, &noop(1), None);
    rig.step();
    assert_eq!(
        rig.machine(|machine| machine.servers[0].stats().requests),
        0
    );
    // Its own key leads no further than its own region either.
    let len = u64::from(liar.accept.stride * liar.accept.window);
    for elsewhere in [own.offset(len), own.offset(len.wrapping_neg())] {
        liar.accept.cores[0].chunk = elsewhere;
        liar.write(1, &noop(1), None);
    }
    rig.step();
    assert_eq!(
        rig.machine(|machine| machine.servers[0].stats().requests),
        0
    );
    assert!(honest.answers().is_empty() && liar.answers().is_empty());
    honest.write(1, &noop(1), None);
    rig.step();
    assert_eq!(honest.answers().len(), 1);
}

#[test]
fn kicks_do_not_pile_up_at_a_busy_core() {
    const STEPS: u32 = 200;
    // Of each client, in each step. All of them together are half of what a poll does at most, and
    // in a few steps more than the core has RECVs.
    const REQUESTS: u32 = 8;
    let rig = Rig::new(server(1));
    let mut raws: Vec<_> = (0..4).map(|_| Raw::connect(&rig, 0)).collect();
    for step in 0..STEPS {
        for raw in &mut raws {
            for request in 1..=REQUESTS {
                let id = step * REQUESTS + request;
                let mut slot = [0; 64];
                let len = Request::Noop.emit(id, false, &mut slot).unwrap();
                raw.write(id, &slot[64 - len..], Some(kick(id, false)));
            }
            raw.answers();
        }
        rig.step();
    }
    for _ in 0..STEPS {
        rig.step();
    }
    // A kick that finds no RECV is lost, and so is the request that it brings, with all behind it.
    let stats = rig.machine(|machine| machine.servers[0].stats());
    let sent = u64::from(STEPS * REQUESTS * 4);
    assert_eq!((stats.requests, stats.kicks), (sent, sent));
}

/// A core that finds new requests whenever it looks hears of repeats all the same.
#[test]
fn a_repeat_is_answered_within_64_polls_of_a_busy_core() {
    let rig = Rig::new(server(1));
    let noop = |raw: &mut Raw, id| {
        let mut slot = [0; 64];
        let len = Request::Noop.emit(id, false, &mut slot).unwrap();
        raw.write(id, &slot[64 - len..], None);
    };
    let (mut waiting, mut busy) = (Raw::connect(&rig, 0), Raw::connect(&rig, 0));
    noop(&mut waiting, 1);
    rig.step();
    waiting.kick_only(1);
    for id in 1..=64 {
        noop(&mut busy, id);
        assert!(rig.step() > 0, "the core is busy in each poll");
    }
    let stats = rig.machine(|machine| machine.servers[0].stats());
    assert_eq!((stats.requests, stats.replays), (65, 1));
}

#[test]
fn repeats_are_answered_when_more_come_than_a_batch_holds() {
    const REQUESTS: u32 = 16;
    // Kicks come while the core is awake, and while it is going to sleep.
    for idle_ns in [0, 1] {
        let rig = Rig::new(ServerConfig {
            batch_max: 1,
            idle_ns,
            ..server(1)
        });
        rig.world.borrow_mut().sleepy = true;
        let mut raw = Raw::connect(&rig, 0);
        for id in 1..=REQUESTS {
            let mut slot = [0; 64];
            let len = Request::Noop.emit(id, false, &mut slot).unwrap();
            raw.write(id, &slot[64 - len..], Some(kick(id, false)));
        }
        for _ in 0..REQUESTS {
            rig.step();
        }
        for id in 1..=REQUESTS {
            raw.kick_only(id);
        }
        for _ in 0..2 * REQUESTS {
            rig.step();
        }
        let stats = rig.machine(|machine| machine.servers[0].stats());
        assert_eq!((stats.requests, stats.replays), (16, 16));
    }
}

#[test]
fn clients_connect_and_leave_in_any_order() {
    let rig = Rig::new(server(2));
    let mut clients = Vec::new();
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..100u64 {
        if clients.len() < 3 && random.bool() {
            let mut client = rig.client(patient());
            // Its first request may be there before its cores know of it.
            client
                .submit(&Command::Get { key: b"x" }, false, 0)
                .unwrap();
            rig.world.borrow_mut().attach_later = true;
            client.poll(rig.now_ns(), &mut |_, _| {});
            rig.step();
            rig.world.borrow_mut().attach_later = false;
            clients.push(client);
        } else if !clients.is_empty() && random.bool() {
            let leaving = random.usize(..clients.len());
            clients.swap_remove(leaving);
        }
        let mut answered = 0;
        for client in &mut clients {
            let key = round.to_le_bytes();
            client.submit(&set(&key, &key), false, 1).unwrap();
        }
        for _ in 0..200 {
            for client in &mut clients {
                client.poll(rig.now_ns(), &mut |tag, outcome| {
                    answered += tag as usize;
                    assert_ne!(outcome, Outcome::TimedOut);
                });
            }
            rig.step();
        }
        assert_eq!(answered, clients.len());
        assert!(clients.iter().all(|client| client.waiting() == 0));
        assert!(clients.iter().all(|client| client.stats().losses == 0));
    }
}

#[test]
fn a_sleeping_server_is_woken_by_a_request() {
    let rig = Rig::new(ServerConfig {
        idle_ns: 50_000,
        ..server(2)
    });
    rig.world.borrow_mut().sleepy = true;
    let config = ClientConfig {
        // No repeat may come to the rescue.
        retry_ns: 5_000_000,
        ..patient()
    };
    let mut client = rig.blocking(config);
    let mut slept = 0;
    for round in 0..200u32 {
        client.set(&round.to_le_bytes(), b"value").unwrap();
        for _ in 0..round {
            rig.step();
        }
        slept += usize::from(!rig.world.borrow().asleep.is_empty());
    }
    assert!(slept > 50, "{slept}");
    let stats = client.client().stats();
    assert_eq!((stats.repeats, stats.timeouts), (0, 0));
    assert!(stats.kicks > 100 && stats.kicks < 200, "{stats:?}");
}

#[test]
fn a_server_does_not_sleep_over_work_that_came_while_it_armed() {
    let rig = Rig::new(ServerConfig {
        idle_ns: 50_000,
        ..server(1)
    });
    rig.world.borrow_mut().sleepy = true;
    let mut client = rig.client(patient());
    // The first request waits for the NICs' first contact.
    client
        .submit(&Command::Get { key: b"x" }, false, 0)
        .unwrap();
    let mut answered = 0;
    for _ in 0..10 {
        client.poll(rig.now_ns(), &mut |_, _| answered += 1);
        rig.step();
    }
    assert_eq!(answered, 1);
    rig.world.borrow_mut().frozen = vec![0];
    for _ in 0..100 {
        rig.step();
    }
    client
        .submit(&Command::Get { key: b"x" }, false, 0)
        .unwrap();
    client.flush(rig.now_ns());
    rig.machine(|machine| {
        use cache::herd::Armed;
        let server = &mut machine.servers[0];
        assert_eq!(server.arm(1).unwrap(), Armed::Busy);
        assert_eq!(server.arm(u64::MAX).unwrap(), Armed::Ready);
    });
}

#[test]
fn a_door_answers_any_line() {
    let rig = Rig::new(server(2));
    let answer = |line: &[u8]| {
        rig.machine(|machine| {
            let reply = machine.door.answer(line);
            (
                Message::from_line(reply.line.as_bytes()).unwrap(),
                reply.close,
            )
        })
    };
    let refused = |why| (Message::Refuse(why), true);
    assert_eq!(answer(b"get key\r\n"), refused(Refusal::Malformed));
    assert_eq!(answer(b"vervain 0g"), refused(Refusal::Malformed));
    let hello = Message::Hello(2, 9).to_line();
    assert_eq!(answer(hello.as_bytes()), refused(Refusal::Version));
    let hello = Message::Hello(1, 9).to_line();
    let (Message::Info(info), false) = answer(hello.as_bytes()) else {
        panic!("no INFO");
    };
    assert_eq!(info.cores, 2);
    let mut connect = Connect {
        incarnation: info.incarnation + 1,
        window: 3,
        gid: verbs::Gid::default(),
        cores: vec![],
    };
    let mut ask = |count: usize, window, incarnation| {
        let endpoint = verbs::typed::Endpoint {
            gid: verbs::Gid::default(),
            qpn: verbs::QpNum(1),
            psn: verbs::Psn(1),
        };
        connect.window = window;
        connect.incarnation = incarnation;
        connect.cores = vec![
            cache::herd::wire::handshake::ConnectCore {
                uc: endpoint,
                ud_qpn: verbs::QpNum(1),
                qkey: verbs::Qkey(1),
            };
            count
        ];
        answer(Message::Connect(connect.clone()).to_line().as_bytes())
    };
    assert_eq!(
        ask(2, 4, info.incarnation + 1),
        refused(Refusal::Incarnation)
    );
    assert_eq!(ask(1, 4, info.incarnation), refused(Refusal::Malformed));
    for _ in 0..10 {
        // A refusal keeps no memory.
        assert_eq!(ask(2, 3, info.incarnation), refused(Refusal::Malformed));
    }
    rig.client(patient());
}
