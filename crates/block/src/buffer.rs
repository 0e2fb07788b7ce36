//! Buffers that devices read and write, from a pool of each disk.
//!
//! Sizes are rounded up to classes, four to a doubling, so that at most a fifth of a buffer is spare.
//! Buffers up to [`CHUNK`] are cut from chunks of that size, each chunk for one class, which can be
//! registered with the device as one region; they come back to their class's list. Larger ones have a
//! mapping each.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

use super::Region;
use super::memory::{HUGE_PAGE, Mapping};

/// Memory that is cut into buffers of one class.
pub(super) const CHUNK: usize = HUGE_PAGE;
/// The smallest class.
const SMALLEST: usize = 512;
const PAGE: usize = 4096;
/// Buffers of larger classes than this (8 MiB) go back to the system when they are dropped.
const KEPT_CLASS_MAX: u32 = class_of(8 << 20);

/// Aligned memory for transfers, from [`super::Disk::buffer`]. It holds arbitrary bytes at first:
/// whatever its last user left in it. Goes back to its pool when dropped; not `Send`.
pub struct Buf {
    place: Place,
    len: usize,
    pool: Rc<Pool>,
}

/// Where a buffer's bytes are.
#[derive(Clone, Copy)]
struct Place {
    start: NonNull<u8>,
    /// Index of the size class.
    class: u32,
    region: Option<Region>,
}

impl Buf {
    /// How long it may be made.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pool.class_len(self.place.class)
    }

    /// Makes it shorter or longer, up to its capacity. What comes to light holds arbitrary bytes.
    ///
    /// # Panics
    /// If `len` is more than the capacity.
    pub fn set_len(&mut self, len: usize) {
        let capacity = self.capacity();
        assert!(
            len <= capacity,
            "{len} bytes in a buffer of at most {capacity}"
        );
        self.len = len;
    }

    /// The registered region that holds it.
    pub(super) fn region(&self) -> Option<Region> {
        self.place.region
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.place.start.as_ptr()
    }

    /// Whether it came from this pool.
    pub(super) fn is_of(&self, pool: &Rc<Pool>) -> bool {
        Rc::ptr_eq(&self.pool, pool)
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pool gave this place to this buffer alone; it is mapped and initialised (by
        // zeros at first) for its whole class, which `len` does not exceed. While a device writes it,
        // the buffer is inside of the operation, out of reach.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        self.pool.give(self.place);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// The buffers of one disk. Memory grows to the most that was ever in use of each class.
pub(super) struct Pool {
    /// What each buffer begins at a multiple of.
    align: usize,
    classes: RefCell<Vec<Class>>,
}

#[derive(Default)]
struct Class {
    free: Vec<Place>,
    chunks: Vec<Mapping>,
}

impl Pool {
    /// A pool of buffers aligned to `block`, a power of two.
    pub(super) fn new(block: u32) -> Rc<Self> {
        let align = usize::try_from(block).expect("a block fits in memory");
        Rc::new(Self {
            align: align.max(SMALLEST),
            classes: RefCell::default(),
        })
    }

    /// A buffer of `len` bytes. `register` is asked once for each new chunk of memory.
    #[inline]
    pub(super) fn take(
        self: &Rc<Self>,
        len: usize,
        register: impl FnOnce(NonNull<u8>, usize) -> Option<Region>,
    ) -> Buf {
        let class = class_of(len.max(self.align));
        let free = self.pop(class);
        let place = free.unwrap_or_else(|| {
            self.grow(class, register);
            self.pop(class).expect("a chunk holds a buffer")
        });
        Buf {
            place,
            len,
            pool: self.clone(),
        }
    }

    fn pop(&self, class: u32) -> Option<Place> {
        let mut classes = self.classes.borrow_mut();
        classes.get_mut(class as usize)?.free.pop()
    }

    #[cold]
    fn grow(&self, class: u32, register: impl FnOnce(NonNull<u8>, usize) -> Option<Region>) {
        let len = self.class_len(class);
        let mapping = Mapping::new(len.next_multiple_of(PAGE).max(CHUNK));
        let region = register(mapping.start(), mapping.len());
        let mut classes = self.classes.borrow_mut();
        let index = class as usize;
        if classes.len() <= index {
            classes.resize_with(index + 1, Class::default);
        }
        let class_list = &mut classes[index];
        let count = mapping.len() / len;
        // Room for all that there will be: giving back never allocates.
        let all = class_list.chunks.len() * count + count;
        class_list.free.reserve(all);
        for index in (0..count).rev() {
            class_list.free.push(Place {
                // SAFETY: `count` pieces of `len` fit in the mapping.
                start: unsafe { mapping.start().add(index * len) },
                class,
                region,
            });
        }
        class_list.chunks.push(mapping);
    }

    fn give(&self, place: Place) {
        let mut classes = self.classes.borrow_mut();
        let class = &mut classes[place.class as usize];
        // Memory that the device knows stays mapped as long as the device may use it.
        if place.class > KEPT_CLASS_MAX && place.region.is_none() {
            let of_place = |chunk: &Mapping| chunk.start() == place.start;
            let index = class.chunks.iter().position(of_place);
            class
                .chunks
                .swap_remove(index.expect("a large buffer is a chunk of its own"));
        } else {
            class.free.push(place);
        }
    }

    /// Bytes of a buffer of this class.
    fn class_len(&self, class: u32) -> usize {
        nominal_len(class).next_multiple_of(self.align)
    }
}

/// The smallest class that holds `len` bytes.
#[inline]
const fn class_of(len: usize) -> u32 {
    if len <= SMALLEST {
        return 0;
    }
    // Above 2^k come 1.25, 1.5, 1.75 and 2 times 2^k.
    let last = len - 1;
    let doubling = last.ilog2();
    let quarter = (last >> (doubling - 2)) & 3;
    (doubling - SMALLEST.ilog2()) * 4 + quarter as u32 + 1
}

/// The length of a class, before it is rounded to the device's blocks.
fn nominal_len(class: u32) -> usize {
    let base = SMALLEST << (class / 4);
    base + base / 4 * (class % 4) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for_and_waste_little() {
        for len in (1..100_000).chain([1 << 20, (1 << 20) + 1, 1 << 32]) {
            let class = class_of(len);
            assert!(nominal_len(class) >= len, "{len}");
            if class > 0 {
                assert!(nominal_len(class - 1) < len, "{len}");
            }
        }
    }

    #[test]
    fn buffers_are_aligned_apart_and_used_again() {
        for block in [512, 4096] {
            let pool = Pool::new(block);
            let take = |len| pool.take(len, |_, _| None);
            let mut bufs: Vec<Buf> = (0..1000).map(|_| take(5120)).collect();
            for (index, buf) in bufs.iter_mut().enumerate() {
                assert_eq!(buf.start() as usize % block as usize, 0);
                buf.fill(index as u8);
            }
            for (index, buf) in bufs.iter().enumerate() {
                assert_eq!(buf.len(), 5120);
                assert!(buf.iter().all(|byte| *byte == index as u8));
            }
            let start = bufs.pop().map(|buf| buf.start());
            assert_eq!(start, Some(take(5000).start()));
        }
    }

    #[test]
    fn large_buffers_go_back_to_the_system() {
        let pool = Pool::new(512);
        let buf = pool.take(100 << 20, |_, _| None);
        assert_eq!(buf.len(), 100 << 20);
        drop(buf);
        let classes = pool.classes.borrow();
        assert!(classes.iter().all(|class| class.chunks.is_empty()));
    }

    #[test]
    fn each_chunk_is_registered_once() {
        let pool = Pool::new(512);
        let mut chunks = 0;
        let bufs: Vec<Buf> = (0..CHUNK / 4096 + 1)
            .map(|_| {
                pool.take(4096, |_, len| {
                    assert_eq!(len, CHUNK);
                    chunks += 1;
                    Some(Region(chunks))
                })
            })
            .collect();
        assert_eq!(chunks, 2);
        assert_eq!(bufs[0].region(), Some(Region(1)));
        assert_eq!(bufs[CHUNK / 4096].region(), Some(Region(2)));
    }
}
