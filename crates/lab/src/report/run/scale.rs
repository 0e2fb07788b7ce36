//! How much a run measures.

use std::time::Duration;

/// The sizes and times of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Scale {
    /// Its name in the report.
    pub name: &'static str,
    /// How long a single measurement of the cache takes.
    pub slice: Duration,
    /// Measure so many requests of the cache instead, where time does not matter.
    pub operations: Option<u64>,
    /// How long one of the machine or of verbs takes.
    pub brief: Duration,
    /// How often each is repeated.
    pub rounds: usize,
    /// Items where nothing else is said.
    pub items: u64,
    /// Requests under way.
    pub windows: Vec<u32>,
    /// Bytes of a value.
    pub value_lens: Vec<usize>,
    /// Numbers of items.
    pub item_counts: Vec<u64>,
    /// Numbers of clients.
    pub clients: Vec<usize>,
    /// Loads, in percent of the highest throughput.
    pub loads: Vec<u32>,
    /// Connections of the socket door's cells.
    pub door_connections: Vec<usize>,
    /// Bytes of a verb's message.
    pub verb_sizes: Vec<usize>,
    /// Items of the table alone.
    pub table_items: u64,
    /// How long an idle server is watched.
    pub idle: Duration,
    /// Memory that random reads spread over.
    pub read_memory: usize,
}

fn powers(range: std::ops::RangeInclusive<u32>) -> Vec<usize> {
    range.map(|power| 1 << power).collect()
}

impl Scale {
    /// Under 8 minutes on two cores.
    pub fn standard() -> Self {
        Scale {
            name: "standard",
            slice: Duration::from_millis(400),
            operations: None,
            brief: Duration::from_millis(50),
            rounds: 3,
            items: 1_000_000,
            windows: vec![1, 2, 4, 8, 16, 32, 64],
            value_lens: powers(2..=20).into_iter().step_by(2).collect(),
            item_counts: vec![10_000, 100_000, 1_000_000, 10_000_000],
            clients: vec![1, 4, 16, 64, 256, 1000],
            loads: vec![10, 25, 40, 55, 70, 80, 90],
            door_connections: vec![1, 50],
            verb_sizes: vec![8, 64, 256, 1024, 4096],
            table_items: 20_000_000,
            idle: Duration::from_millis(2500),
            read_memory: 512 << 20,
        }
    }

    /// A minute and a half: one round, fewer sizes. For a look, not for comparisons.
    pub fn quick() -> Self {
        Scale {
            name: "quick",
            slice: Duration::from_millis(200),
            brief: Duration::from_millis(20),
            rounds: 1,
            windows: vec![1, 8, 32],
            value_lens: vec![32, 1024, 32 << 10],
            item_counts: vec![10_000, 1_000_000],
            clients: vec![1, 32, 256],
            loads: vec![20, 50, 80],
            verb_sizes: vec![64, 1024],
            table_items: 5_000_000,
            idle: Duration::from_millis(2000),
            read_memory: 256 << 20,
            ..Scale::standard()
        }
    }

    /// As the standard one with a hundred million items besides, where memory allows it, and
    /// longer measurements.
    pub fn full() -> Self {
        let mut scale = Scale {
            name: "full",
            slice: Duration::from_secs(1),
            rounds: 5,
            ..Scale::standard()
        };
        scale.item_counts.push(100_000_000);
        scale
    }

    /// Seconds, and everything is run once: whether it works, not how fast.
    pub fn tiny() -> Self {
        Scale {
            name: "tiny",
            slice: Duration::from_millis(10),
            operations: Some(500),
            brief: Duration::from_millis(2),
            rounds: 1,
            items: 2000,
            windows: vec![1, 8],
            value_lens: vec![32, 4096],
            item_counts: vec![1000],
            clients: vec![1, 4],
            loads: vec![50],
            door_connections: vec![2],
            verb_sizes: vec![64],
            table_items: 20_000,
            idle: Duration::from_millis(50),
            read_memory: 1 << 20,
        }
    }
}
