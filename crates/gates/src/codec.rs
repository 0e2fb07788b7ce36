//! The Memcache protocol without I/O, over an engine that does nothing.

use std::convert::Infallible;
use std::hint::black_box;
use std::task::{Context, Poll, Waker};

use anyhow::ensure;
use engine::{Answer, Command, Engine};
use gates::Mark;
use memcache::{Connection, Host, Limits, Step};

use crate::Path;
use crate::tell::mark;

const KEY: &str = "key:000000000001";
const MULTIGET: usize = 32;

/// An engine that has 32 bytes under every key.
pub(crate) struct Trivial {
    value: [u8; 32],
}

impl Trivial {
    pub(crate) fn new() -> Self {
        Trivial { value: [b'v'; 32] }
    }
}

impl Engine for Trivial {
    type Probe = ();
    type Ticket = Infallible;

    fn probe(&self, _key: &[u8]) {}

    #[inline]
    fn start<R>(
        &mut self,
        ask: &engine::Ask<'_>,
        _probe: (),
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Infallible> {
        Ok(answer(match black_box(ask.command) {
            Command::Get { .. } => Answer::Item {
                value: (&self.value).into(),
                flags: 0,
                cas: 1,
            },
            Command::Store { .. } => Answer::Stored { cas: 1 },
            _ => Answer::NotFound,
        }))
    }

    fn fetch<R>(
        &mut self,
        ticket: &mut Infallible,
        _context: &mut Context<'_>,
        _answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Poll<R> {
        match *ticket {}
    }

    fn limits(&self) -> engine::Limits {
        engine::Limits {
            item_size_max: 1 << 20,
            value_size_max: 1 << 20,
        }
    }
}

impl Host for Trivial {}

/// What the client says.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    Get,
    Multiget,
    Set,
}

impl Ask {
    /// The request and the answer to it.
    pub(crate) fn lines(self) -> (Vec<u8>, Vec<u8>) {
        let block = format!("VALUE {KEY} 0 32\r\n{}\r\n", "v".repeat(32));
        let (request, answer) = match self {
            Ask::Get => (format!("get {KEY}\r\n"), format!("{block}END\r\n")),
            Ask::Multiget => (
                format!("get{}\r\n", format!(" {KEY}").repeat(MULTIGET)),
                format!("{}END\r\n", block.repeat(MULTIGET)),
            ),
            Ask::Set => (
                format!("set {KEY} 0 0 32\r\n{}\r\n", "v".repeat(32)),
                "STORED\r\n".to_string(),
            ),
        };
        (request.into_bytes(), answer.into_bytes())
    }
}

pub(crate) struct Codec {
    ask: Ask,
    engine: Trivial,
    connection: Connection<Infallible>,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Codec {
    pub(crate) fn new(ask: Ask) -> Self {
        let (request, answer) = ask.lines();
        Codec {
            ask,
            engine: Trivial::new(),
            connection: Connection::new(Limits::default()),
            request,
            answer,
        }
    }
}

impl Path for Codec {
    /// Requests, or keys of the one request.
    fn operations(&self) -> usize {
        match self.ask {
            Ask::Get | Ask::Set => 1,
            Ask::Multiget => MULTIGET,
        }
    }

    fn round(&mut self) -> anyhow::Result<()> {
        let mut context = Context::from_waker(Waker::noop());
        let input = black_box(&self.request[..]);
        mark(Mark::Server);
        let progress = self
            .connection
            .advance(&mut self.engine, 1, &mut context, input);
        mark(Mark::Nobody);
        ensure!(
            (progress.consumed, progress.step) == (input.len(), Step::Input),
            "the request was not taken"
        );
        ensure!(self.connection.output() == self.answer, "a wrong answer");
        self.connection.consume_output(self.answer.len());
        Ok(())
    }
}
