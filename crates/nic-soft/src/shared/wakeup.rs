//! Wake-ups: rings come into a channel's socket from anywhere, and its owner finds out which of
//! its completion queues they are for.
//!
//! The socket is short and may be full of anybody's rings. Then a ring finds no room, and the owner,
//! who finds as many as there is room for, takes it that each of its armed queues was rung for. An
//! event names one queue; while others wait, the channel stays readable.

use crate::shared::arming::{self, Arming, Asked, Rung};
use crate::shared::layout::CqEntry;
use crate::sync::{AtomicBool, Ordering};

/// Rings taken at once.
pub(crate) const RINGS: usize = if cfg!(loom) { 3 } else { 64 };

/// A completion queue that sleeps, or may.
#[derive(Clone, Copy)]
pub(crate) struct Sleeper<'a> {
    pub(crate) number: u32,
    pub(crate) entry: &'a CqEntry,
    /// There is an event of an earlier arming, which leaves the present one as it is.
    pub(crate) owed: &'a AtomicBool,
}

/// What comes out of a channel's socket.
pub(crate) enum Ring {
    /// One for an arming of a queue of this number.
    For(u32, Arming),
    /// One for nobody.
    Nobody,
    /// No more.
    End,
}

impl Sleeper<'_> {
    /// Asks for a ring with the next completion, or the next solicited one. Afterwards the caller
    /// polls once more before it sleeps.
    pub(crate) fn arm(self, solicited_only: bool) -> Asked {
        arming::arm(self.entry, solicited_only, || self.owe())
    }

    /// Rings for a completion that this process has made.
    #[inline]
    pub(crate) fn notify(self, solicited: bool, ring: impl FnOnce()) {
        if let Some(arming) = arming::must_ring(self.entry, solicited)
            && self.rung_for(arming)
        {
            ring();
        }
    }

    /// Takes note of a ring, and says whether it has brought an event.
    fn rung_for(self, arming: Arming) -> bool {
        match arming::rung(self.entry, arming) {
            Rung::Now => {}
            Rung::Late => self.owe(),
            Rung::Before => return false,
        }
        true
    }

    fn owe(self) {
        self.owed.store(true, Ordering::Release);
    }

    /// Whether there is an event to be taken.
    pub(crate) fn has_event(&self) -> bool {
        self.owed.load(Ordering::Acquire) || arming::has_event(self.entry)
    }

    /// Takes an event: the oldest one, which leaves what was asked for since.
    fn take_event(self) {
        if !self.owed.swap(false, Ordering::AcqRel) {
            arming::take_event(self.entry);
        }
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
    ring: impl FnOnce(),
) -> Result<Option<u32>, E> {
    take_rings(sleepers.clone(), full, take)?;
    let due = sleepers.clone().filter(Sleeper::has_event);
    let after = due.clone().find(|one| one.number > *last);
    let Some(named) = after.or_else(|| due.clone().next()) else {
        return Ok(None);
    };
    *last = named.number;
    named.take_event();
    if sleepers.clone().any(|one| one.has_event()) {
        ring();
    }
    Ok(Some(named.number))
}

/// Takes the rings that are there, and notes which armings have an event.
pub(crate) fn take_rings<'a, E>(
    sleepers: impl Iterator<Item = Sleeper<'a>> + Clone,
    full: usize,
    mut take: impl FnMut() -> Result<Ring, E>,
) -> Result<(), E> {
    for taken in 0..RINGS {
        match take()? {
            // The worst that a false ring brings is an event too many.
            Ring::For(number, arming) => sleepers
                .clone()
                .filter(|one| one.number == number)
                .for_each(|one| {
                    one.rung_for(arming);
                }),
            Ring::Nobody => {}
            Ring::End if taken < full => return Ok(()),
            Ring::End => break,
        }
    }
    // The socket was full, or nearly: somebody may have found no room.
    for one in sleepers {
        if let Some(arming) = arming::must_ring(one.entry, true) {
            one.rung_for(arming);
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn rings_for_one_queue_keep_no_other_asleep() {
        let queues: Vec<(CqEntry, AtomicBool)> = (0..3)
            .map(|_| {
                let armed = Default::default();
                (CqEntry { armed }, AtomicBool::new(false))
            })
            .collect();
        let sleeper = |number: usize| Sleeper {
            number: number as u32,
            entry: &queues[number].0,
            owed: &queues[number].1,
        };
        for number in 0..3 {
            sleeper(number).arm(false);
        }
        sleeper(2).notify(false, || {});
        let mut last = 0;
        let mut named = Vec::new();
        for _ in 0..4 {
            // Somebody rings for the first one again and again, and it is armed again each time.
            let arming = arming::must_ring(&queues[0].0, false).expect("it is armed");
            let mut rings = [Ring::For(0, arming)].into_iter();
            let take = || Ok::<_, Infallible>(rings.next().unwrap_or(Ring::End));
            let event = event((0..3).map(sleeper), &mut last, 10, take, || {});
            named.extend(event.unwrap());
            sleeper(0).arm(false);
        }
        assert_eq!(named, [2, 0, 0, 0]);
    }

    #[test]
    fn an_event_that_was_not_taken_does_not_disarm_what_is_armed_anew() {
        let (armed, owed) = (Default::default(), AtomicBool::new(false));
        let entry = CqEntry { armed };
        let sleeper = Sleeper {
            number: 7,
            entry: &entry,
            owed: &owed,
        };
        let mut last = 0;
        let mut events = || {
            let take = || Ok::<_, Infallible>(Ring::End);
            event([sleeper].into_iter(), &mut last, 10, take, || {}).unwrap()
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
