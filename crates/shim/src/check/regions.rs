//! The program's memory regions: those that are there, those that were, and whether their memory still is.
//!
//! A process's memory is one, whatever contexts it has, and so is this table. `munmap` and `free` look into it, at any
//! time, so they wait for nobody: when the table is in use they let it be.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use verbs::{Access, PdNum};

use super::bytes::are_mapped;
use super::report::{Finding, Severity, tell};
use crate::process::caller::Stack;
use crate::process::generation;
use crate::process::{aside, is_aside};

/// Regions that are remembered after their end.
const DEAD_MAX: usize = 4096;

/// A region, also after its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    /// The process that has registered it.
    pub(super) generation: u32,
    /// The number of its context.
    pub(super) context: u32,
    pub(super) pd: PdNum,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    /// Where the memory is.
    pub(super) start: usize,
    pub(super) len: usize,
    /// What work requests call the first byte.
    pub(super) iova: u64,
    pub(super) access: Access,
    /// It is whatever the program maps at its place.
    pub(super) is_on_demand: bool,
    pub(super) registered: Stack,
    pub(super) deregistered: Option<Stack>,
    /// What took its memory away.
    pub(super) lost: Option<(&'static str, Stack)>,
    /// A RECV, READ or atomic has named it, so the NIC writes there.
    pub(super) is_written: bool,
}

impl Region {
    /// Whether a call takes memory of it away. What is freed may share a page with it, which programs register as a whole.
    fn loses(&self, call: &str, start: usize, len: usize) -> bool {
        let (from, to) = (
            self.start.max(start),
            (self.start + self.len).min(start.saturating_add(len)),
        );
        let is_block = matches!(call, "free" | "realloc");
        // What a child does with its copy is its own affair.
        let is_ours = self.generation == generation();
        is_ours && !self.is_on_demand && from < to && (!is_block || to - from >= self.len / 2)
    }

    /// Whether a range that a work request names is inside.
    pub(super) fn holds(&self, addr: u64, len: u64) -> bool {
        addr >= self.iova
            && addr - self.iova <= self.len as u64
            && len <= self.len as u64 - (addr - self.iova)
    }

    /// Where the memory is that work requests call by an address.
    pub(super) fn place(&self, addr: u64) -> u64 {
        addr.wrapping_sub(self.iova).wrapping_add(self.start as u64)
    }

    pub(super) fn describe(&self) -> String {
        let end = self.iova.wrapping_add(self.len as u64);
        format!(
            "{:#x}..{end:#x} ({} bytes, lkey {:#x}, rkey {:#x})",
            self.iova, self.len, self.lkey, self.rkey
        )
    }
}

#[derive(Default)]
pub(super) struct Regions {
    live: BTreeMap<(u32, u32), Region>,
    dead: VecDeque<Region>,
}

pub(super) static REGIONS: Mutex<Regions> = Mutex::new(Regions {
    live: BTreeMap::new(),
    dead: VecDeque::new(),
});

/// All regions lie in between, so that most calls of `munmap` and `free` need not look further.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

fn regions() -> MutexGuard<'static, Regions> {
    REGIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with the table locked.
fn with<T>(look: impl FnOnce(&mut Regions) -> T) -> T {
    aside(|| look(&mut regions()))
}

pub(super) fn add(region: Region) {
    if !region.is_on_demand {
        LOWEST.fetch_min(region.start, Ordering::Relaxed);
        HIGHEST.fetch_max(region.start + region.len, Ordering::Relaxed);
    }
    with(|regions| regions.live.insert((region.context, region.lkey), region));
}

/// Takes a region out, and says what it was.
pub(super) fn remove(context: u32, lkey: u32, by: Stack) -> Option<Region> {
    with(|regions| {
        let mut region = regions.live.remove(&(context, lkey))?;
        region.deregistered = Some(by);
        if regions.dead.len() == DEAD_MAX {
            regions.dead.pop_front();
        }
        regions.dead.push_back(region);
        Some(region)
    })
}

/// The regions of a context that are there.
pub(super) fn all(context: u32) -> Vec<Region> {
    with(|regions| {
        let of_context = regions.live.range((context, 0)..=(context, u32::MAX));
        of_context.map(|(_, region)| *region).collect()
    })
}

/// The region that has a key, and whether it is there; one that was is told of when there is none.
pub(super) fn find(context: u32, is_it: impl Fn(&Region) -> bool) -> Option<Region> {
    with(|regions| {
        let live = regions.live.range((context, 0)..=(context, u32::MAX));
        let found = live.map(|(_, region)| region).find(|region| is_it(region));
        let dead = || {
            let mut dead = regions.dead.iter().rev();
            dead.find(|region| region.context == context && is_it(region))
        };
        found.or_else(dead).copied()
    })
}

/// The region that has this key now.
pub(super) fn live(context: u32, lkey: u32) -> Option<Region> {
    with(|regions| regions.live.get(&(context, lkey)).copied())
}

/// Notes that the NIC writes into a region for its owner.
pub(super) fn note_written(context: u32, lkey: u32) {
    with(|regions| {
        if let Some(region) = regions.live.get_mut(&(context, lkey)) {
            region.is_written = true;
        }
    });
}

/// Whether somebody but the program may write into memory of this process: a peer, or the NIC for a RECV, READ or atomic.
pub(super) fn is_written_by_others(start: u64, len: u64) -> bool {
    let overlaps = |region: &Region| {
        let (from, to) = (region.start as u64, (region.start + region.len) as u64);
        from < start.saturating_add(len) && start < to
    };
    let writes = |region: &Region| region.is_written || is_writable(region.access);
    with(|regions| {
        let mut live = regions.live.values();
        live.any(|region| overlaps(region) && writes(region))
    })
}

/// Whether peers may write into a region.
fn is_writable(access: Access) -> bool {
    access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
}

/// Whether memory is being taken away that is registered. Cheap where it is not.
pub(super) fn may_touch(start: usize, len: usize) -> bool {
    start < HIGHEST.load(Ordering::Relaxed)
        && start.saturating_add(len) > LOWEST.load(Ordering::Relaxed)
}

/// Notes that `call` takes memory away, and tells of the regions there.
///
/// `is_posted` says whether requests that are under way name a region, and is asked of those alone. It may allocate: what this thread
/// frees meanwhile is not looked at.
pub(super) fn lose(
    call: &'static str,
    start: usize,
    len: usize,
    is_posted: impl Fn(&Region) -> bool,
) {
    if !may_touch(start, len) || is_aside() {
        return;
    }
    aside(|| {
        let mut lost = Vec::new();
        if let Ok(mut regions) = REGIONS.try_lock() {
            for region in regions.live.values_mut() {
                if region.loses(call, start, len) && region.lost.is_none() {
                    region.lost = Some((call, Stack::here()));
                    lost.push(*region);
                }
            }
        }
        for region in lost {
            tell_lost(&region, is_posted(&region));
        }
    });
}

/// Looks whether the memory of a region is there, and tells when it is not.
pub(super) fn look(region: &Region, is_posted: bool) {
    if region.is_on_demand || region.lost.is_some() || are_mapped(region.start, region.len) {
        return;
    }
    let here = Stack::here();
    let is_new = with(
        |regions| match regions.live.get_mut(&(region.context, region.lkey)) {
            Some(region) => region.lost.replace(("noticed", here)).is_none(),
            None => true,
        },
    );
    if is_new {
        let lost = Some(("noticed", here));
        tell_lost(&Region { lost, ..*region }, is_posted);
    }
}

fn tell_lost(region: &Region, is_posted: bool) {
    let Some((call, by)) = region.lost else {
        return;
    };
    let severity = match is_posted {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let what = match call {
        "free" | "realloc" => format!(
            "the memory of a region was freed while it is registered: {}",
            region.describe()
        ),
        "noticed" => format!(
            "the memory of a region is not mapped any more: {}",
            region.describe()
        ),
        _ => format!(
            "{call} took memory away that is registered: {}",
            region.describe()
        ),
    };
    let mut finding = Finding::new("lost-memory", severity, what)
        .fact("A card keeps the old pages: what arrives there is never seen, and what is sent from there is old.".into());
    if is_posted {
        finding = finding.fact("Requests that are under way name it.".into());
    }
    let finding = finding
        .at("registered", region.registered)
        .at(call, by)
        .advice("call ibv_dereg_mr before the memory goes");
    tell(&finding);
}
