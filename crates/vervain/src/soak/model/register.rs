//! A key that many write: no torn, foreign or overwritten value.
//!
//! Whatever is known to have replaced the value at some moment is a fact: a write, a delete, a miss,
//! the server's death, or the read of another value. A value whose write had ended before that
//! moment may not be read any more by whoever asks after it.

use std::collections::HashMap;

use super::content::{differs_at, mark_in, show};
use super::{Answer, Content, Moment, OpId, Span};

/// Facts that are kept; older ones are implied by newer ones.
const FACTS: usize = 96;
/// How long ago a write must have been overwritten to be forgotten. No question takes so long.
const KEEP: Moment = 120_000_000_000;
/// Writes at which old ones are looked for.
const WRITES: usize = 2048;

#[derive(Clone, Copy, Debug)]
struct Write {
    from: Moment,
    /// When it surely had been carried out; never, while its outcome is unknown.
    to: Moment,
    /// Whether somebody waits for its outcome.
    open: bool,
    len: u32,
    flags: u32,
}

/// By `to` the value that a write had stored before `from` was replaced, unless it is of `except`.
#[derive(Clone, Copy, Debug)]
struct Fact {
    from: Moment,
    to: Moment,
    except: Option<OpId>,
}

/// What is known of a key.
#[derive(Debug, Default)]
pub(crate) struct Register {
    writes: HashMap<OpId, Write>,
    facts: Vec<Fact>,
}

/// Shortest value: one that says whose it is.
pub(crate) const LEN_MIN: usize = super::content::MARK_LEN + 6;

impl Register {
    /// The flags that a write stores.
    pub(crate) fn flags_of(id: OpId) -> u32 {
        (id as u32).wrapping_mul(0x9e37_79b9)
    }

    /// A write begins.
    pub(crate) fn begins(&mut self, id: OpId, len: usize, now: Moment) {
        if self.writes.len() > WRITES {
            self.forget(now);
        }
        let write = Write {
            from: now,
            to: Moment::MAX,
            open: true,
            len: len as u32,
            flags: Self::flags_of(id),
        };
        self.writes.insert(id, write);
    }

    /// A write was not carried out, and will not be.
    pub(crate) fn not_carried_out(&mut self, id: OpId) {
        self.writes.remove(&id);
    }

    /// A write was carried out. Its beginning counts as one with the question's, or before.
    pub(crate) fn stored(&mut self, id: OpId, span: Span) {
        if let Some(write) = self.writes.get_mut(&id) {
            write.to = write.to.min(span.to);
            write.open = false;
        }
        self.note(span.from, span.to, Some(id));
    }

    /// There was no item: it was deleted, or is missed.
    pub(crate) fn empty(&mut self, span: Span) {
        self.note(span.from, span.to, None);
    }

    /// Nobody has learnt how a write ended.
    pub(crate) fn lost(&mut self, id: OpId) {
        if let Some(write) = self.writes.get_mut(&id) {
            write.open = false;
        }
    }

    /// The server was killed, and with it died what was on its way. A write that still waits for its
    /// outcome may reach the next server.
    pub(crate) fn killed(&mut self, at: Moment) {
        for write in self.writes.values_mut() {
            if write.from < at && !write.open {
                write.to = write.to.min(at.saturating_sub(1));
            }
        }
        self.note(at, at, None);
    }

    /// Takes the answer to a read.
    pub(crate) fn read(&mut self, answer: &Answer, span: Span) -> Result<(), String> {
        let (bytes, flags) = match answer {
            Answer::Value { bytes, flags, .. } => (bytes, *flags),
            Answer::NotFound => {
                self.empty(span);
                return Ok(());
            }
            Answer::Busy => return Ok(()),
            _ => return Err("an item, or none".into()),
        };
        let Some(id) = mark_in(bytes) else {
            return Err("a value that says which operation wrote it".into());
        };
        let Some(write) = self.writes.get(&id).copied() else {
            return Err(format!(
                "v{id:x} was never written to this key, or overwritten long ago"
            ));
        };
        let content = Content::of(id, write.len as usize);
        if let Some(at) = differs_at(&content, bytes) {
            let near = &bytes[at.min(bytes.len())..];
            return Err(format!(
                "{content}, which differs from byte {at} on: {}",
                show(near)
            ));
        }
        if flags != write.flags {
            return Err(format!("{content} with flags {}", write.flags));
        }
        if write.from > span.to {
            return Err(format!("no v{id:x}, which was written later"));
        }
        let floor = self.floor(id, span.from);
        if write.to < floor {
            return Err(format!(
                "no v{id:x}: it was stored by {:.3} s, and another value or none took its place \
                 after {:.3} s, before this was asked",
                write.to as f64 / 1e9,
                floor as f64 / 1e9,
            ));
        }
        // Whoever reads a value shows that its write was carried out; its own client may still wait.
        if let Some(write) = self.writes.get_mut(&id) {
            write.to = write.to.min(span.to);
        }
        self.note(write.from, span.to, Some(id));
        self.note(span.from, span.to, Some(id));
        Ok(())
    }

    /// Writes of others that ended before this moment are not to be read by who asks at `from`.
    fn floor(&self, id: OpId, from: Moment) -> Moment {
        let counts = |fact: &&Fact| fact.to < from && fact.except != Some(id);
        let facts = self.facts.iter().filter(counts);
        facts.map(|fact| fact.from).max().unwrap_or(0)
    }

    fn note(&mut self, from: Moment, to: Moment, except: Option<OpId>) {
        if self.facts.len() >= FACTS {
            let oldest = (0..self.facts.len()).min_by_key(|at| self.facts[*at].from);
            if let Some(oldest) = oldest {
                self.facts.swap_remove(oldest);
            }
        }
        self.facts.push(Fact { from, to, except });
    }

    /// Forgets writes that were overwritten long ago.
    fn forget(&mut self, now: Moment) {
        let long_ago = now.saturating_sub(KEEP);
        let floor = |id| self.floor(id, long_ago);
        let over: Vec<OpId> = self
            .writes
            .iter()
            .filter(|(id, write)| write.to < floor(**id))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.writes.remove(&id);
        }
    }
}
