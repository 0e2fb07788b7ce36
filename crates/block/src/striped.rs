//! Several devices as one: chunk after chunk, round and round (RAID-0).
//!
//! ```text
//! offset   0        unit      2 unit    3 unit    4 unit    5 unit
//!          | a 0     | b 0     | c 0     | a unit  | b unit  | c unit  | ...
//! ```
//!
//! The devices' order is part of the format: with another one, the same devices hold something else. So
//! the last block of each begins with a label that says which set it belongs to and which place it has, and
//! the block before that one with a copy:
//!
//! ```text
//!  0       8         10  12     16    32       36      40    44
//!  +-------+---------+---+------+-----+--------+-------+-----+
//!  | magic | version | 0 | unit | set | number | count | crc |
//!  +-------+---------+---+------+-----+--------+-------+-----+
//! ```

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use slab::Slab;

use super::crc32c;
use super::{BlockError, Device, Disk, Done, Durable, Geometry, Op, Queue, Region, Request};
use rt::Arm;

/// Several devices as one, as fast and as large as all together, and lost with any of them.
pub struct Striped {
    devices: Vec<Box<dyn Device>>,
    unit: u64,
    geometry: Geometry,
    name: Arc<str>,
}

impl Striped {
    /// Makes one device of several, in this order, `unit` bytes of each at a time. The shortest bounds
    /// the use of all. `set` is a number that nobody has used before. [`Striped::open`] finds them from now
    /// on. The devices are to be blank; what else they hold is overwritten only with `force`.
    ///
    /// # Errors
    /// If there is no device, one belongs to a set already, or is in use (see [`crate::first_used`]), or the unit
    /// does not fit the devices' blocks; and whatever the devices say.
    pub fn format(
        devices: Vec<Box<dyn Device>>,
        unit: u32,
        set: u128,
        force: bool,
    ) -> Result<Self, BlockError> {
        let striped = Self::over(devices, unit)?;
        let refuse = |reason| {
            Err(BlockError::Layout {
                device: striped.name(),
                reason,
            })
        };
        for device in &striped.devices {
            let name = device.name();
            if Label::read(&**device)?.is_some() {
                return refuse(format!("{name} belongs to a set already"));
            }
            let disk = Disk::open(&**device, 1)?;
            let used = match force {
                true => None,
                false => disk.block_on(crate::first_used(&**device, &disk))?,
            };
            if let Some(at) = used {
                return refuse(format!(
                    "{name} is not empty: there is something at byte {at}"
                ));
            }
        }
        let count = striped.devices.len() as u32;
        for (number, device) in (0..).zip(&striped.devices) {
            let label = Label {
                unit,
                set,
                number,
                count,
            };
            label.write(&**device)?;
        }
        Ok(striped)
    }

    /// Takes devices that [`Striped::format`] has made one of, given in any order.
    ///
    /// # Errors
    /// If they are not all of one set, each once; and whatever the devices say.
    pub fn open(devices: Vec<Box<dyn Device>>) -> Result<Self, BlockError> {
        let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
        let refuse = |reason: String| BlockError::Layout {
            device: names.join("+").into(),
            reason,
        };
        let mut members = Vec::new();
        for device in devices {
            let name = device.name();
            let label = Label::read(&*device)?;
            let label = label.ok_or_else(|| refuse(format!("{name} belongs to no set")))?;
            members.push((label, device));
        }
        members.sort_by_key(|(label, _)| label.number);
        let Some(&(first, _)) = members.first() else {
            return Err(refuse("there is no device to stripe over".into()));
        };
        if members.len() != first.count as usize {
            let (there, count) = (members.len(), first.count);
            return Err(refuse(format!("the set has {count} devices, not {there}")));
        }
        for (number, (label, device)) in (0..).zip(&members) {
            let name = device.name();
            let expected = Label { number, ..first };
            if (label.set, label.unit, label.count) != (first.set, first.unit, first.count) {
                return Err(refuse(format!("{name} belongs to another set")));
            }
            if *label != expected {
                return Err(refuse(format!("device {number} of the set is missing")));
            }
        }
        let devices = members.into_iter().map(|(_, device)| device).collect();
        Self::over(devices, first.unit)
    }

    fn over(devices: Vec<Box<dyn Device>>, unit: u32) -> Result<Self, BlockError> {
        let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
        let name: Arc<str> = names.join("+").into();
        let refuse = |reason: String| {
            Err(BlockError::Layout {
                device: name.clone(),
                reason,
            })
        };
        let geometries = || devices.iter().map(|device| device.geometry());
        let Some(block) = geometries().map(|geometry| geometry.block).max() else {
            return refuse("there is no device to stripe over".into());
        };
        if unit == 0 || !unit.is_multiple_of(block) {
            return refuse(format!(
                "a stripe of {unit} bytes is not a multiple of {block}"
            ));
        }
        let wide = u64::from(unit);
        for (geometry, name) in geometries().zip(&names) {
            if geometry
                .boundary
                .is_some_and(|boundary| boundary % wide != 0)
            {
                return refuse(format!(
                    "a stripe of {unit} bytes does not divide {name}'s own"
                ));
            }
            if Label::places(geometry)[1] < wide {
                return refuse(format!("{name} is shorter than a stripe of {unit} bytes"));
            }
        }
        let shortest = geometries()
            .map(|geometry| Label::places(geometry)[1])
            .min();
        let each = shortest.unwrap_or(0) / wide * wide;
        let io_max = geometries().map(|geometry| geometry.io_max).min();
        let io_max = io_max.unwrap_or(block);
        let geometry = Geometry {
            len: each * devices.len() as u64,
            block,
            io_max: (io_max - io_max % block).min(unit),
            boundary: Some(wide),
        };
        Ok(Self {
            devices,
            unit: wide,
            geometry,
            name,
        })
    }
}

/// What a device says of the set that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label {
    unit: u32,
    set: u128,
    number: u32,
    count: u32,
}

const LABEL_LEN: usize = 44;
const LABEL_MAGIC: &[u8; 8] = b"vrvstrip";
const LABEL_VERSION: u16 = 3;

impl Label {
    /// Where a device's label is, and its copy: nothing of the set comes that far.
    fn places(geometry: Geometry) -> [u64; 2] {
        let block = u64::from(geometry.block);
        [1, 2].map(|blocks| geometry.len.saturating_sub(blocks * block))
    }

    /// The label, or its copy if the label is damaged.
    fn read(device: &dyn Device) -> Result<Option<Self>, BlockError> {
        let disk = Disk::open(device, 1)?;
        let geometry = device.geometry();
        let mut failed = Ok(None);
        for (number, at) in Self::places(geometry).into_iter().enumerate() {
            let buf = disk.buffer(geometry.block as usize);
            let (result, buf) = disk.block_on(disk.read(buf, at));
            match result {
                Ok(()) => {
                    if let Some(label) = Self::parse(&buf) {
                        if number > 0 {
                            tracing::warn!(device = %device.name(), "a label is damaged: its copy is used");
                        }
                        return Ok(Some(label));
                    }
                }
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    fn write(&self, device: &dyn Device) -> Result<(), BlockError> {
        let disk = Disk::open(device, 1)?;
        let mut buf = disk.buffer(device.geometry().block as usize);
        buf.fill(0);
        buf[..LABEL_LEN].copy_from_slice(&self.emit());
        for at in Self::places(device.geometry()) {
            let (result, written) = disk.block_on(disk.write(buf, at, Durable::Yes));
            result?;
            buf = written;
        }
        Ok(())
    }

    fn emit(&self) -> [u8; LABEL_LEN] {
        let mut out = [0; LABEL_LEN];
        out[..8].copy_from_slice(LABEL_MAGIC);
        out[8..10].copy_from_slice(&LABEL_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.unit.to_le_bytes());
        out[16..32].copy_from_slice(&self.set.to_le_bytes());
        out[32..36].copy_from_slice(&self.number.to_le_bytes());
        out[36..40].copy_from_slice(&self.count.to_le_bytes());
        let crc = crc32c::checksum(&out[..40]);
        out[40..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The label at the beginning of some bytes, if there is one of this version.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LABEL_LEN] = bytes.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let is_right = bytes.starts_with(LABEL_MAGIC)
            && bytes[8..10] == LABEL_VERSION.to_le_bytes()
            && word(40) == crc32c::checksum(&bytes[..40]);
        let set = [16, 20, 24, 28].map(word);
        is_right.then(|| Self {
            unit: word(12),
            set: set
                .iter()
                .rev()
                .fold(0, |set, &word| set << 32 | u128::from(word)),
            number: word(32),
            count: word(36),
        })
    }
}

impl Device for Striped {
    fn name(&self) -> Arc<str> {
        self.name.clone()
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn physical_block(&self) -> u32 {
        let physical = self.devices.iter().map(|device| device.physical_block());
        physical.max().unwrap_or(self.geometry.block)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        let bell = epoll::create(epoll::CreateFlags::CLOEXEC);
        let bell = bell.map_err(|source| BlockError::Queue {
            device: self.name(),
            engine: "striped",
            doing: "open an epoll descriptor",
            depth,
            source,
        })?;
        let open = |device: &dyn Device| {
            Ok(Part {
                queue: device.queue(depth)?,
                requests: Vec::with_capacity(depth),
                watched: None,
            })
        };
        let parts: Result<_, BlockError> =
            self.devices.iter().map(|device| open(&**device)).collect();
        Ok(Box::new(StripedQueue {
            parts: parts?,
            unit: self.unit,
            flushes: Slab::with_capacity(depth),
            regions: Vec::new(),
            first: 0,
            bell,
        }))
    }
}

/// Marks the token of a flush's part; the rest is the flush's place. Transfers keep their tokens, which
/// do not have this bit: they come from a slab.
const FLUSH: u64 = 1 << 63;

struct StripedQueue {
    parts: Vec<Part>,
    unit: u64,
    flushes: Slab<Flushing>,
    /// For each region of ours, the one of each part.
    regions: Vec<Vec<Region>>,
    /// The part that is polled first next time, for fairness.
    first: usize,
    /// Watches the parts' own descriptors.
    bell: OwnedFd,
}

struct Part {
    queue: Box<dyn Queue>,
    /// Scratch space.
    requests: Vec<Request>,
    watched: Option<RawFd>,
}

/// A flush that some parts have not ended.
struct Flushing {
    token: u64,
    parts_left: usize,
    result: Result<u32, Errno>,
}

impl StripedQueue {
    fn split(&mut self, request: &Request) {
        let count = self.parts.len();
        if request.op == Op::Flush {
            let token = self.flushes.insert(Flushing {
                token: request.token,
                parts_left: count,
                result: Ok(0),
            });
            let token = token as u64 | FLUSH;
            for part in &mut self.parts {
                part.requests.push(Request { token, ..*request });
            }
            return;
        }
        debug_assert_eq!(request.token & FLUSH, 0, "a token from a slab");
        let chunk = request.at / self.unit;
        let index = usize::try_from(chunk % count as u64).expect("below the count");
        let region = request.region.map(|Region(region)| {
            // Registered with all parts, each of which numbers for itself.
            self.regions[usize::from(region)][index]
        });
        self.parts[index].requests.push(Request {
            at: chunk / count as u64 * self.unit + request.at % self.unit,
            region,
            ..*request
        });
    }

    /// Replaces the parts of flushes by the flushes that they end; returns how many completions stay.
    fn merge(flushes: &mut Slab<Flushing>, done: &mut [Done]) -> usize {
        let mut kept = 0;
        for index in 0..done.len() {
            let mut entry = done[index];
            if entry.token & FLUSH != 0 {
                let key = usize::try_from(entry.token & !FLUSH).expect("a slab's key");
                let flush = &mut flushes[key];
                flush.parts_left -= 1;
                if entry.result.is_err() {
                    flush.result = entry.result;
                }
                if flush.parts_left > 0 {
                    continue;
                }
                let flush = flushes.remove(key);
                entry = Done {
                    token: flush.token,
                    result: flush.result,
                };
            }
            done[kept] = entry;
            kept += 1;
        }
        kept
    }

    fn watch(&mut self, index: usize, fd: RawFd) -> Result<(), Errno> {
        let part = &mut self.parts[index];
        if part.watched == Some(fd) {
            return Ok(());
        }
        // SAFETY: the part's queue, which owns the descriptor, lives on in `self`.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&self.bell, fd, data, epoll::EventFlags::IN)?;
        part.watched = Some(fd.as_raw_fd());
        Ok(())
    }
}

// SAFETY: the pointers in it are of requests on their way to a part; it touches no memory itself.
unsafe impl Send for StripedQueue {}

// SAFETY: the parts keep the promise for the requests that they are given, and a completion is passed
// on only when its part has ended it.
unsafe impl Queue for StripedQueue {
    unsafe fn submit(&mut self, requests: &[Request]) {
        for request in requests {
            self.split(request);
        }
        for part in &mut self.parts {
            if !part.requests.is_empty() {
                // SAFETY: the caller's promise; the memory is the same.
                unsafe { part.queue.submit(&part.requests) };
                part.requests.clear();
            }
        }
    }

    fn begins_between_polls(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.all(|part| part.queue.begins_between_polls())
    }

    fn begin(&mut self) {
        for part in &mut self.parts {
            part.queue.begin();
        }
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        let count = self.parts.len();
        let mut filled = 0;
        for offset in 0..count {
            let part = &mut self.parts[(self.first + offset) % count];
            // Also with no room left: it hands on what was submitted.
            let ended = part.queue.poll(&mut done[filled..]);
            filled += Self::merge(&mut self.flushes, &mut done[filled..filled + ended]);
        }
        self.first = (self.first + 1) % count;
        filled
    }

    fn arm(&mut self) -> Arm<'_> {
        let mut first_due = None;
        let mut has_fd = false;
        for index in 0..self.parts.len() {
            let fd = match self.parts[index].queue.arm() {
                Arm::Ready => return Arm::Ready,
                Arm::Busy => return Arm::Busy,
                Arm::Sleep { fd, deadline } => {
                    first_due = [first_due, deadline].into_iter().flatten().min();
                    fd.map(|fd| fd.as_raw_fd())
                }
            };
            if let Some(fd) = fd {
                has_fd = true;
                if let Err(error) = self.watch(index, fd) {
                    tracing::warn!(%error, "cannot watch a part of a striped device, spinning");
                    return Arm::Busy;
                }
            }
        }
        Arm::Sleep {
            fd: has_fd.then_some(self.bell.as_fd()),
            deadline: first_due,
        }
    }

    fn disarm(&mut self) {
        for part in &mut self.parts {
            part.queue.disarm();
        }
    }

    unsafe fn register(&mut self, memory: *mut u8, len: usize) -> Option<Region> {
        let index = u16::try_from(self.regions.len()).ok()?;
        let register = |part: &mut Part| {
            // SAFETY: the caller's promise.
            unsafe { part.queue.register(memory, len) }
        };
        let regions: Option<Vec<Region>> = self.parts.iter_mut().map(register).collect();
        self.regions.push(regions?);
        Some(Region(index))
    }
}
