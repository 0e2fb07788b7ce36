//! Where a poll puts what it found: completions, and the messages that it lends.
//!
//! A queue pair made with [`LentRecvs`](crate::attr::LentRecvs) posts no RECVs: the NIC copies
//! each message once, into the memory of the [`Polled`] that the poller brings, and lends it from
//! there until the next poll. That memory is the poller's own and never a peer's, so that a `&[u8]`
//! of it does not change under its reader.

use crate::wc::Wc;

/// No message is lent with this completion.
const NOTHING: u32 = u32::MAX;

/// Completions, and the messages lent with them.
#[derive(Debug)]
pub struct Polled {
    wcs: Vec<Wc>,
    /// Where each completion's message starts in `bytes`.
    places: Vec<u32>,
    /// Completions that the next poll may bring.
    max: usize,
    bytes: Box<[u8]>,
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
            wcs: Vec::with_capacity(max),
            places: Vec::with_capacity(max),
            max,
            bytes: vec![0; bytes].into(),
            used: 0,
            is_short: false,
        }
    }

    /// Has the next polls bring at most so many completions.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// The completions, in order per queue pair.
    #[inline]
    pub fn completions(&self) -> &[Wc] {
        &self.wcs
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
        self.wcs.iter().zip(&self.places).map(|(wc, place)| {
            let lent = |place: usize| &self.bytes[place..place + wc.byte_len as usize];
            (wc, (*place != NOTHING).then(|| lent(*place as usize)))
        })
    }

    /// Forgets everything. A NIC does this at the beginning of a poll.
    #[inline]
    pub fn clear(&mut self) {
        self.wcs.clear();
        self.places.clear();
        self.used = 0;
        self.is_short = false;
    }

    /// Completions that still fit, for a NIC.
    #[inline]
    pub fn room(&self) -> usize {
        self.max.saturating_sub(self.wcs.len())
    }

    /// Bytes of messages that fit a poll.
    pub fn bytes_max(&self) -> usize {
        self.bytes.len()
    }

    /// Whether no more fit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.wcs.len() >= self.max
    }

    /// Appends a completion, for a NIC that has looked for [`room`](Self::room).
    #[inline]
    pub fn push(&mut self, wc: Wc) {
        debug_assert!(!self.is_full());
        self.wcs.push(wc);
        self.places.push(NOTHING);
    }

    /// Room for a message of `len` bytes; `None` when it has to wait for the next poll.
    #[inline]
    pub fn lend(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.bytes.len() - self.used {
            if self.used > 0 {
                self.is_short = true;
                return None;
            }
            self.bytes = vec![0; len].into();
        }
        Some(&mut self.bytes[self.used..self.used + len])
    }

    /// Appends the completion of a message of `wc.byte_len` bytes, which stands where
    /// [`lend`](Self::lend) said.
    ///
    /// # Panics
    /// When that many bytes were not lent.
    #[inline]
    pub fn push_lent(&mut self, wc: Wc) {
        debug_assert!(!self.is_full());
        let len = wc.byte_len as usize;
        assert!(len <= self.bytes.len() - self.used, "bytes that were lent");
        self.wcs.push(wc);
        self.places.push(self.used as u32);
        self.used += len.next_multiple_of(8).min(self.bytes.len() - self.used);
    }

    /// Changes completions, or takes out those of which `keep` says so. For decorators. What made
    /// the poll [short](Self::was_short) is still there to be polled.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut Wc) -> bool) {
        self.is_short |= self.is_full();
        let mut kept = 0;
        for index in 0..self.wcs.len() {
            let mut wc = self.wcs[index];
            if keep(&mut wc) {
                self.wcs[kept] = wc;
                self.places[kept] = self.places[index];
                kept += 1;
            }
        }
        self.wcs.truncate(kept);
        self.places.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
