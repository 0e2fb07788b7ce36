//! What an address belongs to: the process's mappings.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;

/// Bytes of a cache line.
const LINE_LEN: u64 = 64;

/// A cache line: of a shared file, so that two mappings of it are the same line, or of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct Line {
    /// The shared file's inode; 0 for what only the process has.
    pub(crate) file: u64,
    /// Its offset or address, in lines.
    pub(crate) number: u64,
}

/// What a mapping is.
#[derive(Clone, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// The stack of the thread that is watched.
    Stack,
    /// Memory that processes share, by the file's name: the NIC's segments and regions.
    Shared(String),
    /// What the allocator took from the heap.
    Heap,
    /// Anonymous memory: tables, large allocations, thread-locals.
    Anonymous,
    /// Code, constants and statics of the program and its libraries.
    Program,
}

#[derive(Clone, Debug)]
struct Mapping {
    end: u64,
    offset: u64,
    inode: u64,
    kind: Kind,
}

/// A process's mappings.
#[derive(Default)]
pub(crate) struct Places {
    by_start: BTreeMap<u64, Mapping>,
}

impl Places {
    /// The mappings that a process has now.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Places> {
        let path = format!("/proc/{pid}/maps");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        Places::parse(&text)
    }

    fn parse(text: &str) -> anyhow::Result<Places> {
        let mut by_start = BTreeMap::new();
        for line in text.lines() {
            let (start, mapping) =
                parse_line(line).with_context(|| format!("an odd line in maps: {line}"))?;
            by_start.insert(start, mapping);
        }
        Ok(Places { by_start })
    }

    fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, mapping) = self.by_start.range(..=address).next_back()?;
        (address < mapping.end).then_some((*start, mapping))
    }

    /// What an address belongs to.
    pub(crate) fn kind(&self, address: u64) -> Option<&Kind> {
        self.mapping(address).map(|(_, mapping)| &mapping.kind)
    }

    /// The lines that so many bytes from an address are in.
    pub(crate) fn lines(&self, address: u64, len: u64) -> impl Iterator<Item = Line> + use<> {
        let shared = self.mapping(address).and_then(|(start, mapping)| {
            matches!(mapping.kind, Kind::Shared(_))
                .then(|| (mapping.inode, address - start + mapping.offset))
        });
        let (file, first) = shared.unwrap_or((0, address));
        let numbers = first / LINE_LEN..=(first + len.max(1) - 1) / LINE_LEN;
        numbers.map(move |number| Line { file, number })
    }
}

/// `start-end perms offset dev inode path`
fn parse_line(line: &str) -> Option<(u64, Mapping)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (rights, offset) = (words.next()?, words.next()?);
    let (_device, inode) = (words.next()?, words.next()?);
    let path = words.next();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let kind = match path {
        _ if rights.ends_with('s') => {
            let name = path.and_then(|path| Path::new(path).file_name()?.to_str());
            Kind::Shared(name.unwrap_or("nameless").to_string())
        }
        Some("[stack]") => Kind::Stack,
        Some("[heap]") => Kind::Heap,
        None => Kind::Anonymous,
        Some(_) => Kind::Program,
    };
    let mapping = Mapping {
        end: hex(end)?,
        offset: hex(offset)?,
        inode: inode.parse().ok()?,
        kind,
    };
    Some((hex(start)?, mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d000000000-55d000001000 r-xp 00002000 fe:00 99 /bin/gates-driver
55d000100000-55d000121000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000004000 rw-p 00000000 00:00 0
7f0000010000-7f0000012000 rw-s 00000000 00:01 42 /memfd:segment (deleted)
7f0000020000-7f0000021000 rw-s 00001000 00:01 42 /memfd:segment (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
";

    #[test]
    fn addresses_have_places() {
        let places = Places::parse(MAPS).unwrap();
        assert_eq!(places.kind(0x55d0_0000_0000), Some(&Kind::Program));
        assert_eq!(places.kind(0x55d0_0010_0040), Some(&Kind::Heap));
        assert_eq!(places.kind(0x7f00_0000_3fff), Some(&Kind::Anonymous));
        assert_eq!(places.kind(0x7f00_0000_4000), None);
        assert_eq!(places.kind(0x7ffd_0000_0000), Some(&Kind::Stack));
        let shared = Kind::Shared("memfd:segment".to_string());
        assert_eq!(places.kind(0x7f00_0001_1000), Some(&shared));
    }

    #[test]
    fn two_mappings_of_a_file_are_the_same_lines() {
        let places = Places::parse(MAPS).unwrap();
        let one: Vec<Line> = places.lines(0x7f00_0001_1020, 64).collect();
        let other: Vec<Line> = places.lines(0x7f00_0002_0020, 64).collect();
        assert_eq!(one, other);
        assert_eq!(one.len(), 2);
        assert_eq!(
            one[0],
            Line {
                file: 42,
                number: 64
            }
        );
        assert_eq!(places.lines(0x7f00_0000_0000, 64).count(), 1);
    }

    #[test]
    fn an_odd_line_is_an_error() {
        assert!(Places::parse("55d0-").is_err());
    }
}
