//! A peer's memory: finding the place a remote address names, and copying to and from it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use verbs::{Access, RemoteAddr, Rkey, mem};

use crate::contact::adapter::Adapter;
use crate::contact::peer::Peer;
use crate::contact::question::Question;
use crate::memory::local::Piece;
use crate::shared::cause::Cause;
use crate::shared::layout::{KIND_SHARED, MrEntry, mr_index};
use crate::shared::mr_entry::{self, Described, Window as Bound};
use crate::shared::segment::Mapping;

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
    /// What a request waits for.
    asking: Option<(Arc<Peer>, Arc<Question>)>,
    /// Keys of windows that requests over this queue pair have taken away, of which the peer may not know yet, each with how
    /// often the window had been bound.
    revoked: Vec<(u32, u32)>,
}

/// Why there is no place for a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unresolved {
    /// The request fails.
    Failed(Cause),
    /// The peer was asked for the region's memory.
    Asked,
}

impl From<Cause> for Unresolved {
    fn from(cause: Cause) -> Self {
        Unresolved::Failed(cause)
    }
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

/// A mapped region whose key and rights were checked just now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// [`Window::NONE`]'s is no key.
    key: u64,
    addr: u64,
    len: u64,
    base: *mut u8,
}

impl Window {
    /// That of no region.
    pub(crate) const NONE: Window = Window {
        key: u64::MAX,
        addr: 0,
        len: 0,
        base: std::ptr::null_mut(),
    };

    #[inline(always)]
    pub(crate) fn is_of(&self, rkey: Rkey) -> bool {
        self.key == u64::from(rkey.0)
    }

    /// Where a range of the region is; `None` for one that it does not hold.
    #[inline(always)]
    pub(crate) fn place(&self, addr: u64, len: usize) -> Option<*mut u8> {
        let offset = addr.wrapping_sub(self.addr);
        let fits = offset <= self.len && len as u64 <= self.len - offset;
        // The region's length is its mapping's.
        fits.then_some(self.base.wrapping_add(offset as usize))
    }
}

/// A place in a peer's memory, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Mapped here.
    Mapped(*mut u8),
    /// Reached through the kernel, or by the peer's process alone.
    Private {
        /// The peer's process; `None` where the kernel is known not to copy.
        pid: Option<i32>,
        /// The address there.
        addr: u64,
    },
}

/// Why bytes were not moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unmoved {
    Failed(Cause),
    /// The kernel does not copy to and from the peer's memory for this process.
    Refused,
}

impl RemoteMemory {
    /// Takes out the regions of peers that have gone.
    pub(crate) fn take_departed(&mut self) -> Vec<Region> {
        self.last = Last::default();
        self.asking.take_if(|(peer, _)| peer.is_dead());
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
        let window = self.window(peer, pd, remote.rkey, needed)?;
        window.place(remote.addr, len)
    }

    /// A region that is mapped here and has been used before, for requests of one batch; `None` if it
    /// is none, or anything is not as it should be.
    #[inline(always)]
    pub(crate) fn window(
        &mut self,
        peer: &Arc<Peer>,
        pd: u32,
        rkey: Rkey,
        needed: Access,
    ) -> Option<Window> {
        debug_assert!(!needed.is_empty());
        let key = rkey.0;
        if key != self.last.key && !self.recall(key) {
            return None;
        }
        let last = &self.last;
        // Where there is no region, there is no right either.
        let right = last.access.contains(needed)
            // SAFETY: the entry stays mapped while its region is one of those remembered.
            && unsafe { &*last.entry }.key.load(Ordering::Acquire) == key
            && Arc::as_ptr(peer) == last.peer
            && last.pd == pd;
        right.then_some(Window {
            key: u64::from(key),
            addr: last.addr,
            len: last.len,
            base: last.base,
        })
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

    /// Checks a range of a peer's memory. `pd` is the protection domain of the peer's queue pair, `qpn`. Waits
    /// for nobody: for a region that is used for the first time the peer is asked, and the answer is
    /// there when this is called again later.
    #[inline]
    pub(crate) fn resolve(
        &mut self,
        adapter: &Adapter,
        peer: &Arc<Peer>,
        (pd, qpn): (u32, u32),
        remote: RemoteAddr,
        len: usize,
        needed: Access,
    ) -> Result<Place, Unresolved> {
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
            self.regions[slot] = Some(self.find(adapter, peer, qpn, key)?);
        }
        let Some(region) = &self.regions[slot] else {
            return Err(Cause::RemoteKey.into());
        };
        self.last = region.as_last();
        let described = &region.described;
        if described.pd != pd {
            return Err(Cause::RemoteDomain.into());
        }
        if !described.access.contains(needed) {
            return Err(Cause::RemoteRight.into());
        }
        let Some(offset) = described.offset(remote.addr, len as u64) else {
            return Err(Cause::RemoteRange.into());
        };
        debug_assert!(region.base.is_none() || region.maps(offset, len));
        Ok(match region.base {
            // The range was checked against the region's length, which is the mapping's.
            Some(base) => Place::Mapped(base.wrapping_add(offset as usize)),
            // The kernel knows the memory by its process's number alone, which is a stranger's some
            // time after the process has ended.
            None if !region.peer.is_connected() => return Err(Cause::PeerGone.into()),
            None => Place::Private {
                pid: (!region.peer.is_out_of_reach())
                    .then(|| region.peer.pid.as_raw_nonzero().get()),
                addr: described.start.wrapping_add(offset),
            },
        })
    }

    /// Checks that a window is reached over the peer's queue pair, and was not taken away.
    fn check_window(
        &mut self,
        peer: &Peer,
        qpn: u32,
        (key, given): (u32, u32),
        window: Bound,
    ) -> Result<(), Cause> {
        self.revoked.retain(|(old, _)| {
            let entry = peer.mr_entry(mr_index(*old));
            entry.is_some_and(|entry| entry.key.load(Ordering::Acquire) == *old)
        });
        let is_its = window.qpn == 0 || window.qpn == qpn;
        match is_its && !self.revoked.contains(&(key, given)) {
            true => Ok(()),
            false => Err(Cause::RemoteKey),
        }
    }

    /// Looks at every region anew: the peer has said that something of its queue pair has changed, and its keys may name other
    /// regions now.
    #[cold]
    pub(crate) fn look_anew(&mut self) {
        self.last = Last::default();
        self.regions = Default::default();
    }

    /// Whether a request over the peer's queue pair may take the key of one of its windows away, and how
    /// often that was bound.
    #[cold]
    pub(crate) fn check_revocable(
        &mut self,
        peer: &Peer,
        qpn: u32,
        rkey: Rkey,
    ) -> Result<u32, Cause> {
        let key = rkey.0;
        let entry = peer.mr_entry(mr_index(key)).ok_or(Cause::RemoteKey)?;
        let described = mr_entry::describe(entry, key).ok_or(Cause::RemoteKey)?;
        let window = described.window.ok_or(Cause::RemoteKey)?;
        if window.qpn == 0 {
            return Err(Cause::RemoteKey);
        }
        self.check_window(peer, qpn, (key, described.given), window)?;
        Ok(described.given)
    }

    /// Takes the key of a window away for this queue pair, which alone had it: from here on, whether or not the
    /// peer has received that yet.
    #[cold]
    pub(crate) fn revoke(&mut self, rkey: Rkey, given: u32) {
        let key = rkey.0;
        self.last = Last::default();
        self.regions[mr_index(key) % CACHED].take_if(|region| region.key == key);
        self.revoked.push((key, given));
    }

    /// `qpn` is the peer's queue pair.
    #[cold]
    fn find(
        &mut self,
        adapter: &Adapter,
        peer: &Arc<Peer>,
        qpn: u32,
        key: u32,
    ) -> Result<Region, Unresolved> {
        let entry = peer.mr_entry(mr_index(key)).ok_or(Cause::RemoteKey)?;
        let described = mr_entry::describe(entry, key).ok_or(Cause::RemoteKey)?;
        if let Some(window) = described.window {
            self.check_window(peer, qpn, (key, described.given), window)?;
        }
        let remotely = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        if !described.access.intersects(remotely) {
            return Err(Cause::RemoteRight.into());
        }
        let mapping = if described.kind == KIND_SHARED {
            let mapping = self.mapping(adapter, peer, key, &described)?;
            // The mapping may be an older one. A peer that changes a region under its key is not
            // followed.
            let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
            let fits = mapping.len() as u64 >= described.len
                && (mapping.is_writable() || !described.access.intersects(writes));
            if !fits {
                tracing::debug!(key, "a peer's region is not what it was");
                return Err(Cause::RemoteMemory.into());
            }
            Some(mapping)
        } else if described.start.checked_add(described.len).is_some() {
            None
        } else {
            tracing::debug!(key, "a peer's region goes beyond all addresses");
            return Err(Cause::RemoteMemory.into());
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

    /// The memory of a peer's shared region, for which the peer is asked the first time.
    fn mapping(
        &mut self,
        adapter: &Adapter,
        peer: &Arc<Peer>,
        key: u32,
        described: &Described,
    ) -> Result<Arc<Mapping>, Unresolved> {
        let asked = self.asking.as_ref();
        let asked = asked.filter(|(one, question)| Arc::ptr_eq(one, peer) && question.key() == key);
        // What waits goes on waiting when the peer describes its region anew.
        let since = asked.map_or_else(Instant::now, |(_, question)| question.since());
        let asked = asked.filter(|(_, question)| question.is_for(key, described));
        let asked = asked.map(|(_, question)| Arc::clone(question));
        // Looked at first: the mapping is there before the answer is.
        let is_answered = asked.as_deref().is_some_and(Question::is_answered);
        let mapping = peer.mapped(key, described);
        if mapping.is_some() || is_answered {
            if asked.is_some() {
                // Whoever was refused, and asks again later, may have been let in meanwhile.
                self.asking = None;
            }
            return mapping.ok_or(Cause::RemoteMemory.into());
        }
        let question = asked.unwrap_or_else(|| Question::new(key, described, since));
        peer.ask(adapter, &question);
        let is_overdue = question.is_overdue(adapter);
        self.asking = Some((Arc::clone(peer), question));
        match is_overdue {
            true => Err(Cause::NoAnswer.into()),
            false => Err(Unresolved::Asked),
        }
    }
}

impl Region {
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
    fn maps(&self, offset: u64, len: usize) -> bool {
        let offset = offset as usize;
        self.mapping
            .as_ref()
            .is_some_and(|mapping| offset <= mapping.len() && len <= mapping.len() - offset)
    }
}

impl Place {
    /// Writes local pieces one after the other, the last bytes last.
    ///
    /// # Safety
    /// The pieces are readable, and the place is writable for their length in all.
    #[inline]
    pub(crate) unsafe fn write(
        &self,
        pieces: impl Iterator<Item = Piece> + Clone,
    ) -> Result<(), Unmoved> {
        match *self {
            Place::Mapped(mut to) => {
                for (from, len) in pieces {
                    // SAFETY: the caller's promise.
                    unsafe { mem::place(to, from, len) };
                    to = to.wrapping_add(len);
                }
                Ok(())
            }
            Place::Private { pid, addr } => {
                let pid = pid.ok_or(Unmoved::Refused)?;
                write_private(pid, addr, pieces, libc::process_vm_writev)
            }
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
    ) -> Result<(), Unmoved> {
        match *self {
            Place::Mapped(mut from) => {
                for (to, len) in pieces {
                    // SAFETY: the caller's promise.
                    unsafe { mem::fetch(to, from, len) };
                    from = from.wrapping_add(len);
                }
                Ok(())
            }
            Place::Private { pid, addr } => {
                let pid = pid.ok_or(Unmoved::Refused)?;
                transfer(pid, addr, pieces, libc::process_vm_readv)
            }
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

/// Writes local pieces to another process's private memory, the last word by a call of its own: what
/// one call copies may appear in any order.
fn write_private(
    pid: i32,
    addr: u64,
    pieces: impl Iterator<Item = Piece> + Clone,
    call: Transfer,
) -> Result<(), Unmoved> {
    let len: usize = pieces.clone().map(|(_, len)| len).sum();
    let head = len - mem::last_word_len(addr as usize + len, len);
    transfer(pid, addr, part(pieces.clone(), 0..head), call)?;
    transfer(pid, addr + head as u64, part(pieces, head..len), call)
}

/// Some of the bytes in pieces.
pub(crate) fn part(
    pieces: impl Iterator<Item = Piece> + Clone,
    bytes: Range<usize>,
) -> impl Iterator<Item = Piece> + Clone {
    let (mut skip, mut left) = (bytes.start, bytes.len());
    pieces.filter_map(move |(start, len)| {
        let skipped = skip.min(len);
        let now = (len - skipped).min(left);
        skip -= skipped;
        left -= now;
        (now > 0).then(|| (start.wrapping_add(skipped), now))
    })
}

/// Moves bytes between local pieces and another process's private memory, through the kernel.
fn transfer(
    pid: i32,
    addr: u64,
    pieces: impl Iterator<Item = Piece> + Clone,
    call: Transfer,
) -> Result<(), Unmoved> {
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
                    // Yama, a filter of system calls, or a kernel built without.
                    Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => Unmoved::Refused,
                    Some(libc::ESRCH) => Unmoved::Failed(Cause::PeerGone),
                    Some(libc::EFAULT) => Unmoved::Failed(Cause::RemotePages),
                    _ => Unmoved::Failed(Cause::Kernel),
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
    use std::cell::RefCell;
    use std::ptr::NonNull;

    use super::*;
    use crate::SoftNic;
    use crate::testing::{Host, Side, peer};
    use verbs::Iova;
    use verbs::nic::Nic;

    thread_local! {
        /// Where a call wrote, and what.
        static WRITTEN: RefCell<Vec<(u64, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
    }

    /// A process_vm_writev that takes one piece, and half of those that are longer than 100 bytes.
    unsafe extern "C" fn note(
        _pid: libc::pid_t,
        local: *const libc::iovec,
        local_count: libc::c_ulong,
        remote: *const libc::iovec,
        remote_count: libc::c_ulong,
        _flags: libc::c_ulong,
    ) -> isize {
        assert_eq!((local_count, remote_count), (1, 1));
        // SAFETY: there is one of each, and the local one lies in a buffer of the test.
        let (bytes, at) = unsafe {
            let (local, remote) = (&*local, &*remote);
            assert_eq!(local.iov_len, remote.iov_len);
            let len = match local.iov_len {
                len @ ..=100 => len,
                len => len / 2,
            };
            let bytes = std::slice::from_raw_parts(local.iov_base.cast::<u8>(), len);
            (bytes.to_vec(), remote.iov_base.addr() as u64)
        };
        let len = bytes.len() as isize;
        WRITTEN.with_borrow_mut(|written| written.push((at, bytes)));
        len
    }

    #[test]
    fn the_last_word_is_written_by_the_last_call_alone() {
        let bytes: Vec<u8> = (0..400).map(|at| at as u8).collect();
        let lens = [1, 2, 3, 7, 8, 9, 15, 16, 17, 100, 333];
        for (addr, len) in (4096..4112).flat_map(|addr| lens.map(|len| (addr, len))) {
            // In up to three pieces.
            for (first, second) in [(len, 0), (len / 2, 1), (1, len - 1), (len - 1, 1)] {
                let first = first.min(len);
                let second = second.min(len - first);
                let ends = [0, first, first + second, len];
                let pieces = ends.windows(2).map(|ends| {
                    let from = bytes[ends[0]..].as_ptr().cast_mut();
                    (from, ends[1] - ends[0])
                });
                WRITTEN.with_borrow_mut(Vec::clear);
                assert_eq!(write_private(1, addr, pieces, note), Ok(()));
                let written = WRITTEN.with_borrow(Clone::clone);
                let mut at = addr;
                for (to, part) in &written {
                    assert_eq!(*to, at, "in order");
                    let from = (at - addr) as usize;
                    assert_eq!(part[..], bytes[from..from + part.len()]);
                    at += part.len() as u64;
                }
                let end = addr + len as u64;
                assert_eq!(at, end, "all of it");
                let word = (1..=3).rev().map(|bits| 1 << bits);
                let mut fitting =
                    word.filter(|word| *word <= len && end.is_multiple_of(*word as u64));
                let word = fitting.next().unwrap_or(1);
                let (_, last) = written.last().expect("there is some");
                // Pieces that split the word are their sender's own.
                let whole = second == 0 || word <= len - first - second;
                assert!(last.len() <= word, "{last:?} of {len} at {addr}");
                assert!(!whole || last.len() == word, "{last:?} of {len} at {addr}");
            }
        }
    }

    #[test]
    fn an_entry_that_changes_under_its_key_is_mapped_anew_or_refused() {
        let host = Host::new();
        let (us, them) = (host.open(), host.open());
        let (ours, mut theirs) = (Side::on(&us), Side::on(&them));
        // A connection leads from the region's domain to us, so we may have its memory.
        theirs.connect(&ours.qp.endpoint().expect("a GID"));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = theirs.pd.allocate(4096, access).expect("memory");
        let key = region.rkey().0;
        let peer = peer(&us, &them);
        let mut regions = RemoteMemory::default();
        let mut find = || {
            loop {
                match regions.find(us.adapter(), &peer, 0, key) {
                    Err(Unresolved::Asked) => std::thread::yield_now(),
                    found => return found,
                }
            }
        };
        assert!(find().expect("the region").maps(0, 4096));
        // Its entries are a peer's to write: they may promise what its memory does not hold.
        let entry = them.adapter().mr_entry(mr_index(key));
        entry.len.store(1 << 30, Ordering::Relaxed);
        assert_eq!(find().map(|_| ()), Err(Cause::RemoteMemory.into()));
        entry.len.store(4096, Ordering::Relaxed);
        assert!(find().expect("the region").maps(0, 4096));
    }

    #[test]
    fn private_memory_is_out_of_reach_when_its_process_has_ended() {
        let host = Host::new();
        let mut options = host.options();
        options.remap = false;
        let open = || SoftNic::open(&options).expect("an adapter");
        let (us, them) = (open(), open());
        let pd = them.alloc_pd().expect("a domain");
        let memory: Box<[AtomicU64]> = (0..8).map(AtomicU64::new).collect();
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let start = NonNull::from(&*memory).cast();
        // SAFETY: the memory is there until the end, and holds atomics.
        let region = unsafe { them.register(pd, start, 64, Iova::of(start), access) };
        let region = region.expect("a region");
        let peer = peer(&us, &them);
        let mut regions = RemoteMemory::default();
        let mut resolve = || {
            let at = verbs::nic::remote_addr(&*region, 0);
            let found =
                regions.resolve(us.adapter(), &peer, (pd.0, 0), at, 64, Access::REMOTE_READ);
            found.map(|place| matches!(place, Place::Private { .. }))
        };
        assert_eq!(resolve(), Ok(true));
        // Its number may be another process's from here on.
        drop(them);
        assert_eq!(resolve(), Err(Cause::PeerGone.into()));
    }
}
