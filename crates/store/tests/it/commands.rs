//! The store behind a door: commands that wait for the device, beside an engine that does not.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use block::{Device, FileDevice};
use engine::{
    Answer, Ask, Asker, Command, Direction, Engine, Expiry, Failure, MapEngine, Mode, OwnedAnswer,
};
use store::{Durability, Options, Store, StoreEngine, Ticket};

const NOW_S: u64 = 1_000_000;
const VALUE_MAX: usize = 4000;
/// What no item has, in the store or in the model.
const NO_TOKEN: [u64; 2] = [1, u64::MAX];

/// Runs a test on a core with an engine over a new store, which is closed afterwards.
fn with_engine(test: impl AsyncFnOnce(StoreEngine)) {
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
        test(StoreEngine::new(session, handle.clone(), VALUE_MAX)).await;
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
        with_engine(async move |mut engine| {
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

#[test]
fn what_a_store_cannot_do_is_said() {
    with_engine(async |mut engine| {
        for command in [Command::FlushAll { at_s: 0 }, Command::ResetStats] {
            let said = engine.ask(NOW_S, command, OwnedAnswer::new).ok();
            let said = said.expect("an answer at once");
            assert_eq!(said.answer(), Answer::Failed(Failure::Unsupported));
        }
        let stats = Command::Stats { section: "" };
        let page = engine.ask(NOW_S, stats, OwnedAnswer::new).ok().unwrap();
        let Answer::Stats(page) = page.answer() else {
            panic!("no counters");
        };
        assert!(page.iter().any(|line| line == ("curr_items", "0")));
    });
}

/// A value that its asker has no room for is not read before it is fetched.
#[test]
fn long_values_do_not_pile_up() {
    with_engine(async |mut engine| {
        let long = vec![b'l'; VALUE_MAX];
        let set = Command::Store {
            mode: Mode::Set,
            key: b"long",
            value: (&long).into(),
            flags: 0,
            expiry: Expiry::NEVER,
        };
        let mut ticket = engine.ask(NOW_S, set, |_| ()).expect_err("a ticket");
        fetch(&mut engine, &mut ticket).await;
        let reads = |engine: &mut StoreEngine| {
            let stats = Command::Stats { section: "" };
            let page = engine.ask(NOW_S, stats, OwnedAnswer::new).ok().unwrap();
            let Answer::Stats(page) = page.answer() else {
                panic!("no counters");
            };
            let reads = page.iter().find(|(name, _)| *name == "reads");
            reads.expect("a counter").1.parse::<u64>().unwrap()
        };
        let before = reads(&mut engine);
        let ask = |key| Ask {
            now_s: NOW_S,
            asker: Asker {
                connection: 1,
                room: 100,
            },
            command: Command::Get { key, touch: None },
        };
        let mut tickets: Vec<Ticket> = (0..20)
            .map(|_| {
                engine
                    .start(&ask(b"long"), (), |_| ())
                    .expect_err("a ticket")
            })
            .collect();
        for (at, ticket) in tickets.iter_mut().enumerate() {
            let got = fetch(&mut engine, ticket).await;
            assert_eq!(
                got.answer().value().map(|value| value.len()),
                Some(VALUE_MAX)
            );
            assert_eq!(reads(&mut engine) - before, at as u64 + 1);
        }
    });
}
