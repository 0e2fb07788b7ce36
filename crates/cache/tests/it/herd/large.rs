//! Large values on their way out, where each has to be waited for and all places are taken.

use std::io;

use cache::herd::client::Dial;
use cache::herd::local::LocalStream;
use cache::herd::wire::request::Request;
use cache::herd::{
    Client, ClientConfig, Command, Outcome, ServerConfig, Status, StoreMode, SubmitError,
};
use engine::{Ask, Asker, Engine, Expiry, LateEngine, Limits, MapEngine, Mode};

use super::raw::Raw;
use super::rig::Rig;

/// Bytes of the first piece.
const PIECE_LEN: u32 = 4096 - 24;
/// Five pieces, and two.
const LENS: [u32; 2] = [20_000, 5_000];
/// Places for values.
const PLACES: usize = 4;
/// Longer than a place may be idle, and than a value may have one that others want.
const IDLE_NS: u64 = 21_000_000;
const HELD_NS: u64 = 101_000_000;
/// Steps in which a client that pauses asks again.
const PAUSE_STEPS: usize = 1_000;

fn server() -> ServerConfig {
    ServerConfig {
        clients_max: 16,
        first_id: Some(1),
        idle_ns: 10_000,
        staging_count: PLACES as u32,
        ..ServerConfig::default()
    }
}

fn rig() -> Rig {
    rig_of(server())
}

fn rig_of(config: ServerConfig) -> Rig {
    let rig = Rig::new(config);
    // Every answer comes later.
    rig.machine(|machine| {
        let limits = Limits {
            item_size_max: 2 << 20,
            value_size_max: cache::mica::VALUE_BYTES_MAX,
        };
        machine.engines[0] = LateEngine::new(MapEngine::with_limits(limits), 7, 100);
    });
    rig
}

fn value(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8).collect()
}

fn key_of(len: u32) -> Vec<u8> {
    format!("of {len} bytes").into_bytes()
}

/// Stores values of these lengths, and forgets what that took.
fn store(rig: &Rig) {
    let mut writer = rig.blocking(ClientConfig::default());
    for len in LENS {
        writer.set(&key_of(len), &value(len)).unwrap();
    }
    rig.machine(|machine| machine.servers[0].reset_stats());
}

/// Requests that the engine was asked and did not answer at once.
fn waits(rig: &Rig) -> u64 {
    rig.machine(|machine| machine.servers[0].stats().waits)
}

fn in_use(rig: &Rig) -> usize {
    rig.machine(|machine| machine.servers[0].staging_in_use())
}

fn steps(rig: &Rig, count: usize) {
    for _ in 0..count {
        rig.step();
    }
}

fn pass(rig: &Rig, time_ns: u64) {
    rig.world.borrow_mut().now_ns += time_ns;
}

/// A client that has asked for a value, and asks for its pieces when it likes.
struct Holder {
    raw: Raw,
    next_id: u32,
    key: Vec<u8>,
    len: u32,
    cas: u64,
}

impl Holder {
    /// Asks for a value of this length, and gets its first piece.
    fn new(rig: &Rig, len: u32) -> Holder {
        let mut holder = Holder {
            raw: Raw::connect(rig, 64),
            next_id: 1,
            key: key_of(len),
            len,
            cas: 0,
        };
        holder.get(rig);
        holder
    }

    /// Asks for the value as it is now, and gets its first piece.
    fn get(&mut self, rig: &Rig) {
        let key = self.key.clone();
        self.send(&Request::Command(Command::Get { key: &key }));
        steps(rig, 10);
        let [head] = self.raw.answers()[..] else {
            panic!("one answer");
        };
        assert_eq!((head.status, head.total_len), (Status::Partial, self.len));
        self.cas = head.cas.unwrap();
    }

    fn send(&mut self, request: &Request<'_>) {
        let mut bytes = vec![0; request.len()];
        request.emit(self.next_id, false, &mut bytes);
        self.raw.write(self.next_id, &bytes, None);
        self.next_id += 1;
    }

    /// Asks for a piece; the first one is 0.
    fn ask(&mut self, piece: u32) {
        let (key, offset) = (self.key.clone(), piece * PIECE_LEN);
        self.send(&Request::GetRange {
            key: &key,
            offset,
            len: PIECE_LEN.min(self.len - offset),
            cas: self.cas,
        });
    }

    fn pieces(&self) -> u32 {
        self.len.div_ceil(PIECE_LEN)
    }

    /// Asks for pieces, and checks what comes.
    fn take(&mut self, rig: &Rig, pieces: &[u32]) {
        for &piece in pieces {
            assert_eq!(self.try_to_take(rig, piece), Status::Ok);
        }
    }

    /// Asks for a piece, and checks what comes, if it does.
    fn try_to_take(&mut self, rig: &Rig, piece: u32) -> Status {
        self.ask(piece);
        steps(rig, 10);
        let answers = self.raw.answers_with_bodies();
        let [(head, body)] = &answers[..] else {
            panic!("one answer");
        };
        let whole = value(self.len);
        let from = &whole[(piece * PIECE_LEN) as usize..];
        assert!(from.starts_with(body) && body.is_empty() == (head.status != Status::Ok));
        head.status
    }

    /// Has the server look at its last request again.
    fn repeat(&mut self) {
        self.raw.kick_only(self.next_id - 1);
    }

    /// What it has been answered.
    fn told(&mut self) -> Vec<Status> {
        let answers = self.raw.answers();
        answers.into_iter().map(|head| head.status).collect()
    }
}

/// As many clients as there are places, each with a value of its own.
fn holders(rig: &Rig) -> Vec<Holder> {
    let holders: Vec<_> = (0..PLACES).map(|_| Holder::new(rig, LENS[0])).collect();
    assert_eq!((waits(rig), in_use(rig)), (PLACES as u64, PLACES));
    holders
}

/// A client that repeats nothing.
fn quiet(rig: &Rig) -> Client<impl FnMut() -> io::Result<LocalStream>> {
    rig.client(ClientConfig {
        retry_ns: 1_000_000_000,
        deadline_ns: 10_000_000_000,
        lost_ns: 10_000_000_000,
        ..ClientConfig::default()
    })
}

fn get<D: Dial>(client: &mut Client<D>, len: u32) {
    let key = key_of(len);
    let get = Command::Get { key: &key };
    client.submit(&get, false, len.into()).unwrap();
}

/// Lets both sides run so often; returns the lengths of the values that came.
fn run<D: Dial>(rig: &Rig, client: &mut Client<D>, steps: usize) -> Vec<u32> {
    let mut came = Vec::new();
    for _ in 0..steps {
        client.poll(rig.now_ns(), &mut |tag, outcome| match outcome {
            Outcome::Value { value: got, .. } => {
                assert_eq!(got, value(tag as u32));
                came.push(tag as u32);
            }
            other => panic!("{other:?}"),
        });
        rig.step();
    }
    came
}

/// A value whose pieces are asked for in any order, and again, is read once, and forgotten with the last.
#[test]
fn pieces_in_any_order_come_from_one_read() {
    let rig = rig();
    store(&rig);
    for len in LENS {
        let before = waits(&rig);
        let mut holder = Holder::new(&rig, len);
        let mut pieces: Vec<_> = (2..holder.pieces()).rev().flat_map(|at| [at, at]).collect();
        pieces.extend([0, 1]);
        holder.take(&rig, &pieces);
        assert_eq!((waits(&rig) - before, in_use(&rig)), (1, 0));
    }
}

/// One who finds every place taken waits for one, and has its value read but once more.
#[test]
fn who_finds_no_place_waits_for_the_first_that_is_free() {
    for len in LENS {
        let rig = rig();
        store(&rig);
        let mut holders = holders(&rig);
        let mut client = quiet(&rig);
        get(&mut client, len);
        assert_eq!(run(&rig, &mut client, PAUSE_STEPS), []);
        assert_eq!((waits(&rig), in_use(&rig)), (5, PLACES));
        for holder in &mut holders {
            holder.take(&rig, &[4, 3, 3, 2, 1]);
            assert!(in_use(&rig) <= PLACES);
        }
        assert_eq!(run(&rig, &mut client, PAUSE_STEPS), [len]);
        assert_eq!((waits(&rig), in_use(&rig)), (6, 0));
    }
}

/// Clients that vanish in the middle of a value leave their places: at once when the server sees them go,
/// and else when they have been idle.
#[test]
fn places_of_clients_that_vanish_go_to_those_who_wait() {
    for leave in [true, false] {
        for len in LENS {
            let rig = rig();
            store(&rig);
            let holders = holders(&rig);
            let mut client = quiet(&rig);
            rig.world.borrow_mut().sleepy = true;
            get(&mut client, len);
            assert_eq!(run(&rig, &mut client, PAUSE_STEPS), []);
            if leave {
                drop(holders);
            } else {
                pass(&rig, IDLE_NS);
            }
            assert_eq!(run(&rig, &mut client, PAUSE_STEPS), [len]);
            assert_eq!((waits(&rig), in_use(&rig)), (6, 0));
        }
    }
}

/// Those who have the places may go on for ever: they lose them to whoever waits, and come to the end as
/// well.
#[test]
fn every_wait_ends_though_no_place_is_free() {
    for len in LENS {
        let rig = rig();
        store(&rig);
        let mut holders = holders(&rig);
        let mut client = quiet(&rig);
        get(&mut client, len);
        for turn in 0..10 {
            if turn < 8 {
                assert_eq!(run(&rig, &mut client, PAUSE_STEPS), []);
            }
            assert_eq!(waits(&rig), 5);
            pass(&rig, HELD_NS / 10);
            for holder in &mut holders {
                holder.take(&rig, &[1]);
            }
        }
        assert_eq!(run(&rig, &mut client, PAUSE_STEPS), [len]);
        assert_eq!((waits(&rig), in_use(&rig)), (6, 0));
        for holder in &mut holders {
            holder.take(&rig, &[2, 3, 4]);
        }
        assert_eq!((waits(&rig), in_use(&rig)), (10, 0));
    }
}

/// One client's values wait for each other, for it may not have all places.
#[test]
fn values_of_one_client_wait_for_each_other() {
    let rig = rig();
    store(&rig);
    let mut client = quiet(&rig);
    let keys: Vec<_> = (0..6).map(|number| format!("key {number}")).collect();
    for key in &keys {
        let set = Command::Store {
            mode: StoreMode::Set,
            key: key.as_bytes(),
            value: &value(LENS[0]),
            flags: 0,
            expiry_s: 0,
        };
        client.submit(&set, false, 0).unwrap();
        while client.waiting() > 0 {
            client.poll(rig.now_ns(), &mut |_, outcome| {
                assert!(matches!(outcome, Outcome::Done { .. }));
            });
            rig.step();
        }
    }
    rig.machine(|machine| machine.servers[0].reset_stats());
    for key in &keys {
        let get = Command::Get {
            key: key.as_bytes(),
        };
        client.submit(&get, false, LENS[0].into()).unwrap();
    }
    assert_eq!(run(&rig, &mut client, 500), [LENS[0]; 6]);
    // Three have their places with their first pieces.
    assert!(waits(&rig) <= 3 + 2 * 3, "{} reads", waits(&rig));
    assert_eq!(in_use(&rig), 0);
}

/// However many pieces are asked for of a value that has changed, it is read once to find that out.
#[test]
fn pieces_of_a_value_that_has_changed_cost_one_read() {
    let rig = rig();
    store(&rig);
    let mut late = Holder::new(&rig, LENS[1]);
    late.take(&rig, &[1]);
    let mut writer = rig.blocking(ClientConfig::default());
    writer.set(&key_of(LENS[1]), &value(LENS[0])).unwrap();
    let before = waits(&rig);
    (0..8).for_each(|_| late.ask(1));
    steps(&rig, 20);
    let told = late.told();
    let busy = told.iter().filter(|status| **status == Status::Busy);
    assert_eq!((told.len(), busy.count()), (8, 7));
    assert!(told.contains(&Status::Changed));
    assert_eq!((waits(&rig) - before, in_use(&rig)), (1, 0));
    let key = late.key.clone();
    late.send(&Request::Command(Command::Get { key: &key }));
    steps(&rig, 10);
    assert_eq!(late.told(), [Status::Partial]);
    late.ask(1);
    steps(&rig, 20);
    assert_eq!(late.told(), [Status::Changed]);
    assert_eq!((waits(&rig) - before, in_use(&rig)), (3, 0));
}

/// A value that is kept does not stand in the way of a newer one that need not be waited for.
#[test]
fn a_value_that_was_kept_gives_way_to_a_newer_one_that_is_at_hand() {
    let rig = rig();
    store(&rig);
    let mut holder = Holder::new(&rig, LENS[0]);
    let mut writer = rig.blocking(ClientConfig::default());
    writer.set(&key_of(LENS[0]), &value(LENS[0])).unwrap();
    rig.machine(|machine| machine.engines[0].late_percent = 0);
    holder.get(&rig);
    holder.take(&rig, &[1, 2, 3, 4]);
    assert_eq!(in_use(&rig), 0);
}

/// A client that goes is no longer waited for, nor are its values kept.
#[test]
fn the_turn_of_a_client_goes_with_it() {
    let rig = rig();
    store(&rig);
    let mut holders = holders(&rig);
    let mut late: Vec<_> = (0..3).map(|_| Holder::new(&rig, LENS[1])).collect();
    for one in &mut late {
        assert_eq!(one.try_to_take(&rig, 1), Status::Busy);
    }
    holders[0].take(&rig, &[1, 2, 3, 4]);
    assert_eq!(late[1].try_to_take(&rig, 1), Status::Busy);
    drop(late.remove(0));
    steps(&rig, 10);
    assert_eq!(late[1].try_to_take(&rig, 1), Status::Busy);
    assert_eq!(late[0].try_to_take(&rig, 1), Status::Ok);
    assert_eq!(late[1].try_to_take(&rig, 1), Status::Ok);
    assert_eq!(in_use(&rig), PLACES - 1);
}

/// Whoever repeats without end keeps no place from others, nor gives away one that a value is being read
/// for.
#[test]
fn repeats_neither_wait_for_places_nor_end_them() {
    let rig = rig();
    store(&rig);
    let mut holders = holders(&rig);
    let mut late = [(); 2].map(|()| Holder::new(&rig, LENS[1]));
    let [flooder, other] = &mut late;
    // The answer to its first question, for which it would come again.
    assert_eq!(flooder.try_to_take(&rig, 1), Status::Busy);
    pass(&rig, IDLE_NS / 2);
    for holder in &mut holders {
        holder.take(&rig, &[1]);
    }
    for _ in 0..3 {
        flooder.repeat();
        pass(&rig, IDLE_NS / 4);
        steps(&rig, 10);
        assert_eq!(flooder.told(), [Status::Ok], "from a read of its own");
    }
    holders[0].take(&rig, &[2, 3, 4]);
    assert_eq!(other.try_to_take(&rig, 1), Status::Ok);
    assert_eq!(in_use(&rig), PLACES - 1);
}

/// Requests for values that have no room keep no slots from small ones.
#[test]
fn small_requests_are_not_held_up_by_large_values_that_wait() {
    let rig = rig();
    let mut writer = rig.blocking(ClientConfig::default());
    writer.set(b"small", b"value").unwrap();
    store(&rig);
    let holders = holders(&rig);
    let mut client = rig.client(ClientConfig {
        window: 4,
        retry_ns: 1_000_000_000,
        deadline_ns: 10_000_000_000,
        lost_ns: 10_000_000_000,
        ..ClientConfig::default()
    });
    for len in [LENS[0], LENS[1], LENS[0]] {
        get(&mut client, len);
    }
    assert_eq!(run(&rig, &mut client, PAUSE_STEPS), []);
    for _ in 0..100 {
        let small = Command::Get { key: b"small" };
        let mut came = 0;
        client.submit(&small, false, 1).unwrap();
        client.submit(&small, false, 1).unwrap();
        for _ in 0..20 {
            client.poll(rig.now_ns(), &mut |tag, outcome| {
                assert!(
                    tag == 1
                        && matches!(
                            outcome,
                            Outcome::Value {
                                value: b"value",
                                ..
                            }
                        )
                );
                came += 1;
            });
            rig.step();
        }
        assert_eq!(came, 2);
    }
    drop(holders);
    let mut came = run(&rig, &mut client, 3 * PAUSE_STEPS);
    came.sort_unstable();
    assert_eq!(came, [LENS[1], LENS[0], LENS[0]]);
}

/// A value longer than those that clients store is read for each of its pieces, and not kept.
#[test]
fn a_value_longer_than_the_longest_is_not_kept() {
    let rig = rig_of(ServerConfig {
        value_len_max: LENS[1],
        ..server()
    });
    rig.machine(|machine| {
        for len in LENS {
            let (key, value) = (key_of(len), value(len));
            let engine = &mut machine.engines[0].inner;
            let ask = Ask {
                now_s: 0,
                asker: Asker {
                    connection: 0,
                    room: 0,
                },
                command: engine::Command::Store {
                    mode: Mode::Set,
                    key: &key,
                    value: (&value).into(),
                    flags: 0,
                    expiry: Expiry::NEVER,
                },
            };
            let Ok(()) = engine.start(&ask, (), |_| ());
        }
    });
    for (len, kept) in LENS.into_iter().zip([0, 1]) {
        let mut holder = Holder::new(&rig, len);
        assert_eq!(in_use(&rig), kept);
        holder.take(&rig, &[1]);
        assert_eq!(in_use(&rig), 0);
    }
}

/// GETs whose values wait for places are as many as the window has slots, whatever is submitted.
#[test]
fn large_values_that_wait_are_bounded() {
    let rig = rig();
    store(&rig);
    let holders = holders(&rig);
    let window = 4;
    let mut client = rig.client(ClientConfig {
        window,
        retry_ns: 1_000_000_000,
        deadline_ns: 10_000_000_000,
        lost_ns: 10_000_000_000,
        ..ClientConfig::default()
    });
    let key = key_of(LENS[1]);
    let mut submitted = 0;
    for _ in 0..1_000 {
        let get = Command::Get { key: &key };
        while client.submit(&get, false, LENS[1].into()).is_ok() {
            submitted += 1;
        }
        assert!(client.waiting() <= 2 * window as usize);
        client.poll(rig.now_ns(), &mut |_, outcome| panic!("{outcome:?}"));
        rig.step();
    }
    assert!(submitted >= window as usize);
    drop(holders);
    let came = run(&rig, &mut client, 20 * PAUSE_STEPS);
    assert_eq!((came.len(), client.waiting()), (submitted, 0));
    // Others are taken again.
    get(&mut client, LENS[1]);
    assert_eq!(run(&rig, &mut client, PAUSE_STEPS), [LENS[1]]);
}

/// Values on their way to a client leave as many as it may have under way to those on their way to the
/// server.
#[test]
fn large_gets_that_wait_do_not_count_as_large_sets() {
    let rig = rig();
    store(&rig);
    let _holders = holders(&rig);
    let mut client = quiet(&rig);
    let transfers_max = ClientConfig::default().transfers_max;
    for _ in 0..transfers_max {
        get(&mut client, LENS[0]);
    }
    assert_eq!(run(&rig, &mut client, PAUSE_STEPS), []);
    let large = value(LENS[0]);
    let set = Command::Store {
        mode: StoreMode::Set,
        key: b"another",
        value: &large,
        flags: 0,
        expiry_s: 0,
    };
    for _ in 0..transfers_max {
        assert_eq!(client.submit(&set, false, 1), Ok(()));
    }
    assert_eq!(client.submit(&set, false, 1), Err(SubmitError::Full));
}
