//! Whether some order of commands explains all answers about an item.
//!
//! The commands of a history are put in an order, one after the other, such that each has its place
//! between its beginning and its end, and each answer is what `item.rs` says the command finds there.
//! A command with the server's answer must have a place; one without may have one or none.
//!
//! The search goes through beginnings and ends as they happened, and keeps every way in which things
//! can stand: what the item is, and which of the commands under way have had their place. At an
//! end it lets commands take their place until the one that ends has had its own; ways in which it
//! cannot have one are dropped (Lowe's just-in-time linearization over Wing and Gong's search, with
//! equal ways met once). When no way is left, no order explains the answer.

use std::collections::{HashMap, VecDeque};

use crate::history::{Action, Answer, Moment, Operation};
use crate::item::{Act, Item, Step, Told, Values, apply};
use cache::herd::StoreMode;

/// Ways looked at in one history before it counts as undecided.
const WAYS_MAX: usize = 100_000;
/// Commands under way at once that a way can tell apart.
const WAY_BITS: usize = 128;

/// What is wrong with a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lie {
    /// The number of the operation that nothing explains.
    pub number: usize,
    /// Why.
    pub why: String,
}

/// What a history is found to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Some order explains it; so many ways were looked at.
    Explained(usize),
    /// No order does.
    Lie(Lie),
    /// Too many commands under way at once to say.
    Undecided,
}

/// A step of a command, in its time.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: usize,
    step: Step,
    clock_s: u32,
    /// Whether it must have a place.
    is_certain: bool,
    /// The touch that a repeated read leaves out, if that has had its place.
    touch: Option<usize>,
    /// It is such a touch.
    goes_with_read: bool,
    begins: Moment,
    ends: Option<Moment>,
}

/// How things can stand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Way {
    item: Option<Item>,
    /// The commands under way that have had their place, a bit each.
    placed: u128,
}

/// Checks the commands about one item, in any order.
pub fn check(operations: &[&Operation]) -> Verdict {
    let mut values = Values::default();
    for operation in operations {
        if let Some(lie) = bind_tokens(operation, &mut values) {
            return Verdict::Lie(lie);
        }
    }
    let entries = entries(operations, &mut values);
    // Beginnings and ends in their order; ends of what never ends are left out.
    let mut events: Vec<(Moment, bool, usize)> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        events.push((entry.begins, false, index));
        events.extend(entry.ends.map(|ends| (ends, true, index)));
    }
    events.sort_unstable();
    let mut search = Search {
        entries: &entries,
        under_way: Vec::new(),
        values,
        looked: 0,
    };
    let mut ways = vec![Way {
        item: None,
        placed: 0,
    }];
    for (_, is_end, index) in events {
        if !is_end {
            if !search.begin(index) {
                return Verdict::Undecided;
            }
            continue;
        }
        let Some(next) = search.end(index, &ways) else {
            return Verdict::Undecided;
        };
        if next.is_empty() {
            return Verdict::Lie(search.lie(index, &ways));
        }
        ways = next;
    }
    Verdict::Explained(search.looked)
}

/// Learns which token stands for which value; two values under one token are a lie.
fn bind_tokens(operation: &Operation, values: &mut Values) -> Option<Lie> {
    let (cas, value) = match (&operation.action, operation.answer.as_ref()?) {
        (
            _,
            Answer::Value {
                value,
                cas: Some(cas),
                ..
            },
        ) => (*cas, value),
        (
            Action::Store {
                mode: StoreMode::Set | StoreMode::Add | StoreMode::Replace | StoreMode::Cas(_),
                value,
                ..
            },
            Answer::Done { cas: Some(cas) },
        ) => (*cas, value),
        _ => return None,
    };
    let number = values.number(value);
    (!values.bind(cas, number)).then(|| Lie {
        number: operation.number,
        why: format!("token {cas:#x} stands for two values"),
    })
}

fn entries(operations: &[&Operation], values: &mut Values) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for operation in operations {
        let act = Act::of(&operation.action, values);
        let told = operation
            .answer
            .as_ref()
            .and_then(|answer| Told::of(answer, values));
        let entry = |step: Step, is_certain: bool| Entry {
            number: operation.number,
            step,
            clock_s: operation.clock_s,
            is_certain,
            touch: None,
            goes_with_read: false,
            begins: operation.begins,
            ends: operation.ends,
        };
        match (act, told) {
            // Nothing came of these that forgetting does not.
            (Act::Get | Act::Delete, None) => {}
            (Act::GetAndTouch { expiry_s }, None) => {
                entries.push(entry(Step::Touches(expiry_s), false));
            }
            // One step, or two: when the answer was lost, the repeat reads without touching again. A
            // miss may come of a repeat, after the touching found something.
            (Act::GetAndTouch { expiry_s }, Some(told)) => {
                let touch = entry(Step::Touches(expiry_s), false);
                if let Told::Value { .. } = told {
                    // It goes with the read.
                    entries.push(Entry {
                        ends: None,
                        goes_with_read: true,
                        ..touch
                    });
                    let touch = Some(entries.len() - 1);
                    let read = entry(Step::Told(act, told), true);
                    entries.push(Entry { touch, ..read });
                } else {
                    entries.push(touch);
                    entries.push(entry(Step::Told(Act::Get, told), true));
                }
            }
            (_, Some(told)) => entries.push(entry(Step::Told(act, told), true)),
            (_, None) => entries.push(entry(Step::Untold(act), false)),
        }
    }
    entries
}

/// Ways that have been met. Of two that differ only in what need not have had a place, the one where
/// less has had one is as good: what it lacks may still have its place, or none.
struct Met {
    optional: u128,
    ways: HashMap<(Option<Item>, u128), Vec<u128>>,
}

impl Met {
    fn new(optional: u128) -> Met {
        let ways = HashMap::new();
        Met { optional, ways }
    }

    /// Adds a way; `false` when one as good has been met.
    fn insert(&mut self, way: Way) -> bool {
        let (needed, free) = (way.placed & !self.optional, way.placed & self.optional);
        let alike = self.ways.entry((way.item, needed)).or_default();
        if alike.iter().any(|met| met & !free == 0) {
            return false;
        }
        alike.push(free);
        true
    }
}

struct Search<'a> {
    entries: &'a [Entry],
    /// Entries under way, by their bit.
    under_way: Vec<Option<usize>>,
    values: Values,
    looked: usize,
}

impl Search<'_> {
    /// Gives an entry a bit; `false` when there are too many.
    fn begin(&mut self, index: usize) -> bool {
        match self.under_way.iter().position(Option::is_none) {
            Some(free) => self.under_way[free] = Some(index),
            None if self.under_way.len() < WAY_BITS => self.under_way.push(Some(index)),
            None => return false,
        }
        true
    }

    fn bit_of(&self, index: usize) -> Option<u128> {
        let bit = self
            .under_way
            .iter()
            .position(|entry| *entry == Some(index))?;
        Some(1 << bit)
    }

    /// The ways in which an entry can have ended; `None` when there are too many to look at.
    fn end(&mut self, index: usize, ways: &[Way]) -> Option<Vec<Way>> {
        let bit = self.bit_of(index)?;
        let certain = self.entries[index].is_certain;
        let mut met = Met::new(self.optional());
        let mut todo = VecDeque::new();
        for way in ways {
            let way = self.settle(*way);
            if met.insert(way) {
                todo.push_back(way);
            }
        }
        let mut ended = Met::new(met.optional & !bit);
        let mut order = Vec::new();
        if !certain {
            // It need not have had a place.
            for way in ways {
                let placed = way.placed & !bit;
                let way = Way { placed, ..*way };
                if ended.insert(way) {
                    order.push(way);
                }
            }
        }
        // First those of few places: others are then seen to be no better.
        while let Some(way) = todo.pop_front() {
            self.looked += 1;
            if self.looked > WAYS_MAX {
                return None;
            }
            if way.placed & bit != 0 {
                let placed = way.placed & !bit;
                let way = Way { placed, ..way };
                if ended.insert(way) {
                    order.push(way);
                }
                continue;
            }
            for place in 0..self.under_way.len() {
                let Some(other) = self.under_way[place] else {
                    continue;
                };
                let other_bit = 1 << place;
                if way.placed & other_bit != 0 {
                    continue;
                }
                let entry = &self.entries[other];
                let (clock_s, counts) = (entry.clock_s, entry.is_certain || entry.goes_with_read);
                let step = self.step_in(other, &way);
                // What need not have a place and changes nothing needs none here.
                if let Some(item) = apply(step, way.item, clock_s, &mut self.values)
                    && (item != way.item || counts)
                {
                    let placed = way.placed | other_bit;
                    let next = self.settle(Way { item, placed });
                    if met.insert(next) {
                        todo.push_back(next);
                    }
                }
            }
        }
        let over = [Some(index), self.entries[index].touch];
        let touch_bit = over[1].and_then(|touch| self.bit_of(touch)).unwrap_or(0);
        for place in &mut self.under_way {
            if place.is_some() && over.contains(place) {
                *place = None;
            }
        }
        for way in &mut order {
            way.placed &= !touch_bit;
        }
        Some(order)
    }

    /// The commands under way that need not have a place.
    fn optional(&self) -> u128 {
        let mut bits = 0;
        for (place, index) in self.under_way.iter().enumerate() {
            let entry = index.map(|index| &self.entries[index]);
            if entry.is_some_and(|entry| !entry.is_certain && !entry.goes_with_read) {
                bits |= 1 << place;
            }
        }
        bits
    }

    /// Gives a place to all that fits here and changes nothing anywhere, unless by forgetting: it
    /// stands in nobody's way.
    fn settle(&mut self, mut way: Way) -> Way {
        for place in 0..self.under_way.len() {
            let Some(index) = self.under_way[place] else {
                continue;
            };
            if way.placed & 1 << place != 0 || !self.entries[index].is_certain {
                continue;
            }
            let clock_s = self.entries[index].clock_s;
            let step = self.step_in(index, &way);
            if !matches!(
                step,
                Step::Told(Act::Get, _) | Step::Told(_, Told::Refused(_))
            ) {
                continue;
            }
            if apply(step, way.item, clock_s, &mut self.values) == Some(way.item) {
                way.placed |= 1 << place;
            }
        }
        way
    }

    /// What an entry does in this way: a read whose touching has had its place only reads.
    fn step_in(&self, index: usize, way: &Way) -> Step {
        let entry = &self.entries[index];
        let touch = entry.touch.and_then(|touch| self.bit_of(touch));
        match entry.step {
            Step::Told(_, told) if touch.is_some_and(|touch| way.placed & touch != 0) => {
                Step::Told(Act::Get, told)
            }
            step => step,
        }
    }

    fn lie(&self, index: usize, ways: &[Way]) -> Lie {
        let describe = |way: &Way| match way.item {
            None => "no item".to_string(),
            Some(item) => {
                let bytes = self.values.bytes(item.value);
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(24)]).into_owned();
                let (len, flags, expiry_s) = (bytes.len(), item.flags, item.expiry_s);
                format!(
                    "{text:?} ({len} bytes) flags {flags} expiry {expiry_s} token {:#x}",
                    item.cas
                )
            }
        };
        let mut stood: Vec<String> = ways.iter().map(describe).collect();
        stood.sort_unstable();
        stood.dedup();
        stood.truncate(6);
        Lie {
            number: self.entries[index].number,
            why: format!(
                "no order explains it; before it there can have been: {}",
                stood.join("; ")
            ),
        }
    }
}
