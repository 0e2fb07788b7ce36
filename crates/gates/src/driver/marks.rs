//! What the driver tells its tracer: whose instructions come next, and what is allocated.
//!
//! The tracer knows two functions by address. It sees each call of [`mark`] with its argument, and
//! counts the calls of `allocated`; the functions themselves do nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::io::{BufRead, Write};

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

/// Tells the tracer where the two functions are and waits until it watches.
pub(crate) fn meet_tracer() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let (mark, allocated) = (mark as *const () as usize, allocated as *const () as usize);
    writeln!(out, "{mark} {allocated}")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    // Stops here until the tracer goes on; without one it ends the process, as it should.
    kill_process(getpid(), Signal::USR1)?;
    Ok(())
}
