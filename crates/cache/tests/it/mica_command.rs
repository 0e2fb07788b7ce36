//! MICA's short ways mean what the rules of an item say: a partition and an engine that asks
//! [`engine::item::decide`] answer the same commands alike.

use cache::mica::{KeyHash, Options, PagePolicy, Partition, Probe};
use engine::{Answer, Command, Direction, Engine, Expiry, MapEngine, Mode, OwnedAnswer, Segments};
use proptest::prelude::*;

const SEED: u64 = 7;
const START_S: u64 = 1_000_000;
const KEYS: [&[u8]; 5] = [
    b"a",
    b"another",
    b"a third key",
    b"sixteen bytes it",
    &[b'k'; 250],
];

#[derive(Clone, Debug)]
enum Ask {
    Get(Option<Expiry>),
    Store(StoreMode, Vec<u8>, usize, u32, Expiry),
    Delete,
    Arith(u64, Direction),
    Touch(Expiry),
    FlushAll(u64),
}

/// Tokens are the engines' own, so that a command says which of them it means.
#[derive(Clone, Copy, Debug)]
enum StoreMode {
    Plain(Mode),
    Cas { stale: bool },
}

/// Values that count, that nearly do, and that do not.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let odd: Vec<Vec<u8>> = [
        &b""[..],
        b" ",
        b" 12",
        b"\t12",
        b"+12",
        b"-12",
        b"12 ",
        b"12 junk",
        b"12junk",
        b"12\0junk",
        b"0",
        b"9",
        b"99",
        b"18446744073709551615",
        b"18446744073709551616",
        b"000000000000000000001",
        b"00000000000000000000000000000000000000000001",
    ]
    .iter()
    .map(|value| value.to_vec())
    .collect();
    prop_oneof![
        3 => prop::sample::select(odd),
        1 => any::<u64>().prop_map(|number| number.to_string().into_bytes()),
        1 => (0_u64..200).prop_map(|number| number.to_string().into_bytes()),
        1 => (any::<u8>(), 0_usize..80).prop_map(|(byte, len)| vec![byte; len]),
        1 => (0_usize..200).prop_map(|len| [&b"1"[..], &vec![b' '; len]].concat()),
        1 => (900_usize..1100).prop_map(|len| vec![b'l'; len]),
    ]
}

fn expiries() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        3 => Just(Expiry::NEVER),
        1 => (START_S..START_S + 60).prop_map(Expiry::from_unix_s),
        1 => Just(Expiry::PAST),
    ]
}

fn asks() -> impl Strategy<Value = Ask> {
    let modes = prop::sample::select(vec![
        StoreMode::Plain(Mode::Set),
        StoreMode::Plain(Mode::Set),
        StoreMode::Plain(Mode::Add),
        StoreMode::Plain(Mode::Replace),
        StoreMode::Plain(Mode::Append),
        StoreMode::Plain(Mode::Prepend),
        StoreMode::Cas { stale: false },
        StoreMode::Cas { stale: true },
    ]);
    let deltas = prop_oneof![Just(1), 0_u64..1000, any::<u64>()];
    let directions = prop::sample::select(vec![Direction::Up, Direction::Down]);
    prop_oneof![
        4 => prop::option::of(expiries()).prop_map(Ask::Get),
        8 => (modes, values(), 0_usize..80, any::<u32>(), expiries())
            .prop_map(|(mode, value, cut, flags, expiry)| Ask::Store(mode, value, cut, flags, expiry)),
        1 => Just(Ask::Delete),
        6 => (deltas, directions).prop_map(|(delta, direction)| Ask::Arith(delta, direction)),
        1 => expiries().prop_map(Ask::Touch),
        1 => (START_S..START_S + 60).prop_map(Ask::FlushAll),
    ]
}

/// What an answer says, apart from tokens, which are an engine's own.
fn said(answer: &OwnedAnswer) -> String {
    match answer.answer() {
        Answer::Item { value, flags, .. } => format!("{value:?} {flags}"),
        Answer::Stored { .. } => "stored".to_owned(),
        Answer::Number { value, .. } => format!("number {value}"),
        other => format!("{other:?}"),
    }
}

/// The command, with the token that an engine has given for the key.
fn command<'a>(ask: &Ask, key: &'a [u8], pieces: &'a [&'a [u8]], token: u64) -> Command<'a> {
    match *ask {
        Ask::Get(touch) => Command::Get { key, touch },
        Ask::Store(mode, _, _, flags, expiry) => Command::Store {
            mode: match mode {
                StoreMode::Plain(mode) => mode,
                StoreMode::Cas { stale: false } => Mode::Cas(token),
                StoreMode::Cas { stale: true } => Mode::Cas(token ^ 1 << 60),
            },
            key,
            value: Segments::of(pieces),
            flags,
            expiry,
        },
        Ask::Delete => Command::Delete { key },
        Ask::Arith(delta, direction) => Command::Arith {
            key,
            delta,
            direction,
        },
        Ask::Touch(expiry) => Command::Touch { key, expiry },
        Ask::FlushAll(at_s) => Command::FlushAll { at_s },
    }
}

fn token_of(answer: &OwnedAnswer) -> Option<u64> {
    match answer.answer() {
        Answer::Item { cas, .. } | Answer::Stored { cas } | Answer::Number { cas, .. } => Some(cas),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_partition_does_what_the_rules_say(
        steps in prop::collection::vec((0..KEYS.len(), asks(), 0_u64..3, 0_u8..3), 1..60),
        value_bytes_max in prop::sample::select(vec![64, usize::MAX]),
    ) {
        let options = Options {
            pages: PagePolicy::Plain,
            ..Options::new(1 << 20)
        };
        let mut partition = Partition::new(&options).expect("a partition");
        partition.limit_values(value_bytes_max);
        let limits = partition.limits();
        let mut map = MapEngine::with_limits(limits);
        let mut now_s = START_S;
        let mut tokens = [[0_u64; 2]; KEYS.len()];
        // What a partition was told ahead may be as old as it likes.
        let mut probes = KEYS.map(|key| Probe::from(KeyHash::new(SEED, key)));
        for (at, ask, pause_s, ahead) in &steps {
            now_s += pause_s;
            let key = KEYS[*at];
            if *ahead == 0 {
                partition.refine(&mut probes[*at]);
            }
            let probe = match ahead {
                2 => KeyHash::new(SEED, key).into(),
                _ => probes[*at],
            };
            let value = match ask {
                Ask::Store(_, value, ..) => &value[..],
                _ => &[],
            };
            let cut = match ask {
                Ask::Store(_, _, cut, ..) => (*cut).min(value.len()),
                _ => 0,
            };
            let pieces = [&value[..cut], &value[cut..]];
            // Most values are in one piece.
            let pieces = if cut % 3 == 0 { &[value][..] } else { &pieces[..] };
            let [left, right] = tokens[*at];
            let by_partition =
                partition.run(probe, &command(ask, key, pieces, left), now_s, OwnedAnswer::new);
            let Ok(by_rules) = map.ask(now_s, command(ask, key, pieces, right), OwnedAnswer::new);
            prop_assert_eq!(said(&by_partition), said(&by_rules), "{:?} of {:?}", ask, key);
            tokens[*at] = [
                token_of(&by_partition).unwrap_or(left),
                token_of(&by_rules).unwrap_or(right),
            ];
        }
    }
}
