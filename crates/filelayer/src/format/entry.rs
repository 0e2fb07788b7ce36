//! What a block is, in full: its pages' places and checksums.
//!
//! ```text
//! 0     8       12     20       24     28        32     36   40
//! +-----+-------+------+--------+------+---------+------+----+------+------+
//! | fid | label | root | volume | born | changed | runs | 0  | runs | sums |
//! +-----+-------+------+--------+------+---------+------+----+------+------+
//! run: | page (2) | count (2) | extent (4) | page in the extent (4) |
//! sum: | CRC-32C (4) | of each page of each run, in their order
//! ```

use nebula::Address;

use super::head::{emit_key, parse_key};
use super::{FormatError, Owner, Put, Take};
use crate::ids::{BLOCK_PAGES, Fid, Volume};
use crate::index::{PageMap, Run};

/// A block in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) owner: Owner,
    pub(crate) root: Fid,
    pub(crate) map: PageMap,
}

impl Entry {
    /// Appends its bytes.
    pub(crate) fn emit(owner: &Owner, root: Fid, map: &PageMap, out: &mut Vec<u8>) {
        emit_key(out, owner.key);
        out.u64(root.0);
        out.u32(owner.volume.0);
        out.u32(owner.born);
        out.u32(owner.changed);
        out.u32(map.runs().len() as u32);
        out.u32(0);
        for run in map.runs() {
            out.u16(run.page);
            out.u16(run.count);
            out.u32(run.at.extent);
            out.u32(run.at.page);
        }
        for run in map.runs() {
            map.sums(run.page, run.count)
                .iter()
                .for_each(|sum| out.u32(*sum));
        }
    }

    fn parse(take: &mut Take<'_>) -> Result<Self, FormatError> {
        let short = FormatError::Short {
            what: "a block's entry",
        };
        let mut fixed = || {
            let key = parse_key(take)?;
            let root = Fid(take.u64()?);
            let owner = Owner {
                key,
                volume: Volume(take.u32()?),
                born: take.u32()?,
                changed: take.u32()?,
            };
            let count = take.u32()?;
            take.u32()?;
            Some((owner, root, count))
        };
        let (owner, root, count) = fixed().ok_or(short)?;
        let runs = parse_runs(take, count)?;
        let mut map = PageMap::default();
        for run in runs {
            let sums = take.bytes(4 * usize::from(run.count)).ok_or(short)?;
            let sums = sums
                .as_chunks()
                .0
                .iter()
                .map(|sum| u32::from_le_bytes(*sum));
            map.insert(run, &sums.collect::<Vec<_>>(), |_| ());
        }
        Ok(Self { owner, root, map })
    }
}

fn parse_runs(take: &mut Take<'_>, count: u32) -> Result<Vec<Run>, FormatError> {
    let mut runs = Vec::new();
    let mut free = 0;
    for _ in 0..count {
        let run = || Some((take.u16()?, take.u16()?, take.u32()?, take.u32()?));
        let (page, count, extent, at) = { run }().ok_or(FormatError::Short {
            what: "a block's runs",
        })?;
        let end = page.checked_add(count).filter(|end| *end <= BLOCK_PAGES);
        let is_sound = page >= free && count > 0 && at.checked_add(count.into()).is_some();
        let Some(end) = end.filter(|_| is_sound) else {
            let what = "the page of a run";
            return Err(FormatError::Value {
                what,
                value: page.into(),
            });
        };
        free = end;
        let at = Address { extent, page: at };
        runs.push(Run { page, count, at });
    }
    Ok(runs)
}

/// The entries that some bytes consist of.
///
/// # Errors
/// They are none.
pub(crate) fn entries_of(bytes: &[u8]) -> Result<Vec<Entry>, FormatError> {
    let mut take = Take(bytes);
    let mut entries = Vec::new();
    while !take.0.is_empty() {
        entries.push(Entry::parse(&mut take)?);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{HEAD, Key};

    fn entry(serial: u64, runs: u16) -> Entry {
        let key = Key {
            fid: Fid(serial),
            label: HEAD,
        };
        let owner = Owner {
            key,
            volume: Volume(2),
            born: 3,
            changed: 4,
        };
        let mut map = PageMap::default();
        for i in 0..runs {
            let at = Address {
                extent: 7,
                page: u32::from(i) * 9,
            };
            let run = Run {
                page: i * 4,
                count: 3,
                at,
            };
            map.insert(run, &[u32::from(i), 1, 2], |_| ());
        }
        Entry {
            owner,
            root: Fid(1),
            map,
        }
    }

    fn bytes(entries: &[Entry]) -> Vec<u8> {
        let mut out = Vec::new();
        for entry in entries {
            Entry::emit(&entry.owner, entry.root, &entry.map, &mut out);
        }
        out
    }

    #[test]
    fn entries_come_back_from_their_bytes() {
        let entries = [entry(1, 0), entry(2, 1), entry(3, 256)];
        assert_eq!(entries_of(&bytes(&entries)), Ok(entries.to_vec()));
    }

    #[test]
    fn no_bytes_panic() {
        let good = bytes(&[entry(2, 3)]);
        for len in 1..good.len() {
            assert!(entries_of(&good[..len]).is_err(), "{len} bytes");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                drop(entries_of(&bytes));
            }
        }
    }
}
