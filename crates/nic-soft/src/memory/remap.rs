//! Moving the caller's memory into shared memory, where it is.
//!
//! Peers can map a file, but not somebody's private pages. So page-aligned private memory is
//! copied into a file that is then mapped over it, at the same address; the caller notices nothing.
//! When no region lies on a page any more its bytes move back into a private one, because an
//! allocator expects its memory to be private. A page is not moved, neither way, while other regions
//! lie on it, through which it may be read and written all the time.

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::mm::{MapFlags, ProtFlags};
use verbs::VerbsError;

use crate::shared::segment::{Mapping, Source, Writers};

/// Memory of the caller that lies in a shared file for the time being.
#[derive(Debug)]
struct Moved {
    start: NonNull<u8>,
    /// The same bytes at another address, to copy them from when the file goes.
    twin: Mapping,
    /// How many regions lie on each page; [`BACK`] once none did.
    pages: Mutex<Vec<u32>>,
}

/// Of a page that has moved back: it has nothing to do with this any more.
const BACK: u32 = u32::MAX;

// SAFETY: whoever touches the memory does so through atomics and `verbs::mem`.
unsafe impl Send for Moved {}
// SAFETY: as above.
unsafe impl Sync for Moved {}

/// The caller's memory in this process, whichever adapter it was registered with. Locked while memory
/// moves.
static PROCESS: Mutex<Process> = Mutex::new(Process {
    moved: Vec::new(),
    regions: Vec::new(),
});

#[derive(Debug)]
struct Process {
    moved: Vec<Weak<Moved>>,
    /// Where regions lie.
    regions: Vec<Arc<Range<usize>>>,
}

fn process() -> MutexGuard<'static, Process> {
    // Every change is a single step.
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the memory under a region as it is, for as long as it lives: what was moved stays, and nothing
/// else is moved there.
#[derive(Debug)]
pub(crate) struct Place {
    range: Arc<Range<usize>>,
    stays: Vec<Stay>,
}

impl Place {
    /// For a region at a place.
    pub(crate) fn of(start: NonNull<u8>, len: usize) -> Self {
        let mut process = process();
        process.moved.retain(|one| one.strong_count() > 0);
        let moved = process.moved.iter().filter_map(Weak::upgrade);
        let stays = moved.filter_map(|one| Stay::new(one, start, len)).collect();
        let first = start.addr().get();
        let range = Arc::new(first..first + len);
        process.regions.push(Arc::clone(&range));
        Place { range, stays }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut process = process();
        let regions = &mut process.regions;
        regions.retain(|one| !Arc::ptr_eq(one, &self.range));
        drop(process);
        self.stays.clear();
    }
}

/// Keeps the pages under a region where they are.
#[derive(Debug)]
struct Stay {
    moved: Arc<Moved>,
    pages: Range<usize>,
}

/// Moves the memory under a region, and returns the file for peers. `None` for memory that cannot be
/// moved: parts of pages, files, shared memory, and what lies under other regions.
///
/// The caller's promise in `Nic::register` holds here: nobody else touches the memory during the
/// call.
pub(crate) fn make_shared(
    source: &Source,
    place: &mut Place,
    start: NonNull<u8>,
    len: usize,
    writers: Writers,
) -> Result<Option<OwnedFd>, VerbsError> {
    let page = rustix::param::page_size();
    let mut process = process();
    let own = &place.range;
    let lies_here = |one: &&Arc<Range<usize>>| one.start < own.end && own.start < one.end;
    // One of them is its own.
    if process.regions.iter().filter(lies_here).count() > 1 {
        return Ok(None);
    }
    let whole = start.addr().get().is_multiple_of(page) && len.is_multiple_of(page);
    if !whole || !is_private(start.addr().get(), len)? {
        return Ok(None);
    }
    let file = source.open("vervain-remapped", len)?;
    let twin = Mapping::new(file.as_fd(), len, true)?;
    // SAFETY: the caller's memory is readable, the new mapping writable, both for `len` bytes.
    unsafe { std::ptr::copy_nonoverlapping(start.as_ptr(), twin.start().as_ptr(), len) };
    let (protection, flags) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::SHARED | MapFlags::FIXED,
    );
    let at = start.as_ptr().cast::<c_void>();
    // SAFETY: the range is whole pages of the caller's private memory, whose bytes the file
    // holds; they are the same before and after.
    unsafe { rustix::mm::mmap(at, len, protection, flags, &file, 0) }
        .map_err(|e| VerbsError::io("moving memory into shared memory", e))?;
    let pages = len / page;
    let one = Arc::new(Moved {
        start,
        twin,
        pages: Mutex::new(vec![1; pages]),
    });
    process.moved.push(Arc::downgrade(&one));
    place.stays.push(Stay {
        moved: one,
        pages: 0..pages,
    });
    drop(process);
    source.for_peers(file, writers).map(Some)
}

impl Stay {
    /// For what of a region lies on moved pages, if anything does.
    fn new(moved: Arc<Moved>, start: NonNull<u8>, len: usize) -> Option<Self> {
        let page = rustix::param::page_size();
        let (first, base) = (start.addr().get(), moved.start.addr().get());
        let end = (first + len).min(base + moved.twin.len());
        let begin = first.max(base);
        if begin >= end {
            return None;
        }
        let pages = (begin - base) / page..(end - base).div_ceil(page);
        let mut lies_there = false;
        for count in &mut moved.pages()[pages.clone()] {
            if *count != BACK {
                *count += 1;
                lies_there = true;
            }
        }
        lies_there.then_some(Stay { moved, pages })
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut counts = self.moved.pages();
        for page in self.pages.clone() {
            // One that has moved back before this began to stay was never counted here.
            if counts[page] != BACK {
                counts[page] -= 1;
            }
        }
        let mut page = self.pages.start;
        while page < self.pages.end {
            let left = counts[page..self.pages.end].iter();
            let run = left.take_while(|count| **count == 0).count();
            if run > 0 {
                self.moved.move_back(page..page + run);
                counts[page..page + run].fill(BACK);
            }
            page += run.max(1);
        }
    }
}

impl Moved {
    fn pages(&self) -> MutexGuard<'_, Vec<u32>> {
        // A count that was changed in part keeps pages where they are.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves pages back that no region lies on.
    fn move_back(&self, pages: Range<usize>) {
        let page = rustix::param::page_size();
        let (offset, len) = (pages.start * page, pages.len() * page);
        let start = self.start.as_ptr().wrapping_add(offset);
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED,
        );
        let at = start.cast::<c_void>();
        // SAFETY: the range was moved and not moved back; the bytes are copied back below, before
        // anybody can look: no region lies there, and deregistering is the owner's own act.
        match unsafe { rustix::mm::mmap_anonymous(at, len, protection, flags) } {
            // SAFETY: both ranges have `len` bytes and do not overlap.
            Ok(_) => unsafe {
                let twin = self.twin.start().as_ptr().add(offset);
                std::ptr::copy_nonoverlapping(twin, start, len);
            },
            // The memory stays what it is: shared, and whole.
            Err(error) => tracing::warn!(%error, "memory stays in a shared file"),
        }
    }
}

/// Whether a range is private anonymous memory, readable and writable, all of it.
fn is_private(start: usize, len: usize) -> Result<bool, VerbsError> {
    let maps = std::fs::read_to_string("/proc/self/maps")
        .map_err(|e| VerbsError::io("reading /proc/self/maps", e))?;
    Ok(covers(&maps, start, start + len))
}

/// Whether the lines of a maps file cover `from..to` with such memory.
fn covers(maps: &str, from: usize, to: usize) -> bool {
    let mut reached = from;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights), _, _, Some(inode)) = (
            words.next(),
            words.next(),
            words.next(),
            words.next(),
            words.next(),
        ) else {
            return false;
        };
        let Some((begin, end)) = range.split_once('-') else {
            return false;
        };
        let (Ok(begin), Ok(end)) = (
            usize::from_str_radix(begin, 16),
            usize::from_str_radix(end, 16),
        ) else {
            return false;
        };
        if end <= reached || begin >= to {
            continue;
        }
        let name = words.next().unwrap_or("");
        // A stack grows by faults below it, which a shared mapping in its way would break.
        let plain = name.is_empty() || name == "[heap]" || name.starts_with("[anon:");
        if begin > reached || !rights.starts_with("rw") || !rights.ends_with('p') {
            return false;
        }
        if inode != "0" || !plain {
            return false;
        }
        reached = end;
    }
    reached >= to
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0 [heap]
3000-4000 rw-p 00000000 00:00 0
4000-5000 r--p 00000000 00:00 0
5000-6000 rw-s 00000000 00:01 77 /memfd:x (deleted)
7000-8000 rw-p 00001000 08:01 99 /lib/x.so
8000-9000 rw-p 00000000 00:00 0 [stack]
9000-a000 rw-p 00000000 00:00 0 [anon:pool]
";

    #[test]
    fn only_private_anonymous_memory_can_be_moved() {
        for (from, to, expected) in [
            (0x1000, 0x4000, true),
            (0x2000, 0x3800, true),
            (0x3000, 0x5000, false),
            (0x5000, 0x6000, false),
            (0x6000, 0x7000, false),
            (0x7000, 0x8000, false),
            (0x8000, 0x9000, false),
            (0x9000, 0xa000, true),
            (0x9000, 0xb000, false),
        ] {
            assert_eq!(covers(MAPS, from, to), expected, "{from:x}-{to:x}");
        }
        assert!(!covers("nonsense", 0, 1));
    }

    /// Whole pages from the kernel.
    struct Pages(NonNull<u8>);

    const PAGES: usize = 6;

    impl Pages {
        fn new() -> Self {
            let len = PAGES * rustix::param::page_size();
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new mapping at an address of the kernel's choice.
            let start =
                unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags) };
            let start = NonNull::new(start.expect("memory").cast()).expect("not at 0");
            for page in 0..PAGES {
                let at = page * rustix::param::page_size();
                // SAFETY: inside the new mapping.
                unsafe { start.add(at).write(page as u8 + 1) };
            }
            Pages(start)
        }

        /// Part of them.
        fn part(&self, pages: Range<usize>) -> (NonNull<u8>, usize) {
            let page = rustix::param::page_size();
            // SAFETY: inside the mapping.
            (
                unsafe { self.0.add(pages.start * page) },
                pages.len() * page,
            )
        }

        /// Those that are private now; all of them hold what they held.
        fn private(&self) -> Vec<usize> {
            let private = |page: &usize| {
                let (start, len) = self.part(*page..page + 1);
                // SAFETY: inside the mapping.
                assert_eq!(unsafe { start.read() }, *page as u8 + 1);
                is_private(start.addr().get(), len).expect("readable")
            };
            (0..PAGES).filter(private).collect()
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            let (start, len) = self.part(0..PAGES);
            // SAFETY: the mapping is the test's own.
            unsafe { rustix::mm::munmap(start.as_ptr().cast(), len) }.expect("unmapped");
        }
    }

    #[test]
    fn a_page_moves_back_when_no_region_lies_on_it() {
        let pages = Pages::new();
        let share = |part: Range<usize>| {
            let (start, len) = pages.part(part);
            let mut place = Place::of(start, len);
            let all = Writers::Everybody;
            let shared = make_shared(&Source::Memfd, &mut place, start, len, all);
            shared.expect("moved").map(|_| place)
        };
        let also = |part: Range<usize>| {
            let (start, len) = pages.part(part);
            Place::of(start, len)
        };
        assert!(also(0..PAGES).stays.is_empty(), "nothing was moved");
        let first = share(1..5).expect("private memory");
        assert_eq!(pages.private(), [0, 5]);
        assert!(share(0..2).is_none(), "some of it is shared already");
        // Two others lie on some of them, one of them on parts of pages.
        let second = also(0..3);
        let (start, _) = pages.part(3..4);
        // SAFETY: inside the mapping.
        let third = Place::of(unsafe { start.add(100) }, 8);
        drop(first);
        assert_eq!(pages.private(), [0, 4, 5]);
        // What has moved back may move again, for another region.
        let fourth = share(4..6).expect("private memory");
        let fifth = also(3..6);
        drop(second);
        assert_eq!(pages.private(), [0, 1, 2]);
        drop(third);
        assert_eq!(pages.private(), [0, 1, 2]);
        drop(fourth);
        assert_eq!(pages.private(), [0, 1, 2]);
        drop(fifth);
        assert_eq!(pages.private(), [0, 1, 2, 3, 4, 5]);
        assert!(also(0..PAGES).stays.is_empty(), "all of it is back");
        // Nor is anything moved away from under a region that was there before.
        let before = also(2..3);
        assert!(share(0..4).is_none());
        assert_eq!(pages.private(), [0, 1, 2, 3, 4, 5]);
        drop(before);
        drop(share(0..4).expect("private memory"));
    }
}
