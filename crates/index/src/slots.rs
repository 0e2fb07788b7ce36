//! Who may go on with what: a queue for each object, first come, first served.
//!
//! A request takes all its places in the queues when it is first polled, in one step, and so requests
//! have one order everywhere: that of their numbers. It goes on when none before it, in any of its
//! queues, is in its way. What it finds out only then (which object a name leads to), it queues up for
//! with [`Held::extend`], in the place that its number gives it; until all of it is granted again, those
//! with lower numbers go first, and it has to look again afterwards. A request waits only for lower
//! numbers and for those that need nothing more, so that no two wait for each other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use files::{Handle, VolumeId};

/// What is queued for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// An object.
    Object(Handle),
    /// A file's block map, by who holds the file for data.
    Map(Handle),
    /// Moves of directories from one directory to another: one at a time in a volume, so that the way
    /// from a directory to the root stands still while it is walked.
    Moves(VolumeId),
}

/// What for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Looks at attributes, or lists.
    Look,
    /// Moves data.
    Data,
    /// Looks up a name of this hash.
    Name(u64),
    /// Adds or removes a name of this hash.
    Entry(u64),
    /// Does what nothing else may accompany.
    Exclusive,
}

impl Mode {
    fn conflicts(self, other: Self) -> bool {
        use Mode::{Data, Entry, Exclusive, Look, Name};
        match (self, other) {
            (Exclusive, _) | (_, Exclusive) => true,
            (Entry(one), Entry(two) | Name(two)) | (Name(one), Entry(two)) => one == two,
            (Entry(_), Look) | (Look, Entry(_)) => true,
            (Entry(_), Data) | (Data, Entry(_)) => false,
            (Look | Data | Name(_), Look | Data | Name(_)) => false,
        }
    }
}

struct Ticket {
    number: u64,
    mode: Mode,
}

struct Waiting {
    tickets: Vec<(Place, Mode)>,
    is_granted: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct State {
    last: u64,
    queues: HashMap<Place, Vec<Ticket>>,
    requests: HashMap<u64, Waiting>,
}

/// All queues of an index.
#[derive(Clone, Default)]
pub(crate) struct Slots(Rc<RefCell<State>>);

/// A request's places in its queues; dropping it gives them up.
pub(crate) struct Held {
    slots: Slots,
    number: u64,
}

impl Slots {
    /// Queues up, at the end.
    pub(crate) fn enter(&self, tickets: &[(Place, Mode)]) -> Held {
        let mut state = self.0.borrow_mut();
        state.last += 1;
        let number = state.last;
        let waiting = Waiting {
            tickets: Vec::new(),
            is_granted: false,
            waker: None,
        };
        state.requests.insert(number, waiting);
        state.add(number, tickets);
        state.try_grant(number);
        Held {
            slots: self.clone(),
            number,
        }
    }

    /// Whether nobody stands in a queue.
    pub(crate) fn is_free(&self, place: Place) -> bool {
        !self.0.borrow().queues.contains_key(&place)
    }
}

impl Held {
    /// Waits until it is its turn, everywhere.
    pub(crate) async fn ready(&self) {
        poll_fn(|cx| {
            let mut state = self.slots.0.borrow_mut();
            let waiting = state.request(self.number);
            if waiting.is_granted {
                return Poll::Ready(());
            }
            waiting.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Queues up for more, and waits. Returns whether it has gone on without a break: if not, others may
    /// have been first, and what was read has to be read again.
    pub(crate) async fn extend(&self, tickets: &[(Place, Mode)]) -> bool {
        let is_new = |state: &State, ticket: &(Place, Mode)| {
            let waiting = &state.requests[&self.number];
            !waiting.tickets.contains(ticket)
        };
        let went_on = {
            let mut state = self.slots.0.borrow_mut();
            let mut new: Vec<_> = tickets.to_vec();
            new.retain(|ticket| is_new(&state, ticket));
            if new.is_empty() && state.request(self.number).is_granted {
                return true;
            }
            state.add(self.number, &new);
            state.request(self.number).is_granted = false;
            let went_on = state.try_grant(self.number);
            if !went_on {
                // Those before it that it was in the way of go first.
                let places = state.places(self.number);
                state.grant(&places);
            }
            went_on
        };
        self.ready().await;
        went_on
    }
}

impl Held {
    /// Whether it stands in a queue.
    pub(crate) fn is_at(&self, place: Place) -> bool {
        let state = self.slots.0.borrow();
        let mut tickets = state.requests[&self.number].tickets.iter();
        tickets.any(|(other, _)| *other == place)
    }

    /// Gives up a place, and keeps the others.
    pub(crate) fn give_up(&self, place: Place) {
        let mut state = self.slots.0.borrow_mut();
        let waiting = state.request(self.number);
        waiting.tickets.retain(|(other, _)| *other != place);
        state.remove(self.number, place);
        state.grant(&[place]);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.slots.0.borrow_mut();
        let places = state.places(self.number);
        state.requests.remove(&self.number);
        for place in &places {
            state.remove(self.number, *place);
        }
        state.grant(&places);
    }
}

impl State {
    fn request(&mut self, number: u64) -> &mut Waiting {
        let waiting = self.requests.get_mut(&number);
        waiting.expect("a request stands in its queues for as long as it is held")
    }

    fn places(&self, number: u64) -> Vec<Place> {
        let tickets = &self.requests[&number].tickets;
        let mut places: Vec<Place> = tickets.iter().map(|(place, _)| *place).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    fn add(&mut self, number: u64, tickets: &[(Place, Mode)]) {
        for (place, mode) in tickets {
            let queue = self.queues.entry(*place).or_default();
            let ticket = Ticket {
                number,
                mode: *mode,
            };
            queue.push(ticket);
        }
        self.request(number).tickets.extend_from_slice(tickets);
    }

    fn remove(&mut self, number: u64, place: Place) {
        if let Some(queue) = self.queues.get_mut(&place) {
            queue.retain(|ticket| ticket.number != number);
            if queue.is_empty() {
                self.queues.remove(&place);
            }
        }
    }

    fn may_go_on(&self, number: u64) -> bool {
        let is_before = |other: &Ticket| {
            other.number < number
                || self
                    .requests
                    .get(&other.number)
                    .is_some_and(|it| it.is_granted)
        };
        let tickets = &self.requests[&number].tickets;
        tickets.iter().all(|(place, mode)| {
            let mut others = self.queues[place].iter();
            !others.any(|other| {
                other.number != number && mode.conflicts(other.mode) && is_before(other)
            })
        })
    }

    fn try_grant(&mut self, number: u64) -> bool {
        let is_granted = self.may_go_on(number);
        let waiting = self.request(number);
        waiting.is_granted = is_granted;
        is_granted
    }

    /// Lets those go on who can, in these queues.
    fn grant(&mut self, places: &[Place]) {
        let queues = places.iter().filter_map(|place| self.queues.get(place));
        let mut numbers: Vec<u64> = queues.flatten().map(|ticket| ticket.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            if !self.requests[&number].is_granted
                && self.try_grant(number)
                && let Some(waker) = self.request(number).waker.take()
            {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    use files::FileId;

    use super::*;

    fn object(serial: u64) -> Place {
        Place::Object(Handle {
            volume: VolumeId(1),
            file: FileId(serial),
        })
    }

    fn is_ready(held: &Held) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(held.ready()).poll(&mut cx).is_ready()
    }

    #[test]
    fn first_come_first_served_and_others_beside_them() {
        let slots = Slots::default();
        let look = slots.enter(&[(object(1), Mode::Look)]);
        let change = slots.enter(&[(object(1), Mode::Exclusive)]);
        let late = slots.enter(&[(object(1), Mode::Look)]);
        let other = slots.enter(&[(object(2), Mode::Exclusive)]);
        let ready = [&look, &change, &late, &other].map(is_ready);
        assert_eq!(ready, [true, false, false, true]);
        drop(look);
        assert_eq!([&change, &late].map(is_ready), [true, false]);
        drop(change);
        assert!(is_ready(&late));
        drop((late, other));
        assert!(slots.is_free(object(1)) && slots.is_free(object(2)));
    }

    #[test]
    fn entries_of_different_names_go_on_together() {
        let slots = Slots::default();
        let one = slots.enter(&[(object(1), Mode::Entry(1))]);
        let two = slots.enter(&[(object(1), Mode::Entry(2))]);
        let again = slots.enter(&[(object(1), Mode::Entry(1))]);
        let name = slots.enter(&[(object(1), Mode::Name(3))]);
        let ready = [&one, &two, &again, &name].map(is_ready);
        assert_eq!(ready, [true, true, false, true]);
    }

    #[test]
    fn who_finds_out_later_waits_for_nobody_who_waits_for_it() {
        let slots = Slots::default();
        let mut cx = Context::from_waker(Waker::noop());
        // A remove finds out that its name leads to 2; a link of 2 to that name came between.
        let remove = slots.enter(&[(object(1), Mode::Entry(1))]);
        let tickets = [(object(1), Mode::Entry(1)), (object(2), Mode::Exclusive)];
        let link = slots.enter(&tickets);
        assert_eq!([&remove, &link].map(is_ready), [true, false]);
        {
            let more = [(object(2), Mode::Exclusive)];
            let mut extend = pin!(remove.extend(&more));
            assert_eq!(extend.as_mut().poll(&mut cx), Poll::Ready(true));
        }
        drop(remove);
        assert!(is_ready(&link));
    }

    #[test]
    fn lower_numbers_go_first_while_one_waits_for_more() {
        let slots = Slots::default();
        let mut cx = Context::from_waker(Waker::noop());
        let busy = slots.enter(&[(object(2), Mode::Exclusive)]);
        let first = slots.enter(&[(object(3), Mode::Look)]);
        let second = slots.enter(&[(object(1), Mode::Entry(1))]);
        let more = [(object(2), Mode::Exclusive)];
        let mut extend_second = pin!(second.extend(&more));
        assert!(extend_second.as_mut().poll(&mut cx).is_pending());
        let more = [(object(1), Mode::Exclusive)];
        {
            let mut extend_first = pin!(first.extend(&more));
            assert_eq!(extend_first.as_mut().poll(&mut cx), Poll::Ready(true));
        }
        drop(busy);
        assert!(extend_second.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert_eq!(extend_second.as_mut().poll(&mut cx), Poll::Ready(false));
    }
}
