//! What a seed stands for: sizes, times and faults, each drawn anew.
//!
//! Every seed leaves some faults out altogether ("swarm testing"): a fault that is always there hides
//! what happens without it.

use std::time::Duration;

use cache::herd::{ClientConfig, ServerConfig};
use conformance::model::Faults;
use verbs::Mtu;

/// Nanoseconds of a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;

/// Faults that are not the network's. Each happens about once in so many nanoseconds; 0 is never.
#[derive(Clone, Debug, Default)]
pub struct Chaos {
    /// The server does not run for a while, with one of its cores or with all.
    pub core_stall_ns: u64,
    /// A client does not run for a while.
    pub client_stall_ns: u64,
    /// A client dies; another one takes its place.
    pub crash_ns: u64,
    /// A control stream breaks.
    pub break_ns: u64,
    /// The server dies, and starts again empty.
    pub restart_ns: u64,
    /// A client, or all of them, are cut off from the server for a while.
    pub cut_ns: u64,
    /// The clock by which items expire jumps forwards.
    pub jump_ns: u64,
    /// A NIC comes to no further request for a while, the server's as often as a client's.
    pub nic_stall_ns: u64,
}

impl Chaos {
    /// What befalls the server's node and those of the clients.
    pub(crate) fn of_nodes(&self, plan: &Plan) -> [sim::Chaos; 2] {
        let mean = |ns: u64| (ns > 0).then(|| Duration::from_nanos(ns));
        let of = |nodes, kill_ns, stall_ns, cut_ns| sim::Chaos {
            nodes,
            peers: 1..plan.clients + 1,
            kill: mean(kill_ns),
            stall: mean(stall_ns),
            cut: mean(cut_ns),
            longest: Duration::from_nanos(plan.stall_ns_max),
        };
        [
            of(0..1, self.restart_ns, self.core_stall_ns, self.cut_ns),
            of(1..plan.clients + 1, self.crash_ns, self.client_stall_ns, 0),
        ]
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What everything else was drawn from.
    pub seed: u64,
    /// Clients at work at once.
    pub clients: usize,
    /// Items asked for.
    pub keys: usize,
    /// Keys come in pairs that the index cannot tell apart without looking at them.
    pub keys_alike: bool,
    /// Clients mostly touch and store with an expiry, and read.
    pub touches: bool,
    /// Commands in all, while there are faults.
    pub operations: usize,
    /// The servers.
    pub server: ServerConfig,
    /// The clients.
    pub client: ClientConfig,
    /// Memory of a partition.
    pub partition_bytes: usize,
    /// So many of a hundred answers of a core's engine come later than at once.
    pub late_percent: u32,
    /// Values are at most so long.
    pub value_len_max: usize,
    /// One value in so many takes several requests.
    pub large_one_in: u32,
    /// The most that a NIC inlines.
    pub inline_max: u32,
    /// Bytes of a packet.
    pub mtu: Mtu,
    /// What the network does.
    pub faults: Faults,
    /// What else happens.
    pub chaos: Chaos,
    /// A core polls about this often.
    pub core_poll_ns: u64,
    /// A client polls about this often.
    pub client_poll_ns: u64,
    /// A client asks for so many things at once at most.
    pub burst_max: usize,
    /// Clocks run apart by so many thousandths at most.
    pub drift_permille: u64,
    /// A second of the clock by which items expire.
    pub second_ns: u64,
    /// Expiries are used.
    pub expires: bool,
    /// Where the stalls and pauses of this plan end at most.
    pub stall_ns_max: u64,
}

impl Plan {
    /// The seed of the partitions' hash. Not drawn: a seed of the run decides what it has always
    /// decided.
    pub fn hash_seed(&self) -> u64 {
        !self.server.route_seed
    }

    /// Draws a plan.
    pub fn draw(seed: u64) -> Plan {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x0005_1a70_ca5e_0000);
        let r = &mut random;
        // One run in ten has a network that does nothing bad, and nothing else happens.
        let calm = r.u8(..10) == 0;
        let one_of = |r: &mut fastrand::Rng, choices: &[u64]| choices[r.usize(..choices.len())];
        let sometimes = |r: &mut fastrand::Rng, choices: &[u64]| {
            let value = choices[r.usize(..choices.len())];
            if r.bool() && !calm { value } else { 0 }
        };
        let clients = one_of(r, &[3, 6, 12, 20, 32]) as usize;
        let cores = r.u32(1..=4);
        let window = 1 << r.u32(0..=4);
        let slot_len = one_of(r, &[512, 640, 1024]) as u32;
        let value_len_max = one_of(r, &[300, 2_000, 9_000]) as usize;
        let delay_ns_min = r.u64(200..2 * US);
        let faults = Faults {
            post_ns_max: sometimes(r, &[200, 2 * US]),
            delay_ns_min,
            delay_ns_max: delay_ns_min + r.u64(100..4 * US),
            slow_permille: sometimes(r, &[5, 50]) as u16,
            slow_ns_max: one_of(r, &[30 * US, 500 * US]),
            line_ns_max: sometimes(r, &[300, 3 * US]),
            lose_permille: sometimes(r, &[3, 30, 150]) as u16,
            lose_datagrams: false,
            cut_permille: sometimes(r, &[5, 50]) as u16,
            double_permille: sometimes(r, &[10, 100]) as u16,
            reorder: r.bool(),
            broken: None,
        };
        let chaos = Chaos {
            core_stall_ns: sometimes(r, &[200 * US, MS]),
            client_stall_ns: sometimes(r, &[100 * US, 500 * US]),
            crash_ns: sometimes(r, &[300 * US, 2 * MS]),
            break_ns: sometimes(r, &[300 * US, 2 * MS]),
            restart_ns: sometimes(r, &[2 * MS, 5 * MS]),
            cut_ns: sometimes(r, &[100 * US, 500 * US]),
            jump_ns: sometimes(r, &[MS]),
            nic_stall_ns: sometimes(r, &[200 * US, MS]),
        };
        let server = ServerConfig {
            cores,
            clients_max: clients as u32 + r.u32(1..6),
            window_max: 1 << r.u32(0..=4),
            slot_len,
            value_len_max: value_len_max as u32 + one_of(r, &[8, 2_000]) as u32,
            staging_count: r.u32(1..=4),
            staging_idle_ns: one_of(r, &[100 * US, MS]),
            idle_ns: if r.bool() {
                one_of(r, &[5 * US, 50 * US])
            } else {
                0
            },
            handle_rest_ns: one_of(r, &[50 * US, 500 * US]),
            batch_max: one_of(r, &[1, 4, 32]) as u32,
            route_seed: r.u64(..),
            incarnation: 1,
            // Ids wrap at once, after a while, or not at all.
            first_id: Some(match r.u8(..4) {
                0 => u32::MAX - r.u32(..4),
                1 => u32::MAX - r.u32(4..40),
                _ => r.u32(1..100),
            }),
            ..ServerConfig::default()
        };
        let client = ClientConfig {
            window,
            deadline_ns: one_of(r, &[300 * US, MS, 4 * MS]),
            retry_ns: one_of(r, &[15 * US, 30 * US, 60 * US]),
            lost_ns: one_of(r, &[400 * US, 2 * MS]),
            redial_ns: one_of(r, &[10 * US, 50 * US]),
            control_check_ns: one_of(r, &[20 * US, 200 * US]),
            transfers_max: r.usize(1..=3),
            seed: Some(0),
        };
        Plan {
            seed,
            clients,
            keys: (clients / 2).max(5) + r.usize(..clients),
            keys_alike: r.bool(),
            touches: r.u8(..4) == 0,
            operations: 1_500,
            server,
            client,
            partition_bytes: one_of(r, &[4 << 10, 24 << 10, 1 << 20]) as usize,
            value_len_max,
            large_one_in: one_of(r, &[1, 4, 12, 1_000]) as u32,
            inline_max: one_of(r, &[64, 220, 512]) as u32,
            mtu: [Mtu::B512, Mtu::B1024, Mtu::B4096][r.usize(..3)],
            faults,
            chaos,
            core_poll_ns: r.u64(300..3 * US),
            client_poll_ns: r.u64(US..8 * US),
            burst_max: one_of(r, &[1, 3, 8]) as usize,
            drift_permille: sometimes(r, &[1, 100]),
            second_ns: one_of(r, &[100 * US, 400 * US]),
            expires: r.bool(),
            stall_ns_max: one_of(r, &[50 * US, 600 * US]),
            // Drawn last: all else is as it was for the seed.
            late_percent: one_of(r, &[0, 0, 50, 100]) as u32,
        }
    }
}
