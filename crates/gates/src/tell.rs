//! What the driver tells its tracer: whose instructions come next, and what is allocated.
//!
//! The tracer knows two functions by address. It sees each call of [`mark`] with its argument, and
//! counts the calls of `allocated`; the functions themselves do nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::io::Write;
use std::os::fd::BorrowedFd;

use gates::Mark;
use rustix::process::{Signal, getpid, kill_process};

/// Says whose instructions come next.
#[inline(never)]
pub(crate) extern "C" fn mark(mark: Mark) {
    black_box(mark);
}

/// Called once for each allocation.
#[inline(never)]
extern "C" fn allocated(size: usize) {
    black_box(size ^ 1);
}

/// The system's allocator, telling of each allocation.
struct Telling;

// SAFETY: every call goes to the system's allocator as it came; telling of it does nothing.
unsafe impl GlobalAlloc for Telling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller's promises on the layout are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        allocated(size);
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static TELLING: Telling = Telling;

/// Asks the processor what it can do while the tracer watches, which sees to it that the answer is
/// the same on all machines. Allocates nothing: what a path allocates lies where it always does.
pub(crate) fn meet_tracer() -> std::io::Result<()> {
    // SAFETY: the standard input is open all the time.
    let stdin = unsafe { BorrowedFd::borrow_raw(0) };
    rustix::io::read(stdin, &mut [0])?;
    stop()?;
    // The standard library asks once, for everything. A system call tells that it has.
    black_box(is_x86_feature_detected!("avx2"));
    black_box(getpid());
    Ok(())
}

/// Tells the tracer how many operations a round has and where the two functions are, and has it
/// watch from here on.
pub(crate) fn begin(operations: usize) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let (mark, allocated) = (mark as *const () as usize, allocated as *const () as usize);
    writeln!(out, "{operations}\n{mark} {allocated}")?;
    out.flush()?;
    stop()
}

/// Stops here until the tracer goes on; without one it ends the process, as it should.
fn stop() -> std::io::Result<()> {
    Ok(kill_process(getpid(), Signal::USR1)?)
}
