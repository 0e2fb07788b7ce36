//! What one connection may use, and what it holds back.

use std::task::{Context, Poll, Waker};

use engine::{Answer, Ask, Command, Engine, LateEngine, MapEngine};
use memcache::{Connection, Event, Host, Limits, Step};

use crate::driver::{NOW_S, show};

fn advance<E: Host>(
    connection: &mut Connection<E::Ticket>,
    engine: &mut E,
    input: &[u8],
) -> (usize, Step) {
    let mut context = Context::from_waker(Waker::noop());
    let progress = connection.advance(engine, NOW_S, &mut context, input);
    (progress.consumed, progress.step)
}

/// An engine with a value of 1000 bytes under `a`.
fn engine(late_percent: u32) -> LateEngine<MapEngine> {
    let mut engine = LateEngine::new(MapEngine::default(), 1, late_percent).failing(b"busy");
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
        requests_at_once: usize::MAX,
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
        let heard = "SERVER_ERROR busy\r\nEND\r\nSERVER_ERROR busy\r\nVERSION 1.6.18\r\n";
        assert_eq!(show(connection.output()), show(heard.as_bytes()));
    }
}

/// Remembers what befell connections.
struct Noting {
    inner: LateEngine<MapEngine>,
    events: Vec<Event>,
}

impl Engine for Noting {
    type Probe = ();
    type Ticket = <LateEngine<MapEngine> as Engine>::Ticket;

    fn probe(&self, _key: &[u8]) {}

    fn start<R>(
        &mut self,
        ask: &Ask<'_>,
        probe: (),
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Self::Ticket> {
        // Whatever is stored there fails at once, or as late as a `get` of it does.
        let get = Command::Get {
            key: b"busy",
            touch: None,
        };
        let is_busy = ask.command.key() == Some(b"busy");
        let command = if is_busy { get } else { ask.command };
        self.inner.start(&Ask { command, ..*ask }, probe, answer)
    }

    fn fetch<R>(
        &mut self,
        ticket: &mut Self::Ticket,
        context: &mut Context<'_>,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Poll<R> {
        self.inner.fetch(ticket, context, answer)
    }

    fn limits(&self) -> engine::Limits {
        self.inner.limits()
    }
}

impl Host for Noting {
    fn note(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// A client that asked for silence hears nothing of a failure, and a `get` behind it neither; it is
/// counted.
#[test]
fn failures_in_silence_are_counted() {
    for late_percent in [0, 50, 100] {
        let mut engine = Noting {
            inner: engine(late_percent),
            events: Vec::new(),
        };
        let mut connection = Connection::new(Limits::default());
        let mut input = &b"set busy 0 0 1 noreply\r\nx\r\ndelete busy noreply\r\nget b\r\n"[..];
        loop {
            let (consumed, step) = advance(&mut connection, &mut engine, input);
            input = &input[consumed..];
            if step == Step::Input && connection.in_flight() == 0 {
                break;
            }
        }
        assert_eq!(show(connection.output()), show(b"END\r\n"));
        assert_eq!(engine.events, [Event::FailedInSilence; 2]);
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

#[test]
fn others_have_their_turn_between_requests() {
    let limits = Limits {
        requests_at_once: 10,
        ..Limits::default()
    };
    for (line, requests) in [
        ("get b\r\n".repeat(95), 95),
        (format!("get{}\r\n", " b".repeat(95)), 95),
        ("delete b noreply\r\n".repeat(95), 95),
        ("set b 0 0 1 noreply\r\nx\r\n".repeat(95), 95),
        ("nonsense\r\n".repeat(95), 95),
        ("get b b\r\nversion\r\n".repeat(32), 96),
    ] {
        let mut engine = engine(0);
        let mut connection = Connection::new(limits);
        let mut input = line.as_bytes();
        let mut yields = 0;
        loop {
            let (consumed, step) = advance(&mut connection, &mut engine, input);
            input = &input[consumed..];
            if step == Step::Input {
                break;
            }
            assert_eq!(step, Step::Yield, "{line}");
            yields += 1;
        }
        assert!(input.is_empty());
        assert_eq!(yields, (requests - 1) / 10, "{line}");
    }
}

#[test]
fn lists_of_too_many_keys_are_refused() {
    let mut engine = engine(0);
    let limits = Limits {
        keys_max: 3,
        ..Limits::default()
    };
    let mut connection = Connection::new(limits);
    let input = b"get b b b\r\nget b b b b\r\ngats 0 b  b b\r\ngats 0 b b b b\r\nget b    b\r\n";
    assert_eq!(
        advance(&mut connection, &mut engine, input),
        (input.len(), Step::Input)
    );
    let refusal = "CLIENT_ERROR too many keys\r\n";
    let heard = format!("END\r\n{refusal}END\r\n{refusal}END\r\n");
    assert_eq!(show(connection.output()), show(heard.as_bytes()));
}

/// What is refused while memory is out, and what is not.
#[test]
fn what_is_large_is_refused_while_memory_is_out() {
    const READ: &str = "SERVER_ERROR out of memory writing get response\r\n";
    const STORE: &str = "SERVER_ERROR out of memory storing object\r\n";
    for late_percent in [0, 100] {
        let mut engine = engine(late_percent);
        let out = Limits {
            large_max: 999,
            ..Limits::default()
        };
        let mut connection = Connection::new(Limits::default());
        let mut heard = Vec::new();
        let mut say =
            |connection: &mut Connection<_>, engine: &mut LateEngine<MapEngine>, input: &[u8]| {
                let mut input = input.to_vec();
                loop {
                    let (consumed, step) = advance(connection, engine, &input);
                    input.drain(..consumed);
                    heard.extend(connection.swap_output(Vec::new()));
                    if step == Step::Input && connection.in_flight() == 0 {
                        assert!(input.is_empty());
                        return show(&std::mem::take(&mut heard));
                    }
                }
            };
        connection.set_limits(out);
        // The item under `a` has 1000 bytes.
        let heard = say(&mut connection, &mut engine, b"get b a\r\nget b\r\n");
        assert_eq!(heard, show(format!("{READ}END\r\n").as_bytes()));
        // Whole in one piece it needs no memory of its own; in pieces it does.
        let value = [b'y'; 1000];
        let whole = [&b"set c 0 0 1000\r\n"[..], &value, b"\r\n"].concat();
        assert_eq!(
            say(&mut connection, &mut engine, &whole),
            show(b"STORED\r\n")
        );
        let heard = say(&mut connection, &mut engine, b"set c 0 0 1000\r\n");
        assert_eq!(heard, show(STORE.as_bytes()));
        let heard = say(&mut connection, &mut engine, &whole[16..]);
        assert_eq!(heard, "");
        connection.set_limits(Limits::default());
        // It was to be overwritten: it is gone.
        let heard = say(&mut connection, &mut engine, b"get c\r\nget a\r\n");
        assert!(heard.starts_with("END\\r\\nVALUE a 0 1000"), "{heard}");
        // A value under way when memory runs out is given up, and the line with it.
        let pieces: [&[u8]; 2] = [b"set a 0 0 5000\r\n", &[b'z'; 2000]];
        for piece in pieces {
            assert_eq!(say(&mut connection, &mut engine, piece), "");
        }
        connection.set_limits(out);
        let heard = say(&mut connection, &mut engine, &[b'z'; 2500]);
        assert_eq!(heard, show(STORE.as_bytes()));
        assert!(connection.memory() < 3000);
        let heard = say(&mut connection, &mut engine, &[b'z'; 500]);
        assert_eq!(heard, "");
        let heard = say(&mut connection, &mut engine, b"\r\nget a\r\n");
        assert_eq!(heard, show(b"END\r\n"));
        // One whose memory is there already, to its last byte, is stored.
        connection.set_limits(Limits::default());
        let pieces: [&[u8]; 2] = [b"set d 0 0 5000\r\n", &[b'z'; 2501]];
        for piece in pieces {
            assert_eq!(say(&mut connection, &mut engine, piece), "");
        }
        connection.set_limits(out);
        let rest = [&[b'z'; 2499][..], b"\r\n"].concat();
        let heard = say(&mut connection, &mut engine, &rest);
        assert_eq!(heard, show(b"STORED\r\n"));
        // A line that is long already is not waited for.
        let line = [b"get".to_vec(), b" b".repeat(1500)].concat();
        let (consumed, step) = advance(&mut connection, &mut engine, &line);
        assert_eq!((consumed, step), (line.len(), Step::Close));
        assert_eq!(
            show(connection.output()),
            show(b"SERVER_ERROR out of memory reading request\r\n")
        );
    }
}

#[test]
fn promised_answers_have_little_room_when_there_are_many() {
    let mut engine = engine(0);
    engine.hold();
    let mut connection = Connection::new(Limits::default());
    let input = b"get a\r\n".repeat(300);
    let (_, step) = advance(&mut connection, &mut engine, &input);
    assert_eq!((connection.in_flight(), step), (256, Step::Wait));
    let promised = connection.promised();
    assert!((1 << 20..2 << 20).contains(&promised), "{promised}");
    engine.let_go();
    loop {
        let (_, step) = advance(&mut connection, &mut engine, b"");
        let _ = connection.swap_output(Vec::new());
        if step == Step::Input && connection.in_flight() == 0 {
            break;
        }
    }
    assert_eq!(connection.promised(), 0);
    // Values on their way to the engine count like answers on their way back.
    let mut engine = self::engine(0);
    engine.hold();
    let mut connection = Connection::new(Limits::default());
    let mut value = b"set a 0 0 600000\r\n".to_vec();
    value.extend([b'v'; 600_000]);
    value.extend(b"\r\n");
    let input = value.repeat(5);
    let (_, step) = advance(&mut connection, &mut engine, &input);
    assert_eq!((connection.in_flight(), step), (2, Step::Wait));
    assert!(connection.promised() >= 1_200_000);
}
