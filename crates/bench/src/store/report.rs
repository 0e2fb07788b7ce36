//! What a run has found out.

use std::time::Duration;

use ::store::{Durability, State, Store};
use block::Engine;
use serde::{Deserialize, Serialize, Serializer};

use super::measure::Tally;
use super::{Cell, Idle, KEY_LEN, Mix};
use crate::cache::Percentiles;
use crate::machine::Machine;
use crate::measured::Measured;

/// A store beside its bare device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StoreReport {
    /// The machine.
    pub machine: Machine,
    /// The version that measured.
    pub version: &'static str,
    /// The file or drive, in words.
    pub location: String,
    /// Whether transfers bypass the page cache.
    pub is_direct: bool,
    /// Bytes of a block of the device.
    pub block: u32,
    /// Bytes of the file or drive.
    pub bytes: u64,
    /// Items.
    pub keys: u64,
    /// Bytes of a key.
    pub key_len: usize,
    /// Bytes of a value.
    pub value_len: usize,
    /// What an acknowledged PUT survives: `power_cut` or `process`.
    #[serde(serialize_with = "survives")]
    pub durability: Durability,
    /// The CPU of each core, where they were pinned.
    pub cpus: Vec<Option<usize>>,
    /// How often each figure was measured.
    pub rounds: usize,
    /// How long each time.
    pub slice_s: f64,
    /// What repeats the requests.
    pub seed: u64,
    /// The items as they were stored at first.
    pub load: Loaded,
    /// The figures.
    pub rows: Vec<Row>,
}

impl StoreReport {
    /// The figures of one mix at one depth by one engine, on cores that spin or sleep.
    pub fn row(&self, mix: Mix, depth: usize, engine: Engine, idle: Idle) -> Option<&Row> {
        let name = engine.name();
        self.rows.iter().find(|row| {
            row.mix == mix && row.depth == depth && row.engine == name && row.idle == idle
        })
    }
}

/// What it took to load a store.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Loaded {
    /// How long it took.
    pub seconds: f64,
    /// Bytes of keys and values.
    pub user_bytes: u64,
    /// Bytes of the log that they take, with headers, padding and what is lost at the ends of segments.
    pub log_bytes: u64,
}

impl Loaded {
    /// Of a store to which nothing else was written, and from which nothing was moved.
    pub(super) fn of(store: &Store, elapsed: Duration) -> Self {
        let stats = store.stats();
        let layout = store.superblock().layout;
        let segments = store.segments();
        let in_use = segments
            .iter()
            .filter(|state| !matches!(state, State::Free | State::Doubtful));
        // Each segment begins and ends with a block for its header.
        let headers = in_use.count() * 2 * layout.block();
        Loaded {
            seconds: elapsed.as_secs_f64(),
            user_bytes: stats.user_bytes,
            log_bytes: stats.written_bytes + headers as u64 + store.lost_bytes(),
        }
    }

    /// What the log takes beyond keys and values, as a share of these.
    pub fn overhead(&self) -> Option<f64> {
        let by_user = self.log_bytes as f64 / self.user_bytes as f64;
        (self.user_bytes > 0).then_some(by_user - 1.0)
    }
}

/// `power_cut` or `process`.
fn survives<S: Serializer>(durability: &Durability, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match durability {
        Durability::PowerCut => "power_cut",
        Durability::Process => "process",
    })
}

/// One mix at one depth by one engine, through the store and on the bare device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// What was asked for.
    pub mix: Mix,
    /// Requests under way on each core.
    pub depth: usize,
    /// By which calls.
    pub engine: &'static str,
    /// What cores with nothing to do did.
    pub idle: Idle,
    /// The store.
    pub store: Figures,
    /// The same transfers without an index.
    pub raw: Figures,
    /// The store's throughput by the device's, each round for itself.
    pub throughput_vs_raw: Measured,
    /// The store's median latency by the device's, each round for itself.
    pub p50_vs_raw: Measured,
    /// The same of the slowest of a hundred.
    pub p99_vs_raw: Measured,
    /// Device reads for each GET that found its key.
    pub reads_per_get: Option<f64>,
    /// Bytes written to the device by bytes of keys and values: for users, to move records, and headers.
    pub write_amplification: Option<f64>,
}

/// What one side reached.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Requests a second.
    pub per_second: Measured,
    /// CPU time of a request in microseconds, the kernel's for this process with it. Where cores spin,
    /// they use it all.
    pub cpu_us: Measured,
    /// Of all rounds.
    pub latency: Percentiles,
    /// Of all rounds with their warm-up.
    #[serde(flatten)]
    pub counts: Counts,
}

/// How often something was done, and with how many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// GETs that found their key.
    pub hits: u64,
    /// GETs that did not.
    pub misses: u64,
    /// GETs that found something else.
    pub wrong: u64,
    /// PUTs.
    pub puts: u64,
    /// Reads asked of the device.
    pub device_reads: u64,
    /// Their bytes.
    pub device_read_bytes: u64,
    /// Writes asked of the device.
    pub device_writes: u64,
    /// Their bytes.
    pub device_written_bytes: u64,
    /// Bytes that the store has written beside these, to move records, and headers.
    pub beside_bytes: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.wrong += other.wrong;
        self.puts += other.puts;
        self.device_reads += other.device_reads;
        self.device_read_bytes += other.device_read_bytes;
        self.device_writes += other.device_writes;
        self.device_written_bytes += other.device_written_bytes;
        self.beside_bytes += other.beside_bytes;
    }
}

impl Figures {
    fn of(tallies: &[Tally]) -> Self {
        let speeds: Vec<f64> = tallies.iter().map(Tally::speed).collect();
        let cpu: Vec<f64> = tallies.iter().map(Tally::cpu_us).collect();
        let mut sum = Tally::new();
        for tally in tallies {
            sum.add(tally);
        }
        Figures {
            per_second: Measured::of(&speeds).unwrap_or_default(),
            cpu_us: Measured::of(&cpu).unwrap_or_default(),
            latency: Percentiles::of(&sum.latency),
            counts: sum.counts,
        }
    }
}

impl Row {
    /// From the rounds of both sides.
    pub(super) fn of(
        cell: &Cell,
        engine: Engine,
        value_len: usize,
        raw: &[Tally],
        store: &[Tally],
    ) -> Self {
        let by_round = |figure: fn(&Tally) -> f64| {
            let ratios = store.iter().zip(raw).map(|(s, r)| figure(s) / figure(r));
            Measured::of(&ratios.collect::<Vec<_>>()).unwrap_or_default()
        };
        let (store_figures, raw_figures) = (Figures::of(store), Figures::of(raw));
        let by = |sum: u64, count: u64| (count > 0).then(|| sum as f64 / count as f64);
        let counts = store_figures.counts;
        let only_gets = counts.puts == 0;
        let user_bytes = counts.puts * (value_len + KEY_LEN) as u64;
        let written = counts.device_written_bytes + counts.beside_bytes;
        Row {
            mix: cell.mix,
            depth: cell.depth,
            engine: engine.name(),
            idle: cell.idle,
            throughput_vs_raw: by_round(Tally::speed),
            p50_vs_raw: by_round(|tally| tally.latency.value_at_quantile(0.5) as f64),
            p99_vs_raw: by_round(|tally| tally.latency.value_at_quantile(0.99) as f64),
            // An update reads too.
            reads_per_get: by(counts.device_reads, counts.hits).filter(|_| only_gets),
            write_amplification: by(written, user_bytes),
            store: store_figures,
            raw: raw_figures,
        }
    }

    /// Bytes read from the device for each GET that found its key.
    pub fn read_bytes_per_get(&self) -> Option<f64> {
        self.reads_per_get?;
        Some(self.store.counts.device_read_bytes as f64 / self.store.counts.hits as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block::sim::{SimConfig, SimDevice};

    use super::*;

    #[test]
    fn what_is_lost_at_the_ends_of_segments_is_overhead() {
        let device = Arc::new(SimDevice::new(SimConfig::new(1, 4 << 20)));
        let store = Store::on(device, &::store::Options::default()).expect("a store");
        // Three to a segment of 64 KiB, and the last one begins the eleventh.
        for i in 0..31 {
            store.put(&[i], &[i; 20_000]).expect("put");
        }
        let overhead = Loaded::of(&store, Duration::ZERO).overhead();
        let overhead = overhead.expect("something was stored");
        assert!((0.085..0.1).contains(&overhead), "{overhead}");
    }
}
