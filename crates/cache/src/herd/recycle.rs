//! A vector whose memory serves batch after batch, although each batch borrows something else.

#![forbid(unsafe_code)]

use std::marker::PhantomData;

/// Types that differ in lifetimes only.
pub(super) trait Relative {
    /// The same type with another lifetime.
    type With<'a>;
}

impl<T: 'static> Relative for verbs::typed::Wr<'static, T> {
    type With<'a> = verbs::typed::Wr<'a, T>;
}

impl Relative for verbs::RecvWr<'static> {
    type With<'a> = verbs::RecvWr<'a>;
}

/// The memory of a batch between two uses.
#[derive(Debug)]
pub(super) struct Recycled<T: Relative> {
    memory: Vec<T::With<'static>>,
    relatives: PhantomData<T>,
}

impl<T: Relative> Recycled<T> {
    /// Memory for `capacity` elements.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Recycled {
            memory: Vec::with_capacity(capacity),
            relatives: PhantomData,
        }
    }

    /// An empty vector with the memory.
    #[inline]
    pub(super) fn take<'a>(&mut self) -> Vec<T::With<'a>> {
        let memory = std::mem::take(&mut self.memory);
        // Collecting a vector's own elements keeps its allocation, and there are none to convert.
        memory.into_iter().map(|_| unreachable!()).collect()
    }

    /// Keeps the memory for the next time.
    #[inline]
    pub(super) fn put_back(&mut self, mut batch: Vec<T::With<'_>>) {
        batch.clear();
        self.memory = batch.into_iter().map(|_| unreachable!()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::RecvWr;

    #[test]
    fn the_memory_stays_the_same() {
        let mut recycled = Recycled::<RecvWr<'static>>::with_capacity(8);
        let mut first = None;
        for round in 0..5 {
            let sges = vec![verbs::Sge::default(); 3];
            let mut batch = recycled.take();
            batch.push(RecvWr {
                id: round,
                sges: &sges,
            });
            assert_eq!(
                *first.get_or_insert(batch.as_ptr() as usize),
                batch.as_ptr() as usize
            );
            assert_eq!(batch.capacity(), 8);
            recycled.put_back(batch);
        }
    }
}
