//! The experiments by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A microbenchmark that users of rdma_bench know, or a figure of HERD's paper.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// WRITE, one direction.
    Write,
    /// READ, one direction.
    Read,
    /// SEND, one direction.
    Send,
    /// Compare-and-swap.
    Cas,
    /// Fetch-and-add.
    Faa,
    /// The time one request takes.
    Latency,
    /// Echoes, and the ladder.
    Echo,
    /// HERD's own echo.
    Hybrid,
    /// Sequencers.
    Sequencer,
    /// By work requests in a post call.
    Postlist,
    /// By queue pairs.
    Qps,
    /// By completions asked for.
    Signalling,
    /// What becomes visible when.
    Ordering,
}

impl Experiment {
    /// All of them, in the order in which they run.
    pub const ALL: [Experiment; 13] = [
        Experiment::Write,
        Experiment::Read,
        Experiment::Send,
        Experiment::Cas,
        Experiment::Faa,
        Experiment::Latency,
        Experiment::Echo,
        Experiment::Hybrid,
        Experiment::Sequencer,
        Experiment::Postlist,
        Experiment::Qps,
        Experiment::Signalling,
        Experiment::Ordering,
    ];

    /// What runs when nothing is named: all but what another one contains.
    pub fn usual() -> Vec<Experiment> {
        let all = Experiment::ALL.into_iter();
        all.filter(|one| *one != Experiment::Hybrid).collect()
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Write => "write",
            Experiment::Read => "read",
            Experiment::Send => "send",
            Experiment::Cas => "cas",
            Experiment::Faa => "faa",
            Experiment::Latency => "latency",
            Experiment::Echo => "echo",
            Experiment::Hybrid => "hybrid",
            Experiment::Sequencer => "sequencer",
            Experiment::Postlist => "postlist",
            Experiment::Qps => "qps",
            Experiment::Signalling => "signalling",
            Experiment::Ordering => "ordering",
        }
    }

    /// What it measures, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Experiment::Write => "throughput of WRITE over UC and RC, by size (HERD, Fig 3 and 4)",
            Experiment::Read => "throughput of READ, by size (HERD, Fig 3 and 4)",
            Experiment::Send => "throughput of SEND over UD, UC and RC, by size",
            Experiment::Cas => "throughput of compare-and-swap, many words and one",
            Experiment::Faa => "throughput of fetch-and-add, many words and one",
            Experiment::Latency => "latency of each operation and of echoes (HERD, Fig 2)",
            Experiment::Echo => {
                "WRITE/WRITE, WRITE/SEND and SEND/SEND echoes up the ladder (HERD, Fig 5)"
            }
            Experiment::Hybrid => "the WRITE/SEND echo alone: HERD's requests and answers",
            Experiment::Sequencer => {
                "numbers handed out by WRITE/SEND, SEND/SEND and fetch-and-add"
            }
            Experiment::Postlist => "latency and throughput by work requests in a post call",
            Experiment::Qps => "throughput by queue pairs, in and out: many peers (HERD, Fig 6)",
            Experiment::Signalling => "every request signaled or one in S, by window",
            Experiment::Ordering => "whether WRITEs become visible in order, and completions after",
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Experiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Experiment::ALL.into_iter().find(|one| one.name() == text);
        match (known, text) {
            (Some(known), _) => Ok(known),
            (None, "swarm") => Ok(Experiment::Qps),
            (None, "signaling") => Ok(Experiment::Signalling),
            (None, "all-to-all") => Err(
                "all-to-all needs more machines than two processes are; `qps` shows what many \
                 queue pairs cost"
                    .into(),
            ),
            (None, _) => Err(format!(
                "no experiment is called `{text}`; `vervain bench verbs --list` shows them"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_experiments() {
        for one in Experiment::ALL {
            assert_eq!(one.name().parse(), Ok(one));
            let json = serde_json::to_string(&one).expect("a name");
            assert_eq!(json, format!("\"{one}\""));
        }
        assert_eq!("swarm".parse(), Ok(Experiment::Qps));
        let refused = "all-to-all"
            .parse::<Experiment>()
            .expect_err("not possible");
        assert!(refused.contains("qps"), "{refused}");
        assert!("x".parse::<Experiment>().is_err());
    }
}
