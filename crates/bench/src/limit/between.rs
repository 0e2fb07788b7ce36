//! What two cores can do together.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::line::Line;
use crate::machine::pin;

/// Operations between two looks at the clock.
const BETWEEN_LOOKS: u64 = 1024;
/// How long to look for a line before the CPU is offered to others.
const LOOKS_BEFORE_YIELD: u32 = 1 << 14;
/// Lines from one request slot to the next, as HERD has them; answers lie side by side.
const SLOT_LINES: usize = 17;
/// Lines of the ring.
const RING: usize = 1024;

/// Runs two sides on their CPUs until the first one's time is over, and returns how many operations
/// that one did in how many seconds. It asks after each operation whether to go on; the other side
/// looks at a flag that says to stop.
fn pair(
    cpus: Option<[usize; 2]>,
    each: Duration,
    first: impl FnOnce(&mut dyn FnMut() -> bool) + Send,
    second: impl FnOnce(&AtomicBool) + Send,
) -> (u64, f64) {
    let stop = AtomicBool::new(false);
    // The report says where threads were to run; `LimitRun::run` has checked that they may.
    let place = |side: usize| cpus.is_none_or(|cpus| pin(cpus[side]));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            place(1);
            second(&stop);
        });
        // The first side has a thread of its own too, so that the caller's is not pinned.
        let one = scope.spawn(|| {
            place(0);
            let began = Instant::now();
            let mut done = 0u64;
            first(&mut || {
                done += 1;
                !done.is_multiple_of(BETWEEN_LOOKS) || began.elapsed() < each
            });
            (done, began.elapsed().as_secs_f64())
        });
        let measured = one.join();
        stop.store(true, Ordering::Release);
        match (measured, other.join()) {
            (Ok(measured), Ok(())) => measured,
            (Err(panic), _) | (_, Err(panic)) => std::panic::resume_unwind(panic),
        }
    })
}

/// Waits for a line to get a number, or for the end; says whether it came.
#[inline]
fn wait_for(line: &Line, number: u64, stop: Option<&AtomicBool>) -> bool {
    let mut looks = 0u32;
    while line.number() != number {
        looks += 1;
        if looks.is_multiple_of(LOOKS_BEFORE_YIELD) {
            // The other side may be waiting for this very CPU.
            std::thread::yield_now();
        }
        if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return false;
        }
        spin_loop();
    }
    true
}

/// A line there and a line back, in nanoseconds.
pub(super) fn pingpong(cpus: Option<[usize; 2]>, each: Duration) -> f64 {
    let (there, back) = (Line::default(), Line::default());
    let first = |go_on: &mut dyn FnMut() -> bool| {
        let mut number = 1;
        loop {
            there.write(number);
            wait_for(&back, number, None);
            number += 1;
            if !go_on() {
                return;
            }
        }
    };
    let second = |stop: &AtomicBool| {
        let mut number = 1;
        while wait_for(&there, number, Some(stop)) {
            back.write(number);
            number += 1;
        }
    };
    let (done, seconds) = pair(cpus, each, first, second);
    seconds * 1e9 / done as f64
}

/// Lines one way through a ring, in millions a second. The reader tells how far it has come every
/// quarter of the ring.
pub(super) fn ring(cpus: Option<[usize; 2]>, each: Duration) -> f64 {
    let lines: Vec<Line> = (0..RING).map(|_| Line::default()).collect();
    let consumed = Line::default();
    let first = |go_on: &mut dyn FnMut() -> bool| {
        let (mut sent, mut seen) = (0u64, 0u64);
        loop {
            while sent - seen == RING as u64 {
                seen = consumed.number();
                spin_loop();
            }
            lines[sent as usize % RING].write(sent + 1);
            sent += 1;
            if !go_on() {
                return;
            }
        }
    };
    let second = |stop: &AtomicBool| {
        let (mut read, mut sum) = (0u64, 0u64);
        loop {
            let line = &lines[read as usize % RING];
            if !wait_for(line, read + 1, Some(stop)) {
                black_box(sum);
                return;
            }
            sum = sum.wrapping_add(line.read());
            read += 1;
            if read.is_multiple_of(RING as u64 / 4) {
                consumed.write(read);
            }
        }
    };
    let (done, seconds) = pair(cpus, each, first, second);
    done as f64 / seconds / 1e6
}

/// HERD's exchange at its barest, in millions a second: a request line in a slot there, an answer
/// line and a flag in a line of its own back, `window` slots under way, no verbs and no hashing.
/// The flag stands for the completion that tells where the answer lies.
pub(super) fn exchange(cpus: Option<[usize; 2]>, each: Duration, window: usize) -> f64 {
    let lines = |count: usize| (0..count).map(|_| Line::default()).collect::<Vec<_>>();
    let (requests, answers, flags) = (lines(window * SLOT_LINES), lines(window), lines(window));
    let first = |go_on: &mut dyn FnMut() -> bool| {
        let window = window as u64;
        for number in 0..window {
            requests[number as usize * SLOT_LINES].write(number + 1);
        }
        let (mut next, mut sum) = (0u64, 0u64);
        loop {
            let slot = (next % window) as usize;
            wait_for(&flags[slot], next + 1, None);
            sum = sum.wrapping_add(answers[slot].read());
            requests[slot * SLOT_LINES].write(next + window + 1);
            next += 1;
            if !go_on() {
                black_box(sum);
                return;
            }
        }
    };
    let second = |stop: &AtomicBool| {
        let (mut next, mut sum) = (0u64, 0u64);
        loop {
            let slot = next as usize % window;
            if !wait_for(&requests[slot * SLOT_LINES], next + 1, Some(stop)) {
                black_box(sum);
                return;
            }
            sum = sum.wrapping_add(requests[slot * SLOT_LINES].read());
            answers[slot].write(next + 1);
            flags[slot].set(next + 1);
            next += 1;
        }
    };
    let (done, seconds) = pair(cpus, each, first, second);
    done as f64 / seconds / 1e6
}
