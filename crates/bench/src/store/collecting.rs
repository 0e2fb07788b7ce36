//! What is written to the device for a PUT when segments have to be emptied to make room: a store that is
//! filled to a share and then overwritten, each item alike, which is the worst case for a log.

use std::sync::Arc;
use std::time::Instant;

use ::store::{Options, Store};
use anyhow::ensure;
use block::{Device, Engine};
use serde::{Deserialize, Serialize};

use super::location::{OpenLocation, fill};
use super::measure::{Numbers, Side, Slice};
use super::{KEY_LEN, StoreRun};

/// PUTs under way.
const DEPTH: usize = 128;
/// How much of its length the store is overwritten before it counts, and then again: at first segments
/// are emptier than they will be.
const WARM_UP_SHARE: f64 = 1.0;

/// What was measured.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Collected {
    /// Items.
    pub keys: u64,
    /// Bytes of a value.
    pub value_len: usize,
    /// Bytes of the store.
    pub bytes: u64,
    /// Bytes of keys and values that were put.
    pub user_bytes: u64,
    /// Bytes that were written to the device for that.
    pub device_bytes: u64,
    /// Those of them that were records moved.
    pub moved_bytes: u64,
    /// Segments that were emptied.
    pub segments: u64,
    /// How long it took.
    pub seconds: f64,
}

impl Collected {
    /// Bytes written to the device by bytes of keys and values.
    pub fn write_amplification(&self) -> f64 {
        self.device_bytes as f64 / self.user_bytes as f64
    }
}

impl StoreRun {
    /// Fills a store, of which items take a share, overwrites it, and counts. `progress` is told what is
    /// done.
    ///
    /// # Errors
    /// A device that cannot be used or fails; a store that has emptied no segment.
    pub fn collect(
        &self,
        live_share: f64,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Collected> {
        let location = OpenLocation::open(&self.location, self.bytes, self.in_memory)?;
        let file = location.device(Engine::Uring)?;
        let len = file.geometry().len;
        fill(&file, 1 << 20, len, progress)?;
        self.collect_on(Arc::new(file), live_share, progress)
    }

    fn collect_on(
        &self,
        device: Arc<dyn Device>,
        live_share: f64,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Collected> {
        let mut options = Options::default();
        options.queue_depth = DEPTH;
        options.seed = Some(self.seed);
        options.live_share = 0.95;
        // The file is the benchmark's own, and holds what was written to it before.
        options.force = true;
        let store = Arc::new(Store::on(device, &options)?);
        let layout = store.superblock().layout;
        let bytes = u64::from(layout.segments) * layout.segment_bytes();
        let record = (self.value_len + KEY_LEN) as u64;
        let keys = ((bytes as f64 * live_share) as u64 / record).max(1);
        let warm_up = (bytes as f64 * WARM_UP_SHARE) as u64 / record;
        let put = |numbers: Numbers| {
            let slice = Slice::puts(self, vec![None], DEPTH, numbers);
            slice.run(&Side::Store(store.clone()))
        };
        progress("storing values");
        let all = Numbers::new(0);
        all.allow(keys);
        put(all)?;
        progress("overwriting values");
        put(Numbers::among(keys, 0..warm_up))?;
        let (began, before) = (Instant::now(), store.stats());
        put(Numbers::among(keys, warm_up..2 * warm_up))?;
        let (stats, seconds) = (store.stats().since(&before), began.elapsed().as_secs_f64());
        // Nobody else holds it: each measurement ends its cores.
        if let Ok(store) = Arc::try_unwrap(store) {
            store.close()?;
        }
        let put = stats.user_bytes;
        ensure!(
            stats.collected > 0,
            "no segment was emptied while {put} bytes were put"
        );
        Ok(Collected {
            keys,
            value_len: self.value_len,
            bytes,
            user_bytes: stats.user_bytes,
            device_bytes: stats.device_bytes(),
            moved_bytes: stats.moved_bytes,
            segments: stats.collected,
            seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use block::sim::{SimConfig, SimDevice};

    use super::*;

    fn run(value_len: usize, live_share: f64) -> Collected {
        let run = StoreRun {
            value_len,
            ..StoreRun::default()
        };
        let device = Arc::new(SimDevice::new(SimConfig::new(1, 16 << 20)));
        let collected = run.collect_on(device, live_share, &mut |_| ());
        collected.expect("measured")
    }

    /// What the collector writes counts: the fuller the store, the more it is.
    #[test]
    fn a_fuller_store_writes_more_for_a_put() {
        let [emptier, fuller] = [0.4, 0.75].map(|live_share| run(4096, live_share));
        for collected in [emptier, fuller] {
            assert!(collected.segments > 100, "{collected:?}");
            let beside = collected.device_bytes - collected.moved_bytes;
            assert!(beside > collected.user_bytes, "{collected:?}");
        }
        let [few, many] = [emptier, fuller].map(|c| c.write_amplification());
        assert!(1.0 < few && few < many && many < 4.0, "{few}, {many}");
    }
}
