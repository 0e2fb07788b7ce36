//! The store behind a door: commands that wait for the device, beside an engine that does not.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use block::sim::{SimConfig, SimDevice};
use block::{Device, FileDevice};
use engine::{
    Answer, Ask, Asker, Budget, Command, Direction, Engine, Expiry, Failure, MapEngine, Mode,
    NoBudget, OwnedAnswer,
};
use rt::{ManualClock, ManualCore};
use store::{Durability, Options, Store, StoreEngine, Ticket};

const NOW_S: u64 = 1_000_000;
const VALUE_MAX: usize = 4000;
/// What no item has, in the store or in the model.
const NO_TOKEN: [u64; 2] = [1, u64::MAX];

/// Runs a test on a core with an engine over a new store, which is closed afterwards.
fn with_engine(test: impl AsyncFnOnce(StoreEngine, rt::Handle)) {
    with_budget(Arc::new(NoBudget), test);
}

fn with_budget(budget: Arc<dyn Budget>, test: impl AsyncFnOnce(StoreEngine, rt::Handle)) {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let device = FileDevice::open(dir.path().join("store"), &block::Options::create(64 << 20));
    let device: Arc<dyn Device> = Arc::new(device.unwrap());
    let mut options = Options::default();
    options.durability = Durability::Process;
    options.now = Arc::new(|| NOW_S as u32);
    let store = Store::on(device, &options).unwrap();
    let mut core = rt::Core::new(rt::Config::default()).unwrap();
    let handle = core.handle();
    core.block_on(async {
        let session = store.session_on(&handle).unwrap();
        let engine = StoreEngine::new(session, handle.clone(), VALUE_MAX, budget);
        test(engine, handle.clone()).await;
    });
    drop((core, handle));
    store.close().unwrap();
}

/// Apart from tokens, which are an engine's own.
fn said(answer: &OwnedAnswer) -> String {
    match answer.answer() {
        Answer::Item { value, flags, .. } => format!("{} {flags} {:?}", value.len(), value),
        Answer::Stored { .. } => "stored".to_owned(),
        Answer::Number { value, .. } => format!("number {value}"),
        other => format!("{other:?}"),
    }
}

fn token_of(answer: &OwnedAnswer) -> Option<u64> {
    match answer.answer() {
        Answer::Item { cas, .. } | Answer::Stored { cas } | Answer::Number { cas, .. } => Some(cas),
        _ => None,
    }
}

fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..6) {
        0 => random.u64(..).to_string().into_bytes(),
        1 => b" +7 and more".to_vec(),
        2 => Vec::new(),
        3 => vec![random.alphanumeric() as u8; random.usize(..VALUE_MAX + 100)],
        _ => vec![random.alphanumeric() as u8; random.usize(..200)],
    }
}

fn command<'a>(random: &mut fastrand::Rng, key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    let expiry = match random.u32(..5) {
        0 => Expiry::from_unix_s(NOW_S + 60),
        1 if random.u32(..4) == 0 => Expiry::PAST,
        _ => Expiry::NEVER,
    };
    let direction = [Direction::Up, Direction::Down][random.usize(..2)];
    match random.u32(..12) {
        0..4 => Command::Get { key, touch: None },
        4 => Command::Get {
            key,
            touch: Some(expiry),
        },
        5 => Command::Delete { key },
        6 => Command::Touch { key, expiry },
        7 => Command::Arith {
            key,
            delta: random.u64(..),
            direction,
        },
        _ => Command::Store {
            mode: [
                Mode::Set,
                Mode::Set,
                Mode::Add,
                Mode::Replace,
                Mode::Append,
                Mode::Prepend,
                Mode::Cas(0),
            ][random.usize(..7)],
            key,
            value: value.into(),
            flags: random.u32(..),
            expiry,
        },
    }
}

/// The same command with a token of this engine's.
fn with_token<'a>(command: &Command<'a>, token: u64) -> Command<'a> {
    match *command {
        Command::Store {
            mode: Mode::Cas(_),
            key,
            value,
            flags,
            expiry,
        } => Command::Store {
            mode: Mode::Cas(token),
            key,
            value,
            flags,
            expiry,
        },
        other => other,
    }
}

async fn fetch(engine: &mut StoreEngine, ticket: &mut Ticket) -> OwnedAnswer {
    poll_fn(
        |context| match engine.fetch(ticket, context, OwnedAnswer::new) {
            Poll::Ready(answer) => Poll::Ready(answer),
            Poll::Pending => Poll::Pending,
        },
    )
    .await
}

/// Many commands under way at a time, on few keys, from askers with little room and with much: each
/// asker hears what an engine says that does one after the other.
#[test]
fn commands_on_a_key_take_effect_in_the_order_of_their_starts() {
    for seed in 0..4 {
        with_engine(async move |mut engine, _| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut model = MapEngine::with_limits(engine.limits());
            // A token of the store and one of the model, for each key.
            let mut tokens = [NO_TOKEN; 6];
            for round in 0..150 {
                // An asker is held up by long values, so askers with little room share no keys.
                let has_room = random.bool();
                let mut started = Vec::new();
                let mut touched = [false; 6];
                for _ in 0..random.usize(1..10) {
                    let asker = random.usize(..3);
                    let of_asker = 2 * asker + random.usize(..2);
                    let at = if has_room {
                        random.usize(..6)
                    } else {
                        of_asker
                    };
                    let key = format!("key {at}").into_bytes();
                    let bytes = value(&mut random);
                    let command = command(&mut random, &key, &bytes);
                    let asker = Asker {
                        connection: asker as u64,
                        room: if has_room { usize::MAX } else { 100 },
                    };
                    let ask = Ask {
                        now_s: NOW_S,
                        asker,
                        command: with_token(&command, tokens[at][0]),
                    };
                    let Err(ticket) = engine.start(&ask, (), |_| ()) else {
                        panic!("the store answers at once");
                    };
                    let Ok(expected) =
                        model.ask(NOW_S, with_token(&command, tokens[at][1]), OwnedAnswer::new);
                    let moves = matches!(
                        command,
                        Command::Touch { .. } | Command::Get { touch: Some(_), .. }
                    );
                    if moves {
                        // The store writes a touched item anew, under another token.
                        tokens[at] = NO_TOKEN;
                        touched[at] = true;
                    }
                    started.push((at, ticket, expected, format!("{command:?}")));
                }
                for (at, mut ticket, expected, what) in started {
                    if random.u32(..10) == 0 {
                        // Given up: it may not be noticed by anybody else.
                        drop(ticket);
                        tokens[at] = NO_TOKEN;
                        continue;
                    }
                    let got = fetch(&mut engine, &mut ticket).await;
                    assert_eq!(
                        said(&got),
                        said(&expected),
                        "seed {seed}, round {round}: {what} of key {at}"
                    );
                    match (token_of(&got), token_of(&expected)) {
                        (Some(store), Some(model)) if !touched[at] => tokens[at] = [store, model],
                        _ => {}
                    }
                }
            }
        });
    }
}

/// A counter of the engine.
fn counter(engine: &mut StoreEngine, name: &str) -> u64 {
    let stats = Command::Stats { section: "" };
    let page = engine.ask(NOW_S, stats, OwnedAnswer::new).ok().unwrap();
    let Answer::Stats(page) = page.answer() else {
        panic!("no counters");
    };
    let found = page.iter().find(|(one, _)| *one == name);
    found.expect("a counter").1.parse().unwrap()
}

/// Waits until nothing is being carried out.
async fn settle(engine: &mut StoreEngine, core: &rt::Handle) {
    while counter(engine, "commands_under_way") > 0 {
        core.sleep(Duration::from_millis(1)).await;
    }
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    Command::Store {
        mode: Mode::Set,
        key,
        value: value.into(),
        flags: 0,
        expiry: Expiry::NEVER,
    }
}

fn get(key: &[u8]) -> Command<'_> {
    Command::Get { key, touch: None }
}

/// Starts a command as an asker with little room.
fn start(engine: &mut StoreEngine, connection: u64, command: Command<'_>) -> Ticket {
    let ask = Ask {
        now_s: NOW_S,
        asker: Asker {
            connection,
            room: 100,
        },
        command,
    };
    engine.start(&ask, (), |_| ()).expect_err("a ticket")
}

#[test]
fn counters_count_from_zero_when_they_were_reset() {
    with_engine(async |mut engine, _| {
        for key in [b"a", b"b"] {
            let mut ticket = start(&mut engine, 1, set(key, b"value"));
            fetch(&mut engine, &mut ticket).await;
            let mut ticket = start(&mut engine, 1, get(key));
            fetch(&mut engine, &mut ticket).await;
        }
        assert_eq!(counter(&mut engine, "cmd_set"), 2);
        let said = engine.ask(NOW_S, Command::ResetStats, OwnedAnswer::new);
        assert_eq!(said.ok().unwrap().answer(), Answer::Done);
        for name in ["cmd_set", "cmd_get", "get_hits", "written_bytes"] {
            assert_eq!(counter(&mut engine, name), 0, "{name}");
        }
        assert_eq!(counter(&mut engine, "curr_items"), 2);
    });
}

/// A flush among pipelined commands takes what was stored before it, on any connection, and nothing
/// that its own asker stores behind it.
#[test]
fn a_flush_takes_its_turn() {
    with_engine(async |mut engine, _| {
        for round in 0..3 {
            let keys: Vec<Vec<u8>> = (0..300).map(|at| format!("{at}").into_bytes()).collect();
            let mut started: Vec<Ticket> = (keys.iter().zip(0..))
                .map(|(key, at)| start(&mut engine, 10 + at % 3, set(key, &[b'v'; 200])))
                .collect();
            // Asker 10 waits for none of its own; the others' are stored before the flush is asked.
            for ticket in &mut started {
                fetch(&mut engine, ticket).await;
            }
            let flush = Command::FlushAll { at_s: 0 };
            let mut pipelined = [
                (start(&mut engine, 10, set(b"late", b"before")), "stored"),
                (start(&mut engine, 10, flush), "Done"),
                (start(&mut engine, 10, get(b"late")), "Miss"),
                (start(&mut engine, 10, get(b"7")), "Miss"),
                (start(&mut engine, 10, set(b"8", b"after")), "stored"),
                (
                    start(&mut engine, 10, get(b"8")),
                    "5 0 [97, 102, 116, 101, 114]",
                ),
            ];
            for (at, (ticket, expected)) in pipelined.iter_mut().enumerate() {
                let got = fetch(&mut engine, ticket).await;
                let said = said(&got);
                let is_it =
                    said == *expected || expected.starts_with("5 0") && said.starts_with("5 0");
                assert!(is_it, "round {round}, command {at}: {said}");
            }
            for key in &keys {
                let mut ticket = start(&mut engine, 11, get(key));
                let is_kept = key == b"8";
                let got = fetch(&mut engine, &mut ticket).await;
                assert_eq!(got.answer().value().is_some(), is_kept, "{key:?}");
            }
            assert_eq!(counter(&mut engine, "curr_items"), 1);
        }
    });
}

/// A flush behind a long value that nobody has fetched takes its turn behind that.
#[test]
fn a_flush_waits_for_long_values_before_it() {
    with_engine(async |mut engine, core| {
        let long = vec![b'l'; VALUE_MAX];
        let mut tickets = [
            start(&mut engine, 1, set(b"long", &long)),
            start(&mut engine, 1, get(b"long")),
            start(&mut engine, 1, Command::FlushAll { at_s: 0 }),
            start(&mut engine, 1, get(b"long")),
        ];
        settle(&mut engine, &core).await;
        let expected = [None, Some(VALUE_MAX), None, None];
        for (ticket, expected) in tickets.iter_mut().zip(expected) {
            let got = fetch(&mut engine, ticket).await;
            assert_eq!(got.answer().value().map(|value| value.len()), expected);
        }
        assert_eq!(counter(&mut engine, "cmd_flush"), 1);
    });
}

/// What is asked behind a long value's own `set` waits as well.
#[test]
fn a_value_that_becomes_long_meanwhile_is_not_held() {
    with_engine(async |mut engine, core| {
        let long = vec![b'l'; VALUE_MAX];
        let mut tickets = vec![start(&mut engine, 1, set(b"long", &long))];
        tickets.extend((0..50).map(|_| start(&mut engine, 1, get(b"long"))));
        tickets.push(start(&mut engine, 1, set(b"long", b"short")));
        tickets.push(start(&mut engine, 1, get(b"long")));
        settle(&mut engine, &core).await;
        assert_eq!(counter(&mut engine, "get_hits"), 0, "long values are held");
        for (at, ticket) in tickets.iter_mut().enumerate() {
            let got = fetch(&mut engine, ticket).await;
            let expected = match at {
                0 | 51 => None,
                52 => Some(5),
                _ => Some(VALUE_MAX),
            };
            let len = got.answer().value().map(|value| value.len());
            assert_eq!(len, expected, "command {at}");
        }
    });
}

/// Commands whose asker has gone are accounted for until they are carried out.
#[test]
fn commands_of_askers_that_have_gone_are_accounted_for() {
    #[derive(Default)]
    struct Counted(AtomicUsize);
    impl Budget for Counted {
        fn take(&self, bytes: usize) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
        fn give_back(&self, bytes: usize) {
            self.0.fetch_sub(bytes, Ordering::Relaxed);
        }
        fn has_room(&self) -> bool {
            true
        }
    }
    let budget = Arc::new(Counted::default());
    let used = Arc::clone(&budget);
    with_budget(budget, async move |mut engine, core| {
        let value = vec![b'v'; VALUE_MAX];
        let keys: Vec<Vec<u8>> = (0..100).map(|at| format!("{at}").into_bytes()).collect();
        let tickets: Vec<Ticket> = (keys.iter())
            .map(|key| start(&mut engine, 1, set(key, &value)))
            .collect();
        assert_eq!(
            used.0.load(Ordering::Relaxed),
            0,
            "their door accounts for them"
        );
        drop(tickets);
        assert!(used.0.load(Ordering::Relaxed) >= 100 * VALUE_MAX);
        settle(&mut engine, &core).await;
        assert_eq!(used.0.load(Ordering::Relaxed), 0);
        assert_eq!(
            counter(&mut engine, "curr_items"),
            100,
            "changes end all the same"
        );
    });
}

/// An engine that finishes answers what it has begun and refuses the rest.
#[test]
fn an_engine_finishes_what_it_has_begun() {
    with_engine(async |mut engine, _| {
        let keys: Vec<Vec<u8>> = (0..100).map(|at| format!("{at}").into_bytes()).collect();
        let mut tickets: Vec<Ticket> = (keys.iter())
            .map(|key| start(&mut engine, 1, set(key, b"value")))
            .collect();
        engine.finish().await;
        let refused = engine.ask(NOW_S, get(b"1"), OwnedAnswer::new);
        let refused = refused.ok().expect("an answer at once");
        assert!(matches!(refused.answer(), Answer::Failed(Failure::Busy(_))));
        for ticket in &mut tickets {
            assert_eq!(said(&fetch(&mut engine, ticket).await), "stored");
        }
    });
}

/// A value that its asker has no room for is not read before it is fetched.
#[test]
fn long_values_do_not_pile_up() {
    with_engine(async |mut engine, _| {
        let long = vec![b'l'; VALUE_MAX];
        let mut ticket = start(&mut engine, 1, set(b"long", &long));
        fetch(&mut engine, &mut ticket).await;
        let before = counter(&mut engine, "reads");
        let mut tickets: Vec<Ticket> = (0..20)
            .map(|_| start(&mut engine, 1, get(b"long")))
            .collect();
        for (at, ticket) in tickets.iter_mut().enumerate() {
            let got = fetch(&mut engine, ticket).await;
            let len = got.answer().value().map(|value| value.len());
            assert_eq!(len, Some(VALUE_MAX));
            assert_eq!(counter(&mut engine, "reads") - before, at as u64 + 1);
        }
    });
}

/// Values of one key that are put at a time share their writes, and the last one stays.
#[test]
fn puts_of_a_key_share_their_writes() {
    with_engine(async |mut engine, _| {
        let values: Vec<Vec<u8>> = (0..64_u8).map(|at| vec![at; 30]).collect();
        let mut tickets: Vec<Ticket> = values
            .iter()
            .map(|value| start(&mut engine, 1, set(b"hot", value)))
            .collect();
        let mut read = start(&mut engine, 2, get(b"hot"));
        let mut last = start(&mut engine, 3, set(b"hot", b"after"));
        let before = counter(&mut engine, "written_bytes");
        for ticket in &mut tickets {
            assert_eq!(said(&fetch(&mut engine, ticket).await), "stored");
        }
        let got = fetch(&mut engine, &mut read).await;
        let shown = got.answer().value().map(|value| value.to_vec());
        assert_eq!(shown.as_ref(), values.last());
        let written = counter(&mut engine, "written_bytes") - before;
        assert_eq!(said(&fetch(&mut engine, &mut last).await), "stored");
        // One after the other they would take a block each.
        assert!(written < 32 * 4096, "{written} bytes");
    });
}

/// Only the last one counts: those before it leave nothing behind, however far off they are.
#[test]
fn flushes_that_are_planned_over_and_over_take_no_room() {
    let clock = Arc::new(ManualClock::new(0));
    let mut config = rt::Config::default();
    config.clock = clock.clone();
    let core = ManualCore::new(config, None);
    let device: Arc<dyn Device> = Arc::new(SimDevice::new(SimConfig::new(1, 4 << 20)));
    let (store, _maintenance) = Store::unmaintained(device, &Options::default()).unwrap();
    let session = store.session_on(&core.handle()).unwrap();
    let mut engine = StoreEngine::new(session, core.handle(), VALUE_MAX, Arc::new(NoBudget));
    let turn = || {
        for _ in 0..100 {
            core.turn();
        }
    };
    let later = |engine: &mut StoreEngine, s: u64| {
        let flush = Command::FlushAll { at_s: NOW_S + s };
        drop(start(engine, 1, flush));
        core.turn();
    };
    drop(start(&mut engine, 1, set(b"key", b"value")));
    turn();
    later(&mut engine, 10);
    turn();
    let before = core.tasks();
    for _ in 0..1000 {
        later(&mut engine, 1000);
    }
    turn();
    assert_eq!(core.tasks(), before);
    clock.advance(Duration::from_secs(500));
    turn();
    assert_eq!(
        counter(&mut engine, "curr_items"),
        1,
        "one that was replaced"
    );
    clock.advance(Duration::from_secs(501));
    while counter(&mut engine, "curr_items") > 0 {
        core.turn();
    }
    assert_eq!(counter(&mut engine, "cmd_flush"), 1001);
}
