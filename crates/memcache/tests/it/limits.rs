//! What one connection may use, and what it holds back.

use std::task::{Context, Waker};

use memcache::{Connection, Engine, Limits, Step};

use crate::delay::DelayEngine;
use crate::driver::{NOW_S, show};

fn advance<E: Engine>(
    connection: &mut Connection<E::Ticket>,
    engine: &mut E,
    input: &[u8],
) -> (usize, Step) {
    let mut context = Context::from_waker(Waker::noop());
    let progress = connection.advance(engine, NOW_S, &mut context, input);
    (progress.consumed, progress.step)
}

/// An engine with a value of 1000 bytes under `a`.
fn engine(late_percent: u32) -> DelayEngine {
    let mut engine = DelayEngine::new(1, late_percent);
    let mut input = b"set a 0 0 1000 noreply\r\n".to_vec();
    input.extend([b'x'; 1000]);
    input.extend(b"\r\n");
    let mut setup = Connection::new(Limits::default());
    advance(&mut setup, &mut engine, &input);
    engine
}

#[test]
fn a_full_output_stops_within_a_line_of_keys() {
    let mut engine = engine(0);
    let limits = Limits {
        output_high_water: 10_000,
        ..Limits::default()
    };
    let mut connection = Connection::new(limits);
    let input = [b"get".to_vec(), b" a".repeat(1000), b"\r\n".to_vec()].concat();
    let mut at = 0;
    let mut heard = Vec::new();
    loop {
        let (consumed, step) = advance(&mut connection, &mut engine, &input[at..]);
        at += consumed;
        assert!(connection.output().len() < 10_000 + 1100);
        if step == Step::Input {
            break;
        }
        assert_eq!(step, Step::Drain);
        assert_eq!(
            advance(&mut connection, &mut engine, &input[at..]),
            (0, Step::Drain)
        );
        // A part sent makes room for a part.
        let sent = connection.output().len() / 2;
        heard.extend_from_slice(&connection.output()[..sent]);
        connection.consume_output(sent);
    }
    assert_eq!(at, input.len());
    heard.extend(connection.swap_output(Vec::new()));
    let block = [
        b"VALUE a 0 1000\r\n".to_vec(),
        vec![b'x'; 1000],
        b"\r\n".to_vec(),
    ]
    .concat();
    assert_eq!(heard, [block.repeat(1000), b"END\r\n".to_vec()].concat());
}

#[test]
fn answers_in_flight_are_bounded() {
    let mut engine = engine(100);
    let limits = Limits {
        in_flight_max: 7,
        ..Limits::default()
    };
    let mut connection = Connection::new(limits);
    let input = b"get b\r\n".repeat(100);
    let mut at = 0;
    let mut in_flight_most = 0;
    loop {
        let (consumed, step) = advance(&mut connection, &mut engine, &input[at..]);
        at += consumed;
        in_flight_most = in_flight_most.max(connection.in_flight());
        if step == Step::Input && connection.in_flight() == 0 {
            break;
        }
    }
    assert_eq!(in_flight_most, 7);
    assert_eq!(show(connection.output()), show(&b"END\r\n".repeat(100)));
}

#[test]
fn what_waits_behind_an_answer_in_flight_is_bounded() {
    let limits = Limits {
        output_high_water: 10_000,
        ..Limits::default()
    };
    // Misses leave no bytes but their end; failures not even that; hits the most.
    for line in ["get b\r\n", "get busy\r\n", "get a a a\r\n", "version\r\n"] {
        let mut engine = engine(0);
        let mut connection = Connection::new(limits);
        engine.hold();
        assert_eq!(
            advance(&mut connection, &mut engine, b"get first\r\n"),
            (11, Step::Input)
        );
        engine.release();
        let input = line.repeat(100_000).into_bytes();
        let mut at = 0;
        for _ in 0..10 {
            let (consumed, step) = advance(&mut connection, &mut engine, &input[at..]);
            at += consumed;
            assert_eq!(step, Step::Wait, "{line}");
        }
        assert!(at < input.len(), "{line}");
        assert!(
            connection.memory() < 100_000,
            "{line}: {}",
            connection.memory()
        );
        assert_eq!(connection.in_flight(), 1);
    }
}

#[test]
fn memory_follows_what_arrived_of_a_value() {
    let mut engine = engine(0);
    let mut connection = Connection::new(Limits::default());
    let line = b"set a 0 0 1000000\r\n";
    assert_eq!(
        advance(&mut connection, &mut engine, line),
        (line.len(), Step::Input)
    );
    assert!(connection.memory() < 1000);
    for _ in 0..1000 {
        assert_eq!(
            advance(&mut connection, &mut engine, &[b'y'; 1000]),
            (1000, Step::Input)
        );
    }
    assert!(connection.memory() <= 1_000_002 + 1000);
    assert_eq!(
        advance(&mut connection, &mut engine, b"\r\n"),
        (2, Step::Input)
    );
    assert_eq!(show(connection.output()), "STORED\\r\\n");
    // What one large value needed is not kept.
    assert!(connection.memory() < 1000);
}

#[test]
fn a_value_too_large_needs_no_memory() {
    let mut engine = engine(0);
    let mut connection = Connection::new(Limits::default());
    let line = b"set a 0 0 2000000000\r\n";
    assert_eq!(
        advance(&mut connection, &mut engine, line),
        (line.len(), Step::Input)
    );
    for _ in 0..1000 {
        assert_eq!(
            advance(&mut connection, &mut engine, &[b'y'; 1000]),
            (1000, Step::Input)
        );
    }
    assert!(connection.memory() < 1000);
}

#[test]
fn a_failing_key_ends_its_get_and_no_other() {
    for late_percent in [0, 50, 100] {
        let mut engine = engine(late_percent);
        let mut connection = Connection::new(Limits::default());
        let mut input = &b"get b busy b\r\nget b\r\nget busy\r\nversion\r\n"[..];
        loop {
            let (consumed, step) = advance(&mut connection, &mut engine, input);
            input = &input[consumed..];
            if step == Step::Input && connection.in_flight() == 0 {
                break;
            }
        }
        let heard = "SERVER_ERROR busy\r\nEND\r\nSERVER_ERROR busy\r\nVERSION 0.1.0\r\n";
        assert_eq!(show(connection.output()), show(heard.as_bytes()));
    }
}

#[test]
fn a_closing_connection_answers_first() {
    let mut engine = engine(0);
    let mut connection = Connection::new(Limits::default());
    engine.hold();
    let input = b"delete a\r\nquit\r\nversion\r\n";
    assert_eq!(
        advance(&mut connection, &mut engine, input),
        (16, Step::Wait)
    );
    assert_eq!(
        advance(&mut connection, &mut engine, &input[16..]),
        (0, Step::Wait)
    );
    engine.let_go();
    assert_eq!(
        advance(&mut connection, &mut engine, &input[16..]),
        (0, Step::Close)
    );
    assert_eq!(show(connection.output()), "DELETED\\r\\n");
}

#[test]
fn what_was_moved_on_is_given_back() {
    let mut engine = engine(100);
    let mut connection = Connection::new(Limits::default());
    // An answer is in flight at all times, so that what is held back is never all moved on.
    for _ in 0..10_000 {
        let (consumed, _) = advance(&mut connection, &mut engine, b"get a b c\r\n");
        assert_eq!(consumed, 11);
        let size = connection.output().len();
        connection.consume_output(size);
        while connection.in_flight() > 9 {
            advance(&mut connection, &mut engine, b"");
        }
        assert!(connection.in_flight() > 0);
        assert!(connection.memory() < 20_000, "{}", connection.memory());
    }
}

#[test]
fn input_given_back_in_part_is_waited_for() {
    let mut engine = engine(0);
    let limits = Limits {
        output_high_water: 1,
        ..Limits::default()
    };
    let mut connection = Connection::new(limits);
    assert_eq!(
        advance(&mut connection, &mut engine, b"get a"),
        (0, Step::Input)
    );
    assert_eq!(
        advance(&mut connection, &mut engine, b"get"),
        (0, Step::Input)
    );
    assert_eq!(
        advance(&mut connection, &mut engine, b"get a a a\r\n"),
        (5, Step::Drain)
    );
    assert_eq!(
        advance(&mut connection, &mut engine, b" a a"),
        (0, Step::Input)
    );
    let _ = connection.swap_output(Vec::new());
    assert_eq!(
        advance(&mut connection, &mut engine, b" a a\r\n"),
        (2, Step::Drain)
    );
}

#[test]
fn late_values_fill_the_output_no_further() {
    let mut engine = engine(0);
    let limits = Limits {
        output_high_water: 20_000,
        ..Limits::default()
    };
    let mut connection = Connection::new(limits);
    engine.hold();
    let input = b"get a\r\n".repeat(100);
    // Promises take little room, so more are begun than their values have room for.
    assert_eq!(
        advance(&mut connection, &mut engine, &input),
        (input.len(), Step::Input)
    );
    engine.let_go();
    let mut size = 0;
    while advance(&mut connection, &mut engine, b"") != (0, Step::Input) {
        assert!(connection.output().len() < 20_000 + 1100);
        assert_eq!(
            advance(&mut connection, &mut engine, b"quit\r\n"),
            (0, Step::Drain)
        );
        size += connection.output().len();
        let _ = connection.swap_output(Vec::new());
    }
    assert_eq!(connection.in_flight(), 0);
    size += connection.output().len();
    assert_eq!(size, 100 * (16 + 1000 + 2 + 5));
}
