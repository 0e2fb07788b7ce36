//! The checker against histories that are right, and against wrong ones.

use cache::herd::{Status, StoreMode};

use crate::history::{Action, Answer, Moment, Operation};
use crate::{Exact, Verdict, check};

/// A history under construction.
#[derive(Default)]
struct Story {
    operations: Vec<Operation>,
    clock_s: u32,
}

impl Story {
    fn add(
        &mut self,
        (begins, ends): (Moment, Option<Moment>),
        action: Action,
        answer: Option<Answer>,
    ) -> &mut Self {
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

    /// One after the other.
    fn then(&mut self, action: Action, answer: Answer) -> &mut Self {
        let at = self.now();
        self.add((at, Some(at + 1)), action, Some(answer))
    }

    fn now(&self) -> Moment {
        let ends = self
            .operations
            .iter()
            .map(|op| op.ends.unwrap_or(op.begins));
        ends.max().unwrap_or(0) + 1
    }

    fn at_second(&mut self, clock_s: u32) -> &mut Self {
        self.clock_s = clock_s;
        self
    }

    fn verdict(&self) -> Verdict {
        check(&self.operations.iter().collect::<Vec<_>>())
    }

    #[track_caller]
    fn is_explained(&self) {
        let verdict = self.verdict();
        assert!(matches!(verdict, Verdict::Explained(_)), "{verdict:?}");
    }

    #[track_caller]
    fn is_a_lie_at(&self, number: usize) {
        match self.verdict() {
            Verdict::Lie(lie) => assert_eq!(lie.number, number, "{}", lie.why),
            verdict => panic!("{verdict:?}"),
        }
    }
}

fn store(mode: StoreMode, value: &str) -> Action {
    Action::Store {
        mode,
        value: value.into(),
        flags: 0,
        expiry_s: 0,
    }
}

fn set(value: &str) -> Action {
    store(StoreMode::Set, value)
}

fn found(value: &str) -> Answer {
    Answer::Value {
        value: value.into(),
        flags: 0,
        cas: None,
    }
}

fn found_as(value: &str, cas: u64) -> Answer {
    Answer::Value {
        value: value.into(),
        flags: 0,
        cas: Some(cas),
    }
}

const DONE: Answer = Answer::Done { cas: None };
const MISS: Answer = Answer::Refused(Status::NotFound);

fn number(value: u64) -> Answer {
    Answer::Number { value, cas: None }
}

fn incr(delta: u64) -> Action {
    Action::Incr { delta }
}

#[test]
fn a_cache_may_forget() {
    let mut story = Story::default();
    story.then(Action::Get, MISS);
    story.then(set("a"), DONE).then(Action::Get, found("a"));
    story.then(Action::Get, MISS).then(Action::Get, MISS);
    story.then(store(StoreMode::Add, "b"), DONE);
    story.then(Action::Get, found("b"));
    story.then(incr(1), MISS);
    story.is_explained();
}

#[test]
fn what_was_forgotten_does_not_come_back() {
    let mut story = Story::default();
    story.then(set("a"), DONE).then(Action::Get, MISS);
    story.then(Action::Get, found("a"));
    story.is_a_lie_at(2);
}

#[test]
fn an_old_value_does_not_come_back() {
    let mut story = Story::default();
    story.then(set("a"), DONE).then(set("b"), DONE);
    story.then(Action::Get, found("a"));
    story.is_a_lie_at(2);
}

#[test]
fn a_value_that_nobody_stored_is_a_lie() {
    let mut story = Story::default();
    story.then(set("a"), DONE).then(Action::Get, found("A"));
    story.is_a_lie_at(1);
    let mut story = Story::default();
    story.then(set("a"), DONE);
    let flagged = Answer::Value {
        value: b"a".to_vec(),
        flags: 1,
        cas: None,
    };
    story.then(Action::Get, flagged);
    story.is_a_lie_at(1);
}

#[test]
fn commands_at_the_same_time_go_in_any_order_but_one() {
    let history = |last: &str| {
        let mut story = Story::default();
        story.add((1, Some(10)), set("a"), Some(DONE));
        story.add((2, Some(9)), set("b"), Some(DONE));
        story.add((3, Some(4)), Action::Get, Some(found("a")));
        story.add((5, Some(6)), Action::Get, Some(found(last)));
        story
    };
    history("a").is_explained();
    history("b").is_explained();
    let mut story = history("b");
    story.add((7, Some(8)), Action::Get, Some(found("a")));
    story.is_a_lie_at(4);
}

#[test]
fn a_command_has_its_place_between_its_beginning_and_its_end() {
    let mut story = Story::default();
    story.add((1, Some(2)), Action::Get, Some(found("a")));
    story.add((3, Some(4)), set("a"), Some(DONE));
    story.is_a_lie_at(0);
}

#[test]
fn increments_happen_once() {
    let mut story = Story::default();
    story.then(set("5"), DONE).then(incr(2), number(7));
    story.then(incr(2), number(9)).then(Action::Get, found("9"));
    story.is_explained();
    let mut story = Story::default();
    story.then(set("5"), DONE).then(incr(2), number(9));
    story.is_a_lie_at(1);
    let mut story = Story::default();
    story.then(set("10"), DONE);
    story.then(Action::Decr { delta: 1 }, number(9));
    story.then(Action::Get, found("9 "));
    story.then(Action::Decr { delta: 10 }, number(0));
    story.is_explained();
}

#[test]
fn a_command_of_unknown_outcome_happens_once_or_not_at_all() {
    let unknown = |ends| {
        let mut story = Story::default();
        story.then(set("1"), DONE);
        story.add((4, ends), incr(1), Some(Answer::TimedOut));
        story
    };
    let mut story = unknown(None);
    story.add((5, Some(6)), Action::Get, Some(found("1")));
    story.is_explained();
    story.add((7, Some(8)), Action::Get, Some(found("2")));
    story.is_explained();
    let mut twice = unknown(None);
    twice.add((5, Some(6)), Action::Get, Some(found("3")));
    twice.is_a_lie_at(2);
    let mut undone = unknown(None);
    undone.add((5, Some(6)), Action::Get, Some(found("2")));
    undone.add((7, Some(8)), Action::Get, Some(found("1")));
    undone.is_a_lie_at(3);
    // Once it is over it has no effect any more.
    let mut late = unknown(Some(7));
    late.add((5, Some(6)), Action::Get, Some(found("1")));
    late.add((8, Some(9)), Action::Get, Some(found("2")));
    late.is_explained();
    late.operations[2].begins = 10;
    late.operations[2].ends = Some(11);
    late.operations[3].begins = 12;
    late.operations[3].ends = Some(13);
    late.is_a_lie_at(3);
}

#[test]
fn a_client_that_died_may_have_stored() {
    let mut story = Story::default();
    story.add((1, None), set("a"), None);
    story.add((5, Some(6)), Action::Get, Some(MISS));
    story.add((7, Some(8)), Action::Get, Some(found("a")));
    story.is_explained();
}

#[test]
fn tokens_belong_to_values() {
    let cas = |token| store(StoreMode::Cas(token), "c");
    let exists = Answer::Refused(Status::Exists);
    let mut story = Story::default();
    story.then(set("a"), Answer::Done { cas: Some(7) });
    story.then(Action::Get, found_as("a", 7));
    story.then(cas(7), DONE);
    story.then(cas(7), exists.clone());
    story.is_explained();
    // The token is another one's.
    let mut story = Story::default();
    story.then(set("a"), Answer::Done { cas: Some(7) });
    story.then(set("b"), DONE).then(cas(7), DONE);
    story.is_a_lie_at(2);
    // It would have fitted.
    let mut story = Story::default();
    story.then(set("a"), Answer::Done { cas: Some(7) });
    story.then(cas(7), exists);
    story.is_a_lie_at(1);
    // One token, two values.
    let mut story = Story::default();
    story.then(set("a"), Answer::Done { cas: Some(7) });
    story.then(set("b"), Answer::Done { cas: Some(7) });
    story.is_a_lie_at(1);
    // The token of a value that did not change has changed.
    let mut story = Story::default();
    story.then(set("a"), Answer::Done { cas: Some(7) });
    story.then(Action::Get, found_as("a", 8));
    story.is_a_lie_at(1);
}

#[test]
fn conditions_need_presence_or_absence() {
    let not_stored = || Answer::Refused(Status::NotStored);
    let mut story = Story::default();
    story.then(store(StoreMode::Add, "a"), not_stored());
    story.is_a_lie_at(0);
    for mode in [StoreMode::Replace, StoreMode::Append, StoreMode::Prepend] {
        let mut story = Story::default();
        story.then(store(mode, "a"), DONE);
        story.is_a_lie_at(0);
        let mut story = Story::default();
        story
            .then(set("b"), DONE)
            .then(store(mode, "a"), not_stored());
        story.is_explained();
    }
    for action in [Action::Delete, Action::Touch { expiry_s: 0 }] {
        let mut story = Story::default();
        story.then(action, DONE);
        story.is_a_lie_at(0);
    }
    let mut story = Story::default();
    story.then(set("b"), DONE);
    story.then(store(StoreMode::Append, "c"), DONE);
    story.then(store(StoreMode::Prepend, "a"), DONE);
    story.then(Action::Get, found("abc"));
    story.then(Action::Delete, DONE);
    story.is_explained();
    story.then(Action::Get, found("abc"));
    story.is_a_lie_at(5);
}

#[test]
fn what_has_expired_is_gone() {
    let until = |expiry_s| Action::Store {
        mode: StoreMode::Set,
        value: b"a".to_vec(),
        flags: 0,
        expiry_s,
    };
    let mut story = Story::default();
    story.at_second(10).then(until(20), DONE);
    story.at_second(19).then(Action::Get, found("a"));
    story.is_explained();
    story.at_second(20).then(Action::Get, found("a"));
    story.is_a_lie_at(2);
    let mut story = Story::default();
    story.at_second(10).then(until(20), DONE);
    story.then(Action::Touch { expiry_s: 30 }, DONE);
    story.at_second(29).then(Action::Get, found("a"));
    story.is_explained();
    story.then(Action::GetAndTouch { expiry_s: 0 }, found("a"));
    story.at_second(50).then(Action::Get, found("a"));
    story.is_explained();
}

#[test]
fn a_read_that_touches_is_two_steps() {
    let mut story = Story::default();
    story.at_second(10).then(set("a"), DONE);
    // It touched `a`; its answer was lost; the repeat found `b`, which it did not touch.
    let touch = Action::GetAndTouch { expiry_s: 11 };
    story.add((10, Some(20)), touch, Some(found("b")));
    story.add((12, Some(13)), set("b"), Some(DONE));
    story.at_second(15);
    story.add((30, Some(31)), Action::Get, Some(found("b")));
    story.is_explained();
    // But it did touch, before it read.
    let mut story = Story::default();
    story.at_second(10).then(set("a"), DONE);
    story.then(Action::GetAndTouch { expiry_s: 11 }, found("a"));
    story.at_second(15).then(Action::Get, found("a"));
    story.is_a_lie_at(2);
}

/// What changes nothing at one place may change something at a later one.
#[test]
fn a_touch_that_changes_nothing_may_come_later() {
    let lasting = |value: &str| Action::Store {
        mode: StoreMode::Set,
        value: value.into(),
        flags: 0,
        expiry_s: 11,
    };
    let mut story = Story::default();
    story.at_second(10).then(set("a"), DONE);
    story.add((10, Some(20)), Action::Touch { expiry_s: 0 }, Some(DONE));
    story.add((11, Some(14)), Action::Get, Some(found("a")));
    story.add((12, Some(22)), lasting("b"), Some(DONE));
    story.at_second(15);
    story.add((30, Some(31)), Action::Get, Some(found("b")));
    story.is_explained();
    // Nor need it come late.
    let mut story = Story::default();
    story.then(set("a"), DONE);
    story.add((10, Some(20)), Action::Touch { expiry_s: 0 }, Some(DONE));
    story.add((11, Some(14)), Action::Delete, Some(DONE));
    story.is_explained();
    // A touch that found nothing, and then a repeat that found something.
    let mut story = Story::default();
    story.at_second(10);
    let touch = Action::GetAndTouch { expiry_s: 10 };
    story.add((10, Some(20)), touch, Some(found("a")));
    story.add((12, Some(13)), set("a"), Some(DONE));
    story.add((30, Some(31)), Action::Get, Some(found("a")));
    story.is_explained();
}

#[test]
fn answers_that_belong_to_another_command_are_lies() {
    let mut story = Story::default();
    story.then(set("a"), found("a"));
    story.is_a_lie_at(0);
    let mut story = Story::default();
    story.then(Action::Get, Answer::Refused(Status::Busy));
    story.is_a_lie_at(0);
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
                Some((value, cas)) => (Action::Get, found_as(value, *cas)),
                None => (Action::Get, MISS),
            },
            2 => {
                token += 1;
                item = Some((number.to_string(), token));
                (set(&number.to_string()), Answer::Done { cas: Some(token) })
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
                    (incr(3), number_with(sum, token))
                }
                None => (incr(3), MISS),
            },
        };
        match random.u8(..8) {
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

fn number_with(value: u64, cas: u64) -> Answer {
    Answer::Number {
        value,
        cas: Some(cas),
    }
}

#[test]
fn random_histories_of_a_right_cache_are_explained() {
    for seed in 0..300 {
        let story = right_history(&mut fastrand::Rng::with_seed(seed));
        let verdict = story.verdict();
        assert!(
            matches!(verdict, Verdict::Explained(_)),
            "seed {seed}: {verdict:?}"
        );
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
        caught += usize::from(matches!(story.verdict(), Verdict::Lie(_)));
    }
    assert!(tried > 200, "{tried}");
    assert_eq!(caught, tried);
}

#[test]
fn only_behind_a_get_that_found_it_may_an_item_not_be_forgotten() {
    let mut exact = Exact::new(1000);
    let set = Action::Store {
        mode: StoreMode::Set,
        value: b"v".into(),
        flags: 0,
        expiry_s: 0,
    };
    let found = Answer::Value {
        value: b"v".into(),
        flags: 0,
        cas: None,
    };
    let (stored, absent) = (
        Answer::Done { cas: None },
        Answer::Refused(Status::NotFound),
    );
    for asked in [false, true] {
        exact.told(b"key", &set, &stored).expect("stored");
        if asked {
            exact.told(b"key", &Action::Get, &found).expect("there");
        }
        let told = exact.told(b"key", &Action::Delete, &absent);
        assert_eq!(told.is_err(), asked, "{told:?}");
    }
    assert_eq!(exact.forgotten(), 1);
}
