//! The loop of a client thread, over any connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::RunError;
use super::connection::{Answer, Connection, Request};
use super::tally::Tally;
use crate::workload::{Tape, is_value_of, write_value};

/// Bits of a tag that hold the place on the tape; the others hold the lower bits of the time of
/// the request, which are enough to tell any latency.
const PLACE_BITS: u32 = 20;
/// The bits of a time that fit into a tag.
pub(super) const TIME_MASK: u64 = u64::MAX >> PLACE_BITS;
/// Requests on a tape at most, so that places fit into tags.
pub(super) const TAPE_LEN_MAX: usize = 1 << PLACE_BITS;

/// When a thread stops sending.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// After so many requests.
    Operations(u64),
    /// After so long.
    Time(Duration),
}

/// What a thread needs to play its tape.
pub(super) struct Player<'a> {
    pub(super) tape: &'a Tape,
    pub(super) place: usize,
    /// The next value's version; the thread's number is in its upper bits.
    pub(super) version: u64,
    pub(super) value: Vec<u8>,
    /// Whether `value` already holds what the next request stores: while the window is full it is
    /// not composed again and again.
    pub(super) composed: bool,
    pub(super) verify: bool,
    pub(super) epoch: Instant,
}

impl Player<'_> {
    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Keeps the connection's window full until the end, then waits for what is under way.
    ///
    /// The clock is read once a turn. A request's latency begins before it is composed and ends
    /// after all answers of its turn were handed out, so it is never too short.
    pub(super) fn play(
        &mut self,
        connection: &mut impl Connection,
        until: Until,
        tally: &mut Tally,
        progress: Option<&AtomicU64>,
    ) -> Result<(), RunError> {
        let (tape, verify, value_len) = (self.tape, self.verify, self.value.len());
        let mut now_ns = self.now_ns();
        let (mut left, end_ns) = match until {
            Until::Operations(count) => (count, u64::MAX),
            Until::Time(time) => (u64::MAX, now_ns.saturating_add(time.as_nanos() as u64)),
        };
        tally.begin(now_ns);
        let mut under_way = 0usize;
        let mut looks = 0;
        loop {
            if now_ns >= end_ns {
                left = 0;
            }
            connection.turn(now_ns);
            while left > 0 && self.submit(connection, now_ns)? {
                left -= 1;
                under_way += 1;
            }
            if left == 0 && under_way == 0 {
                return Ok(());
            }
            let mut ended = 0;
            connection.poll(now_ns, &mut |tag, answer| {
                ended += 1;
                let operation = tape.operation(tag as usize & (TAPE_LEN_MAX - 1));
                let is_put = operation.is_put();
                match answer {
                    Answer::Value(value) if !is_put => {
                        tally.counts.hits += 1;
                        let right =
                            || value.len() == value_len && is_value_of(operation.item(), value);
                        if verify && !right() {
                            tally.counts.wrong += 1;
                        }
                    }
                    Answer::Missing if !is_put => tally.counts.misses += 1,
                    Answer::Stored if is_put => tally.counts.stored += 1,
                    Answer::TimedOut => tally.counts.timed_out += 1,
                    Answer::Unknown => tally.counts.unknown += 1,
                    // An answer to another question is a refusal too.
                    Answer::Value(_) | Answer::Missing | Answer::Stored | Answer::Refused => {
                        tally.counts.refused += 1;
                    }
                }
                tally.ended(tag >> PLACE_BITS, is_put);
            })?;
            under_way -= ended;
            now_ns = self.now_ns();
            if ended > 0 {
                looks = 0;
                tally.end_turn(now_ns);
                if let Some(progress) = progress {
                    progress.fetch_add(ended as u64, Ordering::Relaxed);
                }
            } else {
                looks += 1;
                connection.idle(looks, true)?;
            }
        }
    }

    /// Submits the next request; `false` when the window is full.
    #[inline]
    fn submit(&mut self, connection: &mut impl Connection, now_ns: u64) -> Result<bool, RunError> {
        let (operation, key) = (self.tape.operation(self.place), self.tape.key(self.place));
        let tag = now_ns << PLACE_BITS | self.place as u64;
        let request = if operation.is_put() {
            if !self.composed {
                write_value(operation.item(), self.version, &mut self.value);
                self.composed = true;
            }
            Request::Put {
                key,
                value: &self.value,
            }
        } else {
            Request::Get { key }
        };
        let taken = connection.submit(&request, tag)?;
        if taken {
            self.version += u64::from(operation.is_put());
            self.composed = false;
            self.place += 1;
            if self.place == self.tape.len() {
                self.place = 0;
            }
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Distribution, Mix, Workload};

    /// Answers a few requests at each poll, and checks how it is used.
    struct Mock {
        window: usize,
        turn_ns: u64,
        tags: Vec<u64>,
        submitted: u64,
    }

    impl Connection for Mock {
        fn turn(&mut self, now_ns: u64) {
            assert!(now_ns >= self.turn_ns);
            self.turn_ns = now_ns;
        }

        fn submit(&mut self, _: &Request<'_>, tag: u64) -> Result<bool, RunError> {
            assert_eq!(tag >> PLACE_BITS, self.turn_ns, "submitted before the turn");
            if self.tags.len() == self.window {
                return Ok(false);
            }
            self.tags.push(tag);
            self.submitted += 1;
            Ok(true)
        }

        fn poll(
            &mut self,
            now_ns: u64,
            sink: &mut impl FnMut(u64, Answer<'_>),
        ) -> Result<usize, RunError> {
            assert_eq!(now_ns, self.turn_ns);
            let count = self.tags.len().min(3);
            for tag in self.tags.drain(..count) {
                sink(tag, Answer::Stored);
            }
            Ok(count)
        }

        fn idle(&mut self, _: u32, _: bool) -> Result<(), RunError> {
            panic!("there is always an answer");
        }

        fn preload(&mut self, _: bool) {}
    }

    #[test]
    fn each_turn_knows_its_time_and_the_tape_goes_round() {
        let workload = Workload {
            mix: Mix::UPDATES,
            distribution: Distribution::Uniform,
            items: 100,
            key_len: 8,
        };
        let tape = Tape::record(&workload.generator(1).expect("a workload"), 0, 10);
        let mut player = Player {
            tape: &tape,
            place: 0,
            version: 0,
            value: vec![0; 32],
            composed: false,
            verify: true,
            epoch: Instant::now(),
        };
        let mut connection = Mock {
            window: 8,
            turn_ns: 0,
            tags: Vec::new(),
            submitted: 0,
        };
        // Twice, with a pause between: the second one's first turn must not have an old time.
        for round in 1..=2 {
            std::thread::sleep(Duration::from_millis(2));
            let (mut tally, stored) = (Tally::new(), AtomicU64::new(0));
            let until = Until::Operations(25);
            let played = player.play(&mut connection, until, &mut tally, Some(&stored));
            played.expect("no error");
            assert_eq!(
                (connection.submitted, connection.tags.len()),
                (25 * round, 0)
            );
            assert_eq!((tally.counts.stored, tally.puts.len()), (25, 25));
            assert_eq!(stored.into_inner(), 25);
            assert_eq!(player.place as u64, 25 * round % 10);
        }
    }
}
