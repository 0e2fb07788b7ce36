//! Where a poll puts what it found: completions, and the messages that it lends.
//!
//! A queue pair made with [`LentRecvs`](crate::attr::LentRecvs) posts no RECVs: the NIC copies
//! each message once, into the memory of the [`Polled`] that the poller brings, and lends it from
//! there until the next poll. That memory is the poller's own and never a peer's, so that a `&[u8]`
//! of it does not change under its reader.

use std::iter::Zip;
use std::slice::IterMut;

use crate::wc::Wc;

/// No message is lent with this completion.
const NOTHING: u32 = u32::MAX;
/// Bytes of a word, on which messages begin.
const WORD: usize = 8;

/// Completions, and the messages lent with them.
#[derive(Debug)]
pub struct Polled {
    /// Those of before the last clearing stay behind the first `len`.
    wcs: Box<[Wc]>,
    /// Where each completion's message starts in `bytes`, if it has one.
    places: Box<[u32]>,
    /// Any has one.
    lends: bool,
    len: usize,
    /// Completions that the next poll may bring.
    max: usize,
    /// Whole words.
    bytes: Box<[u8]>,
    /// Bytes that are lent, in whole words.
    used: usize,
    /// A message did not fit.
    is_short: bool,
}

impl Polled {
    /// Room for `max` completions a poll, and for no message.
    pub fn new(max: usize) -> Self {
        Polled::with_bytes(max, 0)
    }

    /// Room for `max` completions and `bytes` of messages a poll. A message that is longer than all
    /// of the room makes it grow.
    pub fn with_bytes(max: usize, bytes: usize) -> Self {
        Polled {
            wcs: vec![Wc::default(); max].into(),
            places: vec![NOTHING; max].into(),
            lends: false,
            len: 0,
            max,
            bytes: vec![0; bytes.next_multiple_of(WORD)].into(),
            used: 0,
            is_short: false,
        }
    }

    /// Has the next polls bring at most so many completions.
    #[inline]
    pub fn set_max(&mut self, max: usize) {
        if max > self.wcs.len() {
            self.make_room(max);
        }
        self.max = max;
    }

    #[cold]
    fn make_room(&mut self, max: usize) {
        let (mut wcs, mut places) = (self.wcs.to_vec(), self.places.to_vec());
        wcs.resize(max, Wc::default());
        places.resize(max, NOTHING);
        (self.wcs, self.places) = (wcs.into(), places.into());
    }

    /// The completions, in order per queue pair.
    #[inline]
    pub fn completions(&self) -> &[Wc] {
        &self.wcs[..self.len]
    }

    /// Whether the last poll may have left something for want of room.
    #[inline]
    pub fn was_short(&self) -> bool {
        self.is_full() || self.is_short
    }

    /// The completions with their messages, which are lent until the next poll. A datagram's
    /// message starts with its route header, as in a RECV.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Wc, Option<&[u8]>)> {
        let places = &self.places[..self.len];
        self.completions().iter().zip(places).map(|(wc, place)| {
            let lent = |place: usize| &self.bytes[place..][..wc.byte_len as usize];
            (wc, (*place != NOTHING).then(|| lent(*place as usize)))
        })
    }

    /// Forgets everything. A NIC does this at the beginning of a poll.
    #[inline]
    pub fn clear(&mut self) {
        if self.lends {
            self.places[..self.len].fill(NOTHING);
            self.lends = false;
        }
        self.len = 0;
        self.used = 0;
        self.is_short = false;
    }

    /// Completions that still fit, for a NIC.
    #[inline]
    pub fn room(&self) -> usize {
        self.max.saturating_sub(self.len)
    }

    /// Bytes of messages that fit a poll.
    pub fn bytes_max(&self) -> usize {
        self.bytes.len()
    }

    /// Whether no more fit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len >= self.max
    }

    /// Appends a completion, for a NIC that has looked for [`room`](Self::room).
    #[inline]
    pub fn push(&mut self, wc: Wc) {
        debug_assert!(!self.is_full());
        self.wcs[self.len] = wc;
        self.len += 1;
    }

    /// The completion that was appended last.
    pub fn last_mut(&mut self) -> Option<&mut Wc> {
        self.wcs[..self.len].last_mut()
    }

    /// Room for a message of `len` bytes; `None` when it has to wait for the next poll.
    #[inline]
    pub fn lend(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.bytes.len() - self.used && !self.grow(len) {
            return None;
        }
        Some(&mut self.bytes[self.used..][..len])
    }

    /// Makes room for a message that is longer than all of it; false while others are lent.
    #[cold]
    fn grow(&mut self, len: usize) -> bool {
        self.is_short |= self.used > 0;
        if self.used == 0 {
            self.bytes = vec![0; len.next_multiple_of(WORD)].into();
        }
        self.used == 0
    }

    /// Appends the completion of a message of `wc.byte_len` bytes, which stands where
    /// [`lend`](Self::lend) said.
    ///
    /// # Panics
    /// When that many bytes were not lent.
    #[inline(always)]
    pub fn push_lent(&mut self, wc: Wc) {
        let len = wc.byte_len as usize;
        assert!(len <= self.bytes.len() - self.used, "bytes that were lent");
        self.places[self.len] = self.used as u32;
        self.lends = true;
        self.push(wc);
        self.used += (len + WORD - 1) & !(WORD - 1);
    }

    /// Begins to lend many messages, for a NIC: what it needs for that is looked up once.
    #[inline(always)]
    pub fn lending(&mut self) -> Lending<'_> {
        let free = self.len.min(self.max)..self.max;
        Lending {
            entries: self.wcs[free.clone()]
                .iter_mut()
                .zip(&mut self.places[free]),
            bytes: &mut self.bytes[self.used..],
            used_now: self.used,
            used: &mut self.used,
            len: &mut self.len,
            max: self.max,
            lends: &mut self.lends,
        }
    }

    /// Changes completions, or takes out those of which `keep` says so. For decorators. What made
    /// the poll [short](Self::was_short) is still there to be polled.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut Wc) -> bool) {
        self.is_short |= self.is_full();
        let (mut kept, before) = (0, self.len);
        for index in 0..before {
            let mut wc = self.wcs[index];
            if keep(&mut wc) {
                self.wcs[kept] = wc;
                self.places[kept] = self.places[index];
                kept += 1;
            }
        }
        self.places[kept..before].fill(NOTHING);
        self.len = kept;
    }
}

/// Appends messages to a [`Polled`], which holds them from the moment when this is dropped.
#[derive(Debug)]
pub struct Lending<'p> {
    entries: Zip<IterMut<'p, Wc>, IterMut<'p, u32>>,
    /// Those that are left.
    bytes: &'p mut [u8],
    used: &'p mut usize,
    used_now: usize,
    len: &'p mut usize,
    max: usize,
    lends: &'p mut bool,
}

impl<'p> Lending<'p> {
    /// Appends the completion of a message, and lends room for its `wc.byte_len` bytes; `None`, and
    /// nothing is appended, when the message has to go another way or to wait.
    #[inline(always)]
    pub fn push(&mut self, wc: Wc) -> Option<&'p mut [u8]> {
        let len = wc.byte_len as usize;
        if len > self.bytes.len() {
            return None;
        }
        let (wc_to, place) = self.entries.next()?;
        *wc_to = wc;
        *place = self.used_now as u32;
        // Whole words, as there are.
        let words = (len + WORD - 1) & !(WORD - 1);
        let (room, rest) = std::mem::take(&mut self.bytes).split_at_mut(words);
        self.bytes = rest;
        self.used_now += words;
        Some(&mut room[..len])
    }
}

impl Drop for Lending<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // There may be more than `max` already, and then nothing was appended.
        let len = (self.max - self.entries.len()).max(*self.len);
        *self.lends |= len > *self.len;
        *self.len = len;
        *self.used = self.used_now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_lent_with_its_own_completion_whatever_was_taken_out() {
        let lent = |id, len: usize| Wc {
            id,
            byte_len: len as u32,
            ..Wc::default()
        };
        let mut polled = Polled::with_bytes(8, 32);
        for round in 0..2u8 {
            polled.clear();
            polled.push(lent(0, 5));
            for (id, len) in [(1, 3), (3, 4)] {
                polled.lend(len).expect("room").fill(id as u8 + round);
                polled.push_lent(lent(id, len));
                polled.push(lent(id + 1, 6));
            }
            let brought = |polled: &Polled| -> Vec<_> {
                let owned =
                    |(wc, message): (&Wc, Option<&[u8]>)| (wc.id, message.map(<[u8]>::to_vec));
                polled.iter().map(owned).collect()
            };
            let (first, second) = (Some(vec![1 + round; 3]), Some(vec![3 + round; 4]));
            assert_eq!(
                brought(&polled),
                [
                    (0, None),
                    (1, first),
                    (2, None),
                    (3, second.clone()),
                    (4, None)
                ]
            );
            polled.retain(|wc| wc.id > 1);
            assert_eq!(brought(&polled), [(2, None), (3, second), (4, None)]);
        }
    }

    #[test]
    fn many_are_lent_as_one_by_one_as_long_as_there_is_room() {
        let wc = |id, len: usize| Wc {
            id,
            byte_len: len as u32,
            ..Wc::default()
        };
        // Four completions, of which one is there, and six words, of which one is used.
        let mut polled = Polled::with_bytes(4, 48);
        polled.set_max(3);
        polled.lend(3).expect("room").fill(9);
        polled.push_lent(wc(9, 3));
        let mut lending = polled.lending();
        assert!(lending.push(wc(7, 41)).is_none(), "more than five words");
        lending.push(wc(1, 20)).expect("room").fill(1);
        lending.push(wc(2, 16)).expect("room").fill(2);
        assert!(lending.push(wc(3, 0)).is_none(), "no more than three");
        drop(lending);
        let brought: Vec<_> = polled.iter().map(|(wc, bytes)| (wc.id, bytes)).collect();
        assert_eq!(
            brought,
            [
                (9, Some(&[9; 3][..])),
                (1, Some(&[1; 20][..])),
                (2, Some(&[2; 16][..]))
            ]
        );
        assert!(polled.was_short() && polled.lend(1).is_none());
        // What comes behind lends nothing, and neither do those of the next poll in its places.
        polled.clear();
        polled.lending().push(wc(4, 8)).expect("room").fill(4);
        drop(polled.lending());
        polled.push(wc(5, 3));
        let lent = |polled: &Polled| -> Vec<_> {
            let len = |message: Option<&[u8]>| message.map(<[u8]>::len);
            polled.iter().map(|(_, message)| len(message)).collect()
        };
        assert_eq!(lent(&polled), [Some(8), None]);
        polled.clear();
        polled.push(wc(6, 3));
        assert_eq!(lent(&polled), [None]);
    }

    #[test]
    fn lending_takes_nothing_away_from_one_that_holds_more_than_it_may_bring_now() {
        let mut polled = Polled::with_bytes(4, 8);
        (0..3).for_each(|_| polled.push(Wc::default()));
        polled.set_max(1);
        assert!(polled.lending().push(Wc::default()).is_none());
        assert_eq!(polled.completions().len(), 3);
    }

    #[test]
    fn taking_completions_out_does_not_hide_that_there_may_be_more() {
        let mut polled = Polled::new(2);
        polled.push(Wc::default());
        polled.push(Wc::default());
        polled.retain(|_| false);
        assert!(polled.completions().is_empty() && polled.was_short());
        polled.clear();
        polled.push(Wc::default());
        polled.retain(|_| true);
        assert!(!polled.was_short());
    }
}
