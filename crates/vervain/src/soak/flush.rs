//! `flush_all`, now and later: what a server has forgotten when.
//!
//! A flush is known by two moments, between which the server forgets what was stored before. A flush that
//! is still to come is replaced by the next one, and gone with its server.
//!
//! Clients write their keys anew so often that a flush of some seconds' delay takes nothing from them
//! that they would miss. So items are stored before each flush that nobody else writes.

use std::time::Duration;

use anyhow::ensure;
use cache::herd::client::Address;

use super::faults::Fault;
use super::model::{Moment, Upset};
use super::world::{Failure, Flush, World, Wrong, lock};
use crate::client::SocketClient;

/// Seconds by which a flush may come too late: dates are whole seconds, and read now and then.
const SLACK_S: u64 = 2;
/// Seconds after which a flush is wanted at most.
const DELAY_S_MAX: u64 = 2;

/// Items that are stored before a flush.
const ITEMS: usize = 32;
/// How long an answer may take; the server lives, and is not stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to the server.
pub(super) fn dial(door: &Address) -> anyhow::Result<SocketClient> {
    Ok(SocketClient::over(door.dial(PATIENCE)?))
}

/// Has the server forget everything, now or a little later; whether it was done. A flush that is still
/// to come is seldom replaced: most are to be seen to their end.
pub(super) fn flush(
    world: &World,
    door: &Address,
    later: bool,
    random: &mut fastrand::Rng,
) -> anyhow::Result<bool> {
    let delay_s = if later {
        random.u64(1..=DELAY_S_MAX)
    } else {
        0
    };
    let words = match delay_s {
        0 => "flush_all".to_string(),
        delay_s => format!("flush_all {delay_s}"),
    };
    let talk = &mut dial(door)?;
    let (id, items) = {
        let mut shared = lock(&world.shared);
        let now = world.now();
        shared.settle_flushes(now);
        if shared.pending.is_some() && random.u8(..16) > 0 {
            return Ok(false);
        }
        // From now on the one before is replaced at any moment, whether this is heard of or not.
        shared.drop_pending(now);
        let id = shared.upset_id();
        shared.upset(now, Upset::Flushes(id));
        (id, random.u32(..))
    };
    world.note(&words);
    let heard = ask(talk, items, &words);
    let mut shared = lock(&world.shared);
    let now = world.now();
    match &heard {
        Err(_) => shared.upset(now, Upset::MayHaveFlushed(id)),
        Ok(()) if later => {
            let late = Duration::from_secs(delay_s + SLACK_S).as_nanos() as Moment;
            shared.pending = Some((now + late, Flush { id, items }));
        }
        Ok(()) => {
            shared.upset(now, Upset::Flushed(id));
            shared.gone.push((Fault::Flush, items));
        }
    }
    heard.map(|()| true)
}

/// Stores what is to go, and then has it go.
fn ask(talk: &mut SocketClient, items: u32, words: &str) -> anyhow::Result<()> {
    for key in keys(items) {
        tell(talk, &format!("set {key} 0 0 1\r\nv\r\n"), "STORED")?;
    }
    tell(talk, &format!("{words}\r\n"), "OK")
}

/// Has a server do something, and hears that it did.
pub(super) fn tell(talk: &mut SocketClient, request: &str, wanted: &str) -> anyhow::Result<()> {
    let answer = talk.ask(request)?;
    ensure!(answer == wanted, "the server says {answer:?}");
    Ok(())
}

/// How many of some items there are.
pub(super) fn count_found(talk: &mut SocketClient, keys: &[String]) -> anyhow::Result<usize> {
    let mut found = 0;
    for key in keys {
        found += usize::from(talk.get(key)?.is_some());
    }
    Ok(found)
}

/// The items that are stored before a flush.
fn keys(number: u32) -> Vec<String> {
    let key = |item| format!("flush-{number:x}-{item}");
    (0..ITEMS).map(key).collect()
}

/// Looks for what flushes that are over must have taken, and counts them.
pub(super) fn look_for_flushed(world: &World, door: &Address) -> anyhow::Result<()> {
    let next = || {
        let mut shared = lock(&world.shared);
        shared.settle_flushes(world.now());
        shared.gone.last().copied()
    };
    while let Some((fault, number)) = next() {
        let found = count_found(&mut dial(door)?, &keys(number))?;
        lock(&world.shared)
            .gone
            .retain(|(_, looked_for)| *looked_for != number);
        world.count(fault);
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
    use super::super::world::Shared;
    use super::*;

    #[test]
    fn a_flush_is_over_when_its_time_has_come_and_not_when_it_was_replaced() {
        let mut shared = Shared::new(1);
        let flush = |id| Flush { id, items: 7 };
        shared.pending = Some((9, flush(3)));
        assert!(shared.upsets_from(0, 9, 100).is_empty());
        let over = shared.upsets_from(0, 10, 100);
        assert!(matches!(over[..], [(9, Upset::Flushed(3))]), "{over:?}");
        assert!(shared.upsets_from(1, 10, 100).is_empty());
        assert_eq!(shared.gone, [(Fault::FlushLater, 7)]);
        shared.pending = Some((19, flush(4)));
        shared.drop_pending(15);
        let over = shared.upsets_from(1, 20, 100);
        let [(15, Upset::MayHaveFlushed(4))] = over[..] else {
            panic!("{over:?}");
        };
        assert_eq!(shared.gone.len(), 1);
    }
}
