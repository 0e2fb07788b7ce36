//! Cores read the date once a turn, so that one may be behind another.

use std::convert::Infallible;
use std::task::{Context, Poll};

use memcache::{Engine, MapEngine, Reply, Request};

use crate::driver::{show, talk_at_once};

/// Carries requests out on a core whose date is a second older than the connection's.
#[derive(Default)]
struct Behind(MapEngine);

impl Engine for Behind {
    type Ticket = Infallible;

    fn start<R>(
        &mut self,
        now_s: u64,
        request: Request<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Infallible> {
        self.0.start(now_s - 1, request, reply)
    }

    fn poll<R>(
        &mut self,
        ticket: &mut Infallible,
        context: &mut Context<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Poll<R> {
        self.0.poll(ticket, context, reply)
    }

    fn item_size_max(&self) -> usize {
        self.0.item_size_max()
    }

    fn version(&self) -> &str {
        self.0.version()
    }

    fn stats(&self, section: &str, out: &mut dyn FnMut(&str, &str)) -> bool {
        self.0.stats(section, out)
    }

    fn reset_stats(&mut self) {
        self.0.reset_stats();
    }

    fn allows_upgrade(&self, arguments: &[u8]) -> bool {
        self.0.allows_upgrade(arguments)
    }
}

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
