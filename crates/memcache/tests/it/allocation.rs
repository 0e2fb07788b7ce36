//! The data path allocates nothing once its buffers have grown.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::task::{Context, Waker};

use engine::MapEngine;
use memcache::{Connection, Limits, Step};

use crate::driver::NOW_S;

/// The system's allocator, counting what each thread asks of it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came; counting in a thread-local without
// a destructor neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises on the layout are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn requests_allocate_nothing() {
    let mut engine = MapEngine::default();
    let mut connection = Connection::new(Limits::default());
    let mut context = Context::from_waker(Waker::noop());
    // What is stored is the engine's to allocate for: after the first round `a` is there, and
    // nothing is stored any more.
    let says: [&[u8]; 6] = [
        b"get a\r\nget a b a c a\r\ngats 0 a\r\n",
        b"incr a 1\r\ndecr a 1 noreply\r\ntouch a 0\r\ndelete b\r\nfoo\r\n",
        b"add a 0 0 5\r\nvalue\r\nset a 0 0 3\r\nbad chunk\r\nversion\r\n",
        b"add a 0 0 1000\r\nin pie",
        b"ces",
        &[b'\r'; 992],
    ];
    let end = b"\n";
    let mut round = || {
        for piece in says.into_iter().chain([&end[..]]) {
            let mut input = piece;
            while !input.is_empty() {
                let progress = connection.advance(&mut engine, NOW_S, &mut context, input);
                assert_eq!(progress.step, Step::Input);
                input = &input[progress.consumed..];
            }
        }
        let size = connection.output().len();
        assert!(connection.output().ends_with(b"STORED\r\n"));
        connection.consume_output(size);
    };
    round();
    round();
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the allocator counts");
    for _ in 0..10 {
        round();
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
