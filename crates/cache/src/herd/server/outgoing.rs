//! Large values on their way out, where a value has to be waited for: each is read once, and kept
//! while its pieces are asked for. An engine whose answers are at hand needs none of this.
//!
//! There are few places. A request for a piece of a value that has none is told to come again, and its
//! client gets a place when its turn has come: reading the value anew for each piece would keep the device
//! busy with one value many times over. Nothing waits here: what a client is told is decided by what
//! stands when it asks.

use std::ops::Range;

use engine::Segments;

use super::turns::{self, Turns};

/// A place that nothing was asked of for this part of what a value on its way in may stand still goes to
/// whoever wants one. Losing it costs another read, and nothing else.
const IDLE_PART: u64 = 50;
/// So does a place that a value has had for this part, though its pieces are asked for.
const HELD_PART: u64 = 10;

/// A value whose pieces are asked for.
#[derive(Debug)]
pub(super) struct Kept {
    cas: u64,
    pub(super) flags: u32,
    pub(super) value: Vec<u8>,
    /// A bit for each byte that has been answered, and how many have not.
    answered: Vec<u64>,
    unanswered: usize,
}

impl Kept {
    fn new((cas, flags, value): (u64, u32, Segments<'_>)) -> Self {
        Kept {
            cas,
            flags,
            answered: vec![0; value.len().div_ceil(64)],
            unanswered: value.len(),
            value: value.to_vec(),
        }
    }

    /// Notes that these bytes have been answered, in whatever order and however often.
    fn note(&mut self, bytes: Range<usize>) {
        let end = bytes.end.min(self.value.len());
        let mut at = bytes.start;
        while at < end {
            let (word, first) = (at / 64, at % 64);
            let count = (64 - first).min(end - at);
            let mask = (u64::MAX >> (64 - count)) << first;
            self.unanswered -= (mask & !self.answered[word]).count_ones() as usize;
            self.answered[word] |= mask;
            at += count;
        }
    }
}

/// Room for a value.
#[derive(Debug)]
struct Place {
    client: u32,
    key: Vec<u8>,
    /// None while the value is being read.
    kept: Option<Kept>,
    /// Since when the value has been here, in whichever version, and when it was last asked for.
    since_ns: u64,
    used_ns: u64,
}

impl Place {
    fn is_of(&self, (client, key): (u32, &[u8])) -> bool {
        self.client == client && self.key == key
    }

    /// Whether it goes to whoever wants one, where a value on its way in may stand still for so long.
    fn is_over(&self, now_ns: u64, staging_idle_ns: u64) -> bool {
        self.kept.is_some()
            && (now_ns.saturating_sub(self.used_ns) > staging_idle_ns / IDLE_PART
                || now_ns.saturating_sub(self.since_ns) > staging_idle_ns / HELD_PART)
    }
}

/// What is to be done about a request for a piece.
#[derive(Debug)]
pub(super) enum Turn<'a> {
    /// The value is here.
    Answer(&'a Kept),
    /// The value is to be read; there may be a place for it.
    Read,
    /// It is to come again: the value is being read, or it is somebody else's turn.
    Busy,
}

/// The values that a core keeps, and who waits for a place.
#[derive(Debug)]
pub(super) struct Outgoing {
    places: Vec<Place>,
    count_max: usize,
    value_len_max: usize,
    staging_idle_ns: u64,
    turns: Turns,
}

impl Outgoing {
    pub(super) fn new(count_max: usize, value_len_max: usize, staging_idle_ns: u64) -> Self {
        Outgoing {
            places: Vec::new(),
            count_max,
            value_len_max,
            staging_idle_ns,
            turns: Turns::default(),
        }
    }

    /// What a request for a piece of a client's key, under this token, is to do. A repeat does not wait
    /// for a place: the value's other pieces may have come, and it would stay there for nobody.
    pub(super) fn turn(
        &mut self,
        whose: (u32, &[u8]),
        cas: u64,
        is_repeat: bool,
        now_ns: u64,
    ) -> Turn<'_> {
        if let Some(index) = self.position(whose) {
            let place = &self.places[index];
            let is_other = place.kept.as_ref().is_some_and(|kept| kept.cas != cas);
            if !is_other {
                let place = &mut self.places[index];
                return match &place.kept {
                    None => Turn::Busy,
                    Some(kept) => {
                        place.used_ns = now_ns;
                        Turn::Answer(kept)
                    }
                };
            }
            if is_repeat {
                // What is here may be the newer one, whose pieces are asked for.
                return Turn::Read;
            }
            // It may be the older one, where a newer one was at hand; the engine knows.
            self.places.swap_remove(index);
        }
        if is_repeat || self.count_max == 0 {
            return Turn::Read;
        }
        let client = whose.0;
        match self.next(client, now_ns) {
            turns::Turn::Now => {
                self.turns.leave(client);
                Turn::Read
            }
            turns::Turn::Later => {
                self.turns.wait(client, now_ns);
                Turn::Busy
            }
            turns::Turn::HasItsShare => Turn::Busy,
        }
    }

    /// Holds a place for a value that is being read, after its turn has come. False if there is none.
    pub(super) fn reserve(&mut self, whose: (u32, &[u8]), now_ns: u64) -> bool {
        let has_place = self.places.len() < self.count_max;
        if has_place {
            self.take(whose, now_ns);
        }
        has_place
    }

    /// Keeps a value whose first piece has been answered, if the client may have a place.
    pub(super) fn keep(
        &mut self,
        whose: (u32, &[u8]),
        item: (u64, u32, Segments<'_>),
        first_len: usize,
        now_ns: u64,
    ) {
        if item.2.len() > self.value_len_max {
            return;
        }
        let place = self.position(whose).map(|index| &mut self.places[index]);
        match place.map(|place| place.kept.as_ref().map(|kept| kept.cas)) {
            // It is being read for its place.
            Some(None) => {}
            Some(Some(cas)) if cas == item.0 => self.note(whose, cas, 0..first_len),
            Some(Some(_)) => self.fill(whose, item, 0..first_len, now_ns),
            None if self.next(whose.0, now_ns) == turns::Turn::Now => {
                self.turns.leave(whose.0);
                self.take(whose, now_ns);
                self.fill(whose, item, 0..first_len, now_ns);
            }
            None => {}
        }
    }

    /// Keeps a value that a place was held for, one piece of which has been answered. Bytes before that
    /// count as answered: whoever asks for others in order has them.
    pub(super) fn fill(
        &mut self,
        whose: (u32, &[u8]),
        item: (u64, u32, Segments<'_>),
        piece: Range<usize>,
        now_ns: u64,
    ) {
        if item.2.len() > self.value_len_max {
            return;
        }
        let Some(index) = self.position(whose) else {
            return;
        };
        let place = &mut self.places[index];
        place.used_ns = now_ns;
        if place.kept.is_none() {
            // For a newer version the time does not begin anew: others wait for the place.
            place.since_ns = now_ns;
        }
        let cas = item.0;
        place.kept = Some(Kept::new(item));
        self.note(whose, cas, 0..piece.end);
    }

    /// Notes that bytes of a value have been answered, and forgets it with the last ones.
    pub(super) fn note(&mut self, whose: (u32, &[u8]), cas: u64, bytes: Range<usize>) {
        let Some(index) = self.position(whose) else {
            return;
        };
        let Some(kept) = &mut self.places[index].kept else {
            return;
        };
        if kept.cas != cas {
            return;
        }
        kept.note(bytes);
        if kept.unanswered == 0 {
            self.places.swap_remove(index);
        }
    }

    /// Gives up the place that was held for a value, if reading has not brought it. For whoever has
    /// reserved it, and nobody else.
    pub(super) fn give_up(&mut self, whose: (u32, &[u8])) {
        self.places
            .retain(|place| place.kept.is_some() || !place.is_of(whose));
    }

    /// Forgets a client.
    pub(super) fn release_client(&mut self, client: u32) {
        self.places.retain(|place| place.client != client);
        self.turns.leave(client);
    }

    /// Values that are kept, or being read to be kept.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    fn position(&self, whose: (u32, &[u8])) -> Option<usize> {
        self.places.iter().position(|place| place.is_of(whose))
    }

    /// When a client may take a place. Places that are over end if it may not otherwise.
    fn next(&mut self, client: u32, now_ns: u64) -> turns::Turn {
        let turn = self.turn_of(client, now_ns);
        if turn == turns::Turn::Now {
            return turn;
        }
        self.places
            .retain(|place| !place.is_over(now_ns, self.staging_idle_ns));
        self.turn_of(client, now_ns)
    }

    fn turn_of(&mut self, client: u32, now_ns: u64) -> turns::Turn {
        let holders = self.places.iter().map(|place| place.client);
        self.turns.of(client, (self.count_max, holders), now_ns)
    }

    fn take(&mut self, (client, key): (u32, &[u8]), now_ns: u64) {
        self.places.push(Place {
            client,
            key: key.to_vec(),
            kept: None,
            since_ns: now_ns,
            used_ns: now_ns,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAS: u64 = 7;
    const LEN_MAX: usize = 10_000;
    const STAGING_IDLE_NS: u64 = 1_000_000_000;
    const IDLE_NS: u64 = STAGING_IDLE_NS / IDLE_PART;
    const HELD_NS: u64 = STAGING_IDLE_NS / HELD_PART;

    fn places(count_max: usize, value_len_max: usize) -> Outgoing {
        Outgoing::new(count_max, value_len_max, STAGING_IDLE_NS)
    }

    fn keep(outgoing: &mut Outgoing, client: u32, key: &[u8], now_ns: u64) -> bool {
        outgoing.keep((client, key), (CAS, 0, b"value".into()), 0, now_ns);
        has(outgoing, client, key, now_ns)
    }

    fn has(outgoing: &mut Outgoing, client: u32, key: &[u8], now_ns: u64) -> bool {
        // A repeat does not wait for a place.
        let turn = outgoing.turn((client, key), CAS, true, now_ns);
        matches!(turn, Turn::Answer(_))
    }

    fn is_busy(outgoing: &mut Outgoing, client: u32, now_ns: u64) -> bool {
        let turn = outgoing.turn((client, b"a"), CAS, false, now_ns);
        match turn {
            Turn::Busy => true,
            Turn::Read => false,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_client_cannot_keep_them_all_and_idle_ones_make_room() {
        let mut outgoing = places(3, LEN_MAX);
        assert!(keep(&mut outgoing, 1, b"a", 0));
        assert!(keep(&mut outgoing, 1, b"b", 50));
        assert!(!keep(&mut outgoing, 1, b"c", 50));
        assert!(keep(&mut outgoing, 2, b"a", 50));
        assert!(!keep(&mut outgoing, 3, b"a", IDLE_NS));
        assert!(keep(&mut outgoing, 1, b"c", IDLE_NS + 1), "`a` was idle");
        assert!(!keep(&mut outgoing, 3, b"a", IDLE_NS + 1), "all are taken");
        let other = outgoing.turn((1, b"b"), CAS + 1, false, IDLE_NS + 1);
        assert!(matches!(other, Turn::Read), "another token");
        outgoing.note((2, b"a"), CAS, 0..5);
        outgoing.release_client(1);
        assert_eq!(outgoing.len(), 0);
    }

    #[test]
    fn a_value_goes_with_the_last_of_its_bytes_whichever_that_is() {
        let len = LEN_MAX;
        let pieces: Vec<_> = (0..len).step_by(37).map(|at| at..at + 37).collect();
        let forwards = pieces.clone();
        let backwards = pieces.iter().rev().cloned().collect();
        let odd_ones_first = [1, 0].map(|start| pieces.iter().skip(start).step_by(2).cloned());
        let odd_ones_first = odd_ones_first.into_iter().flatten().collect();
        let whose = (1, &b"key"[..]);
        let value = vec![1; len];
        for order in [forwards, backwards, odd_ones_first] {
            let mut outgoing = places(1, LEN_MAX);
            outgoing.keep(whose, (CAS, 0, (&value).into()), 0, 0);
            outgoing.note(whose, CAS + 1, 0..len);
            for piece in order {
                assert_eq!(outgoing.len(), 1);
                // Another GET of the value does not have it begin anew.
                outgoing.keep(whose, (CAS, 0, (&value).into()), 0, 0);
                outgoing.note(whose, CAS, piece.clone());
                outgoing.note(whose, CAS, piece);
            }
            assert_eq!(outgoing.len(), 0);
        }
    }

    #[test]
    fn values_beyond_the_longest_are_not_kept() {
        let mut outgoing = places(1, 4);
        assert!(!keep(&mut outgoing, 1, b"a", 0));
        assert!(!is_busy(&mut outgoing, 1, 0));
        assert!(outgoing.reserve((1, b"a"), 0));
        outgoing.fill((1, b"a"), (CAS, 0, b"value".into()), 0..1, 0);
        outgoing.give_up((1, b"a"));
        assert_eq!(outgoing.len(), 0);
    }

    /// While a value is being read for a place, what is asked for it comes again, and nobody takes the place.
    #[test]
    fn a_value_is_read_once_for_its_place() {
        let mut outgoing = places(1, LEN_MAX);
        let whose = (1, &b"a"[..]);
        assert!(!is_busy(&mut outgoing, 1, 0));
        assert!(outgoing.reserve(whose, 0));
        outgoing.keep(whose, (CAS + 1, 0, b"other".into()), 1, 0);
        assert!(is_busy(&mut outgoing, 1, 10 * HELD_NS));
        assert!(is_busy(&mut outgoing, 2, 10 * HELD_NS));
        outgoing.fill(whose, (CAS, 0, b"value".into()), 1..2, 10 * HELD_NS);
        outgoing.give_up(whose);
        assert!(has(&mut outgoing, 1, b"a", 10 * HELD_NS));
        assert!(is_busy(&mut outgoing, 2, 10 * HELD_NS));
        outgoing.note(whose, CAS, 2..5);
        assert_eq!(outgoing.len(), 0);
    }

    /// Whether whoever has the place goes on, or has vanished.
    #[test]
    fn no_place_is_held_for_ever() {
        for (goes_on, end_ns) in [(true, HELD_NS), (false, IDLE_NS)] {
            let mut outgoing = places(1, LEN_MAX);
            assert!(keep(&mut outgoing, 1, b"a", 0));
            for now_ns in (0..=end_ns).step_by(1_000_000) {
                assert!(!goes_on || has(&mut outgoing, 1, b"a", now_ns));
                assert!(is_busy(&mut outgoing, 2, now_ns));
            }
            assert!(!is_busy(&mut outgoing, 2, end_ns + 1));
            assert_eq!(outgoing.len(), 0);
        }
    }

    /// A repeat has no place held for it.
    #[test]
    fn a_repeat_does_not_wait() {
        let mut outgoing = places(1, LEN_MAX);
        assert!(keep(&mut outgoing, 1, b"a", 0));
        assert!(!has(&mut outgoing, 2, b"a", 0));
        outgoing.note((1, b"a"), CAS, 0..5);
        assert!(!is_busy(&mut outgoing, 3, 0));
    }

    /// One who has its value change all the time, and asks for each version, holds its place no longer.
    #[test]
    fn newer_versions_do_not_make_the_time_of_a_place_begin_anew() {
        let mut outgoing = places(1, LEN_MAX);
        for now_ns in (0..=HELD_NS).step_by(HELD_NS as usize / 10) {
            outgoing.keep((1, b"a"), (now_ns, 0, b"value".into()), 1, now_ns);
            assert!(is_busy(&mut outgoing, 2, now_ns));
        }
        let end_ns = HELD_NS + 1;
        outgoing.keep((1, b"a"), (end_ns, 0, b"value".into()), 1, end_ns);
        assert!(!is_busy(&mut outgoing, 2, end_ns));
    }

    /// A repeat that comes late asks for an older version, and leaves the newer one where it is.
    #[test]
    fn a_repeat_does_not_end_the_place_of_another_version() {
        let mut outgoing = places(1, LEN_MAX);
        let whose = (1, &b"a"[..]);
        outgoing.keep(whose, (CAS, 0, b"value".into()), 1, 0);
        let repeat = outgoing.turn(whose, CAS - 1, true, 0);
        assert!(matches!(repeat, Turn::Read), "{repeat:?}");
        assert!(has(&mut outgoing, 1, b"a", 0));
        // Others look whether there is a newer one still.
        let other = outgoing.turn(whose, CAS + 1, false, 0);
        assert!(matches!(other, Turn::Read), "{other:?}");
        assert_eq!(outgoing.len(), 0);
    }
}
