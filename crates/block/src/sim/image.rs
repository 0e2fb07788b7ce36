//! What a simulated device holds.

use std::fmt;
use std::sync::Arc;

const PAGE: usize = 4096;
/// Pages of a node.
const FANOUT: usize = 512;

type Page = [u8; PAGE];
type Node = Vec<Option<Arc<Page>>>;

/// The bytes of a device. Clones share what neither has changed, so a copy costs 8 bytes for every
/// 2 MiB; what was never written is zero and takes no memory.
#[derive(Clone)]
pub struct Image {
    len: u64,
    nodes: Vec<Option<Arc<Node>>>,
}

impl Image {
    /// `len` zeros.
    #[must_use]
    pub fn new(len: u64) -> Self {
        let nodes = len.div_ceil((PAGE * FANOUT) as u64);
        Self {
            len,
            nodes: vec![None; usize::try_from(nodes).expect("an image that fits in memory")],
        }
    }

    /// Its length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a device is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Copies what is at `at`.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn read(&self, at: u64, bytes: &mut [u8]) {
        self.check(at, bytes.len());
        for (place, at, range) in pieces(at, bytes.len()) {
            let bytes = &mut bytes[range];
            let node = self.nodes[place.node].as_ref();
            match node.and_then(|node| node[place.page].as_ref()) {
                Some(page) => bytes.copy_from_slice(&page[at..at + bytes.len()]),
                None => bytes.fill(0),
            }
        }
    }

    /// Changes what is at `at`.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.check(at, bytes.len());
        for (place, at, range) in pieces(at, bytes.len()) {
            let bytes = &bytes[range];
            let node = self.nodes[place.node].get_or_insert_with(|| Arc::new(vec![None; FANOUT]));
            let page = &mut Arc::make_mut(node)[place.page];
            let page = page.get_or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// All bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let len = usize::try_from(self.len).expect("an image that fits in memory");
        let mut bytes = vec![0; len];
        self.read(0, &mut bytes);
        bytes
    }

    fn check(&self, at: u64, len: usize) {
        let len = len as u64;
        let is_inside = at <= self.len && len <= self.len - at;
        assert!(is_inside, "{len} bytes at {at} of {}", self.len);
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Place {
    node: usize,
    page: usize,
}

/// Cuts a range at pages: where each piece is, from where in its page, and which bytes of the range.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (Place, usize, std::ops::Range<usize>)> {
    let start = usize::try_from(at).expect("within an image, which fits in memory");
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let (page, offset) = ((start + done) / PAGE, (start + done) % PAGE);
        let count = (PAGE - offset).min(len - done);
        let range = done..done + count;
        done += count;
        let place = Place {
            node: page / FANOUT,
            page: page % FANOUT,
        };
        Some((place, offset, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_an_array_of_bytes_and_clones_are_apart() {
        let len = 5 << 20;
        let mut image = Image::new(len);
        let mut model = vec![0; len as usize];
        let mut rng = fastrand::Rng::with_seed(1);
        let mut copies = Vec::new();
        for _ in 0..50 {
            let size = rng.usize(1..20_000);
            let at = rng.usize(0..model.len() - size);
            let bytes: Vec<u8> = (0..size).map(|_| rng.u8(..)).collect();
            image.write(at as u64, &bytes);
            model[at..at + size].copy_from_slice(&bytes);
            copies.push((image.clone(), model.clone()));
        }
        for (image, model) in copies {
            assert!(image.to_vec() == model);
        }
    }
}
