//! The memory of a partition: one anonymous mapping, carved into typed parts.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes in a cache line; every part of an arena begins on one.
pub(crate) const LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Reserved huge pages come whole, so an arena of fewer than this many would
/// lose more than 5 % to rounding.
const HUGE_PAGES_MIN: usize = 20;

/// Which pages to ask the kernel for. Each choice falls back to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PagePolicy {
    /// Pages of the reserved huge-page pool, else transparent huge pages, else plain ones.
    #[default]
    Reserved,
    /// Transparent huge pages, else plain ones.
    Transparent,
    /// Plain pages only.
    Plain,
}

/// Which pages an arena was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageKind {
    /// 2 MiB pages of the reserved pool: they are there for good.
    Reserved,
    /// The kernel accepted the advice to use huge pages, and does so as far as
    /// it finds them.
    Transparent,
    /// Pages of the base size.
    Plain,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageKind::Reserved => "reserved huge pages",
            PageKind::Transparent => "transparent huge pages",
            PageKind::Plain => "plain pages",
        })
    }
}

/// Owns the mapping; the last part to go unmaps it.
struct Mapping {
    base: *mut c_void,
    len: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of a mapping that this value owns,
        // and every `Span` into it holds a reference to this value.
        let unmapped = unsafe { munmap(self.base, self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

// SAFETY: the value is two numbers naming a mapping of the whole process; any
// thread may unmap it.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives access to nothing but those two numbers.
unsafe impl Sync for Mapping {}

/// Zeroed memory that is handed out once, part by part.
pub(crate) struct Arena {
    mapping: Arc<Mapping>,
    used: usize,
    pages: PageKind,
}

impl Arena {
    /// Maps `bytes`, rounded up to whole pages (down to whole huge pages when
    /// they come from the reserved pool, so that it never takes more than asked).
    pub(crate) fn new(bytes: usize, policy: PagePolicy) -> io::Result<Arena> {
        if policy == PagePolicy::Reserved && bytes >= HUGE_PAGES_MIN * HUGE_PAGE_BYTES {
            let len = bytes - bytes % HUGE_PAGE_BYTES;
            if let Ok(base) = map(len, MapFlags::HUGETLB | MapFlags::HUGE_2MB) {
                return Ok(Arena::from_mapping(base, len, PageKind::Reserved));
            }
        }
        let len = bytes
            .checked_next_multiple_of(PAGE_BYTES)
            .filter(|len| *len > 0 && *len <= isize::MAX as usize - HUGE_PAGE_BYTES)
            .ok_or(io::ErrorKind::InvalidInput)?;
        if policy == PagePolicy::Plain || len < HUGE_PAGE_BYTES {
            let base = map(len, MapFlags::empty())?;
            return Ok(Arena::from_mapping(base, len, PageKind::Plain));
        }
        let base = map_aligned(len)?;
        // SAFETY: the range is the mapping just made; the advice changes how
        // its pages are backed and not what they hold.
        let advised = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        let pages = match advised {
            Ok(()) => PageKind::Transparent,
            Err(_) => PageKind::Plain,
        };
        Ok(Arena::from_mapping(base, len, pages))
    }

    fn from_mapping(base: *mut c_void, len: usize, pages: PageKind) -> Arena {
        Arena {
            mapping: Arc::new(Mapping { base, len }),
            used: 0,
            pages,
        }
    }

    /// Which pages the arena was granted.
    pub(crate) fn pages(&self) -> PageKind {
        self.pages
    }

    /// Bytes not yet carved.
    pub(crate) fn free_bytes(&self) -> usize {
        self.mapping.len - self.used
    }

    /// Makes every page resident now, on the calling thread's memory node.
    pub(crate) fn prefault(&mut self) -> io::Result<()> {
        let Mapping { base, len } = *self.mapping;
        // SAFETY: the range is a mapping of ours; populating its pages does not
        // change what they hold.
        let populated = unsafe { madvise(base, len, Advice::LinuxPopulateWrite) };
        match populated {
            Ok(()) => Ok(()),
            // Kernels before 5.14 do not know the advice.
            Err(rustix::io::Errno::INVAL) => {
                assert_eq!(self.used, 0, "parts are in use");
                for offset in (0..len).step_by(PAGE_BYTES) {
                    // SAFETY: the byte lies within the mapping, and no part has
                    // been carved from it, so nobody else refers to it.
                    unsafe { base.cast::<u8>().add(offset).write_volatile(0) };
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Hands out the next `count` zeroed values.
    ///
    /// # Panics
    /// If fewer than that fit into `free_bytes`.
    pub(crate) fn carve<T: Plain>(&mut self, count: usize) -> Span<T> {
        let bytes = count
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_next_multiple_of(LINE_BYTES))
            .expect("the part's size overflows");
        assert!(bytes <= self.free_bytes(), "the arena is used up");
        const { assert!(align_of::<T>() <= LINE_BYTES) };
        // SAFETY: `used + bytes` is at most the mapping's length, so the result
        // lies within it (or one past its end for an empty part).
        let first = unsafe { self.mapping.base.byte_add(self.used) };
        self.used += bytes;
        let first = NonNull::new(first.cast::<T>()).expect("a mapping is never at address zero");
        debug_assert!(first.is_aligned(), "parts begin on lines");
        Span {
            first,
            len: count,
            _owner: Arc::clone(&self.mapping),
            _values: PhantomData,
        }
    }
}

/// # Safety
/// Any bytes, zeroes among them, are a value of the type, it needs no drop, and
/// it may move between threads.
pub(crate) unsafe trait Plain: Copy {}

/// A cache line of eight words.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u64; 8]);

// SAFETY: any byte is a u8.
unsafe impl Plain for u8 {}
// SAFETY: any 64 bytes are eight integers; there is no padding.
unsafe impl Plain for Line {}

/// A part of an arena, owned like a boxed slice.
pub(crate) struct Span<T> {
    first: NonNull<T>,
    len: usize,
    _owner: Arc<Mapping>,
    _values: PhantomData<T>,
}

// SAFETY: a span is the only way to its part of the mapping, and `Plain` values
// may move between threads.
unsafe impl<T: Plain> Send for Span<T> {}
// SAFETY: a shared span only gives shared references to plain values.
unsafe impl<T: Plain + Sync> Sync for Span<T> {}

impl<T> Deref for Span<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `carve` gave this span `len` zeroed, aligned values of a
        // `Plain` type that no other span covers, and `_owner` keeps them mapped.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Span<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

fn map(len: usize, flags: MapFlags) -> io::Result<*mut c_void> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at an address of the kernel's choice
    // touches no memory in use.
    let mapped = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE | flags) };
    Ok(mapped?)
}

/// Maps `len` bytes from a huge-page boundary on, so that all but the last of
/// them can be huge.
fn map_aligned(len: usize) -> io::Result<*mut c_void> {
    let base = map(len + HUGE_PAGE_BYTES, MapFlags::empty())?;
    let before = base.addr().next_multiple_of(HUGE_PAGE_BYTES) - base.addr();
    let after = HUGE_PAGE_BYTES - before;
    // SAFETY: `before <= HUGE_PAGE_BYTES`, so all three addresses lie within the
    // mapping or one past its end; only its surplus ends are unmapped, to which
    // nobody has a reference yet.
    unsafe {
        let start = base.byte_add(before);
        if before > 0 {
            munmap(base, before)?;
        }
        if after > 0 {
            munmap(start.byte_add(len), after)?;
        }
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Bytes of the mapping that are resident, from the process's page map.
    fn resident_bytes(arena: &Arena) -> usize {
        let page_map = File::open("/proc/self/pagemap").unwrap();
        let pages = arena.mapping.len / PAGE_BYTES;
        let mut entries = vec![0; pages * 8];
        let first = arena.mapping.base.addr() / PAGE_BYTES;
        page_map
            .read_exact_at(&mut entries, first as u64 * 8)
            .unwrap();
        let present = |entry: &&[u8]| entry[7] & 0x80 != 0;
        entries.chunks(8).filter(present).count() * PAGE_BYTES
    }

    #[test]
    fn prefaulted_memory_is_resident_and_no_larger_than_asked() {
        for policy in [
            PagePolicy::Plain,
            PagePolicy::Transparent,
            PagePolicy::Reserved,
        ] {
            let asked = (43 << 20) + 4096;
            let mut arena = Arena::new(asked, policy).unwrap();
            arena.prefault().unwrap();
            let resident = resident_bytes(&arena);
            assert_eq!(resident, arena.mapping.len, "{policy:?}");
            assert!(
                resident.abs_diff(asked) * 20 <= asked,
                "{policy:?} {resident}"
            );
        }
    }

    #[test]
    fn untouched_memory_is_not_resident() {
        let arena = Arena::new(16 << 20, PagePolicy::Plain).unwrap();
        assert_eq!(resident_bytes(&arena), 0);
    }

    #[test]
    fn parts_are_zeroed_aligned_and_disjoint() {
        let mut arena = Arena::new(3 << 20, PagePolicy::Transparent).unwrap();
        let mut lines = arena.carve::<Line>(3);
        let mut bytes = arena.carve::<u8>(100);
        let rest = arena.carve::<u8>(arena.free_bytes());
        assert_eq!(arena.free_bytes(), 0);
        assert!(
            lines
                .iter()
                .all(|line| line.0 == [0; 8] && ptr::from_ref(line).addr() % 64 == 0)
        );
        assert_eq!(bytes.as_ptr().addr() % 64, 0);
        lines.fill(Line([!0; 8]));
        assert!(bytes.iter().chain(rest.iter()).all(|byte| *byte == 0));
        bytes.fill(0xff);
        assert!(rest.iter().all(|byte| *byte == 0));
        // The parts outlive the arena that they came from.
        drop(arena);
        assert_eq!(lines[2].0, [!0; 8]);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Arena::new(0, PagePolicy::Plain).is_err());
        assert!(Arena::new(usize::MAX, PagePolicy::Reserved).is_err());
    }
}
