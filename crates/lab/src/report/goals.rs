//! The figures that are compared with goals.

use serde::{Deserialize, Serialize};

macro_rules! ratios {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The figures, by their names. What could not be measured is `None`.
        #[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
        pub struct Ratios {
            $($(#[$doc])* pub $name: Option<f64>,)*
        }

        impl Ratios {
            /// All of them with their names.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

ratios! {
    /// WRITEs of 64 bytes by the lines that a bare ring carries.
    write64_vs_ring,
    /// READs of 64 bytes, in millions a second.
    read64_mops,
    /// Compare-and-swaps, in millions a second.
    cas_mops,
    /// A WRITE there and a WRITE back, by a bare line there and back.
    echo_vs_pingpong,
    /// A WRITE there and a SEND back, by a WRITE there and back.
    hybrid_vs_write_echo,
    /// The cache over RDMA with one server core, in millions a second.
    herd_mops,
    /// The same by the bare exchange of slots.
    herd_vs_exchange,
    /// The same by memcached's best.
    herd_vs_memcached,
    /// One request at a time over RDMA, by a bare line there and back.
    herd_p50_vs_pingpong,
    /// 50 % PUT by 5 % PUT.
    put50_vs_put5,
    /// Zipf's distribution by the uniform one.
    zipf_vs_uniform,
    /// MICA alone by the standard hash map.
    mica_vs_hashmap,
    /// The socket door by memcached, in the cell where it is worst.
    door_vs_memcached_min,
    /// CPU of a server that nobody asks.
    idle_cpu_percent,
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

pub(crate) const fn goal(
    name: &'static str,
    bound: Bound,
    shown: Shown,
    title: &'static str,
    meaning: &'static str,
) -> Goal {
    Goal {
        name,
        bound,
        shown,
        title,
        meaning,
    }
}

/// The goals, those of the cache first.
pub const GOALS: [Goal; 14] = {
    use Bound::{AtLeast, AtMost};
    use Shown::{Mops, Percent, Times};
    [
        goal(
            "herd_mops",
            // HERD's figure for one core: SIGCOMM'14, Fig. 13.
            AtLeast(6.3),
            Mops,
            "cache over RDMA, one server core",
            "Requests that one server core answers, 95 % GET, 16-byte keys and 32-byte values; \
             HERD's paper has 6.3.",
        ),
        goal(
            "herd_vs_memcached",
            AtLeast(10.0),
            Times,
            "… against memcached",
            "How many times memcached's best on the same core that is: plain, pipelined or \
             multiget.",
        ),
        goal(
            "herd_vs_exchange",
            AtLeast(0.5),
            Times,
            "… against the bare exchange",
            "The share of what two cores can do that only exchange cache lines, each at its best \
             window.",
        ),
        goal(
            "herd_p50_vs_pingpong",
            AtMost(3.0),
            Times,
            "latency against a ping-pong",
            "The median of one GET at a time, by a cache line there and back between the same \
             cores.",
        ),
        goal(
            "put50_vs_put5",
            AtLeast(0.85),
            Times,
            "50 % PUT against 5 % PUT",
            "What is left of the throughput when half of the requests are updates.",
        ),
        goal(
            "zipf_vs_uniform",
            AtLeast(1.0),
            Times,
            "skewed against uniform",
            "What becomes of the throughput when few items are asked for most (Zipf .99).",
        ),
        goal(
            "door_vs_memcached_min",
            AtLeast(1.0),
            Times,
            "socket door against memcached",
            "The worst of all cells: get and set, 1 and 50 connections, plain, pipelined and \
             multiget, TCP and Unix.",
        ),
        goal(
            "mica_vs_hashmap",
            AtLeast(2.0),
            Times,
            "table against std's HashMap",
            "GETs of the cache's table alone, in one thread and far beyond the caches, by those \
             of a HashMap with the same items.",
        ),
        goal(
            "idle_cpu_percent",
            AtMost(1.0),
            Percent,
            "CPU of an idle server",
            "The share of a CPU that a server takes which nobody asks.",
        ),
        goal(
            "write64_vs_ring",
            AtLeast(0.5),
            Times,
            "WRITE against a bare ring",
            "WRITEs of 64 bytes from process to process, by the cache lines that a bare ring \
             carries.",
        ),
        goal(
            "read64_mops",
            AtLeast(10.0),
            Mops,
            "READ of 64 bytes",
            "READs of another process's memory.",
        ),
        goal(
            "cas_mops",
            AtLeast(10.0),
            Mops,
            "compare-and-swap",
            "Atomic operations on another process's memory.",
        ),
        goal(
            "echo_vs_pingpong",
            AtMost(1.5),
            Times,
            "ECHO against a ping-pong",
            "A WRITE there and a WRITE back, one at a time, by a bare line there and back.",
        ),
        goal(
            "hybrid_vs_write_echo",
            AtLeast(0.7),
            Times,
            "HERD's ECHO against WRITEs only",
            "A WRITE there and a datagram back, by WRITEs both ways, each at its best window.",
        ),
    ]
};

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
    /// Its figure.
    pub fn figure(&self, ratios: &Ratios) -> Option<f64> {
        let mut all = ratios.all();
        all.find(|(name, _)| *name == self.name)?.1
    }

    /// Whether it is reached.
    pub fn verdict(&self, ratios: &Ratios) -> Verdict {
        self.judge(self.figure(ratios))
    }

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

    #[test]
    fn a_figure_just_below_its_goal_does_not_look_like_it() {
        let goal = GOALS.iter().find(|goal| goal.name == "zipf_vs_uniform");
        let goal = goal.expect("a goal");
        assert_eq!(goal.show(Some(0.9962)), "0.9962×");
        assert_eq!(goal.show(Some(1.0)), "1.00×");
        assert_eq!(goal.show(Some(0.952)), "0.95×");
    }

    #[test]
    fn every_figure_has_one_goal() {
        let ratios = Ratios::default();
        let mut names: Vec<_> = ratios.all().map(|(name, _)| name).collect();
        let mut goals: Vec<_> = GOALS.iter().map(|goal| goal.name).collect();
        names.sort_unstable();
        goals.sort_unstable();
        assert_eq!(names, goals);
    }

    #[test]
    fn figures_are_judged_by_their_side_of_the_bound() {
        let ratios = Ratios {
            herd_mops: Some(6.3),
            idle_cpu_percent: Some(1.2),
            ..Ratios::default()
        };
        let verdict = |name| {
            let goal = GOALS.iter().find(|goal| goal.name == name).expect("a goal");
            goal.verdict(&ratios)
        };
        assert_eq!(verdict("herd_mops"), Verdict::Reached);
        assert_eq!(verdict("idle_cpu_percent"), Verdict::Missed);
        assert_eq!(verdict("cas_mops"), Verdict::Unknown);
    }
}
