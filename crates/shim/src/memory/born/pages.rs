//! `mmap` and what changes mappings, in libc's place.

use std::ffi::{CStr, c_int, c_long, c_void};

use super::lock::locked;
use super::table::{Table, may_touch};
use crate::check;

use super::{MAPPED_MIN, PAGES, birth, is_awake, os};

const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
const BORN: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
/// What a mapping that is born shared may ask for besides.
const BESIDES: c_int = libc::MAP_POPULATE;

/// The functions here.
pub(super) const NAMES: [&CStr; 6] = [
    c"mmap",
    c"mmap64",
    c"munmap",
    c"mprotect",
    c"madvise",
    c"mremap",
];

/// Fails as the kernel does.
fn refuse(code: c_int) -> c_long {
    os::set_errno(code);
    -1
}

unsafe fn map(
    addr: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    let start = addr.addr();
    if flags & !BESIDES == BORN && protection == READ_WRITE && len > MAPPED_MIN && is_awake(PAGES) {
        let errno = os::errno();
        if let Some(born) = birth(start, len, os::PAGE, flags & BESIDES, false) {
            return std::ptr::with_exposed_provenance_mut(born);
        }
        os::set_errno(errno);
    }
    if flags & libc::MAP_FIXED != 0 {
        check::loses("mmap", start, len);
    }
    // SAFETY: the caller's promise.
    let plainly = || unsafe { os::mmap(start, len, protection, flags, fd, offset) };
    let mapped = match flags & libc::MAP_FIXED != 0 && may_touch(start, len) {
        true => locked(|table| over(table, start, len, plainly)),
        false => plainly(),
    };
    std::ptr::with_exposed_provenance_mut(mapped as usize)
}

/// Does what takes memory of ours away, if it is allowed to.
fn over(table: &mut Table, start: usize, len: usize, take_away: impl FnOnce() -> c_long) -> c_long {
    let Some(len) = os::whole_pages(len).filter(|len| table.touches(start, *len)) else {
        return take_away();
    };
    if start.is_multiple_of(os::PAGE) && table.carve(start, len).is_err() {
        // As of a process that has too many mappings.
        return refuse(libc::ENOMEM);
    }
    let done = take_away();
    if done != -1 {
        table.forget(start, len);
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { map(addr, len, protection, flags, fd, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off64_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { map(addr, len, protection, flags, fd, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    let start = addr.addr();
    check::loses("munmap", start, len);
    // SAFETY: the caller's promise.
    let plainly = || unsafe { os::munmap(start, len) };
    let done = match may_touch(start, len) {
        true => locked(|table| over(table, start, len, plainly)),
        false => plainly(),
    };
    done as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(addr: *mut c_void, len: usize, protection: c_int) -> c_int {
    let start = addr.addr();
    // SAFETY: the caller's promise.
    let plainly = || unsafe { os::mprotect(start, len, protection) };
    if !may_touch(start, len) {
        return plainly() as c_int;
    }
    let done = locked(|table| {
        let Some(len) = os::whole_pages(len).filter(|len| table.touches(start, *len)) else {
            return plainly();
        };
        if start.is_multiple_of(os::PAGE) && table.carve(start, len).is_err() {
            return refuse(libc::ENOMEM);
        }
        let done = plainly();
        if done != -1 {
            let inside = table.inside_mut(start, len);
            inside.for_each(|piece| piece.protection = protection);
        }
        done
    });
    done as c_int
}

/// Discards what a range holds, as of private memory: it reads as zeros.
///
/// # Safety
/// As for `madvise`.
unsafe fn discard(table: &mut Table, start: usize, len: usize, advice: c_int) -> c_long {
    let Some(len) = os::whole_pages(len).filter(|len| table.touches(start, *len)) else {
        // SAFETY: the caller's promise.
        return unsafe { os::madvise(start, len, advice) };
    };
    // Files know no pages that may be taken later; now is as good.
    let advice = match advice {
        libc::MADV_FREE => libc::MADV_DONTNEED,
        other => other,
    };
    // SAFETY: the caller's promise.
    let advised = unsafe { os::madvise(start, len, advice) };
    // Where parts are mapped by nobody, the rest is discarded all the same.
    if advised == -1 && os::errno() != libc::ENOMEM {
        return advised;
    }
    let errno = os::errno();
    for piece in table.pieces() {
        let (from, to) = (piece.start.max(start), piece.end().min(start + len));
        if from >= to {
            continue;
        }
        let fd = table.files[piece.file].checked_fd();
        let offset = piece.offset + (from - piece.start);
        let is_punched = fd.is_some_and(|fd| os::punch(fd, offset, to - from));
        // SAFETY: the caller's promise.
        if !is_punched && unsafe { os::madvise(from, to - from, libc::MADV_REMOVE) } == -1 {
            return refuse(libc::EINVAL);
        }
    }
    os::set_errno(errno);
    advised
}

#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    const DONTNEED_LOCKED: c_int = 24;
    let start = addr.addr();
    let discards = matches!(
        advice,
        libc::MADV_DONTNEED | libc::MADV_FREE | DONTNEED_LOCKED
    );
    let advised = match discards && may_touch(start, len) {
        // SAFETY: the caller's promise.
        true => locked(|table| unsafe { discard(table, start, len, advice) }),
        // SAFETY: the caller's promise.
        false => unsafe { os::madvise(start, len, advice) },
    };
    advised as c_int
}

/// What `mremap` is asked for.
#[derive(Clone, Copy)]
struct Remap {
    start: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    to: usize,
}

impl Remap {
    fn is_fixed(&self) -> bool {
        self.flags & libc::MREMAP_FIXED != 0
    }

    /// # Safety
    /// As for `mremap`.
    unsafe fn plainly(&self) -> c_long {
        // SAFETY: the caller's promise.
        unsafe { os::mremap(self.start, self.old_len, self.new_len, self.flags, self.to) }
    }

    fn touches(&self, table: &Table) -> bool {
        table.touches(self.start, self.old_len.max(1))
            || self.is_fixed() && table.touches(self.to, self.new_len)
    }

    /// Moves, cuts or lengthens memory of ours.
    ///
    /// # Safety
    /// As for `mremap`.
    unsafe fn carry_out(mut self, table: &mut Table) -> c_long {
        if !self.touches(table) {
            // SAFETY: the caller's promise.
            return unsafe { self.plainly() };
        }
        let (old, new) = (os::whole_pages(self.old_len), os::whole_pages(self.new_len));
        let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (Some(old_len), Some(new_len), 0) = (old, new, self.flags & !known) else {
            return refuse(libc::EINVAL);
        };
        if !(self.start | if self.is_fixed() { self.to } else { 0 }).is_multiple_of(os::PAGE) {
            return refuse(libc::EINVAL);
        }
        (self.old_len, self.new_len) = (old_len, new_len);
        let carved = table.carve(self.start, old_len).and_then(|()| {
            table.carve(self.start, new_len)?;
            match self.is_fixed() {
                true => table.carve(self.to, new_len),
                false => Ok(()),
            }
        });
        if carved.is_err() || !table.has_room() {
            return refuse(libc::ENOMEM);
        }
        let Some((file, offset)) = table.place(self.start, old_len) else {
            if table.touches(self.start, old_len) {
                return refuse(libc::EFAULT);
            }
            // Something else is put over memory of ours.
            // SAFETY: the caller's promise.
            let moved = unsafe { self.plainly() };
            if moved != -1 {
                table.forget(self.to, new_len);
            }
            return moved;
        };
        let grows = new_len > old_len;
        if grows && !table.lengthen(file, offset + old_len, new_len - old_len) {
            // SAFETY: the caller's promise.
            return unsafe { self.copy(table) };
        }
        // SAFETY: the caller's promise.
        let moved = unsafe { self.plainly() };
        if moved == -1 {
            return moved;
        }
        let to = moved as usize;
        if self.is_fixed() {
            table.forget(self.to, new_len);
        }
        if !grows {
            table.forget(self.start + new_len, old_len - new_len);
        }
        table.shift(self.start, old_len.min(new_len), to);
        if grows {
            table.add_behind(to + old_len, new_len - old_len);
        }
        moved
    }

    /// Moves memory whose file cannot be lengthened, because it holds something else there: to private
    /// memory.
    ///
    /// # Safety
    /// As for `mremap`.
    unsafe fn copy(self, table: &mut Table) -> c_long {
        if self.flags & libc::MREMAP_MAYMOVE == 0 {
            return refuse(libc::ENOMEM);
        }
        let (to, flags) = match self.is_fixed() {
            true => (self.to, BORN | libc::MAP_FIXED),
            false => (0, BORN),
        };
        // SAFETY: the place is the kernel's choice, or the caller's.
        let moved = unsafe { os::mmap(to, self.new_len, READ_WRITE, flags, -1, 0) };
        if moved == -1 {
            return moved;
        }
        let to = moved as usize;
        if self.is_fixed() {
            table.forget(self.to, self.new_len);
        }
        let mut protection = READ_WRITE;
        for piece in table.inside_mut(self.start, self.old_len) {
            protection = piece.protection;
            if protection & libc::PROT_READ != 0 {
                let into = to + (piece.start - self.start);
                let into = std::ptr::with_exposed_provenance_mut::<u8>(into);
                let from = std::ptr::with_exposed_provenance::<u8>(piece.start);
                // SAFETY: readable memory of the caller's, and the new mapping, which is longer.
                unsafe { std::ptr::copy_nonoverlapping(from, into, piece.len) };
            }
        }
        // SAFETY: the caller's promise, and the new mapping.
        unsafe {
            if protection != READ_WRITE {
                os::mprotect(to, self.new_len, protection);
            }
            os::munmap(self.start, self.old_len);
        }
        table.forget(self.start, self.old_len);
        moved
    }
}

/// The last argument is there only if the flags say so; where it is not, nobody looks at it.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    addr: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let remap = Remap {
        start: addr.addr(),
        old_len,
        new_len,
        flags,
        to: to.addr(),
    };
    let may =
        may_touch(remap.start, old_len.max(1)) || remap.is_fixed() && may_touch(remap.to, new_len);
    let moved = match may {
        // SAFETY: the caller's promise.
        true => locked(|table| unsafe { remap.carry_out(table) }),
        // SAFETY: the caller's promise.
        false => unsafe { remap.plainly() },
    };
    if moved != -1 {
        let (errno, kept) = (os::errno(), moved as usize);
        let cut = os::whole_pages(new_len).map_or(0, |new_len| old_len.saturating_sub(new_len));
        match kept == remap.start {
            true if cut == 0 => {}
            true => check::loses("mremap", remap.start + (old_len - cut), cut),
            false if flags & libc::MREMAP_DONTUNMAP != 0 => {}
            false => check::loses("mremap", remap.start, old_len),
        }
        os::set_errno(errno);
    }
    std::ptr::with_exposed_provenance_mut(moved as usize)
}
