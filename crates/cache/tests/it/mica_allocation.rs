//! No operation of a partition allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use cache::mica::{KeyHash, NewValue, Options, Partition};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread, and the bytes that it has allocated and not freed.
struct Counting;

// SAFETY: all calls go to the system's allocator unchanged; the count is a
// constant-initialised thread local without a destructor, which never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get().wrapping_add(layout.size()));
        // SAFETY: the caller keeps the contract of this very method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: the caller keeps the contract of this very method.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get().wrapping_add(size).wrapping_sub(layout.size()));
        // SAFETY: the caller keeps the contract of this very method.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread while `run` runs.
pub(crate) fn allocations_of(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

/// Bytes that this thread has allocated while `run` ran, and not freed; with what `run` returned.
pub(crate) fn bytes_of<R>(run: impl FnOnce() -> R) -> (usize, R) {
    let before = BYTES.get();
    let made = run();
    (BYTES.get().wrapping_sub(before), made)
}

#[test]
fn the_count_counts() {
    assert_eq!(
        allocations_of(|| drop(std::hint::black_box(Box::new(1)))),
        1
    );
}

#[test]
fn no_operation_allocates() {
    let mut partition = Partition::new(&Options::new(64 << 10)).unwrap();
    let value = vec![b'1'; 400];
    let round = |partition: &mut Partition, number: u32| {
        let key = number.to_le_bytes();
        let hash = KeyHash::new(3, &key);
        let (key, now_s) = (&key[..], number);
        let new = NewValue {
            bytes: &value[..number as usize % 400],
            flags: 1,
            expiry_s: now_s + 2,
        };
        let mut probe = partition.probe(hash);
        partition.refine(&mut probe);
        let cas = partition.set(hash, key, new, now_s).unwrap().cas().unwrap();
        let _ = partition.cas(hash, key, new, cas, now_s).unwrap();
        let _ = partition.add(hash, key, new, now_s).unwrap();
        let _ = partition.replace(hash, key, new, now_s).unwrap();
        let _ = partition.append(hash, key, b"12", now_s).unwrap();
        let _ = partition.prepend(hash, key, b"12", now_s).unwrap();
        let _ = partition.incr(hash, key, 7, now_s).unwrap();
        let _ = partition.decr(hash, key, 7, now_s).unwrap();
        partition.touch(hash, key, now_s + 1, now_s);
        partition.get_and_touch(hash, key, now_s + 1, now_s);
        partition.get(probe, key, now_s + number % 2);
        assert!(
            partition
                .set(hash, key, NewValue::new(&[0; 30_000]), now_s)
                .is_err()
        );
        if number.is_multiple_of(3) {
            partition.delete(hash, key, now_s);
        }
        if number.is_multiple_of(1000) {
            partition.flush_all(now_s + number % 2, now_s);
        }
    };
    let count = allocations_of(|| (1..20_000).for_each(|number| round(&mut partition, number)));
    assert_eq!(count, 0);
    let stats = partition.stats();
    assert!(stats.log_wraps > 24 && stats.expired > 0, "{stats:?}");
}
