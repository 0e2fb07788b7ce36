//! Quiescence: waiting until no thread touches memory that is to go.
//!
//! Posting threads copy to and from registered memory. Before a region's memory goes away,
//! deregistration waits until every thread that was inside a post or poll has left it. The data
//! path only sets and clears a flag of its own, with no fence: deregistration makes the kernel
//! issue the fences (membarrier), because it is rare and they are not.

use std::sync::{Arc, PoisonError, Weak};

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering, fence, light_barrier, yield_now};

/// One queue's flag: odd while its owner is inside an operation.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    count: CachePadded<AtomicU32>,
}

/// While it lives, memory stays.
pub(crate) struct Active<'a> {
    activity: &'a Activity,
}

impl Activity {
    /// Marks the caller as inside an operation. Not re-entrant.
    #[inline]
    pub(crate) fn enter(&self) -> Active<'_> {
        let count = self.count.load(Ordering::Relaxed);
        debug_assert!(count.is_multiple_of(2), "one operation at a time");
        // Release, as when it leaves: `wait` may find this number where it waits for the last one.
        self.count.store(count.wrapping_add(1), Ordering::Release);
        // Pairs with the membarrier in `wait`: after it, either this store is visible there, or
        // the loads of keys that follow here see the region gone.
        light_barrier();
        Active { activity: self }
    }
}

impl Drop for Active<'_> {
    #[inline]
    fn drop(&mut self) {
        let count = self.activity.count.load(Ordering::Relaxed);
        self.activity
            .count
            .store(count.wrapping_add(1), Ordering::Release);
    }
}

/// All flags of an adapter.
#[derive(Debug)]
pub(crate) struct Quiescence {
    activities: Mutex<Vec<Weak<Activity>>>,
    /// Whether the kernel has membarrier; otherwise waiting also sleeps a little.
    membarrier: AtomicBool,
    /// How often everybody had to pass a fence.
    #[cfg(test)]
    pub(crate) fences: AtomicU32,
}

const MEMBARRIER_PRIVATE_EXPEDITED: i32 = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

const MEMBARRIER_GLOBAL_EXPEDITED: i32 = 1 << 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

#[cfg(not(loom))]
fn membarrier(command: i32) -> bool {
    // SAFETY: membarrier touches no memory of the caller.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Loom knows no membarrier. With a fence here and one in `light_barrier` it sees what the kernel's
/// fences bring about: of the two sides, the later one sees what the earlier has written.
#[cfg(loom)]
fn membarrier(_command: i32) -> bool {
    fence(Ordering::SeqCst);
    true
}

impl Quiescence {
    pub(crate) fn new() -> Self {
        let available = membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED)
            && membarrier(MEMBARRIER_REGISTER_GLOBAL_EXPEDITED);
        if !available {
            tracing::warn!("the kernel refuses membarrier; deregistering memory takes longer");
        }
        Quiescence {
            activities: Mutex::new(Vec::new()),
            membarrier: AtomicBool::new(available),
            #[cfg(test)]
            fences: AtomicU32::new(0),
        }
    }

    /// A new flag.
    pub(crate) fn activity(&self) -> Arc<Activity> {
        let activity = Arc::new(Activity::default());
        let mut all = self
            .activities
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&activity));
        activity
    }

    /// Has all threads of all processes with an adapter pass a fence, between two instructions of
    /// theirs: whoever then finds what was there before this has written what it wrote before.
    pub(crate) fn fence_everybody(&self) {
        #[cfg(test)]
        self.fences.fetch_add(1, Ordering::Relaxed);
        if !self.membarrier.load(Ordering::Relaxed) || !membarrier(MEMBARRIER_GLOBAL_EXPEDITED) {
            // Store buffers drain in far less time than this.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Waits until every operation that was under way has ended. Operations are short, so this
    /// spins; the caller must not be inside one.
    pub(crate) fn wait(&self) {
        let mut under_way = self.under_way();
        while !under_way.are_over() {
            yield_now();
        }
    }

    /// The operations that are under way. Those that begin later see what the caller has written.
    pub(crate) fn under_way(&self) -> UnderWay {
        if !self.membarrier.load(Ordering::Relaxed) || !membarrier(MEMBARRIER_PRIVATE_EXPEDITED) {
            // Store buffers drain in far less time than this.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let all: Vec<_> = {
            let all = self
                .activities
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        // What queues did that have gone since is over as well; this makes it happen before.
        fence(Ordering::Acquire);
        let busy = all.into_iter().filter_map(|activity| {
            let seen = activity.count.load(Ordering::Acquire);
            (seen % 2 == 1).then_some((activity, seen))
        });
        UnderWay(busy.collect())
    }
}

/// Operations that were under way at a moment.
#[derive(Debug, Default)]
pub(crate) struct UnderWay(Vec<(Arc<Activity>, u32)>);

impl UnderWay {
    /// Whether all of them have ended, and what they did is seen.
    pub(crate) fn are_over(&mut self) -> bool {
        self.0
            .retain(|(activity, seen)| activity.count.load(Ordering::Acquire) == *seen);
        self.0.is_empty()
    }
}
