//! One client's items: exactly what each may hold.

use std::collections::{HashMap, HashSet};

use cache::herd::{Status, StoreMode};

use crate::history::{Action, Answer};
use crate::item::{Act, Item, Reply, Step, Values, apply};

/// Items that nobody else changes, and the clock by which they expire. A cache may forget an item at
/// any time but between a GET that found it and the next command.
#[derive(Debug, Default)]
pub struct Exact {
    /// Key and value of up to so many bytes are never too large.
    item_len_max: usize,
    items: HashMap<Vec<u8>, Item>,
    values: Values,
    tokens: HashSet<(Vec<u8>, u64)>,
    /// What the last command found, by a GET.
    found: Option<Vec<u8>>,
    flush_due_s: Option<u32>,
    now_s: u32,
    forgotten: u64,
}

impl Exact {
    /// No items at a second. Key and value of up to `item_len_max` bytes are never too large.
    pub fn new(now_s: u32, item_len_max: usize) -> Self {
        Exact {
            item_len_max,
            now_s,
            ..Exact::default()
        }
    }

    /// The second.
    pub fn now_s(&self) -> u32 {
        self.now_s
    }

    /// Lets time pass.
    pub fn pass(&mut self, seconds: u32) {
        self.now_s += seconds;
        let now_s = self.now_s;
        if self.flush_due_s.take_if(|due_s| *due_s <= now_s).is_some() {
            self.items.clear();
        }
        let lives = |item: &Item| item.expiry_s == 0 || item.expiry_s > now_s;
        self.items.retain(|_, item| lives(item));
    }

    /// All items go at a second.
    pub fn flush_at(&mut self, at_s: u32) {
        self.flush_due_s = Some(at_s);
        self.pass(0);
    }

    /// Items that are there unless they were forgotten.
    pub fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.items.keys()
    }

    /// The token of an item, and when it expires.
    pub fn item(&self, key: &[u8]) -> Option<(u64, u32)> {
        let item = self.items.get(key)?;
        Some((item.cas, item.expiry_s))
    }

    /// Bytes of an item's value.
    pub fn value_len(&self, key: &[u8]) -> Option<usize> {
        let item = self.items.get(key)?;
        Some(self.values.bytes(item.value).len())
    }

    /// How many items were found missing.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Takes the answer to a command.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn told(&mut self, key: &[u8], action: &Action, answer: &Answer) -> Result<(), String> {
        let old = self.items.get(key).copied();
        let found = self.found.take();
        self.values
            .limit((self.item_len_max + 1).saturating_sub(key.len()));
        let act = self.values.act(action);
        let told = self.values.reply(answer).ok_or("no answer")?;
        let next = apply(Step::Answered(act, told), old, self.now_s, &mut self.values);
        let wrong = || format!("{action} -> {answer} of {old:?}");
        let next = next.ok_or_else(wrong)?;
        if old.is_some() && says_absent(act, told) {
            if found.is_some_and(|found| found == key) && !matches!(act, Act::Get) {
                return Err(format!("{}, which was there", wrong()));
            }
            self.forgotten += 1;
        }
        if matches!((act, told), (Act::Get, Reply::Value { .. })) {
            self.found = Some(key.to_vec());
        }
        if let Reply::Done { cas: Some(cas) } | Reply::Number { cas: Some(cas), .. } = told
            && !self.tokens.insert((key.to_vec(), cas))
        {
            return Err(format!("{}, a token that has been another's", wrong()));
        }
        match next {
            Some(item) => self.items.insert(key.to_vec(), item),
            None => self.items.remove(key),
        };
        self.pass(0);
        Ok(())
    }
}

/// Whether an answer says that there was no item.
fn says_absent(act: Act, told: Reply) -> bool {
    use StoreMode::{Add, Append, Prepend, Replace};
    match (act, told) {
        (Act::Store { mode: Add, .. }, Reply::Done { .. }) => true,
        (Act::Store { mode, .. }, Reply::Refused(Status::NotStored)) => {
            matches!(mode, Replace | Append | Prepend)
        }
        (_, Reply::Refused(status)) => status == Status::NotFound,
        _ => false,
    }
}
