//! When maintenance leaves segments alone: because giving them up brings nothing, or because the
//! device failed.

use std::collections::HashMap;

use crate::segments::Candidate;

/// Collections in vain after which the emptiest segments are taken, whatever their age.
const GREAT: usize = 16;

/// What came of the collections since the users got a segment.
///
/// What a segment has lost at its end, because the next record was too long for it, looks like
/// something to be gained, and moving its records may lose as much again. So whether moving gains
/// anything is seen by what it has brought.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    /// The most segments that were free.
    free: usize,
    /// Collections since there were so many.
    in_vain: usize,
    /// Grains of live records when it was given up. With fewer it may be worth while again.
    given_up_at: Option<u64>,
}

impl Effort {
    /// Whether another collection may gain something.
    pub(crate) fn is_worth_while(&mut self, live: u64) -> bool {
        if self.given_up_at.is_some_and(|at| live < at) {
            *self = Self::default();
        }
        self.given_up_at.is_none()
    }

    /// Whether the last collection gained a segment, or there was none since the users got one.
    pub(crate) fn is_none(&self) -> bool {
        self.in_vain == 0
    }

    /// Whether many collections gained nothing.
    pub(crate) fn is_great(&self) -> bool {
        self.in_vain >= GREAT
    }

    /// A collection is over. Each segment has its chance, and in small stores a few, since it may take
    /// many that gain a little to gain a segment.
    pub(crate) fn note(&mut self, free: usize, segments: u32, live: u64) {
        if free > self.free {
            (self.free, self.in_vain) = (free, 0);
            return;
        }
        self.in_vain += 1;
        if self.in_vain > 2 * segments.max(64) as usize {
            self.given_up_at = Some(live);
        }
    }
}

/// How often a segment that the device keeps from being given up is tried again.
const ATTEMPTS: u32 = 6;

/// Segments that an error of the device has kept in use. They are tried again when some more segments
/// have been opened, each time twice as many: an error that passes costs nothing, and one that stays
/// costs few attempts.
#[derive(Debug, Default)]
pub(crate) struct Postponed(HashMap<u32, Attempts>);

#[derive(Clone, Copy, Debug)]
struct Attempts {
    /// Of the segment: with another one it is used for something else.
    seq: u64,
    failed: u32,
    /// The sequence number from which it is tried again.
    due: u64,
}

impl Postponed {
    /// Notes another failed attempt on a segment, the newest segment's number being `now`. False if it
    /// was the last.
    pub(crate) fn postpone(&mut self, segment: u32, seq: u64, now: u64) -> bool {
        let before = self.0.get(&segment).filter(|before| before.seq == seq);
        let failed = before.map_or(0, |before| before.failed) + 1;
        if failed == ATTEMPTS {
            self.0.remove(&segment);
            return false;
        }
        let due = now + (1 << failed);
        self.0.insert(segment, Attempts { seq, failed, due });
        true
    }

    /// Those of the candidates that are to be tried, and those that are to wait.
    pub(crate) fn split(
        &mut self,
        candidates: Vec<Candidate>,
        now: u64,
    ) -> (Vec<Candidate>, Vec<Candidate>) {
        if self.0.is_empty() {
            return (candidates, Vec::new());
        }
        self.0.retain(|segment, attempts| {
            let mut same = candidates.iter();
            same.any(|c| (c.segment, c.seq) == (*segment, attempts.seq))
        });
        let is_due = |c: &Candidate| self.0.get(&c.segment).is_none_or(|a| now >= a.due);
        candidates.into_iter().partition(is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(segment: u32, seq: u64) -> Candidate {
        Candidate {
            segment,
            seq,
            kept: 0,
            ends: 0,
            touched: 0,
        }
    }

    #[test]
    fn failed_segments_wait_longer_and_longer_and_then_for_good() {
        let mut postponed = Postponed::default();
        let both = || vec![candidate(1, 10), candidate(2, 11)];
        let mut now = 20;
        let mut waits = Vec::new();
        while postponed.postpone(1, 10, now) {
            let begin = now;
            while postponed.split(both(), now).0 != both() {
                let one_waits = (vec![candidate(2, 11)], vec![candidate(1, 10)]);
                assert_eq!(postponed.split(both(), now), one_waits);
                now += 1;
            }
            waits.push(now - begin);
        }
        assert_eq!(waits, [2, 4, 8, 16, 32]);
        assert!(postponed.postpone(1, 10, now), "forgotten");
        // The same segment, used for something else.
        let anew = || vec![candidate(1, 60), candidate(2, 11)];
        assert_eq!(postponed.split(anew(), now).0, anew());
    }

    #[test]
    fn collections_that_gain_nothing_end_until_something_is_removed() {
        let mut effort = Effort::default();
        let mut collections = 0;
        while effort.is_worth_while(1000) {
            collections += 1;
            effort.note(if collections < 10 { collections } else { 3 }, 12, 1000);
        }
        assert_eq!(collections, 9 + 129);
        assert!(!effort.is_worth_while(1000));
        assert!(effort.is_worth_while(999));
    }
}
