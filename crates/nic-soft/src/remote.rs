//! A peer's memory: finding the place a remote address names, and copying to and from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Access, RemoteAddr, WcStatus, mem};

use crate::adapter::Adapter;
use crate::layout::{KIND_SHARED, MrEntry, mr_index};
use crate::peer::Peer;
use crate::region::{self, Described};
use crate::segment::Mapping;

/// Regions remembered by a queue pair; a power of two.
const CACHED: usize = 16;

/// What a queue pair remembers of a peer's region.
#[derive(Debug)]
pub(crate) struct Region {
    key: u32,
    /// The peer's entry: the region is there while its key is.
    entry: *const MrEntry,
    described: Described,
    /// Where the region's first byte is in this process; `None` for private memory.
    base: Option<*mut u8>,
    peer: Arc<Peer>,
    mapping: Option<Arc<Mapping>>,
}

/// The translation cache of a queue pair, like a NIC's.
#[derive(Debug, Default)]
pub(crate) struct RemoteMemory {
    regions: [Option<Region>; CACHED],
    /// The region that was looked up last, while it is one of those.
    last: Last,
}

/// A mapped region in the form that is quickest to look at.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// 0 when there is none.
    key: u32,
    pd: u32,
    access: Access,
    entry: *const MrEntry,
    addr: u64,
    len: u64,
    /// Where its first byte is in this process.
    base: *mut u8,
    peer: *const Peer,
}

impl Default for Last {
    fn default() -> Self {
        Last {
            key: 0,
            pd: 0,
            access: Access::empty(),
            entry: std::ptr::null(),
            addr: 0,
            len: 0,
            base: std::ptr::null_mut(),
            peer: std::ptr::null(),
        }
    }
}

// SAFETY: the pointers lead to shared memory that `peer` and `mapping` keep mapped; it is accessed
// through atomics and `verbs::mem` only.
unsafe impl Send for RemoteMemory {}

/// A place in a peer's memory, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Mapped here.
    Mapped(*mut u8),
    /// Reached through the kernel.
    Private {
        /// The peer's process.
        pid: i32,
        /// The address there.
        addr: u64,
    },
}

impl RemoteMemory {
    /// Forgets everything, for a new connection.
    pub(crate) fn clear(&mut self) {
        *self = RemoteMemory::default();
    }

    /// Takes out the regions of peers that have gone.
    pub(crate) fn take_departed(&mut self) -> Vec<Region> {
        self.last = Last::default();
        let of_dead = |region: &mut Region| region.peer.is_dead();
        let regions = self.regions.iter_mut();
        regions.filter_map(|one| one.take_if(of_dead)).collect()
    }

    /// Where a place in a peer's memory is probably mapped, for those who only give a hint of it:
    /// nothing is checked but that the key was the last one.
    #[inline(always)]
    pub(crate) fn guess(&self, remote: RemoteAddr) -> Option<*mut u8> {
        let Last {
            key, addr, base, ..
        } = self.last;
        let offset = remote.addr.wrapping_sub(addr) as usize;
        (remote.rkey.0 == key).then_some(base.wrapping_add(offset))
    }

    /// The place of a range in a region that is mapped here and has been used before; `None` if it
    /// is none, or anything is not as it should be.
    #[inline(always)]
    pub(crate) fn known(
        &mut self,
        peer: &Arc<Peer>,
        pd: u32,
        remote: RemoteAddr,
        len: usize,
        needed: Access,
    ) -> Option<*mut u8> {
        debug_assert!(!needed.is_empty());
        let (key, len) = (remote.rkey.0, len as u64);
        if key != self.last.key && !self.recall(key) {
            return None;
        }
        let last = &self.last;
        let offset = remote.addr.wrapping_sub(last.addr);
        // Where there is no region, there is no right either.
        let right = last.access.contains(needed)
            // SAFETY: the entry stays mapped while its region is one of those remembered.
            && unsafe { &*last.entry }.key.load(Ordering::Acquire) == key
            && Arc::as_ptr(peer) == last.peer
            && offset <= last.len
            && len <= last.len - offset
            && last.pd == pd;
        // The range was checked against the region's length, which is the mapping's.
        right.then_some(last.base.wrapping_add(offset as usize))
    }

    /// Looks for a region among those remembered.
    #[inline(never)]
    fn recall(&mut self, key: u32) -> bool {
        let region = &self.regions[mr_index(key) % CACHED];
        let Some(region) = region.as_ref().filter(|region| region.key == key) else {
            return false;
        };
        self.last = region.as_last();
        self.last.key == key
    }

    /// Checks a range of a peer's memory. `allowed` is what the peer's queue pair lets us do and
    /// `pd` its protection domain.
    #[inline]
    pub(crate) fn resolve(
        &mut self,
        adapter: &Adapter,
        peer: &Arc<Peer>,
        pd: u32,
        remote: RemoteAddr,
        len: usize,
        needed: Access,
    ) -> Result<Place, WcStatus> {
        if let Some(place) = self.known(peer, pd, remote, len, needed) {
            return Ok(Place::Mapped(place));
        }
        let key = remote.rkey.0;
        let slot = mr_index(key) % CACHED;
        let known = match &self.regions[slot] {
            Some(region) if region.key == key && Arc::ptr_eq(&region.peer, peer) => {
                // SAFETY: the entry stays mapped while the region holds its peer.
                unsafe { &*region.entry }.key.load(Ordering::Acquire) == key
            }
            _ => false,
        };
        self.last = Last::default();
        if !known {
            self.regions[slot] = None;
            self.regions[slot] = Some(Region::find(adapter, peer, key)?);
        }
        let Some(region) = &self.regions[slot] else {
            return Err(WcStatus::RemAccessErr);
        };
        self.last = region.as_last();
        let described = &region.described;
        let fits = described.contains(remote.addr, len as u64)
            && described.pd == pd
            && described.access.contains(needed);
        if !fits {
            return Err(WcStatus::RemAccessErr);
        }
        debug_assert!(region.base.is_none() || region.maps(remote.addr, len));
        Ok(match region.base {
            // The range was checked against the region's length, which is the mapping's.
            Some(base) => Place::Mapped(base.wrapping_add((remote.addr - described.addr) as usize)),
            // The kernel knows the memory by its process's number alone, which is a stranger's some
            // time after the process has ended.
            None if !region.peer.is_connected() => return Err(WcStatus::RetryExcErr),
            None => Place::Private {
                pid: region.peer.pid.as_raw_nonzero().get(),
                addr: remote.addr,
            },
        })
    }
}

impl Region {
    #[cold]
    fn find(adapter: &Adapter, peer: &Arc<Peer>, key: u32) -> Result<Self, WcStatus> {
        let entry = peer.mr_entry(mr_index(key)).ok_or(WcStatus::RemAccessErr)?;
        let described = region::describe(entry, key).ok_or(WcStatus::RemAccessErr)?;
        let remotely = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        if !described.access.intersects(remotely) {
            return Err(WcStatus::RemAccessErr);
        }
        let mapping = if described.kind == KIND_SHARED {
            let mapping = peer.region(adapter, key, &described).map_err(|e| {
                tracing::debug!(error = %e, key, "cannot map a peer's region");
                if peer.is_dead() {
                    WcStatus::RetryExcErr
                } else {
                    WcStatus::RemAccessErr
                }
            })?;
            // The mapping may be an older one. A peer that changes a region under its key is not
            // followed.
            let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
            let fits = mapping.len() as u64 >= described.len
                && (mapping.is_writable() || !described.access.intersects(writes));
            if !fits {
                tracing::debug!(key, "a peer's region is not what it was");
                return Err(WcStatus::RemAccessErr);
            }
            Some(mapping)
        } else {
            None
        };
        Ok(Region {
            key,
            entry,
            described,
            base: mapping.as_ref().map(|mapping| mapping.start().as_ptr()),
            peer: Arc::clone(peer),
            mapping,
        })
    }

    /// How it is looked up next; not at all when it is not mapped.
    fn as_last(&self) -> Last {
        let Some(base) = self.base else {
            return Last::default();
        };
        Last {
            key: self.key,
            pd: self.described.pd,
            access: self.described.access,
            entry: self.entry,
            addr: self.described.addr,
            len: self.described.len,
            base,
            peer: Arc::as_ptr(&self.peer),
        }
    }

    /// Whether a range lies in what is mapped here.
    fn maps(&self, addr: u64, len: usize) -> bool {
        let offset = (addr - self.described.addr) as usize;
        self.mapping
            .as_ref()
            .is_some_and(|mapping| offset <= mapping.len() && len <= mapping.len() - offset)
    }
}

/// Pieces of local memory, already checked.
pub(crate) type Piece = (*mut u8, usize);

impl Place {
    /// Writes local pieces one after the other, the last bytes last.
    ///
    /// # Safety
    /// The pieces are readable, and the place is writable for their length in all.
    #[inline]
    pub(crate) unsafe fn write(
        &self,
        pieces: impl Iterator<Item = Piece> + Clone,
    ) -> Result<(), WcStatus> {
        match *self {
            Place::Mapped(mut to) => {
                for (from, len) in pieces {
                    // SAFETY: the caller's promise.
                    unsafe { mem::place(to, from, len) };
                    to = to.wrapping_add(len);
                }
                Ok(())
            }
            Place::Private { pid, addr } => transfer(pid, addr, pieces, libc::process_vm_writev),
        }
    }

    /// Reads into local pieces one after the other.
    ///
    /// # Safety
    /// The pieces are writable, and the place is readable for their length in all.
    #[inline]
    pub(crate) unsafe fn read(
        &self,
        pieces: impl Iterator<Item = Piece> + Clone,
    ) -> Result<(), WcStatus> {
        match *self {
            Place::Mapped(mut from) => {
                for (to, len) in pieces {
                    // SAFETY: the caller's promise.
                    unsafe { mem::fetch(to, from, len) };
                    from = from.wrapping_add(len);
                }
                Ok(())
            }
            Place::Private { pid, addr } => transfer(pid, addr, pieces, libc::process_vm_readv),
        }
    }

    /// Its eight bytes as an atomic; `None` when they are not aligned or not mapped.
    pub(crate) fn word(&self) -> Option<&AtomicU64> {
        match self {
            Place::Mapped(at) if at.addr() % 8 == 0 => {
                // SAFETY: the place was checked for eight bytes and is aligned.
                Some(unsafe { AtomicU64::from_ptr(at.cast()) })
            }
            _ => None,
        }
    }
}

type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Moves bytes between local pieces and another process's private memory, through the kernel.
fn transfer(
    pid: i32,
    addr: u64,
    pieces: impl Iterator<Item = Piece> + Clone,
    call: Transfer,
) -> Result<(), WcStatus> {
    let mut at = addr;
    for (start, len) in pieces {
        let mut done = 0;
        while done < len {
            let local = libc::iovec {
                iov_base: start.wrapping_add(done).cast(),
                iov_len: len - done,
            };
            let remote = libc::iovec {
                iov_base: at as *mut libc::c_void,
                iov_len: len - done,
            };
            // SAFETY: the local range was checked by the caller; the kernel checks the remote one.
            let moved = unsafe { call(pid, &local, 1, &remote, 1, 0) };
            if moved <= 0 {
                let error = std::io::Error::last_os_error();
                tracing::debug!(%error, pid, "cannot reach a peer's private memory");
                return Err(match error.raw_os_error() {
                    Some(libc::ESRCH) => WcStatus::RetryExcErr,
                    Some(libc::EFAULT) => WcStatus::RemAccessErr,
                    _ => WcStatus::RemOpErr,
                });
            }
            done += moved as usize;
            at += moved as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::peer::peer_of;
    use crate::{SoftNic, SoftOptions};
    use verbs::nic::Nic;
    use verbs::typed::{ConnectOptions, Context, QpOptions, QueuePair, Rc};

    #[test]
    fn an_entry_that_changes_under_its_key_is_mapped_anew_or_refused() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let open = || SoftNic::open(&SoftOptions::new(run_dir.path())).expect("an adapter");
        let (us, them) = (open(), open());
        let (here, there) = (
            Context::new(Arc::<SoftNic>::clone(&us)),
            Context::new(Arc::<SoftNic>::clone(&them)),
        );
        let pair = |context: &Context| {
            let pd = context.alloc_pd().expect("a domain");
            let cq = context.create_cq(4).expect("a queue");
            let qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
            (pd, cq, qp)
        };
        let (ours, (pd, _cq, mut qp)) = (pair(&here), pair(&there));
        // A connection leads from the region's domain to us, so we may have its memory.
        let endpoint = ours.2.endpoint().expect("a GID");
        qp.connect(&endpoint, &ConnectOptions::default())
            .expect("connected");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = pd.allocate(4096, access).expect("memory");
        let (key, addr) = (region.rkey().0, region.remote(0).addr);
        let instance = them.adapter.instance.number();
        let peer = peer_of(&us.adapter, them.adapter.gid, instance).expect("the peer");
        let find = || Region::find(&us.adapter, &peer, key);
        assert!(find().expect("the region").maps(addr, 4096));
        // Its entries are a peer's to write: they may promise what its memory does not hold.
        let entry = them.adapter.mr_entry(mr_index(key));
        entry.len.store(1 << 30, Ordering::Relaxed);
        assert_eq!(find().map(|_| ()), Err(WcStatus::RemAccessErr));
        entry.len.store(4096, Ordering::Relaxed);
        assert!(find().expect("the region").maps(addr, 4096));
    }

    #[test]
    fn private_memory_is_out_of_reach_when_its_process_has_ended() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let mut options = SoftOptions::new(run_dir.path());
        options.remap = false;
        let open = || SoftNic::open(&options).expect("an adapter");
        let (us, them) = (open(), open());
        let adapter = Arc::clone(&them.adapter);
        let pd = them.alloc_pd().expect("a domain");
        let memory: Box<[AtomicU64]> = (0..8).map(AtomicU64::new).collect();
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        // SAFETY: the memory is there until the end, and holds atomics.
        let region = unsafe { them.register(pd, NonNull::from(&*memory).cast(), 64, access) };
        let region = region.expect("a region");
        let instance = adapter.instance.number();
        let peer = peer_of(&us.adapter, adapter.gid, instance).expect("the peer");
        let mut regions = RemoteMemory::default();
        let mut resolve = || {
            let at = verbs::nic::remote_addr(&*region, 0);
            let found = regions.resolve(&us.adapter, &peer, pd.0, at, 64, Access::REMOTE_READ);
            found.map(|place| matches!(place, Place::Private { .. }))
        };
        assert_eq!(resolve(), Ok(true));
        // Its number may be another process's from here on.
        drop(them);
        assert_eq!(resolve(), Err(WcStatus::RetryExcErr));
    }
}
