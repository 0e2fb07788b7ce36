//! A device in virtual time, from one seed: slow, forgetful, faulty, or ideally fast.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `mod` | the device: its speed, its faults, its power |
//! | `image` | its bytes |
//! | `state` | requests under way, and what each does when it ends |
//! | `queue` | the [`super::Queue`] over it |
//! | `crash` | what survives the loss of power |
//!
//! A write takes effect at its end, a read sees what has taken effect by its own. Both end in the
//! order that the device's speed gives them, which is not that of submission.
//!
//! ```
//! use block::{Disk, Durable, sim::{SimConfig, SimDevice}};
//!
//! let device = SimDevice::new(SimConfig::new(1, 1 << 20));
//! let disk = Disk::open(&device, 8)?;
//! let write = |at, byte, durable| {
//!     let mut buf = disk.buffer(4096);
//!     buf.fill(byte);
//!     disk.block_on(disk.write(buf, at, durable)).0
//! };
//! write(0, 1, Durable::Yes)?;
//! write(4096, 2, Durable::No)?;
//! let after = device.snapshot().crash(7);
//! let mut bytes = [0; 8192];
//! after.read(0, &mut bytes);
//! assert!(bytes[..4096].iter().all(|byte| *byte == 1), "durable");
//! assert!(bytes[4096..].iter().all(|byte| [0, 2].contains(byte)), "there, gone or torn");
//! # Ok::<(), block::BlockError>(())
//! ```

mod crash;
mod image;
mod queue;
mod state;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

pub use crash::{Loss, Snapshot};
pub use image::Image;

use super::{BlockError, Device, Geometry, Queue};
use queue::SimQueue;
use rt::{Clock, Instant};
use state::State;

/// What to simulate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// The seed of everything: latencies and faults.
    pub seed: u64,
    /// What it is called in messages.
    pub name: Arc<str>,
    /// Its size and rules. `block` is also what a write is torn at.
    pub geometry: Geometry,
    /// Bytes that the medium writes as one, a power of two; those of a block where this is less. A write
    /// that the loss of power cuts short may spoil all of a sector that it covers in part.
    pub sector: u32,
    /// How fast it is.
    pub speed: Speed,
    /// What goes wrong by chance.
    pub rates: Rates,
    /// Where the time comes from: a simulated core's clock, or the machine's for a model of a device
    /// that the machine does not have. `None`: time passes when a queue is polled in vain.
    pub clock: Option<Arc<dyn Clock>>,
}

impl SimConfig {
    /// A device of `len` bytes, a multiple of 512, that never fails: blocks of 512 bytes, the speed of
    /// a common flash drive, and time that passes when polled.
    #[must_use]
    pub fn new(seed: u64, len: u64) -> Self {
        Self {
            seed,
            name: "sim".into(),
            geometry: Geometry {
                len,
                block: 512,
                io_max: 1 << 20,
                boundary: None,
            },
            sector: 512,
            speed: Speed::default(),
            rates: Rates::default(),
            clock: None,
        }
    }
}

/// How long requests take. A request waits for a free channel, stays on it for its latency, and then
/// for its bytes to pass the bus, one request at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Of a read without its bytes.
    pub read: Duration,
    /// Of a write without its bytes.
    pub write: Duration,
    /// Of a flush; a durable write takes as much longer.
    pub flush: Duration,
    /// Latencies are multiplied by something between 1 and this; 1 for none.
    pub jitter: f64,
    /// Requests carried out at the same time.
    pub channels: usize,
    /// Of the bus; 0 for no limit.
    pub bytes_per_s: u64,
}

impl Default for Speed {
    /// A flash drive: 80 us a read, 20 us a write, 500 us a flush, 64 channels, 2 GB/s.
    fn default() -> Self {
        Self {
            read: Duration::from_micros(80),
            write: Duration::from_micros(20),
            flush: Duration::from_micros(500),
            jitter: 2.0,
            channels: 64,
            bytes_per_s: 2_000_000_000,
        }
    }
}

/// How often something goes wrong, of each request: probabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// A read fails with `EIO`.
    pub read_error: f64,
    /// A write fails with `EIO`; any of its blocks may have been written.
    pub write_error: f64,
    /// A flush fails with `EIO`: what it does not bring to the medium never becomes durable.
    pub flush_error: f64,
    /// A transfer ends after some of its blocks, as if a signal had interrupted it.
    pub short: f64,
    /// A request is to be repeated: `EAGAIN`.
    pub again: f64,
}

/// Requests of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes, durable or not.
    Write,
    /// Flushes.
    Flush,
}

/// Requests that the device has carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
}

/// A simulated device. Clones are the same device.
#[derive(Clone)]
pub struct SimDevice {
    name: Arc<str>,
    geometry: Geometry,
    sector: u32,
    state: Arc<Mutex<State>>,
}

impl SimDevice {
    /// A device full of zeros.
    ///
    /// # Panics
    /// If the geometry contradicts itself.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        let image = Image::new(config.geometry.len);
        Self::with_image(config, image)
    }

    /// A device with these bytes, all durable: what a crash has left, say.
    ///
    /// # Panics
    /// If the image has another length than the geometry, or the geometry contradicts itself.
    #[must_use]
    pub fn with_image(config: SimConfig, image: Image) -> Self {
        let Geometry {
            len,
            block,
            io_max,
            boundary,
        } = config.geometry;
        assert_eq!(image.len(), len, "the image's length");
        let fits = |value: u64| value > 0 && value.is_multiple_of(u64::from(block.max(1)));
        let is_sound = block.is_power_of_two()
            && fits(len)
            && fits(io_max.into())
            && boundary.is_none_or(fits);
        assert!(is_sound, "a possible geometry: {:?}", config.geometry);
        Self {
            name: config.name.clone(),
            geometry: config.geometry,
            sector: config.sector,
            state: Arc::new(Mutex::new(State::new(config, image))),
        }
    }

    /// Fails a request of this kind with `errno`, after `pass` more of them.
    pub fn fail(&self, kind: Kind, pass: u64, errno: Errno) {
        self.lock().inject(kind, pass, errno);
    }

    /// Faults of [`SimDevice::fail`] that no request has met yet.
    #[must_use]
    pub fn faults_to_come(&self) -> usize {
        self.lock().faults_to_come()
    }

    /// Takes back the faults that no request has met yet.
    pub fn clear_faults(&self) {
        self.lock().clear_faults();
    }

    /// Fails every read of these bytes' blocks with `EIO`, until they are written again.
    pub fn make_unreadable(&self, at: u64, len: u64) {
        self.lock().make_unreadable(at, len);
    }

    /// Changes how often something goes wrong.
    pub fn set_rates(&self, rates: Rates) {
        self.lock().set_rates(rates);
    }

    /// Flips one bit of the medium, as decay does: of the byte at `at`, the bit `bit`.
    ///
    /// # Panics
    /// Beyond the device's end, or if `bit` is not below 8.
    pub fn flip_bit(&self, at: u64, bit: u8) {
        assert!(bit < 8, "a byte has bits 0 to 7");
        self.lock().flip(at, 1 << bit);
    }

    /// What the device holds now for who reads it.
    #[must_use]
    pub fn image(&self) -> Image {
        self.lock().visible().clone()
    }

    /// The device at this moment, between two events.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot()
    }

    /// From now on, keeps a snapshot after each event: a write begun, a write or a flush ended.
    pub fn record(&self) {
        self.lock().record();
    }

    /// The snapshots kept since [`SimDevice::record`] or the last call.
    #[must_use]
    pub fn take_snapshots(&self) -> Vec<Snapshot> {
        self.lock().take_snapshots()
    }

    /// Events so far that change what a crash leaves. What was acknowledged when this was `n` is
    /// promised to every snapshot whose event is greater than `n`; a snapshot whose event is at most
    /// the number from before an operation began knows nothing of it.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.lock().events()
    }

    /// Switches the device off: what is under way and all that comes fails with `ENODEV`. What is left
    /// of it is in [`SimDevice::snapshot`].
    pub fn cut_power(&self) {
        self.lock().cut_power();
    }

    /// What was asked of the device so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.lock().totals()
    }

    /// The device's time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.lock().now()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A panic in a test that holds the lock says more than the poison that it leaves.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device for SimDevice {
    fn name(&self) -> Arc<str> {
        self.name.clone()
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn physical_block(&self) -> u32 {
        self.sector.max(self.geometry.block)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        Ok(Box::new(SimQueue::new(self.state.clone(), depth)))
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDevice")
            .field("name", &self.name)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}
