//! Faults of requests and answers: each a test that fails with the code it warns of.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cache::herd::client::BlockingError;
use cache::herd::slots::kick;
use cache::herd::wire::request::{Header, Request};
use cache::herd::{Client, ClientConfig, Command, Outcome, ServerConfig, Status, StoreMode};

use super::raw::Raw;
use super::rig::Rig;
use crate::herd::meddler::{Fate, Message};

fn server(cores: u32) -> ServerConfig {
    ServerConfig {
        cores,
        clients_max: 8,
        handle_rest_ns: 2_000,
        first_id: Some(1),
        ..ServerConfig::default()
    }
}

/// A client that repeats after 20 steps and gives up after 10,000.
fn patient() -> ClientConfig {
    ClientConfig {
        retry_ns: 20_000,
        deadline_ns: 10_000_000,
        lost_ns: 50_000_000,
        control_check_ns: 1_000_000,
        ..ClientConfig::default()
    }
}

/// Loses the messages with these numbers, counted from 0 per kind.
fn lose(kind: Message, numbers: &'static [usize]) -> impl FnMut(Message) -> Fate + Send {
    let mut count = 0;
    move |message| {
        if message != kind {
            return Fate::Pass;
        }
        count += 1;
        if numbers.contains(&(count - 1)) {
            Fate::Lose
        } else {
            Fate::Pass
        }
    }
}

/// Half of a window stays for others while large values are on their way, however many.
#[test]
fn large_values_leave_half_the_window_to_others() {
    let rig = Rig::new(server(1));
    let mut client = rig.client(ClientConfig {
        window: 8,
        ..patient()
    });
    let value = vec![b'v'; 100_000];
    let put = Command::Store {
        mode: StoreMode::Set,
        key: b"large",
        value: &value,
        flags: 0,
        expiry_s: 0,
    };
    (0..3).for_each(|_| client.submit(&put, false, 0).unwrap());
    // The first pieces go alone; when they are answered the others follow, as many as may.
    for _ in 0..3 {
        client.poll(rig.now_ns(), &mut |_, _| {});
        rig.step();
    }
    rig.world.borrow_mut().frozen.push(0);
    for _ in 0..3 {
        client.poll(rig.now_ns(), &mut |_, _| {});
        rig.step();
    }
    let get = Command::Get { key: b"small" };
    let mut taken = 0;
    while client.submit(&get, false, 1).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 4);
    rig.world.borrow_mut().frozen.clear();
    let mut outcomes = 0;
    finish(&rig, &mut client, |_, _| outcomes += 1);
    assert_eq!(outcomes, 7);
}

/// Polls until everything has an outcome.
fn finish<D: cache::herd::client::Dial>(
    rig: &Rig,
    client: &mut Client<D>,
    mut sink: impl FnMut(u64, Outcome<'_>),
) {
    for _ in 0..100_000 {
        client.poll(rig.now_ns(), &mut sink);
        if client.waiting() == 0 {
            return;
        }
        rig.step();
    }
    panic!(
        "{} commands are left over: {:?}",
        client.waiting(),
        client.stats()
    );
}

#[test]
fn a_lost_request_is_repeated_and_the_order_is_kept() {
    let rig = Rig::new(server(1));
    let mut client = rig.client(patient());
    rig.client_nic.set(lose(Message::Request, &[0, 5, 6]));
    for number in 0..16u64 {
        let value = number.to_string();
        let set = Command::Store {
            mode: StoreMode::Set,
            key: b"key",
            value: value.as_bytes(),
            flags: 0,
            expiry_s: 0,
        };
        client.submit(&set, false, number).unwrap();
    }
    let mut outcomes = Vec::new();
    finish(&rig, &mut client, |tag, outcome| {
        assert_eq!(outcome, Outcome::Done { cas: 0 });
        outcomes.push(tag);
    });
    if !super::IN_ORDER {
        outcomes.sort_unstable();
    }
    assert_eq!(outcomes, (0..16).collect::<Vec<_>>());
    assert!(client.stats().repeats >= 3);
    let mut last = Vec::new();
    client
        .submit(&Command::Get { key: b"key" }, false, 99)
        .unwrap();
    finish(&rig, &mut client, |_, outcome| {
        if let Outcome::Value { value, .. } = outcome {
            last = value.to_vec();
        }
    });
    assert_eq!(last, b"15");
}

#[test]
fn a_lost_answer_is_sent_again_and_nothing_done_twice() {
    let rig = Rig::new(server(1));
    let mut client = rig.blocking(patient());
    client.set(b"count", b"0").unwrap();
    rig.server_nic.set(lose(Message::Answer, &[0, 1, 2]));
    assert_eq!(client.incr(b"count", 1).unwrap(), 1);
    rig.server_nic.set(lose(Message::Answer, &[0]));
    assert_eq!(client.get(b"count").unwrap().unwrap().value, b"1");
    rig.server_nic.set(lose(Message::Answer, &[0]));
    client.add(b"new", b"x").unwrap();
    rig.server_nic.set(lose(Message::Answer, &[0]));
    client.delete(b"new").unwrap();
    let stats = rig.machine(|machine| machine.servers[0].stats());
    assert_eq!(stats.replays, 6);
    assert_eq!(stats.requests, 5);
}

#[test]
fn a_doubled_answer_counts_once() {
    let rig = Rig::new(server(1));
    let mut client = rig.client(patient());
    rig.server_nic.set(|_| Fate::Double);
    let mut count = 0;
    for number in 0..100 {
        client
            .submit(&Command::Get { key: b"key" }, false, number)
            .unwrap();
        finish(&rig, &mut client, |tag, _| {
            assert_eq!(tag, number);
            count += 1;
        });
    }
    assert_eq!(count, 100);
    assert!(client.stats().strays >= 90, "{:?}", client.stats());
}

#[test]
fn answers_out_of_order_find_their_requests() {
    let rig = Rig::new(server(1));
    let mut client = rig.client(patient());
    let mut setter = rig.blocking(patient());
    for number in 0..16u64 {
        setter
            .set(&number.to_le_bytes(), &number.to_le_bytes())
            .unwrap();
    }
    let mut even = false;
    rig.server_nic.set(move |_| {
        even = !even;
        if even { Fate::Hold } else { Fate::Pass }
    });
    for number in 0..16u64 {
        let get = Command::Get {
            key: &number.to_le_bytes(),
        };
        client.submit(&get, false, number).unwrap();
    }
    let mut order = Vec::new();
    finish(&rig, &mut client, |tag, outcome| {
        order.push(tag);
        match outcome {
            Outcome::Value { value, .. } => assert_eq!(value, tag.to_le_bytes()),
            other => panic!("{other:?}"),
        }
    });
    assert!(!order.is_sorted());
    assert_eq!(order.len(), 16);
}

#[test]
fn increments_are_carried_out_exactly_once_in_a_storm() {
    for seed in 0..10 {
        let rig = Rig::new(server(2));
        let mut setter = rig.blocking(patient());
        for key in 0..4u8 {
            setter.set(&[key], b"0").unwrap();
        }
        let storm = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            move |message| match (random.u8(..100), message) {
                (0..15, _) => Fate::Lose,
                (15..25, Message::Answer) => Fate::Double,
                (25..35, Message::Answer) => Fate::Hold,
                _ => Fate::Pass,
            }
        };
        rig.client_nic.set(storm(seed));
        rig.server_nic.set(storm(seed + 1000));
        let config = ClientConfig {
            deadline_ns: 1_000_000_000,
            ..patient()
        };
        let mut clients: Vec<_> = (0..3).map(|_| rig.client(config.clone())).collect();
        let mut expected = [0; 4];
        let mut numbers = Vec::new();
        for round in 0..4000u64 {
            for client in &mut clients {
                let key = round % 4;
                let incr = Command::Incr {
                    key: &[key as u8],
                    delta: 1,
                };
                if round < 2000 && client.submit(&incr, false, key).is_ok() {
                    expected[key as usize] += 1;
                }
                client.poll(rig.now_ns(), &mut |tag, outcome| match outcome {
                    Outcome::Number { value, .. } => numbers.push((tag, value)),
                    other => panic!("seed {seed}: {other:?}"),
                });
            }
            rig.step();
        }
        for client in &mut clients {
            finish(&rig, client, |tag, outcome| match outcome {
                Outcome::Number { value, .. } => numbers.push((tag, value)),
                other => panic!("seed {seed}: {other:?}"),
            });
        }
        // Each number from 1 on was answered once.
        numbers.sort_unstable();
        let all = (0..4).flat_map(|key| (1..=expected[key as usize]).map(move |n| (key, n)));
        assert!(numbers.into_iter().eq(all), "seed {seed}");
    }
}

#[test]
fn ids_wrap_without_a_gap() {
    for before in [1, 15, 16, 17, 40] {
        let rig = Rig::new(ServerConfig {
            first_id: Some(u32::MAX - before),
            ..server(1)
        });
        let mut random = fastrand::Rng::with_seed(u64::from(before));
        rig.server_nic.set(move |_| match random.u8(..10) {
            0..3 => Fate::Lose,
            3 => Fate::Double,
            _ => Fate::Pass,
        });
        let mut setter = rig.blocking(patient());
        setter.set(b"n", b"0").unwrap();
        let mut client = rig.client(patient());
        let (mut sent, mut numbers) = (0, Vec::new());
        while numbers.len() < 200 {
            let incr = Command::Incr {
                key: b"n",
                delta: 1,
            };
            if sent < 200 && client.submit(&incr, false, 0).is_ok() {
                sent += 1;
                continue;
            }
            client.poll(rig.now_ns(), &mut |_, outcome| match outcome {
                Outcome::Number { value, .. } => numbers.push(value),
                other => panic!("{other:?}"),
            });
            rig.step();
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=200));
    }
}

#[test]
fn a_get_after_a_put_in_the_same_slot_is_a_get() {
    let rig = Rig::new(server(1));
    let mut client = rig.blocking(ClientConfig {
        window: 1,
        ..patient()
    });
    for round in 0..50u8 {
        client
            .set(b"key", &vec![round; usize::from(round) * 3])
            .unwrap();
        let item = client.get(b"key").unwrap().unwrap();
        assert_eq!(item.value, vec![round; usize::from(round) * 3]);
    }
}

#[test]
fn odd_bytes_are_answered_as_invalid_and_touch_nobody() {
    let rig = Rig::new(server(1));
    let mut good = rig.blocking(patient());
    good.set(b"key", b"value").unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..40 {
        let mut raw = Raw::connect(&rig, 64);
        rig.step();
        let (mut next, mut answers) = (1, 0);
        for _ in 0..40 {
            let mut bytes = vec![0; [8, 16, 64, 200, 1024][random.usize(..5)]];
            random.fill(&mut bytes);
            let at = bytes.len() - 8;
            let mut header = Header::parse(&bytes).unwrap();
            header.id = next;
            if random.bool() {
                // Near to sense: a known operation with odd lengths.
                header.op = random.u8(1..=16);
                header.key_len = random.u8(..);
                header.value_len = random.u16(..1100);
            }
            // Nor may it hit the good client's key by chance.
            bytes[at..].copy_from_slice(&header.emit());
            raw.write(next, &bytes, random.bool().then(|| random.u32(..4)));
            next += 1;
            rig.settle();
            answers += raw.answers().len();
        }
        assert!(answers >= 40);
        assert_eq!(good.get(b"key").unwrap().unwrap().value, b"value");
    }
    let stats = rig.machine(|machine| machine.servers[0].stats());
    assert!(stats.invalid > 100);
}

#[test]
fn a_slot_that_changes_between_header_and_body_harms_nobody() {
    let rig = Rig::new(server(1));
    let mut raw = Raw::connect(&rig, 64);
    rig.step();
    // The id of the next request, but the rest of the slot as an earlier one left it.
    let mut slot = [0; 256];
    let set = Request::Command(Command::Store {
        mode: StoreMode::Set,
        key: b"torn",
        value: &[1; 100],
        flags: 0,
        expiry_s: 0,
    });
    let len = set.emit(1, false, &mut slot).unwrap();
    raw.write(1, &slot[256 - len..], None);
    rig.settle();
    let window = raw.accept.window;
    for id in 2..=window {
        raw.write(id, &[0xff, 0xff, 0xff, 0xff, id as u8, 0, 0, 0], None);
    }
    rig.step();
    // Only the id is new: the old SET, under the new id.
    raw.write(window + 1, &(window + 1).to_le_bytes(), None);
    rig.settle();
    let heads = raw.answers();
    assert_eq!(heads.len() as u32, window + 1);
    assert_eq!(heads[0].status, Status::Ok);
    assert!(
        heads[1..window as usize]
            .iter()
            .all(|head| head.status == Status::Invalid)
    );
    assert_eq!(heads[window as usize].status, Status::Ok);
}

#[test]
fn kicks_for_stale_and_future_ids_do_nothing() {
    let rig = Rig::new(server(1));
    let mut raw = Raw::connect(&rig, 64);
    rig.step();
    let incr = |id: u32| {
        let mut slot = [0; 64];
        let incr = Request::Command(Command::Incr {
            key: b"n",
            delta: 1,
        });
        let len = incr.emit(id, false, &mut slot).unwrap();
        slot[64 - len..].to_vec()
    };
    for id in 1..=20 {
        raw.write(id, &incr(id), None);
        rig.step();
    }
    assert_eq!(raw.answers().len(), 20);
    // Ids whose slot holds another one, never came, or are no ids at all.
    for id in [0, 1, 2, 4, 21, 36, 1000, u32::MAX] {
        raw.kick_only(id);
        rig.step();
    }
    assert_eq!(raw.answers().len(), 0);
    // A first kick only wakes: what it came with has been answered.
    raw.write(20, &incr(20), Some(kick(20, false)));
    rig.step();
    assert_eq!(raw.answers().len(), 0);
    // A repeat of one that is still there is answered.
    raw.write(20, &incr(20), Some(kick(20, true)));
    rig.step();
    assert_eq!(raw.answers().len(), 1);
    let stats = rig.machine(|machine| machine.servers[0].stats());
    assert_eq!((stats.requests, stats.replays), (20, 1));
}

#[test]
fn a_client_without_recvs_holds_up_nobody() {
    let rig = Rig::new(server(1));
    let mut raw = Raw::connect(&rig, 0);
    let mut good = rig.blocking(patient());
    for id in 1..200 {
        let mut slot = [0; 64];
        let get = Request::Command(Command::Get { key: b"x" });
        let len = get.emit(id, false, &mut slot).unwrap();
        raw.write(id, &slot[64 - len..], Some(kick(id, false)));
        good.set(b"key", b"value").unwrap();
        assert!(raw.answers().is_empty());
    }
    let stats = rig.machine(|machine| machine.servers[0].stats());
    assert_eq!(stats.post_errors + stats.send_errors, 0);
    assert_eq!(good.client().stats().repeats, 0);
}

#[test]
fn a_timed_out_request_is_never_carried_out_and_frees_its_slot() {
    let rig = Rig::new(server(1));
    let mut client = rig.blocking(ClientConfig {
        window: 2,
        deadline_ns: 500_000,
        ..patient()
    });
    client.set(b"key", b"before").unwrap();
    rig.world.borrow_mut().frozen = vec![0];
    for _ in 0..4 {
        let late = client.set(b"key", b"after");
        assert!(matches!(late, Err(BlockingError::TimedOut)), "{late:?}");
    }
    rig.world.borrow_mut().frozen.clear();
    assert_eq!(client.get(b"key").unwrap().unwrap().value, b"before");
    for _ in 0..8 {
        client.set(b"key", b"again").unwrap();
    }
}

#[test]
fn large_values_survive_a_storm() {
    for seed in 0..4 {
        let rig = Rig::new(server(2));
        let storm = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            move |message| match (random.u8(..100), message) {
                (0..5, _) => Fate::Lose,
                (5..8, Message::Answer) => Fate::Double,
                _ => Fate::Pass,
            }
        };
        rig.client_nic.set(storm(seed));
        rig.server_nic.set(storm(seed + 1000));
        let mut client = rig.blocking(ClientConfig {
            deadline_ns: 1_000_000_000,
            ..patient()
        });
        for len in [1001, 4073, 30_000, 100_000, 1 << 20] {
            let value: Vec<u8> = (0..len).map(|at: u32| (at ^ at >> 8) as u8).collect();
            client
                .store(StoreMode::Set, b"large", &value, 5, 0)
                .unwrap();
            let item = client.get(b"large").unwrap().unwrap();
            assert!(item.value == value && item.flags == 5, "seed {seed}, {len}");
        }
        let staged = |machine: &mut super::rig::Machine| {
            machine
                .servers
                .iter()
                .map(|server| server.staging_in_use())
                .sum::<usize>()
        };
        assert_eq!(rig.machine(staged), 0);
    }
}

#[test]
fn a_client_that_is_slow_comes_to_the_end_of_a_large_value() {
    let rig = Rig::new(ServerConfig {
        staging_idle_ns: 10_000,
        ..server(1)
    });
    let mut client = rig.client(ClientConfig {
        retry_ns: 1_000_000_000,
        deadline_ns: 10_000_000_000,
        lost_ns: 10_000_000_000,
        ..patient()
    });
    let value = vec![3; 100_000];
    let set = Command::Store {
        mode: StoreMode::Set,
        key: b"large",
        value: &value,
        flags: 0,
        expiry_s: 0,
    };
    client.submit(&set, false, 0).unwrap();
    for _ in 0..100 {
        let mut stored = false;
        client.poll(rig.now_ns(), &mut |_, outcome| {
            assert_eq!(outcome, Outcome::Done { cas: 0 });
            stored = true;
        });
        if stored {
            return;
        }
        // Pieces come much more seldom than the server waits for them.
        for _ in 0..200 {
            rig.step();
        }
    }
    panic!("it begins anew again and again");
}

#[test]
fn a_large_value_is_read_from_one_version() {
    let rig = Rig::new(server(1));
    let mut reader = rig.client(patient());
    let mut writer = rig.client(patient());
    let values: Vec<Vec<u8>> = (1..4u8).map(|fill| vec![fill; 40_000]).collect();
    let set = |value| Command::Store {
        mode: StoreMode::Set,
        key: b"large",
        value,
        flags: 0,
        expiry_s: 0,
    };
    writer.submit(&set(&values[0]), false, 0).unwrap();
    finish(&rig, &mut writer, |_, _| {});
    let mut read = 0;
    for round in 0..400 {
        if writer.waiting() == 0 && round % 12 == 0 {
            writer.submit(&set(&values[round % 3]), false, 0).unwrap();
        }
        if reader.waiting() == 0 {
            reader
                .submit(&Command::Get { key: b"large" }, false, 0)
                .unwrap();
        }
        writer.poll(rig.now_ns(), &mut |_, outcome| {
            assert_eq!(outcome, Outcome::Done { cas: 0 });
        });
        reader.poll(rig.now_ns(), &mut |_, outcome| match outcome {
            Outcome::Value { value, .. } => {
                assert!(values.iter().any(|one| one == value));
                read += 1;
            }
            other => panic!("{other:?}"),
        });
        rig.step();
    }
    assert!(read > 10, "{read}");
}

#[test]
fn clients_share_a_single_staging_buffer() {
    let rig = Rig::new(ServerConfig {
        staging_count: 1,
        ..server(1)
    });
    let mut clients: Vec<_> = (0..3).map(|_| rig.client(patient())).collect();
    let value = vec![9; 50_000];
    for client in &mut clients {
        for key in [b"a", b"b"] {
            let set = Command::Store {
                mode: StoreMode::Set,
                key,
                value: &value,
                flags: 0,
                expiry_s: 0,
            };
            client.submit(&set, false, 0).unwrap();
        }
    }
    let mut stored = 0;
    for _ in 0..100_000 {
        for client in &mut clients {
            client.poll(rig.now_ns(), &mut |_, outcome| {
                assert_eq!(outcome, Outcome::Done { cas: 0 });
                stored += 1;
            });
        }
        rig.step();
        if stored == 6 {
            return;
        }
    }
    panic!("{stored} of 6 were stored");
}

/// Whoever kicks without end has its repeats, and others are served as well.
#[test]
fn a_flood_of_kicks_leaves_room_for_others() {
    for batch_max in [32, 1] {
        let rig = Rig::new(ServerConfig {
            batch_max,
            window_max: 64,
            ..server(1)
        });
        let noop = |id| {
            let mut bytes = [0; 8];
            Request::Noop.emit(id, false, &mut bytes).unwrap();
            bytes
        };
        let [mut flooder, mut other] = [(); 2].map(|()| Raw::connect(&rig, 1));
        rig.step();
        let window = flooder.accept.window;
        for id in 1..=window {
            flooder.write(id, &noop(id), None);
            rig.step();
        }
        let mut flood = (1..=window).cycle();
        let mut flooded_step = |flooder: &mut Raw| {
            for _ in 0..4 {
                flood.by_ref().take(32).for_each(|id| flooder.kick_only(id));
                // Its queue takes no more before its completions are taken.
                flooder.answers();
            }
            rig.step();
        };
        flooded_step(&mut flooder);
        other.write(1, &noop(1), None);
        for _ in 0..4 {
            flooded_step(&mut flooder);
        }
        assert_eq!(other.answers().len(), 1, "batches of {batch_max}");
        let replays = rig.machine(|machine| machine.servers[0].stats().replays);
        assert!(replays > 0);
    }
}

/// A kick for a request whose slot is being written again asks for nothing: its client has the answer.
#[test]
fn a_kick_for_half_a_request_is_not_answered() {
    let rig = Rig::new(server(1));
    let mut client = Raw::connect(&rig, 4);
    rig.step();
    let mut noop = [0; 8];
    Request::Noop.emit(1, false, &mut noop).unwrap();
    client.write(1, &noop, None);
    rig.step();
    assert_eq!(client.answers().len(), 1);
    client.kick_only(1);
    rig.step();
    assert_eq!(client.answers().len(), 1);
    // The id is what a WRITE places last.
    noop[..4].fill(0xff);
    client.write(1, &noop, None);
    client.kick_only(1);
    rig.step();
    assert_eq!(client.answers().len(), 0);
    let stats = rig.machine(|machine| machine.servers[0].stats());
    assert_eq!((stats.replays, stats.invalid), (2, 0));
}

/// The kicks of one take no RECV from another, whose request would be lost with its kick.
#[test]
fn a_flood_of_kicks_costs_nobody_else_a_request() {
    let rig = Rig::new(ServerConfig {
        // As a core may sleep at once, every request comes with a kick.
        idle_ns: 1,
        ..server(1)
    });
    let mut flooder = Raw::connect(&rig, 1);
    let mut honest = rig.client(patient());
    rig.step();
    let (mut asked, mut answered) = (0, 0);
    for _ in 0..100 {
        for _ in 0..10 {
            (0..32).for_each(|_| flooder.kick_only(1));
            // Its queue takes no more before its completions are taken.
            flooder.answers();
        }
        if asked == answered {
            let get = Command::Get { key: b"nothing" };
            honest.submit(&get, false, 0).unwrap();
            asked += 1;
        }
        honest.poll(rig.now_ns(), &mut |_, outcome| {
            assert_eq!(outcome, Outcome::Refused(Status::NotFound));
            answered += 1;
        });
        rig.step();
    }
    let stats = honest.stats();
    assert!(stats.kicks >= asked && asked > 10, "{asked}: {stats:?}");
    assert_eq!(stats.repeats, 0, "{stats:?}");
}

#[test]
fn what_the_nic_refuses_is_not_counted_as_posted() {
    let rig = Rig::new(server(1));
    let mut client = rig.client(patient());
    let passed = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    for (nic, passed) in [&rig.server_nic, &rig.client_nic].into_iter().zip(&passed) {
        let passed = Arc::clone(passed);
        let mut seen = 0;
        nic.set(move |_| {
            seen += 1;
            if seen == 2 {
                return Fate::Refuse;
            }
            passed.fetch_add(1, Ordering::Relaxed);
            Fate::Pass
        });
    }
    for tag in 0..8 {
        let get = Command::Get { key: b"nothing" };
        client.submit(&get, false, tag).unwrap();
    }
    let mut answered = 0;
    finish(&rig, &mut client, |_, outcome| {
        assert_eq!(outcome, Outcome::Refused(Status::NotFound));
        answered += 1;
    });
    assert_eq!(answered, 8);
    let [answers, requests] = passed.map(|passed| passed.load(Ordering::Relaxed));
    let stats = rig.machine(|machine| machine.servers[0].stats());
    assert!(stats.post_errors > 0);
    assert_eq!(stats.answers, answers);
    let stats = client.stats();
    assert_eq!(stats.post_errors, 7, "all but the first of the batch");
    assert_eq!(stats.posted + stats.repeats, requests);
}
