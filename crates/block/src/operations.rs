//! Operations under way: how they are cut into requests, and what becomes of these. No I/O.
//!
//! An operation waits in line until the queue has room, is issued piece by piece (all at once, if
//! there is room), and ends when its last piece has. A piece that was cut short goes on where it
//! stopped. Memory grows to the most operations that were ever under way at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use rustix::io::Errno;
use slab::Slab;

use super::{BlockError, Buf, Done, Geometry, Op, Region, Request};

/// Names an operation until its outcome is taken or it is given up.
pub(super) type Key = u32;

/// Stays where it is when it has ended, for another one to take its place.
struct Operation {
    at: u64,
    /// Of the buffer, which its future keeps.
    memory: *mut u8,
    len: u64,
    /// Bytes that pieces have been made of.
    issued: u64,
    /// Pieces that have not ended.
    pieces: u32,
    /// Of the buffer, if its pool is the disk's.
    region: Option<Region>,
    op: Op,
    stage: Stage,
    /// In line for more pieces.
    is_waiting: bool,
    /// Whom to wake when it has ended.
    waker: Option<Waker>,
    error: Option<Box<BlockError>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Running,
    /// Given up; stays until no piece is under way.
    Orphan,
    /// It has ended well.
    Done,
    /// It has ended with an error.
    Failed,
}

/// What operations that were given up leave behind until the device is done with them.
struct Legacy {
    key: Key,
    heir: Option<Waker>,
    /// The device still has it.
    _buf: Option<Buf>,
}

/// Marks the token of a request that is all of its operation; the rest is the operation's key. Other requests have the
/// keys of their pieces.
const WHOLE: u64 = 1 << 62;

/// A part of an operation that is one request.
#[derive(Clone, Copy)]
struct Piece {
    key: Key,
    request: Request,
}

/// The operations of one disk.
pub(super) struct Operations {
    geometry: Geometry,
    name: Arc<str>,
    depth: usize,
    operations: Vec<Operation>,
    /// Those of them that have ended.
    free: Vec<Key>,
    /// Of operations that are more than one request, and what is left of requests that were cut short.
    pieces: Slab<Piece>,
    /// Requests that the queue has, or is to have next.
    in_flight: usize,
    /// What the queue is to have next: what goes once more, and what began while it had room.
    ready: Vec<Request>,
    /// Operations with pieces to issue, oldest first. Only the first has issued some.
    waiting: VecDeque<Key>,
    /// Of operations that were given up and of which the device has something.
    legacies: Vec<Legacy>,
}

impl Operations {
    pub(super) fn new(geometry: Geometry, name: Arc<str>, depth: usize) -> Self {
        Self {
            geometry,
            name,
            depth,
            operations: Vec::with_capacity(depth),
            free: Vec::with_capacity(depth),
            pieces: Slab::with_capacity(depth),
            in_flight: 0,
            ready: Vec::with_capacity(depth),
            waiting: VecDeque::with_capacity(depth),
            legacies: Vec::new(),
        }
    }

    /// Nothing is under way.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty()
    }

    /// Begins an operation on memory that its caller keeps until it has ended or is given up. The caller has checked it.
    #[inline(always)]
    pub(super) fn start(
        &mut self,
        op: Op,
        at: u64,
        (memory, len): (*mut u8, u64),
        region: Option<Region>,
    ) -> Key {
        let is_nothing = len == 0 && op != Op::Flush;
        let key = self.free.pop().unwrap_or_else(|| self.grow());
        let operation = &mut self.operations[key as usize];
        operation.at = at;
        operation.memory = memory;
        operation.len = len;
        operation.region = region;
        operation.op = op;
        // Most are one request, for which there is room.
        if !is_nothing
            && self.waiting.is_empty()
            && self.in_flight < self.depth
            && u64::from(piece_len(&self.geometry, at, len)) == len
        {
            debug_assert!(!operation.is_waiting, "nobody has it yet");
            operation.issued = len;
            operation.pieces = 1;
            operation.stage = Stage::Running;
            self.in_flight += 1;
            self.ready.push(Request {
                token: WHOLE | u64::from(key),
                op,
                at,
                memory,
                len: len as u32,
                region,
            });
        } else {
            self.line_up(key, is_nothing);
        }
        key
    }

    /// Has an operation wait for its first request, or end at once if it needs none.
    #[cold]
    #[inline(never)]
    fn line_up(&mut self, key: Key, is_nothing: bool) {
        let operation = &mut self.operations[key as usize];
        operation.issued = 0;
        operation.pieces = 0;
        operation.is_waiting = !is_nothing;
        if is_nothing {
            operation.stage = Stage::Done;
        } else {
            operation.stage = Stage::Running;
            self.waiting.push_back(key);
        }
    }

    /// Room for one more operation.
    #[cold]
    fn grow(&mut self) -> Key {
        let key = u32::try_from(self.operations.len()).expect("fewer than 2^32 operations");
        self.operations.push(Operation {
            at: 0,
            memory: std::ptr::null_mut(),
            len: 0,
            issued: 0,
            pieces: 0,
            region: None,
            op: Op::Read,
            stage: Stage::Done,
            is_waiting: false,
            waker: None,
            error: None,
        });
        // Giving it back never allocates.
        self.free.reserve(self.operations.len());
        key
    }

    /// Takes note that an operation is over for everybody, and nobody asks how it went.
    fn vacate(&mut self, key: Key) {
        self.operations[key as usize].error = None;
        self.free.push(key);
    }

    /// What to submit now. The caller empties it.
    #[inline]
    pub(super) fn ready(&mut self) -> &mut Vec<Request> {
        if !self.waiting.is_empty() {
            self.fill();
        }
        &mut self.ready
    }

    /// Makes requests of what is in line, while there is room in the queue.
    #[cold]
    fn fill(&mut self) {
        while self.in_flight < self.depth
            && let Some(&key) = self.waiting.front()
        {
            let operation = &mut self.operations[key as usize];
            if operation.stage == Stage::Orphan {
                self.stop_waiting(key);
                let heir = self.end_if_over(key);
                debug_assert!(heir.is_none(), "what is in line has none");
                continue;
            }
            let at = operation.at + operation.issued;
            let len = piece_len(&self.geometry, at, operation.len - operation.issued);
            let mut request = Request {
                token: WHOLE | u64::from(key),
                op: operation.op,
                at,
                // Within the buffer. A flush has none.
                memory: operation.memory.wrapping_add(to_usize(operation.issued)),
                len,
                region: operation.region,
            };
            operation.issued += u64::from(len);
            operation.pieces += 1;
            self.in_flight += 1;
            if u64::from(len) != operation.len {
                let entry = self.pieces.vacant_entry();
                request.token = entry.key() as u64;
                entry.insert(Piece { key, request });
            }
            if operation.issued == operation.len {
                self.stop_waiting(key);
            }
            self.ready.push(request);
        }
    }

    /// Takes note of a request's end. Who waits for the operation that this ends, or is its heir, is the caller's to wake.
    #[inline]
    pub(super) fn complete(&mut self, done: &Done) -> Option<Waker> {
        if done.token & WHOLE != 0 {
            let key = to_u32(to_usize(done.token & !WHOLE));
            let operation = &mut self.operations[key as usize];
            // Nearly all go well, and somebody waits for them.
            if matches!(done.result, Ok(len) if u64::from(len) == operation.len)
                && operation.stage == Stage::Running
            {
                debug_assert!(
                    operation.pieces == 1 && !operation.is_waiting,
                    "it was all of it"
                );
                self.in_flight -= 1;
                operation.pieces = 0;
                operation.stage = Stage::Done;
                return operation.waker.take();
            }
        }
        self.complete_other(*done)
    }

    /// The same for any other end: of a piece, of what has failed, or of what nobody waits for.
    #[inline(never)]
    fn complete_other(&mut self, done: Done) -> Option<Waker> {
        let is_whole = done.token & WHOLE != 0;
        let (key, len) = if is_whole {
            let key = to_u32(to_usize(done.token & !WHOLE));
            (key, self.operations[key as usize].len)
        } else {
            let piece = &self.pieces[to_usize(done.token)];
            (piece.key, piece.request.len.into())
        };
        if done.result.map(u64::from) != Ok(len) && !self.has_failed(key, done) {
            return None;
        }
        if !is_whole {
            self.pieces.remove(to_usize(done.token));
        }
        self.in_flight -= 1;
        self.operations[key as usize].pieces -= 1;
        self.end_if_over(key)
    }

    /// The request that has ended.
    fn request(&self, key: Key, token: u64) -> Request {
        if token & WHOLE == 0 {
            return self.pieces[to_usize(token)].request;
        }
        let operation = &self.operations[key as usize];
        Request {
            token,
            op: operation.op,
            at: operation.at,
            memory: operation.memory,
            len: u32::try_from(operation.len).expect("it was one request"),
            region: operation.region,
        }
    }

    /// A request has not ended as it was asked to. False if it, or the rest of it, goes once more.
    #[cold]
    fn has_failed(&mut self, key: Key, done: Done) -> bool {
        let mut request = self.request(key, done.token);
        let errno = match done.result {
            Ok(count) => {
                assert!(count < request.len, "more than was asked for");
                // A device transfers whole blocks; what a file's end has cut is asked for again.
                let progress = count & !(self.geometry.block - 1);
                if progress > 0 {
                    request.at += u64::from(progress);
                    request.len -= progress;
                    // SAFETY: still within the request's memory.
                    request.memory = unsafe { request.memory.add(to_usize(progress.into())) };
                    self.go_on_with(key, request);
                    return false;
                }
                None
            }
            Err(Errno::INTR | Errno::AGAIN) => {
                self.ready.push(request);
                return false;
            }
            Err(errno) => Some(errno),
        };
        let operation = &mut self.operations[key as usize];
        if operation.error.is_none() {
            operation.error = Some(Box::new(failure(&self.name, &request, errno)));
        }
        // No further pieces: the operation has failed.
        operation.issued = operation.len;
        if operation.is_waiting {
            self.stop_waiting(key);
        }
        true
    }

    /// What is left of a request goes once more: it is a piece from now on.
    fn go_on_with(&mut self, key: Key, mut request: Request) {
        if request.token & WHOLE == 0 {
            self.pieces[to_usize(request.token)].request = request;
        } else {
            let entry = self.pieces.vacant_entry();
            request.token = entry.key() as u64;
            entry.insert(Piece { key, request });
        }
        self.ready.push(request);
    }

    /// The outcome of an operation, which ends it, if it is there. Errors are boxed, as they are long and rare.
    #[inline(always)]
    pub(super) fn outcome(&mut self, key: Key) -> Option<Result<(), Box<BlockError>>> {
        let stage = self.operations[key as usize].stage;
        if stage == Stage::Done {
            self.free.push(key);
            return Some(Ok(()));
        }
        (stage == Stage::Failed).then(|| Err(self.failure_of(key)))
    }

    #[cold]
    #[inline(never)]
    fn failure_of(&mut self, key: Key) -> Box<BlockError> {
        self.free.push(key);
        let error = self.operations[key as usize].error.take();
        error.expect("what has failed has an error")
    }

    /// Hands `waker` out when the operation ends. Whom it would have woken before is the caller's to drop, when nothing is
    /// borrowed: the last waker of a task may drop that, with whatever it holds of this disk.
    #[inline(always)]
    #[must_use = "dropped when nothing is borrowed"]
    pub(super) fn wake_at_end(&mut self, key: Key, waker: &Waker) -> Option<Waker> {
        let operation = &mut self.operations[key as usize];
        debug_assert_eq!(operation.stage, Stage::Running, "given up: without owner");
        match &operation.waker {
            Some(old) if old.will_wake(waker) => None,
            _ => operation.waker.replace(waker.clone()),
        }
    }

    /// Nobody will ask for this operation again. What the device has not begun is left out. It keeps the buffer, and hands out
    /// the `heir`, when the device is done with the rest; the heir is returned if the device has nothing of it. Whom the
    /// operation would have woken is returned too, to be dropped as in [`Operations::wake_at_end`].
    #[must_use = "dropped when nothing is borrowed"]
    pub(super) fn give_up(
        &mut self,
        key: Key,
        buf: Option<Buf>,
        heir: Option<Waker>,
    ) -> [Option<Waker>; 2] {
        let token = WHOLE | u64::from(key);
        if let Some(unsent) = self.ready.iter().position(|ready| ready.token == token) {
            self.ready.remove(unsent);
            self.in_flight -= 1;
            self.operations[key as usize].pieces -= 1;
        }
        let operation = &mut self.operations[key as usize];
        debug_assert_ne!(operation.stage, Stage::Orphan, "it is given up once");
        let waker = operation.waker.take();
        if operation.pieces == 0 {
            if operation.is_waiting {
                // It goes when its turn comes.
                operation.stage = Stage::Orphan;
            } else {
                self.vacate(key);
            }
            return [waker, heir];
        }
        operation.stage = Stage::Orphan;
        self.legacies.push(Legacy {
            key,
            heir,
            _buf: buf,
        });
        if operation.is_waiting {
            // Some of it has gone: it is the first in line.
            operation.issued = operation.len;
            self.stop_waiting(key);
        }
        [waker, None]
    }

    /// The first in line has nothing more to issue.
    fn stop_waiting(&mut self, key: Key) {
        let first = self.waiting.pop_front();
        debug_assert_eq!(first, Some(key), "only the first in line issues");
        self.operations[key as usize].is_waiting = false;
    }

    #[inline]
    fn end_if_over(&mut self, key: Key) -> Option<Waker> {
        let operation = &mut self.operations[key as usize];
        if operation.pieces > 0 || operation.is_waiting {
            return None;
        }
        if operation.stage == Stage::Running {
            operation.stage = match operation.error {
                None => Stage::Done,
                Some(_) => Stage::Failed,
            };
            return operation.waker.take();
        }
        self.bury(key)
    }

    /// Nobody waits for an operation that has ended: what it leaves behind goes, and its heir is the caller's to wake.
    #[cold]
    fn bury(&mut self, key: Key) -> Option<Waker> {
        self.vacate(key);
        let of_key = |legacy: &Legacy| legacy.key == key;
        let legacy = self.legacies.iter().position(of_key)?;
        self.legacies.swap_remove(legacy).heir
    }
}

#[inline]
fn piece_len(geometry: &Geometry, at: u64, rest: u64) -> u32 {
    let len = rest.min(geometry.io_max.into());
    let len = match geometry.boundary {
        Some(boundary) => len.min(boundary - at % boundary),
        None => len,
    };
    u32::try_from(len).expect("at most io_max")
}

#[cold]
fn failure(name: &Arc<str>, request: &Request, errno: Option<Errno>) -> BlockError {
    let (op, device, at, len) = (request.op, name.clone(), request.at, request.len.into());
    match errno {
        Some(source) => BlockError::Io {
            op,
            device,
            at,
            len,
            source,
        },
        None if op == Op::Read => BlockError::CutShort {
            op,
            device,
            at,
            len,
        },
        // No system says why it writes nothing.
        None => BlockError::Io {
            op,
            device,
            at,
            len,
            source: Errno::IO,
        },
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).expect("what counts memory fits in an address")
}

fn to_u32(token: usize) -> u32 {
    u32::try_from(token).expect("fewer than 2^32 pieces")
}
