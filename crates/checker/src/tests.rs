//! The checker against histories that are right, and against wrong ones.

use cache::herd::{Status, StoreMode};

use crate::history::{Action, Answer, Moment, Operation};
use crate::{Exact, Unexplained, check};

/// Values of so many bytes may be refused as too large.
const TOO_LARGE_MIN: usize = 2_000;

/// Commands, and what came of them.
type Told = (Action, Answer);

/// A history under construction: number, clock and moments are as its commands come.
#[derive(Clone, Default)]
struct Story {
    operations: Vec<Operation>,
    clock_s: u32,
}

impl Story {
    /// Commands one after the other.
    fn of<const N: usize>(told: [Told; N]) -> Story {
        Story::default().then(told)
    }

    /// A command that lasted from one moment to another, if it came to an end.
    fn add(
        mut self,
        (begins, ends): (Moment, Option<Moment>),
        action: Action,
        answer: Option<Answer>,
    ) -> Self {
        self.operations.push(Operation {
            number: self.operations.len(),
            client: 0,
            key: 0,
            action,
            begins,
            clock_s: self.clock_s,
            answer,
            ends,
        });
        self
    }

    /// A command with its answer, within moments of its own.
    fn during(self, begins: Moment, ends: Moment, (action, answer): Told) -> Self {
        self.add((begins, Some(ends)), action, Some(answer))
    }

    fn then<const N: usize>(mut self, told: [Told; N]) -> Self {
        for told in told {
            let ends = self
                .operations
                .iter()
                .map(|op| op.ends.unwrap_or(op.begins));
            let at = ends.max().unwrap_or(0) + 1;
            self = self.during(at, at + 1, told);
        }
        self
    }

    fn at_second(mut self, clock_s: u32) -> Self {
        self.clock_s = clock_s;
        self
    }

    fn verdict(&self) -> Result<(), Unexplained> {
        check(&self.operations.iter().collect::<Vec<_>>(), TOO_LARGE_MIN)
    }

    #[track_caller]
    fn explained(self) -> Self {
        assert_eq!(self.verdict(), Ok(()));
        self
    }

    /// Nothing explains the last answer.
    #[track_caller]
    fn is_a_lie(&self) {
        let last = self.operations.len() - 1;
        match self.verdict() {
            Err(Unexplained::Lie(lie)) => assert_eq!(lie.number, last, "{}", lie.why),
            verdict => panic!("{verdict:?}"),
        }
    }
}

fn store(mode: StoreMode, value: &str) -> Action {
    expiring(mode, value, 0)
}

fn expiring(mode: StoreMode, value: &str, expiry_s: u32) -> Action {
    Action::Store {
        mode,
        value: value.into(),
        flags: 0,
        expiry_s,
    }
}

fn set(value: &str) -> Action {
    store(StoreMode::Set, value)
}

/// It is stored, and nobody asks for its token.
fn was_set(value: &str) -> Told {
    (set(value), DONE)
}

fn found(value: &str, cas: Option<u64>) -> Answer {
    Answer::Value {
        value: value.into(),
        flags: 0,
        cas,
    }
}

/// A read finds it.
fn was_read(value: &str) -> Told {
    (Action::Get, found(value, None))
}

const MISSED: Told = (Action::Get, MISS);
const DONE: Answer = Answer::Done { cas: None };
const MISS: Answer = Answer::Refused(Status::NotFound);
const NOT_STORED: Answer = Answer::Refused(Status::NotStored);

fn done(cas: u64) -> Answer {
    Answer::Done { cas: Some(cas) }
}

fn number(value: u64) -> Answer {
    Answer::Number { value, cas: None }
}

fn incr(delta: u64) -> Action {
    Action::Incr { delta }
}

/// The bound on the search is one for each end, not for all while something is under way.
#[test]
fn a_long_history_beside_a_lost_command_is_decided() {
    let story = Story::default().add((0, None), set("lost"), None);
    let operations = |story: Story, pairs: usize| {
        (0..pairs).fold(story, |story, pair| {
            let at = 4 * pair as Moment + 1;
            let story = story.during(at, at + 1, was_set("1"));
            story.during(at + 2, at + 3, was_read("1"))
        })
    };
    operations(story, 30_000)
        .explained()
        .then([was_read("2")])
        .is_a_lie();
}

#[test]
fn a_cache_may_forget_but_not_remember_again() {
    let add = (store(StoreMode::Add, "b"), DONE);
    let forgot = Story::of([MISSED, was_set("a"), was_read("a"), MISSED, MISSED]);
    forgot.clone().then([was_read("a")]).is_a_lie();
    forgot
        .then([add, was_read("b"), (incr(1), MISS)])
        .explained();
    Story::of([was_set("a"), was_set("b"), was_read("a")]).is_a_lie();
}

#[test]
fn a_value_that_nobody_stored_is_a_lie() {
    Story::of([was_set("a"), was_read("A")]).is_a_lie();
    let flagged = Answer::Value {
        value: b"a".to_vec(),
        flags: 1,
        cas: None,
    };
    Story::of([was_set("a"), (Action::Get, flagged)]).is_a_lie();
}

#[test]
fn commands_at_the_same_time_go_in_any_order_but_one() {
    let history = |last: &str| {
        Story::default()
            .during(1, 10, was_set("a"))
            .during(2, 9, was_set("b"))
            .during(3, 4, was_read("a"))
            .during(5, 6, was_read(last))
    };
    history("a").explained();
    let changed = history("b").explained();
    changed.during(7, 8, was_read("a")).is_a_lie();
}

#[test]
fn a_command_has_its_place_between_its_beginning_and_its_end() {
    let story = Story::default().during(3, 4, was_set("a"));
    story.during(1, 2, was_read("a")).is_a_lie();
}

#[test]
fn increments_happen_once() {
    let five = Story::of([was_set("5")]);
    five.clone().then([(incr(2), number(9))]).is_a_lie();
    five.then([(incr(2), number(7)), (incr(2), number(9)), was_read("9")])
        .explained();
    let decr = |delta| Action::Decr { delta };
    let less = [(decr(1), number(9)), was_read("9 "), (decr(10), number(0))];
    Story::of([was_set("10")]).then(less).explained();
}

#[test]
fn a_command_of_unknown_outcome_happens_once_or_not_at_all() {
    let unknown = |ends| {
        let one = Story::of([was_set("1")]);
        one.add((4, ends), incr(1), Some(Answer::TimedOut))
    };
    let undone = unknown(None).during(5, 6, was_read("1")).explained();
    undone.during(7, 8, was_read("2")).explained();
    unknown(None).during(5, 6, was_read("3")).is_a_lie();
    let done = unknown(None).during(5, 6, was_read("2"));
    done.during(7, 8, was_read("1")).is_a_lie();
    // Once it is over it has no effect any more.
    let late = unknown(Some(7)).during(5, 6, was_read("1"));
    late.during(8, 9, was_read("2")).explained();
    let late = unknown(Some(7)).during(10, 11, was_read("1"));
    late.during(12, 13, was_read("2")).is_a_lie();
}

#[test]
fn a_client_that_died_may_have_stored() {
    let died = Story::default().add((1, None), set("a"), None);
    died.during(5, 6, MISSED)
        .during(7, 8, was_read("a"))
        .explained();
}

#[test]
fn what_nobody_asked_the_answer_of_was_carried_out() {
    let unasked = |action| (action, Answer::Unasked);
    Story::of([was_set("a"), unasked(set("b")), was_read("a")]).is_a_lie();
    let deleted = Story::of([was_set("a"), unasked(Action::Delete)]);
    deleted.clone().then([was_read("a")]).is_a_lie();
    // It may have found that it must not.
    let add = unasked(store(StoreMode::Add, "b"));
    for last in ["a", "b"] {
        Story::of([was_set("a"), add.clone(), was_read(last)]).explained();
    }
    let replace = unasked(store(StoreMode::Replace, "b"));
    deleted.then([replace, was_read("b")]).is_a_lie();
}

#[test]
fn tokens_belong_to_values() {
    let cas = |token, answer: &Answer| (store(StoreMode::Cas(token), "c"), answer.clone());
    let exists = Answer::Refused(Status::Exists);
    let read = |cas| (Action::Get, found("a", Some(cas)));
    let seven = Story::of([(set("a"), done(7))]);
    let seven = |told: Told| seven.clone().then([told]);
    seven(read(7))
        .then([cas(7, &DONE), cas(7, &exists)])
        .explained();
    // The token is another one's.
    seven(was_set("b")).then([cas(7, &DONE)]).is_a_lie();
    // It would have fitted.
    seven(cas(7, &exists)).is_a_lie();
    // One token, two values.
    seven((set("b"), done(7))).is_a_lie();
    // The token of a value that did not change has changed.
    seven(read(8)).is_a_lie();
}

#[test]
fn a_token_is_of_one_change() {
    let sum = |value, cas| Answer::Number {
        value,
        cas: Some(cas),
    };
    let five = Story::of([was_set("5")]);
    let longer = store(StoreMode::Append, "0");
    // None has the token 0.
    five.clone().then([(incr(1), sum(6, 0))]).is_a_lie();
    five.clone().then([(longer.clone(), done(0))]).is_a_lie();
    let read = |value, cas| (Action::Get, found(value, Some(cas)));
    five.clone().then([read("5", 0)]).is_a_lie();
    let six = five.then([(incr(1), sum(6, 9))]);
    six.clone().then([read("6", 9)]).explained();
    six.clone().then([read("6", 8)]).is_a_lie();
    for again in [
        (incr(1), sum(7, 9)),
        // The same value does not make it the same change.
        (incr(0), sum(6, 9)),
        (set("6"), done(9)),
        (longer.clone(), done(9)),
    ] {
        six.clone().then([again]).is_a_lie();
    }
    // Nor is it that of a change whose token was not told.
    six.clone().then([was_set("6"), read("6", 9)]).is_a_lie();
    let cas = |told| (store(StoreMode::Cas(9), "7"), told);
    six.clone().then([was_set("6"), cas(DONE)]).is_a_lie();
    six.clone()
        .then([was_set("6"), cas(Answer::Refused(Status::Exists))])
        .explained();
    six.then([(longer, done(10)), read("60", 10)]).explained();
}

#[test]
fn conditions_need_presence_or_absence() {
    Story::of([(store(StoreMode::Add, "a"), NOT_STORED)]).is_a_lie();
    for mode in [StoreMode::Replace, StoreMode::Append, StoreMode::Prepend] {
        Story::of([(store(mode, "a"), DONE)]).is_a_lie();
        Story::of([was_set("b"), (store(mode, "a"), NOT_STORED)]).explained();
    }
    for action in [Action::Delete, Action::Touch { expiry_s: 0 }] {
        Story::of([(action, DONE)]).is_a_lie();
    }
    let longer = [StoreMode::Append, StoreMode::Prepend].map(|mode| (store(mode, "c"), DONE));
    let whole = Story::of([was_set("b")]).then(longer);
    let gone = whole.then([was_read("cbc"), (Action::Delete, DONE)]);
    gone.explained().then([was_read("cbc")]).is_a_lie();
}

#[test]
fn only_what_is_large_is_too_large() {
    const REFUSED: Answer = Answer::Refused(Status::TooLarge);
    let [fits, exceeds] = [TOO_LARGE_MIN - 1, TOO_LARGE_MIN].map(|len| "v".repeat(len));
    let there = Story::of([was_set("a")]);
    for mode in [StoreMode::Set, StoreMode::Add, StoreMode::Replace] {
        for story in [Story::default(), there.clone()] {
            story
                .clone()
                .then([(store(mode, &fits), REFUSED)])
                .is_a_lie();
            story.then([(store(mode, &exceeds), REFUSED)]).explained();
        }
    }
    for mode in [StoreMode::Append, StoreMode::Prepend] {
        // Together with what is there it is.
        let refused = |value| (store(mode, value), REFUSED);
        there
            .clone()
            .then([refused(&fits), was_read("a")])
            .explained();
        there.clone().then([refused("b")]).is_a_lie();
        Story::of([refused(&fits)]).is_a_lie();
        Story::of([refused(&exceeds)]).explained();
    }
    let decr = |delta| Action::Decr { delta };
    for action in [incr(1), decr(1)] {
        Story::of([(action.clone(), REFUSED)]).is_a_lie();
        Story::of([was_set("9"), (action, REFUSED)]).is_a_lie();
    }
    // One byte of value beside the key: no room for another digit.
    let mut exact = Exact::new(1000, 4);
    let mut is_right = |action, answer: &Answer| exact.told(b"key", &action, answer).is_ok();
    assert!(!is_right(set("1"), &REFUSED) && is_right(set("12"), &REFUSED));
    assert!(is_right(set("9"), &DONE));
    assert!(!is_right(incr(0), &REFUSED) && !is_right(decr(1), &REFUSED));
    assert!(is_right(incr(1), &REFUSED) && is_right(decr(1), &number(8)));
}

#[test]
fn what_has_expired_is_gone() {
    let until_20 = (expiring(StoreMode::Set, "a", 20), DONE);
    let short = Story::default().at_second(10).then([until_20]);
    let there = short.clone().at_second(19).then([was_read("a")]);
    there
        .explained()
        .at_second(20)
        .then([was_read("a")])
        .is_a_lie();
    let touched = short.then([(Action::Touch { expiry_s: 30 }, DONE)]);
    let there = touched.at_second(29).then([was_read("a")]);
    let for_ever = (Action::GetAndTouch { expiry_s: 0 }, found("a", None));
    let for_ever = there.explained().then([for_ever]);
    for_ever.at_second(50).then([was_read("a")]).explained();
}

#[test]
fn a_read_that_touches_is_two_steps() {
    let stored = Story::default().at_second(10).then([was_set("a")]);
    let touch = |value| (Action::GetAndTouch { expiry_s: 11 }, found(value, None));
    // It touched `a`; its answer was lost; the repeat found `b`, which it did not touch.
    let repeated = stored.clone().during(10, 20, touch("b"));
    let repeated = repeated.during(12, 13, was_set("b"));
    repeated
        .at_second(15)
        .during(30, 31, was_read("b"))
        .explained();
    // But it did touch, before it read.
    let touched = stored.then([touch("a")]);
    touched.at_second(15).then([was_read("a")]).is_a_lie();
}

/// What changes nothing at one place may change something at a later one.
#[test]
fn a_touch_that_changes_nothing_may_come_later() {
    let touch = (Action::Touch { expiry_s: 0 }, DONE);
    let stored = Story::default().at_second(10).then([was_set("a")]);
    let touched = stored.during(10, 20, touch);
    let later = touched.clone().during(11, 14, was_read("a"));
    let later = later.during(12, 22, (expiring(StoreMode::Set, "b", 11), DONE));
    later
        .at_second(15)
        .during(30, 31, was_read("b"))
        .explained();
    // Nor need it come late.
    touched.during(11, 14, (Action::Delete, DONE)).explained();
    // A touch that found nothing, and then a repeat that found something.
    let touch = (Action::GetAndTouch { expiry_s: 10 }, found("a", None));
    let first = Story::default().at_second(10).during(10, 20, touch);
    first
        .during(12, 13, was_set("a"))
        .during(30, 31, was_read("a"))
        .explained();
}

#[test]
fn answers_that_belong_to_another_command_are_lies() {
    Story::of([(set("a"), found("a", None))]).is_a_lie();
    Story::of([(Action::Get, Answer::Refused(Status::Busy))]).is_a_lie();
}

/// Random histories of a cache that is right: operations take their place at random moments.
fn right_history(random: &mut fastrand::Rng) -> Story {
    let mut story = Story::default();
    let mut item: Option<(String, u64)> = None;
    let mut token = 100;
    for number in 0..60u64 {
        // The place of each is at 100 times its number; beginnings and ends spread around it.
        let place = 1_000 + number * 100;
        let (begins, ends) = (place - random.u64(..400), place + random.u64(1..400));
        if random.u8(..10) == 0 {
            item = None;
        }
        let (action, answer) = match random.u8(..6) {
            0 | 1 => match &item {
                Some((value, cas)) => (Action::Get, found(value, Some(*cas))),
                None => MISSED,
            },
            2 => {
                token += 1;
                item = Some((number.to_string(), token));
                (set(&number.to_string()), done(token))
            }
            3 => {
                let answer = if item.take().is_some() { DONE } else { MISS };
                (Action::Delete, answer)
            }
            _ => match &mut item {
                Some((value, cas)) => {
                    token += 1;
                    let sum = value.parse::<u64>().expect("a number") + 3;
                    (*value, *cas) = (sum.to_string(), token);
                    let (value, cas) = (sum, Some(token));
                    (incr(3), Answer::Number { value, cas })
                }
                None => (incr(3), MISS),
            },
        };
        story = match random.u8(..8) {
            // The answer is lost.
            0 => story.add((begins, Some(ends)), action, None),
            1 => story.add((begins, None), action, Some(Answer::Unknown)),
            _ => story.add((begins, Some(ends)), action, Some(answer)),
        };
    }
    // Moments are unique in a run.
    let mut moments: Vec<(Moment, usize, bool)> = Vec::new();
    for (index, operation) in story.operations.iter().enumerate() {
        moments.push((operation.begins, index, false));
        moments.extend(operation.ends.map(|ends| (ends, index, true)));
    }
    moments.sort_unstable();
    for (moment, (_, index, is_end)) in (1..).zip(moments) {
        let operation = &mut story.operations[index];
        match is_end {
            true => operation.ends = Some(moment),
            false => operation.begins = moment,
        }
    }
    story
}

#[test]
fn random_histories_of_a_right_cache_are_explained() {
    for seed in 0..300 {
        let story = right_history(&mut fastrand::Rng::with_seed(seed));
        assert_eq!(story.verdict(), Ok(()), "seed {seed}");
    }
}

#[test]
fn a_changed_number_is_found_in_every_random_history() {
    let (mut tried, mut caught) = (0, 0);
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut story = right_history(&mut random);
        let told = |op: &&mut Operation| matches!(op.answer, Some(Answer::Number { .. }));
        let mut numbers: Vec<_> = story.operations.iter_mut().filter(told).collect();
        if numbers.is_empty() {
            continue;
        }
        let chosen = random.usize(..numbers.len());
        // Increments are by 3, so none that was lost explains it.
        if let Some(Answer::Number { value, .. }) = &mut numbers[chosen].answer {
            *value += 1_000_001;
        }
        tried += 1;
        caught += usize::from(matches!(story.verdict(), Err(Unexplained::Lie(_))));
    }
    assert!(tried > 200, "{tried}");
    assert_eq!(caught, tried);
}

#[test]
fn only_behind_a_get_that_found_it_may_an_item_not_be_forgotten() {
    let mut exact = Exact::new(1000, TOO_LARGE_MIN);
    for asked in [false, true] {
        exact.told(b"key", &set("v"), &DONE).expect("stored");
        if asked {
            let there = exact.told(b"key", &Action::Get, &found("v", None));
            there.expect("there");
        }
        let told = exact.told(b"key", &Action::Delete, &MISS);
        assert_eq!(told.is_err(), asked, "{told:?}");
    }
    assert_eq!(exact.forgotten(), 1);
}
