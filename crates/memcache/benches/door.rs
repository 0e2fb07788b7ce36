//! Time to parse and answer requests against an engine that does nothing, in nanoseconds.
//!
//! `cargo bench -p memcache` measures; as a test each case runs a few times and is only checked.

use std::convert::Infallible;
use std::hint::black_box;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use memcache::{Connection, Engine, Limits, Reply, Request, Step};

/// An engine that has 32 bytes under every key.
struct Trivial {
    value: [u8; 32],
}

impl Engine for Trivial {
    type Ticket = Infallible;

    #[inline]
    fn start<R>(
        &mut self,
        _now_s: u64,
        request: Request<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Infallible> {
        Ok(reply(match black_box(request) {
            Request::Get { .. } | Request::GetAndTouch { .. } => Reply::Value {
                value: &self.value,
                flags: 0,
                cas: 1,
            },
            Request::Store { .. } => Reply::Stored,
            _ => Reply::NotFound,
        }))
    }

    fn poll<R>(
        &mut self,
        ticket: &mut Infallible,
        _context: &mut Context<'_>,
        _reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Poll<R> {
        match *ticket {}
    }

    fn item_size_max(&self) -> usize {
        1 << 20
    }

    fn version(&self) -> &str {
        "0"
    }

    fn stats(&self, _section: &str, _out: &mut dyn FnMut(&str, &str)) -> bool {
        false
    }
}

struct Case {
    name: &'static str,
    input: Vec<u8>,
    /// Requests, or keys, in the input: what a figure is divided by.
    parts: u32,
    output_size: usize,
}

fn cases() -> Vec<Case> {
    let key = "key:000000000001";
    let set = format!("set {key} 0 0 32\r\n{}\r\n", "v".repeat(32));
    let block_size = format!("VALUE {key} 0 32\r\n\r\n").len() + 32;
    let hit_size = block_size + "END\r\n".len();
    let case = |name, input: String, parts, output_size| Case {
        name,
        input: input.into_bytes(),
        parts,
        output_size,
    };
    vec![
        case("get, one a call", format!("get {key}\r\n"), 1, hit_size),
        case(
            "get, 32 pipelined",
            format!("get {key}\r\n").repeat(32),
            32,
            32 * hit_size,
        ),
        case(
            "gets, 32 pipelined",
            format!("gets {key}\r\n").repeat(32),
            32,
            32 * (hit_size + 2),
        ),
        case("set, one a call", set.clone(), 1, 8),
        case("set, 32 pipelined", set.repeat(32), 32, 32 * 8),
        case(
            "multiget of 32, a key",
            format!("get{}\r\n", format!(" {key}").repeat(32)),
            32,
            32 * block_size + 5,
        ),
        case(
            "delete, 32 pipelined",
            format!("delete {key}\r\n").repeat(32),
            32,
            32 * 11,
        ),
    ]
}

/// Runs a case so many times, and checks every output's size.
fn run(case: &Case, times: u32) -> Duration {
    let mut engine = Trivial { value: [b'v'; 32] };
    let mut connection = Connection::new(Limits::default());
    let mut context = Context::from_waker(Waker::noop());
    let start = Instant::now();
    for _ in 0..times {
        let progress = connection.advance(&mut engine, 1, &mut context, black_box(&case.input));
        assert_eq!(
            (progress.consumed, progress.step),
            (case.input.len(), Step::Input)
        );
        let size = black_box(connection.output()).len();
        assert_eq!(size, case.output_size, "{}", case.name);
        connection.consume_output(size);
    }
    start.elapsed()
}

fn main() {
    // Cargo says whether it runs a bench or a test.
    let measures = std::env::args().any(|argument| argument == "--bench");
    for case in cases() {
        if !measures {
            run(&case, 10);
            continue;
        }
        let times = 2_000_000 / case.parts;
        // The best of several runs: the machine's other work only ever adds.
        let best = (0..7).map(|_| run(&case, times)).min().unwrap_or_default();
        let ns = best.as_nanos() as f64 / f64::from(times) / f64::from(case.parts);
        println!("{:24} {ns:7.1} ns", case.name);
    }
}
