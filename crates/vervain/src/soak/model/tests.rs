//! Histories that a correct cache may have, and those that it may not.

use super::own::{Allowed, Own};
use super::*;

/// A question that took a moment, the `at`th second of the run.
fn at(second: u64) -> Span {
    from_to(second, second)
}

fn from_to(from: u64, to: u64) -> Span {
    Span {
        from: from * 1_000_000_000,
        to: to * 1_000_000_000 + 1_000_000,
        from_s: 1_000_000 + from,
        to_s: 1_000_000 + to,
        ahead_s_min: 0,
        ahead_s_min_ever: 0,
    }
}

fn stores(mode: Mode, id: OpId) -> Action {
    Action::Store {
        mode,
        content: Content::of(id, 30),
        flags: 5,
        expiry: Expiry::Never,
    }
}

fn expires(id: OpId, expiry: Expiry) -> Action {
    Action::Store {
        mode: Mode::Set,
        content: Content::of(id, 30),
        flags: 5,
        expiry,
    }
}

fn value(content: &Content) -> Answer {
    Answer::Value {
        bytes: content.bytes(),
        flags: 5,
        token: None,
    }
}

fn value_of(id: OpId) -> Answer {
    value(&Content::of(id, 30))
}

const DONE: Answer = Answer::Done { token: None };

/// A key, asked about once a second.
struct Key {
    own: Own,
    second: u64,
}

impl Key {
    fn new() -> Self {
        Key {
            own: Own::new(),
            second: 0,
        }
    }

    fn try_ask(&mut self, id: OpId, action: &Action, answer: &Answer) -> Result<(), Allowed> {
        self.second += 1;
        self.own.answered(id, action, answer, at(self.second))
    }

    #[track_caller]
    fn may(&mut self, id: OpId, action: &Action, answer: &Answer) {
        if let Err(Allowed(allowed)) = self.try_ask(id, action, answer) {
            panic!("{action} cannot be answered {answer}, but {allowed}");
        }
    }

    #[track_caller]
    fn may_not(&mut self, id: OpId, action: &Action, answer: &Answer) {
        let mut copy = self.own.clone();
        let done = copy.answered(id, action, answer, at(self.second + 1));
        assert!(done.is_err(), "{action} may be answered {answer}");
    }
}

#[test]
fn only_the_last_value_or_none_is_read() {
    let mut key = Key::new();
    key.may_not(1, &Action::Get, &value_of(1));
    key.may(1, &stores(Mode::Set, 1), &DONE);
    key.may(2, &stores(Mode::Set, 2), &DONE);
    key.may_not(3, &Action::Get, &value_of(1));
    let mut torn = Content::of(2, 30).bytes();
    torn[29] ^= 1;
    let torn = Answer::Value {
        bytes: torn,
        flags: 5,
        token: None,
    };
    key.may_not(3, &Action::Get, &torn);
    let flags = Answer::Value {
        bytes: Content::of(2, 30).bytes(),
        flags: 4,
        token: None,
    };
    key.may_not(3, &Action::Get, &flags);
    key.may_not(3, &Action::Get, &Answer::Odd("what?".into()));
    key.may(3, &Action::Get, &value_of(2));
    // It may forget, but not remember again.
    key.may(4, &Action::Get, &Answer::NotFound);
    key.may_not(5, &Action::Get, &value_of(2));
    key.may_not(5, &stores(Mode::Add, 5), &Answer::NotStored);
    key.may(5, &stores(Mode::Add, 5), &DONE);
    key.may(6, &Action::Delete, &DONE);
    key.may_not(7, &Action::Get, &value_of(5));
    key.may_not(7, &Action::Touch(Expiry::Never), &DONE);
}

#[test]
fn what_nobody_learnt_may_come_once() {
    let mut key = Key::new();
    key.may(1, &stores(Mode::Set, 1), &DONE);
    key.own.lost(2, &stores(Mode::Set, 2));
    key.may(3, &Action::Get, &value_of(1));
    // Late, after another write even.
    key.may(4, &stores(Mode::Set, 4), &DONE);
    key.may(5, &Action::Get, &value_of(2));
    key.may_not(6, &Action::Get, &value_of(4));
    key.may(6, &stores(Mode::Set, 6), &DONE);
    key.may_not(7, &Action::Get, &value_of(2));
    // Appended at most once, to whatever was there.
    key.own.lost(8, &stores(Mode::Append, 8));
    let six = Content::of(6, 30);
    let longer = six.followed_by(&Content::of(8, 30));
    let twice = longer.followed_by(&Content::of(8, 30));
    key.may_not(9, &Action::Get, &value(&twice));
    key.may(9, &Action::Get, &value(&six));
    key.may(10, &Action::Get, &value(&longer));
    key.may_not(11, &Action::Get, &value(&six));
    // Many unknown outcomes wear a key out.
    assert!(!key.own.is_worn());
    for id in 20..23 {
        key.own.lost(id, &Action::Delete);
    }
    assert!(key.own.is_worn());
}

#[test]
fn a_killed_server_has_forgotten() {
    let mut key = Key::new();
    key.may(1, &stores(Mode::Set, 1), &DONE);
    key.own.lost(2, &stores(Mode::Set, 2));
    key.own.forget();
    key.may_not(3, &Action::Get, &value_of(1));
    key.may_not(3, &Action::Get, &value_of(2));
    key.may(3, &stores(Mode::Set, 3), &DONE);
    // Killed while these were asked: the first answer is of the old server, the second of either.
    let set = stores(Mode::Set, 5);
    let (get, three) = (Action::Get, value_of(3));
    let asked = [(4, &get, Some(&three)), (5, &set, Some(&DONE))];
    let mut other = key.own.clone();
    key.own
        .answered_across(&asked, at(20))
        .expect("answers of both servers");
    key.second = 30;
    key.may_not(6, &Action::Get, &value_of(3));
    let mut one = Key {
        own: key.own.clone(),
        second: 30,
    };
    one.may(6, &Action::Get, &value_of(5));
    key.may(6, &Action::Get, &Answer::NotFound);
    key.may_not(7, &Action::Get, &value_of(5));
    let asked = [(4, &get, Some(&DONE))];
    assert!(other.answered_across(&asked, at(20)).is_err());
}

#[test]
fn tokens_stand_for_versions() {
    let mut key = Key::new();
    let with = |token| Answer::Done { token: Some(token) };
    let read = |id, token| Answer::Value {
        bytes: Content::of(id, 30).bytes(),
        flags: 5,
        token: Some(token),
    };
    let cas = |token, of| stores(Mode::Cas { token, of }, 9);
    key.may_not(9, &cas(1, 0), &DONE);
    key.may(1, &stores(Mode::Set, 1), &with(70));
    key.may_not(2, &Action::Get, &read(1, 71));
    key.may(2, &Action::Touch(Expiry::Never), &DONE);
    key.may(2, &Action::Get, &read(1, 70));
    key.may_not(9, &cas(70, 1), &Answer::Exists);
    key.may(9, &cas(70, 1), &with(75));
    key.may_not(9, &cas(70, 1), &DONE);
    key.may(10, &cas(70, 1), &Answer::Exists);
    key.may(10, &cas(70, 1), &Answer::NotFound);
    key.may_not(10, &cas(70, 1), &Answer::Exists);
}

#[test]
fn expired_items_do_not_show() {
    for expiry in [Expiry::In(3), Expiry::At(1_000_004)] {
        let mut key = Key::new();
        key.may(1, &expires(1, expiry), &DONE);
        key.may(2, &Action::Get, &value_of(1));
        key.second = 7;
        key.may_not(3, &Action::Get, &value_of(1));
        key.may(3, &stores(Mode::Add, 3), &DONE);
        // What was sent but not answered counts from when it is carried out.
        let mut key = Key::new();
        key.own.lost(1, &expires(1, expiry));
        key.second = 4;
        key.may(3, &Action::Get, &value_of(1));
    }
    let mut key = Key::new();
    key.own.lost(1, &expires(1, Expiry::At(1_000_004)));
    key.second = 7;
    key.may_not(3, &Action::Get, &value_of(1));
    let mut key = Key::new();
    key.may(1, &expires(1, Expiry::In(2)), &DONE);
    key.may(2, &Action::GetAndTouch(Expiry::Never), &value_of(1));
    key.second = 50;
    key.may(3, &Action::Get, &value_of(1));
}

#[test]
fn a_date_means_the_clock_as_it_was() {
    let date = Action::Touch(Expiry::At(1_000_004));
    let touch = |ahead_s_min| {
        let mut own = Own::new();
        own.answered(1, &stores(Mode::Set, 1), &DONE, at(1))
            .expect("stored");
        let span = Span {
            ahead_s_min,
            ..at(2)
        };
        own.answered(2, &date, &DONE, span).expect("touched");
        own
    };
    let shows = |own: &Own, second| {
        let mut copy = own.clone();
        copy.answered(3, &Action::Get, &value_of(1), at(second))
            .is_ok()
    };
    // The clock was two seconds slow, or may have been: the date comes two seconds later.
    let slow = touch(-2);
    assert!(shows(&slow, 7) && !shows(&slow, 8));
    // It was fast: the date is over.
    let fast = touch(3);
    assert!(shows(&fast, 2) && !shows(&fast, 3));
    // Nobody knows when it was carried out, and the clock was a day slow once.
    let mut own = Own::new();
    own.lost(1, &expires(1, Expiry::At(1_000_004)));
    let span = Span {
        ahead_s_min_ever: -86_400,
        ..at(9)
    };
    own.answered(2, &Action::Get, &value_of(1), span)
        .expect("its date is tomorrow");
}

#[test]
fn a_flush_takes_what_was_stored_before_it() {
    let second = |second: u64| second * 1_000_000_000;
    let mut key = Key::new();
    key.may(1, &stores(Mode::Set, 1), &DONE);
    key.may(2, &Action::Touch(Expiry::Never), &DONE);
    key.own.flushed(second(1));
    key.may(3, &Action::Get, &value_of(1));
    // Touching or reading an item is not storing it.
    key.own.flushed(second(4));
    key.may_not(4, &Action::Get, &value_of(1));
    key.may_not(4, &stores(Mode::Append, 4), &DONE);
    key.may(4, &Action::Get, &Answer::NotFound);
    // What was stored while the server forgot may stay.
    key.second = 9;
    key.may(10, &stores(Mode::Set, 10), &DONE);
    key.own.flushed(second(10));
    key.may(11, &Action::Get, &value_of(10));
    // What is changed is stored anew.
    key.may(12, &stores(Mode::Append, 12), &DONE);
    let appended = Content::of(10, 30).followed_by(&Content::of(12, 30));
    key.own.flushed(second(12));
    key.may(13, &Action::Get, &value(&appended));
    key.own.flushed(second(20));
    key.may_not(21, &Action::Get, &value(&appended));
    // What was sent but not answered may be carried out behind it, until somebody has seen it.
    let mut key = Key::new();
    key.own.lost(1, &stores(Mode::Set, 1));
    key.own.flushed(second(5));
    key.second = 6;
    key.may(2, &Action::Get, &value_of(1));
    key.own.flushed(second(9));
    key.may_not(3, &Action::Get, &value_of(1));
}

#[test]
fn numbers_are_counted() {
    let mut key = Key::new();
    let number = |mode, number| Action::Store {
        mode,
        content: Content::Number(number),
        flags: 5,
        expiry: Expiry::Never,
    };
    let (up, down) = (
        Action::Count { up: true, by: 3 },
        Action::Count { up: false, by: 20 },
    );
    key.may(1, &up, &Answer::NotFound);
    key.may(2, &number(Mode::Set, u64::MAX), &DONE);
    key.may_not(3, &up, &Answer::Number(u64::MAX));
    key.may(3, &up, &Answer::Number(2));
    key.may(4, &down, &Answer::Number(0));
    key.own.lost(5, &up);
    key.may_not(6, &up, &Answer::Number(9));
    key.may(6, &up, &Answer::Number(6));
    key.may_not(7, &up, &Answer::Number(12));
    key.may(8, &stores(Mode::Set, 8), &DONE);
    key.may_not(9, &up, &Answer::Number(3));
    key.may(9, &up, &Answer::NotANumber);
}

#[test]
fn what_is_silent_or_refused_is_known() {
    let mut key = Key::new();
    key.may(1, &stores(Mode::Set, 1), &Answer::Silent);
    key.may(2, &Action::Get, &value_of(1));
    key.may(3, &stores(Mode::Set, 3), &Answer::Busy);
    key.may_not(4, &Action::Get, &value_of(3));
    key.may_not(4, &stores(Mode::Set, 4), &Answer::TooLarge);
    let large = Action::Store {
        mode: Mode::Set,
        content: Content::of(5, 1 << 20),
        flags: 0,
        expiry: Expiry::Never,
    };
    key.may(5, &large, &Answer::TooLarge);
    // The one before it must not pass for it.
    key.may_not(6, &Action::Get, &value_of(1));
    key.may(7, &stores(Mode::Set, 7), &DONE);
    key.may(8, &stores(Mode::Replace, 8), &Answer::NoRoom);
    key.may(9, &Action::Get, &value_of(7));
    key.may(10, &stores(Mode::Set, 10), &Answer::NoRoom);
    key.may_not(11, &Action::Get, &value_of(7));
}

/// A register with two writes, one after the other.
fn register() -> Register {
    let mut register = Register::default();
    for id in [1, 2] {
        register.begins(id, 40, at(id).from);
        register.stored(id, at(id));
    }
    register
}

fn shared(id: OpId) -> Answer {
    Answer::Value {
        bytes: Content::of(id, 40).bytes(),
        flags: Register::flags_of(id),
        token: None,
    }
}

#[test]
fn overwritten_values_are_not_read() {
    let mut register = register();
    assert!(register.read(&shared(2), at(3)).is_ok());
    let error = register.read(&shared(1), at(3)).expect_err("overwritten");
    assert!(error.contains("took its place"), "{error}");
    // Whoever asked before it was overwritten may still get it.
    assert!(register.read(&shared(1), from_to(1, 5)).is_ok());
    // Two at once: either may be the last, but one of them.
    for id in [7, 8] {
        register.begins(id, 40, at(10).from);
    }
    for id in [7, 8] {
        register.stored(id, from_to(10, 11));
    }
    assert!(register.read(&shared(7), at(12)).is_ok());
    assert!(register.read(&shared(8), at(13)).is_err());
    assert!(register.read(&shared(7), at(13)).is_ok());
    // A miss, and a delete, take the place of values.
    register.empty(at(14));
    assert!(register.read(&shared(7), at(15)).is_err());
}

#[test]
fn torn_and_foreign_values_are_not_read() {
    let mut register = register();
    let mut wrong = |change: &dyn Fn(&mut Vec<u8>, &mut u32)| {
        let Answer::Value {
            mut bytes,
            mut flags,
            token,
        } = shared(2)
        else {
            unreachable!("a value");
        };
        change(&mut bytes, &mut flags);
        let answer = Answer::Value {
            bytes,
            flags,
            token,
        };
        register.read(&answer, at(3)).expect_err("a wrong value")
    };
    let torn = wrong(&|bytes, _| {
        let other = Content::of(1, 40).bytes();
        bytes[30..].copy_from_slice(&other[30..]);
    });
    assert!(torn.contains("differs from byte 3"), "{torn}");
    wrong(&|bytes, _| bytes.truncate(39));
    wrong(&|_, flags| *flags += 1);
    wrong(&|bytes, _| bytes[0] = b'w');
    let foreign = wrong(&|bytes, _| *bytes = Content::of(99, 40).bytes());
    assert!(foreign.contains("v63 was never written"), "{foreign}");
}

#[test]
fn unknown_writes_may_show_until_the_server_dies() {
    let mut register = register();
    register.begins(3, 40, at(3).from);
    register.lost(3);
    register.begins(4, 40, at(4).from);
    assert!(register.read(&shared(2), at(5)).is_ok());
    assert!(register.read(&shared(3), at(6)).is_ok());
    assert!(register.read(&shared(2), at(7)).is_err());
    register.killed(at(8).from);
    assert!(register.read(&shared(3), at(9)).is_err());
    assert!(register.read(&shared(2), at(9)).is_err());
    // That one was still under way, and may have come to the next server.
    assert!(register.read(&shared(4), at(9)).is_ok());
}

#[test]
fn each_count_happens_once() {
    let mut counter = Counter::default();
    let life = counter.begin_life();
    assert!(counter.read(life, at(1)).is_ok());
    for second in 2..5 {
        counter.asks();
        let number = life + second - 1;
        assert!(counter.counted(number, at(second)).is_ok());
    }
    counter.asks();
    let again = counter.counted(life + 3, at(6));
    assert!(again.is_err_and(|error| error.contains("given out before")));
    assert!(counter.read(life + 3, at(7)).is_ok());
    assert!(counter.read(life + 2, at(7)).is_err(), "too few");
    assert!(counter.read(life + 4, at(7)).is_err(), "too many");
    counter.asks();
    counter.lost();
    assert!(counter.read(life + 4, at(8)).is_ok());
    assert!(counter.read(life + 5, at(8)).is_err(), "too many");
    counter.asks();
    assert!(counter.counted(life + 6, at(9)).is_err(), "one too many");
}

#[test]
fn counters_do_not_rise_from_the_dead() {
    let mut counter = Counter::default();
    let one = counter.begin_life();
    assert!(counter.read(one, at(1)).is_ok());
    let two = counter.begin_life();
    // Somebody's `add` found none.
    assert!(counter.read(two, at(3)).is_ok());
    let error = counter.read(one, at(5)).expect_err("a dead one");
    assert!(error.contains("was over"), "{error}");
    counter.empty(at(6));
    assert!(counter.read(two, at(8)).is_err());
    let three = counter.begin_life();
    assert!(counter.read(three, at(9)).is_ok());
    counter.killed(at(10).from);
    assert!(counter.read(three, at(11)).is_err());
    assert!(counter.read(17, at(12)).is_err(), "of no life");
}
