//! How far the stream has come into the index.

use std::cell::RefCell;
use std::collections::VecDeque;

use nebula::Address;

/// Appends under way, in the order of the stream.
#[derive(Default)]
pub(super) struct Order(RefCell<State>);

#[derive(Default)]
struct State {
    /// The ticket of the first in the list.
    first: u64,
    /// For each, whether it is over, and the place of its last record if that is in the stream.
    under_way: VecDeque<Option<Option<Address>>>,
    /// All records of lower extents are in the index, and nothing is under way there.
    horizon: Address,
    ended: u64,
}

impl Order {
    pub(super) fn new(horizon: Address) -> Self {
        let state = State {
            horizon,
            ..State::default()
        };
        Self(RefCell::new(state))
    }

    /// An append begins, behind all that have begun.
    pub(super) fn begin(&self) -> u64 {
        let mut state = self.0.borrow_mut();
        state.under_way.push_back(None);
        state.first + state.under_way.len() as u64 - 1
    }

    /// An append is over, and in the index if it has succeeded: then `last` is where its last record is.
    pub(super) fn end(&self, ticket: u64, last: Option<Address>) {
        let mut state = self.0.borrow_mut();
        let at = (ticket - state.first) as usize;
        state.under_way[at] = Some(last);
        state.ended += 1;
        while let Some(Some(last)) = state.under_way.front().copied() {
            state.under_way.pop_front();
            state.first += 1;
            state.horizon = last.map_or(state.horizon, |last| last.max(state.horizon));
        }
    }

    /// All records of lower extents than this address's are in the index.
    pub(super) fn horizon(&self) -> Address {
        self.0.borrow().horizon
    }

    /// How many have ended, if none is under way.
    pub(super) fn standstill(&self) -> Option<u64> {
        let state = self.0.borrow();
        state.under_way.is_empty().then_some(state.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_waits_for_the_slowest() {
        let at = |page| Address { extent: 3, page };
        let order = Order::new(at(0));
        let (a, b, c) = (order.begin(), order.begin(), order.begin());
        order.end(c, Some(at(9)));
        order.end(a, Some(at(3)));
        assert_eq!(order.horizon(), at(3));
        assert_eq!(order.standstill(), None);
        order.end(b, None);
        assert_eq!(order.horizon(), at(9));
        assert_eq!(order.standstill(), Some(3));
    }
}
