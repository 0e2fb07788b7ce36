//! Large values on their way out, where a value has to be waited for: each is read once, and kept
//! while its pieces are asked for. An engine whose answers are at hand needs none of this.
//!
//! There are few places. A request for a piece of a value that has none is *parked*, in the order in
//! which clients first asked, until there is one: reading the value anew for each piece would keep the
//! device busy with one value many times over. No wait lasts: places of clients that ask no more go to
//! others, and a client that has waited for [`PATIENCE_NS`] has its pieces read one by one.

use std::collections::VecDeque;
use std::ops::Range;

use engine::Segments;

/// A place that nothing was asked of for so long goes to whoever wants one: many times what a client
/// lets pass before it repeats a request. Losing it costs another read, and nothing else.
const IDLE_NS: u64 = 20_000_000;
/// A client waits for a place for so long: until all that are idle must have shown to be.
const PATIENCE_NS: u64 = 2 * IDLE_NS;
/// How often to look for places that have become idle while requests are parked.
const CHECK_NS: u64 = 1_000_000;
/// Requests that are parked at most, a share of those that may be pending. Others do not wait.
const PARKED_MAX: usize = 1024;

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
    fn new(value: Segments<'_>, flags: u32, cas: u64) -> Self {
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
    used_ns: u64,
}

impl Place {
    fn is_of(&self, (client, key): (u32, &[u8])) -> bool {
        self.client == client && self.key == key
    }

    fn is_idle(&self, now_ns: u64) -> bool {
        self.kept.is_some() && now_ns.saturating_sub(self.used_ns) > IDLE_NS
    }
}

/// A client that found no place.
#[derive(Debug)]
struct Waiting {
    client: u32,
    since_ns: u64,
    /// When it asked last.
    asked_ns: u64,
}

/// A promise that waits for a place, or for its value to be read.
#[derive(Debug)]
struct Parked {
    number: u32,
    client: u32,
    key: Vec<u8>,
    since_ns: u64,
}

/// What is to be done about a request for a piece.
#[derive(Debug)]
pub(super) enum Turn<'a> {
    /// The value is here.
    Answer(&'a Kept),
    /// The value is to be read; there may be a place for it.
    Read,
    /// Somebody else's turn, or the value is being read.
    Park,
}

/// The values that a core keeps, and who waits for a place.
#[derive(Debug)]
pub(super) struct Outgoing {
    places: Vec<Place>,
    count_max: usize,
    waiting: VecDeque<Waiting>,
    parked: Vec<Parked>,
    /// Whether there is another place, or value, than when those that are parked were last looked at.
    has_changed: bool,
    check_ns: u64,
}

impl Outgoing {
    pub(super) fn new(count_max: usize) -> Self {
        Outgoing {
            places: Vec::new(),
            count_max,
            waiting: VecDeque::new(),
            parked: Vec::new(),
            has_changed: false,
            check_ns: 0,
        }
    }

    /// Whether there is neither a value nor anybody who waits for one.
    pub(super) fn is_unused(&self) -> bool {
        self.places.is_empty() && self.waiting.is_empty()
    }

    /// What a request for a piece of a client's key, under this token, is to do now. `parked` is the
    /// promise that it has become, if it has waited: that one waits no more unless it is to park again.
    pub(super) fn turn(
        &mut self,
        whose: (u32, &[u8]),
        cas: u64,
        parked: Option<u32>,
        now_ns: u64,
    ) -> Turn<'_> {
        let place = self.places.iter().position(|place| place.is_of(whose));
        let may_read = match place.map(|index| &self.places[index].kept) {
            None => self.may_read(whose.0, parked, now_ns),
            Some(None) => false,
            Some(Some(kept)) => kept.cas != cas,
        };
        let kept = place.and_then(|index| {
            let place = &mut self.places[index];
            let kept = place.kept.as_ref().filter(|kept| kept.cas == cas)?;
            place.used_ns = now_ns;
            Some(kept)
        });
        if let Some(number) = parked
            && (may_read || kept.is_some())
        {
            self.parked.retain(|parked| parked.number != number);
        }
        match kept {
            Some(kept) => Turn::Answer(kept),
            None if may_read => Turn::Read,
            None => Turn::Park,
        }
    }

    /// Whether a value that has no place may be read now. Otherwise its client waits for a place from
    /// here on.
    fn may_read(&mut self, client: u32, parked: Option<u32>, now_ns: u64) -> bool {
        let mut waiting = self.waiting.iter_mut();
        let has_waited = waiting.find(|one| one.client == client).map(|waiting| {
            waiting.asked_ns = now_ns;
            is_long_ago(waiting.since_ns, now_ns)
        });
        let is_over = match parked {
            Some(number) => {
                let mut parked = self.parked.iter();
                let own = parked.find(|one| one.number == number);
                own.is_none_or(|one| is_long_ago(one.since_ns, now_ns))
            }
            None => self.parked.len() >= PARKED_MAX || self.count_max == 0,
        };
        if is_over || has_waited == Some(true) || self.may_take(client, now_ns) {
            return true;
        }
        if has_waited.is_none() {
            self.waiting.push_back(Waiting {
                client,
                since_ns: now_ns,
                asked_ns: now_ns,
            });
        }
        false
    }

    /// Holds a place for a value that is being read, if the client may have one.
    pub(super) fn reserve(&mut self, whose: (u32, &[u8]), now_ns: u64) {
        let is_there = self.places.iter().any(|place| place.is_of(whose));
        if !is_there && self.may_take(whose.0, now_ns) {
            self.take(whose, now_ns);
        }
    }

    /// Keeps a value whose first piece has been answered, if the client may have a place.
    pub(super) fn keep(
        &mut self,
        whose: (u32, &[u8]),
        item: (u64, u32, Segments<'_>),
        first_len: usize,
        now_ns: u64,
    ) {
        if !self.places.iter().any(|place| place.is_of(whose)) {
            if !self.may_take(whose.0, now_ns) {
                return;
            }
            self.take(whose, now_ns);
        }
        self.fill(whose, item, first_len, now_ns);
    }

    /// Keeps a value for which there is a place. Bytes before `answered` count as answered: whoever asks
    /// for others in order has them.
    pub(super) fn fill(
        &mut self,
        whose: (u32, &[u8]),
        (cas, flags, value): (u64, u32, Segments<'_>),
        answered: usize,
        now_ns: u64,
    ) {
        let Some(place) = self.places.iter_mut().find(|place| place.is_of(whose)) else {
            return;
        };
        let mut kept = Kept::new(value, flags, cas);
        kept.note(0..answered);
        place.kept = Some(kept);
        place.used_ns = now_ns;
        self.has_changed = true;
    }

    /// Notes that bytes of a value have been answered, and forgets it with the last ones, unless requests
    /// for others have been parked meanwhile.
    pub(super) fn note(&mut self, whose: (u32, &[u8]), cas: u64, bytes: Range<usize>) {
        let Some(index) = self.places.iter().position(|place| place.is_of(whose)) else {
            return;
        };
        let Some(kept) = &mut self.places[index].kept else {
            return;
        };
        if kept.cas != cas {
            return;
        }
        kept.note(bytes);
        let mut parked = self.parked.iter();
        if kept.unanswered == 0 && !parked.any(|one| (one.client, &one.key[..]) == whose) {
            self.places.swap_remove(index);
            self.has_changed = true;
        }
    }

    /// Gives up the place that was held for a value, if reading has not brought it.
    pub(super) fn give_up(&mut self, whose: (u32, &[u8])) {
        let count = self.places.len();
        self.places
            .retain(|place| place.kept.is_some() || !place.is_of(whose));
        self.has_changed |= self.places.len() < count;
    }

    /// Notes that a promise waits for its turn.
    pub(super) fn park(&mut self, number: u32, (client, key): (u32, &[u8]), now_ns: u64) {
        self.parked.push(Parked {
            number,
            client,
            key: key.to_vec(),
            since_ns: now_ns,
        });
    }

    /// Whether promises wait for their turn.
    #[inline]
    pub(super) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Names the promises whose turn has come.
    pub(super) fn call(&mut self, now_ns: u64, mut name: impl FnMut(u32)) {
        if !self.has_changed && now_ns < self.check_ns {
            return;
        }
        self.has_changed = false;
        self.check_ns = now_ns + CHECK_NS;
        for index in 0..self.parked.len() {
            let Parked {
                number,
                client,
                since_ns,
                ..
            } = self.parked[index];
            let has_place = self.places.iter().any(|place| place.client == client);
            // One that has waited for a value that was not read after all has no turn yet.
            let mut waiting = self.waiting.iter();
            let has_waited = waiting
                .find(|one| one.client == client)
                .is_none_or(|one| is_long_ago(one.since_ns.min(since_ns), now_ns));
            if has_place || has_waited || self.may_take(client, now_ns) {
                name(number);
            }
        }
    }

    /// Forgets a client.
    pub(super) fn release_client(&mut self, client: u32) {
        self.places.retain(|place| place.client != client);
        self.waiting.retain(|waiting| waiting.client != client);
        self.parked.retain(|parked| parked.client != client);
        self.has_changed = true;
    }

    /// Values that are kept, or being read to be kept.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether a client may take a place: one besides those for whoever waits before it. Only places that
    /// are not idle count. One client never takes the last place if there are several.
    fn may_take(&mut self, client: u32, now_ns: u64) -> bool {
        let parked = &self.parked;
        self.waiting.retain(|one| {
            now_ns.saturating_sub(one.asked_ns) <= IDLE_NS
                || parked.iter().any(|parked| parked.client == one.client)
        });
        let in_use = self.places.iter().filter(|place| !place.is_idle(now_ns));
        let free = self.count_max.saturating_sub(in_use.count());
        let before = self.waiting.iter().take_while(|one| one.client != client);
        let before = before.filter(|one| !self.has_its_share(one.client, now_ns));
        free > before.count() && !self.has_its_share(client, now_ns)
    }

    fn has_its_share(&self, client: u32, now_ns: u64) -> bool {
        let is_its = |place: &&Place| place.client == client && !place.is_idle(now_ns);
        let held = self.places.iter().filter(is_its).count();
        held > 0 && held + 1 >= self.count_max
    }

    /// Takes a place, that of whoever has asked nothing for longest if all are taken.
    fn take(&mut self, (client, key): (u32, &[u8]), now_ns: u64) {
        if self.places.len() >= self.count_max {
            let idle = (0..self.places.len()).filter(|&at| self.places[at].is_idle(now_ns));
            let oldest = idle.min_by_key(|&at| self.places[at].used_ns);
            self.places
                .swap_remove(oldest.expect("the caller has asked for a place"));
        }
        self.waiting.retain(|waiting| waiting.client != client);
        self.places.push(Place {
            client,
            key: key.to_vec(),
            kept: None,
            used_ns: now_ns,
        });
    }
}

/// Whether a wait that began then has taken long enough.
fn is_long_ago(since_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(since_ns) >= PATIENCE_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAS: u64 = 7;

    fn keep(outgoing: &mut Outgoing, client: u32, key: &[u8], now_ns: u64) -> bool {
        outgoing.keep((client, key), (CAS, 0, b"value".into()), 0, now_ns);
        let turn = outgoing.turn((client, key), CAS, None, now_ns);
        matches!(turn, Turn::Answer(_))
    }

    fn must_park(outgoing: &mut Outgoing, client: u32, key: &[u8], now_ns: u64) -> bool {
        let turn = outgoing.turn((client, key), CAS, None, now_ns);
        matches!(turn, Turn::Park)
    }

    fn called(outgoing: &mut Outgoing, now_ns: u64) -> Vec<u32> {
        let mut numbers = Vec::new();
        outgoing.call(now_ns, |number| numbers.push(number));
        numbers
    }

    #[test]
    fn one_client_cannot_keep_them_all_and_idle_ones_make_room() {
        let mut outgoing = Outgoing::new(3);
        assert!(keep(&mut outgoing, 1, b"a", 0));
        assert!(keep(&mut outgoing, 1, b"b", 50));
        assert!(!keep(&mut outgoing, 1, b"c", 50));
        assert!(keep(&mut outgoing, 2, b"a", 50));
        assert!(!keep(&mut outgoing, 3, b"a", IDLE_NS));
        assert!(keep(&mut outgoing, 1, b"c", IDLE_NS + 1), "`a` was idle");
        assert!(!keep(&mut outgoing, 3, b"a", IDLE_NS + 1), "all are taken");
        let other = outgoing.turn((1, b"b"), CAS + 1, None, IDLE_NS + 1);
        assert!(matches!(other, Turn::Read), "another token");
        outgoing.note((2, b"a"), CAS, 0..5);
        outgoing.release_client(1);
        assert_eq!(outgoing.len(), 0);
    }

    #[test]
    fn a_value_goes_with_the_last_of_its_bytes_whichever_that_is() {
        let len = 10_000;
        let pieces: Vec<_> = (0..len).step_by(37).map(|at| at..at + 37).collect();
        let forwards = pieces.clone();
        let backwards = pieces.iter().rev().cloned().collect();
        let odd_ones_first = [1, 0].map(|start| pieces.iter().skip(start).step_by(2).cloned());
        let odd_ones_first = odd_ones_first.into_iter().flatten().collect();
        for order in [forwards, backwards, odd_ones_first] {
            let mut outgoing = Outgoing::new(1);
            let whose = (1, &b"key"[..]);
            let value = vec![1; len];
            outgoing.keep(whose, (CAS, 0, (&value).into()), 0, 0);
            outgoing.note(whose, CAS + 1, 0..len);
            for piece in order {
                assert_eq!(outgoing.len(), 1);
                outgoing.note(whose, CAS, piece.clone());
                outgoing.note(whose, CAS, piece);
            }
            assert_eq!(outgoing.len(), 0);
        }
    }

    /// Whoever has just been served comes behind those who wait.
    #[test]
    fn clients_get_places_in_the_order_in_which_they_asked() {
        let mut outgoing = Outgoing::new(2);
        for client in [1, 2] {
            assert!(keep(&mut outgoing, client, b"a", 0));
        }
        for (number, client) in [(30, 3), (40, 4), (31, 3)] {
            assert!(must_park(&mut outgoing, client, b"a", 1));
            outgoing.park(number, (client, b"a"), 1);
        }
        assert_eq!(called(&mut outgoing, 1), []);
        outgoing.note((1, b"a"), CAS, 0..5);
        assert!(!keep(&mut outgoing, 1, b"b", 2));
        assert!(must_park(&mut outgoing, 1, b"b", 2));
        assert_eq!(called(&mut outgoing, 2), [30, 31]);
        // The first of them reads the value, and the other waits for that.
        let turn = outgoing.turn((3, b"a"), CAS, Some(30), 2);
        assert!(matches!(turn, Turn::Read));
        outgoing.reserve((3, b"a"), 2);
        let turn = outgoing.turn((3, b"a"), CAS, Some(31), 2);
        assert!(matches!(turn, Turn::Park));
        // It has failed; the next one tries, though 4 waits.
        outgoing.give_up((3, b"a"));
        assert_eq!(called(&mut outgoing, 3), [40, 31]);
        outgoing.release_client(2);
        outgoing.release_client(4);
        assert_eq!(called(&mut outgoing, 3), [31]);
    }

    /// Whether those who have the places go on, or have vanished.
    #[test]
    fn every_wait_ends() {
        for go_on in [true, false] {
            let mut outgoing = Outgoing::new(2);
            for client in [1, 2] {
                assert!(keep(&mut outgoing, client, b"a", 0));
            }
            assert!(must_park(&mut outgoing, 3, b"a", 0));
            outgoing.park(9, (3, b"a"), 0);
            let mut now_ns = 0;
            while called(&mut outgoing, now_ns).is_empty() {
                now_ns += CHECK_NS;
                for client in [1, 2] {
                    if go_on {
                        let turn = outgoing.turn((client, b"a"), CAS, None, now_ns);
                        assert!(matches!(turn, Turn::Answer(_)));
                    }
                }
                assert!(now_ns <= PATIENCE_NS);
            }
            assert_eq!(go_on, now_ns == PATIENCE_NS);
            let turn = outgoing.turn((3, b"a"), CAS, Some(9), now_ns);
            assert!(matches!(turn, Turn::Read));
            // It does not wait again for the next piece, and holds no place that there is not.
            outgoing.reserve((3, b"a"), now_ns);
            let turn = outgoing.turn((3, b"a"), CAS, None, now_ns);
            assert_eq!(go_on, matches!(turn, Turn::Read));
            assert_eq!(outgoing.len(), 2);
        }
    }
}
