//! Opening a store after a crash and after a clean stop.
//!
//! A process of its own loads the store and is then killed, so that nothing is in order when the
//! store is opened again: no flush, no index written, no lock given back.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::store::{Durability, Options, Progress, Recovery, Store};
use block::{Device, Disk, Engine};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::measure::{Numbers, Requests, Side, Slice};
use super::place::{Place, open_device};
use super::report::Loaded;
use super::{FILL_DEPTH, Idle, KEY_LEN, Location, StoreBenchError};
use crate::machine::allowed_cpus;
use crate::workload::{Mix, Tape, Workload};

/// Items that are asked for after each opening.
const SAMPLE: usize = 20_000;
/// How the file's length follows from what is stored: the index is written to the same file, and
/// some segments stay free.
const SPARE_SHARE: f64 = 1.25;
const FILE_MIN: u64 = 64 << 20;

/// The settings.
#[derive(Clone, PartialEq, Debug)]
pub struct RecoveryRun {
    /// Where.
    pub location: Location,
    /// Take a file in memory too.
    pub in_memory: bool,
    /// Items.
    pub keys: u64,
    /// Bytes of a value.
    pub value_len: usize,
    /// Repeats the requests exactly.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recovered {
    /// Items.
    pub keys: u64,
    /// Bytes of a value.
    pub value_len: usize,
    /// The load.
    pub load: Loaded,
    /// From the first look at the device until the store serves, after the process was killed.
    pub crash_s: f64,
    /// Records that were found in the log.
    pub records: u64,
    /// Bytes that were read for that.
    pub log_read_bytes: u64,
    /// How often the log was read.
    pub passes: u32,
    /// Bytes a second that the device gives when it is read from one end to the other.
    pub sequential_per_s: f64,
    /// How long a clean stop takes.
    pub close_s: f64,
    /// Until the store serves after a clean stop.
    pub clean_s: f64,
    /// Whether the index was read instead of the log then.
    pub clean_from_index: bool,
}

impl Recovered {
    /// How long the device alone takes to give the log.
    pub fn limit_s(&self) -> f64 {
        self.log_read_bytes as f64 / self.sequential_per_s.max(1.0)
    }
}

/// The bytes of a file for so many items.
fn file_len(keys: u64, value_len: usize) -> u64 {
    let bytes = keys * (value_len + KEY_LEN + 16) as u64;
    (((bytes as f64 * SPARE_SHARE) as u64 >> 20) << 20).max(FILE_MIN)
}

fn options(queue_depth: usize) -> Options {
    let mut options = Options::default();
    options.durability = Durability::Process;
    options.queue_depth = queue_depth;
    options.live_share = 0.95;
    options
}

/// Loads a store in a file: what the process does that is to be killed. Says on `out` how far it
/// is, and at last what it did.
///
/// # Errors
/// The device's and the store's.
pub fn load(
    path: &Path,
    keys: u64,
    value_len: usize,
    seed: u64,
    out: &mut impl Write,
) -> Result<(), StoreBenchError> {
    let told = |error| StoreBenchError::File {
        path: "standard output".into(),
        error,
    };
    // Nothing of this is to outlive who measures; only a refusal of the kernel is left to chance.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let device = open_device(path, Engine::Uring)?;
    let store = Arc::new(Store::on(Arc::new(device), &options(128))?);
    let began = Instant::now();
    const STEPS: u64 = 20;
    for step in 0..STEPS {
        let (first, end) = (keys * step / STEPS, keys * (step + 1) / STEPS);
        let numbers = Arc::new(Numbers::new(first));
        numbers.allow(end - first);
        let slice = Slice {
            cpus: vec![allowed_cpus().last().copied()],
            depth: FILL_DEPTH,
            warm_up: Duration::ZERO,
            length: Duration::from_secs(86_400),
            requests: Requests::Fresh(numbers),
            value_len,
            seed,
            idle: Idle::Spin,
        };
        slice.run(&Side::Store(store.clone()))?;
        writeln!(out, "{}", (step + 1) * 100 / STEPS).map_err(told)?;
        out.flush().map_err(told)?;
    }
    let loaded = Loaded::of(&store, began.elapsed());
    let json = serde_json::to_string(&loaded).expect("numbers are JSON");
    writeln!(out, "{json}").map_err(told)?;
    out.flush().map_err(told)?;
    // Until it is killed, or whoever has started it is gone: the store is not to be closed.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::abort();
}

/// A process that is killed, whatever happens.
struct Loader(Child);

impl Drop for Loader {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl RecoveryRun {
    /// Has a store loaded, killed, opened, closed and opened. `loader` is the command of a process
    /// that calls [`load`] with the path that it is given.
    ///
    /// # Errors
    /// The device's, the store's, and items that are missing afterwards.
    pub fn run(
        &self,
        loader: &dyn Fn(&Path, &RecoveryRun) -> Command,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Recovered, StoreBenchError> {
        let place = Place::open(
            &self.location,
            file_len(self.keys, self.value_len),
            self.in_memory,
        )?;
        let load = self.load_and_kill(loader(place.path(), self), progress)?;
        let mut recovered = Recovered {
            keys: self.keys,
            value_len: self.value_len,
            load,
            ..Recovered::default()
        };
        progress("reading the file from one end to the other");
        recovered.sequential_per_s = self.sequential(&place, load.log_bytes)?;
        progress("opening after the crash");
        let (store, seconds) = self.open(&place, progress)?;
        recovered.crash_s = seconds;
        match store.recovery() {
            Recovery::Log {
                records,
                bytes,
                passes,
                ..
            } => {
                recovered.records = records;
                recovered.log_read_bytes = bytes;
                recovered.passes = passes;
            }
            _ => {
                return Err(StoreBenchError::Loader(
                    "the store had been closed, although it was killed".to_string(),
                ));
            }
        }
        progress("looking for the items");
        let store = self.look(store)?;
        progress("closing");
        let began = Instant::now();
        store.close()?;
        recovered.close_s = began.elapsed().as_secs_f64();
        progress("opening after the clean stop");
        let (store, seconds) = self.open(&place, progress)?;
        recovered.clean_s = seconds;
        recovered.clean_from_index = store.recovery() == Recovery::Closed;
        progress("looking for the items");
        self.look(store)?;
        Ok(recovered)
    }

    fn load_and_kill(
        &self,
        mut command: Command,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Loaded, StoreBenchError> {
        let failed = |error: std::io::Error| StoreBenchError::Loader(error.to_string());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut loader = Loader(command.spawn().map_err(failed)?);
        let stdout = loader
            .0
            .stdout
            .take()
            .ok_or_else(|| StoreBenchError::Loader("it has no standard output".to_string()))?;
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(failed)?;
            if let Ok(percent) = line.parse::<u64>() {
                progress(&format!("storing {} items: {percent} %", self.keys));
            } else if let Ok(loaded) = serde_json::from_str(&line) {
                return Ok(loaded);
            }
        }
        Err(StoreBenchError::Loader(
            "it ended before it was done".to_string(),
        ))
    }

    /// Opens the store, and says how long that took once the file was open.
    fn open(
        &self,
        place: &Place,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(Store, f64), StoreBenchError> {
        let device = Arc::new(place.device(Engine::Uring)?);
        let latest = Arc::new(Mutex::new(None::<Progress>));
        let told = latest.clone();
        let mut options = options(128);
        options.on_progress = Some(Arc::new(move |progress| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
        }));
        let began = Instant::now();
        let opener = std::thread::spawn(move || {
            let opened = Store::on(device, &options);
            (opened, began.elapsed().as_secs_f64())
        });
        while !opener.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
            let latest = *latest.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Progress {
                segments,
                segments_total,
                ..
            }) = latest
            {
                progress(&format!(
                    "reading the log: segment {segments} of {segments_total}"
                ));
            }
        }
        match opener.join() {
            Ok((opened, seconds)) => Ok((opened?, seconds)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Looks whether the items are there, a sample of them.
    fn look(&self, store: Store) -> Result<Store, StoreBenchError> {
        if store.len() != self.keys {
            return Err(StoreBenchError::Wrong {
                what: "items after the opening",
                count: store.len(),
                of: self.keys,
            });
        }
        let workload = Workload {
            mix: Mix::C,
            distribution: crate::workload::Distribution::Uniform,
            items: self.keys,
            key_len: KEY_LEN,
        };
        let tape = Tape::record(&workload.generator(self.seed)?, 0, SAMPLE);
        let mut bad = 0;
        let session = store.session()?;
        session.block_on(async {
            for (operation, key) in tape.iter() {
                let found = session.get(key).await?;
                let is_right = found.is_some_and(|value| {
                    super::measure::is_marked(&value, operation.item(), self.value_len)
                });
                bad += u64::from(!is_right);
            }
            Ok::<(), StoreBenchError>(())
        })?;
        drop(session);
        if bad > 0 {
            return Err(StoreBenchError::Wrong {
                what: "items that are lost or wrong after the opening",
                count: bad,
                of: SAMPLE as u64,
            });
        }
        Ok(store)
    }

    /// Bytes a second of the device alone, read as recovery reads it: large pieces, some at a time.
    fn sequential(&self, place: &Place, bytes: u64) -> Result<f64, StoreBenchError> {
        const PIECE: u64 = 1 << 20;
        const AT_ONCE: u64 = 16;
        /// Enough to know the speed.
        const ENOUGH: u64 = 4 << 30;
        let device = place.device(Engine::Uring)?;
        let disk = Disk::open(&device, AT_ONCE as usize)?;
        let end = bytes.min(device.geometry().len).min(ENOUGH) / PIECE;
        let began = Instant::now();
        disk.block_on(async {
            let mut pieces = std::collections::VecDeque::new();
            for piece in 0..end {
                if pieces.len() as u64 == AT_ONCE {
                    let read: block::Transfer = pieces.pop_front().expect("some");
                    read.await.0?;
                }
                pieces.push_back(disk.read(disk.buffer(PIECE as usize), piece * PIECE));
            }
            for read in pieces {
                read.await.0?;
            }
            Ok::<(), StoreBenchError>(())
        })?;
        Ok((end * PIECE) as f64 / began.elapsed().as_secs_f64().max(1e-9))
    }
}
