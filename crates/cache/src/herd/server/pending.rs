//! Requests whose answers the engine has promised.
//!
//! A promise keeps its request's result slot: until it is kept, a repeat of the request waits with it.
//! When an engine's answer is there, it wakes the promise's waker, which sets a bit in a list of the
//! core; the core goes through the bits that are set, and through nothing else.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::answers::Range;
use super::ready::Ready;

/// Promises of a core at most, whatever the windows of its clients add up to.
pub(super) const PENDING_MAX: usize = 4096;

/// Instead of the number or the index of a client that has gone.
pub(super) const NO_CLIENT: u32 = u32::MAX;

/// What the answer to a request looks like.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// The value, or its first piece.
    Read { is_repeat: bool },
    /// A piece of the value, as long as the item has the token. Whether a place is held for the value.
    Range { range: Range, has_place: bool },
    /// How a change ended.
    Change,
    /// How storing a large value ended, whose staging buffer is free then.
    Commit { buffer: u32 },
}

/// Whose request it was, and how it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The client's index, or [`NO_CLIENT`].
    pub(super) client: u32,
    pub(super) id: u32,
    pub(super) wants_cas: bool,
    pub(super) form: Form,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Promise<T> {
    pub(super) ticket: T,
    pub(super) asked: Asked,
}

/// The promises of a core.
#[derive(Debug)]
pub(super) struct Pending<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    ready: Arc<Ready>,
    /// Where the next look at those that are woken begins, so that each has its turn.
    start: usize,
}

/// Room for a promise; key and waker stay when it is kept.
#[derive(Debug)]
pub(super) struct Place<T> {
    pub(super) promise: Option<Promise<T>>,
    /// The key of a read.
    pub(super) key: Vec<u8>,
    pub(super) waker: Waker,
}

/// Wakes one promise.
struct Bit {
    ready: Arc<Ready>,
    number: usize,
}

impl Wake for Bit {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.set(self.number);
    }
}

impl<T> Pending<T> {
    pub(super) fn new() -> Self {
        Pending {
            places: Vec::new(),
            free: Vec::new(),
            start: 0,
            ready: Arc::new(Ready::new(PENDING_MAX)),
        }
    }

    /// Promises that are not kept.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// How many more may be made.
    #[inline]
    pub(super) fn room(&self) -> usize {
        PENDING_MAX - self.len()
    }

    /// Whether the engine has woken any.
    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        self.ready.has_any()
    }

    /// Keeps a promise, and gives its number. The caller has looked for room.
    pub(super) fn add(&mut self, promise: Promise<T>, key: &[u8]) -> usize {
        let number = match self.free.pop() {
            Some(number) => number as usize,
            None => {
                let number = self.places.len();
                assert!(number < PENDING_MAX, "more promises than there is room for");
                let ready = Arc::clone(&self.ready);
                self.places.push(Place {
                    promise: None,
                    key: Vec::new(),
                    waker: Waker::from(Arc::new(Bit { ready, number })),
                });
                number
            }
        };
        let place = &mut self.places[number];
        place.promise = Some(promise);
        place.key.clear();
        place.key.extend_from_slice(key);
        number
    }

    pub(super) fn place(&mut self, number: usize) -> &mut Place<T> {
        &mut self.places[number]
    }

    /// Gives a promise up, or ends one that was kept.
    pub(super) fn remove(&mut self, number: usize) -> Option<Asked> {
        let promise = self.places[number].promise.take()?;
        self.free.push(number as u32);
        Some(promise.asked)
    }

    /// Takes the numbers of up to `count_max` promises that were woken.
    pub(super) fn take_ready(&mut self, count_max: usize, numbers: &mut Vec<u32>) {
        self.start = self.ready.take(self.start, count_max, numbers);
    }

    /// Gives up the promises of a client that has gone, whose index the last one takes. Those of large
    /// values stay, and keep their buffers, until the engine has answered.
    pub(super) fn detach(&mut self, index: u32, last: u32) {
        for number in 0..self.places.len() {
            let Some(promise) = &mut self.places[number].promise else {
                continue;
            };
            if promise.asked.client == index {
                if matches!(promise.asked.form, Form::Commit { .. }) {
                    promise.asked.client = NO_CLIENT;
                } else {
                    self.remove(number);
                }
            } else if promise.asked.client == last {
                promise.asked.client = index;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(client: u32) -> Promise<()> {
        let asked = Asked {
            client,
            id: 1,
            wants_cas: false,
            form: Form::Change,
        };
        Promise { ticket: (), asked }
    }

    fn ready(pending: &mut Pending<()>, count_max: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        pending.take_ready(count_max, &mut numbers);
        numbers
    }

    #[test]
    fn those_that_are_woken_are_found_and_no_others() {
        let mut pending = Pending::new();
        for client in 0..200 {
            assert_eq!(pending.add(promise(client), b""), client as usize);
        }
        assert!(!pending.has_ready());
        for number in [3, 64, 65, 199] {
            pending.place(number).waker.wake_by_ref();
        }
        assert!(pending.has_ready());
        // What there is no time for is found the next time, and comes before what is woken again.
        assert_eq!(ready(&mut pending, 2), [3, 64]);
        assert!(pending.has_ready());
        for number in [3, 64] {
            pending.place(number).waker.wake_by_ref();
        }
        assert_eq!(ready(&mut pending, 2), [65, 199]);
        assert!(pending.has_ready());
        assert_eq!(ready(&mut pending, 2), [3, 64]);
        assert_eq!(ready(&mut pending, 2), []);
        assert!(!pending.has_ready());
    }

    #[test]
    fn those_of_large_values_outlive_their_client() {
        let mut pending = Pending::new();
        let mut large = promise(0);
        large.asked.form = Form::Commit { buffer: 3 };
        pending.add(promise(0), b"");
        pending.add(large, b"");
        pending.detach(0, 0);
        assert_eq!(pending.len(), 1);
        pending.detach(0, 0);
        let asked = pending.remove(1).map(|asked| asked.client);
        assert_eq!(asked, Some(NO_CLIENT));
    }

    #[test]
    fn those_of_a_client_that_goes_are_given_up_and_the_last_one_takes_its_index() {
        let mut pending = Pending::new();
        for client in [0, 1, 2, 0] {
            pending.add(promise(client), b"");
        }
        pending.detach(0, 2);
        assert_eq!(pending.len(), 2);
        let clients: Vec<_> = (0..4)
            .filter_map(|number| pending.remove(number))
            .map(|asked| asked.client)
            .collect();
        assert_eq!(clients, [1, 0]);
        assert_eq!(pending.room(), PENDING_MAX);
    }
}
