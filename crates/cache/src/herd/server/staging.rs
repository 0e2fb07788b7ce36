//! Buffers in which large values arrive piece by piece.
//!
//! A buffer that has got no piece for long goes to whoever wants one, and to nobody before that: a
//! client that is merely slow would begin anew again and again, and never come to the end.

use super::turns::{Turn, Turns};

/// Why a piece is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StagingError {
    /// No buffer is free.
    Busy,
    /// The transfer has no buffer (any more).
    NoTransfer,
    /// The value is longer than a buffer.
    TooLarge,
    /// Pieces come in order, without gaps, and agree on the length.
    Invalid,
}

#[derive(Debug)]
struct Buffer {
    /// Client and transfer, when in use.
    owner: Option<(u32, u32)>,
    bytes: Vec<u8>,
    total: usize,
    used_ns: u64,
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
            owner: None,
            bytes: Vec::with_capacity(value_len_max),
            total: 0,
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
        let index = match self.position(owner) {
            Some(index) => index,
            None if offset == 0 => self.acquire(owner, total, now_ns)?,
            None => return Err(StagingError::NoTransfer),
        };
        let buffer = &mut self.buffers[index];
        buffer.used_ns = now_ns;
        let filled = buffer.bytes.len();
        if buffer.total != total || offset != filled || bytes.len() > total - filled {
            return Err(StagingError::Invalid);
        }
        buffer.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// A complete value.
    pub(super) fn value(&self, owner: (u32, u32), total: u32) -> Result<&[u8], StagingError> {
        let index = self.position(owner).ok_or(StagingError::NoTransfer)?;
        let buffer = &self.buffers[index];
        if buffer.total != total as usize || buffer.bytes.len() != buffer.total {
            return Err(StagingError::Invalid);
        }
        Ok(&buffer.bytes)
    }

    /// Frees a transfer's buffer.
    pub(super) fn release(&mut self, owner: (u32, u32)) {
        if let Some(index) = self.position(owner) {
            self.free(index);
        }
    }

    /// Frees a client's buffers.
    pub(super) fn release_client(&mut self, client: u32) {
        self.turns.leave(client);
        for index in 0..self.buffers.len() {
            if matches!(self.buffers[index].owner, Some((owner, _)) if owner == client) {
                self.free(index);
            }
        }
    }

    /// Frees buffers that got no piece for too long.
    fn expire(&mut self, now_ns: u64) {
        for index in 0..self.buffers.len() {
            let buffer = &self.buffers[index];
            if buffer.owner.is_some() && now_ns.saturating_sub(buffer.used_ns) > self.idle_ns {
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
            .position(|buffer| buffer.owner == Some(owner))
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
        let free = self.buffers.iter().position(|one| one.owner.is_none());
        let (Turn::Now, Some(index)) = (turn, free) else {
            return Err(StagingError::Busy);
        };
        let buffer = &mut self.buffers[index];
        buffer.owner = Some(owner);
        buffer.bytes.clear();
        buffer.total = total;
        self.in_use += 1;
        Ok(index)
    }

    /// When a client may take a buffer.
    fn turn(&mut self, client: u32, now_ns: u64) -> Turn {
        let owners = self.buffers.iter().filter_map(|buffer| buffer.owner);
        let holders = owners.map(|(client, _)| client);
        let buffers = (self.buffers.len(), holders);
        self.turns.of(client, buffers, now_ns)
    }

    fn free(&mut self, index: usize) {
        self.buffers[index].owner = None;
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
}
