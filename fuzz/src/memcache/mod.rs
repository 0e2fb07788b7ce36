//! The Memcache door: any bytes, in any pieces, with answers at hand or late.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | the comparisons |
//! | `naive.rs` | the protocol, read in the plainest way |
//! | `late.rs` | an engine that answers some requests later |

mod naive;

use std::task::{Context, Waker};

use ::memcache::{Connection, Host, Limits, Step};
use engine::{LateEngine, MapEngine};

use crate::cuts;

/// The time of all conversations.
const NOW_S: u64 = 1_700_000_000;
/// Items are small, so that short inputs reach what is too large.
const ITEM_SIZE_MAX: usize = 3000;
/// Longest line of keys.
const LINE_SIZE_MAX: usize = 4096;

/// Room for everything.
const WIDE: Limits = Limits {
    output_high_water: 1 << 20,
    in_flight_max: 256,
    line_size_max: LINE_SIZE_MAX,
    ..Limits::DEFAULT
};
/// The connection stops at every turn.
const TIGHT: Limits = Limits {
    output_high_water: 1,
    in_flight_max: 1,
    line_size_max: LINE_SIZE_MAX,
    requests_at_once: 1,
    ..Limits::DEFAULT
};

/// How a conversation ended.
#[derive(PartialEq, Eq)]
struct Ended {
    output: Vec<u8>,
    step: Step,
    /// Input that the connection left: an unfinished line, or what follows the last line.
    unread: Vec<u8>,
}

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (output, unread) = (self.output.escape_ascii(), self.unread.escape_ascii());
        write!(
            f,
            "{:?} after \"{output}\", leaving \"{unread}\"",
            self.step
        )
    }
}

/// Holds a conversation of these bytes in several ways, which must be the same to the client.
///
/// # Panics
/// When they are not.
pub fn run(input: &[u8]) {
    let engine = || MapEngine::new(ITEM_SIZE_MAX);
    let expected = naive::talk(&mut engine(), input);
    let whole = talk(&mut engine(), WIDE, &[input]);
    assert_eq!(whole, expected, "read whole, and read naively");

    let mut random = cuts::random_of(input);
    let few = cuts::few(input, &mut random);
    assert_eq!(talk(&mut engine(), WIDE, &few), expected, "in few pieces");
    let mut late = LateEngine::new(engine(), random.u64(..), 50);
    let late = talk(&mut late, TIGHT, &few);
    assert_eq!(late, expected, "in few pieces, with late answers");
    if input.len() <= 2 * LINE_SIZE_MAX {
        let many = cuts::many(input, &mut random);
        let mut late = LateEngine::new(engine(), random.u64(..), 50);
        let late = talk(&mut late, WIDE, &many);
        assert_eq!(late, expected, "in many pieces, with late answers");
    }
}

/// Holds a conversation whose input comes in these pieces, as a server with sockets would.
fn talk<E: Host>(engine: &mut E, limits: Limits, pieces: &[&[u8]]) -> Ended {
    let mut connection = Connection::new(limits);
    let mut context = Context::from_waker(Waker::noop());
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut step = Step::Input;
    for piece in pieces {
        input.extend_from_slice(piece);
        let mut turns = 0;
        loop {
            let progress = connection.advance(engine, NOW_S, &mut context, &input);
            input.drain(..progress.consumed);
            step = progress.step;
            check_memory(&connection, engine.limits().item_size_max, limits);
            output.extend(connection.swap_output(Vec::new()));
            let waits = step == Step::Input && connection.in_flight() > 0;
            if !waits && matches!(step, Step::Input | Step::Close | Step::Upgrade) {
                break;
            }
            turns += 1;
            assert!(turns < 100_000, "the conversation stands still: {step:?}");
        }
        if step == Step::Close {
            input.clear();
        }
        assert!(
            step != Step::Input || input.len() <= limits.line_size_max + 1,
            "{} bytes unread",
            input.len()
        );
    }
    Ended {
        output,
        step,
        unread: input,
    }
}

/// What a client sends must not make a connection hold more than its limits.
fn check_memory<T>(connection: &Connection<T>, item_size_max: usize, limits: Limits) {
    // A buffer that grows by doubling may have twice what it holds, and one item passes its limit.
    let most = 4 * (limits.output_high_water.max(1 << 16) + 2 * item_size_max);
    let memory = connection.memory();
    assert!(memory < most, "{memory} bytes in a connection");
}
