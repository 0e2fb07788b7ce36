//! Cores read the date once a turn, so that one may be behind another.

use std::convert::Infallible;
use std::task::{Context, Poll};

use engine::{Answer, Ask, Engine, Limits, MapEngine};
use memcache::Host;

use crate::driver::{show, talk_at_once};

/// Carries requests out on a core whose date is a second older than the connection's.
#[derive(Default)]
struct Behind(MapEngine);

impl Engine for Behind {
    type Probe = ();
    type Ticket = Infallible;

    fn probe(&self, _key: &[u8]) {}

    fn start<R>(
        &mut self,
        ask: &Ask<'_>,
        probe: (),
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Infallible> {
        let now_s = ask.now_s - 1;
        self.0.start(&Ask { now_s, ..*ask }, probe, answer)
    }

    fn fetch<R>(
        &mut self,
        ticket: &mut Infallible,
        context: &mut Context<'_>,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Poll<R> {
        self.0.fetch(ticket, context, answer)
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }
}

impl Host for Behind {}

#[test]
fn a_flush_at_once_waits_for_no_date() {
    for flush in ["flush_all", "flush_all 0", "flush_all -1"] {
        let says = format!("set k 0 0 1\r\nv\r\n{flush}\r\nget k\r\n");
        let ended = talk_at_once(&mut Behind::default(), says.as_bytes());
        assert_eq!(
            show(&ended.output),
            show(b"STORED\r\nOK\r\nEND\r\n"),
            "{flush}"
        );
    }
}
