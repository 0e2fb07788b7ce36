//! A plain engine over a hash map, for tests and as a reading of what [`Engine`] asks.

use std::collections::HashMap;
use std::convert::Infallible;
use std::task::{Context, Poll};

use crate::{Direction, Engine, Expiry, Mode, Reply, Request, counter};

struct Item {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    expiry: Expiry,
    /// When the item was stored or last changed.
    written_s: u64,
}

/// An engine that keeps everything in a map, answers at once and evicts nothing.
///
/// Unlike an engine for production it allocates for every item and removes expired ones only when
/// their key is asked for.
///
/// ```
/// use memcache::{Engine, Expiry, MapEngine, Mode, Reply, Request};
///
/// let mut engine = MapEngine::default();
/// let store = Request::Store {
///     mode: Mode::Set,
///     key: b"k",
///     value: b"v",
///     flags: 7,
///     expiry: Expiry::NEVER,
/// };
/// assert_eq!(engine.start(0, store, |reply| reply == Reply::Stored), Ok(true));
/// let hit = |reply: Reply<'_>| reply == Reply::Value { value: b"v", flags: 7, cas: 1 };
/// assert_eq!(engine.start(0, Request::Get { key: b"k" }, hit), Ok(true));
/// ```
pub struct MapEngine {
    items: HashMap<Vec<u8>, Item>,
    item_size_max: usize,
    /// The unique number of the latest write.
    cas: u64,
    /// The moment, if one is set, whose arrival takes all items stored before it.
    flush_at_s: Option<u64>,
    hits: u64,
    misses: u64,
}

impl Default for MapEngine {
    fn default() -> Self {
        Self::new(1 << 20)
    }
}

impl MapEngine {
    /// An empty engine whose items have keys and values of up to `item_size_max` bytes in sum.
    #[must_use]
    pub fn new(item_size_max: usize) -> Self {
        Self {
            items: HashMap::new(),
            item_size_max,
            cas: 0,
            flush_at_s: None,
            hits: 0,
            misses: 0,
        }
    }

    /// Carries out a delayed flush whose moment has come.
    fn flush_if_due(&mut self, now_s: u64) {
        if let Some(at_s) = self.flush_at_s.filter(|&at_s| at_s <= now_s) {
            self.items.retain(|_, item| item.written_s >= at_s);
            self.flush_at_s = None;
        }
    }

    /// The item under a key, if it is alive.
    fn find(&mut self, now_s: u64, key: &[u8]) -> Option<&mut Item> {
        if self.items.get(key)?.expiry.is_past(now_s) {
            self.items.remove(key);
        }
        self.items.get_mut(key)
    }

    fn get(&mut self, now_s: u64, key: &[u8], touch: Option<Expiry>) -> Reply<'_> {
        if self.find(now_s, key).is_none() {
            self.misses += 1;
            return Reply::Miss;
        }
        self.hits += 1;
        match self.items.get_mut(key) {
            Some(item) => {
                item.expiry = touch.unwrap_or(item.expiry);
                Reply::Value {
                    value: &item.value,
                    flags: item.flags,
                    cas: item.cas,
                }
            }
            None => Reply::Miss,
        }
    }

    fn store(
        &mut self,
        now_s: u64,
        mode: Mode,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expiry: Expiry,
    ) -> Reply<'static> {
        let value_size_max = self.item_size_max.saturating_sub(key.len());
        let cas = self.cas + 1;
        let old = self.find(now_s, key);
        match (mode, old) {
            (Mode::Add, Some(_)) | (Mode::Replace | Mode::Append | Mode::Prepend, None) => {
                return Reply::NotStored;
            }
            (Mode::Cas(_), None) => return Reply::NotFound,
            (Mode::Cas(unique), Some(item)) if item.cas != unique => return Reply::Exists,
            (Mode::Append | Mode::Prepend, Some(item)) => {
                if item.value.len() + value.len() > value_size_max {
                    return Reply::NotStored;
                }
                let at = if mode == Mode::Append {
                    item.value.len()
                } else {
                    0
                };
                item.value.splice(at..at, value.iter().copied());
                item.cas = cas;
                item.written_s = now_s;
            }
            _ if value.len() > value_size_max => {
                self.items.remove(key);
                return Reply::TooLarge;
            }
            _ => {
                let item = Item {
                    value: value.to_vec(),
                    flags,
                    cas,
                    expiry,
                    written_s: now_s,
                };
                self.items.insert(key.to_vec(), item);
            }
        }
        self.cas = cas;
        Reply::Stored
    }

    fn delete(&mut self, now_s: u64, key: &[u8]) -> Reply<'static> {
        if self.find(now_s, key).is_none() {
            return Reply::NotFound;
        }
        self.items.remove(key);
        Reply::Deleted
    }

    fn arith(
        &mut self,
        now_s: u64,
        key: &[u8],
        delta: u64,
        direction: Direction,
    ) -> Reply<'static> {
        let cas = self.cas + 1;
        let Some(item) = self.find(now_s, key) else {
            return Reply::NotFound;
        };
        let Some(number) = counter::parse(&item.value) else {
            return Reply::NotANumber;
        };
        let number = counter::step(number, delta, direction);
        counter::write(&mut item.value, number);
        item.cas = cas;
        item.written_s = now_s;
        self.cas = cas;
        Reply::Number(number)
    }

    fn touch(&mut self, now_s: u64, key: &[u8], expiry: Expiry) -> Reply<'static> {
        match self.find(now_s, key) {
            Some(item) => {
                item.expiry = expiry;
                Reply::Touched
            }
            None => Reply::NotFound,
        }
    }

    fn flush_all(&mut self, now_s: u64, at_s: u64) -> Reply<'static> {
        if at_s <= now_s {
            self.items.clear();
            self.flush_at_s = None;
        } else {
            self.flush_at_s = Some(at_s);
        }
        Reply::Flushed
    }
}

impl Engine for MapEngine {
    type Ticket = Infallible;

    fn start<R>(
        &mut self,
        now_s: u64,
        request: Request<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Self::Ticket> {
        self.flush_if_due(now_s);
        Ok(reply(match request {
            Request::Get { key } => self.get(now_s, key, None),
            Request::GetAndTouch { key, expiry } => self.get(now_s, key, Some(expiry)),
            Request::Store {
                mode,
                key,
                value,
                flags,
                expiry,
            } => self.store(now_s, mode, key, value, flags, expiry),
            Request::Delete { key } => self.delete(now_s, key),
            Request::Arith {
                key,
                delta,
                direction,
            } => self.arith(now_s, key, delta, direction),
            Request::Touch { key, expiry } => self.touch(now_s, key, expiry),
            Request::FlushAll { at_s } => self.flush_all(now_s, at_s),
        }))
    }

    fn poll<R>(
        &mut self,
        ticket: &mut Infallible,
        _context: &mut Context<'_>,
        _reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Poll<R> {
        match *ticket {}
    }

    fn item_size_max(&self) -> usize {
        self.item_size_max
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn stats(&self, section: &str, out: &mut dyn FnMut(&str, &str)) -> bool {
        if !section.is_empty() {
            return false;
        }
        out("curr_items", &self.items.len().to_string());
        out("get_hits", &self.hits.to_string());
        out("get_misses", &self.misses.to_string());
        true
    }

    fn reset_stats(&mut self) {
        self.hits = 0;
        self.misses = 0;
    }

    fn allows_upgrade(&self, arguments: &[u8]) -> bool {
        arguments == b"test"
    }
}
