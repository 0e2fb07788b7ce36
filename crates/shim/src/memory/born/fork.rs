//! Forking: a child has private memory, so it does not see what its parent stores from then on, nor does the
//! parent see the child's.
//!
//! What is mapped shared stays shared across a fork. So the child puts private copies in its place before it
//! returns from `fork`, and the parent waits for that: what it stored meanwhile would be in the copy.
//! Other threads of the parent, and its peers, do not wait, but what they store while somebody forks is in the
//! child or not, as ever. (Leaving the memory out of the child, as libibverbs does with registered memory, would
//! crash children that look at it, and most of what is mapped here is never registered.) It costs as much as
//! copying what was ever written there. `posix_spawn`, `system` and `vfork` share all memory with their
//! child until it starts another program, and copy nothing. A child made by calling the kernel, without libc,
//! does share this memory.
//!
//! The lock is held meanwhile, so the table is the same in both.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::os::fd::RawFd;

use super::lock::{self, Held};
use super::os;
use super::table::{Piece, Table};

/// What the one who forks remembers.
struct Forking {
    held: Held,
    /// At its end when the child has its copies, or is no more.
    pipe: Option<[RawFd; 2]>,
}

struct Cell(UnsafeCell<Option<Forking>>);

// SAFETY: reached by the holder of the lock only.
unsafe impl Sync for Cell {}

static FORKING: Cell = Cell(UnsafeCell::new(None));

/// From here on forks are noticed; false when they are not.
pub(super) fn watch() -> bool {
    unsafe extern "C" {
        fn pthread_atfork(
            prepare: Option<unsafe extern "C" fn()>,
            parent: Option<unsafe extern "C" fn()>,
            child: Option<unsafe extern "C" fn()>,
        ) -> c_int;
    }
    // SAFETY: the functions stay, because this library is not unloaded.
    unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

unsafe extern "C" fn prepare() {
    let held = lock::take();
    // SAFETY: held.
    let table = unsafe { lock::table() };
    let mut pipe = [-1; 2];
    // Without one the parent does not wait. Nothing better can be done: a fork cannot be refused here.
    let has_pipe = !table.pieces().is_empty()
        // SAFETY: there is room for two descriptors.
        && unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } == 0;
    let pipe = has_pipe.then_some(pipe);
    // SAFETY: held.
    unsafe { *FORKING.0.get() = Some(Forking { held, pipe }) };
}

/// What `prepare` has left.
///
/// # Safety
/// The thread holds the lock since then.
unsafe fn forking() -> Option<Forking> {
    // SAFETY: held.
    unsafe { (*FORKING.0.get()).take() }
}

unsafe extern "C" fn parent() {
    // SAFETY: `prepare` has taken the lock.
    let Some(Forking { held, pipe }) = (unsafe { forking() }) else {
        return;
    };
    let errno = os::errno();
    if let Some([read, write]) = pipe {
        os::close(write);
        let mut byte = 0u8;
        loop {
            // SAFETY: there is room for a byte.
            let got = unsafe { libc::read(read, (&raw mut byte).cast(), 1) };
            if got >= 0 || os::errno() != libc::EINTR {
                break;
            }
        }
        os::close(read);
    }
    lock::give_back(held);
    os::set_errno(errno);
}

unsafe extern "C" fn child() {
    // SAFETY: this thread's double has taken the lock in the parent.
    let Some(Forking { held, pipe }) = (unsafe { forking() }) else {
        return;
    };
    if let Some([read, _]) = pipe {
        os::close(read);
    }
    // SAFETY: as above.
    let table = unsafe { lock::table() };
    let copied = table.pieces().iter().all(|piece| copy(table, piece));
    if !copied {
        const WHY: &[u8] = b"vervain: a forked child has no memory for its copies\n";
        // SAFETY: the bytes are there. Going on would be to write into the parent's memory.
        unsafe {
            libc::write(2, WHY.as_ptr().cast(), WHY.len());
            libc::_exit(127);
        }
    }
    table.forget_files();
    if let Some([_, write]) = pipe {
        os::close(write);
    }
    lock::give_back(held);
}

/// Puts a private copy in a piece's place.
fn copy(table: &Table, piece: &Piece) -> bool {
    let (rights, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping where the kernel has room.
    let made = unsafe { os::mmap(0, piece.len, rights, flags, -1, 0) };
    if made == -1 {
        return false;
    }
    let made = made as usize;
    let filled = match table.files[piece.file].checked_fd() {
        Some(fd) => read_written(fd, piece, made),
        // The program has closed it. What may not be read is lost, with the file.
        None if piece.protection & libc::PROT_READ == 0 => true,
        None => {
            let from = std::ptr::with_exposed_provenance::<u8>(piece.start);
            let to = std::ptr::with_exposed_provenance_mut::<u8>(made);
            // SAFETY: the piece is mapped, and the copy as long.
            unsafe { std::ptr::copy_nonoverlapping(from, to, piece.len) };
            true
        }
    };
    let move_there = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the new mapping takes the place of one that holds the same bytes.
    filled
        && unsafe {
            (piece.protection == rights || os::mprotect(made, piece.len, piece.protection) != -1)
                && os::mremap(made, piece.len, piece.len, move_there, piece.start) != -1
        }
}

/// Reads what was written of a piece: the rest is zeros, and takes no memory.
fn read_written(fd: RawFd, piece: &Piece, to: usize) -> bool {
    let end = piece.offset + piece.len;
    let mut at = piece.offset;
    while at < end {
        // SAFETY: a descriptor of ours, whose position nobody else uses.
        let data = unsafe { libc::lseek(fd, at as libc::off_t, libc::SEEK_DATA) };
        if data < 0 {
            // Nothing more was written.
            return os::errno() == libc::ENXIO;
        }
        // SAFETY: as above.
        let hole = unsafe { libc::lseek(fd, data, libc::SEEK_HOLE) };
        if hole < 0 {
            return false;
        }
        at = data as usize;
        let until = (hole as usize).min(end);
        while at < until {
            let into = std::ptr::with_exposed_provenance_mut(to + (at - piece.offset));
            // SAFETY: inside the copy.
            let read = unsafe { libc::pread(fd, into, until - at, at as libc::off_t) };
            match read {
                0 => return false,
                -1 if os::errno() == libc::EINTR => {}
                -1 => return false,
                read => at += read as usize,
            }
        }
        if at >= end {
            break;
        }
        at = hole as usize;
    }
    true
}
