//! Which memory lies where in which file.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::os::{self, Id};

/// Files at most: each costs the program a descriptor.
pub(super) const FILES: usize = 256;
/// Pieces at most. Memory comes in one piece, and falls apart as the program unmaps or protects parts.
const PIECES: usize = 4096;
/// No more memory is born when there are so many.
const PIECES_FULL: usize = PIECES / 2;

/// Memory that lies in a file in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) file: usize,
    pub(super) offset: usize,
    /// As `mprotect` was last told.
    pub(super) protection: i32,
}

impl Piece {
    pub(super) fn end(&self) -> usize {
        self.start + self.len
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) fd: RawFd,
    pub(super) id: Id,
    pub(super) len: usize,
    /// What the allocator gave out, if it did, and how long it is: until it is freed.
    pub(super) heap: (usize, usize),
    pub(super) is_used: bool,
}

impl File {
    const NONE: File = File {
        fd: -1,
        id: (0, 0),
        len: 0,
        heap: (0, 0),
        is_used: false,
    };

    /// Its descriptor, if that is still this file's: a program may have closed it, and have another file
    /// under its number.
    pub(super) fn checked_fd(&self) -> Option<RawFd> {
        (self.fd >= 0 && os::id(self.fd) == Some(self.id)).then_some(self.fd)
    }
}

#[derive(Debug)]
pub(super) struct Table {
    pieces: [Piece; PIECES],
    count: usize,
    pub(super) files: [File; FILES],
}

/// There is no room to remember parts of pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoRoom;

/// Between these lies all memory that was ever born shared.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Whether a range may touch memory of ours: costs two loads.
#[inline]
pub(super) fn may_touch(start: usize, len: usize) -> bool {
    start < HIGHEST.load(Ordering::Relaxed)
        && start.saturating_add(len) > LOWEST.load(Ordering::Relaxed)
}

fn note_bounds(start: usize, end: usize) {
    LOWEST.fetch_min(start, Ordering::Relaxed);
    HIGHEST.fetch_max(end, Ordering::Relaxed);
}

impl Table {
    pub(super) const fn new() -> Self {
        const NONE: Piece = Piece {
            start: 0,
            len: 0,
            file: 0,
            offset: 0,
            protection: 0,
        };
        Table {
            pieces: [NONE; PIECES],
            count: 0,
            files: [File::NONE; FILES],
        }
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces[..self.count]
    }

    /// A number for another file, if there may be one.
    pub(super) fn free_file(&self) -> Option<usize> {
        if self.count >= PIECES_FULL {
            return None;
        }
        self.files.iter().position(|file| !file.is_used)
    }

    /// Adds a piece, for which there is room.
    pub(super) fn add(&mut self, piece: Piece) {
        self.pieces[self.count] = piece;
        self.count += 1;
        note_bounds(piece.start, piece.end());
    }

    /// Whether some of a range is in a file.
    pub(super) fn touches(&self, start: usize, len: usize) -> bool {
        let end = start.saturating_add(len);
        let touched = |piece: &Piece| piece.start < end && start < piece.end();
        self.pieces().iter().any(touched)
    }

    /// The piece that an address is in.
    fn at(&self, addr: usize) -> Option<&Piece> {
        let holds = |piece: &&Piece| piece.start <= addr && addr < piece.end();
        self.pieces().iter().find(holds)
    }

    /// The file that all of a range lies in, one behind the other, and where it does.
    pub(super) fn place(&self, start: usize, len: usize) -> Option<(usize, usize)> {
        let end = start.checked_add(len)?;
        let first = self.at(start)?;
        let (file, offset) = (first.file, first.offset + (start - first.start));
        let mut reached = first.end();
        while reached < end {
            let next = self.at(reached)?;
            let follows = next.offset == offset + (reached - start);
            if next.file != file || next.start != reached || !follows {
                return None;
            }
            reached = next.end();
        }
        Some((file, offset))
    }

    /// Splits pieces, so that each lies inside a range or outside of it.
    pub(super) fn carve(&mut self, start: usize, len: usize) -> Result<(), NoRoom> {
        if self.count + 2 > PIECES {
            return Err(NoRoom);
        }
        for at in [start, start.saturating_add(len)] {
            let within = |piece: &Piece| piece.start < at && at < piece.end();
            let Some(index) = self.pieces().iter().position(within) else {
                continue;
            };
            let mut rest = self.pieces[index];
            let kept = at - rest.start;
            self.pieces[index].len = kept;
            rest.start += kept;
            rest.offset += kept;
            rest.len -= kept;
            self.add(rest);
        }
        Ok(())
    }

    /// The pieces inside a range, to be changed.
    pub(super) fn inside_mut(
        &mut self,
        start: usize,
        len: usize,
    ) -> impl Iterator<Item = &mut Piece> {
        let end = start.saturating_add(len);
        self.pieces[..self.count]
            .iter_mut()
            .filter(move |piece| start <= piece.start && piece.end() <= end)
    }

    /// Forgets what a carved range held: it is mapped no more. The memory behind it goes, and files of which
    /// nothing is left.
    pub(super) fn forget(&mut self, start: usize, len: usize) {
        let end = start.saturating_add(len);
        let mut index = 0;
        while index < self.count {
            let piece = self.pieces[index];
            if piece.start < start || piece.end() > end {
                index += 1;
                continue;
            }
            self.count -= 1;
            self.pieces[index] = self.pieces[self.count];
            let is_last = !self.pieces().iter().any(|one| one.file == piece.file);
            let file = &mut self.files[piece.file];
            if let Some(fd) = file.checked_fd() {
                // It stays in memory otherwise: nobody else is told, and peers may still map it.
                os::punch(fd, piece.offset, piece.len);
                if is_last {
                    os::close(fd);
                }
            }
            if is_last {
                file.fd = -1;
                file.is_used = file.heap.1 > 0;
            }
        }
    }

    /// Whether what was moved can be remembered.
    pub(super) fn has_room(&self) -> bool {
        self.count < PIECES
    }

    /// Lengthens a file whose last bytes end somewhere; false for another place, and where that cannot be done.
    pub(super) fn lengthen(&mut self, file: usize, end: usize, by: usize) -> bool {
        let file = &mut self.files[file];
        if file.len != end || file.heap.1 > 0 || !os::files_are_unlimited() {
            return false;
        }
        let Some((fd, len)) = file.checked_fd().zip(end.checked_add(by)) else {
            return false;
        };
        let is_done = os::set_len(fd, len);
        if is_done {
            file.len = len;
        }
        is_done
    }

    /// The pieces of a range are somewhere else now.
    pub(super) fn shift(&mut self, start: usize, len: usize, to: usize) {
        for piece in self.inside_mut(start, len) {
            piece.start = to + (piece.start - start);
        }
        note_bounds(to, to + len);
    }

    /// What a file was lengthened by is mapped behind the piece that ends there.
    pub(super) fn add_behind(&mut self, start: usize, len: usize) {
        let before = self.pieces().iter().find(|piece| piece.end() == start);
        if let Some(before) = before.copied() {
            self.add(Piece {
                start,
                len,
                offset: before.offset + before.len,
                ..before
            });
        }
    }

    /// The same for a child that has private copies: none of it is in a file any more.
    pub(super) fn forget_files(&mut self) {
        self.count = 0;
        for file in self.files.iter_mut().filter(|file| file.is_used) {
            if let Some(fd) = file.checked_fd() {
                os::close(fd);
            }
            file.fd = -1;
            file.is_used = file.heap.1 > 0;
        }
    }

    /// What the allocator gave out at an address: the file's number, and the length.
    pub(super) fn heap(&self, start: usize) -> Option<(usize, usize)> {
        let found = |file: &File| file.is_used && file.heap.1 > 0 && file.heap.0 == start;
        let number = self.files.iter().position(found)?;
        Some((number, self.files[number].heap.1))
    }

    /// The allocator has nothing to do with a file any more.
    pub(super) fn forget_heap(&mut self, number: usize) {
        let file = &mut self.files[number];
        file.heap = (0, 0);
        file.is_used = file.fd >= 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: usize, len: usize, file: usize, offset: usize) -> Piece {
        let protection = 3;
        Piece {
            start,
            len,
            file,
            offset,
            protection,
        }
    }

    fn table(pieces: &[Piece]) -> Box<Table> {
        let mut table = Box::new(Table::new());
        for one in pieces {
            table.files[one.file].is_used = true;
            table.add(*one);
        }
        table
    }

    #[test]
    fn a_range_is_in_a_file_if_it_follows_there_too() {
        let table = table(&[
            piece(100, 50, 1, 0),
            piece(150, 50, 1, 50),
            piece(200, 50, 1, 110),
            piece(250, 50, 2, 160),
        ]);
        assert_eq!(table.place(100, 100), Some((1, 0)));
        assert_eq!(table.place(120, 60), Some((1, 20)));
        assert_eq!(table.place(199, 1), Some((1, 99)));
        assert_eq!(table.place(199, 2), None);
        assert_eq!(table.place(200, 100), None);
        assert_eq!(table.place(250, 51), None);
        assert_eq!(table.place(99, 10), None);
        assert_eq!(table.place(260, usize::MAX), None);
        assert!(table.touches(0, 101) && table.touches(299, 1));
        assert!(!table.touches(0, 100) && !table.touches(300, 9));
    }

    #[test]
    fn carving_and_forgetting_follow_every_cut() {
        // Each word of the memory is in a file or not: a model.
        let mut rng = 1u64;
        let mut next = |below: u64| {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1);
            ((rng >> 33) % below) as usize
        };
        let mut table = table(&[piece(10, 40, 0, 0), piece(60, 30, 1, 5)]);
        let mut model: Vec<Option<(usize, usize)>> = vec![None; 100];
        (10..50).for_each(|at| model[at] = Some((0, at - 10)));
        (60..90).for_each(|at| model[at] = Some((1, at - 60 + 5)));
        for _ in 0..200 {
            let (start, len) = (next(100), next(8));
            table.carve(start, len).expect("room");
            if next(4) == 0 {
                table.forget(start, len);
                let end = (start + len).min(100);
                model[start..end].fill(None);
            }
            for (at, expected) in model.iter().enumerate() {
                assert_eq!(table.place(at, 1), *expected, "{at}");
            }
        }
        let used = [0, 1].map(|file| model.iter().flatten().any(|one| one.0 == file));
        assert_eq!([0, 1].map(|file| table.files[file].is_used), used);
    }

    #[test]
    fn nothing_is_cut_without_room_for_the_parts() {
        let mut table = table(&[piece(0, 1 << 20, 0, 0)]);
        let cut = (1..PIECES).find(|at| table.carve(at * 2, 1).is_err());
        assert!(cut.is_some());
        assert!(table.free_file().is_none());
    }
}
