//! The hot paths that are held, and what is counted of them.

use bench::units::{help_of, name_of};
use clap::ValueEnum;
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

const fn stepped(rounds_before: u64, rounds: u64) -> How {
    How::Stepped {
        rounds_before,
        rounds,
        needs: None,
    }
}

/// Through a socket.
const fn through(needs: rt::IoKind) -> How {
    How::Stepped {
        rounds_before: 4,
        rounds: 32,
        needs: Some(needs),
    }
}

macro_rules! cases {
    ($($name:literal $sides:ident $how:expr, $meaning:literal;)*) => {
        /// All of them.
        pub const CASES: &[Case] = &[$(Case {
            name: $name,
            meaning: $meaning,
            how: $how,
            sides: $sides,
        }),*];
    };
}

cases! {
    "herd-get-1" BOTH stepped(16, 48), "HERD, GET that hits, one under way";
    "herd-get-32" BOTH stepped(2, 4), "HERD, GET that hits, 32 under way";
    "herd-miss-1" BOTH stepped(16, 48), "HERD, GET that misses, one under way";
    "herd-miss-32" BOTH stepped(2, 4), "HERD, GET that misses, 32 under way";
    "herd-put-1" BOTH stepped(16, 48), "HERD, PUT of 32 bytes, one under way";
    "herd-put-32" BOTH stepped(2, 4), "HERD, PUT of 32 bytes, 32 under way";
    "nic-write-64" CLIENT stepped(2, 8), "WRITE of 64 bytes inline, one a call, unsignalled";
    "nic-write-64-list" CLIENT stepped(2, 8), "WRITE of 64 bytes inline, 16 a call, unsignalled";
    "nic-write-64-element" CLIENT stepped(2, 4), "WRITE of 64 bytes from registered memory and its completion";
    "nic-read-64" CLIENT stepped(2, 4), "READ of 64 bytes and its completion";
    "nic-cas" CLIENT stepped(2, 4), "compare-and-swap and its completion";
    "nic-send-ud" BOTH stepped(4, 8), "SEND of 64 bytes, unsignalled; RECV and its completion";
    "nic-send-ud-list" BOTH stepped(4, 8), "SEND of 64 bytes, 16 a call, unsignalled; RECV and its completion";
    "mica-get" SERVER stepped(2, 4), "MICA alone, GET in batches of 32";
    "mica-put" SERVER stepped(2, 4), "MICA alone, PUT of 32 bytes in batches of 32";
    "codec-get" SERVER stepped(4, 32), "Memcache codec, get";
    "codec-multiget" SERVER stepped(2, 8), "Memcache codec, a key of a get of 32 keys";
    "codec-set" SERVER stepped(4, 32), "Memcache codec, set of 32 bytes";
    "block-read" SERVER stepped(4, 16), "a read of a block device that takes no time, 32 at once";
    "index-lookup" SERVER stepped(0, 1), "the store's index, a lookup that finds, in batches of 256, AVX2";
    "index-lookup-one" SERVER stepped(1, 4), "the store's index, a lookup that finds, one a call";
    "index-insert" SERVER stepped(1, 4), "the store's index, an insert into a million entries";
    "index-replace" SERVER stepped(1, 4), "the store's index, another place for an entry";
    "store-get" SERVER stepped(2, 6), "GET of 4 KiB from a store whose device takes no time, one under way";
    "store-get-many" SERVER stepped(0, 1), "GET of 4 KiB from a store whose device takes no time, 16 under way";
    "store-put" SERVER stepped(1, 4), "durable PUT of 4 KiB over a value, device that takes no time, one under way";
    "store-put-new" SERVER stepped(1, 4),
        "durable PUT of 4 KiB under a new key, device that takes no time, one under way";
    "store-put-many" SERVER stepped(0, 1),
        "durable PUT of 4 KiB over a value, device that takes no time, 8 under way";
    "door-uring" SERVER through(rt::IoKind::Uring), "get through a TCP socket, io_uring";
    "door-epoll" SERVER through(rt::IoKind::Epoll), "get through a TCP socket, epoll";
    "serve-herd" SERVER How::Served(Way::Herd), "`vervain serve --poll`, 95 % GET over HERD";
    "serve-socket" SERVER How::Served(Way::Socket), "`vervain serve --poll`, get through a TCP socket, epoll";
}

/// What is counted, an operation. `--list` and the file show what each means.
#[derive(
    ValueEnum, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// instructions carried out, the kernel's excluded
    Instructions,
    /// instructions with a lock prefix, or xchg with memory
    Locked,
    /// calls of the allocator for memory
    Allocations,
    /// system calls
    Syscalls,
    /// distinct cache lines a round touches, by operations; no stack
    Lines,
    /// those of the lines in memory shared between processes
    #[value(name = "shared lines")]
    SharedLines,
    /// lines fetched from, or invalidated in, the other side's cache
    Transfers,
}

impl Metric {
    /// All of them, in the order of the table.
    pub fn all() -> &'static [Metric] {
        Metric::value_variants()
    }

    /// Its name.
    pub fn name(self) -> String {
        name_of(&self)
    }

    /// What it means, in a line.
    pub fn meaning(self) -> String {
        help_of(&self)
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
