//! The figures that are compared with goals: the cache's, the store's, the file system's, and those of unmodified programs.

use serde::{Deserialize, Serialize};

macro_rules! goals {
    ($(#[$doc:meta])* $ratios:ident, $goals:ident:
     $($name:ident $bound:ident($limit:literal) $shown:ident, $title:literal, $meaning:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
        pub struct $ratios {
            $(#[doc = $meaning] pub $name: Option<f64>,)*
        }

        #[doc = concat!("The goals of [`", stringify!($ratios), "`], in order.")]
        pub const $goals: &[Goal] = &[$(Goal {
            name: stringify!($name),
            bound: Bound::$bound($limit),
            shown: Shown::$shown,
            title: $title,
            meaning: $meaning,
        }),*];

        impl $ratios {
            /// Each goal with its figure.
            pub fn rows(&self) -> impl Iterator<Item = (&'static Goal, Option<f64>)> {
                $goals.iter().zip([$(self.$name),*])
            }
        }
    };
}

goals! {
    /// The cache's figures, by their names. What could not be measured is `None`.
    Ratios, GOALS:
    // HERD's figure for one core: SIGCOMM'14, Fig. 13.
    herd_mops AtLeast(6.3) Mops, "cache over RDMA, one server core",
        "Requests that one server core answers, 95 % GET, 16-byte keys and 32-byte values; HERD's paper has 6.3.";
    herd_vs_memcached AtLeast(10.0) Times, "… against memcached",
        "How many times memcached's best on the same core that is: plain, pipelined or multiget.";
    herd_vs_exchange AtLeast(0.35) Times, "… against the bare exchange",
        "The share of what two cores can do that only exchange cache lines, each at its best window.";
    herd_p50_vs_pingpong AtMost(3.0) Times, "latency against a ping-pong",
        "The median of one GET at a time, by a cache line there and back between the same cores.";
    put50_vs_put5 AtLeast(0.85) Times, "50 % PUT against 5 % PUT",
        "What is left of the throughput when half of the requests are updates.";
    zipf_vs_uniform AtLeast(1.0) Times, "skewed against uniform",
        "What becomes of the throughput when few items are asked for most (Zipf .99).";
    door_vs_memcached_min AtLeast(1.0) Times, "socket door against memcached",
        "The worst of all cells: get and set, 1 and 50 connections, plain, pipelined and multiget, TCP and Unix.";
    mica_vs_hashmap AtLeast(2.0) Times, "table against std's HashMap",
        "GETs of the cache's table alone, in one thread and far beyond the caches, by those of a HashMap with the same items.";
    idle_cpu_percent AtMost(1.0) Percent, "CPU of an idle server",
        "The share of a CPU that a server takes which nobody asks.";
    write64_vs_ring AtLeast(0.5) Times, "WRITE against a bare ring",
        "WRITEs of 64 bytes from process to process, by the cache lines that a bare ring carries.";
    read64_mops AtLeast(10.0) Mops, "READ of 64 bytes",
        "READs of another process's memory.";
    cas_mops AtLeast(10.0) Mops, "compare-and-swap",
        "Atomic operations on another process's memory.";
    echo_vs_pingpong AtMost(1.5) Times, "ECHO against a ping-pong",
        "A WRITE there and a WRITE back, one at a time, by a bare line there and back.";
    hybrid_vs_write_echo AtLeast(0.7) Times, "HERD's ECHO against WRITEs only",
        "A WRITE there and a datagram back, by WRITEs both ways, each at its best window.";
}

goals! {
    /// The store's figures. Those with a number of records in their names are never scaled.
    StoreRatios, STORE_GOALS:
    get_qd128_vs_raw AtLeast(0.95) Times, "GET of 4 KiB, depth 128, against raw",
        "GETs a second on one core by reads of the same file without an index.";
    put_qd128_vs_raw AtLeast(0.9) Times, "PUT of 4 KiB, depth 128, against raw",
        "Durable PUTs of new keys a second by as many bytes added to a log without an index.";
    get_qd1_latency_vs_raw AtMost(1.06) Times, "latency of a GET against raw",
        "The median of one GET at a time by that of one read at a time.";
    uring_vs_sync AtLeast(2.0) Times, "io_uring against threads",
        "GETs a second at depth 128 on one core, by those of 128 threads with one call each.";
    uring_vs_sync_cpu AtLeast(2.0) Times, "io_uring against threads, CPU time",
        "CPU time of the same GETs by threads, by that by io_uring, on a core that may sleep.";
    index_lookup_vs_best AtLeast(3.0) Times, "lookups against other maps",
        "Lookups of the index by the better of dashmap and std's HashMap behind sharded locks.";
    index_insert_vs_best AtLeast(3.0) Times, "inserts against other maps, growing",
        "Inserts into the index by the better of the same, each growing from nothing.";
    index_insert_room_vs_best AtLeast(3.0) Times, "inserts against other maps, with room",
        "The same where each has room for all entries from the beginning.";
    index_bytes_per_entry AtMost(10.0) Number, "bytes of an index entry",
        "Resident memory of the index by its entries.";
    index_grow_p9999_ms AtMost(2.0) Number, "insert while growing, p99.99, ms",
        "The slowest of ten thousand inserts while the index grows from nothing.";
    reads_per_get AtMost(1.01) Times, "device reads for a GET",
        "Reads asked of the device by GETs that found their key.";
    write_amplification AtMost(1.1) Times, "bytes written for a PUT",
        "Bytes written to the device by bytes of keys and values, 4 KiB at depth 128, with room.";
    write_amplification_collecting AtMost(3.0) Times, "bytes written for a PUT, collecting",
        "The same in a store that is three quarters full, each item overwritten alike.";
    ycsb_a_p99_vs_raw AtMost(2.0) Times, "YCSB-A against raw, p99",
        "The slowest of a hundred requests at depth 128, by that of reads and a log without an index.";
    read_amplification_1k AtMost(1.5) Times, "bytes read for 1 KiB",
        "Bytes read by those of the record, rounded up to blocks of the device.";
    space_overhead_1k AtMost(0.01) Number, "space beyond 1 KiB, as a share",
        "What the log takes beyond keys of 16 B and values of 1 KiB, by these.";
    recovery_crash_10m_s AtMost(30.0) Seconds, "opening after a crash, 10 M records",
        "Until a store of records of 1 KiB serves after its process was killed.";
    recovery_clean_10m_s AtMost(2.0) Seconds, "opening after a clean stop",
        "The same after it was closed.";
}

goals! {
    /// The figures of unmodified programs on the software NIC.
    ShimRatios, SHIM_GOALS:
    shim_write_lat_vs_direct AtMost(1.25) Times, "ib_write_lat against direct",
        "One way of a WRITE of 64 bytes over UC, by half of our own echo of such WRITEs on the same two cores.";
    shim_send_rate_vs_direct AtLeast(0.7) Times, "ib_send_bw's rate against direct",
        "SENDs of 64 bytes a second over RC, in lists of 32, by those of our own benchmark, at its best.";
    shim_write_bw_vs_memcpy AtLeast(0.6) Times, "ib_write_bw of 1 MiB against copies",
        "Bytes WRITTEN a second, by those that a core copies.";
    rsocket_vs_tcp_loopback_latency AtMost(0.3) Times, "rsockets against TCP",
        "A request and an answer of 64 bytes over rsockets, by those over TCP's loopback.";
}

goals! {
    /// The file system's figures beside NFS-Ganesha over the file system of the same disk.
    FsRatios, FS_GOALS:
    fs_write4k_stable_vs_ganesha AtLeast(2.0) Times, "stable writes of 4 KiB against NFS-Ganesha",
        "FILE_SYNC WRITEs of 4 KiB at random places a second, 16 under way.";
    fs_read4k_vs_ganesha AtLeast(1.2) Times, "reads of 4 KiB against NFS-Ganesha",
        "READs of 4 KiB at random places that are cached, 1 and 16 under way: the worse of the two.";
    fs_create_vs_ganesha AtLeast(2.0) Times, "creates against NFS-Ganesha",
        "Files made and closed a second in one directory, by 16 open-owners.";
    fs_stat_vs_ganesha AtLeast(1.2) Times, "attributes against NFS-Ganesha",
        "GETATTRs a second of what fills an inode, 16 under way.";
    fs_seq_write_vs_ganesha AtLeast(1.0) Times, "a stream written against NFS-Ganesha",
        "A file written 1 MiB at a time, 8 under way, and a COMMIT.";
    fs_seq_read_vs_ganesha AtLeast(1.0) Times, "a stream read against NFS-Ganesha",
        "The same file read from the cache.";
    fs_random_write_vs_device AtLeast(0.6) Times, "stable writes of 4 KiB against the device",
        "The same WRITEs, by writes of a file with O_DIRECT and O_DSYNC, 16 under way.";
    fs_write4k_p99_ms AtMost(10.0) Number, "stable write of 4 KiB, p99, ms",
        "The slowest of a hundred with 16 under way.";
    fs_read4k_p99_ms AtMost(5.0) Number, "read of 4 KiB, p99, ms",
        "The same of reads that are cached.";
    fs_recovery_1gb_s AtMost(5.0) Seconds, "opening after a crash, 1 GB",
        "From the start of the server until it has answered, after it was killed with 1 GB of data written.";
}

/// Which side of a bound is good.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// How a figure compares with its goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Reached.
    Reached,
    /// Missed.
    Missed,
    /// Not measured.
    Unknown,
}

impl Verdict {
    /// A word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Reached => "reached",
            Verdict::Missed => "missed",
            Verdict::Unknown => "not measured",
        }
    }

    /// A mark.
    pub fn mark(self) -> &'static str {
        match self {
            Verdict::Reached => "✓",
            Verdict::Missed => "✗",
            Verdict::Unknown => "–",
        }
    }
}

/// How a figure is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// `0.53`, `10.2`, `14`: something by something.
    Times,
    /// `6.30 Mop/s`.
    Mops,
    /// `0.52 %`.
    Percent,
    /// `1.35 s`.
    Seconds,
    /// `8.25`.
    Number,
}

/// A figure's goal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    /// The figure's name.
    pub name: &'static str,
    /// What is good.
    pub bound: Bound,
    /// How it is written.
    pub shown: Shown,
    /// What it is.
    pub title: &'static str,
    /// What it means, in a sentence.
    pub meaning: &'static str,
}

impl Bound {
    /// `≥ 0.5`.
    pub fn show(self) -> String {
        match self {
            Bound::AtLeast(bound) => format!("≥ {bound}"),
            Bound::AtMost(bound) => format!("≤ {bound}"),
        }
    }
}

impl Goal {
    /// Whether a figure reaches it.
    pub fn judge(&self, figure: Option<f64>) -> Verdict {
        let reached = match (figure, self.bound) {
            (None, _) => return Verdict::Unknown,
            (Some(figure), Bound::AtLeast(bound)) => figure >= bound,
            (Some(figure), Bound::AtMost(bound)) => figure <= bound,
        };
        if reached {
            Verdict::Reached
        } else {
            Verdict::Missed
        }
    }

    /// A figure for people.
    pub fn show(&self, figure: Option<f64>) -> String {
        let Some(figure) = figure else {
            return "–".to_string();
        };
        let digits = if figure >= 99.95 {
            0
        } else if figure >= 9.995 {
            1
        } else {
            2
        };
        // A figure that misses its goal must not look as if it had met it.
        let (Bound::AtLeast(bound) | Bound::AtMost(bound)) = self.bound;
        let is_close =
            figure != bound && format!("{figure:.digits$}") == format!("{bound:.digits$}");
        let digits = if is_close { digits + 2 } else { digits };
        match self.shown {
            Shown::Times => format!("{figure:.digits$}×"),
            Shown::Mops => format!("{figure:.digits$} Mop/s"),
            Shown::Percent => format!("{figure:.2} %"),
            Shown::Seconds => format!("{figure:.digits$} s"),
            Shown::Number => format!("{figure:.digits$}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(name: &str) -> &'static Goal {
        let mut all = GOALS.iter().chain(STORE_GOALS);
        all.find(|goal| goal.name == name).expect("a goal")
    }

    #[test]
    fn a_figure_just_below_its_goal_does_not_look_like_it() {
        let goal = goal("zipf_vs_uniform");
        assert_eq!(goal.show(Some(0.9962)), "0.9962×");
        assert_eq!(goal.show(Some(1.0)), "1.00×");
        assert_eq!(goal.show(Some(0.952)), "0.95×");
    }

    #[test]
    fn figures_are_judged_by_their_side_of_the_bound() {
        let mops = goal("herd_mops");
        assert_eq!(mops.judge(Some(6.3)), Verdict::Reached);
        assert_eq!(mops.judge(None), Verdict::Unknown);
        let overhead = goal("space_overhead_1k");
        assert_eq!(overhead.judge(Some(0.0085)), Verdict::Reached);
        assert_eq!(overhead.judge(Some(0.011)), Verdict::Missed);
    }
}
