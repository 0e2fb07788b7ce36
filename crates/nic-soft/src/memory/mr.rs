//! Memory regions: allocated by us and shared from birth, or the caller's own.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use verbs::nic::NicMr;
use verbs::{Access, Iova, Lkey, Rkey, VerbsError, WindowBind, mem, rules};

use crate::contact::adapter::Adapter;
use crate::memory::known::{Holder, Known, REMOTELY};
use crate::memory::pages;
use crate::memory::pd::PdUse;
use crate::memory::remap::{self, Place};
use crate::memory::windows::Windows;
use crate::shared::cause::Cause;
use crate::shared::layout::{KIND_PRIVATE, KIND_SHARED, MRS, ON_DEMAND, mr_index};
use crate::shared::mr_entry::{self, Described};
use crate::shared::segment::{Mapping, Writers};
use crate::sync::quiescence::Activity;
use crate::sync::table::{Slot, Table};

/// The regions of an adapter.
#[derive(Debug)]
pub(crate) struct Regions {
    adapter: Arc<Adapter>,
    known: Table<Known>,
    /// Changes with every registration, so that an old key does not fit a new region.
    variant: AtomicU16,
    /// Held by whoever carries out what a peer has asked for.
    activity: Mutex<Arc<Activity>>,
    windows: Windows,
}

impl Regions {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Self {
        Regions {
            adapter: Arc::clone(adapter),
            known: Table::new("memory regions", 1, MRS),
            variant: AtomicU16::new(adapter.incarnation as u16),
            activity: Mutex::new(adapter.quiescence.activity()),
            windows: Windows::default(),
        }
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Binds a window by a request of a queue pair of this number and protection domain.
    pub(crate) fn bind(&self, qpn: u32, pd: usize, bind: &WindowBind) -> Result<(), Cause> {
        let find = |key| self.known(key);
        self.windows.bind(&self.adapter, find, (qpn, pd), bind)
    }

    /// Takes a number for a window, and a key with it.
    pub(crate) fn take_window(&self) -> Result<(u32, Slot<Known>), VerbsError> {
        let slot = self.known.take(|_| true)?;
        let key = (slot.number() as u32) << 16 | u32::from(self.next_variant());
        Ok((key, slot))
    }

    /// What is known of the region with a key.
    pub(crate) fn known(&self, key: u32) -> Option<Known> {
        let known = self.known.get(mr_index(key)).ok()?;
        (known.key == key).then_some(known)
    }

    pub(crate) fn count(&self) -> usize {
        self.known.count()
    }

    /// The file behind a region or a window that peers have a right to, and its protection domain. A region that is there for windows
    /// alone gives none: those who reach a window ask for that.
    pub(crate) fn file(&self, key: u32) -> Option<(usize, Arc<OwnedFd>)> {
        let known = self.known(key)?;
        let entry = self.adapter.mr_entry(mr_index(key));
        let described = mr_entry::describe(entry, key)?;
        if !described.access.intersects(REMOTELY) {
            return None;
        }
        Some((known.pd, known.file?))
    }

    /// Works on regions for a peer: who takes regions or rights away waits for the end of it.
    pub(crate) fn active<R>(&self, work: impl FnOnce() -> R) -> R {
        let activity = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        let _active = activity.enter();
        work()
    }

    fn next_variant(&self) -> u16 {
        let next = |variant: u16| Some(variant.wrapping_add(1).max(1));
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let updated = self.variant.fetch_update(success, failure, next);
        let before = updated.unwrap_or_else(|before| before);
        before.wrapping_add(1).max(1)
    }

    /// Gives two regions each other's keys. Peers that remember the regions are to be told.
    pub(crate) fn exchange(&self, keys: [u32; 2]) -> Result<(), VerbsError> {
        let no_such = |key: u32| self.known.no_such(mr_index(key));
        let find = |key: u32| {
            let known = self.known(key).ok_or_else(|| no_such(key))?;
            let holder = known.holder.upgrade().ok_or_else(|| no_such(key))?;
            let entry = self.adapter.mr_entry(mr_index(key));
            let described = mr_entry::describe(entry, key).ok_or_else(|| no_such(key))?;
            Ok((known, holder, described))
        };
        let withdraw = || {
            let found = [find(keys[0])?, find(keys[1])?];
            for key in keys {
                mr_entry::withdraw(self.adapter.mr_entry(mr_index(key)));
            }
            Ok(found)
        };
        // From here on nothing is bound to them, until they have their keys again.
        let withdrawn = self.windows.without(&self.adapter, keys, withdraw);
        let what = "a region with memory windows";
        let [first, second] = withdrawn.unwrap_or(Err(VerbsError::Busy { what }))?;
        // Nobody may still be looking at the entries when they describe other regions.
        self.adapter.quiescence.wait();
        let slots = [&first, &second].map(|(_, holder, _)| holder.slot().take());
        let ways = [(&second, &first), (&first, &second)];
        for ((slot, key), ((known, holder, described), (.., before))) in
            slots.into_iter().zip(keys).zip(ways)
        {
            if let Some(slot) = &slot {
                let known = known.clone();
                slot.set(Known { key, ..known });
            }
            let given = before.given.wrapping_add(1);
            let described = Described {
                given,
                ..*described
            };
            mr_entry::announce(self.adapter.mr_entry(mr_index(key)), key, &described);
            *holder.slot() = slot;
            holder.key.store(key, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives a region a key, and tells peers of it.
    fn publish(
        &self,
        pd: &PdUse,
        (start, len): (Start, usize),
        iova: Iova,
        access: Access,
        (file, in_file): (Option<Arc<OwnedFd>>, u64),
    ) -> Result<Arc<Holder>, VerbsError> {
        let kind = if file.is_some() {
            KIND_SHARED
        } else {
            KIND_PRIVATE
        };
        let slot = self.known.take(|_| true)?;
        let key = (slot.number() as u32) << 16 | u32::from(self.next_variant());
        let pd = pd.number();
        let holder = Arc::new(Holder::new(key));
        slot.set(Known {
            key,
            pd,
            file,
            holder: Arc::downgrade(&holder),
        });
        let region = Described {
            access,
            pd: pd as u32,
            kind,
            addr: iova.0,
            len: len as u64,
            start: match start {
                Start::Memory(start) => start.as_ptr() as u64,
                Start::Address(start) => start as u64,
            },
            in_file,
            given: 0,
            is_on_demand: matches!(start, Start::Address(_)),
            window: None,
        };
        mr_entry::announce(self.adapter.mr_entry(slot.number()), key, &region);
        *holder.slot() = Some(slot);
        Ok(holder)
    }
}

/// Where a region is.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// At memory that is there.
    Memory(NonNull<u8>),
    /// At an address, where pages come and go.
    Address(usize),
}

/// A region's memory and registration. Dropping it deregisters.
#[derive(Debug)]
pub(crate) struct SoftMr {
    regions: Arc<Regions>,
    holder: Arc<Holder>,
    start: Start,
    len: usize,
    iova: Iova,
    _pd: PdUse,
    /// What keeps the memory as it is.
    _backing: Backing,
}

/// Where a region's memory comes from.
#[derive(Debug)]
enum Backing {
    /// The NIC's own.
    Allocated(#[allow(dead_code, reason = "kept for its drop")] Mapping),
    /// The caller's, which stays as it is until it is dropped.
    Callers(#[allow(dead_code, reason = "kept for its drop")] Place),
    /// Whatever is there.
    None,
}

// SAFETY: the region's memory is only touched through atomics and `verbs::mem`.
unsafe impl Send for SoftMr {}
// SAFETY: as above.
unsafe impl Sync for SoftMr {}

impl SoftMr {
    /// # Panics
    /// When a range is outside the region.
    fn check_range(&self, offset: usize, len: usize) {
        let fits = offset <= self.len && len <= self.len - offset;
        assert!(fits, "outside the region");
    }

    fn key(&self) -> u32 {
        self.holder.key.load(Ordering::Relaxed)
    }

    /// Allocates and registers.
    pub(crate) fn allocate(
        regions: &Arc<Regions>,
        pd: PdUse,
        len: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        check(len, access)?;
        let (file, mapping) =
            regions
                .adapter
                .source
                .create("vervain-region", len, writers(access))?;
        let file = access.intersects(REACHABLE).then(|| Arc::new(file));
        advise_huge(&mapping);
        let start = Start::Memory(mapping.start());
        let iova = Iova::of(mapping.start());
        let holder = regions.publish(&pd, (start, len), iova, access, (file, 0))?;
        Ok(SoftMr {
            regions: Arc::clone(regions),
            holder,
            start,
            len,
            iova,
            _pd: pd,
            _backing: Backing::Allocated(mapping),
        })
    }

    /// Registers memory of the caller. Page-aligned private memory under no other region is moved into
    /// shared memory in place; other memory stays, and peers reach it through the kernel, and with atomics, or
    /// where that is refused, through our agent.
    pub(crate) fn register(
        regions: &Arc<Regions>,
        pd: PdUse,
        start: NonNull<u8>,
        len: usize,
        iova: Iova,
        access: Access,
        remap: bool,
    ) -> Result<Self, VerbsError> {
        check(len, access)?;
        rules::check_iova(start, len, iova)?;
        let mut place = Place::of(start, len);
        let shared = if remap && access.intersects(REACHABLE) {
            let source = &regions.adapter.source;
            remap::make_shared(source, &mut place, start, len, writers(access))?
        } else {
            None
        };
        let file = match shared {
            Some(file) => Some(Arc::new(file)),
            None => {
                if access.intersects(REACHABLE) {
                    allow_peers_to_reach_us();
                }
                None
            }
        };
        SoftMr::of_caller(regions, pd, (start, len), iova, access, (file, 0), place)
    }

    /// Registers addresses of this process, at which pages come and go. Peers reach what is there through the kernel, and with atomics
    /// through our agent.
    pub(crate) fn register_on_demand(
        regions: &Arc<Regions>,
        pd: PdUse,
        (start, len): (usize, usize),
        iova: Iova,
        access: Access,
    ) -> Result<Self, VerbsError> {
        check(len, access)?;
        rules::check_range(start as u64, len, iova)?;
        if access.intersects(REACHABLE) {
            allow_peers_to_reach_us();
        }
        let start = Start::Address(start);
        let holder = regions.publish(&pd, (start, len), iova, access, (None, 0))?;
        Ok(SoftMr {
            regions: Arc::clone(regions),
            holder,
            start,
            len,
            iova,
            _pd: pd,
            _backing: Backing::None,
        })
    }

    /// Registers memory of the caller that lies in a file of the caller's, from an offset on.
    pub(crate) fn register_file(
        regions: &Arc<Regions>,
        pd: PdUse,
        (start, len): (NonNull<u8>, usize),
        iova: Iova,
        access: Access,
        (file, in_file): (BorrowedFd<'_>, u64),
    ) -> Result<Self, VerbsError> {
        check(len, access)?;
        rules::check_iova(start, len, iova)?;
        let place = Place::of(start, len);
        let file = match access.intersects(REACHABLE) {
            true => {
                let source = &regions.adapter.source;
                let end = in_file.checked_add(len as u64);
                Some(Arc::new(source.of_caller(file, end, writers(access))?))
            }
            false => None,
        };
        SoftMr::of_caller(
            regions,
            pd,
            (start, len),
            iova,
            access,
            (file, in_file),
            place,
        )
    }

    fn of_caller(
        regions: &Arc<Regions>,
        pd: PdUse,
        (start, len): (NonNull<u8>, usize),
        iova: Iova,
        access: Access,
        file: (Option<Arc<OwnedFd>>, u64),
        place: Place,
    ) -> Result<Self, VerbsError> {
        let start = Start::Memory(start);
        let holder = regions.publish(&pd, (start, len), iova, access, file)?;
        Ok(SoftMr {
            regions: Arc::clone(regions),
            holder,
            start,
            len,
            iova,
            _pd: pd,
            _backing: Backing::Callers(place),
        })
    }
}

/// Rights by which peers come to have some, now or when a window is bound.
const REACHABLE: Access = REMOTELY.union(Access::WINDOW_BIND);

/// Peers that may only read get a file that they cannot map writable.
fn writers(access: Access) -> Writers {
    let by_windows = Access::WINDOW_BIND | Access::LOCAL_WRITE;
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        || access.contains(by_windows)
    {
        Writers::Everybody
    } else {
        Writers::Owner
    }
}

fn check(len: usize, access: Access) -> Result<(), VerbsError> {
    if len == 0 {
        return Err(VerbsError::invalid("memory region", "it has no bytes"));
    }
    if !rules::access_is_consistent(access) {
        let why = "remote writing and atomics need local writing";
        return Err(VerbsError::invalid("access flags", why));
    }
    Ok(())
}

/// Asks for large pages behind a region that has room for some; a refusal changes nothing.
fn advise_huge(mapping: &Mapping) {
    const HUGE: usize = 2 << 20;
    if mapping.len() < HUGE {
        return;
    }
    let (start, advice) = (
        mapping.start().as_ptr().cast(),
        rustix::mm::Advice::LinuxHugepage,
    );
    // SAFETY: advice on one's own mapping; it changes how pages are backed, not what they hold.
    if let Err(e) = unsafe { rustix::mm::madvise(start, mapping.len(), advice) } {
        tracing::debug!(error = %e, "no large pages for a memory region");
    }
}

/// Where the Yama module restricts process_vm_readv and writev to descendants, lets other
/// processes of this user reach us. Without Yama the kernel refuses this, and nothing is needed.
fn allow_peers_to_reach_us() {
    const PR_SET_PTRACER: libc::c_int = 0x5961_6d61;
    // SAFETY: prctl with plain numbers.
    unsafe { libc::prctl(PR_SET_PTRACER, libc::c_ulong::MAX, 0, 0, 0) };
}

// SAFETY: the memory is there until the region is dropped, by the kind of its backing or by the
// promise made to `register`, which also says how others access it.
unsafe impl NicMr for SoftMr {
    fn addr(&self) -> u64 {
        self.iova.0
    }

    fn len(&self) -> usize {
        self.len
    }

    fn lkey(&self) -> Lkey {
        Lkey(self.key())
    }

    fn rkey(&self) -> Rkey {
        Rkey(self.key())
    }

    fn has_windows(&self) -> bool {
        let regions = &self.regions;
        regions.windows.any_of(&regions.adapter, self.key())
    }

    fn base(&self) -> Option<NonNull<u8>> {
        match self.start {
            Start::Memory(start) => Some(start),
            Start::Address(_) => None,
        }
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check_range(offset, bytes.len());
        match self.start {
            // SAFETY: the range is inside the memory, by this trait's promise.
            Start::Memory(start) => unsafe {
                mem::fetch(bytes.as_mut_ptr(), start.as_ptr().add(offset), bytes.len());
            },
            Start::Address(start) => {
                // What is not there reads as it was.
                let from = start.wrapping_add(offset);
                if pages::fetch(from, bytes.len(), false) {
                    let from = std::ptr::with_exposed_provenance(from);
                    // SAFETY: the pages are there.
                    unsafe { mem::fetch(bytes.as_mut_ptr(), from, bytes.len()) };
                }
            }
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.check_range(offset, bytes.len());
        match self.start {
            // SAFETY: the range is inside the memory, by this trait's promise.
            Start::Memory(start) => unsafe {
                mem::place(start.as_ptr().add(offset), bytes.as_ptr(), bytes.len());
            },
            Start::Address(start) => {
                let to = start.wrapping_add(offset);
                if pages::fetch(to, bytes.len(), true) {
                    let to = std::ptr::with_exposed_provenance_mut(to);
                    // SAFETY: the pages are there.
                    unsafe { mem::place(to, bytes.as_ptr(), bytes.len()) };
                }
            }
        }
    }
}

impl Drop for SoftMr {
    fn drop(&mut self) {
        let (adapter, key) = (&self.regions.adapter, self.key());
        mr_entry::withdraw(adapter.mr_entry(mr_index(key)));
        self.regions.windows.unbind_all_of(adapter, key);
        // Nobody may still be copying when the memory goes away.
        adapter.quiescence.wait();
    }
}

/// A local range, checked: where it is in this process. The caller is inside an operation that the
/// quiescence knows of.
#[inline]
pub(crate) fn local(
    adapter: &Adapter,
    pd: u32,
    sge: &verbs::Sge,
    needed: Access,
) -> Option<*mut u8> {
    let key = sge.lkey.0;
    let entry = adapter.published().mrs.get(mr_index(key))?;
    // Pairs with the key's store in `mr_entry::announce`. The key is looked at once, unlike in
    // `mr_entry::describe`: the owner of the entry withdraws the key, and then waits for operations
    // such as the caller's before the entry describes another region.
    if key == 0 || entry.key.load(Ordering::Acquire) != key {
        return None;
    }
    let region = Described {
        access: Access::from_bits_retain(entry.access.load(Ordering::Relaxed)),
        pd: entry.pd.load(Ordering::Relaxed),
        kind: KIND_PRIVATE, // Does not matter here.
        addr: entry.addr.load(Ordering::Relaxed),
        len: entry.len.load(Ordering::Relaxed),
        start: entry.start.load(Ordering::Relaxed),
        in_file: 0, // As little.
        given: 0,
        is_on_demand: false, // Its domain is none either.
        window: None,        // A window's domain is none.
    };
    let offset = region.offset(sge.addr, u64::from(sge.len))?;
    let right = region.pd == pd && region.access.contains(needed);
    right.then_some((region.start + offset) as *mut u8)
}

/// Where a range is that [`local`] has checked in the same operation: until that is over, its region
/// stays.
#[inline]
pub(crate) fn checked(adapter: &Adapter, sge: &verbs::Sge) -> *mut u8 {
    let entry = adapter.mr_entry(mr_index(sge.lkey.0));
    let offset = sge.addr.wrapping_sub(entry.addr.load(Ordering::Relaxed));
    entry.start.load(Ordering::Relaxed).wrapping_add(offset) as *mut u8
}

/// Whether the pages of a range come and go that was checked in the same operation.
#[cold]
pub(crate) fn is_on_demand(adapter: &Adapter, sge: &verbs::Sge) -> bool {
    let entry = adapter.mr_entry(mr_index(sge.lkey.0));
    entry.pd.load(Ordering::Relaxed) & ON_DEMAND != 0
}

/// As [`local`], for a range that it has refused: one whose pages come and go is used when they are there.
#[cold]
pub(crate) fn local_on_demand(
    adapter: &Adapter,
    pd: u32,
    sge: &verbs::Sge,
    needed: Access,
) -> Result<*mut u8, Cause> {
    let place = on_demand(adapter, pd, sge, needed)?;
    let writes = needed.contains(Access::LOCAL_WRITE);
    match pages::fetch(place, sge.len as usize, writes) {
        true => Ok(std::ptr::with_exposed_provenance_mut(place)),
        false => Err(Cause::LocalPages),
    }
}

/// The address of a range whose pages come and go, or why it may not be used.
#[cold]
pub(crate) fn on_demand(
    adapter: &Adapter,
    pd: u32,
    sge: &verbs::Sge,
    needed: Access,
) -> Result<usize, Cause> {
    let entry = adapter.published().mrs.get(mr_index(sge.lkey.0));
    let region = entry.and_then(|entry| mr_entry::describe(entry, sge.lkey.0));
    let region = region.ok_or(Cause::LocalKey)?;
    if region.pd != pd {
        return Err(Cause::LocalDomain);
    }
    let offset = region.offset(sge.addr, u64::from(sge.len));
    let offset = offset.ok_or(Cause::LocalRange)?;
    match region.is_on_demand && region.access.contains(needed) {
        true => Ok(region.start.wrapping_add(offset) as usize),
        false => Err(Cause::LocalRight),
    }
}
