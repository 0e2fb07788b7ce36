//! The hot paths that are held, and what is counted of them.

use serde::{Deserialize, Serialize};

use super::serve::Way;

/// A hot path.
pub struct Case {
    /// Its name, as the driver knows it.
    pub name: &'static str,
    /// What one operation is.
    pub meaning: &'static str,
    /// How it is counted.
    pub how: How,
    /// Which sides it has.
    pub sides: &'static [&'static str],
}

/// How a case is counted.
#[derive(Clone, Copy)]
pub enum How {
    /// A driver is stepped through.
    Stepped {
        /// Rounds that are watched before counting, so that lines have found their owners.
        rounds_before: u64,
        /// Rounds that count.
        rounds: u64,
        /// What the driver cannot do without.
        needs: Option<rt::IoKind>,
    },
    /// The system calls of a server are counted.
    Served(Way),
}

/// The asking and the answering side.
const BOTH: &[&str] = &["client", "server"];
/// What has but one side, and what is done there.
const CLIENT: &[&str] = &["client"];
const SERVER: &[&str] = &["server"];

const fn case(
    name: &'static str,
    meaning: &'static str,
    rounds: (u64, u64),
    sides: &'static [&'static str],
) -> Case {
    let how = How::Stepped {
        rounds_before: rounds.0,
        rounds: rounds.1,
        needs: None,
    };
    Case {
        name,
        meaning,
        how,
        sides,
    }
}

/// The same through a socket.
const fn door(name: &'static str, meaning: &'static str, needs: rt::IoKind) -> Case {
    let how = How::Stepped {
        rounds_before: 4,
        rounds: 32,
        needs: Some(needs),
    };
    Case {
        name,
        meaning,
        how,
        sides: SERVER,
    }
}

const fn served(name: &'static str, meaning: &'static str, way: Way) -> Case {
    Case {
        name,
        meaning,
        how: How::Served(way),
        sides: SERVER,
    }
}

/// All of them.
pub const CASES: &[Case] = &[
    case(
        "herd-get-1",
        "HERD, GET that hits, one under way",
        (16, 48),
        BOTH,
    ),
    case(
        "herd-get-32",
        "HERD, GET that hits, 32 under way",
        (2, 4),
        BOTH,
    ),
    case(
        "herd-miss-1",
        "HERD, GET that misses, one under way",
        (16, 48),
        BOTH,
    ),
    case(
        "herd-miss-32",
        "HERD, GET that misses, 32 under way",
        (2, 4),
        BOTH,
    ),
    case(
        "herd-put-1",
        "HERD, PUT of 32 bytes, one under way",
        (16, 48),
        BOTH,
    ),
    case(
        "herd-put-32",
        "HERD, PUT of 32 bytes, 32 under way",
        (2, 4),
        BOTH,
    ),
    case(
        "nic-write-64",
        "WRITE of 64 bytes inline, one a call, unsignalled",
        (2, 8),
        CLIENT,
    ),
    case(
        "nic-write-64-list",
        "WRITE of 64 bytes inline, 16 a call, unsignalled",
        (2, 8),
        CLIENT,
    ),
    case(
        "nic-read-64",
        "READ of 64 bytes and its completion",
        (2, 4),
        CLIENT,
    ),
    case(
        "nic-cas",
        "compare-and-swap and its completion",
        (2, 4),
        CLIENT,
    ),
    case(
        "nic-send-ud",
        "SEND of 64 bytes, unsignalled; RECV and its completion",
        (4, 8),
        BOTH,
    ),
    case(
        "mica-get",
        "MICA alone, GET in batches of 32",
        (2, 4),
        SERVER,
    ),
    case(
        "mica-put",
        "MICA alone, PUT of 32 bytes in batches of 32",
        (2, 4),
        SERVER,
    ),
    case("codec-get", "Memcache codec, get", (4, 32), SERVER),
    case(
        "codec-multiget",
        "Memcache codec, a key of a get of 32 keys",
        (2, 8),
        SERVER,
    ),
    case(
        "codec-set",
        "Memcache codec, set of 32 bytes",
        (4, 32),
        SERVER,
    ),
    case(
        "block-read",
        "a read of a block device that takes no time, 32 at once",
        (4, 16),
        SERVER,
    ),
    case(
        "index-lookup",
        "the store's index, a lookup that finds, in batches of 256, AVX2",
        (0, 1),
        SERVER,
    ),
    case(
        "index-lookup-one",
        "the store's index, a lookup that finds, one a call",
        (1, 4),
        SERVER,
    ),
    case(
        "index-insert",
        "the store's index, an insert into a million entries",
        (1, 4),
        SERVER,
    ),
    case(
        "index-replace",
        "the store's index, another place for an entry",
        (1, 4),
        SERVER,
    ),
    case(
        "store-get",
        "GET of 4 KiB from a store whose device takes no time, one under way",
        (2, 6),
        SERVER,
    ),
    case(
        "store-get-many",
        "GET of 4 KiB from a store whose device takes no time, 16 under way",
        (0, 1),
        SERVER,
    ),
    case(
        "store-put",
        "durable PUT of 4 KiB over a value, device that takes no time, one under way",
        (1, 4),
        SERVER,
    ),
    case(
        "store-put-new",
        "durable PUT of 4 KiB under a new key, device that takes no time, one under way",
        (1, 4),
        SERVER,
    ),
    case(
        "store-put-many",
        "durable PUT of 4 KiB over a value, device that takes no time, 8 under way",
        (0, 1),
        SERVER,
    ),
    door(
        "door-uring",
        "get through a TCP socket, io_uring",
        rt::IoKind::Uring,
    ),
    door(
        "door-epoll",
        "get through a TCP socket, epoll",
        rt::IoKind::Epoll,
    ),
    served(
        "serve-herd",
        "`vervain serve --poll`, 95 % GET over HERD",
        Way::Herd,
    ),
    served(
        "serve-socket",
        "`vervain serve --poll`, get through a TCP socket, epoll",
        Way::Socket,
    ),
];

/// What is counted, an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Instructions.
    Instructions,
    /// Those of them that lock a cache line.
    Locked,
    /// Allocations.
    Allocations,
    /// System calls.
    Syscalls,
    /// Lines of memory that a round touches, the stack excluded.
    Lines,
    /// Those of them in memory shared with other processes.
    SharedLines,
    /// Lines that travel between the two sides' caches.
    Transfers,
}

impl Metric {
    /// All of them, in the order of the table.
    pub const ALL: [Metric; 7] = [
        Metric::Instructions,
        Metric::Locked,
        Metric::Allocations,
        Metric::Syscalls,
        Metric::Lines,
        Metric::SharedLines,
        Metric::Transfers,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Instructions => "instructions",
            Metric::Locked => "locked",
            Metric::Allocations => "allocations",
            Metric::Syscalls => "syscalls",
            Metric::Lines => "lines",
            Metric::SharedLines => "shared lines",
            Metric::Transfers => "transfers",
        }
    }

    /// What it means, in a line.
    pub fn meaning(self) -> &'static str {
        match self {
            Metric::Instructions => "instructions carried out, the kernel's excluded",
            Metric::Locked => "instructions with a lock prefix, or xchg with memory",
            Metric::Allocations => "calls of the allocator for memory",
            Metric::Syscalls => "system calls",
            Metric::Lines => "distinct cache lines a round touches, by operations; no stack",
            Metric::SharedLines => "those of the lines in memory shared between processes",
            Metric::Transfers => "lines fetched from, or invalidated in, the other side's cache",
        }
    }

    /// How far a count may be from the one that is kept: so many percent, and so much.
    pub fn tolerance(self, case: &str) -> (f64, f64) {
        let case = CASES.iter().find(|known| known.name == case);
        if case.is_some_and(|case| matches!(case.how, How::Served(_))) {
            // Timers, clients that come and go a little earlier or later.
            return (0.0, 0.02);
        }
        match self {
            // The clock's code in the kernel's page, and hash maps seeded by the system.
            Metric::Instructions => (2.0, 1.0),
            // Constants and small objects move with every change of the program.
            Metric::Lines => (5.0, 1.0),
            Metric::SharedLines | Metric::Transfers => (1.0, 0.05),
            // Exact, but for the three digits that are kept.
            Metric::Locked | Metric::Allocations | Metric::Syscalls => (0.0, 0.001),
        }
    }
}
