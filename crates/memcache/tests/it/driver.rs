//! A driver without sockets: gives a connection its input and gathers its output.

use std::task::{Context, Waker};

use memcache::{Connection, Host, Limits, Step};

/// The time of all conversations.
pub(crate) const NOW_S: u64 = 1_700_000_000;

/// How a conversation ended: its output and what the connection asked for last.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) output: Vec<u8>,
    pub(crate) step: Step,
    /// Input left unread behind the line that left the protocol.
    pub(crate) unread: Vec<u8>,
}

/// Holds a conversation whose input comes in these pieces, as a server with sockets would.
pub(crate) fn talk<'a, E: Host>(
    engine: &mut E,
    limits: Limits,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Ended {
    let mut connection = Connection::new(limits);
    let mut context = Context::from_waker(Waker::noop());
    let mut input = Vec::new();
    let mut output = Vec::new();
    let mut step = Step::Input;
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let progress = connection.advance(engine, NOW_S, &mut context, &input);
            input.drain(..progress.consumed);
            step = progress.step;
            let unread = if step == Step::Input { &input[..] } else { &[] };
            check_memory(&connection, engine.limits().item_size_max, limits, unread);
            output.extend(connection.swap_output(Vec::new()));
            let waits = step == Step::Input && connection.in_flight() > 0;
            if !waits && matches!(step, Step::Input | Step::Close | Step::Upgrade) {
                break;
            }
        }
        // A closed connection reads no more; another protocol reads all the rest.
        if step == Step::Close {
            input.clear();
        }
    }
    Ended {
        output,
        step,
        unread: input,
    }
}

/// Checks what a connection holds, and how much input it leaves unread when it asks for more.
fn check_memory<T>(connection: &Connection<T>, item_size_max: usize, limits: Limits, input: &[u8]) {
    // A buffer that grows by doubling may have twice what it holds.
    let output_most = 2 * (limits.output_high_water + item_size_max);
    let memory = connection.memory();
    assert!(
        memory < 2 * output_most + item_size_max,
        "{memory} bytes in a connection"
    );
    let unread_most = limits.line_size_max.max(2048) + 1;
    assert!(input.len() <= unread_most, "{} bytes unread", input.len());
}

/// Holds a conversation whose input comes in one piece.
pub(crate) fn talk_at_once<E: Host>(engine: &mut E, input: &[u8]) -> Ended {
    talk(engine, Limits::default(), [input])
}

/// Cuts an input at these places, in any order and wrapped into it.
pub(crate) fn cut<'a>(input: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
    cuts.push(0);
    cuts.push(input.len());
    cuts.sort_unstable();
    cuts.windows(2)
        .map(|pair| &input[pair[0]..pair[1]])
        .collect()
}

/// Bytes in a form that a failed assertion can show.
pub(crate) fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
