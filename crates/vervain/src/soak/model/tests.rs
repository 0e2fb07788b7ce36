//! Histories that a correct cache may have, and those that it may not.

use super::*;
use crate::soak::summary::Summary;
use crate::soak::tally::Tally;
use crate::soak::wire::{Kind, Outcome, Request};
use crate::soak::world::Shared;

/// When the runs of these tests begin, by the clock.
const START_S: u64 = 1_700_000_000;
/// The date of their fourth second.
const FOURTH: i64 = START_S as i64 + 4;
const DONE: Answer = Answer::Done { token: None };

fn ns(second: u64) -> Moment {
    second * 1_000_000_000
}

fn from_to(from: u64, to: u64) -> Span {
    Span {
        from: ns(from),
        to: ns(to) + 1_000_000,
        from_s: START_S + from,
        to_s: START_S + to,
        ahead_s_min: 0,
    }
}

/// A question that took a moment, the `at`th second of the run.
fn at(second: u64) -> Span {
    from_to(second, second)
}

fn plain(kind: Kind) -> Request {
    Request {
        kind,
        ..Request::default()
    }
}

fn get() -> Request {
    plain(Kind::Get)
}

fn by(kind: Kind, number: u64) -> Request {
    Request {
        number,
        ..plain(kind)
    }
}

fn stores(kind: Kind, id: OpId) -> Request {
    Request {
        value: value_of(id, 30),
        flags: 5,
        ..plain(kind)
    }
}

fn set(id: OpId) -> Request {
    stores(Kind::Set, id)
}

fn expires(id: OpId, expiry: i64) -> Request {
    Request { expiry, ..set(id) }
}

fn done(token: u64) -> Answer {
    let token = Some(token);
    Answer::Done { token }
}

fn value(bytes: &[u8]) -> Answer {
    Answer::Value {
        bytes: bytes.to_vec(),
        flags: 5,
        token: None,
    }
}

fn read(id: OpId) -> Answer {
    value(&value_of(id, 30))
}

/// A key, and the second of the last question.
#[derive(Clone, Default)]
struct Key {
    item: Item,
    second: u64,
    id: OpId,
}

impl Key {
    /// A key with values stored one after the other.
    fn with(ids: &[OpId]) -> Key {
        let mut key = Key::default();
        for &id in ids {
            key.may(&set(id), DONE);
        }
        key
    }

    /// What happened between two moments; whether that can be.
    fn told(&mut self, request: &Request, outcome: Outcome, span: Span) -> bool {
        self.id += 1;
        let told = self.item.told(self.id, request, &outcome, span);
        told.is_ok()
    }

    fn is_right(&mut self) -> bool {
        self.item.judge(Moment::MAX, &mut Tally::default()).is_ok()
    }

    fn ask(&mut self, request: &Request, outcome: Outcome) -> bool {
        self.second += 1;
        self.told(request, outcome, at(self.second)) && self.is_right()
    }

    #[track_caller]
    fn may(&mut self, request: &Request, answer: Answer) -> &mut Self {
        let text = format!("{request} cannot be answered {answer}");
        assert!(self.ask(request, Outcome::Answered(answer)), "{text}");
        self
    }

    #[track_caller]
    fn may_not(&mut self, request: &Request, answer: Answer) -> &mut Self {
        let text = format!("{request} may be answered {answer}");
        let mut copy = self.clone();
        assert!(!copy.ask(request, Outcome::Answered(answer)), "{text}");
        self
    }

    fn lost(&mut self, request: &Request) -> &mut Self {
        self.second += 1;
        assert!(self.told(request, Outcome::Unknown, at(self.second)));
        self
    }

    fn upset(&mut self, upset: Upset, from: u64, to: u64) -> &mut Self {
        self.item.upset(upset, ns(from), ns(to));
        self
    }

    /// A flush begins, that has only this number.
    fn flushes(&mut self) -> &mut Self {
        self.upset(Upset::Flushes(1 << 30), self.second, self.second)
    }

    fn flushed(&mut self) -> &mut Self {
        self.upset(Upset::Flushed(1 << 30), self.second, self.second + 1)
    }
}

#[test]
fn only_the_last_value_or_none_is_read() {
    let mut key = Key::with(&[1, 2]);
    key.may_not(&get(), read(1));
    let mut torn = value_of(2, 30);
    torn[29] ^= 1;
    key.may_not(&get(), value(&torn));
    key.may_not(&get(), Answer::Odd("what?".into()));
    key.may_not(&by(Kind::Incr, 1), Answer::Number(3));
    key.may(&by(Kind::Incr, 1), Answer::NotANumber);
    key.may(&get(), read(2));
    // It may forget, but not remember again.
    key.may(&get(), Answer::NotFound).may_not(&get(), read(2));
}

#[test]
fn what_nobody_learnt_may_come_once() {
    let mut key = Key::with(&[1]);
    key.lost(&set(2)).may(&get(), read(1));
    // Late, after another write even.
    key.may(&set(4), DONE).may(&get(), read(2));
    key.may_not(&get(), read(4));
    key.may(&set(6), DONE).may_not(&get(), read(2));
    // Appended at most once, to whatever was there.
    key.lost(&stores(Kind::Append, 8));
    let six = value_of(6, 30);
    let longer = [six.clone(), value_of(8, 30)].concat();
    let twice = [longer.clone(), value_of(8, 30)].concat();
    key.may_not(&get(), value(&twice)).may(&get(), value(&six));
    key.may(&get(), value(&longer)).may_not(&get(), value(&six));
    // Many unknown outcomes wear a key out.
    assert!(!key.item.is_worn());
    key.lost(&set(20)).lost(&set(21));
    assert!(key.item.is_worn());
}

#[test]
fn a_killed_server_has_forgotten() {
    let mut key = Key::with(&[1]);
    key.lost(&set(2)).upset(Upset::Killed(90), 2, 2);
    key.may_not(&get(), read(1)).may_not(&get(), read(2));
    key.may(&set(3), DONE);
    // Killed while these were asked: the first answer is of the old server, the second of either.
    let across = |first: Answer| {
        let mut key = key.clone();
        key.upset(Upset::Killed(91), 20, 25);
        let in_order = |second| Span {
            to: ns(second),
            ..at(second)
        };
        key.told(&get(), Outcome::Answered(first), in_order(20));
        key.told(&set(5), Outcome::Answered(DONE), in_order(20));
        key.second = 30;
        key
    };
    let mut key = across(read(3));
    assert!(key.is_right());
    key.may_not(&get(), read(3));
    key.clone().may(&get(), read(5));
    key.may(&get(), Answer::NotFound).may_not(&get(), read(5));
    assert!(!across(read(1)).is_right());
}

#[test]
fn tokens_stand_for_versions() {
    let read = |id, token| Answer::Value {
        bytes: value_of(id, 30),
        flags: 5,
        token: Some(token),
    };
    let cas = |number| Request {
        number,
        ..stores(Kind::Cas, 9)
    };
    let mut key = Key::default();
    key.may(&set(1), done(70)).may_not(&get(), read(1, 71));
    key.may(&get(), read(1, 70))
        .may_not(&cas(70), Answer::Exists);
    key.may(&cas(70), done(75)).may_not(&cas(70), DONE);
    // Another server may use one again.
    key.may(&set(1), done(80)).upset(Upset::Killed(90), 20, 20);
    key.second = 20;
    key.may(&set(2), done(80));
    // Even while it is killed: whose server's answer this is, nobody knows.
    key.upset(Upset::Killed(91), 30, 35);
    let in_batch = Span {
        to: ns(30),
        ..at(30)
    };
    key.told(&set(3), Outcome::Answered(done(80)), in_batch);
    assert!(key.is_right());
    key.second = 36;
    key.may(&get(), read(3, 80));
    // The same of a key that all write: killed after one was asked, before the answer.
    key.upset(Upset::Killed(92), 41, 41);
    key.told(&set(4), Outcome::Answered(done(80)), from_to(40, 45));
    assert!(key.is_right());
}

#[test]
fn expired_items_do_not_show() {
    for expiry in [3, FOURTH] {
        let mut key = Key::default();
        key.may(&expires(1, expiry), DONE).may(&get(), read(1));
        key.second = 7;
        key.may_not(&get(), read(1));
        key.may(&stores(Kind::Add, 3), DONE);
    }
    let mut key = Key::default();
    key.may(&expires(1, 2), DONE);
    key.may(&plain(Kind::GetAndTouch), read(1));
    key.second = 50;
    key.may(&get(), read(1));
    // When what was not answered was carried out, nobody knows.
    let mut key = Key::default();
    key.lost(&expires(1, FOURTH));
    key.second = 50;
    key.may(&get(), read(1));
}

#[test]
fn a_date_means_the_clock_as_it_was() {
    let date = Request {
        expiry: FOURTH,
        ..plain(Kind::Touch)
    };
    let shows = |ahead_s_min, second: u64| {
        let mut key = Key::with(&[1]);
        let span = Span {
            ahead_s_min,
            ..at(2)
        };
        assert!(key.told(&date, Outcome::Answered(DONE), span) && key.is_right());
        key.second = second - 1;
        key.ask(&get(), Outcome::Answered(read(1)))
    };
    // The clock was two seconds slow, or may have been: the date comes two seconds later.
    assert!(shows(-2, 7) && !shows(-2, 8));
    // It was fast: the date is over.
    assert!(shows(3, 2) && !shows(3, 3));
}

#[test]
fn a_flush_takes_what_was_stored_before_it() {
    let mut key = Key::with(&[1]);
    // While the server forgets, it may have or not.
    key.flushes().may(&get(), read(1));
    key.clone().may(&get(), Answer::NotFound);
    // Touching or reading an item is not storing it.
    key.may(&plain(Kind::Touch), DONE).flushed();
    key.may_not(&get(), read(1));
    key.may_not(&stores(Kind::Append, 4), DONE);
    key.may(&get(), Answer::NotFound);
    // What was stored meanwhile may stay, and what is changed is stored anew.
    key.flushes().may(&set(10), DONE).flushed();
    key.may(&get(), read(10)).may(&get(), Answer::NotFound);
    let mut key = Key::with(&[1]);
    key.flushes().may(&set(2), DONE);
    key.upset(Upset::MayHaveFlushed(1 << 30), key.second, key.second);
    key.may(&get(), read(2));
    // What was sent but not answered may be carried out behind it, until somebody has seen it.
    let mut key = Key::default();
    key.lost(&set(1)).flushes().flushed().may(&get(), read(1));
    key.flushes().flushed().may_not(&get(), read(1));
}

#[test]
fn what_is_silent_or_refused_is_known() {
    let mut key = Key::default();
    key.may(&set(1), Answer::Silent).may(&get(), read(1));
    key.may(&set(2), Answer::Silent).may_not(&get(), read(1));
    key.may(&set(3), Answer::Busy).may_not(&get(), read(3));
    key.may_not(&set(4), Answer::TooLarge);
    let large = Request {
        value: value_of(5, 1 << 20),
        ..plain(Kind::Set)
    };
    // The one before it must not pass for it.
    key.may(&large, Answer::TooLarge).may_not(&get(), read(2));
    key.may(&set(7), DONE);
    key.may(&stores(Kind::Replace, 8), Answer::NoRoom);
    key.may(&get(), read(7)).may(&set(10), Answer::NoRoom);
    key.may_not(&get(), read(7));
}

/// Commands of several clients, in any order; whether that can be.
fn at_once(all: &[(Span, Request, Answer)]) -> bool {
    let mut key = Key::default();
    key.told(&set(1), Outcome::Answered(DONE), at(1));
    key.told(&set(2), Outcome::Answered(DONE), at(2));
    let told = |(span, request, answer): &(Span, Request, Answer)| {
        key.told(request, Outcome::Answered(answer.clone()), *span)
    };
    all.iter().all(told) && key.is_right()
}

#[test]
fn overwritten_values_are_not_read_by_anybody() {
    assert!(at_once(&[(at(3), get(), read(2))]));
    assert!(!at_once(&[(at(3), get(), read(1))]));
    // Whoever asked before it was overwritten may still get it.
    assert!(at_once(&[(from_to(1, 5), get(), read(1))]));
    // Two at once: either may be the last, but one of them.
    let two = |reads: [OpId; 3]| {
        let mut all = vec![
            (from_to(10, 11), set(7), DONE),
            (from_to(10, 11), set(8), DONE),
        ];
        let reads = (12..).zip(reads);
        all.extend(reads.map(|(second, id)| (at(second), get(), read(id))));
        at_once(&all)
    };
    assert!(two([7, 7, 7]) && two([8, 8, 8]) && !two([7, 8, 7]) && !two([2, 7, 7]));
    // Nobody is judged before all have been answered who asked before.
    let mut key = Key::with(&[1]);
    key.told(&get(), Outcome::Answered(read(9)), at(5));
    assert!(key.item.judge(ns(5), &mut Tally::default()).is_ok());
    key.told(&set(9), Outcome::Answered(DONE), from_to(4, 6));
    assert!(key.is_right());
}

/// What a run of so many answers and a shared key says, whose search has given up.
fn given_up(answers: u64) -> (serde_json::Value, String) {
    let mut shared = Shared::new(1);
    let mut tally = Tally::default();
    let mut ask = |slot: usize, id, outcome: Outcome| {
        let told = shared.slots[slot].item.told(id, &set(id), &outcome, at(id));
        told.expect("an answer to it");
    };
    for id in 1..answers {
        ask(0, id, Outcome::Answered(DONE));
    }
    // More than the search can tell apart.
    for id in 1..200 {
        ask(1, id, Outcome::Unknown);
    }
    ask(1, 200, Outcome::Answered(DONE));
    let key = shared.slots[1].key.clone();
    shared.answered(0, &mut tally).expect("nothing wrong");
    assert_ne!(shared.slots[1].key, key);
    let summary = Summary {
        seed: 1,
        command: String::new(),
        took: std::time::Duration::ZERO,
        interrupted: false,
        held_up: std::time::Duration::ZERO,
        clients: 1,
        failure: tally.enough_judged().err(),
        tally,
        faults: std::collections::BTreeMap::new(),
        servers: 0,
        peak: None,
        logs: None,
    };
    (summary.json(), summary.text())
}

#[test]
fn a_search_that_gives_up_is_told_and_too_many_fail_the_run() {
    for (answers, is_ok) in [(1, false), (99, false), (100, true)] {
        let (json, text) = given_up(answers);
        assert_eq!(json["answers_checked"], answers - 1, "{json}");
        assert_eq!(json["answers_unjudged"], 1, "{json}");
        assert_eq!(json["keys_undecided"], 1, "{json}");
        assert_eq!(json["ok"], is_ok, "{json}");
        assert_eq!(json["found"]["too_many_unjudged"], u64::from(!is_ok));
        let line = format!("{:<34}1\n", "answers unjudged");
        assert!(text.contains(&line), "{text}");
    }
}
