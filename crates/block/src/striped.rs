//! Several devices as one: chunk after chunk, round and round (RAID-0).
//!
//! ```text
//! offset   0        unit      2 unit    3 unit    4 unit    5 unit
//!          | a 0     | b 0     | c 0     | a unit  | b unit  | c unit  | ...
//! ```
//!
//! The devices' order is part of the format: with another one, the same devices hold something else.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use slab::Slab;

use super::{BlockError, Device, Done, Geometry, Op, Queue, Region, Request};
use rt::Arm;

/// Several devices as one, as fast and as large as all together, and lost with any of them.
pub struct Striped {
    devices: Vec<Box<dyn Device>>,
    unit: u64,
    geometry: Geometry,
    name: Arc<str>,
}

impl Striped {
    /// Takes the devices in this order, `unit` bytes of each at a time. The shortest bounds the use of
    /// all.
    ///
    /// # Errors
    /// If there is no device, or the unit does not fit the devices' blocks.
    pub fn new(devices: Vec<Box<dyn Device>>, unit: u32) -> Result<Self, BlockError> {
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
            if geometry.len < wide {
                return refuse(format!("{name} is shorter than a stripe of {unit} bytes"));
            }
        }
        let shortest = geometries().map(|geometry| geometry.len).min();
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

impl Device for Striped {
    fn name(&self) -> Arc<str> {
        self.name.clone()
    }

    fn geometry(&self) -> Geometry {
        self.geometry
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
