//! Who comes next where there are fewer places for large values than clients that want one.
//!
//! Clients get places in the order in which they first asked: otherwise one that has just been served
//! asks again at once, and is served before one that pauses.

use std::collections::VecDeque;

/// A client that was told to come again and has not for so long has lost its turn: many of its longest
/// pauses.
pub(super) const TURN_LOST_NS: u64 = 20_000_000;

/// When a client may take a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    Now,
    /// All are taken, or for those who wait before it.
    Later,
    /// When it has given one back.
    HasItsShare,
}

/// A client that found no place.
#[derive(Debug)]
struct Waiting {
    client: u32,
    /// When it asked last.
    asked_ns: u64,
}

/// The clients that wait for a place.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: VecDeque<Waiting>,
}

impl Turns {
    /// When a client may take one of `count` places, of which these clients hold one each time they are
    /// named. One client never takes the last place if there are several. Cost: a step for each place and
    /// for each client that waits.
    pub(super) fn of(
        &mut self,
        client: u32,
        (count, holders): (usize, impl Iterator<Item = u32>),
        now_ns: u64,
    ) -> Turn {
        let (mut taken, mut own) = (0, 0);
        for holder in holders {
            taken += 1;
            own += usize::from(holder == client);
        }
        if own > 0 && own + 1 >= count {
            return Turn::HasItsShare;
        }
        let comes = |one: &Waiting| {
            one.client == client || now_ns.saturating_sub(one.asked_ns) <= TURN_LOST_NS
        };
        self.waiting.retain(comes);
        let before = self.waiting.iter().take_while(|one| one.client != client);
        match count.saturating_sub(taken) > before.count() {
            true => Turn::Now,
            false => Turn::Later,
        }
    }

    /// Notes that a client waits, behind those who do already.
    pub(super) fn wait(&mut self, client: u32, now_ns: u64) {
        match self.waiting.iter_mut().find(|one| one.client == client) {
            Some(waiting) => waiting.asked_ns = now_ns,
            None => self.waiting.push_back(Waiting {
                client,
                asked_ns: now_ns,
            }),
        }
    }

    /// Notes that a client waits no more.
    pub(super) fn leave(&mut self, client: u32) {
        self.waiting.retain(|waiting| waiting.client != client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_come_in_the_order_in_which_they_asked() {
        let mut turns = Turns::default();
        let mut ask = |client, holders: &[u32], now_ns| {
            let turn = turns.of(client, (2, holders.iter().copied()), now_ns);
            match turn {
                Turn::Now => turns.leave(client),
                Turn::Later => turns.wait(client, now_ns),
                Turn::HasItsShare => {}
            }
            turn
        };
        for client in [3, 4, 3] {
            assert_eq!(ask(client, &[1, 2], 0), Turn::Later);
        }
        // Whoever has just been served comes behind those who wait, and one that may not take a place
        // keeps none from others.
        assert_eq!(ask(2, &[2], 1), Turn::HasItsShare);
        assert_eq!(ask(1, &[2], 1), Turn::Later);
        assert_eq!(ask(4, &[2], 1), Turn::Later);
        assert_eq!(ask(3, &[2], 1), Turn::Now);
        assert_eq!(ask(4, &[2], 1), Turn::Now);
        assert_eq!(ask(1, &[2], 1), Turn::Now);
        // One that does not come again loses its turn.
        assert_eq!(ask(3, &[1, 2], 2), Turn::Later);
        assert_eq!(ask(4, &[1], 2 + TURN_LOST_NS), Turn::Later);
        assert_eq!(ask(4, &[1], 3 + TURN_LOST_NS), Turn::Now);
    }
}
