//! When a command without an answer can have no effect any more.
//!
//! - A server carries out a client's requests to one core in their order. So a request that timed
//!   out is over when a later one of the same connection to the same core has been answered.
//! - A core that has let a client go carries out nothing more of it, nor does a dead server.
//! - What was never sent is over at once.

use std::collections::BTreeSet;

use crate::control::WireNum;
use checker::history::{Moment, Operation};

/// A command whose end is not known yet.
#[derive(Debug)]
struct Open {
    number: usize,
    client: usize,
    core: usize,
    wire: WireNum,
    /// It timed out then; `None` when its connection or its client was lost.
    timed_out: Option<Moment>,
}

/// All such commands.
#[derive(Debug, Default)]
pub(super) struct Fates {
    open: Vec<Open>,
    /// Connections that a core has let go.
    let_go: BTreeSet<(WireNum, usize)>,
    /// Connections before it were to servers that have died.
    dead_before: WireNum,
}

impl Fates {
    /// A command has no answer; `(client, core, wire)` is where it was sent, if it was.
    pub(super) fn open(
        &mut self,
        number: usize,
        (client, core, wire): (usize, usize, Option<WireNum>),
        now: Moment,
        timed_out: bool,
        history: &mut [Operation],
    ) {
        match wire {
            Some(wire) if wire >= self.dead_before && !self.let_go.contains(&(wire, core)) => {
                let timed_out = timed_out.then_some(now);
                self.open.push(Open {
                    number,
                    client,
                    core,
                    wire,
                    timed_out,
                });
            }
            _ => history[number].ends = Some(now),
        }
    }

    /// How many there are of an item.
    pub(super) fn open_of(&self, key: usize, history: &[Operation]) -> usize {
        let of_key = |open: &&Open| history[open.number].key == key;
        self.open.iter().filter(of_key).count()
    }

    /// A command that began at `begins` has been answered.
    pub(super) fn passed(
        &mut self,
        client: usize,
        core: usize,
        wire: Option<WireNum>,
        begins: Moment,
        now: Moment,
        history: &mut [Operation],
    ) {
        self.end_those(now, history, |open| {
            open.client == client
                && open.core == core
                && Some(open.wire) == wire
                && open.timed_out.is_some_and(|timed_out| timed_out < begins)
        });
    }

    /// A core has let a connection go.
    pub(super) fn let_go(
        &mut self,
        wire: WireNum,
        core: usize,
        now: Moment,
        history: &mut [Operation],
    ) {
        self.let_go.insert((wire, core));
        self.end_those(now, history, |open| open.wire == wire && open.core == core);
    }

    /// The server has died; connections from `wire` on will be to the next one.
    pub(super) fn died(&mut self, wire: WireNum, now: Moment, history: &mut [Operation]) {
        self.dead_before = wire;
        self.end_those(now, history, |open| open.wire < wire);
    }

    fn end_those(
        &mut self,
        now: Moment,
        history: &mut [Operation],
        is_over: impl Fn(&Open) -> bool,
    ) {
        self.open.retain(|open| {
            let over = is_over(open);
            if over {
                history[open.number].ends = Some(now);
            }
            !over
        });
    }
}
