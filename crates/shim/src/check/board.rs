//! What processes with checks tell each other: their queue pairs' attributes, how many RECVs those have, and their regions.
//!
//! Each has a file in the run directory, `checks/PID`, that it maps and locks as long as it lives. Others read it as a whole when
//! they want to know something: rarely, and they believe none of its numbers. Words are of 64 bits in the host's order:
//!
//! ```text
//! word 0         the mark, which names the version
//! word 1         the process
//! from word 8    PAIRS queue pairs, 16 words each:
//!                0     number | used << 32 | state << 40
//!                1, 2  its GID            3, 4  the GID that it leads to
//!                5     the queue pair that it leads to | MTU << 32 | READs it starts << 40 | READs it answers << 48
//!                6     first PSN expected | first PSN sent << 32
//!                8     RECVs posted       9     RECVs completed
//!                10    when one was posted last, in nanoseconds of the monotonic clock
//! then           REGIONS regions, 8 words each, by their key:
//!                0     rkey | used << 32 | registered << 33
//!                1     address            2     bytes
//!                3     rights             4, 5  its GID
//! ```

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use verbs::{Access, Gid, Mtu, QpAttr, QpNum, QpState};

use super::regions::Region;
use crate::process::generation;

/// "vervchk1", which is this version.
const MARK: u64 = u64::from_le_bytes(*b"vervchk1");
const PAIRS: usize = 1024;
const PAIR: usize = 16;
const REGIONS: usize = 4096;
const REGION: usize = 8;
const FIRST_PAIR: usize = 8;
const FIRST_REGION: usize = FIRST_PAIR + PAIRS * PAIR;
const WORDS: usize = FIRST_REGION + REGIONS * REGION;

const USED: u64 = 1 << 32;
const REGISTERED: u64 = 1 << 33;

/// States in the order of their numbers in a file.
const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    // Last, for `fail`.
    QpState::Err,
];
const MTUS: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

/// This process's file.
struct Board {
    path: PathBuf,
    /// Mapped until the process ends.
    words: &'static [AtomicU64],
    /// Its lock says that the process lives.
    _file: File,
    next: AtomicUsize,
}

static BOARD: OnceLock<Board> = OnceLock::new();

/// Makes this process's file, and removes those of processes that have ended.
///
/// # Errors
/// As making the directory, the file, or the mapping.
pub(super) fn begin(run_dir: &Path) -> io::Result<()> {
    let dir = run_dir.join("checks");
    fs::create_dir_all(&dir)?;
    // Of several processes that begin, one at a time: none takes another's new file for one that was left.
    let beginning = File::open(&dir)?;
    flock(&beginning, FlockOperation::LockExclusive)?;
    let begun = begin_alone(&dir);
    // Not by closing it, which a child that was forked meanwhile has not done.
    flock(&beginning, FlockOperation::Unlock)?;
    begun
}

fn begin_alone(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let left = File::open(&path)
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
        if left {
            // Another process may remove it too.
            let _ = fs::remove_file(&path);
        }
    }
    let process = std::process::id();
    // Nobody may see it before it is locked.
    let (path, new) = (
        dir.join(process.to_string()),
        dir.join(format!(".{process}")),
    );
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&new)?;
    // Whoever reads may have it for a moment.
    flock(&file, FlockOperation::LockExclusive)?;
    // All of it is there then: when the file system is full, this fails and no later store does.
    file.write_all(&vec![0; WORDS * 8])?;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let start = unsafe {
        mmap(
            std::ptr::null_mut(),
            WORDS * 8,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &file,
            0,
        )?
    };
    // SAFETY: so many words of zeros, which stay mapped; the file is not cut, and others only read it.
    let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), WORDS) };
    words[1].store(process.into(), Ordering::Relaxed);
    words[0].store(MARK, Ordering::Release);
    fs::rename(&new, &path)?;
    let next = AtomicUsize::new(0);
    let board = Board {
        path,
        words,
        _file: file,
        next,
    };
    // Only one thread begins.
    let _ = BOARD.set(board);
    Ok(())
}

/// Removes this process's file.
pub(super) fn end() {
    if let Some(board) = ours() {
        // It may be that somebody has cleaned up already.
        let _ = fs::remove_file(&board.path);
    }
}

/// This process's own; a child does not write into its parent's.
fn ours() -> Option<&'static Board> {
    BOARD.get().filter(|_| generation() == 0)
}

fn halves(gid: Gid) -> [u64; 2] {
    let (high, low) = gid.0.split_at(8);
    [high, low].map(|half| u64::from_ne_bytes(half.try_into().expect("8 bytes")))
}

fn gid_of(halves: [u64; 2]) -> Gid {
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&halves[0].to_ne_bytes());
    gid[8..].copy_from_slice(&halves[1].to_ne_bytes());
    Gid(gid)
}

/// A queue pair's place in this process's file. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    words: &'static [AtomicU64],
    num: QpNum,
}

/// A place for a queue pair; `None` when there is none, or no file.
pub(super) fn entry(gid: Gid, num: QpNum) -> Option<Entry> {
    let board = ours()?;
    let start = board.next.fetch_add(1, Ordering::Relaxed);
    let place = |at: usize| {
        let from = FIRST_PAIR + at % PAIRS * PAIR;
        &board.words[from..from + PAIR]
    };
    let is_taken = |words: &&[AtomicU64]| {
        let used = USED | u64::from(num.0);
        words[0]
            .compare_exchange(0, used, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    };
    let words = (start..start + PAIRS).map(place).find(is_taken)?;
    words[2..]
        .iter()
        .for_each(|word| word.store(0, Ordering::Relaxed));
    let [high, low] = halves(gid);
    words[1].store(high, Ordering::Relaxed);
    words[2].store(low, Ordering::Relaxed);
    Some(Entry { words, num })
}

impl Entry {
    pub(super) fn publish(&self, attr: &QpAttr) {
        let put = |at: usize, word: u64| self.words[at].store(word, Ordering::Relaxed);
        let state = attr
            .state
            .and_then(|state| STATES.iter().position(|one| *one == state));
        let mtu = attr
            .path_mtu
            .and_then(|mtu| MTUS.iter().position(|one| *one == mtu));
        if let Some(gid) = attr.dest_gid() {
            let [high, low] = halves(gid);
            put(3, high);
            put(4, low);
        }
        let dest = u64::from(attr.dest_qpn.unwrap_or_default().0);
        let reads = u64::from(attr.rd_atomic_max.unwrap_or_default());
        let answers = u64::from(attr.dest_rd_atomic_max.unwrap_or_default());
        put(
            5,
            dest | (mtu.unwrap_or(0) as u64) << 32 | reads << 40 | answers << 48,
        );
        let psn = |psn: Option<verbs::Psn>| u64::from(psn.unwrap_or_default().0);
        put(6, psn(attr.rq_psn) | psn(attr.sq_psn) << 32);
        let state = state.unwrap_or(0) as u64;
        // With a fence on both sides, of two that publish and then look at each other at least one sees the other.
        self.words[0].store(u64::from(self.num.0) | USED | state << 40, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Its connection has failed.
    pub(super) fn fail(&self) {
        let failed = STATES.len() as u64 - 1;
        self.words[0].store(
            u64::from(self.num.0) | USED | failed << 40,
            Ordering::Release,
        );
    }

    pub(super) fn recvs_posted(&self, count: usize) {
        self.words[8].fetch_add(count as u64, Ordering::Relaxed);
        self.words[10].store(now_ns(), Ordering::Relaxed);
    }

    pub(super) fn recv_completed(&self) {
        self.words[9].fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.words[0].store(0, Ordering::Release);
    }
}

pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn slot(rkey: u32) -> usize {
    FIRST_REGION + (rkey ^ rkey >> 16) as usize % REGIONS * REGION
}

/// Tells others of a region, or that it was deregistered.
pub(super) fn publish_region(region: &Region, gid: Gid, is_registered: bool) {
    let Some(board) = ours() else {
        return;
    };
    let words = &board.words[slot(region.rkey)..][..REGION];
    // The place may be a newer region's by now.
    if !is_registered && words[0].load(Ordering::Relaxed) as u32 != region.rkey {
        return;
    }
    let put = |at: usize, word: u64| words[at].store(word, Ordering::Relaxed);
    put(0, 0);
    put(1, region.iova);
    put(2, region.len as u64);
    put(3, region.access.bits().into());
    let [high, low] = halves(gid);
    put(4, high);
    put(5, low);
    let registered = if is_registered { REGISTERED } else { 0 };
    words[0].store(
        u64::from(region.rkey) | USED | registered,
        Ordering::Release,
    );
}

/// What another process, or this one, says of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) process: u32,
    pub(super) num: QpNum,
    pub(super) state: QpState,
    pub(super) dest_gid: Gid,
    pub(super) dest_qpn: QpNum,
    pub(super) mtu: Mtu,
    pub(super) reads: u8,
    pub(super) answers: u8,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) recvs_posted: u64,
    pub(super) recvs_completed: u64,
    pub(super) posted_last_ns: u64,
}

/// What a process says of a region.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerRegion {
    pub(super) rkey: u32,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) access: Access,
    pub(super) is_registered: bool,
}

/// A file, read.
struct Words(Vec<u64>);

impl Words {
    fn read(path: &Path) -> Option<Words> {
        let mut file = File::open(path).ok()?;
        // One whose process has ended says nothing any more.
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        if bytes.len() != WORDS * 8 {
            return None;
        }
        let words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
        Some(Words(words.collect())).filter(|words| words.0[0] == MARK)
    }

    fn pair(&self, gid: Gid, num: QpNum) -> Option<Peer> {
        let pairs = self.0[FIRST_PAIR..FIRST_REGION].chunks_exact(PAIR);
        let mut used = pairs.filter(|words| words[0] & USED != 0);
        let words =
            used.find(|words| words[0] as u32 == num.0 && gid_of([words[1], words[2]]) == gid)?;
        Some(Peer {
            process: self.0[1] as u32,
            num,
            state: *STATES.get((words[0] >> 40 & 0xff) as usize)?,
            dest_gid: gid_of([words[3], words[4]]),
            dest_qpn: QpNum(words[5] as u32),
            mtu: *MTUS.get((words[5] >> 32 & 0xff) as usize)?,
            reads: (words[5] >> 40) as u8,
            answers: (words[5] >> 48) as u8,
            rq_psn: words[6] as u32,
            sq_psn: (words[6] >> 32) as u32,
            recvs_posted: words[8],
            recvs_completed: words[9],
            posted_last_ns: words[10],
        })
    }

    fn regions(&self, gid: Gid) -> Vec<PeerRegion> {
        let regions = self.0[FIRST_REGION..].chunks_exact(REGION);
        let used =
            regions.filter(|words| words[0] & USED != 0 && gid_of([words[4], words[5]]) == gid);
        used.map(|words| PeerRegion {
            rkey: words[0] as u32,
            addr: words[1],
            len: words[2],
            access: Access::from_bits_truncate(words[3] as u32),
            is_registered: words[0] & REGISTERED != 0,
        })
        .collect()
    }
}

fn files() -> Vec<PathBuf> {
    let dir = BOARD.get().and_then(|board| board.path.parent());
    let entries = dir.and_then(|dir| fs::read_dir(dir).ok());
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// What is said of the queue pair with this number on this GID.
pub(super) fn find(gid: Gid, num: QpNum) -> Option<Peer> {
    std::sync::atomic::fence(Ordering::SeqCst);
    let read = |path: &PathBuf| Words::read(path)?.pair(gid, num);
    files().iter().find_map(read)
}

/// What the process of a queue pair says of its regions.
pub(super) fn regions_of(gid: Gid, num: QpNum) -> Vec<PeerRegion> {
    let read = |path: &PathBuf| {
        let words = Words::read(path)?;
        words.pair(gid, num)?;
        Some(words.regions(gid))
    };
    files().iter().find_map(read).unwrap_or_default()
}
