//! The loop of a client thread, over any connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::RunError;
use super::arrivals::Schedule;
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
/// How long requests that were due in time may still be sent after the end, at most.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// A connection ends requests by its own time-out; one that does not even do so is lost after this
/// many of them.
const SILENCES_MAX: u64 = 2;

/// When a thread stops sending.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// After so many requests.
    Operations(u64),
    /// After so long.
    Time(Duration),
}

/// What time it is.
pub(super) trait Clock {
    /// Nanoseconds since the run began.
    fn now_ns(&mut self) -> u64;
}

/// A pause of a thread's loop from which on it is noted: somebody else had the CPU.
const PAUSE_NS: u64 = 50_000;

/// The machine's clock.
#[derive(Clone, Debug)]
pub(super) struct Since {
    epoch: Instant,
    last_ns: u64,
    /// Pauses between two looks, where that is asked for: when each ended, and how long it was.
    pub(super) pauses: Option<Vec<(u64, u64)>>,
}

impl Since {
    pub(super) fn new(epoch: Instant) -> Self {
        Since {
            epoch,
            last_ns: 0,
            pauses: None,
        }
    }
}

impl Clock for Since {
    #[inline]
    fn now_ns(&mut self) -> u64 {
        let now_ns = self.epoch.elapsed().as_nanos() as u64;
        if let Some(pauses) = &mut self.pauses
            && now_ns - self.last_ns >= PAUSE_NS
        {
            pauses.push((now_ns, now_ns - self.last_ns));
        }
        self.last_ns = now_ns;
        now_ns
    }
}

/// When requests are sent.
#[derive(Debug)]
pub(super) enum Pace {
    /// As soon as there is room for them.
    Closed,
    /// When they are due, or as soon after that as there is room. Latencies begin when requests
    /// are due: those that a slow server holds up are slow too.
    Open(Schedule),
}

/// What a thread needs to play its tape.
pub(super) struct Player<'a, C> {
    pub(super) tape: &'a Tape,
    pub(super) place: usize,
    /// The next value's version; the thread's number is in its upper bits.
    pub(super) version: u64,
    pub(super) value: Vec<u8>,
    /// Whether `value` already holds what the next request stores: while the window is full it is
    /// not composed again and again.
    pub(super) composed: bool,
    pub(super) verify: bool,
    pub(super) clock: C,
    /// A server that answers nothing for so long is lost.
    pub(super) timeout: Duration,
}

impl<C: Clock> Player<'_, C> {
    /// Sends requests at their pace until the end, then waits for what is under way.
    ///
    /// The clock is read once a turn. A request's latency begins before it is composed and ends
    /// after all answers of its turn were handed out, so it is never too short.
    pub(super) fn play(
        &mut self,
        connection: &mut impl Connection,
        pace: &mut Pace,
        until: Until,
        tally: &mut Tally,
        progress: Option<&AtomicU64>,
    ) -> Result<(), RunError> {
        let (tape, verify, value_len) = (self.tape, self.verify, self.value.len());
        let mut now_ns = self.clock.now_ns();
        let (mut left, end_ns, drained_ns) = match until {
            Until::Operations(count) => (count, u64::MAX, u64::MAX),
            Until::Time(time) => {
                let end_ns = now_ns.saturating_add(time.as_nanos() as u64);
                let drain_ns = time.min(DRAIN_MAX).as_nanos() as u64;
                (u64::MAX, end_ns, end_ns.saturating_add(drain_ns))
            }
        };
        tally.begin(now_ns);
        if let Pace::Open(schedule) = pace {
            schedule.begin(now_ns);
        }
        let mut under_way = 0usize;
        let (mut looks, mut heard_ns) = (0, now_ns);
        loop {
            connection.turn(now_ns);
            match pace {
                Pace::Closed => {
                    if now_ns >= end_ns {
                        left = 0;
                    }
                    while left > 0 && self.submit(connection, now_ns)? {
                        left -= 1;
                        under_way += 1;
                    }
                }
                Pace::Open(schedule) => {
                    let due_ns_max = now_ns.min(end_ns);
                    while left > 0
                        && schedule.due_ns() <= due_ns_max
                        && self.submit(connection, schedule.due_ns())?
                    {
                        schedule.advance();
                        left -= 1;
                        under_way += 1;
                    }
                    if now_ns >= end_ns && schedule.due_ns() > end_ns {
                        left = 0;
                    } else if now_ns >= drained_ns {
                        self.give_up(schedule, end_ns, now_ns, tally);
                        left = 0;
                    }
                }
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
            now_ns = self.clock.now_ns();
            if ended > 0 {
                (looks, heard_ns) = (0, now_ns);
                tally.end_turn(now_ns);
                if let Some(progress) = progress {
                    progress.fetch_add(ended as u64, Ordering::Relaxed);
                }
            } else {
                looks += 1;
                if under_way == 0 {
                    heard_ns = now_ns;
                } else if now_ns - heard_ns > SILENCES_MAX * self.timeout.as_nanos() as u64 {
                    return Err(RunError::Silent(self.timeout));
                }
                // Who waits for the time must look at the clock.
                let may_sleep = under_way > 0 && (left == 0 || matches!(pace, Pace::Closed));
                connection.idle(looks, may_sleep)?;
            }
        }
    }

    /// Counts the requests that were due and could not be sent, with the time that they had waited
    /// for: to leave them out would be to leave out the slowest.
    #[cold]
    fn give_up(&mut self, schedule: &mut Schedule, end_ns: u64, now_ns: u64, tally: &mut Tally) {
        while schedule.due_ns() <= end_ns {
            let is_put = self.tape.operation(self.place).is_put();
            tally.unsent(schedule.due_ns(), now_ns, is_put);
            schedule.advance();
            self.next_place();
        }
    }

    fn next_place(&mut self) {
        self.place += 1;
        if self.place == self.tape.len() {
            self.place = 0;
        }
    }

    /// Submits the next request, whose latency begins at a time; `false` when the window is full.
    #[inline]
    fn submit(
        &mut self,
        connection: &mut impl Connection,
        begins_ns: u64,
    ) -> Result<bool, RunError> {
        let (operation, key) = (self.tape.operation(self.place), self.tape.key(self.place));
        let tag = begins_ns << PLACE_BITS | self.place as u64;
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
            self.next_place();
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::super::arrivals::{Arrival, Rate};
    use super::*;
    use crate::workload::{Distribution, Mix, Workload};

    const US: u64 = 1000;

    /// A clock that a server moves.
    #[derive(Clone, Default)]
    struct FakeClock(Rc<Cell<u64>>);

    impl Clock for FakeClock {
        fn now_ns(&mut self) -> u64 {
            self.0.get()
        }
    }

    /// Answers in turns of a microsecond, some requests each but for a stall, and checks how it is used.
    struct Fake {
        clock: FakeClock,
        stall_ns: std::ops::Range<u64>,
        window: usize,
        answers_max: usize,
        answer: Answer<'static>,
        turn_ns: u64,
        tags: Vec<u64>,
        submitted: u64,
    }

    impl Connection for Fake {
        fn turn(&mut self, now_ns: u64) {
            assert!(now_ns >= self.turn_ns);
            self.turn_ns = now_ns;
        }

        fn submit(&mut self, _: &Request<'_>, tag: u64) -> Result<bool, RunError> {
            assert!(
                tag >> PLACE_BITS <= self.turn_ns,
                "submitted before the turn"
            );
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
            self.clock.0.set(now_ns + US);
            if self.stall_ns.contains(&now_ns) {
                return Ok(0);
            }
            let count = self.tags.len().min(self.answers_max);
            for tag in self.tags.drain(..count) {
                sink(tag, self.answer);
            }
            Ok(count)
        }

        fn idle(&mut self, _: u32, may_sleep: bool) -> Result<(), RunError> {
            // Who sleeps misses what is due meanwhile.
            assert!(!may_sleep || !self.tags.is_empty());
            Ok(())
        }
    }

    fn tape(mix: Mix) -> Tape {
        let workload = Workload {
            mix,
            distribution: Distribution::Uniform,
            items: 100,
            key_len: 8,
        };
        Tape::record(&workload.generator(1).expect("a workload"), 0, 10)
    }

    fn player(tape: &Tape, clock: FakeClock) -> Player<'_, FakeClock> {
        Player {
            tape,
            place: 0,
            version: 0,
            value: vec![0; 32],
            composed: false,
            verify: true,
            clock,
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn each_turn_knows_its_time_and_the_tape_goes_round() {
        let (clock, tape) = (FakeClock::default(), tape(Mix::UPDATES));
        let mut player = player(&tape, clock.clone());
        let mut connection = Fake {
            clock: clock.clone(),
            stall_ns: 0..0,
            window: 8,
            answers_max: 3,
            answer: Answer::Stored,
            turn_ns: 0,
            tags: Vec::new(),
            submitted: 0,
        };
        // Twice, with a pause between: the second one's first turn must not have an old time.
        for round in 1..=2 {
            clock.0.set(clock.0.get() + 2000 * US);
            let (mut tally, stored) = (Tally::new(), AtomicU64::new(0));
            let until = Until::Operations(25);
            let mut pace = Pace::Closed;
            let played = player.play(&mut connection, &mut pace, until, &mut tally, Some(&stored));
            played.expect("no error");
            let submitted = (connection.submitted, connection.tags.len());
            assert_eq!(submitted, (25 * round, 0));
            assert_eq!((tally.counts.stored, tally.puts.len()), (25, 25));
            assert!(tally.puts.max() < 100 * US);
            assert_eq!(stored.into_inner(), 25);
            assert_eq!(player.place as u64, 25 * round % 10);
        }
    }

    /// Plays against a server that stalls from 10 to 20 ms of 100 ms.
    fn play_a_stall(mut pace: Pace) -> Tally {
        let (clock, tape) = (FakeClock::default(), tape(Mix::C));
        let mut connection = Fake {
            clock: clock.clone(),
            stall_ns: 10_000 * US..20_000 * US,
            window: 1,
            answers_max: 1,
            answer: Answer::Missing,
            turn_ns: 0,
            tags: Vec::new(),
            submitted: 0,
        };
        let mut player = player(&tape, clock);
        let mut tally = Tally::new();
        let until = Until::Time(Duration::from_millis(100));
        let played = player.play(&mut connection, &mut pace, until, &mut tally, None);
        played.expect("no error");
        tally
    }

    fn open(per_second: f64, arrival: Arrival) -> Pace {
        let rate = Rate {
            per_second,
            arrival,
        };
        Pace::Open(Schedule::new(rate, 1, 3))
    }

    #[test]
    fn a_stall_shows_in_the_requests_that_were_due_meanwhile() {
        for arrival in [Arrival::Constant, Arrival::Poisson] {
            let tally = play_a_stall(open(100_000.0, arrival));
            // A tenth of all was due in the stall, and half of these waited for 5 ms and more.
            let waited = tally.gets.count_between(5_000 * US, 10_100 * US);
            let share = waited as f64 / tally.gets.len() as f64;
            assert!((share - 0.05).abs() < 0.01, "{arrival:?}: {share}");
            assert!(tally.gets.value_at_quantile(0.99) > 8_000 * US);
            assert!(tally.gets.value_at_quantile(0.5) < 10 * US);
            let due = tally.gets.len() as f64;
            assert!((due - 10_000.0).abs() < 400.0, "{due} were due");
            assert_eq!(tally.unsent_count, 0);
        }
        // In a closed loop a single request notices the stall.
        let tally = play_a_stall(Pace::Closed);
        assert!(tally.gets.value_at_quantile(0.99) < 10 * US);
        assert_eq!(tally.gets.count_between(5_000 * US, 10_100 * US), 1);
    }

    #[test]
    fn requests_that_an_overload_leaves_unsent_count_as_slow() {
        // Twice what the server does, one request a microsecond.
        let tally = play_a_stall(open(2e6, Arrival::Constant));
        let due = tally.gets.len();
        assert!((199_990..=200_010).contains(&due), "{due}");
        // 90 000 while the load lasts and 100 000 until it is given up.
        let unsent = tally.unsent_count;
        assert!((9_000..11_000).contains(&unsent), "{unsent}");
        assert_eq!(tally.counts.misses + unsent, due);
        assert!(tally.gets.max() >= 90_000 * US);
    }
}
