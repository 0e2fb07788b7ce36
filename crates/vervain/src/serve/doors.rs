//! What the doors of all cores count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use memcache::Event;

use super::watch::{Cause, Room};

/// Counters of connections and of what they were refused. Only what happens rarely is counted here.
#[derive(Debug, Default)]
pub(super) struct Doors {
    /// What those hold that were ended to make room.
    pub(super) room: Room,
    connections_max: u64,
    connections: AtomicU64,
    connections_total: AtomicU64,
    rejected: AtomicU64,
    pauses: AtomicU64,
    paused_us: AtomicU64,
    idle_kicks: AtomicU64,
    memory_kicks: AtomicU64,
    yields: AtomicU64,
    values_too_large: AtomicU64,
    lines_too_long: AtomicU64,
    too_many_keys: AtomicU64,
    out_of_memory: AtomicU64,
    failed_in_silence: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Doors {
    /// Counters at zero, for doors that let so many connections in.
    pub(super) fn new(connections_max: usize) -> Self {
        Doors {
            connections_max: connections_max as u64,
            ..Doors::default()
        }
    }

    /// Counts a connection. False if there are as many as may be.
    pub(super) fn connected(&self) -> bool {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        if before >= self.connections_max {
            self.disconnected();
            add(&self.rejected, 1);
            return false;
        }
        add(&self.connections_total, 1);
        true
    }

    pub(super) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a pause in accepting, for want of descriptors or memory.
    pub(super) fn paused(&self, pause: Duration) {
        // Whoever finds a pause counted finds its time as well.
        let paused_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        add(&self.paused_us, paused_us);
        add(&self.pauses, 1);
    }

    pub(super) fn kicked(&self, cause: Cause) {
        match cause {
            Cause::Idle => add(&self.idle_kicks, 1),
            Cause::Memory => add(&self.memory_kicks, 1),
        }
    }

    pub(super) fn note(&self, event: Event) {
        match event {
            Event::Yielded => add(&self.yields, 1),
            Event::ValueTooLarge => add(&self.values_too_large, 1),
            Event::LineTooLong => add(&self.lines_too_long, 1),
            Event::TooManyKeys => add(&self.too_many_keys, 1),
            Event::OutOfMemory => add(&self.out_of_memory, 1),
            Event::FailedInSilence => add(&self.failed_in_silence, 1),
            // Others are not told of.
            _ => {}
        }
    }

    /// Sets all counters but that of the connections there are to zero.
    pub(super) fn reset(&self) {
        for counter in [
            &self.connections_total,
            &self.rejected,
            &self.pauses,
            &self.paused_us,
            &self.idle_kicks,
            &self.memory_kicks,
            &self.yields,
            &self.values_too_large,
            &self.lines_too_long,
            &self.too_many_keys,
            &self.out_of_memory,
            &self.failed_in_silence,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Tells the counters, by memcached's names where it has them.
    pub(super) fn tell(&self, tell: &mut impl FnMut(&str, u64)) {
        tell("max_connections", self.connections_max);
        for (name, counter) in [
            ("curr_connections", &self.connections),
            ("total_connections", &self.connections_total),
            ("rejected_connections", &self.rejected),
            ("listen_disabled_num", &self.pauses),
            ("time_in_listen_disabled_us", &self.paused_us),
            ("idle_kicks", &self.idle_kicks),
            ("memory_kicks", &self.memory_kicks),
            ("conn_yields", &self.yields),
            ("store_too_large", &self.values_too_large),
            ("line_too_long", &self.lines_too_long),
            ("too_many_keys", &self.too_many_keys),
            ("out_of_memory", &self.out_of_memory),
            ("noreply_failed", &self.failed_in_silence),
        ] {
            tell(name, counter.load(Ordering::Relaxed));
        }
    }
}
