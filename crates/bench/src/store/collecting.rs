//! What is written to the device for a PUT when segments have to be emptied to make room: a store that is
//! filled to a share and then overwritten, each item alike, which is the worst case for a log.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ::store::{Options, Session, Stats, Store};
use block::{Device, Engine};
use serde::{Deserialize, Serialize};

use super::place::{Place, fill};
use super::{KEY_LEN, Location, StoreBenchError};
use crate::workload::write_key;

/// PUTs under way.
const DEPTH: usize = 128;
/// How much of its length the store is overwritten before it counts, and then again: at first segments
/// are emptier than they will be.
const WARM_UP_SHARE: f64 = 1.0;

/// The settings.
#[derive(Clone, PartialEq, Debug)]
pub struct CollectingRun {
    /// Where.
    pub location: Location,
    /// Take a file in memory too.
    pub in_memory: bool,
    /// Bytes of the file, all of it the store's.
    pub bytes: u64,
    /// Bytes of a value.
    pub value_len: usize,
    /// Which share of the store items take.
    pub live_share: f64,
    /// Repeats the requests exactly.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
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

impl CollectingRun {
    /// Fills a store, overwrites it, and counts. `progress` is told what is done.
    ///
    /// # Errors
    /// A device that cannot be used or fails; a store that has emptied no segment.
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> Result<Collected, StoreBenchError> {
        let place = Place::open(&self.location, self.bytes, self.in_memory)?;
        let file = place.device(Engine::Uring)?;
        let len = file.geometry().len;
        fill(&file, 1 << 20, len, progress)?;
        self.on(Arc::new(file), progress)
    }

    fn on(
        &self,
        device: Arc<dyn Device>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Collected, StoreBenchError> {
        let mut options = Options::default();
        options.queue_depth = DEPTH;
        options.seed = Some(self.seed);
        options.live_share = 0.95;
        // The file is the benchmark's own, and holds what was written to it before.
        options.force = true;
        let store = Store::on(device, &options)?;
        let layout = store.superblock().layout;
        let bytes = u64::from(layout.segments) * layout.segment_bytes();
        let record = (self.value_len + KEY_LEN) as u64;
        let keys = ((bytes as f64 * self.live_share) as u64 / record).max(1);
        let mut core = rt::Core::new(rt::Config::default())
            .map_err(|error| StoreBenchError::Task(error.to_string()))?;
        let handle = core.handle();
        let warm_up = (bytes as f64 * WARM_UP_SHARE) as u64 / record;
        let mut random = fastrand::Rng::with_seed(self.seed);
        let measured = core.block_on(async {
            let session = store.session_on(&handle)?;
            progress("storing values");
            self.put_all(&session, &handle, 0..keys).await?;
            progress("overwriting values");
            let any: Vec<u64> = (0..2 * warm_up).map(|_| random.u64(..keys)).collect();
            let (first, second) = any.split_at(warm_up as usize);
            self.put_all(&session, &handle, first.iter().copied())
                .await?;
            let (began, before) = (Instant::now(), store.stats());
            self.put_all(&session, &handle, second.iter().copied())
                .await?;
            Ok::<(Stats, f64), StoreBenchError>((
                store.stats().since(&before),
                began.elapsed().as_secs_f64(),
            ))
        });
        drop((core, handle));
        let (stats, seconds) = measured?;
        store.close()?;
        if stats.collected == 0 {
            return Err(StoreBenchError::NotCollected(stats.user_bytes));
        }
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

    /// Puts items, many at a time.
    async fn put_all(
        &self,
        session: &Session,
        core: &rt::Handle,
        items: impl Iterator<Item = u64> + Clone,
    ) -> Result<(), StoreBenchError> {
        let items: Rc<[u64]> = items.collect();
        let next = Rc::new(Cell::new(0));
        let mut value = vec![0; self.value_len];
        fastrand::Rng::with_seed(self.seed).fill(&mut value);
        let value: Rc<[u8]> = value.into();
        let tasks: Vec<_> = (0..DEPTH)
            .map(|_| {
                let (session, value) = (session.clone(), value.clone());
                let (items, next) = (items.clone(), next.clone());
                core.spawn(async move {
                    let mut key = [0; KEY_LEN];
                    while let Some(item) = items.get(next.replace(next.get() + 1)) {
                        write_key(*item, &mut key);
                        session.put(&key, &value).await?;
                    }
                    Ok::<(), StoreBenchError>(())
                })
            })
            .collect();
        for task in tasks {
            let ended = task.await;
            ended.map_err(|error| StoreBenchError::Task(error.to_string()))??;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use block::sim::{SimConfig, SimDevice};

    use super::*;

    fn run(value_len: usize, live_share: f64) -> Collected {
        let run = CollectingRun {
            location: Location::Temporary(".".into()),
            in_memory: true,
            bytes: 0,
            value_len,
            live_share,
            seed: 1,
        };
        let device = SimDevice::new(SimConfig::new(1, 16 << 20));
        run.on(Arc::new(device), &mut |_| ()).expect("measured")
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
