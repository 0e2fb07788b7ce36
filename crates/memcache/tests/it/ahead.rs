//! The engine is told the keys of requests that come next, each once and before its turn.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

use engine::{Answer, Ask, Engine, MapEngine};
use memcache::{Connection, Host, Limits, Step};

use crate::driver::NOW_S;

/// Remembers the keys of hints that no request has come for.
#[derive(Default)]
struct Hinted {
    inner: MapEngine,
    hinted: RefCell<Vec<Vec<u8>>>,
    hints: Cell<usize>,
    /// Requests that came unannounced.
    surprises: usize,
}

impl Engine for Hinted {
    type Probe = ();
    type Ticket = <MapEngine as Engine>::Ticket;

    fn probe(&self, _key: &[u8]) {}

    fn start<R>(
        &mut self,
        ask: &Ask<'_>,
        probe: (),
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Self::Ticket> {
        let key = ask.command.key().unwrap_or_default();
        let mut hinted = self.hinted.borrow_mut();
        match hinted.iter().position(|hinted| hinted == key) {
            Some(at) => drop(hinted.remove(at)),
            None => self.surprises += 1,
        }
        self.inner.start(ask, probe, answer)
    }

    fn look_ahead(&self, keys: &[&[u8]]) {
        self.hints.set(self.hints.get() + keys.len());
        let keys = keys.iter().map(|key| key.to_vec());
        self.hinted.borrow_mut().extend(keys);
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

impl Host for Hinted {}

/// Gives the input in one piece. Returns how many keys were hinted and how many were not.
fn hints(input: &str) -> (usize, usize) {
    let mut engine = Hinted::default();
    let mut connection = Connection::new(Limits::default());
    let mut context = Context::from_waker(Waker::noop());
    let progress = connection.advance(&mut engine, NOW_S, &mut context, input.as_bytes());
    assert_eq!(progress.step, Step::Input);
    assert_eq!(progress.consumed, input.len());
    assert!(
        engine.hinted.borrow().is_empty(),
        "a hint that nothing came for"
    );
    (engine.hints.get(), engine.surprises)
}

fn lines(line: impl Fn(usize) -> String) -> String {
    (0..40).map(line).collect()
}

#[test]
fn a_request_alone_is_not_announced() {
    assert_eq!(hints("get a\r\n"), (0, 1));
    assert_eq!(hints("set a 0 0 2\r\nxx\r\n"), (0, 1));
}

#[test]
fn pipelined_requests_are_announced() {
    assert_eq!(hints(&lines(|at| format!("get {at}\r\n"))), (40, 0));
    // What is behind the first line of a store is most often only its value.
    let stores = lines(|at| format!("set {at} 0 0 2\r\nxx\r\n"));
    assert_eq!(hints(&stores), (39, 1));
    let mixed = lines(|at| match at % 4 {
        0 => format!("gets {at}\r\n"),
        1 => format!("add {at} 0 0 7\r\nget a\r\n\r\n"),
        2 => format!("incr {at} 1\r\n"),
        _ => format!("delete {at}\r\n"),
    });
    assert_eq!(hints(&mixed), (40, 0));
}

#[test]
fn the_keys_of_a_list_are_announced() {
    let list = format!("get {}\r\n", lines(|at| format!(" {at}")));
    assert_eq!(hints(&list), (40, 0));
    assert_eq!(hints(&list.repeat(3)), (120, 0));
}
