//! Buffers in which large values arrive piece by piece.
//!
//! A buffer that has got no piece for long, or few in the time that it has been taken, goes to whoever
//! wants one, and to nobody before that: a client that is merely slow would begin anew again and again,
//! and never come to the end. One whose value the engine is storing goes to nobody.

use super::pending::NO_CLIENT;
use super::turns::{Turn, Turns};

/// A transfer may have a buffer that others want for twice the time that it may stand still, and for that
/// time once more for so many bytes that have come.
const BYTES_PER_IDLE: u64 = 64 << 10;

/// Why a piece is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StagingError {
    /// No buffer is free.
    Busy,
    /// The transfer has no buffer (any more).
    NoTransfer,
    /// The value is longer than a buffer.
    TooLarge,
    /// Pieces come in order, without gaps, agree on the length, and bring something.
    Invalid,
}

/// Who has a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Nobody,
    /// A transfer whose pieces come: client and number.
    Transfer((u32, u32)),
    /// The engine, which stores the value of a transfer, whose client may have gone.
    Engine(Option<(u32, u32)>),
}

impl Owner {
    fn transfer(self) -> Option<(u32, u32)> {
        match self {
            Owner::Nobody => None,
            Owner::Transfer(transfer) => Some(transfer),
            Owner::Engine(transfer) => transfer,
        }
    }
}

#[derive(Debug)]
struct Buffer {
    owner: Owner,
    bytes: Vec<u8>,
    total: usize,
    /// Since when it has been taken, and when the last piece came.
    since_ns: u64,
    used_ns: u64,
}

impl Buffer {
    /// Whether it goes to whoever wants one.
    fn is_over(&self, now_ns: u64, idle_ns: u64) -> bool {
        let earned = u128::from(idle_ns) * self.bytes.len() as u128 / u128::from(BYTES_PER_IDLE);
        let held_max_ns = 2 * u128::from(idle_ns) + earned;
        matches!(self.owner, Owner::Transfer(..))
            && (now_ns.saturating_sub(self.used_ns) > idle_ns
                || u128::from(now_ns.saturating_sub(self.since_ns)) > held_max_ns)
    }
}

/// The buffers of a core.
#[derive(Debug)]
pub(super) struct Staging {
    buffers: Vec<Buffer>,
    value_len_max: usize,
    idle_ns: u64,
    in_use: usize,
    turns: Turns,
}

impl Staging {
    pub(super) fn new(count: usize, value_len_max: usize, idle_ns: u64) -> Self {
        let buffer = || Buffer {
            owner: Owner::Nobody,
            bytes: Vec::with_capacity(value_len_max),
            total: 0,
            since_ns: 0,
            used_ns: 0,
        };
        Staging {
            buffers: (0..count).map(|_| buffer()).collect(),
            value_len_max,
            idle_ns,
            in_use: 0,
            turns: Turns::default(),
        }
    }

    /// Takes a piece. The first one takes a buffer; one client never holds all of them if there
    /// are several.
    pub(super) fn put(
        &mut self,
        owner: (u32, u32),
        offset: u32,
        total: u32,
        bytes: &[u8],
        now_ns: u64,
    ) -> Result<(), StagingError> {
        let (offset, total) = (offset as usize, total as usize);
        if total > self.value_len_max {
            return Err(StagingError::TooLarge);
        }
        let index = self.position(owner);
        let (filled, expected) = match index {
            Some(index) => (self.buffers[index].bytes.len(), self.buffers[index].total),
            None if offset == 0 => (0, total),
            None => return Err(StagingError::NoTransfer),
        };
        if expected != total || offset != filled || bytes.is_empty() || bytes.len() > total - filled
        {
            return Err(StagingError::Invalid);
        }
        let index = match index {
            Some(index) => index,
            None => self.acquire(owner, total, now_ns)?,
        };
        let buffer = &mut self.buffers[index];
        buffer.used_ns = now_ns;
        buffer.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// A complete value.
    pub(super) fn value(&self, owner: (u32, u32), total: u32) -> Result<&[u8], StagingError> {
        let index = self.position(owner).ok_or(StagingError::NoTransfer)?;
        let buffer = &self.buffers[index];
        let is_complete = buffer.total == total as usize && buffer.bytes.len() == buffer.total;
        if !is_complete || matches!(buffer.owner, Owner::Engine(_)) {
            return Err(StagingError::Invalid);
        }
        Ok(&buffer.bytes)
    }

    /// Leaves the buffer of a value to the engine that stores it, and gives its number, by which it is
    /// freed: the client may go before.
    pub(super) fn lend(&mut self, owner: (u32, u32)) -> u32 {
        let index = self.position(owner).expect("the value has a buffer");
        self.buffers[index].owner = Owner::Engine(Some(owner));
        index as u32
    }

    /// Frees a buffer that the engine has had.
    pub(super) fn give_back(&mut self, number: u32) {
        self.free(number as usize);
    }

    /// Frees a transfer's buffer.
    pub(super) fn release(&mut self, owner: (u32, u32)) {
        if let Some(index) = self.position(owner) {
            self.free(index);
        }
    }

    /// Frees a client's buffers, but for those that the engine has.
    pub(super) fn release_client(&mut self, client: u32) {
        self.turns.leave(client);
        for index in 0..self.buffers.len() {
            match self.buffers[index].owner {
                Owner::Transfer((owner, _)) if owner == client => self.free(index),
                Owner::Engine(Some((owner, _))) if owner == client => {
                    self.buffers[index].owner = Owner::Engine(None);
                }
                _ => {}
            }
        }
    }

    /// Frees buffers that whoever has them may not keep from others.
    fn expire(&mut self, now_ns: u64) {
        for index in 0..self.buffers.len() {
            if self.buffers[index].is_over(now_ns, self.idle_ns) {
                self.free(index);
            }
        }
    }

    /// Buffers in use.
    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    fn position(&self, owner: (u32, u32)) -> Option<usize> {
        self.buffers
            .iter()
            .position(|buffer| buffer.owner.transfer() == Some(owner))
    }

    fn acquire(
        &mut self,
        owner: (u32, u32),
        total: usize,
        now_ns: u64,
    ) -> Result<usize, StagingError> {
        let client = owner.0;
        let mut turn = self.turn(client, now_ns);
        if turn != Turn::Now {
            self.expire(now_ns);
            turn = self.turn(client, now_ns);
        }
        match turn {
            Turn::Now => self.turns.leave(client),
            Turn::Later => self.turns.wait(client, now_ns),
            Turn::HasItsShare => {}
        }
        let is_free = |one: &Buffer| one.owner == Owner::Nobody;
        let free = self.buffers.iter().position(is_free);
        let (Turn::Now, Some(index)) = (turn, free) else {
            return Err(StagingError::Busy);
        };
        let buffer = &mut self.buffers[index];
        buffer.owner = Owner::Transfer(owner);
        buffer.bytes.clear();
        buffer.total = total;
        (buffer.since_ns, buffer.used_ns) = (now_ns, now_ns);
        self.in_use += 1;
        Ok(index)
    }

    /// When a client may take a buffer.
    fn turn(&mut self, client: u32, now_ns: u64) -> Turn {
        let taken = self.buffers.iter().map(|buffer| buffer.owner);
        let taken = taken.filter(|owner| *owner != Owner::Nobody);
        let holders = taken.map(|owner| owner.transfer().map_or(NO_CLIENT, |(client, _)| client));
        let buffers = (self.buffers.len(), holders);
        self.turns.of(client, buffers, now_ns)
    }

    fn free(&mut self, index: usize) {
        self.buffers[index].owner = Owner::Nobody;
        self.in_use -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::turns::TURN_LOST_NS;
    use super::*;

    /// Whoever has just been served asks again at once, and still comes behind those who wait.
    #[test]
    fn those_who_wait_come_before_those_who_come_again() {
        let ask =
            |staging: &mut Staging, client, now_ns| staging.put((client, 1), 0, 10, b"x", now_ns);
        let mut staging = Staging::new(2, 10, u64::MAX);
        for client in [1, 2] {
            assert_eq!(ask(&mut staging, client, 0), Ok(()));
        }
        for client in [3, 4, 3] {
            assert_eq!(ask(&mut staging, client, 1), Err(StagingError::Busy));
        }
        staging.release((1, 1));
        for client in [1, 4, 5] {
            assert_eq!(ask(&mut staging, client, 2), Err(StagingError::Busy));
        }
        assert_eq!(ask(&mut staging, 3, 3), Ok(()));
        // One that does not come when it might loses its turn, after a while.
        staging.release((2, 1));
        assert_eq!(ask(&mut staging, 1, 4), Err(StagingError::Busy));
        let late_ns = 3 + TURN_LOST_NS;
        assert_eq!(ask(&mut staging, 1, late_ns), Ok(()));
        // One that has gone does at once.
        assert_eq!(ask(&mut staging, 6, late_ns), Err(StagingError::Busy));
        assert_eq!(ask(&mut staging, 7, late_ns), Err(StagingError::Busy));
        staging.release_client(6);
        staging.release((3, 1));
        assert_eq!(ask(&mut staging, 7, late_ns), Ok(()));
    }

    #[test]
    fn pieces_come_in_order_and_add_up() {
        let mut staging = Staging::new(2, 10, 100);
        let owner = (1, 1);
        assert_eq!(
            staging.put(owner, 4, 10, b"x", 0),
            Err(StagingError::NoTransfer)
        );
        assert_eq!(
            staging.put(owner, 0, 11, b"x", 0),
            Err(StagingError::TooLarge)
        );
        assert_eq!(staging.put(owner, 0, 10, b"01234", 0), Ok(()));
        assert_eq!(
            staging.put(owner, 0, 10, b"01234", 0),
            Err(StagingError::Invalid)
        );
        assert_eq!(
            staging.put(owner, 6, 10, b"x", 0),
            Err(StagingError::Invalid)
        );
        assert_eq!(
            staging.put(owner, 5, 10, b"567890", 0),
            Err(StagingError::Invalid)
        );
        assert_eq!(staging.value(owner, 10), Err(StagingError::Invalid));
        assert_eq!(staging.put(owner, 5, 10, b"56789", 0), Ok(()));
        assert_eq!(staging.value(owner, 10), Ok(&b"0123456789"[..]));
        assert_eq!(staging.value((2, 1), 10), Err(StagingError::NoTransfer));
        staging.release(owner);
        assert_eq!(staging.in_use(), 0);
    }

    #[test]
    fn one_client_cannot_hold_them_all_and_idle_ones_go_to_whoever_wants_one() {
        let mut staging = Staging::new(3, 10, 100);
        assert_eq!(staging.put((1, 1), 0, 10, b"x", 0), Ok(()));
        assert_eq!(staging.put((1, 2), 0, 10, b"x", 50), Ok(()));
        assert_eq!(
            staging.put((1, 3), 0, 10, b"x", 50),
            Err(StagingError::Busy)
        );
        assert_eq!(staging.put((2, 1), 0, 10, b"x", 50), Ok(()));
        assert_eq!(
            staging.put((3, 1), 0, 10, b"x", 50),
            Err(StagingError::Busy)
        );
        // Nobody wants the first one.
        assert_eq!(staging.put((1, 1), 1, 10, b"x", 120), Ok(()));
        // Two have waited for longer than is granted, and are wanted now.
        assert_eq!(staging.put((3, 1), 0, 10, b"x", 151), Ok(()));
        assert_eq!(staging.in_use(), 2);
        assert_eq!(
            staging.put((1, 2), 1, 10, b"x", 152),
            Err(StagingError::NoTransfer)
        );
        assert_eq!(staging.put((1, 3), 0, 10, b"x", 152), Ok(()));
        staging.release_client(1);
        assert_eq!(staging.in_use(), 1);
        // Those that a client itself has left lying do not stand in its way.
        assert_eq!(staging.put((4, 1), 0, 10, b"x", 200), Ok(()));
        assert_eq!(staging.put((4, 2), 0, 10, b"x", 200), Ok(()));
        assert_eq!(staging.put((4, 3), 0, 10, b"x", 301), Ok(()));
    }

    /// However a transfer keeps from coming to its end, its buffer goes to whoever waits for one; without
    /// anybody who does, it may take as long as it likes.
    #[test]
    fn nobody_holds_a_buffer_for_ever_against_those_who_wait() {
        let pieces: [(u32, &[u8]); 4] = [(1, b""), (7, b"x"), (1, &[0; 2000]), (1, b"x")];
        for (offset, bytes) in pieces {
            for is_wanted in [true, false] {
                let mut staging = Staging::new(1, 1000, 100);
                assert_eq!(staging.put((1, 1), 0, 1000, b"x", 0), Ok(()));
                let mut offset = offset;
                let mut taken_ns = None;
                for now_ns in (50..10_000).step_by(50) {
                    if staging.put((1, 1), offset, 1000, bytes, now_ns) == Ok(()) {
                        offset += 1;
                    }
                    if is_wanted && staging.put((2, 1), 0, 10, b"x", now_ns) == Ok(()) {
                        taken_ns = Some(now_ns);
                        break;
                    }
                }
                assert_eq!(taken_ns.is_some(), is_wanted, "{bytes:?} at {offset}");
            }
        }
    }

    /// Whoever brings enough keeps its buffer, though others wait.
    #[test]
    fn a_transfer_that_goes_on_comes_to_its_end_though_others_wait() {
        const LEN: u32 = 1 << 20;
        let mut staging = Staging::new(1, LEN as usize, 1_000);
        let piece = [0; 4096];
        for at in (0..LEN).step_by(piece.len()) {
            // A sixteenth of the time for each sixteenth of 64 KiB, and once as long as is granted.
            let now_ns = u64::from(at) * 1_000 / (64 << 10) + 900;
            assert_eq!(staging.put((1, 1), at, LEN, &piece, now_ns), Ok(()));
            assert_eq!(
                staging.put((2, 1), 0, 10, b"x", now_ns),
                Err(StagingError::Busy)
            );
        }
        assert!(staging.value((1, 1), LEN).is_ok());
    }

    /// A request that is refused takes no buffer.
    #[test]
    fn pieces_that_make_no_sense_take_no_buffer() {
        let mut staging = Staging::new(1, 10, 100);
        for bytes in [&b""[..], b"more than three"] {
            assert_eq!(
                staging.put((1, 1), 0, 3, bytes, 0),
                Err(StagingError::Invalid)
            );
            assert_eq!(staging.in_use(), 0);
        }
    }
}
