//! What the operations mean, whole and undisturbed.

use std::collections::HashMap;

use cache::herd::client::BlockingError;
use cache::herd::{ClientConfig, Command, Outcome, ServerConfig, Status, StoreMode, SubmitError};

use super::rig::Rig;

fn config(cores: u32) -> ServerConfig {
    ServerConfig {
        cores,
        clients_max: 8,
        value_len_max: 1 << 20,
        ..ServerConfig::default()
    }
}

fn refused(result: Result<impl std::fmt::Debug, BlockingError>) -> Status {
    match result {
        Err(BlockingError::Refused(status)) => status,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn every_operation_does_what_memcached_says() {
    let rig = Rig::new(config(2));
    let mut client = rig.blocking(ClientConfig::default());
    assert_eq!(client.get(b"a").unwrap(), None);
    let first = client.store(StoreMode::Set, b"a", b"one", 7, 0).unwrap();
    let item = client.get(b"a").unwrap().unwrap();
    assert_eq!(
        (&item.value[..], item.flags, item.cas),
        (&b"one"[..], 7, first)
    );
    assert_eq!(refused(client.add(b"a", b"x")), Status::NotStored);
    assert_eq!(refused(client.replace(b"b", b"x")), Status::NotStored);
    let second = client.store(StoreMode::Append, b"a", b"+", 0, 0).unwrap();
    assert_ne!(first, second);
    client.store(StoreMode::Prepend, b"a", b"-", 0, 0).unwrap();
    let item = client.get(b"a").unwrap().unwrap();
    assert_eq!((&item.value[..], item.flags), (&b"-one+"[..], 7));
    let stale = client.store(StoreMode::Cas(first), b"a", b"x", 0, 0);
    assert_eq!(refused(stale), Status::Exists);
    client
        .store(StoreMode::Cas(item.cas), b"a", b"41", 0, 0)
        .unwrap();
    assert_eq!(client.incr(b"a", 2).unwrap(), 43);
    assert_eq!(client.decr(b"a", 50).unwrap(), 0);
    assert_eq!(refused(client.incr(b"nothing", 2)), Status::NotFound);
    client.set(b"word", b"word").unwrap();
    assert_eq!(refused(client.incr(b"word", 2)), Status::NotANumber);
    let now_s = rig.world.borrow().now_s;
    client.touch(b"word", now_s + 10).unwrap();
    assert!(client.get_and_touch(b"a", now_s + 20).unwrap().is_some());
    rig.world.borrow_mut().now_s = now_s + 10;
    assert_eq!(client.get(b"word").unwrap(), None);
    assert!(client.get(b"a").unwrap().is_some());
    client.delete(b"a").unwrap();
    assert_eq!(refused(client.delete(b"a")), Status::NotFound);
    let stats = rig.machine(|machine| machine.servers[0].stats());
    assert_eq!(
        (stats.invalid, stats.wrong_core, stats.post_errors),
        (0, 0, 0)
    );
}

/// What a client asks most often has a short way through client, server and table: keys of 16 bytes,
/// no token, an answer in one datagram.
#[test]
fn requests_without_a_token_are_answered_the_same() {
    let rig = Rig::new(config(2));
    let mut client = rig.client(ClientConfig::default());
    let mut call = |command: Command<'_>| {
        client.submit(&command, false, 5).unwrap();
        let mut answer = None;
        for _ in 0..100_000 {
            client.poll(rig.now_ns(), &mut |tag, outcome| {
                assert_eq!(tag, 5);
                answer = Some(match outcome {
                    Outcome::Value { value, flags, cas } => {
                        assert_eq!(cas, 0);
                        Some((value.to_vec(), flags))
                    }
                    Outcome::Done { cas: 0 } | Outcome::Refused(Status::NotFound) => None,
                    other => panic!("{other:?}"),
                });
            });
            if let Some(answer) = answer.take() {
                return answer;
            }
            rig.step();
        }
        panic!("no answer to {command:?}");
    };
    let lens = [0, 1, 31, 32, 33, 216, 224, 232, 239, 240, 241, 256, 1000];
    for key_len in [1, 15, 16, 17, 32, 250] {
        for (len, number) in lens.into_iter().zip(1..) {
            // Keys that differ only at an end.
            for at in [0, key_len - 1] {
                let mut key = vec![b'k'; key_len];
                key[at] = number;
                let value = vec![number ^ at as u8; len];
                let flags = u32::from(number) << 24 | 0x0001_0203;
                assert_eq!(call(Command::Get { key: &key }), None);
                let (mode, value) = (StoreMode::Set, &value);
                let (key, expiry_s) = (&key, 0);
                let set = Command::Store {
                    mode,
                    key,
                    value,
                    flags,
                    expiry_s,
                };
                call(set);
                let got = call(Command::Get { key });
                assert_eq!(got, Some((value.clone(), flags)), "{key_len}, {len}");
                call(Command::Delete { key });
                assert_eq!(call(Command::Get { key }), None);
            }
        }
    }
}

#[test]
fn values_of_every_length_come_back() {
    let rig = Rig::new(config(2));
    let mut client = rig.blocking(ClientConfig::default());
    let lens = [
        0,
        1,
        31,
        32,
        33,
        200,
        216,
        217,
        255,
        256,
        257,
        991,
        992,
        993,
        1000,
        1001,
        4071,
        4072,
        4073,
        5000,
        65_536,
        1 << 20,
    ];
    for len in lens {
        let value: Vec<u8> = (0..len).map(|at: u32| (at * 7 + at / 251) as u8).collect();
        let key = format!("key of {len}");
        client.set(key.as_bytes(), &value).unwrap();
        let item = client.get(key.as_bytes()).unwrap().unwrap();
        assert!(item.value == value, "{len}");
    }
    assert_eq!(
        rig.machine(|machine| machine.servers[0].staging_in_use()),
        0
    );
    let too_large = vec![0; (1 << 20) + 1];
    assert!(matches!(
        client.set(b"key", &too_large),
        Err(BlockingError::Submit(SubmitError::TooLarge(_)))
    ));
}

#[test]
fn keys_of_any_bytes_and_length_work() {
    let rig = Rig::new(config(2));
    let mut client = rig.blocking(ClientConfig::default());
    for len in [1, 2, 7, 8, 15, 16, 17, 100, 249, 250] {
        for fill in [0, 1, 0xff] {
            let mut key = vec![fill; len];
            key[len - 1] = len as u8;
            client.set(&key, &key).unwrap();
            assert_eq!(client.get(&key).unwrap().unwrap().value, key);
            let zeros = vec![0; len];
            client.set(&zeros, b"zeros").unwrap();
            assert_eq!(client.get(&zeros).unwrap().unwrap().value, b"zeros");
        }
    }
    assert!(client.get(&[0; 251]).is_err());
    assert!(client.get(&[]).is_err());
}

#[test]
fn random_operations_match_a_model() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let rig = Rig::new(config(1 + seed as u32 % 3));
        let mut client = rig.blocking(ClientConfig {
            window: 4,
            ..ClientConfig::default()
        });
        let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        for _ in 0..400 {
            let key = vec![random.u8(..20); 16];
            match random.u8(..6) {
                0 | 1 => {
                    let value = vec![random.u8(..); random.usize(..3000)];
                    client.set(&key, &value).unwrap();
                    model.insert(key, value);
                }
                2 => {
                    let removed = client.delete(&key);
                    match model.remove(&key) {
                        Some(_) => removed.unwrap(),
                        None => assert_eq!(refused(removed), Status::NotFound),
                    }
                }
                3 => {
                    let number = random.u32(..).to_string();
                    let added = client.add(&key, number.as_bytes());
                    match model.get(&key) {
                        Some(_) => assert_eq!(refused(added), Status::NotStored),
                        None => {
                            added.unwrap();
                            model.insert(key, number.into_bytes());
                        }
                    }
                }
                _ => {
                    let got = client.get(&key).unwrap().map(|item| item.value);
                    assert_eq!(got.as_ref(), model.get(&key), "seed {seed}");
                }
            }
        }
        let keys: Vec<Vec<u8>> = (0..20).map(|byte| vec![byte; 16]).collect();
        let refs: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let items = client.get_many(&refs).unwrap();
        for (key, item) in keys.iter().zip(items) {
            assert_eq!(
                item.map(|item| item.value).as_ref(),
                model.get(key),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn a_window_is_filled_to_each_core_on_its_own() {
    let rig = Rig::new(config(2));
    let mut client = rig.client(ClientConfig {
        window: 4,
        ..ClientConfig::default()
    });
    rig.world.borrow_mut().frozen = vec![0];
    let mut taken = 0;
    for number in 0..200u64 {
        let key = number.to_le_bytes();
        if client
            .submit(&Command::Get { key: &key }, false, number)
            .is_ok()
        {
            taken += 1;
        }
    }
    assert_eq!(taken, 8);
    let mut answered = 0;
    for _ in 0..20 {
        client.poll(rig.now_ns(), &mut |_, outcome| {
            assert_eq!(outcome, Outcome::Refused(Status::NotFound));
            answered += 1;
        });
        rig.step();
    }
    // The frozen core holds up its own window only.
    assert_eq!(answered, 4);
    assert_eq!(client.waiting(), 4);
}

/// An item that would grow too long stays as it is, and its client is told why.
#[test]
fn what_would_grow_too_long_is_refused_as_too_large() {
    let rig = Rig::new(config(1));
    let mut client = rig.blocking(ClientConfig::default());
    let piece = vec![7; 1000];
    client.set(b"k", &piece).unwrap();
    let mut len = piece.len();
    for mode in [StoreMode::Append, StoreMode::Prepend].into_iter().cycle() {
        match client.store(mode, b"k", &piece, 0, 0) {
            Ok(_) => len += piece.len(),
            refusal => {
                assert_eq!(refused(refusal), Status::TooLarge);
                break;
            }
        }
    }
    assert!(len > 10 * piece.len());
    assert_eq!(client.get(b"k").unwrap().unwrap().value.len(), len);
}

#[test]
fn a_value_that_appending_made_too_long_to_send_can_be_read() {
    let rig = Rig::new(ServerConfig {
        value_len_max: 6_000,
        ..config(1)
    });
    let mut client = rig.blocking(ClientConfig::default());
    let piece = vec![7; 5_000];
    client.set(b"key", &piece).unwrap();
    for pieces in 2..6 {
        client
            .store(StoreMode::Append, b"key", &piece, 0, 0)
            .unwrap();
        let value = client.get(b"key").unwrap().unwrap().value;
        assert_eq!(value, vec![7; pieces * 5_000]);
    }
}

/// More clients than buffers, all of which store large values without a pause: none is left behind.
#[test]
fn large_values_of_many_clients_take_turns() {
    const CLIENTS: usize = 12;
    const PUTS: usize = 20 * CLIENTS;
    let rig = Rig::new(ServerConfig {
        clients_max: CLIENTS as u32,
        staging_count: 2,
        ..config(1)
    });
    let patient = ClientConfig {
        deadline_ns: u64::MAX / 2,
        ..ClientConfig::default()
    };
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| rig.client(patient.clone())).collect();
    let value = vec![7; 20_000];
    let mut stored = [0; CLIENTS];
    while stored.iter().sum::<usize>() < PUTS {
        for (number, client) in clients.iter_mut().enumerate() {
            if client.waiting() == 0 {
                let put = Command::Store {
                    mode: StoreMode::Set,
                    key: &[number as u8],
                    value: &value,
                    flags: 0,
                    expiry_s: 0,
                };
                client.submit(&put, false, 0).unwrap();
            }
            client.poll(rig.now_ns(), &mut |_, outcome| {
                assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
                stored[number] += 1;
            });
        }
        rig.step();
    }
    let least = stored.iter().min();
    assert!(least.is_some_and(|&least| least >= 15), "{stored:?}");
}
