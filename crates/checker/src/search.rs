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

use std::collections::{HashMap, HashSet, VecDeque};

use crate::history::{Action, Answer, Moment, Operation};
use crate::item::{Act, Item, Reply, Step, ValueNum, Values, apply};
use cache::herd::StoreMode;

/// Ways looked at for one end before a history counts as undecided.
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

/// Why a history is not explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unexplained {
    /// No order does it.
    Lie(Lie),
    /// Too many commands under way at once, or too many ways, to say.
    Undecided,
}

/// A step of a command under way.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: usize,
    step: Step,
    clock_s: u32,
    /// Whether it must have a place.
    is_certain: bool,
    /// The bit of the touch that a repeated read leaves out, if that has had its place.
    touch: Option<usize>,
    /// It is such a touch.
    goes_with_read: bool,
}

/// How things can stand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Way {
    item: Option<Item>,
    /// The commands under way that have had their place, a bit each.
    placed: u128,
}

/// Checks the commands about one item, in any order. Values of fewer than `too_large_min` bytes are
/// never too large.
///
/// # Errors
/// That no order explains them, or that they are too many to say.
pub fn check(operations: &[&Operation], too_large_min: usize) -> Result<(), Unexplained> {
    let mut search = Search::new(too_large_min);
    for operation in operations {
        search.bind_token(operation)?;
    }
    // Beginnings and ends in their order; ends of what never ends are left out.
    let mut events: Vec<(Moment, bool, &Operation)> = Vec::new();
    for operation in operations {
        events.push((operation.begins, false, operation));
        events.extend(operation.ends.map(|ends| (ends, true, *operation)));
    }
    events.sort_by_key(|(moment, is_end, _)| (*moment, *is_end));
    for (_, is_end, operation) in events {
        match is_end {
            false => search.begin(operation)?,
            true => search.end(operation.number)?,
        }
    }
    Ok(())
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

/// The search for one item, which is told of beginnings and ends in their order.
#[derive(Clone, Debug)]
pub struct Search {
    ways: Vec<Way>,
    /// What is under way, by its bit.
    under_way: Vec<Option<Entry>>,
    values: Values,
}

impl Search {
    /// No item; values of fewer bytes than that are never too large.
    pub fn new(too_large_min: usize) -> Self {
        let (item, placed) = (None, 0);
        Search {
            ways: vec![Way { item, placed }],
            under_way: Vec::new(),
            values: Values::new(too_large_min),
        }
    }

    /// A command begins, whose answer is known by now. When it does and ends counts for nothing here.
    ///
    /// # Errors
    /// That its token has been another value's, or that too many commands are under way.
    pub fn begin(&mut self, operation: &Operation) -> Result<(), Unexplained> {
        self.bind_token(operation)?;
        let act = self.values.act(&operation.action);
        let answer = operation.answer.as_ref();
        let is_unasked = answer == Some(&Answer::Unasked);
        let told = answer.and_then(|answer| self.values.reply(answer));
        let entry = |step: Step, is_certain: bool| Entry {
            number: operation.number,
            step,
            clock_s: operation.clock_s,
            is_certain,
            touch: None,
            goes_with_read: false,
        };
        match (act, told) {
            (Act::GetAndTouch { expiry_s }, None) => {
                self.place(entry(Step::Touches(expiry_s), false))?;
            }
            // One step, or two: when the answer was lost, the repeat reads without touching again. A
            // miss may come of a repeat, after the touching found something.
            (Act::GetAndTouch { expiry_s }, Some(told)) => {
                let touch = entry(Step::Touches(expiry_s), false);
                if let Reply::Value { .. } = told {
                    let goes_with_read = true;
                    let touch = self.place(Entry {
                        goes_with_read,
                        ..touch
                    })?;
                    let read = entry(Step::Answered(act, told), true);
                    self.place(Entry {
                        touch: Some(touch),
                        ..read
                    })?;
                } else {
                    self.place(touch)?;
                    self.place(entry(Step::Answered(Act::Get, told), true))?;
                }
            }
            (_, Some(told)) => drop(self.place(entry(Step::Answered(act, told), true))?),
            (Act::Get, None) => {}
            // It may have found that it must not.
            (
                Act::Store {
                    mode: StoreMode::Add | StoreMode::Cas(_),
                    ..
                },
                None,
            ) => drop(self.place(entry(Step::Unanswered(act), false))?),
            (_, None) if is_unasked => {
                self.place(entry(Step::CarriedOut(act), true))?;
            }
            // Nothing came of it that forgetting does not.
            (Act::Delete, None) => {}
            (_, None) => drop(self.place(entry(Step::Unanswered(act), false))?),
        }
        Ok(())
    }

    /// A command has ended: it has had its place, or will have none.
    ///
    /// # Errors
    /// That it cannot have had one, or that there are too many ways to look at.
    pub fn end(&mut self, number: usize) -> Result<(), Unexplained> {
        for place in 0..self.under_way.len() {
            if self.under_way[place].is_some_and(|it| it.number == number && !it.goes_with_read) {
                self.end_one(place)?;
            }
        }
        Ok(())
    }

    /// A command has ended that may have had a place or none, whatever was thought when it began.
    ///
    /// # Errors
    /// As [`Search::end`].
    pub fn give_up(&mut self, number: usize) -> Result<(), Unexplained> {
        for entry in self.under_way.iter_mut().flatten() {
            entry.is_certain &= entry.number != number;
        }
        self.end(number)
    }

    /// Bytes of the item's value and its token, which is 0 while nobody has been told it, if the item is
    /// there and nothing else may be.
    pub fn item(&self) -> Option<(usize, u64)> {
        let mut items = self.ways.iter().filter_map(|way| way.item);
        let first = items.next()?;
        let len = self.values.bytes(first.value).len();
        items.all(|item| item == first).then_some((len, first.cas))
    }

    /// Another server gives tokens out from now on.
    pub fn forget_tokens(&mut self) {
        self.values.forget_tokens();
    }

    /// Drops the bytes of values that can come no more, once there are more than so many.
    pub fn forget_values(&mut self, max: usize) {
        if self.values.len() <= max {
            return;
        }
        let items = self.ways.iter().filter_map(|way| way.item);
        let mut used: HashSet<ValueNum> = items.map(|item| item.value).collect();
        for entry in self.under_way.iter().flatten() {
            let (act, reply) = match entry.step {
                Step::Answered(act, reply) => (Some(act), Some(reply)),
                Step::Unanswered(act) | Step::CarriedOut(act) => (Some(act), None),
                Step::Touches(_) => (None, None),
            };
            if let Some(Act::Store { value, .. }) = act {
                used.insert(value);
            }
            if let Some(Reply::Value { value, .. }) = reply {
                used.insert(value);
            }
        }
        self.values.retain(&used);
    }

    /// Learns whose token is which, and what it stands for. Two values under one token are a lie, and so
    /// are two changes.
    fn bind_token(&mut self, operation: &Operation) -> Result<(), Unexplained> {
        let lie = |cas: u64, why: &str| {
            Err(Unexplained::Lie(Lie {
                number: operation.number,
                why: format!("token {cas:#x} {why}"),
            }))
        };
        let (cas, value) = match (&operation.action, &operation.answer) {
            (_, Some(Answer::Value { value, cas, .. })) => (*cas, Some(value)),
            (Action::Store { mode, value, .. }, Some(Answer::Done { cas })) => {
                let is_whole = !matches!(mode, StoreMode::Append | StoreMode::Prepend);
                (*cas, is_whole.then_some(value))
            }
            (_, Some(Answer::Number { cas, .. })) => (*cas, None),
            _ => return Ok(()),
        };
        let Some(cas) = cas else {
            return Ok(());
        };
        if cas == 0 {
            return lie(cas, "is no item's");
        }
        let is_new = !matches!(operation.answer, Some(Answer::Value { .. }));
        if is_new && !self.values.mint(cas, operation.number) {
            return lie(cas, "is of two changes");
        }
        let Some(value) = value else {
            return Ok(());
        };
        let number = self.values.number(value);
        match self.values.bind(cas, number) {
            true => Ok(()),
            false => lie(cas, "stands for two values"),
        }
    }

    /// Gives an entry a bit.
    fn place(&mut self, entry: Entry) -> Result<usize, Unexplained> {
        let free = self.under_way.iter().position(Option::is_none);
        let place = free.unwrap_or(self.under_way.len());
        if place == WAY_BITS {
            return Err(Unexplained::Undecided);
        }
        if place == self.under_way.len() {
            self.under_way.push(None);
        }
        self.under_way[place] = Some(entry);
        Ok(place)
    }

    /// Keeps the ways in which an entry can have ended.
    fn end_one(&mut self, place: usize) -> Result<(), Unexplained> {
        let Some(over) = self.under_way[place] else {
            return Ok(());
        };
        let bit = 1 << place;
        let mut met = Met::new(self.optional());
        let mut todo = VecDeque::new();
        for way in self.ways.clone() {
            let way = self.settle(way);
            if met.insert(way) {
                todo.push_back(way);
            }
        }
        let mut ended = Met::new(met.optional & !bit);
        let mut order = Vec::new();
        if !over.is_certain {
            // It need not have had a place.
            for way in &self.ways {
                let placed = way.placed & !bit;
                let way = Way { placed, ..*way };
                if ended.insert(way) {
                    order.push(way);
                }
            }
        }
        // First those of few places: others are then seen to be no better.
        let mut looked = 0;
        while let Some(way) = todo.pop_front() {
            looked += 1;
            if looked > WAYS_MAX {
                return Err(Unexplained::Undecided);
            }
            if way.placed & bit != 0 {
                let placed = way.placed & !bit;
                let way = Way { placed, ..way };
                if ended.insert(way) {
                    order.push(way);
                }
                continue;
            }
            for other in 0..self.under_way.len() {
                let Some(entry) = self.under_way[other].filter(|_| way.placed & 1 << other == 0)
                else {
                    continue;
                };
                // What need not have a place and changes nothing needs none here.
                let counts = entry.is_certain || entry.goes_with_read;
                if let Some(item) = self.apply(&entry, &way)
                    && (item != way.item || counts)
                {
                    let placed = way.placed | 1 << other;
                    let next = self.settle(Way { item, placed });
                    if met.insert(next) {
                        todo.push_back(next);
                    }
                }
            }
        }
        if order.is_empty() {
            return Err(Unexplained::Lie(self.lie(over.number)));
        }
        self.under_way[place] = None;
        if let Some(touch) = over.touch {
            self.under_way[touch] = None;
            for way in &mut order {
                way.placed &= !(1 << touch);
            }
        }
        self.ways = order;
        Ok(())
    }

    /// The commands under way that need not have a place.
    fn optional(&self) -> u128 {
        let mut bits = 0;
        for (place, entry) in self.under_way.iter().enumerate() {
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
            let is_placed = way.placed & 1 << place != 0;
            let Some(entry) = self.under_way[place].filter(|it| it.is_certain && !is_placed) else {
                continue;
            };
            let changes_nothing = matches!(
                step_in(&entry, &way),
                Step::Answered(Act::Get, _) | Step::Answered(_, Reply::Refused(_))
            );
            if changes_nothing && self.apply(&entry, &way) == Some(way.item) {
                way.placed |= 1 << place;
            }
        }
        way
    }

    fn apply(&mut self, entry: &Entry, way: &Way) -> Option<Option<Item>> {
        let step = step_in(entry, way);
        apply(step, way.item, entry.clock_s, &mut self.values)
    }

    fn lie(&self, number: usize) -> Lie {
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
        let mut stood: Vec<String> = self.ways.iter().map(describe).collect();
        stood.sort_unstable();
        stood.dedup();
        stood.truncate(6);
        let stood = stood.join("; ");
        let why = format!("no order explains it; before it there can have been: {stood}");
        Lie { number, why }
    }
}

/// What an entry does in this way: a read whose touching has had its place only reads.
fn step_in(entry: &Entry, way: &Way) -> Step {
    match entry.step {
        Step::Answered(_, told)
            if entry
                .touch
                .is_some_and(|touch| way.placed & 1 << touch != 0) =>
        {
            Step::Answered(Act::Get, told)
        }
        step => step,
    }
}
