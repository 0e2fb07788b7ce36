//! What happens to the NIC as a whole, or to the process, at a request: a NIC that stands still, a port that is down, a device that
//! has failed, and the events that tell of them.

use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::lock;
use crate::attr::{PortAttr, PortState};
use crate::names::{CqNum, Rkey};
use crate::nic::AsyncEvent;

/// What this layer needs of the process around it, which only whoever opens the NIC has.
pub trait Outside: Debug + Send + Sync {
    /// Ends the process at once, as SIGKILL does.
    fn kill(&self);

    /// Lets so many milliseconds pass. Nothing is locked meanwhile.
    fn pause(&self, ms: u32);

    /// An event of this layer waits.
    fn event_raised(&self) {}

    /// One of them was taken.
    fn event_taken(&self) {}

    /// A descriptor that is readable while events of this layer or of the NIC wait; `None` where only the NIC's count.
    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A process of which nothing is known.
#[derive(Debug)]
pub(super) struct Unknown;

impl Outside for Unknown {
    fn kill(&self) {
        std::process::abort();
    }

    /// It knows of no clock.
    fn pause(&self, _ms: u32) {
        std::thread::yield_now();
    }
}

/// The only port.
const PORT: u8 = 1;
/// The port is down for good.
const FOR_GOOD: u32 = u32::MAX;

/// The state of the NIC as a whole.
#[derive(Debug)]
pub(super) struct Condition {
    outside: Box<dyn Outside>,
    events: Mutex<VecDeque<AsyncEvent>>,
    /// Calls for which it stands still.
    frozen: AtomicU32,
    /// Calls for which the port is down.
    port_down: AtomicU32,
    has_failed: AtomicBool,
    revoked: Mutex<HashSet<u32>>,
    /// Completion queues that somebody has slept on, or may have.
    sleepers: Mutex<HashSet<u32>>,
}

impl Condition {
    pub(super) fn new(outside: Box<dyn Outside>) -> Self {
        Condition {
            outside,
            events: Mutex::default(),
            frozen: AtomicU32::new(0),
            port_down: AtomicU32::new(0),
            has_failed: AtomicBool::new(false),
            revoked: Mutex::default(),
            sleepers: Mutex::default(),
        }
    }

    pub(super) fn kill(&self) {
        self.outside.kill();
    }

    pub(super) fn pause(&self, ms: u32) {
        self.outside.pause(ms);
    }

    pub(super) fn raise(&self, event: AsyncEvent) {
        lock(&self.events).push_back(event);
        self.outside.event_raised();
    }

    pub(super) fn take_event(&self) -> Option<AsyncEvent> {
        let event = lock(&self.events).pop_front()?;
        self.outside.event_taken();
        Some(event)
    }

    /// Whether an event is one of this layer's.
    pub(super) fn is_own(event: AsyncEvent) -> bool {
        use AsyncEvent::{DeviceFatal, PortDown, PortUp, QpCatastrophe};
        matches!(
            event,
            QpCatastrophe(_) | DeviceFatal | PortDown(_) | PortUp(_)
        )
    }

    pub(super) fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.outside.async_fd()
    }

    pub(super) fn freeze(&self, calls: u32) {
        self.frozen.store(calls, Ordering::Relaxed);
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed) > 0
    }

    pub(super) fn port_down(&self, calls: Option<u32>) {
        self.port_down
            .store(calls.unwrap_or(FOR_GOOD), Ordering::Relaxed);
        self.raise(AsyncEvent::PortDown(PORT));
    }

    /// Whether requests fail because the port does not come back.
    pub(super) fn is_unreachable(&self) -> bool {
        self.port_down.load(Ordering::Relaxed) == FOR_GOOD
    }

    /// Whether requests wait, until the NIC goes on or the port is up.
    pub(super) fn holds_requests(&self) -> bool {
        self.is_frozen() || (1..FOR_GOOD).contains(&self.port_down.load(Ordering::Relaxed))
    }

    pub(super) fn dress(&self, port: &mut PortAttr) {
        if self.port_down.load(Ordering::Relaxed) > 0 {
            port.state = PortState::Down;
        }
    }

    /// The device fails; false when it has failed before.
    pub(super) fn fail(&self) -> bool {
        let is_first = !self.has_failed.swap(true, Ordering::Relaxed);
        if is_first {
            self.raise(AsyncEvent::DeviceFatal);
        }
        is_first
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Time passes; true when the NIC stands still no longer.
    pub(super) fn tick(&self) -> bool {
        let less = |calls: u32| (calls > 0 && calls < FOR_GOOD).then(|| calls - 1);
        let (order, place) = (Ordering::Relaxed, &self.port_down);
        // Where nothing is to be counted, nothing is.
        let goes_on =
            self.frozen.load(order) > 0 && self.frozen.fetch_update(order, order, less) == Ok(1);
        if place.load(order) > 0 && place.fetch_update(order, order, less) == Ok(1) {
            self.raise(AsyncEvent::PortUp(PORT));
        }
        goes_on
    }

    /// Somebody is about to sleep: what lasts for so many calls ends, because there may be none. True when the NIC stands still no
    /// longer.
    pub(super) fn end_waiting(&self) -> bool {
        let goes_on = self.frozen.swap(0, Ordering::Relaxed) > 0;
        let less = |calls: u32| (calls > 0 && calls < FOR_GOOD).then_some(0);
        let (order, place) = (Ordering::Relaxed, &self.port_down);
        if place.fetch_update(order, order, less).is_ok() {
            self.raise(AsyncEvent::PortUp(PORT));
        }
        goes_on
    }

    /// Somebody may sleep on a completion queue from now on.
    pub(super) fn sleeps_on(&self, cq: CqNum) {
        lock(&self.sleepers).insert(cq.0);
    }

    pub(super) fn is_slept_on(&self, cqs: [CqNum; 2]) -> bool {
        let sleepers = lock(&self.sleepers);
        cqs.iter().any(|cq| sleepers.contains(&cq.0))
    }

    pub(super) fn revoke(&self, rkey: Rkey) {
        lock(&self.revoked).insert(rkey.0);
    }

    pub(super) fn is_revoked(&self, rkey: Rkey) -> bool {
        lock(&self.revoked).contains(&rkey.0)
    }
}
