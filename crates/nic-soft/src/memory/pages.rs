//! Pages of this process that may not be there: what its program maps and unmaps while it is registered.

use std::sync::OnceLock;

use rustix::mm::{Advice, MsyncFlags};

/// Has the pages of a range be there to be read, and to be written too if that is asked for. False when nothing is mapped there, or not
/// for that use; who unmaps them at the same moment has itself to blame for what follows.
///
/// Cost: a system call.
pub(crate) fn fetch(start: usize, len: usize, writes: bool) -> bool {
    #[cfg(test)]
    asked::note(start, len);
    let advice = match writes {
        true => Advice::LinuxPopulateWrite,
        false => Advice::LinuxPopulateRead,
    };
    match populate(start, len, advice) {
        Ok(()) => true,
        Err(error) if can_be_asked() => {
            tracing::debug!(%error, "a region's pages are not there");
            false
        }
        Err(_) => are_mapped(start, len),
    }
}

/// From the page's beginning, as the kernel's calls want it.
fn pages(start: usize, len: usize) -> (*mut core::ffi::c_void, usize) {
    let first = start & !(rustix::param::page_size() - 1);
    let pages = std::ptr::with_exposed_provenance_mut(first);
    (pages, (start - first).saturating_add(len))
}

fn populate(start: usize, len: usize, advice: Advice) -> rustix::io::Result<()> {
    let (pages, len) = pages(start, len);
    // SAFETY: what the pages hold does not change, nor who may do what there.
    unsafe { rustix::mm::madvise(pages, len, advice) }
}

/// A kernel before 5.14 knows no such advice.
fn can_be_asked() -> bool {
    static CAN_BE_ASKED: OnceLock<bool> = OnceLock::new();
    *CAN_BE_ASKED.get_or_init(|| {
        let own = 0u64;
        let start = (&raw const own).expose_provenance();
        populate(start, size_of_val(&own), Advice::LinuxPopulateRead).is_ok()
    })
}

/// Whether anything is mapped at all of a range, for whatever use.
fn are_mapped(start: usize, len: usize) -> bool {
    let (pages, len) = pages(start, len);
    // SAFETY: changes nothing: Linux only looks whether all of it is mapped.
    unsafe { rustix::mm::msync(pages, len, MsyncFlags::ASYNC) }.is_ok()
}

/// What was asked for in this process, for tests that count.
#[cfg(test)]
pub(crate) mod asked {
    use std::ops::Range;
    use std::sync::{Mutex, PoisonError};

    static ASKED: Mutex<Vec<Range<usize>>> = Mutex::new(Vec::new());

    pub(super) fn note(start: usize, len: usize) {
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(start..start.saturating_add(len));
    }

    /// Forgets what lay at a range before.
    pub(crate) fn forget(range: &Range<usize>) {
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        asked.retain(|one| one.end <= range.start || range.end <= one.start);
    }

    /// What was asked for inside a range, in its order.
    pub(crate) fn inside(range: &Range<usize>) -> Vec<Range<usize>> {
        let asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        let is_inside = |one: &&Range<usize>| range.start <= one.start && one.end <= range.end;
        asked.iter().filter(is_inside).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_not_there_are_known() {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
        let page = rustix::param::page_size();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), 2 * page, protection, flags)
        };
        let start = start.expect("memory");
        let at = start.expose_provenance();
        assert!(fetch(at + 8, 2 * page - 8, true));
        assert!(are_mapped(at + 8, 2 * page - 8));
        let second = start.wrapping_byte_add(page);
        // SAFETY: the mapping's second page, of which nobody knows.
        unsafe { rustix::mm::mprotect(second, page, MprotectFlags::READ) }.expect("protected");
        assert!(fetch(at, page, true) && !fetch(at, page + 1, true));
        assert!(fetch(at, 2 * page, false));
        // SAFETY: as above, the first page.
        unsafe { rustix::mm::munmap(start, page) }.expect("unmapped");
        assert!(!fetch(at, page + 1, false) && !are_mapped(at, page + 1));
        // SAFETY: as above, what is left.
        unsafe { rustix::mm::munmap(second, page) }.expect("unmapped");
        for nowhere in [0, 8, at, 1 << 63, usize::MAX - 8] {
            assert!(!fetch(nowhere, 8, true) && !fetch(nowhere, 8, false));
            assert!(!are_mapped(nowhere, 8));
        }
    }
}
