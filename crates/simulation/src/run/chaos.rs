//! What goes wrong besides nodes and links: streams break, NICs stand still, the date jumps.

use sim::Env;

use super::{Shared, State, steps};

/// How often it is decided what goes wrong next.
const CHAOS_NS: u64 = 20_000;

/// Breaks things as the plan says.
pub(super) async fn trouble(env: Env, state: Shared) {
    let step = |state: &mut State| {
        // At first nobody is there.
        if state.now_ns() > 0 {
            state.inject_faults();
        }
        Ok(CHAOS_NS)
    };
    steps(env.core, state, step).await;
}

impl State {
    /// Whether something that happens about once in `mean_ns` happens now.
    fn strikes(&mut self, mean_ns: u64) -> bool {
        mean_ns > 0 && self.random.u64(..mean_ns.max(CHAOS_NS)) < CHAOS_NS
    }

    /// Decides what goes wrong, and what that went wrong is over.
    fn inject_faults(&mut self) {
        self.end_streams(self.is_calm);
        if self.is_calm {
            return;
        }
        let chaos = self.plan.chaos.clone();
        if self.strikes(chaos.nic_stall_ns) {
            let until_ns = self.now_ns() + self.random.u64(..self.plan.stall_ns_max);
            let client = self.random.usize(1..=self.plan.clients);
            let node = if self.random.bool() { 0 } else { client };
            self.network.pause(node, until_ns);
            self.counts.note("NICs stalled", 1);
            self.note(|| format!("NIC {node} stands still until {until_ns}"));
        }
        if self.strikes(chaos.break_ns) {
            self.break_stream();
        }
        if self.strikes(chaos.jump_ns) {
            let seconds = self.random.u32(1..5);
            self.jumped_s += seconds;
            self.counts.note("clock jumps", 1);
            self.note(|| format!("the clock jumps {seconds} s"));
        }
    }

    /// Breaks a stream, at one side or both.
    fn break_stream(&mut self) {
        let whole = self.exchange.borrow().whole();
        if whole.is_empty() {
            return;
        }
        let wire = whole[self.random.usize(..whole.len())];
        let (at_client, at_server) =
            [(true, false), (false, true), (true, true)][self.random.usize(..3)];
        let mut exchange = self.exchange.borrow_mut();
        if at_client {
            exchange.break_at_client(wire);
        }
        if at_server {
            exchange.break_at_server(wire);
        }
        drop(exchange);
        self.counts.note("streams broken", 1);
        self.note(|| format!("stream {wire} breaks (client {at_client}, server {at_server})"));
    }

    /// Tells the server of streams that ended, and the client of those that the server sees ended,
    /// sooner or later.
    pub(super) fn end_streams(&mut self, at_once: bool) {
        let half_open = self.exchange.borrow().half_open();
        for wire in half_open {
            if at_once || self.random.u8(..4) == 0 {
                let mut exchange = self.exchange.borrow_mut();
                exchange.break_at_server(wire);
                exchange.break_at_client(wire);
                drop(exchange);
                self.note(|| format!("stream {wire} has ended on both sides"));
            }
        }
    }
}
