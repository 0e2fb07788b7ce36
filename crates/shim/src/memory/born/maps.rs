//! What the kernel says of the process's memory, for what happened behind this library's back.
//!
//! A library may put its own code in front of ours and call the kernel itself, as UCX does with `mmap` and `munmap`; and some
//! runtimes never call libc. What was born shared and unmapped so is still in the index, and other memory may lie there by now.

use super::os::Id;

/// Whether memory is that of a file, from an offset on, by what `/proc/self/maps` says. Not if that cannot be read.
///
/// Costs a read of all mappings, some tens of microseconds.
pub(super) fn lies_in(start: usize, len: usize, file: Id, offset: usize) -> bool {
    let Ok(text) = std::fs::read("/proc/self/maps") else {
        return false;
    };
    // A file's name may be any bytes.
    let text = String::from_utf8_lossy(&text);
    let (mut reached, end) = (start, start.saturating_add(len));
    for line in text.lines() {
        let Some(mapping) = Mapping::parse(line) else {
            return false;
        };
        if mapping.end <= reached {
            continue;
        }
        let is_it = mapping.start <= reached
            && mapping.file == file
            && mapping.offset + (reached - mapping.start) == offset + (reached - start);
        if !is_it {
            return false;
        }
        reached = mapping.end;
        if reached >= end {
            return true;
        }
    }
    false
}

struct Mapping {
    start: usize,
    end: usize,
    offset: usize,
    file: Id,
}

impl Mapping {
    /// `start-end rights offset major:minor inode name`, all but the inode in hexadecimal.
    fn parse(line: &str) -> Option<Mapping> {
        let number = |word: &str| usize::from_str_radix(word, 16).ok();
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        let (major, minor) = words.next()?.split_once(':')?;
        let device = [major, minor].map(|half| u32::from_str_radix(half, 16).ok());
        Some(Mapping {
            start: number(start)?,
            end: number(end)?,
            offset: number(offset)?,
            file: (
                libc::makedev(device[0]?, device[1]?),
                words.next()?.parse().ok()?,
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::ffi::OsStrExt as _;

    use super::super::os;
    use super::*;

    #[test]
    fn memory_that_took_the_place_of_a_files_is_noticed() {
        let len = 8 * os::PAGE;
        let (fd, id) = os::file(len).expect("a file");
        let start = os::map_file(0, len, os::PAGE, 0, fd).expect("mapped");
        assert!(lies_in(start, len, id, 0));
        // A file whose name is no text lies there too.
        let dir = tempfile::tempdir().expect("a directory");
        let odd = dir.path().join(OsStr::from_bytes(b"\xff"));
        std::fs::write(&odd, [1; os::PAGE]).expect("a file");
        let odd = std::fs::File::options().read(true).write(true).open(odd);
        let odd = odd.expect("a file");
        let beside = os::map_file(0, os::PAGE, os::PAGE, 0, odd.as_raw_fd());
        assert!(lies_in(start, len, id, 0));
        // SAFETY: memory of this test.
        unsafe { os::munmap(beside.expect("mapped"), os::PAGE) };
        let second = start + os::PAGE;
        assert!(lies_in(second, os::PAGE, id, os::PAGE));
        assert!(!lies_in(second, os::PAGE, id, 0), "another part of it");
        assert!(!lies_in(start, len + 1, id, 0), "more than there is");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: in place of memory of this test.
        let placed = unsafe { os::mmap(second, os::PAGE, rights, flags, -1, 0) };
        assert_eq!(placed, second as i64);
        assert!(!lies_in(start, len, id, 0));
        assert!(!lies_in(second, os::PAGE, id, os::PAGE));
        assert!(lies_in(start, os::PAGE, id, 0), "what is before it");
        // SAFETY: memory of this test.
        unsafe { os::munmap(start, len) };
        os::close(fd);
    }
}
