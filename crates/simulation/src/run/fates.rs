//! When a command without an answer can have no effect any more.
//!
//! - A server carries out a client's requests to one core in their order. So a request that timed
//!   out is over when a later one of the same connection to the same core has been answered.
//! - A core that has let a client go carries out nothing more of it, nor does a dead server.
//! - What was never sent is over at once.

use std::collections::BTreeSet;

use super::State;
use crate::control::WireNum;
use checker::history::Moment;

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

impl State {
    /// A command has no answer; `(client, core, wire)` is where it was sent, if it was.
    pub(super) fn leave_open(
        &mut self,
        number: usize,
        (client, core, wire): (usize, usize, Option<WireNum>),
        timed_out: bool,
    ) {
        let Fates {
            open,
            let_go,
            dead_before,
        } = &mut self.fates;
        match wire {
            Some(wire) if wire >= *dead_before && !let_go.contains(&(wire, core)) => {
                open.push(Open {
                    number,
                    client,
                    core,
                    wire,
                    timed_out: timed_out.then_some(self.moment),
                });
            }
            _ => self.history[number].ends = Some(self.moment),
        }
    }

    /// How many there are of an item.
    pub(super) fn open_of(&self, key: usize) -> usize {
        let of_key = |open: &&Open| self.history[open.number].key == key;
        self.fates.open.iter().filter(of_key).count()
    }

    /// A command that began at `begins` has been answered.
    pub(super) fn passed(
        &mut self,
        (client, core, wire): (usize, usize, Option<WireNum>),
        begins: Moment,
    ) {
        self.end_those(|open| {
            (open.client, open.core, Some(open.wire)) == (client, core, wire)
                && open.timed_out.is_some_and(|timed_out| timed_out < begins)
        });
    }

    /// A core has let a connection go.
    pub(super) fn was_let_go(&mut self, wire: WireNum, core: usize) {
        self.fates.let_go.insert((wire, core));
        self.end_those(|open| open.wire == wire && open.core == core);
    }

    /// The server has died; connections from `wire` on will be to the next one.
    pub(super) fn all_died(&mut self, wire: WireNum) {
        self.fates.dead_before = wire;
        self.end_those(|open| open.wire < wire);
    }

    fn end_those(&mut self, is_over: impl Fn(&Open) -> bool) {
        for over in self.fates.open.extract_if(.., |open| is_over(open)) {
            self.history[over.number].ends = Some(self.moment);
        }
    }
}
