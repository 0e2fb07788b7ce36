//! What goes wrong besides the network.

use conformance::model::Faults;

use super::{CHAOS_NS, Failure, Run};

impl Run {
    /// Whether something that happens about once in `mean_ns` happens now.
    fn strikes(&mut self, mean_ns: u64) -> bool {
        mean_ns > 0 && self.random.u64(..mean_ns.max(CHAOS_NS)) < CHAOS_NS
    }

    /// Decides what goes wrong, and what that went wrong is over.
    pub(super) fn inject_faults(&mut self) -> Result<(), Failure> {
        self.end_streams(self.is_calm);
        if self.machine.is_none() && self.now_ns >= self.restart_at_ns {
            self.start_machine()?;
        }
        if self.is_calm {
            return Ok(());
        }
        let chaos = self.plan.chaos.clone();
        if self.blackout_until_ns > 0 && self.now_ns >= self.blackout_until_ns {
            self.blackout_until_ns = 0;
            self.network.set_faults(self.usual_faults());
            self.note(|| "the network works again".to_string());
        }
        if self.blackout_until_ns == 0 && self.strikes(chaos.blackout_ns) {
            self.blackout_until_ns = self.now_ns + self.random.u64(..self.plan.stall_ns_max);
            let faults = Faults {
                lose_permille: 1000,
                ..self.usual_faults()
            };
            self.network.set_faults(faults);
            self.note(|| "the network loses everything".to_string());
        }
        if self.strikes(chaos.core_stall_ns) {
            self.stall_core();
        }
        if self.strikes(chaos.nic_stall_ns) {
            let until_ns = self.now_ns + self.random.u64(..self.plan.stall_ns_max);
            let client = self.random.usize(1..self.nics.len());
            let node = if self.random.bool() { 0 } else { client };
            self.network.pause(node, until_ns);
            self.counts.note("stalls", 1);
            self.note(|| format!("NIC {node} sends nothing until {until_ns}"));
        }
        if self.strikes(chaos.client_stall_ns) {
            let index = self.random.usize(..self.actors.len());
            let until_ns = self.now_ns + self.random.u64(..self.plan.stall_ns_max);
            self.actors[index].stalled_until_ns = until_ns;
            self.counts.note("stalls", 1);
            self.note(|| format!("client {index} stalls until {until_ns}"));
        }
        if self.strikes(chaos.crash_ns) {
            let index = self.random.usize(..self.actors.len());
            self.crash(index);
        }
        if self.strikes(chaos.break_ns) {
            self.break_stream();
        }
        if self.strikes(chaos.jump_ns) {
            let seconds = self.random.u32(1..5);
            self.jumped_s += seconds;
            self.note(|| format!("the clock jumps {seconds} s"));
        }
        if self.machine.is_some() && self.strikes(chaos.restart_ns) {
            self.kill_machine();
            self.restart_at_ns = self.now_ns + self.random.u64(..self.plan.stall_ns_max);
        }
        Ok(())
    }

    fn usual_faults(&self) -> Faults {
        Faults {
            broken: self.options.broken,
            ..self.plan.faults.clone()
        }
    }

    fn stall_core(&mut self) {
        let until_ns = self.now_ns + self.random.u64(..self.plan.stall_ns_max);
        let core = self.random.usize(..self.plan.server.cores as usize);
        if let Some(machine) = &mut self.machine {
            machine.cores[core].stalled_until_ns = until_ns;
            self.counts.note("stalls", 1);
            self.note(|| format!("core {core} stalls until {until_ns}"));
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
