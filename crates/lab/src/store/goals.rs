//! The figures that are compared with goals.

use serde::Serialize;

use crate::report::goals::goal;
use crate::report::{Bound, Goal, Shown};

macro_rules! ratios {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The figures, by their names. What could not be measured is `None`.
        #[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
        pub struct StoreRatios {
            $($(#[$doc])* pub $name: Option<f64>,)*
        }

        impl StoreRatios {
            /// All of them with their names.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// One of them.
            pub fn figure(&self, name: &str) -> Option<f64> {
                self.all().find(|(one, _)| *one == name)?.1
            }
        }
    };
}

ratios! {
    /// GETs of 4 KiB at depth 128 by bare reads.
    get_qd128_vs_raw,
    /// PUTs of 4 KiB at depth 128 by bare writes.
    put_qd128_vs_raw,
    /// The median of a GET at depth 1 by that of a bare read.
    get_qd1_latency_vs_raw,
    /// GETs by io_uring at depth 128 by those of as many threads on the same core.
    uring_vs_sync,
    /// CPU time of a GET by such threads, by that of one by io_uring, on a core that sleeps when it has
    /// nothing to do.
    uring_vs_sync_cpu,
    /// Lookups of the index by the best of other maps.
    index_lookup_vs_best,
    /// Inserts into the index by the best of other maps, all growing from nothing.
    index_insert_vs_best,
    /// The same where all have room for every entry from the beginning.
    index_insert_room_vs_best,
    /// Bytes of memory for an entry of the index.
    index_bytes_per_entry,
    /// The slowest of ten thousand inserts while the index grows, in milliseconds.
    index_grow_p9999_ms,
    /// Device reads for each GET that found its key.
    reads_per_get,
    /// Bytes written to the device by bytes of keys and values, PUTs of 4 KiB at depth 128.
    write_amplification,
    /// Bytes read for a value of 1 KiB by its record's bytes, rounded up to blocks.
    read_amplification_1k,
    /// What the log takes beyond keys and values of 1 KiB, as a share of these.
    space_overhead_1k,
    /// Seconds until a store of 10 million records of 1 KiB serves after its process was killed.
    recovery_crash_10m_s,
    /// The same after a clean stop.
    recovery_clean_10m_s,
}

/// The goals.
pub const STORE_GOALS: [Goal; 16] = {
    use Bound::{AtLeast, AtMost};
    use Shown::{Number, Seconds, Times};
    [
        goal(
            "get_qd128_vs_raw",
            AtLeast(0.95),
            Times,
            "GET of 4 KiB, depth 128, against raw",
            "GETs a second on one core by reads of the same file without an index.",
        ),
        goal(
            "put_qd128_vs_raw",
            AtLeast(0.9),
            Times,
            "PUT of 4 KiB, depth 128, against raw",
            "Durable PUTs of new keys a second by durable writes at random places.",
        ),
        goal(
            "get_qd1_latency_vs_raw",
            AtMost(1.06),
            Times,
            "latency of a GET against raw",
            "The median of one GET at a time by that of one read at a time.",
        ),
        goal(
            "uring_vs_sync",
            AtLeast(2.0),
            Times,
            "io_uring against threads",
            "GETs a second at depth 128 on one core, by those of 128 threads with one call each.",
        ),
        goal(
            "uring_vs_sync_cpu",
            AtLeast(2.0),
            Times,
            "io_uring against threads, CPU time",
            "CPU time of the same GETs by threads, by that by io_uring, on a core that may sleep.",
        ),
        goal(
            "index_lookup_vs_best",
            AtLeast(3.0),
            Times,
            "lookups against other maps",
            "Lookups of the index by the better of dashmap and std's HashMap behind sharded locks.",
        ),
        goal(
            "index_insert_vs_best",
            AtLeast(3.0),
            Times,
            "inserts against other maps, growing",
            "Inserts into the index by the better of the same, each growing from nothing.",
        ),
        goal(
            "index_insert_room_vs_best",
            AtLeast(3.0),
            Times,
            "inserts against other maps, with room",
            "The same where each has room for all entries from the beginning.",
        ),
        goal(
            "index_bytes_per_entry",
            AtMost(10.0),
            Number,
            "bytes of an index entry",
            "Resident memory of the index by its entries.",
        ),
        goal(
            "index_grow_p9999_ms",
            AtMost(2.0),
            Number,
            "insert while growing, p99.99, ms",
            "The slowest of ten thousand inserts while the index grows from nothing.",
        ),
        goal(
            "reads_per_get",
            AtMost(1.01),
            Times,
            "device reads for a GET",
            "Reads asked of the device by GETs that found their key.",
        ),
        goal(
            "write_amplification",
            AtMost(1.1),
            Times,
            "bytes written for a PUT",
            "Bytes written to the device by bytes of keys and values, 4 KiB at depth 128.",
        ),
        goal(
            "read_amplification_1k",
            AtMost(1.5),
            Times,
            "bytes read for 1 KiB",
            "Bytes read by those of the record, rounded up to blocks of the device.",
        ),
        goal(
            "space_overhead_1k",
            AtMost(0.01),
            Number,
            "space beyond 1 KiB, as a share",
            "What the log takes beyond keys of 16 B and values of 1 KiB, by these.",
        ),
        goal(
            "recovery_crash_10m_s",
            AtMost(30.0),
            Seconds,
            "opening after a crash, 10 M records",
            "Until a store of records of 1 KiB serves after its process was killed.",
        ),
        goal(
            "recovery_clean_10m_s",
            AtMost(2.0),
            Seconds,
            "opening after a clean stop",
            "The same after it was closed.",
        ),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;

    #[test]
    fn every_figure_has_one_goal() {
        let mut names: Vec<_> = StoreRatios::default().all().map(|(name, _)| name).collect();
        let mut goals: Vec<_> = STORE_GOALS.iter().map(|goal| goal.name).collect();
        names.sort_unstable();
        goals.sort_unstable();
        assert_eq!(names, goals);
    }

    #[test]
    fn figures_are_judged_by_their_bounds() {
        let goal = STORE_GOALS
            .iter()
            .find(|goal| goal.name == "space_overhead_1k")
            .expect("a goal");
        assert_eq!(goal.judge(Some(0.0085)), Verdict::Reached);
        assert_eq!(goal.judge(Some(0.011)), Verdict::Missed);
        assert_eq!(goal.judge(None), Verdict::Unknown);
    }
}
