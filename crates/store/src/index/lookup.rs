//! Finding the entries of many hashes at once.
#![allow(unsafe_code)]

use super::entry;
use super::place::Place;
use super::prefetch::prefetch;
use super::region::{SLOTS, Word};
use super::scan::{self, Scan, Width};
use super::sync::Ordering;
use super::{At, Candidates, Index};

/// How many lookups are begun before the first one ends: about as many cache misses as a core has under
/// way at once.
const AHEAD: usize = 24;
/// How many wait for their second lines at most.
const SECONDS: usize = 8;

impl Index {
    /// Finds the places of many hashes at once: the cache misses of all of them overlap. `found` is
    /// told a hash's number and a place that fits it, in any order.
    #[inline]
    pub fn candidates_batch(&self, hashes: &[u64], mut found: impl FnMut(usize, Place)) {
        match self.width {
            // SAFETY: `Width::here` has asked the processor.
            #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
            Width::Avx512 => unsafe { by_avx512(self, hashes, &mut found) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
            Width::Avx2 => unsafe { by_avx2(self, hashes, &mut found) },
            // SAFETY: every processor can do that.
            Width::Word => unsafe { by::<scan::Word>(self, hashes, &mut found) },
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[target_feature(enable = "avx512f,bmi1,popcnt")]
unsafe fn by_avx512(index: &Index, hashes: &[u64], found: &mut impl FnMut(usize, Place)) {
    // SAFETY: as the caller promises.
    unsafe { by::<scan::Avx512>(index, hashes, found) }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[target_feature(enable = "avx2,bmi1,popcnt")]
unsafe fn by_avx2(index: &Index, hashes: &[u64], found: &mut impl FnMut(usize, Place)) {
    // SAFETY: as the caller promises.
    unsafe { by::<scan::Avx2>(index, hashes, found) }
}

/// # Safety
/// The processor can scan in this way.
#[inline(always)]
unsafe fn by<S: Scan>(index: &Index, hashes: &[u64], found: &mut impl FnMut(usize, Place)) {
    // The lines of the next ones are on their way while one is looked at.
    let mut looks = [Look::default(); AHEAD];
    // Those that may have entries in their second line, which are on their way too.
    let mut seconds = [Look::default(); SECONDS];
    let mut waiting = 0;
    for number in 0..hashes.len() + AHEAD {
        if let Some(done) = number.checked_sub(AHEAD) {
            let look = looks[number % AHEAD];
            if let Some(&hash) = hashes.get(done) {
                let line = index.line(look.at, look.at.first);
                // SAFETY: as the caller promises.
                let (slots, marks) = unsafe { S::slots(line, entry::kind(hash, false)) };
                if marks >> entry::mark_slot(hash) & 1 == 1 {
                    prefetch(index.line(look.at, index.second(hash, look.at)));
                    seconds[waiting] = Look {
                        number: done as u32,
                        first: slots,
                        ..look
                    };
                    waiting += 1;
                    if waiting == SECONDS {
                        // SAFETY: as the caller promises.
                        unsafe { look_second::<S>(index, hashes, &seconds, found) };
                        waiting = 0;
                    }
                } else {
                    finish(index, hash, &look, slots, done, found);
                }
            }
        }
        if let Some(&hash) = hashes.get(number) {
            let (at, word) = index.locate(hash);
            prefetch(index.line(at, at.first));
            let look = &mut looks[number % AHEAD];
            (look.at, look.word) = (at, word);
        }
    }
    // SAFETY: as the caller promises.
    unsafe { look_second::<S>(index, hashes, &seconds[..waiting], found) };
}

/// # Safety
/// The processor can scan in this way.
#[inline(always)]
unsafe fn look_second<S: Scan>(
    index: &Index,
    hashes: &[u64],
    seconds: &[Look],
    found: &mut impl FnMut(usize, Place),
) {
    for look in seconds {
        let hash = hashes[look.number as usize];
        let line = index.line(look.at, index.second(hash, look.at));
        // SAFETY: as the caller promises.
        let (slots, _) = unsafe { S::slots(line, entry::kind(hash, true)) };
        let slots = look.first | slots << SLOTS;
        finish(index, hash, look, slots, look.number as usize, found);
    }
}

/// A lookup under way.
#[derive(Clone, Copy, Default)]
struct Look {
    at: At,
    word: Word,
    /// The hash's number.
    number: u32,
    /// What was found in the first line.
    first: u32,
}

/// Tells what has been found: the slots of both lines.
#[inline(always)]
fn finish(
    index: &Index,
    hash: u64,
    look: &Look,
    slots: u32,
    number: usize,
    found: &mut impl FnMut(usize, Place),
) {
    let header = &index.headers[look.at.number];
    if slots == 0 {
        if header.still(look.word) {
            return;
        }
    } else if slots & (slots - 1) == 0 {
        // Usually the only one, of which the scan has not kept the place.
        let slot = slots.trailing_zeros() as usize;
        let is_second = slot >= SLOTS;
        let line = if is_second {
            index.second(hash, look.at)
        } else {
            look.at.first
        };
        let entry = index.line(look.at, line).0[slot % SLOTS].load(Ordering::Relaxed);
        let place = entry::place(entry);
        // Another one may have come there since, or it may always have been empty.
        let is_same = (entry ^ entry::kind(hash, is_second)) & entry::KIND_MASK == 0;
        if is_same && place != Place::NONE && header.still(look.word) {
            found(number, place);
            return;
        }
    }
    rest(index, hash, number, found);
}

#[cold]
#[inline(never)]
fn rest(index: &Index, hash: u64, number: usize, found: &mut impl FnMut(usize, Place)) {
    let mut candidates = Candidates::new();
    index.candidates(hash, &mut candidates);
    for &place in candidates.iter() {
        found(number, place);
    }
}
