//! Properties of conversations of any commands, and of any bytes.

use engine::{LateEngine, MapEngine};
use memcache::{Limits, Step};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::driver::{cut, show, talk, talk_at_once};
use crate::model::{Command, Model, command};

/// Limits under which the connection stops at every turn.
const TIGHT: Limits = Limits {
    output_high_water: 1,
    in_flight_max: 1,
    line_size_max: 4096,
    requests_at_once: 2,
    ..Limits::DEFAULT
};

fn bytes(commands: &[Command]) -> Vec<u8> {
    commands.iter().flat_map(Command::bytes).collect()
}

/// Bytes that look like the protocol, with mistakes in them.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        8 => proptest::sample::select(vec![
            &b"get "[..], b"gets ", b"gat ", b"set ", b"add ", b"cas ", b"append ", b"incr ", b"decr ",
            b"delete ", b"touch ", b"flush_all ", b"stats ", b"version", b"verbosity ", b"vervain ",
            b"k ", b"busy ", b"0 ", b"1 ", b"-1 ", b"3 ", b"99999999999999999999 ", b"noreply", b"\r\n",
            b"\r\n", b"\n", b"\r", b" ", b"\0",
        ])
        .prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..20),
        1 => (any::<u8>(), 200..2100usize).prop_map(|(byte, size)| vec![byte; size]),
    ];
    vec(token, 0..60).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_the_models(commands in vec(command(), 1..60)) {
        let mut model = Model::default();
        let expected: Vec<u8> = commands.iter().flat_map(|command| model.answer(command)).collect();
        let ended = talk_at_once(&mut MapEngine::default(), &bytes(&commands));
        prop_assert_eq!(show(&ended.output), show(&expected));
    }

    #[test]
    fn pipelined_is_as_one_by_one(commands in vec(command(), 1..60), seed: u64) {
        let pieces: Vec<Vec<u8>> = commands.iter().map(Command::bytes).collect();
        let pieces = pieces.iter().map(Vec::as_slice);
        let one_by_one = talk(&mut MapEngine::default(), Limits::default(), pieces);
        let pipelined = talk_at_once(&mut LateEngine::new(MapEngine::default(), seed, 30), &bytes(&commands));
        prop_assert_eq!(show(&pipelined.output), show(&one_by_one.output));
    }

    #[test]
    fn late_answers_keep_their_place(
        commands in vec(command(), 1..60),
        seed: u64,
        late_percent in 0..=100u32,
        in_flight_max in 1..40usize,
    ) {
        let input = bytes(&commands);
        let at_once = talk_at_once(&mut MapEngine::default(), &input);
        let limits = Limits { in_flight_max, ..Limits::default() };
        let late = talk(&mut LateEngine::new(MapEngine::default(), seed, late_percent), limits, [&input[..]]);
        prop_assert_eq!(show(&late.output), show(&at_once.output));
    }

    #[test]
    fn any_split_is_as_one_piece(
        input in prop_oneof![vec(command(), 1..30).prop_map(|it| bytes(&it)), garbage()],
        cuts in vec(any::<usize>(), 0..12),
        seed: u64,
    ) {
        let limits = Limits { line_size_max: 4096, ..Limits::default() };
        let whole = talk(&mut LateEngine::new(MapEngine::default(), 0, 0), limits, [&input[..]]);
        let split = talk(&mut LateEngine::new(MapEngine::default(), 0, 0), limits, cut(&input, &cuts));
        prop_assert_eq!(show(&split.output), show(&whole.output));
        prop_assert_eq!(&split, &whole);
        let tight = talk(&mut LateEngine::new(MapEngine::default(), seed, 60), TIGHT, cut(&input, &cuts));
        prop_assert_eq!(show(&tight.output), show(&whole.output));
        prop_assert_eq!(&tight, &whole);
    }

    #[test]
    fn any_bytes_end_as_they_should(input in vec(any::<u8>(), 0..6000)) {
        let ended = talk_at_once(&mut MapEngine::default(), &input);
        prop_assert!(matches!(ended.step, Step::Input | Step::Close));
        if ended.step == Step::Close {
            prop_assert!(ended.unread.is_empty());
        }
    }
}
