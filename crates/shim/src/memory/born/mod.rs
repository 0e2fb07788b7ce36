//! Memory that is born shared: what a program maps or allocates in whole pages lies in a file, so that a
//! peer can map it when it is registered, though nothing is moved then.
//!
//! The program must not notice. It sees private memory of zeros:
//!
//! | it does | here |
//! | --- | --- |
//! | `mmap` of private anonymous memory, readable and writable, of more than [`MAPPED_MIN`] bytes | a file of its own, mapped shared (`pages`) |
//! | `posix_memalign` and the like, aligned to pages, of a page at least | the same (`heap`); `free` and `realloc` know it |
//! | `munmap`, `mremap`, `mprotect`, `mmap` over it | the index follows (`table`) |
//! | `madvise` that discards | a hole in the file, because shared pages would keep their bytes |
//! | `fork` | the child gets copies of its own before it goes on (`fork`) |
//!
//! All other memory is as ever, and is reached through the kernel when it is registered: that is slower, and
//! no less right. So whatever is odd here, or fails, leads to memory that is not shared. Nothing is shared
//! before the program has asked for the devices, so programs that use none are let alone; nothing at all with
//! `VERVAIN_SHARE=none`. A file a piece of memory, because peers that map a file reach all of it; no more than
//! [`FILES`](table::FILES), which are descriptors.
//!
//! These functions take the place of libc's everywhere in the process, at any time: in the dynamic linker,
//! in other libraries' constructors, in signal handlers. So they allocate nothing, take one lock with all
//! signals blocked (`lock`), call the kernel directly (`os`), and have little to do for memory that is
//! not ours: a look at whether there is any of ours in these parts. What calls the kernel without libc is not
//! seen (the Go runtime, for one, and UCX, which puts its own code before `mmap` and `munmap`): so what the kernel says is looked at
//! when memory is registered (`maps`). A descriptor is looked at before it is used, because programs close, and use
//! again, descriptors that are not theirs.

use std::ffi::{CStr, c_void};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

mod fork;
mod heap;
mod lock;
mod maps;
mod os;
mod pages;
mod table;

use lock::locked;
pub(crate) use os::duplicate;
use table::{File, Piece};

/// Mappings of no more bytes stay private: arenas of allocators have so many, and there are many of them.
const MAPPED_MIN: usize = 1 << 20;
/// Beyond which a program reserves addresses rather than asks for memory.
const LEN_MAX: usize = 1 << 40;
/// Alignments beyond it are the allocator's business.
const ALIGN_MAX: usize = 1 << 30;

/// In [`STATE`]: it is decided what is shared.
const DECIDED: usize = 1;
/// Mappings are.
const PAGES: usize = 2;
/// What the allocator gives out is.
const HEAP: usize = 4;

/// What is born shared by now.
static STATE: AtomicUsize = AtomicUsize::new(0);

/// From here on memory is born shared, unless that is not wanted.
pub(crate) fn wake(wanted: bool) {
    if STATE.fetch_or(DECIDED, Ordering::AcqRel) != 0 || !wanted {
        return;
    }
    if os::PAGE != rustix::param::page_size() || !are_called(&pages::NAMES) || !fork::watch() {
        return;
    }
    let heap = if are_called(&heap::NAMES) { HEAP } else { 0 };
    STATE.fetch_or(PAGES | heap, Ordering::Release);
}

fn is_awake(what: usize) -> bool {
    STATE.load(Ordering::Acquire) & what != 0
}

/// Whether the process's calls of functions come to this library. They do not when it was loaded late, nor
/// when the program has functions of its own.
fn are_called(names: &[&CStr]) -> bool {
    // The object that an address is in.
    let object = |at: *const c_void| {
        // SAFETY: pointers, which may be null.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: there is room for the answer.
        let is_known = unsafe { libc::dladdr(at, &mut found) } != 0;
        is_known.then_some(found.dli_fbase)
    };
    let ours = object((&raw const STATE).cast());
    names.iter().all(|name| {
        // SAFETY: the name is a string.
        let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        ours.is_some() && object(called) == ours
    })
}

/// The file in which memory lies, and where it does there; `None` for memory that is not shared.
pub(crate) fn file_of(start: usize, len: usize) -> Option<(OwnedFd, u64)> {
    if !table::may_touch(start, len) {
        return None;
    }
    let (fd, id, offset) = locked(|table| {
        let (file, offset) = table.place(start, len)?;
        let fd = table.files[file].checked_fd()?;
        Some((os::duplicate(fd)?, table.files[file].id, offset))
    })?;
    // By now something else may lie there, of which nobody told.
    maps::lies_in(start, len, id, offset).then_some((fd, offset as u64))
}

/// Shared memory of whole pages, at an address that the kernel chooses, or a better one; `None` where that
/// cannot be had.
fn birth(hint: usize, len: usize, align: usize, flags: i32, is_heap: bool) -> Option<usize> {
    if len > LEN_MAX || align > ALIGN_MAX {
        return None;
    }
    let len = os::whole_pages(len)?;
    locked(|table| {
        let number = table.free_file()?;
        let (fd, id) = os::file(len)?;
        let Some(start) = os::map_file(hint, len, align, flags, fd) else {
            os::close(fd);
            return None;
        };
        table.files[number] = File {
            fd,
            id,
            len,
            heap: if is_heap { (start, len) } else { (0, 0) },
            is_used: true,
        };
        table.add(Piece {
            start,
            len,
            file: number,
            offset: 0,
            protection: libc::PROT_READ | libc::PROT_WRITE,
        });
        Some(start)
    })
}
