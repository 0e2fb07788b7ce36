//! The conversations of `tests/corpus`, replayed whole, at every split, up to every prefix, and with
//! late answers. What a file of them looks like is in `corpus.rs`.

use engine::{LateEngine, MapEngine};
use memcache::{Limits, Step};

use crate::corpus::{Conversation, Ends, conversations};
use crate::driver::{Ended, cut, show, talk, talk_at_once};

fn check(conversation: &Conversation, how: &str, ended: &Ended) {
    assert_eq!(
        show(&ended.output),
        show(&conversation.hears),
        "{}, {how}: {}",
        conversation.name,
        show(&conversation.says[..conversation.says.len().min(200)])
    );
    let ends = match conversation.ends {
        Ends::Stays => Step::Input,
        Ends::Closes => Step::Close,
        Ends::Upgrades => Step::Upgrade,
    };
    assert_eq!(ended.step, ends, "{}, {how}", conversation.name);
}

#[test]
fn whole() {
    for conversation in conversations() {
        let ended = talk_at_once(&mut MapEngine::default(), &conversation.says);
        check(&conversation, "whole", &ended);
    }
}

#[test]
fn byte_by_byte() {
    for conversation in conversations() {
        let pieces = conversation.says.chunks(1);
        let ended = talk(&mut MapEngine::default(), Limits::default(), pieces);
        check(&conversation, "byte by byte", &ended);
    }
}

/// Places to cut a conversation: all, or with a long one those near its ends and a sample between.
fn cuts(size: usize) -> impl Iterator<Item = usize> {
    let stride = (size / 500).max(1);
    (0..=size).filter(move |at| *at < 100 || size - at < 100 || at % stride == 0)
}

#[test]
fn at_every_split() {
    for conversation in conversations().iter().filter(|it| it.says.len() < 10_000) {
        for at in cuts(conversation.says.len()) {
            let pieces = cut(&conversation.says, &[at]);
            let ended = talk(&mut MapEngine::default(), Limits::default(), pieces);
            check(conversation, &format!("split at {at}"), &ended);
        }
    }
}

#[test]
fn every_prefix_hears_a_prefix() {
    for conversation in conversations().iter().filter(|it| it.says.len() < 10_000) {
        let mut heard = 0;
        for at in cuts(conversation.says.len()) {
            let ended = talk_at_once(&mut MapEngine::default(), &conversation.says[..at]);
            assert!(
                conversation.hears.starts_with(&ended.output) && ended.output.len() >= heard,
                "{}, up to {at}: {}",
                conversation.name,
                show(&ended.output)
            );
            heard = ended.output.len();
        }
    }
}

#[test]
fn with_late_answers() {
    for conversation in conversations() {
        for (seed, late_percent) in [(1, 100), (2, 50), (3, 50), (4, 10)] {
            let mut engine = LateEngine::new(MapEngine::default(), seed, late_percent);
            let ended = talk_at_once(&mut engine, &conversation.says);
            check(
                &conversation,
                &format!("seed {seed}, {late_percent} % late"),
                &ended,
            );
        }
    }
}

#[test]
fn with_tight_limits() {
    let limits = Limits {
        output_high_water: 1,
        in_flight_max: 1,
        ..Limits::default()
    };
    for conversation in conversations() {
        for (seed, late_percent) in [(1, 0), (2, 50)] {
            let mut engine = LateEngine::new(MapEngine::default(), seed, late_percent);
            let ended = talk(&mut engine, limits, [&conversation.says[..]]);
            check(&conversation, &format!("tight, seed {seed}"), &ended);
        }
    }
}

#[test]
fn input_behind_an_upgrade_stays_unread() {
    let says = b"version\r\nvervain test\r\n\x00\x01not ours\r\n";
    for at in 0..=says.len() {
        let pieces = cut(says, &[at]);
        let ended = talk(
            &mut LateEngine::new(MapEngine::default(), 1, 100),
            Limits::default(),
            pieces,
        );
        assert_eq!(ended.step, Step::Upgrade);
        assert_eq!(
            show(&ended.unread),
            show(b"\x00\x01not ours\r\n"),
            "split at {at}"
        );
    }
}
