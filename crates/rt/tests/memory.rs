//! What becomes of freed memory. A program of its own: AddressSanitizer, under which the others run too, has an
//! allocator that takes no advice.

#![cfg(all(target_os = "linux", target_env = "gnu", not(loom)))]

use std::hint::black_box;
use std::mem::MaybeUninit;

/// Page faults of this thread so far that needed no disk.
fn faults() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: it writes one `rusage`.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    usage.ru_minflt
}

#[test]
fn buffers_that_were_freed_are_used_again_without_faults() {
    rt::memory::keep_freed();
    let take = || {
        let buffers: Vec<Vec<u8>> = (0..8).map(|_| black_box(vec![1; 1 << 20])).collect();
        drop(buffers);
    };
    take();
    let before = faults();
    (0..10).for_each(|_| take());
    let faults = faults() - before;
    // Of 20,480 pages.
    assert!(faults < 1000, "{faults} faults");
}
