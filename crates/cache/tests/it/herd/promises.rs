//! Requests whose answers the engine promises.

use cache::herd::client::Dial;
use cache::herd::slots::kick;
use cache::herd::wire::request::Request;
use cache::herd::{Client, ClientConfig, Command, Outcome, ServerConfig, Status, StoreMode};

use super::raw::Raw;
use super::rig::Rig;
use crate::herd::meddler::{Fate, Message};

fn server() -> ServerConfig {
    ServerConfig {
        clients_max: 8,
        handle_rest_ns: 2_000,
        first_id: Some(1),
        ..ServerConfig::default()
    }
}

/// A client that repeats after 20 steps.
fn impatient() -> ClientConfig {
    ClientConfig {
        retry_ns: 20_000,
        deadline_ns: 10_000_000,
        lost_ns: 50_000_000,
        control_check_ns: 1_000_000,
        ..ClientConfig::default()
    }
}

fn hold(rig: &Rig) {
    rig.machine(|machine| machine.engines[0].hold());
}

fn let_go(rig: &Rig) {
    rig.machine(|machine| machine.engines[0].let_go());
}

fn pending(rig: &Rig) -> usize {
    rig.machine(|machine| machine.servers[0].pending())
}

/// Lets both sides run so often; returns what came.
fn run<D: Dial>(rig: &Rig, client: &mut Client<D>, steps: usize) -> Vec<u64> {
    let mut came = Vec::new();
    for _ in 0..steps {
        client.poll(rig.now_ns(), &mut |tag, outcome| {
            assert!(matches!(
                outcome,
                Outcome::Done { .. } | Outcome::Value { .. }
            ));
            came.push(tag);
        });
        rig.step();
    }
    came
}

fn raw(request: &Request<'_>, id: u32) -> Vec<u8> {
    let mut bytes = vec![0; request.len()];
    request.emit(id, false, &mut bytes);
    bytes
}

const INCR: Request<'_> = Request::Command(Command::Incr {
    key: b"n",
    delta: 1,
});

/// The repeats of a request that waits are neither carried out nor answered before it is.
#[test]
fn a_repeat_of_a_pending_request_waits() {
    let rig = Rig::new(server());
    rig.blocking(ClientConfig::default())
        .set(b"n", b"0")
        .unwrap();
    let mut client = rig.client(impatient());
    hold(&rig);
    let incr = Command::Incr {
        key: b"n",
        delta: 1,
    };
    client.submit(&incr, false, 1).unwrap();
    client
        .submit(&Command::Get { key: b"n" }, false, 2)
        .unwrap();
    let mut came = 0;
    for _ in 0..500 {
        client.poll(rig.now_ns(), &mut |_, _| came += 1);
        rig.step();
    }
    assert_eq!(came, 0, "answered before the engine has");
    assert!(client.stats().repeats > 2, "{:?}", client.stats());
    rig.machine(|machine| {
        let stats = machine.servers[0].stats();
        assert_eq!((machine.servers[0].pending(), stats.replays), (2, 0));
    });
    let_go(&rig);
    let mut number = None;
    for _ in 0..10 {
        client.poll(rig.now_ns(), &mut |tag, outcome| match (tag, outcome) {
            (1, Outcome::Number { value, .. }) => number = Some(value),
            (2, Outcome::Value { value, .. }) => assert_eq!(value, b"1"),
            other => panic!("{other:?}"),
        });
        rig.step();
    }
    assert_eq!((number, client.waiting(), pending(&rig)), (Some(1), 0, 0));
}

/// A no-op in the place of a request that waits is answered with that one's answer, and not before.
#[test]
fn a_no_op_in_the_place_of_a_pending_request_waits() {
    let rig = Rig::new(server());
    rig.blocking(ClientConfig::default())
        .set(b"n", b"0")
        .unwrap();
    let mut client = Raw::connect(&rig, 16);
    hold(&rig);
    client.write(1, &raw(&INCR, 1), None);
    rig.step();
    for _ in 0..3 {
        client.write(1, &raw(&Request::Noop, 1), Some(kick(1, true)));
        rig.step();
    }
    assert_eq!(client.answers(), []);
    let_go(&rig);
    rig.step();
    rig.step();
    let answers = client.answers();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(answers[0].is_number && answers[0].id == 1, "{answers:?}");
    // From here on the result is repeated.
    client.kick_only(1);
    rig.step();
    assert_eq!(client.answers(), answers);
}

/// An answer that was lost after it had waited is repeated, and the change is not carried out again.
#[test]
fn a_change_that_had_to_wait_is_never_carried_out_twice() {
    let rig = Rig::new(server());
    rig.blocking(ClientConfig::default())
        .set(b"n", b"0")
        .unwrap();
    let mut client = rig.client(impatient());
    for tag in 1..=100 {
        let mut count = 0;
        rig.server_nic.set(move |message| {
            count += usize::from(message == Message::Answer);
            match message == Message::Answer && count <= 2 {
                true => Fate::Lose,
                false => Fate::Pass,
            }
        });
        let incr = Command::Incr {
            key: b"n",
            delta: 1,
        };
        client.submit(&incr, false, tag).unwrap();
        let mut number = None;
        while number.is_none() {
            client.poll(rig.now_ns(), &mut |_, outcome| match outcome {
                Outcome::Number { value, .. } => number = Some(value),
                other => panic!("{other:?}"),
            });
            rig.step();
        }
        assert_eq!(number, Some(tag));
    }
}

/// Whoever asks without waiting for answers has as many requests under way as its window is wide.
#[test]
fn a_client_has_no_more_requests_pending_than_its_window() {
    let rig = Rig::new(server());
    let mut client = Raw::connect(&rig, 64);
    let mut other = rig.blocking(ClientConfig::default());
    hold(&rig);
    let window = client.accept.window;
    for id in 1..=2 * window {
        client.write(
            id,
            &raw(&Request::Command(Command::Get { key: b"n" }), id),
            None,
        );
        rig.step();
        // Nobody else is held up by it.
        rig.machine(|machine| machine.engines[0].release());
        other.set(b"other", b"x").unwrap();
        hold(&rig);
    }
    assert_eq!(pending(&rig), window as usize);
    let_go(&rig);
    for _ in 0..10 {
        rig.step();
    }
    assert_eq!(pending(&rig), 0);
    let ids: std::collections::BTreeSet<_> = client.answers().iter().map(|head| head.id).collect();
    assert_eq!(ids, (1..=2 * window).collect());
}

/// A client that goes takes its pending requests along, and the others keep theirs.
#[test]
fn a_client_that_goes_leaves_nothing_pending() {
    let rig = Rig::new(server());
    let mut clients: Vec<_> = (0..3).map(|_| rig.client(impatient())).collect();
    rig.step();
    hold(&rig);
    for client in &mut clients {
        for tag in 0..5 {
            client
                .submit(&Command::Get { key: b"n" }, false, tag)
                .unwrap();
        }
        client.flush(rig.now_ns());
    }
    rig.step();
    assert_eq!(pending(&rig), 15);
    let mut last = clients.pop().unwrap();
    clients.remove(0);
    rig.step();
    assert_eq!(pending(&rig), 10);
    let_go(&rig);
    for client in clients.iter_mut().chain([&mut last]) {
        let mut came = 0;
        for _ in 0..10 {
            client.poll(rig.now_ns(), &mut |_, outcome| {
                assert_eq!(outcome, Outcome::Refused(Status::NotFound));
                came += 1;
            });
            rig.step();
        }
        assert_eq!(came, 5);
    }
    assert_eq!(pending(&rig), 0);
}

/// A large value that has to be waited for comes in pieces of one read, and goes in one.
#[test]
fn a_large_value_is_read_once_and_stored_once() {
    let rig = Rig::new(server());
    let mut client = rig.client(impatient());
    let value: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8).collect();
    let set = Command::Store {
        mode: StoreMode::Set,
        key: b"large",
        value: &value,
        flags: 5,
        expiry_s: 0,
    };
    hold(&rig);
    client.submit(&set, false, 1).unwrap();
    assert_eq!(run(&rig, &mut client, 1000), []);
    let_go(&rig);
    assert_eq!(run(&rig, &mut client, 10), [1]);
    let waits = rig.machine(|machine| machine.servers[0].stats().waits);
    assert_eq!(waits, 1, "the pieces need no engine");
    hold(&rig);
    client
        .submit(&Command::Get { key: b"large" }, false, 2)
        .unwrap();
    assert_eq!(run(&rig, &mut client, 100), []);
    let_go(&rig);
    let mut came = None;
    for _ in 0..1000 {
        client.poll(rig.now_ns(), &mut |_, outcome| match outcome {
            Outcome::Value { value, flags, .. } => came = Some((value.to_vec(), flags)),
            other => panic!("{other:?}"),
        });
        rig.step();
    }
    assert_eq!(came, Some((value, 5)));
    rig.machine(|machine| {
        let server = &machine.servers[0];
        assert_eq!(server.stats().waits, 2, "the value is read once");
        assert_eq!(server.staging_in_use(), 0);
    });
}

/// There are no more large values on their way to the engine than buffers.
#[test]
fn a_large_value_keeps_its_buffer_until_it_is_stored() {
    let rig = Rig::new(ServerConfig {
        staging_count: 1,
        ..server()
    });
    let patient = ClientConfig {
        deadline_ns: u64::MAX / 2,
        lost_ns: u64::MAX / 2,
        ..impatient()
    };
    let [mut first, mut second] = [(); 2].map(|()| rig.client(patient.clone()));
    let value = vec![b'v'; 50_000];
    let set = |key| Command::Store {
        mode: StoreMode::Set,
        key,
        value: &value,
        flags: 0,
        expiry_s: 0,
    };
    hold(&rig);
    first.submit(&set(b"one"), false, 1).unwrap();
    assert_eq!(run(&rig, &mut first, 300), []);
    second.submit(&set(b"two"), false, 2).unwrap();
    assert_eq!(run(&rig, &mut second, 300), []);
    assert_eq!(pending(&rig), 1);
    // Longer than a buffer may stand idle.
    for _ in 0..5 {
        rig.world.borrow_mut().now_ns += rig.config.staging_idle_ns;
        assert_eq!(run(&rig, &mut second, 300), []);
        assert_eq!(pending(&rig), 1, "the second value has a buffer");
    }
    let_go(&rig);
    assert_eq!(run(&rig, &mut first, 300), [1]);
    assert_eq!(run(&rig, &mut second, 3000), [2]);
    rig.machine(|machine| assert_eq!(machine.servers[0].staging_in_use(), 0));
    // So it does when its client goes.
    rig.machine(|machine| machine.engines[0].hold());
    first.submit(&set(b"three"), false, 3).unwrap();
    assert_eq!(run(&rig, &mut first, 300), []);
    drop(first);
    rig.step();
    rig.machine(|machine| assert_eq!(machine.servers[0].clients(), 1));
    second.submit(&set(b"four"), false, 4).unwrap();
    rig.world.borrow_mut().now_ns += 5 * rig.config.staging_idle_ns;
    assert_eq!(run(&rig, &mut second, 300), []);
    assert_eq!(pending(&rig), 1, "of the client that has gone");
    let_go(&rig);
    assert_eq!(run(&rig, &mut second, 3000), [4]);
    rig.machine(|machine| assert_eq!(machine.servers[0].staging_in_use(), 0));
    assert_eq!(pending(&rig), 0);
}

/// A core may sleep while requests wait, and is not put to sleep with answers that are ready.
#[test]
fn a_core_sleeps_while_requests_wait_and_not_when_answers_are_ready() {
    let rig = Rig::new(ServerConfig {
        idle_ns: 10_000,
        ..server()
    });
    let mut client = rig.client(ClientConfig {
        retry_ns: 100_000_000,
        ..impatient()
    });
    rig.world.borrow_mut().sleepy = true;
    hold(&rig);
    client
        .submit(&Command::Get { key: b"n" }, false, 1)
        .unwrap();
    for _ in 0..100 {
        client.poll(rig.now_ns(), &mut |_, _| panic!("too early"));
        rig.step();
    }
    assert_eq!(rig.world.borrow().asleep, [0]);
    // A core that is awake for another reason, as when its disk is ready.
    rig.world.borrow_mut().asleep.clear();
    rig.machine(|machine| {
        machine.servers[0].disarm().unwrap();
        machine.engines[0].let_go();
        let armed = machine.servers[0].arm(u64::MAX).unwrap();
        assert_eq!(armed, cache::herd::Armed::Ready);
    });
    let mut came = 0;
    for _ in 0..3 {
        rig.step();
        client.poll(rig.now_ns(), &mut |_, _| came += 1);
    }
    assert_eq!(came, 1);
}

/// Answers that have become ready leave room for those to the repeats that are in the batch already, though
/// the NIC completes late.
#[test]
fn late_answers_leave_room_for_repeats() {
    const SEND_WR_MAX: u32 = 256;
    const GETS: u32 = 4;
    const REPEATS: u32 = 2;
    let rig = Rig::new(ServerConfig {
        idle_ns: 1,
        ..server()
    });
    let [mut other, mut client] = [(); 2].map(|()| Raw::connect(&rig, 64));
    rig.server_nic.withhold_completions(true);
    let answer_noops = |client: &mut Raw, count| {
        for id in 1..=count {
            client.write(id, &raw(&Request::Noop, id), None);
            rig.step();
            client.answers();
        }
    };
    answer_noops(&mut other, SEND_WR_MAX - GETS - REPEATS);
    answer_noops(&mut client, REPEATS);
    hold(&rig);
    let get = Request::Command(Command::Get { key: b"n" });
    for id in REPEATS + 1..=REPEATS + GETS {
        client.write(id, &raw(&get, id), None);
        rig.step();
    }
    assert_eq!(pending(&rig), GETS as usize);
    rig.world.borrow_mut().frozen.push(0);
    (1..=REPEATS).for_each(|id| client.kick_only(id));
    rig.step();
    rig.world.borrow_mut().frozen.clear();
    let_go(&rig);
    // Before it sleeps the core takes the kicks, which then come before what is ready.
    rig.machine(|machine| {
        let armed = machine.servers[0].arm(u64::MAX).unwrap();
        assert_eq!(armed, cache::herd::Armed::Ready);
    });
    rig.step();
    rig.server_nic.withhold_completions(false);
    for _ in 0..10 {
        rig.step();
    }
    let ids: std::collections::BTreeSet<_> = client.answers().iter().map(|head| head.id).collect();
    assert_eq!(ids, (1..=REPEATS + GETS).collect());
    assert_eq!(pending(&rig), 0);
}

/// Kicks that cannot be looked at before the engine answers do not keep the core awake.
#[test]
fn a_core_whose_promises_are_used_up_sleeps_though_kicks_have_come() {
    const WINDOW: u32 = 1024;
    const CLIENTS: usize = 4;
    let rig = Rig::new(ServerConfig {
        window_max: WINDOW,
        idle_ns: 1,
        ..server()
    });
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Raw::connect(&rig, 0)).collect();
    hold(&rig);
    let get = Request::Command(Command::Get { key: b"n" });
    for id in 1..=WINDOW {
        for client in &mut clients {
            client.write(id, &raw(&get, id), None);
            assert_eq!(client.answers(), []);
        }
        rig.step();
    }
    while rig.step() > 0 {}
    assert_eq!(pending(&rig), CLIENTS * WINDOW as usize);
    clients[0].kick_only(1);
    let arm = || {
        let armed = |machine: &mut super::rig::Machine| machine.servers[0].arm(u64::MAX);
        rig.machine(armed).unwrap()
    };
    assert_eq!(arm(), cache::herd::Armed::Sleep);
    rig.step();
    assert_eq!(arm(), cache::herd::Armed::Sleep);
    let_go(&rig);
    assert_eq!(arm(), cache::herd::Armed::Ready);
    while pending(&rig) > 0 {
        rig.step();
    }
    rig.machine(|machine| assert_eq!(machine.servers[0].stats().kicks, 1, "it is looked at"));
}
