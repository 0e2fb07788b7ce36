//! What a client may find in a file: what is certain, and what was written and not committed.

use nfs::wire::Verifier4;

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

    /// There are zeroes now, durably: within the file.
    pub(crate) fn punch(&mut self, from: usize, to: usize) {
        self.wanted[from..to].fill(0);
        let end = self.sure.len();
        self.sure[from.min(end)..to.min(end)].fill(0);
        self.cut_out(from, to);
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

    /// Whether a file may hold this although a server has died.
    pub(crate) fn check(&self, found: &[u8]) -> Result<(), String> {
        let ends = self
            .pending
            .iter()
            .map(|one| one.end().max(self.sure.len()));
        let mut ends = ends.chain([self.sure.len()]);
        if !ends.any(|end| end == found.len()) {
            return Err(format!(
                "{} bytes where {} are certain, {} were written",
                found.len(),
                self.sure.len(),
                self.wanted.len()
            ));
        }
        for (at, byte) in found.iter().enumerate() {
            let sure = self.sure.get(at).copied().unwrap_or(0);
            let may_be = |one: &Pending| {
                (one.at..one.end()).contains(&at) && one.bytes[at - one.at] == *byte
            };
            if *byte != sure && !self.pending.iter().any(may_be) {
                return Err(format!("byte {at} is {byte}, and {sure} is certain"));
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
