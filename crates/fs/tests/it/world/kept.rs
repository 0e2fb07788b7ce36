//! What a client may find in a file: what is certain, and what was written and not committed.

use nfs::wire::Verifier4;

/// Bytes of a block of a file: each is written on its own.
const BLOCK: usize = 4 << 20;
const PAGE: usize = 4096;

/// Bytes that were written and may be lost yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) at: usize,
    pub(crate) bytes: Vec<u8>,
    /// The verifier that they were answered with; none: whether they were written is open.
    pub(crate) verifier: Option<Verifier4>,
}

impl Pending {
    fn end(&self) -> usize {
        self.at + self.bytes.len()
    }
}

/// A file's contents, as its only writer knows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// What survives in any case.
    sure: Vec<u8>,
    /// What the client has written over that, oldest first.
    pub(crate) pending: Vec<Pending>,
    /// What the file holds if nothing was lost.
    pub(crate) wanted: Vec<u8>,
}

impl Contents {
    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Something was written, and was not told to be durable.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8], verifier: Option<Verifier4>) {
        put(&mut self.wanted, at, bytes);
        self.pending.push(Pending {
            at,
            bytes: bytes.to_vec(),
            verifier,
        });
    }

    /// Something was written, and is durable.
    pub(crate) fn store(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.wanted, at, bytes);
        put(&mut self.sure, at, bytes);
        self.cut_out(at, at + bytes.len());
    }

    /// The end is there now, durably.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.wanted.resize(len, 0);
        self.sure.resize(len, 0);
        self.cut_out(len, usize::MAX);
    }

    /// There are zeroes now, durably: within the file. Its end is durable with them.
    pub(crate) fn punch(&mut self, from: usize, to: usize) {
        self.wanted[from..to].fill(0);
        self.sure.resize(self.wanted.len(), 0);
        self.sure[from..to].fill(0);
        self.cut_out(from, to);
    }

    /// What was asked for and refused: it may be there all the same, and nobody wants it.
    pub(crate) fn may_hold(&mut self, at: usize, bytes: &[u8]) {
        self.pending.push(Pending {
            at,
            bytes: bytes.to_vec(),
            verifier: None,
        });
    }

    /// This is there, durably, and nothing else is wanted any more.
    pub(crate) fn take(&mut self, found: Vec<u8>) {
        self.pending.clear();
        self.sure.clone_from(&found);
        self.wanted = found;
    }

    /// Nothing that was written there before is found any more.
    fn cut_out(&mut self, from: usize, to: usize) {
        let mut left = Vec::new();
        for one in self.pending.drain(..) {
            let part = |from: usize, to: usize| Pending {
                at: from,
                bytes: one.bytes[from - one.at..to - one.at].to_vec(),
                verifier: one.verifier,
            };
            if one.end() <= from || one.at >= to {
                left.push(one);
                continue;
            }
            if one.at < from {
                left.push(part(one.at, from));
            }
            if one.end() > to {
                left.push(part(to, one.end()));
            }
        }
        self.pending = left;
    }

    /// A commit was answered with this verifier. Whether all is durable now: what was answered with another
    /// one is to be written again.
    pub(crate) fn commit(&mut self, verifier: Verifier4) -> bool {
        let is_all = self
            .pending
            .iter()
            .all(|one| one.verifier == Some(verifier));
        if is_all {
            self.sure.clone_from(&self.wanted);
            self.pending.clear();
        }
        is_all
    }

    /// Whether a file may hold this, although a server has died perhaps. If none has, what was answered is there.
    pub(crate) fn check(&self, found: &[u8], has_died: bool) -> Result<(), String> {
        let certain = if has_died { &self.sure } else { &self.wanted };
        let open = self.pending.iter();
        let open: Vec<&Pending> = open
            .filter(|one| has_died || one.verifier.is_none())
            .collect();
        let is_end = |one: &&Pending| {
            // Of what is in two blocks, the first may be there alone.
            let is_part = one.at < found.len() && found.len().is_multiple_of(BLOCK);
            found.len() == one.end().max(certain.len())
                || is_part && (certain.len()..one.end()).contains(&found.len())
        };
        if found.len() != certain.len() && !open.iter().any(is_end) {
            return Err(format!(
                "{} bytes where {} are certain, {} were written",
                found.len(),
                certain.len(),
                self.wanted.len()
            ));
        }
        let mut certain = certain.clone();
        certain.resize(certain.len().max(found.len()), 0);
        let pages = found.chunks(PAGE).zip(certain.chunks(PAGE));
        for (page, _) in (0..).zip(pages).filter(|(_, (found, sure))| found != sure) {
            for at in page * PAGE..found.len().min((page + 1) * PAGE) {
                let (byte, sure) = (found[at], certain[at]);
                let may_be = |one: &&Pending| {
                    (one.at..one.end()).contains(&at) && one.bytes[at - one.at] == byte
                };
                if byte != sure && !open.iter().any(may_be) {
                    return Err(format!("byte {at} is {byte}, and {sure} is certain"));
                }
            }
        }
        Ok(())
    }
}

fn put(into: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = into.len().max(at + bytes.len());
    into.resize(end, 0);
    into[at..at + bytes.len()].copy_from_slice(bytes);
}
