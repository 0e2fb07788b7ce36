//! Conversations kept in `tests/corpus`, replayed whole, at every split, up to every prefix, and
//! with late answers.
//!
//! A file is a list of conversations. `#` begins one with its name, `>` lines are what the client
//! says, `<` lines what it hears, `!` says how it ends if the connection does not stay. Spaces
//! around a line count, except the one behind its mark. `\r`, `\n`, `\t`, `\xNN` and `\\` are escapes,
//! `{s*9}` is `s` nine times. A conversation marked `~` is one that memcached 1.6.18 answers otherwise.

use engine::{LateEngine, MapEngine};
use memcache::{Limits, Step};

use crate::driver::{Ended, cut, show, talk, talk_at_once};

struct Conversation {
    name: String,
    says: Vec<u8>,
    hears: Vec<u8>,
    ends: Step,
}

const CORPUS: [&str; 6] = [
    include_str!("../corpus/retrieval.txt"),
    include_str!("../corpus/storage.txt"),
    include_str!("../corpus/change.txt"),
    include_str!("../corpus/administration.txt"),
    include_str!("../corpus/lines.txt"),
    include_str!("../corpus/large.txt"),
];

fn conversations() -> Vec<Conversation> {
    let mut list: Vec<Conversation> = Vec::new();
    for line in CORPUS.iter().flat_map(|file| file.lines()) {
        let (mark, text) = line.split_at(line.len().min(2));
        if mark == "# " {
            let (says, hears) = (Vec::new(), Vec::new());
            list.push(Conversation {
                name: text.to_owned(),
                says,
                hears,
                ends: Step::Input,
            });
            continue;
        }
        let Some(last) = list.last_mut() else {
            panic!("a line before the first name: {line}")
        };
        match mark {
            "> " => last.says.extend(unescape(text)),
            "< " => last.hears.extend(unescape(text)),
            "! " if text == "closes" => last.ends = Step::Close,
            "! " if text == "upgrades" => last.ends = Step::Upgrade,
            "~ " | "" => {}
            _ => panic!("not a line of a conversation: {line}"),
        }
    }
    assert!(list.len() > 100, "the corpus was not read");
    list
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '\\' => {
                let (escape, after) = rest.split_at(1);
                rest = after;
                match escape {
                    "r" => bytes.push(b'\r'),
                    "n" => bytes.push(b'\n'),
                    "t" => bytes.push(b'\t'),
                    "\\" => bytes.push(b'\\'),
                    "x" => {
                        bytes.push(u8::from_str_radix(&rest[..2], 16).expect("two hex digits"));
                        rest = &rest[2..];
                    }
                    _ => panic!("not an escape: \\{escape} in {text}"),
                }
            }
            '{' => {
                let (repeat, after) = rest.split_once('}').expect("a closing brace");
                let (what, times) = repeat.rsplit_once('*').expect("a number of times");
                bytes.extend(what.repeat(times.parse().expect("a number")).into_bytes());
                rest = after;
            }
            _ => bytes.extend(first.to_string().into_bytes()),
        }
    }
    bytes
}

fn check(conversation: &Conversation, how: &str, ended: &Ended) {
    assert_eq!(
        show(&ended.output),
        show(&conversation.hears),
        "{}, {how}: {}",
        conversation.name,
        show(&conversation.says[..conversation.says.len().min(200)])
    );
    assert_eq!(
        ended.step, conversation.ends,
        "{}, {how}",
        conversation.name
    );
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
