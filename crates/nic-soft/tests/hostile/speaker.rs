//! A NIC that keeps no rule: it speaks the adapters' protocol by hand, over sockets and segments of
//! its own, so that it can say and write anything.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::sockopt::Timeout;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use verbs::Gid;

use crate::layout::{Header, Inbox, MAGIC, Published, QP_INDEX_BITS, VERSION};

pub(crate) const HELLO: u32 = 1;
pub(crate) const REGION: u32 = 2;
pub(crate) const LANE: u32 = 3;
pub(crate) const SWEEP: u32 = 4;
pub(crate) const ATOMIC: u32 = 5;
pub(crate) const COPY: u32 = 6;

pub(crate) const OK: u32 = 0;
pub(crate) const NO_SUCH: u32 = 1;
pub(crate) const OTHER_VERSION: u32 = 2;
pub(crate) const IDENTITY: u32 = 3;
pub(crate) const EXHAUSTED: u32 = 4;
pub(crate) const LATER: u32 = 5;
pub(crate) const REFUSED: u32 = 6;

pub(crate) const MESSAGE_LEN: usize = 56;

/// A request or an answer, before it is spoilt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) code: u32,
    pub(crate) version: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u64,
    pub(crate) gid: Gid,
    pub(crate) from: Gid,
}

impl Message {
    pub(crate) fn new(code: u32, a: u32, b: u32, c: u64) -> Self {
        let (version, gid) = (VERSION, home());
        Message {
            code,
            version,
            a,
            b,
            c,
            gid,
            from: Gid([0; 16]),
        }
    }

    /// Says that it comes from a queue pair that has no epoch to one of this epoch.
    pub(crate) fn over(mut self, epoch: u16) -> Self {
        self.from.0[..2].copy_from_slice(&epoch.to_le_bytes());
        self
    }

    pub(crate) fn bytes(&self) -> [u8; MESSAGE_LEN] {
        let mut bytes = [0; MESSAGE_LEN];
        let words = [self.code, self.version, self.a, self.b];
        for (at, word) in words.iter().enumerate() {
            bytes[at * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&self.c.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.gid.0);
        bytes[40..56].copy_from_slice(&self.from.0);
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Some(Message {
            code: word(0),
            version: word(4),
            a: word(8),
            b: word(12),
            c: u64::from_le_bytes(std::array::from_fn(|i| bytes[16 + i])),
            gid: Gid(std::array::from_fn(|i| bytes[24 + i])),
            from: Gid(std::array::from_fn(|i| bytes[40 + i])),
        })
    }
}

/// The address that all adapters of these tests have.
pub(crate) fn home() -> Gid {
    Gid::from_ipv4(std::net::Ipv4Addr::LOCALHOST)
}

/// The number of a queue pair of an instance.
pub(crate) fn qpn(instance: u32, index: u32) -> u32 {
    instance << QP_INDEX_BITS | index
}

/// Shared memory, mapped.
pub(crate) struct Shared<T> {
    start: NonNull<T>,
}

// SAFETY: what is mapped holds atomics only.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn map(file: BorrowedFd<'_>, writable: bool) -> rustix::io::Result<Self> {
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                size_of::<T>(),
                protection,
                flags,
                file,
                0,
            )
        }?;
        Ok(Shared {
            start: NonNull::new(start.cast()).expect("not at address 0"),
        })
    }

    /// All its words.
    pub(crate) fn words(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is whole pages, and atomics may hold anything.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), size_of::<T>() / 4) }
    }
}

impl<T> std::ops::Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped for its length, and only atomics.
        unsafe { self.start.as_ref() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping's own range, which nobody holds any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), size_of::<T>()) };
        assert!(unmapped.is_ok());
    }
}

/// A memfd of a length, with seals.
pub(crate) fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("hostile", flags).expect("a memfd");
    rustix::fs::ftruncate(&file, len).expect("a length");
    rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
    file
}

/// A sealed memfd and its mapping.
pub(crate) fn segment<T>() -> (OwnedFd, Shared<T>) {
    let file = memfd(size_of::<T>() as u64, SealFlags::SHRINK | SealFlags::GROW);
    let mapping = Shared::map(file.as_fd(), true).expect("mapped");
    (file, mapping)
}

/// Sends bytes and descriptors.
pub(crate) fn send(
    socket: &OwnedFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map(|_| ())
}

/// Receives bytes and descriptors; nothing at the end.
pub(crate) fn receive(socket: &OwnedFd) -> rustix::io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = [0u8; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        flags,
    )?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok((bytes[..received.bytes].to_vec(), fds))
}

/// What an adapter has handed to us.
pub(crate) struct Met {
    pub(crate) socket: OwnedFd,
    pub(crate) published: Shared<Published>,
    pub(crate) inbox: Shared<Inbox>,
    pub(crate) inbox_file: OwnedFd,
    pub(crate) published_file: OwnedFd,
}

impl Met {
    /// The epoch of a queue pair of the adapter, or of the one that has its place.
    pub(crate) fn epoch_of(&self, qpn: u32) -> u16 {
        let index = qpn & ((1 << QP_INDEX_BITS) - 1);
        let entry = &self.published.qps[index as usize];
        (entry.epoch_and_timer.load(Ordering::Acquire) >> 16) as u16
    }
}

/// The hostile NIC: an instance number, and who it says it is.
pub(crate) struct Speaker {
    directory: PathBuf,
    pub(crate) instance: u32,
    pub(crate) incarnation: u64,
    pub(crate) listener: OwnedFd,
}

impl Speaker {
    /// Listens as an instance, which takes no lock.
    pub(crate) fn new(run_dir: &Path, instance: u32) -> Self {
        let incarnation = u64::from(std::process::id()) << 32 | u64::from(instance);
        Speaker::posing(run_dir, instance, incarnation)
    }

    /// The same, as an incarnation of its choice.
    pub(crate) fn posing(run_dir: &Path, instance: u32, incarnation: u64) -> Self {
        let directory = run_dir.join("127.0.0.1");
        let path = directory.join(format!("{instance}.sock"));
        // Left by one that was killed.
        let _ = std::fs::remove_file(&path);
        let listener = socket(SocketType::SEQPACKET);
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).expect("a path")).expect("bound");
        rustix::net::listen(&listener, 512).expect("listening");
        Speaker {
            directory,
            instance,
            incarnation,
            listener,
        }
    }

    /// Connects to an instance, and says nothing yet.
    pub(crate) fn dial(&self, instance: u32) -> rustix::io::Result<OwnedFd> {
        let path = self.directory.join(format!("{instance}.sock"));
        let socket = socket(SocketType::SEQPACKET);
        let limit = Some(Duration::from_secs(120));
        rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Recv, limit)?;
        rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, limit)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(&path)?)?;
        Ok(socket)
    }

    pub(crate) fn hello(&self) -> Message {
        Message::new(HELLO, self.instance, 0, self.incarnation)
    }

    /// Introduces itself to an instance as itself.
    pub(crate) fn meet(&self, instance: u32) -> Result<Met, Option<Message>> {
        let socket = self.dial(instance).map_err(|_| None)?;
        let (answer, fds) = ask(&socket, &self.hello()).map_err(|_| None)?;
        let Ok([published_file, inbox_file]) = <[OwnedFd; 2]>::try_from(fds) else {
            return Err(Some(answer));
        };
        Ok(Met {
            published: Shared::map(published_file.as_fd(), false).expect("mapped"),
            inbox: Shared::map(inbox_file.as_fd(), true).expect("mapped"),
            socket,
            inbox_file,
            published_file,
        })
    }

    /// Segments of its own, as an adapter hands them out.
    pub(crate) fn segments(&self) -> Segments {
        let (published_file, published) = segment::<Published>();
        let (inbox_file, inbox) = segment::<Inbox>();
        self.sign(&published.header);
        self.sign(&inbox.header);
        Segments {
            published_file,
            published,
            inbox_file,
            inbox,
        }
    }

    pub(crate) fn sign(&self, header: &Header) {
        header.version.store(VERSION, Ordering::Relaxed);
        header.instance.store(self.instance, Ordering::Relaxed);
        header
            .incarnation
            .store(self.incarnation, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }

    pub(crate) fn answer(&self, code: u32) -> [u8; MESSAGE_LEN] {
        Message::new(code, 0, 0, self.incarnation).bytes()
    }

    /// Sends a datagram to each completion channel of an instance, and counts them.
    pub(crate) fn ring(&self, instance: u32, bytes: &[u8]) -> u64 {
        let socket = socket(SocketType::DGRAM);
        rustix::io::ioctl_fionbio(&socket, true).expect("set");
        let mut rings = 0;
        for channel in 0..8 {
            let path = self.directory.join(format!("{instance}.c{channel}"));
            let Ok(address) = SocketAddrUnix::new(&path) else {
                continue;
            };
            let flags = SendFlags::NOSIGNAL;
            if rustix::net::connect(&socket, &address).is_ok() {
                // Full is as good as rung.
                let _ = rustix::net::send(&socket, bytes, flags);
                rings += 1;
            }
        }
        rings
    }
}

/// What an adapter hands out.
pub(crate) struct Segments {
    pub(crate) published_file: OwnedFd,
    pub(crate) published: Shared<Published>,
    pub(crate) inbox_file: OwnedFd,
    pub(crate) inbox: Shared<Inbox>,
}

/// Asks and waits for the answer.
pub(crate) fn ask(
    socket: &OwnedFd,
    request: &Message,
) -> rustix::io::Result<(Message, Vec<OwnedFd>)> {
    send(socket, &request.bytes(), &[])?;
    let (bytes, fds) = receive(socket)?;
    let answer = Message::read(&bytes).ok_or(Errno::CONNRESET)?;
    Ok((answer, fds))
}

pub(crate) fn socket(kind: SocketType) -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .expect("a socket")
}

/// Descriptors in use by this process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("readable")
        .count()
}

/// Mappings of this process of memfds whose name begins so.
pub(crate) fn mappings(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let memfd = format!("/memfd:{name}");
    maps.lines().filter(|line| line.contains(&memfd)).count()
}

/// A file that one may read and write.
pub(crate) fn plain_file(len: u64) -> OwnedFd {
    let file: File = tempfile::tempfile().expect("a file");
    file.set_len(len).expect("a length");
    file.into()
}
