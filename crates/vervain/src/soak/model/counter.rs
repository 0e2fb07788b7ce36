//! A number that many count up: each exactly once.
//!
//! A cache may forget a counter, so it has lives: each starts with an `add` of a number of its own,
//! so that a number tells its life. Within a life, no number is given out twice, none is beyond what
//! was asked for, and none is below one that was given out before it was asked.

use std::collections::{HashMap, HashSet};

use super::{Moment, Span};

/// Numbers of a life.
pub(crate) const LIFE: u64 = 1_000_000_000;

/// Given-out numbers that are remembered with their moments.
const GIVEN: usize = 128;
/// How long after its end a life's numbers are kept. No question takes so long.
const KEEP: Moment = 120_000_000_000;

#[derive(Debug)]
struct Life {
    /// The first moment at which somebody knew of it.
    seen: Moment,
    /// From this moment on it is over.
    over: Moment,
    given: HashSet<u64>,
    /// Unknown outcomes of its time that no later life has to reckon with.
    unknown: u64,
    /// Numbers and when they were known.
    known: Vec<(Moment, u64)>,
}

/// What is known of a counter.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    lives: HashMap<u64, Life>,
    begun: u64,
    under_way: u64,
    unknown: u64,
}

impl Counter {
    /// The number with which a new life begins; for one `add` only.
    pub(crate) fn begin_life(&mut self) -> u64 {
        self.begun += 1;
        self.begun * LIFE
    }

    /// Somebody asks to count up by one.
    pub(crate) fn asks(&mut self) {
        self.under_way += 1;
    }

    /// It is known that it was not carried out.
    pub(crate) fn refused(&mut self) {
        self.under_way -= 1;
    }

    /// It is not known whether it was carried out.
    pub(crate) fn lost(&mut self) {
        self.under_way -= 1;
        self.unknown += 1;
    }

    /// It was carried out, and made this number.
    pub(crate) fn counted(&mut self, number: u64, span: Span) -> Result<(), String> {
        self.under_way -= 1;
        let life = number / LIFE;
        let place = self.place(life, span)?;
        if !place.given.insert(number) {
            return Err(format!("not {number}, which was given out before"));
        }
        self.check(number, span, true)
    }

    /// Somebody has read it.
    pub(crate) fn read(&mut self, number: u64, span: Span) -> Result<(), String> {
        self.place(number / LIFE, span)?;
        self.check(number, span, false)
    }

    /// There is no counter.
    pub(crate) fn empty(&mut self, span: Span) {
        for life in self.lives.values_mut() {
            if life.seen < span.from {
                life.over = life.over.min(span.to);
            }
        }
        self.forget(span.from);
    }

    /// The server was killed, and with it died what was on its way.
    pub(crate) fn killed(&mut self, at: Moment) {
        for life in self.lives.values_mut() {
            life.unknown += self.unknown;
            life.over = life.over.min(at);
        }
        self.unknown = 0;
    }

    fn place(&mut self, number: u64, span: Span) -> Result<&mut Life, String> {
        if number == 0 || number > self.begun {
            return Err(format!(
                "a number of one of the lives 1 to {}, each {LIFE} long",
                self.begun
            ));
        }
        for (other, life) in &mut self.lives {
            if *other != number && life.seen < span.from {
                life.over = life.over.min(span.to);
            }
        }
        self.forget(span.from);
        let life = self.lives.entry(number).or_insert_with(|| Life {
            seen: span.to,
            over: Moment::MAX,
            given: HashSet::new(),
            unknown: 0,
            known: Vec::new(),
        });
        life.seen = life.seen.min(span.to);
        if life.over < span.from {
            return Err(format!(
                "no number of life {number}, which was over at {:.3} s",
                life.over as f64 / 1e9
            ));
        }
        Ok(life)
    }

    /// Whether a number may be there, once its life may be.
    fn check(&mut self, number: u64, span: Span, is_new: bool) -> Result<(), String> {
        let spare = self.under_way + self.unknown;
        let Some(life) = self.lives.get_mut(&(number / LIFE)) else {
            return Ok(());
        };
        let most = number / LIFE * LIFE + life.given.len() as u64 + life.unknown + spare;
        if number > most {
            return Err(format!("at most {most}: nobody asked for more"));
        }
        let known = life.known.iter().filter(|(at, _)| *at < span.from);
        let least = known.map(|(_, number)| *number).max().unwrap_or(0);
        if number < least || (is_new && number == least) {
            return Err(format!(
                "{} {least}, which was told before this was asked",
                if is_new { "more than" } else { "at least" }
            ));
        }
        if life.known.len() >= GIVEN
            && let Some(least) = (0..life.known.len()).min_by_key(|at| life.known[*at].1)
        {
            life.known.swap_remove(least);
        }
        life.known.push((span.to, number));
        Ok(())
    }

    /// Drops what lives have given out that are over; that they are over is kept.
    fn forget(&mut self, from: Moment) {
        for life in self.lives.values_mut() {
            if life.over.saturating_add(KEEP) < from && !life.given.is_empty() {
                life.given = HashSet::new();
                life.known = Vec::new();
            }
        }
    }
}
