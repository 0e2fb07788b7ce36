//! Opening a store after a crash and after a clean stop.
//!
//! A process of its own loads the store and is then killed, so that nothing is in order when the
//! store is opened again: no flush, no index written, no lock given back.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use ::store::{Durability, Options, Recovery, Store};
use anyhow::{Context as _, bail, ensure};
use block::{Device, Disk, Engine};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::location::{OpenLocation, open_device};
use super::measure::{Numbers, Side, Slice};
use super::report::Loaded;
use super::{FILL_DEPTH, KEY_LEN, StoreRun};
use crate::machine::allowed_cpus;
use crate::workload::{Mix, Tape, Workload};

/// Items that are asked for after each opening.
const SAMPLE: usize = 20_000;
/// How the file's length follows from what is stored: the index is written to the same file, and
/// some segments stay free.
const SPARE_SHARE: f64 = 1.25;
const FILE_MIN: u64 = 64 << 20;

/// What was measured.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
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
pub fn load(path: &Path, run: &StoreRun, out: &mut impl Write) -> anyhow::Result<()> {
    // Nothing of this is to outlive who measures; only a refusal of the kernel is left to chance.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let device = open_device(path, Engine::Uring)?;
    let store = Arc::new(Store::on(Arc::new(device), &options(128))?);
    let began = Instant::now();
    const STEPS: u64 = 20;
    for step in 0..STEPS {
        let (first, end) = (run.keys * step / STEPS, run.keys * (step + 1) / STEPS);
        let numbers = Numbers::new(first);
        numbers.allow(end - first);
        let cpus = vec![allowed_cpus().last().copied()];
        Slice::puts(run, cpus, FILL_DEPTH, numbers).run(&Side::Store(store.clone()))?;
        writeln!(out, "{}", (step + 1) * 100 / STEPS)?;
        out.flush()?;
    }
    let loaded = Loaded::of(&store, began.elapsed());
    let json = serde_json::to_string(&loaded).expect("numbers are JSON");
    writeln!(out, "{json}")?;
    out.flush()?;
    // Until it is killed, or whoever has started it is gone: the store is not to be closed.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::abort();
}

const LOADER: &str = "the process that loads the store";

/// A process that is killed, whatever happens.
struct Loader(Child);

impl Drop for Loader {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl StoreRun {
    /// Has a store loaded, killed, opened, closed and opened. `loader` is the command of a process
    /// that calls [`load`] with the path that it is given.
    ///
    /// # Errors
    /// The device's, the store's, and items that are missing afterwards.
    pub fn recover(
        &self,
        loader: &dyn Fn(&Path, &StoreRun) -> Command,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Recovered> {
        let location = OpenLocation::open(
            &self.location,
            file_len(self.keys, self.value_len),
            self.in_memory,
        )?;
        let load = self.load_and_kill(loader(location.path(), self), progress)?;
        let mut recovered = Recovered {
            keys: self.keys,
            value_len: self.value_len,
            load,
            ..Recovered::default()
        };
        progress("reading the file from one end to the other");
        recovered.sequential_per_s = self.sequential(&location, load.log_bytes)?;
        progress("opening after the crash");
        let (store, seconds) = self.open(&location)?;
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
            _ => bail!("the store had been closed, although it was killed"),
        }
        progress("looking for the items");
        let store = self.look(store)?;
        progress("closing");
        let began = Instant::now();
        store.close()?;
        recovered.close_s = began.elapsed().as_secs_f64();
        progress("opening after the clean stop");
        let (store, seconds) = self.open(&location)?;
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
    ) -> anyhow::Result<Loaded> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut loader = Loader(command.spawn().context(LOADER)?);
        let stdout = loader.0.stdout.take().context(LOADER)?;
        for line in BufReader::new(stdout).lines() {
            let line = line.context(LOADER)?;
            if let Ok(percent) = line.parse::<u64>() {
                progress(&format!("storing {} items: {percent} %", self.keys));
            } else if let Ok(loaded) = serde_json::from_str(&line) {
                return Ok(loaded);
            }
        }
        bail!("{LOADER} ended before it was done")
    }

    /// Opens the store, and says how long that took once the file was open.
    fn open(&self, location: &OpenLocation) -> anyhow::Result<(Store, f64)> {
        let device = Arc::new(location.device(Engine::Uring)?);
        let began = Instant::now();
        let store = Store::on(device, &options(128))?;
        Ok((store, began.elapsed().as_secs_f64()))
    }

    /// Looks whether the items are there, a sample of them.
    fn look(&self, store: Store) -> anyhow::Result<Store> {
        let (held, keys) = (store.len(), self.keys);
        ensure!(held == keys, "items after the opening: {held} of {keys}");
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
            anyhow::Ok(())
        })?;
        drop(session);
        ensure!(
            bad == 0,
            "{bad} of {SAMPLE} items are lost or wrong after the opening"
        );
        Ok(store)
    }

    /// Bytes a second of the device alone, read as recovery reads it: large pieces, some at a time.
    fn sequential(&self, location: &OpenLocation, bytes: u64) -> anyhow::Result<f64> {
        const PIECE: u64 = 1 << 20;
        const AT_ONCE: u64 = 16;
        /// Enough to know the speed.
        const ENOUGH: u64 = 4 << 30;
        let device = location.device(Engine::Uring)?;
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
            anyhow::Ok(())
        })?;
        Ok((end * PIECE) as f64 / began.elapsed().as_secs_f64().max(1e-9))
    }
}
