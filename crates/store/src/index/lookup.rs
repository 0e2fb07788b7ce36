//! Finding the entries of a hash, or of many at once.
#![allow(unsafe_code)]

use super::entry;
use super::place::Place;
use super::prefetch::prefetch;
use super::region::{Line, SLOTS, Word};
use super::scan::{self, Scan, Width};
use super::sync::{Ordering, Wait};
use super::{At, Candidates, Index};

/// How many lookups are begun before the first one ends: about as many cache misses as a core has under
/// way at once.
const AHEAD: usize = 24;
/// How many wait for their second lines at most.
const SECONDS: usize = 8;

impl Index {
    /// All places that fit a hash. Takes no lock. It reads one cache line, and a second one for the few
    /// that may lie there.
    #[inline(always)]
    pub fn candidates(&self, hash: u64, out: &mut Candidates) {
        if !self.look(self.width, hash, out) {
            self.candidates_again(hash, out);
        }
    }

    /// Looks once, in a way that this processor can. False if an entry has moved meanwhile, which may have been missed.
    #[inline(always)]
    pub(super) fn look(&self, width: Width, hash: u64, out: &mut Candidates) -> bool {
        match width {
            // SAFETY: `Width::here` has asked the processor.
            #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
            Width::Avx512 => unsafe { one_by_avx512(self, hash, out) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
            Width::Avx2 => unsafe { one_by_avx2(self, hash, out) },
            // SAFETY: every processor can do that.
            Width::Word => unsafe { one_by::<scan::Word>(self, hash, out) },
        }
    }

    /// The same once more: an entry has moved meanwhile.
    #[cold]
    #[inline(never)]
    fn candidates_again(&self, hash: u64, out: &mut Candidates) {
        let mut wait = Wait::default();
        loop {
            wait.pause();
            if self.look(Width::Word, hash, out) {
                return;
            }
        }
    }

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
unsafe fn one_by_avx512(index: &Index, hash: u64, out: &mut Candidates) -> bool {
    // SAFETY: as the caller promises.
    unsafe { one_by::<scan::Avx512>(index, hash, out) }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[target_feature(enable = "avx2,bmi1,popcnt")]
unsafe fn one_by_avx2(index: &Index, hash: u64, out: &mut Candidates) -> bool {
    // SAFETY: as the caller promises.
    unsafe { one_by::<scan::Avx2>(index, hash, out) }
}

/// Looks for a hash once. False if an entry has moved meanwhile, which may have been missed.
///
/// # Safety
/// The processor can scan in this way.
#[inline(always)]
unsafe fn one_by<S: Scan>(index: &Index, hash: u64, out: &mut Candidates) -> bool {
    let (at, word) = index.locate(hash);
    out.clear();
    let (first, kind) = (index.line(at, at.first), entry::kind(hash, false));
    // SAFETY: as the caller promises.
    let (slots, marks) = unsafe { S::slots(first, kind) };
    let mut is_sure = add(first, slots, kind, out);
    if marks >> entry::mark_slot(hash) & 1 == 1 {
        let second = index.line(at, index.second(hash, at));
        let kind = entry::kind(hash, true);
        // SAFETY: as the caller promises.
        let (slots, _) = unsafe { S::slots(second, kind) };
        is_sure &= add(second, slots, kind, out);
    }
    is_sure && index.headers[at.number].still(word)
}

/// Adds the places in some slots of a line, of which the scan has not kept the entries. False if one has gone since: what was
/// put in its stead may lie in a slot that was scanned before.
#[inline(always)]
fn add(line: &Line, mut slots: u32, kind: u64, out: &mut Candidates) -> bool {
    let mut is_sure = true;
    while slots != 0 {
        let entry = line.0[slots.trailing_zeros() as usize % SLOTS].load(Ordering::Relaxed);
        slots &= slots - 1;
        let is_kind = (entry ^ kind) & entry::KIND_MASK == 0;
        if is_kind && entry::place(entry) != Place::NONE {
            out.add(entry);
        } else {
            // Empty slots are of kind zero, and always were.
            is_sure &= kind & entry::KIND_MASK == 0;
        }
    }
    is_sure
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
