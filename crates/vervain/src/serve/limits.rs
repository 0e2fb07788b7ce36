//! How much of everything the server allows, as the flags and the machine say.

use std::time::Duration;

use anyhow::ensure;

use super::machine;
use crate::cli::ServeFlags;

/// Connections when nobody says how many.
const CONNECTIONS: usize = 16_384;
/// Descriptors of a server that nobody is connected to, and some more for whatever comes up.
const DESCRIPTORS_OWN: usize = 64;
/// Descriptors of each core: its ring or epoll, its bell, its doors, its queues.
const DESCRIPTORS_A_CORE: usize = 16;
/// Descriptors that each HERD client needs besides its connection: the two ends of the NIC's contact,
/// the file behind its region, and one more while it comes or goes.
const DESCRIPTORS_A_CLIENT: usize = 4;

/// What the server allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) item_size_max: usize,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) stall_timeout: Duration,
    /// Memory of all connections together.
    pub(super) connections_memory: usize,
    /// What one of them may use.
    pub(super) connection: memcache::Limits,
}

impl Limits {
    /// The limits that the flags ask for, if the machine has that much.
    pub(super) fn new(flags: &ServeFlags, cores: usize) -> anyhow::Result<Self> {
        let descriptors = machine::allow_descriptors();
        let connections = connections(
            flags.connections.map(|wanted| wanted as usize),
            descriptors,
            cores,
            flags.clients as usize,
        )?;
        Ok(Limits {
            connections,
            item_size_max: flags.item_max,
            idle_timeout: (!flags.idle_timeout.is_zero()).then_some(flags.idle_timeout),
            stall_timeout: flags.stall_timeout,
            connections_memory: flags.connections_memory,
            connection: memcache::Limits {
                output_high_water: flags.connection_memory,
                line_size_max: flags.line_max,
                keys_max: flags
                    .keys_max
                    .map_or(usize::MAX, |keys_max| keys_max as usize),
                requests_at_once: flags.requests_at_once as usize,
                ..memcache::Limits::DEFAULT
            },
        })
    }
}

impl Limits {
    /// Tells them for `stats settings`, by memcached's names where it has them.
    pub(super) fn tell(&self, out: &mut dyn FnMut(&str, &str)) {
        out("maxconns", &self.connections.to_string());
        out("maxconns_fast", "yes");
        out("item_size_max", &self.item_size_max.to_string());
        out(
            "reqs_per_event",
            &self.connection.requests_at_once.to_string(),
        );
        let idle_timeout = self.idle_timeout.unwrap_or_default();
        out("idle_timeout", &seconds(idle_timeout));
        out("stall_timeout", &seconds(self.stall_timeout));
        out("line_size_max", &self.connection.line_size_max.to_string());
        let keys_max = self.connection.keys_max;
        out(
            "keys_max",
            &if keys_max == usize::MAX {
                "none".to_string()
            } else {
                keys_max.to_string()
            },
        );
        out(
            "connection_bytes_max",
            &self.connection.output_high_water.to_string(),
        );
        out(
            "connections_bytes_max",
            &self.connections_memory.to_string(),
        );
    }
}

/// A time as memcached tells it.
fn seconds(time: Duration) -> String {
    if time.subsec_nanos() == 0 {
        time.as_secs().to_string()
    } else {
        time.as_secs_f64().to_string()
    }
}

/// Connections that so many descriptors are enough for, with so many HERD clients at most.
fn connections(
    wanted: Option<usize>,
    descriptors: usize,
    cores: usize,
    clients: usize,
) -> anyhow::Result<usize> {
    // Where there are few, the clients that are allowed, and hardly ever come, get no more than half.
    let herd = (clients * DESCRIPTORS_A_CLIENT).min(descriptors / 2);
    let reserved = DESCRIPTORS_OWN + herd + cores * DESCRIPTORS_A_CORE;
    // A machine that gives very few has them shared.
    let room = descriptors
        .saturating_sub(reserved)
        .max(descriptors / 4)
        .max(1);
    let Some(wanted) = wanted else {
        return Ok(CONNECTIONS.min(room));
    };
    ensure!(
        wanted <= room,
        "--connections {wanted} is more than this process may open: {descriptors} descriptors are \
         enough for {room} (raise the limit with `ulimit -n`, or allow fewer HERD clients with \
         --clients)",
    );
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_rest() {
        let room = |descriptors, clients| connections(None, descriptors, 2, clients).unwrap();
        assert_eq!(room(1 << 20, 65_536), CONNECTIONS);
        assert_eq!(room(20_000, 256), CONNECTIONS);
        assert_eq!(room(1024, 32), 1024 - 64 - 128 - 32);
        assert_eq!(room(1024, 256), 1024 - 64 - 512 - 32);
        assert_eq!(room(100, 256), 25);
        assert_eq!(connections(Some(800), 1024, 2, 32).unwrap(), 800);
        let refused = connections(Some(801), 1024, 2, 32).unwrap_err().to_string();
        assert!(refused.contains("enough for 800"), "{refused}");
    }
}
