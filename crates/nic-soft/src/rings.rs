//! Who is woken: rings come into a channel's socket from anywhere, and its owner finds out which of
//! its completion queues they are for.
//!
//! The socket is short and may be full of anybody's rings. Then a ring finds no room, and the owner,
//! who finds as many as there is room for, takes it that each of its armed queues was rung. An event
//! names one queue and asks for no more rings for it; while others wait, the channel stays readable.

use crate::arming;
use crate::layout::CqEntry;
use crate::sync::{AtomicBool, Ordering};

/// Rings taken at once.
pub(crate) const RINGS: usize = if cfg!(loom) { 3 } else { 64 };

/// A completion queue that sleeps, or may.
#[derive(Clone, Copy)]
pub(crate) struct Sleeper<'a> {
    pub(crate) number: u32,
    pub(crate) entry: &'a CqEntry,
    /// Whoever rang the queue's channel for it marked it so, or the owner when he found the ring.
    pub(crate) fired: &'a AtomicBool,
    /// The event of an earlier arming has not been taken yet.
    pub(crate) owed: &'a AtomicBool,
}

/// What comes out of a channel's socket.
pub(crate) enum Ring {
    /// One for a queue of this number.
    For(u32),
    /// One for nobody.
    Nobody,
    /// No more.
    End,
}

impl Sleeper<'_> {
    /// Asks for a ring with the next completion, or the next solicited one. Afterwards the caller
    /// polls once more before it sleeps.
    pub(crate) fn arm(self, solicited_only: bool) {
        if self.is_due() {
            // What was asked for before has come: this asks anew.
            self.owed.store(true, Ordering::Release);
            arming::disarm(self.entry);
        }
        // Before it is armed: whoever finds it armed marks it after this.
        self.fired.store(false, Ordering::Relaxed);
        arming::arm(self.entry, solicited_only);
    }

    /// Rings for a completion that this process has made.
    #[inline]
    pub(crate) fn notify(self, solicited: bool, ring: impl FnOnce()) {
        if arming::must_ring(self.entry, solicited) {
            self.mark();
            ring();
        }
    }

    fn mark(self) {
        self.fired.store(true, Ordering::Release);
    }

    /// Whether there is an event to be taken.
    pub(crate) fn has_event(&self) -> bool {
        self.owed.load(Ordering::Acquire) || self.is_due()
    }

    fn is_due(&self) -> bool {
        arming::is_armed(self.entry) && self.fired.load(Ordering::Acquire)
    }

    /// Takes an event: the oldest one, which leaves what was asked for since.
    fn take_event(self) {
        if self.owed.swap(false, Ordering::AcqRel) {
            return;
        }
        arming::disarm(self.entry);
        self.fired.store(false, Ordering::Release);
    }
}

/// Takes the rings that are there, and names a queue that was rung for, if one was: the next one
/// after the queue named last, so that rings for one of them do not keep the others asleep. So many
/// rings as `full` mean that some may have been lost. `ring` makes the channel readable again for
/// one more queue.
pub(crate) fn event<'a, E>(
    sleepers: impl Iterator<Item = Sleeper<'a>> + Clone,
    last: &mut u32,
    full: usize,
    take: impl FnMut() -> Result<Ring, E>,
    ring: impl FnOnce(u32),
) -> Result<Option<u32>, E> {
    take_rings(sleepers.clone(), full, take)?;
    let due = sleepers.clone().filter(Sleeper::has_event);
    let after = due.clone().find(|one| one.number > *last);
    let Some(named) = after.or_else(|| due.clone().next()) else {
        return Ok(None);
    };
    *last = named.number;
    named.take_event();
    if let Some(other) = sleepers.clone().find(Sleeper::has_event) {
        ring(other.number);
    }
    Ok(Some(named.number))
}

/// Takes the rings that are there: what was rung for is marked so.
pub(crate) fn take_rings<'a, E>(
    sleepers: impl Iterator<Item = Sleeper<'a>> + Clone,
    full: usize,
    mut take: impl FnMut() -> Result<Ring, E>,
) -> Result<(), E> {
    for taken in 0..RINGS {
        match take()? {
            // The worst that a false ring brings is an event too many.
            Ring::For(number) => sleepers
                .clone()
                .filter(|one| one.number == number)
                .for_each(Sleeper::mark),
            Ring::Nobody => {}
            Ring::End if taken < full => return Ok(()),
            Ring::End => break,
        }
    }
    // The socket was full, or nearly: somebody may have found no room.
    sleepers.for_each(Sleeper::mark);
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn rings_for_one_queue_keep_no_other_asleep() {
        let queues: Vec<(CqEntry, AtomicBool, AtomicBool)> = (0..3)
            .map(|_| {
                let armed = Default::default();
                let fresh = || AtomicBool::new(false);
                (CqEntry { armed }, fresh(), fresh())
            })
            .collect();
        let sleeper = |number: usize| Sleeper {
            number: number as u32,
            entry: &queues[number].0,
            fired: &queues[number].1,
            owed: &queues[number].2,
        };
        (0..3).for_each(|number| sleeper(number).arm(false));
        sleeper(2).notify(false, || {});
        let mut last = 0;
        let mut named = Vec::new();
        for _ in 0..4 {
            // Somebody rings for the first one again and again, and it is armed again each time.
            let mut rings = [Ring::For(0)].into_iter();
            let take = || Ok::<_, Infallible>(rings.next().unwrap_or(Ring::End));
            let event = event((0..3).map(sleeper), &mut last, 10, take, |_| {});
            named.extend(event.unwrap());
            sleeper(0).arm(false);
        }
        assert_eq!(named, [2, 0, 0, 0]);
    }

    #[test]
    fn an_event_that_was_not_taken_does_not_disarm_what_is_armed_anew() {
        let fresh = || AtomicBool::new(false);
        let (armed, fired, owed) = (Default::default(), fresh(), fresh());
        let entry = CqEntry { armed };
        let sleeper = Sleeper {
            number: 7,
            entry: &entry,
            fired: &fired,
            owed: &owed,
        };
        let mut last = 0;
        let mut events = || {
            let take = || Ok::<_, Infallible>(Ring::End);
            event([sleeper].into_iter(), &mut last, 10, take, |_| {}).unwrap()
        };
        sleeper.arm(false);
        sleeper.notify(false, || {});
        sleeper.arm(false);
        assert_eq!((events(), events()), (Some(7), None));
        sleeper.notify(false, || {});
        assert_eq!((events(), events()), (Some(7), None));
        // To ask for solicited ones only does not take back what was asked for.
        sleeper.arm(false);
        sleeper.arm(true);
        sleeper.notify(false, || {});
        assert_eq!(events(), Some(7));
        sleeper.arm(true);
        sleeper.notify(false, || {});
        assert_eq!(events(), None);
    }
}
