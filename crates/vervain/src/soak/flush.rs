//! `flush_all`, now and later: what a server has forgotten when.
//!
//! A flush is known by two moments: by the second one the server has forgotten what was stored before
//! the first one. What is stored in between may stay. A flush that is still to come is replaced by the
//! next one, and gone with its server.
//!
//! Clients write their keys anew so often that a flush of some seconds' delay takes nothing from them
//! that they would miss. So items are stored before each flush that nobody else writes.

use std::io;
use std::time::Duration;

use super::model::{Moment, Span};
use super::talk::Talk;
use super::world::{Failure, Shared, World, Wrong, lock};

/// Seconds by which a flush may come too late: dates are whole seconds, and read now and then.
const SLACK_S: u64 = 2;
/// Seconds after which a flush is wanted at most.
const DELAY_S_MAX: u64 = 2;

/// Items that are stored before a flush.
const ITEMS: usize = 32;

/// A flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flush {
    pub(super) from: Moment,
    pub(super) to: Moment,
}

/// All flushes of a run.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// Those that are over, in the order of time.
    past: Vec<Flush>,
    /// The flush that is to come, and the number of the items that were stored before it.
    pending: Option<(Flush, u32)>,
    /// Numbers of items that must be gone, and have not been looked for.
    gone: Vec<u32>,
}

impl Flushes {
    /// From the one on that has this number.
    pub(super) fn from(&self, first: usize) -> &[Flush] {
        &self.past[first..]
    }

    /// Whoever is told of the server's death or of another flush first settles what was before.
    pub(super) fn drop_pending(&mut self) {
        self.pending = None;
    }
}

impl Shared {
    /// Has a flush be over whose time has come.
    pub(super) fn settle_flushes(&mut self, now: Moment) {
        let over = self.flushes.pending.take_if(|(flush, _)| flush.to < now);
        if let Some((flush, number)) = over {
            self.flushed(flush);
            self.flushes.gone.push(number);
        }
    }

    fn flushed(&mut self, flush: Flush) {
        self.flushes.past.push(flush);
        // As if somebody had looked and had found nothing.
        let span = Span {
            from: flush.from,
            to: flush.to,
            from_s: 0,
            to_s: 0,
            ahead_s_min: 0,
            ahead_s_min_ever: 0,
        };
        for register in &mut self.registers {
            register.empty(span);
        }
        for counter in &mut self.counters {
            counter.empty(span);
        }
    }
}

/// Has the server forget everything, now or a little later; whether it was done. One that is still to
/// come is seldom replaced: most are to be seen to their end.
pub(super) fn flush(
    world: &World,
    talk: &mut Talk,
    later: bool,
    random: &mut fastrand::Rng,
) -> io::Result<bool> {
    let delay_s = if later {
        random.u64(1..=DELAY_S_MAX)
    } else {
        0
    };
    let words = match delay_s {
        0 => "flush_all".to_string(),
        delay_s => format!("flush_all {delay_s}"),
    };
    let from = world.now();
    {
        let mut shared = lock(&world.shared);
        shared.settle_flushes(from);
        if later && shared.flushes.pending.is_some() && random.u8(..16) > 0 {
            return Ok(false);
        }
        // From now on the one before is replaced at any moment, whether this is heard of or not.
        shared.flushes.drop_pending();
    }
    world.note(&words);
    let number = random.u32(..);
    let sets: String = keys(number)
        .iter()
        .map(|key| format!("set {key} 0 0 1\r\nv\r\n"))
        .collect();
    talk.say(sets.as_bytes())?;
    for _ in 0..ITEMS {
        talk.hear("STORED")?;
    }
    talk.say(format!("{words}\r\n").as_bytes())?;
    talk.hear("OK")?;
    let mut shared = lock(&world.shared);
    let to = world.now();
    if later {
        let late = Duration::from_secs(delay_s + SLACK_S).as_nanos() as Moment;
        let to = to + late;
        shared.flushes.pending = Some((Flush { from, to }, number));
    } else {
        shared.flushed(Flush { from, to });
        shared.flushes.gone.push(number);
    }
    Ok(true)
}

/// The items that are stored before a flush.
fn keys(number: u32) -> Vec<String> {
    let key = |item| format!("flush-{number:x}-{item}");
    (0..ITEMS).map(key).collect()
}

/// Looks for what flushes that are over must have taken.
pub(super) fn look_for_flushed(world: &World, talk: &mut Talk) -> io::Result<()> {
    let gone = {
        let mut shared = lock(&world.shared);
        shared.settle_flushes(world.now());
        std::mem::take(&mut shared.flushes.gone)
    };
    for number in gone {
        let found = talk.count_found(&keys(number))?;
        if found > 0 {
            world.fail(Failure::Wrong(Box::new(Wrong {
                client: "the one who flushes".into(),
                key: format!("flush-{number:x}-*"),
                asked: format!("get of {ITEMS} items, stored before a flush that is over"),
                came: format!("{found} of them"),
                allowed: "none".into(),
                at: world.began.elapsed(),
                history: Vec::new(),
            })));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::model::{Counter, Register};
    use super::*;

    #[test]
    fn a_flush_is_over_when_its_time_has_come_and_not_when_it_was_replaced() {
        let mut shared = Shared {
            registers: vec![Register::default()],
            counters: vec![Counter::default()],
            flushes: Flushes::default(),
        };
        let flush = Flush { from: 5, to: 9 };
        shared.flushes.pending = Some((flush, 7));
        shared.settle_flushes(9);
        assert_eq!(shared.flushes.from(0), []);
        shared.settle_flushes(10);
        assert_eq!(shared.flushes.from(0), [flush]);
        assert_eq!(shared.flushes.from(1), []);
        assert_eq!(shared.flushes.gone, [7]);
        shared.flushes.pending = Some((Flush { from: 15, to: 19 }, 8));
        shared.flushes.drop_pending();
        shared.settle_flushes(20);
        assert_eq!(shared.flushes.from(0), [flush]);
        assert_eq!(shared.flushes.gone, [7]);
    }
}
