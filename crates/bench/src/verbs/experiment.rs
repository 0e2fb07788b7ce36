//! The experiments by name.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::units::{help_of, name_of};

/// A microbenchmark that users of rdma_bench know, or a figure of HERD's paper. They run in this order,
/// and `--list` shows these lines.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// throughput of WRITE over UC and RC, by size (HERD, Fig 3 and 4)
    Write,
    /// throughput of READ, by size (HERD, Fig 3 and 4)
    Read,
    /// throughput of SEND over UD, UC and RC, by size
    Send,
    /// throughput of compare-and-swap, many words and one
    Cas,
    /// throughput of fetch-and-add, many words and one
    Faa,
    /// latency of each operation and of echoes (HERD, Fig 2)
    Latency,
    /// WRITE/WRITE, WRITE/SEND and SEND/SEND echoes up the ladder (HERD, Fig 5)
    Echo,
    /// numbers handed out by WRITE/SEND, SEND/SEND and fetch-and-add
    Sequencer,
    /// latency and throughput by work requests in a post call
    Postlist,
    /// throughput by queue pairs, in and out: many peers (HERD, Fig 6)
    #[value(alias = "swarm")]
    Qps,
}

impl Experiment {
    /// All of them, in the order in which they run.
    pub fn all() -> Vec<Experiment> {
        Experiment::value_variants().to_vec()
    }

    /// What it measures, in one line.
    pub fn summary(self) -> String {
        help_of(&self)
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&name_of(self))
    }
}
