//! Memory regions: allocated by us and shared from birth, or the caller's own.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbs::nic::NicMr;
use verbs::{Access, Lkey, PdNum, Rkey, VerbsError, rules};

use crate::adapter::Adapter;
use crate::layout::{KIND_PRIVATE, KIND_SHARED, mr_index};
use crate::region::{self, Described};
use crate::remap::Remapped;
use crate::segment::{Mapping, Writers};

/// What the adapter keeps of a region.
#[derive(Debug)]
pub(crate) struct MrSlot {
    pub(crate) key: u32,
    pub(crate) pd: usize,
    /// The file behind it, for peers to map; `None` for private memory, and for memory that no
    /// peer has a right to.
    pub(crate) file: Option<Arc<OwnedFd>>,
}

/// A region's memory and registration. Dropping it deregisters.
#[derive(Debug)]
pub(crate) struct SoftMr {
    adapter: Arc<Adapter>,
    pd: usize,
    key: u32,
    start: NonNull<u8>,
    len: usize,
    /// What keeps the memory as it is.
    _backing: Backing,
}

/// Where a region's memory comes from.
#[derive(Debug)]
enum Backing {
    /// The NIC's own.
    Allocated(#[allow(dead_code, reason = "kept for its drop")] Mapping),
    /// The caller's, moved into shared memory; it is moved back on drop.
    Remapped(#[allow(dead_code, reason = "kept for its drop")] Remapped),
    /// The caller's, as it is.
    Private,
}

// SAFETY: the region's memory is only touched through atomics and `verbs::mem`.
unsafe impl Send for SoftMr {}
// SAFETY: as above.
unsafe impl Sync for SoftMr {}

impl SoftMr {
    /// Allocates and registers.
    pub(crate) fn allocate(
        adapter: &Arc<Adapter>,
        pd: PdNum,
        len: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        check(len, access)?;
        let (file, mapping) = adapter
            .source
            .create("vervain-region", len, writers(access))?;
        let file = access.intersects(REMOTELY).then(|| Arc::new(file));
        advise_huge(&mapping);
        let start = mapping.start();
        let key = publish(adapter, pd, start, len, access, file)?;
        let adapter = Arc::clone(adapter);
        Ok(SoftMr {
            adapter,
            pd: pd.0 as usize,
            key,
            start,
            len,
            _backing: Backing::Allocated(mapping),
        })
    }

    /// Registers memory of the caller. Page-aligned private memory is moved into shared memory in
    /// place; other memory stays, and peers reach it through the kernel.
    pub(crate) fn register(
        adapter: &Arc<Adapter>,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        check(len, access)?;
        if (start.as_ptr() as usize).checked_add(len).is_none() {
            let why = "it wraps around the address space";
            return Err(VerbsError::invalid("memory region", why));
        }
        let remapped = if adapter.remap && access.intersects(REMOTELY) {
            Remapped::new(&adapter.source, start, len, writers(access))?
        } else {
            None
        };
        let (file, backing) = match remapped {
            Some((file, remapped)) => (Some(Arc::new(file)), Backing::Remapped(remapped)),
            None if access.contains(Access::REMOTE_ATOMIC) => {
                return Err(VerbsError::Unsupported {
                    what: "remote atomics on memory that is not page-aligned private memory",
                });
            }
            None => {
                if access.intersects(REMOTELY) {
                    allow_peers_to_reach_us();
                }
                (None, Backing::Private)
            }
        };
        let key = publish(adapter, pd, start, len, access, file)?;
        Ok(SoftMr {
            adapter: Arc::clone(adapter),
            pd: pd.0 as usize,
            key,
            start,
            len,
            _backing: backing,
        })
    }
}

/// Rights that peers have.
const REMOTELY: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// Peers that may only read get a file that they cannot map writable.
fn writers(access: Access) -> Writers {
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
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

fn publish(
    adapter: &Arc<Adapter>,
    pd: PdNum,
    start: NonNull<u8>,
    len: usize,
    access: Access,
    file: Option<Arc<OwnedFd>>,
) -> Result<u32, VerbsError> {
    let mut tables = adapter.tables();
    tables.pds.get(pd.0 as usize)?;
    let kind = if file.is_some() {
        KIND_SHARED
    } else {
        KIND_PRIVATE
    };
    let index = tables.mrs.insert(MrSlot {
        key: 0,
        pd: pd.0 as usize,
        file,
    })?;
    // The variant changes with every registration, so that an old key does not fit a new region.
    tables.variant = tables.variant.wrapping_add(1).max(1);
    let key = (index as u32) << 16 | u32::from(tables.variant);
    if let Some(slot) = tables.mrs.get_mut(index) {
        slot.key = key;
    }
    if let Some(users) = tables.pds.get_mut(pd.0 as usize) {
        *users += 1;
    }
    let region = Described {
        access,
        pd: pd.0,
        kind,
        addr: start.as_ptr() as u64,
        len: len as u64,
    };
    region::announce(adapter.mr_entry(index), key, &region);
    Ok(key)
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
        self.start.as_ptr() as u64
    }

    fn len(&self) -> usize {
        self.len
    }

    fn lkey(&self) -> Lkey {
        Lkey(self.key)
    }

    fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }

    fn base(&self) -> Option<NonNull<u8>> {
        Some(self.start)
    }
}

impl Drop for SoftMr {
    fn drop(&mut self) {
        let index = mr_index(self.key);
        region::withdraw(self.adapter.mr_entry(index));
        // Nobody may still be copying when the memory goes away.
        self.adapter.quiescence.wait();
        let mut tables = self.adapter.tables();
        let removed = tables.mrs.remove(index);
        debug_assert!(removed.is_ok(), "a region is removed once");
        if let Some(users) = tables.pds.get_mut(self.pd) {
            *users -= 1;
        }
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
    // Pairs with the key's store in `region::announce`. The key is looked at once, unlike in
    // `region::describe`: the owner of the entry withdraws the key, and then waits for operations
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
    };
    let fits = region.contains(sge.addr, u64::from(sge.len));
    (fits && region.pd == pd && region.access.contains(needed)).then_some(sge.addr as *mut u8)
}
