//! A directory of the machine's own file system, which takes the steps of programs: through it the
//! kernel says what POSIX means on Linux.
//!
//! Objects are `O_PATH` descriptors, as handles are: a step names them without any path. The user
//! changes for the thread alone (`setresuid` by number), so that other tests are not disturbed.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use conformance::files::program::{Actor, Known, Op, Seen, Step};
use files::{
    Access, Caller, CreateHow, Device, Error, Kind, Mode, Name, New, SeekFor, SetAttributes,
    SetTime, SetXattr, Timestamp,
};
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode as Bits, OFlags, RawMode, SeekFrom, Timespec,
    Timestamps, XattrFlags,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// A directory, and what the program has made in it.
pub(super) struct Local {
    objects: Vec<OwnedFd>,
    inodes: Vec<u64>,
}

type Res<T> = Result<T, Errno>;

impl Local {
    /// Begins with a directory where everybody may make something. Needs the superuser.
    pub(super) fn new(root: &std::path::Path) -> Self {
        let fd = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY, Bits::empty());
        let mut local = Self {
            objects: Vec::new(),
            inodes: Vec::new(),
        };
        local.add(fd.expect("the directory")).expect("its inode");
        rustix::fs::chmod(local.path(0), Bits::from_raw_mode(0o777)).expect("by root");
        local
    }

    fn at(&self, pick: usize) -> &OwnedFd {
        &self.objects[pick % self.objects.len()]
    }

    /// A path that leads to an object for whoever has the descriptor.
    fn path(&self, pick: usize) -> String {
        format!("/proc/self/fd/{}", self.at(pick).as_raw_fd())
    }

    /// The number of an object that the program has made; a new number for a new one.
    fn add(&mut self, fd: OwnedFd) -> Res<usize> {
        let inode = rustix::fs::fstat(&fd)?.st_ino;
        // A number of an object that is gone is used again: the last one counts.
        if let Some(number) = self.inodes.iter().rposition(|known| *known == inode) {
            return Ok(number);
        }
        self.objects.push(fd);
        self.inodes.push(inode);
        Ok(self.objects.len() - 1)
    }

    fn know(&self, number: usize) -> Res<Known> {
        let stat = rustix::fs::fstat(&self.objects[number])?;
        let device = Device {
            major: rustix::fs::major(stat.st_rdev),
            minor: rustix::fs::minor(stat.st_rdev),
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice(device),
            FileType::BlockDevice => Kind::BlockDevice(device),
            _ => Kind::File,
        };
        Ok(Known {
            object: number,
            kind,
            mode: Mode::new(stat.st_mode),
            links: stat.st_nlink as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: (kind != Kind::Directory).then_some(stat.st_size as u64),
            times: None,
        })
    }

    fn answer(&mut self, op: &Op) -> Res<Seen> {
        match op {
            Op::SetAttributes(a, set) => self.set(*a, set),
            Op::Access(a, wanted) => self.access(*a, *wanted),
            Op::Lookup(a, name) => {
                let number = self.look(*a, name)?;
                Ok(Seen::Found(self.know(number)?))
            }
            Op::Parent(a) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                let fd = rustix::fs::openat(self.at(*a), "..", flags, Bits::empty())?;
                let number = self.add(fd)?;
                Ok(Seen::Found(self.know(number)?))
            }
            Op::ReadLink(a) => {
                let text = rustix::fs::readlinkat(self.at(*a), "", Vec::new())?;
                Ok(Seen::Text(text.into_bytes()))
            }
            Op::List(a, _) => self.list(*a),
            Op::Create(a, name, new, set) => self.create(*a, name, new, set),
            Op::CreateFile(a, name, how, set) => {
                let flags = match how {
                    CreateHow::Unchecked => OFlags::TRUNC | OFlags::NOFOLLOW,
                    _ => OFlags::EXCL,
                };
                let flags = flags | OFlags::CREATE | OFlags::WRONLY;
                let is_new = self.look_as_root(*a, name).is_none();
                rustix::fs::openat(self.at(*a), text(name), flags, bits(set))?;
                self.created(*a, name, is_new)
            }
            Op::Remove(a, name, only_directory) => {
                let flags = match only_directory {
                    Some(true) => AtFlags::REMOVEDIR,
                    _ => AtFlags::empty(),
                };
                rustix::fs::unlinkat(self.at(*a), text(name), flags)?;
                Ok(Seen::Changed(vec![true]))
            }
            Op::Rename(a, from, b, to) => {
                let is_same = self.look_as_root(*a, from) == self.look_as_root(*b, to);
                rustix::fs::renameat(self.at(*a), text(from), self.at(*b), text(to))?;
                Ok(Seen::Changed(vec![!is_same; 2]))
            }
            Op::Link(a, b, name) => {
                let follow = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(
                    rustix::fs::CWD,
                    self.path(*a),
                    self.at(*b),
                    text(name),
                    follow,
                )?;
                Ok(Seen::Changed(vec![true]))
            }
            data => self.data(data),
        }
    }

    fn data(&self, op: &Op) -> Res<Seen> {
        match op {
            Op::Allocate(a, range) => {
                let file = self.open(*a, OFlags::WRONLY)?;
                rustix::fs::fallocate(&file, FallocateFlags::empty(), range.offset, range.len)?;
                Ok(Seen::Done)
            }
            Op::Deallocate(a, range) => {
                let file = self.open(*a, OFlags::WRONLY)?;
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, hole, range.offset, range.len)?;
                Ok(Seen::Done)
            }
            Op::Seek(a, offset, what) => {
                let file = self.open(*a, OFlags::RDONLY)?;
                let from = match what {
                    SeekFor::Data => SeekFrom::Data(*offset),
                    SeekFor::Hole => SeekFrom::Hole(*offset),
                };
                match rustix::fs::seek(&file, from) {
                    // Without more data the kernel says what it says past the end.
                    Err(Errno::NXIO) if *offset < rustix::fs::fstat(&file)?.st_size as u64 => {}
                    found => drop(found?),
                }
                Ok(Seen::Place)
            }
            Op::Copy(a, range, b, offset) => {
                let (from, to) = (
                    self.open(*a, OFlags::RDONLY)?,
                    self.open(*b, OFlags::WRONLY)?,
                );
                // What the copy adds to its own source is no part of it.
                let size = rustix::fs::fstat(&from)?.st_size as u64;
                let wanted = if range.len == 0 { size } else { range.len };
                let len = wanted.min(size.saturating_sub(range.offset));
                let (mut at, mut there, mut copied) = (range.offset, *offset, 0);
                // The kernel may copy less than there is.
                loop {
                    let left = (len - copied) as usize;
                    let (at, there) = (Some(&mut at), Some(&mut there));
                    match rustix::fs::copy_file_range(&from, at, &to, there, left)? as u64 {
                        0 => return Ok(Seen::Number(copied)),
                        some => copied += some,
                    }
                }
            }
            Op::Read(a, range) => {
                let file = File::from(self.open(*a, OFlags::RDONLY)?);
                let mut data = vec![0; range.len as usize];
                let mut len = 0;
                while len < data.len() {
                    match file.read_at(&mut data[len..], range.offset + len as u64) {
                        Ok(0) => break,
                        Ok(some) => len += some,
                        Err(error) => return Err(Errno::from_io_error(&error).expect("an errno")),
                    }
                }
                data.truncate(len);
                let size = rustix::fs::fstat(&file)?.st_size as u64;
                let is_end = range.offset + len as u64 >= size;
                Ok(Seen::Data(data, is_end))
            }
            Op::Write(a, offset, data) => {
                let file = File::from(self.open(*a, OFlags::WRONLY)?);
                let written = file.write_all_at(data, *offset);
                written.map_err(|error| Errno::from_io_error(&error).expect("an errno"))?;
                Ok(Seen::Number(data.len() as u64))
            }
            Op::GetXattr(a, name) => {
                let mut value = vec![0; 4096];
                let len = rustix::fs::getxattr(self.path(*a), user(name), &mut value[..])?;
                value.truncate(len);
                Ok(Seen::Text(value))
            }
            Op::SetXattr(a, name, value, how) => {
                let flags = match how {
                    SetXattr::Either => XattrFlags::empty(),
                    SetXattr::Create => XattrFlags::CREATE,
                    SetXattr::Replace => XattrFlags::REPLACE,
                };
                rustix::fs::setxattr(self.path(*a), user(name), value, flags)?;
                Ok(Seen::Changed(vec![true]))
            }
            Op::RemoveXattr(a, name) => {
                rustix::fs::removexattr(self.path(*a), user(name))?;
                Ok(Seen::Changed(vec![true]))
            }
            Op::ListXattrs(a, _) => {
                let mut list = vec![0u8; 4096];
                let len = rustix::fs::listxattr(self.path(*a), &mut list[..])?;
                let names = list[..len].split(|byte| *byte == 0);
                let names = names.filter_map(|name| name.strip_prefix(b"user."));
                let mut names: Vec<Name> = names.filter_map(|name| Name::new(name).ok()).collect();
                names.sort_unstable();
                Ok(Seen::Names(names))
            }
            other => panic!("no local file system has {other:?}"),
        }
    }

    fn open(&self, pick: usize, flags: OFlags) -> Res<OwnedFd> {
        rustix::fs::open(self.path(pick), flags | OFlags::NONBLOCK, Bits::empty())
    }

    fn look(&mut self, directory: usize, name: &Name) -> Res<usize> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(self.at(directory), text(name), flags, Bits::empty())?;
        self.add(fd)
    }

    /// The number of what a name leads to, whoever the caller is.
    fn look_as_root(&mut self, directory: usize, name: &Name) -> Option<usize> {
        let was = rustix::process::geteuid();
        become_user(Uid::ROOT);
        let found = self.look(directory, name);
        become_user(was);
        found.ok()
    }

    fn set(&self, pick: usize, set: &SetAttributes) -> Res<Seen> {
        let path = self.path(pick);
        if let Some(mode) = set.mode {
            rustix::fs::chmod(&path, Bits::from_raw_mode(mode.bits() as RawMode))?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            rustix::fs::chownat(self.at(pick), "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = set.size {
            rustix::fs::ftruncate(self.open(pick, OFlags::WRONLY)?, size)?;
        }
        if let (Some(atime), Some(mtime)) = (set.atime, set.mtime) {
            let spec = |time| match time {
                SetTime::Now => Timespec {
                    tv_sec: 0,
                    tv_nsec: rustix::fs::UTIME_NOW,
                },
                SetTime::To(Timestamp { seconds, .. }) => Timespec {
                    tv_sec: seconds,
                    tv_nsec: 0,
                },
            };
            let times = Timestamps {
                last_access: spec(atime),
                last_modification: spec(mtime),
            };
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty())?;
        }
        Ok(Seen::Attributes(self.know(pick % self.objects.len())?))
    }

    fn access(&self, pick: usize, wanted: Access) -> Res<Seen> {
        let path = self.path(pick);
        let may =
            |access| rustix::fs::accessat(rustix::fs::CWD, &path, access, AtFlags::EACCESS).is_ok();
        let is_directory = self.know(pick % self.objects.len())?.kind == Kind::Directory;
        let writes = match is_directory {
            true => rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
            false => rustix::fs::Access::WRITE_OK,
        };
        let mut access = Access::empty();
        access.set(Access::READ, may(rustix::fs::Access::READ_OK));
        let executes = may(rustix::fs::Access::EXEC_OK);
        access.set(Access::LOOKUP, is_directory && executes);
        access.set(Access::EXECUTE, !is_directory && executes);
        access.set(Access::MODIFY | Access::EXTEND, may(writes));
        access.set(Access::DELETE, is_directory && may(writes));
        Ok(Seen::Access(access & wanted))
    }

    fn list(&mut self, pick: usize) -> Res<Seen> {
        let directory = self.open(pick, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut entries = std::collections::BTreeMap::new();
        for entry in rustix::fs::Dir::new(directory)? {
            let entry = entry?;
            if let Ok(name) = Name::new(entry.file_name().to_bytes()) {
                let mut known = self.inodes.iter();
                let number = known.rposition(|inode| *inode == entry.ino());
                entries.insert(name, number.expect("made by the program"));
            }
        }
        Ok(Seen::Entries(entries))
    }

    fn create(&mut self, pick: usize, name: &Name, new: &New, set: &SetAttributes) -> Res<Seen> {
        let (directory, at) = (self.at(pick), text(name));
        let node = |kind, device: Device| {
            let device = rustix::fs::makedev(device.major, device.minor);
            rustix::fs::mknodat(directory, at, kind, bits(set), device)
        };
        let none = Device { major: 0, minor: 0 };
        match new {
            New::Directory => rustix::fs::mkdirat(directory, at, bits(set))?,
            New::Symlink(target) => {
                rustix::fs::symlinkat(OsStr::from_bytes(target), directory, at)?;
            }
            New::Fifo => node(FileType::Fifo, none)?,
            New::Socket => node(FileType::Socket, none)?,
            New::CharDevice(device) => node(FileType::CharacterDevice, *device)?,
            New::BlockDevice(device) => node(FileType::BlockDevice, *device)?,
        }
        self.created(pick, name, true)
    }

    fn created(&mut self, pick: usize, name: &Name, is_new: bool) -> Res<Seen> {
        let made = self.look_as_root(pick, name).expect("it was made");
        Ok(Seen::Created(self.know(made)?, is_new, is_new))
    }
}

impl Actor for Local {
    fn take(&mut self, step: &Step) -> Seen {
        let Caller {
            uid, gid, groups, ..
        } = &step.caller;
        let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        set_thread_groups(&groups).expect("by root");
        let (gid, kept) = (Gid::from_raw(*gid), Gid::ROOT);
        set_thread_res_gid(kept, gid, kept).expect("by root");
        become_user(Uid::from_raw(*uid));
        let seen = self.answer(&step.op);
        become_user(Uid::ROOT);
        set_thread_res_gid(kept, kept, kept).expect("by root");
        seen.unwrap_or_else(|errno| Seen::Refused(error(errno, &step.op)))
    }

    fn known(&mut self) -> Vec<Option<Known>> {
        let all = 0..self.objects.len();
        let known = all.map(|number| self.know(number).expect("it is held open"));
        // The descriptors here keep what has no name.
        let is_there = |known: &Known| known.links > 0;
        let mut known: Vec<_> = known.map(|known| Some(known).filter(is_there)).collect();
        for (number, known) in known.iter_mut().enumerate() {
            if known.is_none() {
                self.inodes[number] = 0;
            }
        }
        known
    }

    fn has(&self, step: &Step, on: &[Option<Known>]) -> bool {
        // An unchecked creation that finds a pipe or a device would open it.
        let opens_special = match &step.op {
            Op::CreateFile(a, name, CreateHow::Unchecked, _) => {
                let there = rustix::fs::statat(self.at(*a), text(name), AtFlags::SYMLINK_NOFOLLOW);
                there.is_ok_and(|stat| {
                    let kind = FileType::from_raw_mode(stat.st_mode);
                    !matches!(
                        kind,
                        FileType::RegularFile | FileType::Directory | FileType::Symlink
                    )
                })
            }
            _ => false,
        };
        !opens_special && super::differences::is_alike(step, on)
    }
}

fn become_user(uid: Uid) {
    set_thread_res_uid(Uid::ROOT, uid, Uid::ROOT).expect("the superuser may");
}

fn text(name: &Name) -> &OsStr {
    OsStr::from_bytes(name)
}

fn user(name: &Name) -> String {
    format!("user.{name}")
}

fn bits(set: &SetAttributes) -> Bits {
    let mode = set.mode.expect("programs for local file systems give it");
    Bits::from_raw_mode(mode.bits() as RawMode)
}

/// What an error number says in the vocabulary's words.
fn error(errno: Errno, op: &Op) -> Error {
    match errno {
        Errno::PERM if matches!(op, Op::Link(..)) => Error::IsDirectory,
        Errno::PERM => Error::NotPermitted,
        // The kernel's symbolic links have no empty text.
        Errno::NOENT if matches!(op, Op::Create(_, _, New::Symlink(text), _) if text.is_empty()) => {
            Error::Invalid
        }
        Errno::NOENT => Error::NotFound,
        Errno::ACCESS => Error::AccessDenied,
        Errno::EXIST => Error::Exists,
        Errno::NOTDIR => Error::NotDirectory,
        Errno::ISDIR => Error::IsDirectory,
        Errno::INVAL => Error::Invalid,
        Errno::NOTEMPTY => Error::NotEmpty,
        Errno::LOOP => Error::IsSymlink,
        Errno::NODATA => Error::NoXattr,
        Errno::NXIO => Error::NothingThere,
        Errno::FBIG => Error::FileTooLarge,
        other => panic!("{other:?} from {op:?}"),
    }
}
