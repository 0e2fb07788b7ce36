//! Requests recorded before they are measured.

use super::{Generator, write_key};

const PUT: u64 = 1 << 63;

/// A request without its bytes: which item, and whether it is stored or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation(u64);

impl Operation {
    #[inline]
    pub(super) fn new(item: u64, is_put: bool) -> Self {
        debug_assert!(item < PUT);
        Operation(item | if is_put { PUT } else { 0 })
    }

    /// The item's number.
    #[inline]
    pub fn item(self) -> u64 {
        self.0 & !PUT
    }

    /// Whether the item is stored, and not read.
    #[inline]
    pub fn is_put(self) -> bool {
        self.0 & PUT != 0
    }
}

/// Requests in order, with their keys, played round and round.
///
/// Memory: 8 bytes and a key per request, read from front to back, so that playing costs next to
/// nothing.
#[derive(Clone, Debug)]
pub struct Tape {
    operations: Vec<Operation>,
    keys: Vec<u8>,
    key_len: usize,
}

impl Tape {
    /// Records `len` requests, at least 1, of a generator's stream.
    pub fn record(generator: &Generator, stream: u64, len: usize) -> Self {
        let mut random = generator.random(stream);
        let operations = (0..len.max(1)).map(|_| generator.draw(&mut random));
        Tape::of(operations.collect(), generator.key_len)
    }

    /// Stores the items of a range, one after the other.
    pub(crate) fn fill(items: std::ops::Range<u64>, key_len: usize) -> Self {
        Tape::of(
            items.map(|item| Operation::new(item, true)).collect(),
            key_len,
        )
    }

    fn of(operations: Vec<Operation>, key_len: usize) -> Self {
        let mut keys = vec![0; operations.len() * key_len];
        for (operation, key) in operations.iter().zip(keys.chunks_exact_mut(key_len)) {
            write_key(operation.item(), key);
        }
        Tape {
            operations,
            keys,
            key_len,
        }
    }

    /// Requests until it begins again.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The request at a position below the length.
    #[inline]
    pub fn operation(&self, at: usize) -> Operation {
        self.operations[at]
    }

    /// The key of the request at a position below the length.
    #[inline]
    pub fn key(&self, at: usize) -> &[u8] {
        &self.keys[at * self.key_len..(at + 1) * self.key_len]
    }

    /// All requests and their keys, once.
    pub fn iter(&self) -> impl Iterator<Item = (Operation, &[u8])> {
        let keys = self.keys.chunks_exact(self.key_len);
        self.operations.iter().copied().zip(keys)
    }
}
