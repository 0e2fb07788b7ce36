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

/// How an operation ended, and the buffer it owned.
pub(super) type Outcome = (Result<(), BlockError>, Option<Buf>);

/// What is known of an operation when its future is polled.
pub(super) enum Polled {
    /// It has ended.
    Ended(Outcome),
    /// It will wake the caller. Whom it would have woken before is the caller's to drop, when nothing is borrowed: the last
    /// waker of a task may drop that, with whatever it holds of this disk.
    Waits(Option<Waker>),
}

struct Operation {
    op: Op,
    at: u64,
    /// Owned by the operation, so by the device, until it has ended.
    buf: Option<Buf>,
    /// Of the buffer, if its pool is the disk's.
    region: Option<Region>,
    len: u64,
    /// Bytes that pieces have been made of.
    issued: u64,
    /// Pieces that have not ended.
    pieces: u32,
    /// In line for more pieces.
    is_waiting: bool,
    /// Boxed, as it is long and rare: operations are moved.
    error: Option<Box<BlockError>>,
    stage: Stage,
}

enum Stage {
    Running(Option<Waker>),
    /// Given up; stays until no piece is under way.
    Orphan,
    Done,
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
    operations: Slab<Operation>,
    /// Of operations that are more than one request, and what is left of requests that were cut short.
    pieces: Slab<Piece>,
    /// Requests that the queue has, or that go once more.
    in_flight: usize,
    /// Operations with pieces to issue, oldest first. Only the first has issued some.
    waiting: VecDeque<Key>,
    /// What has to go once more.
    again: Vec<Request>,
    /// Whom operations that were given up have, of those that the device has something of.
    heirs: Vec<(Key, Waker)>,
}

impl Operations {
    pub(super) fn new(geometry: Geometry, name: Arc<str>, depth: usize) -> Self {
        Self {
            geometry,
            name,
            depth,
            operations: Slab::with_capacity(depth),
            pieces: Slab::with_capacity(depth),
            in_flight: 0,
            waiting: VecDeque::with_capacity(depth),
            again: Vec::with_capacity(depth),
            heirs: Vec::new(),
        }
    }

    /// Nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty()
    }

    /// Puts an operation in line. The caller has checked it.
    pub(super) fn start(
        &mut self,
        op: Op,
        at: u64,
        buf: Option<Buf>,
        region: Option<Region>,
    ) -> Key {
        let len = buf.as_ref().map_or(0, |buf| buf.len() as u64);
        let is_nothing = len == 0 && op != Op::Flush;
        let key = self.operations.insert(Operation {
            op,
            at,
            buf,
            region,
            len,
            issued: 0,
            pieces: 0,
            is_waiting: !is_nothing,
            error: None,
            stage: if is_nothing {
                Stage::Done
            } else {
                Stage::Running(None)
            },
        });
        let key = u32::try_from(key).expect("fewer than 2^32 operations");
        if !is_nothing {
            self.waiting.push_back(key);
        }
        key
    }

    /// The next request to submit, while there is room in the queue.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        if let Some(request) = self.again.pop() {
            return Some(request);
        }
        if self.in_flight >= self.depth {
            return None;
        }
        loop {
            let key = *self.waiting.front()?;
            let operation = &mut self.operations[key as usize];
            if matches!(operation.stage, Stage::Orphan) {
                self.stop_waiting(key);
                let heir = self.end_if_over(key);
                debug_assert!(heir.is_none(), "what is in line has none");
                continue;
            }
            let at = operation.at + operation.issued;
            let rest = operation.len - operation.issued;
            let len = piece_len(&self.geometry, at, rest);
            let memory = match &operation.buf {
                // SAFETY: `issued` is within the buffer.
                Some(buf) => unsafe { buf.start().add(to_usize(operation.issued)) },
                None => std::ptr::null_mut(),
            };
            operation.issued += u64::from(len);
            operation.pieces += 1;
            self.in_flight += 1;
            let mut request = Request {
                token: WHOLE | u64::from(key),
                op: operation.op,
                at,
                memory,
                len,
                region: operation.region,
            };
            if u64::from(len) != operation.len {
                let entry = self.pieces.vacant_entry();
                request.token = entry.key() as u64;
                entry.insert(Piece { key, request });
            }
            if operation.issued == operation.len {
                self.stop_waiting(key);
            }
            return Some(request);
        }
    }

    /// Takes note of a request's end. Who waits for the operation that this ends, or is its heir, is the caller's to wake.
    pub(super) fn complete(&mut self, done: Done) -> Option<Waker> {
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
        let memory = operation.buf.as_ref().map(Buf::start);
        Request {
            token,
            op: operation.op,
            at: operation.at,
            memory: memory.unwrap_or(std::ptr::null_mut()),
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
                self.again.push(request);
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
        self.again.push(request);
    }

    /// The outcome of an operation, which ends it; if it is not there, `waker` will be handed out.
    pub(super) fn poll(&mut self, key: Key, waker: &Waker) -> Polled {
        let operation = &mut self.operations[key as usize];
        match &mut operation.stage {
            Stage::Done => {
                let Operation { error, buf, .. } = self.operations.remove(key as usize);
                Polled::Ended((error.map_or(Ok(()), |error| Err(*error)), buf))
            }
            Stage::Running(Some(old)) if old.will_wake(waker) => Polled::Waits(None),
            Stage::Running(old) => Polled::Waits(old.replace(waker.clone())),
            Stage::Orphan => unreachable!("what was given up has no owner"),
        }
    }

    /// Nobody will ask for this operation again. What the device has not begun is left out. The `heir` is handed out when the
    /// device is done with the rest, or returned if it has nothing of it. Whom the operation would have woken is returned too,
    /// to be dropped as in [`Polled::Waits`].
    #[must_use = "dropped when nothing is borrowed"]
    pub(super) fn give_up(&mut self, key: Key, heir: Option<Waker>) -> [Option<Waker>; 2] {
        let operation = &mut self.operations[key as usize];
        if operation.pieces == 0 {
            return match std::mem::replace(&mut operation.stage, Stage::Orphan) {
                Stage::Running(waker) => [waker, heir],
                Stage::Done => {
                    self.operations.remove(key as usize);
                    [None, heir]
                }
                Stage::Orphan => unreachable!("it is given up once"),
            };
        }
        self.heirs.extend(heir.map(|heir| (key, heir)));
        let stage = std::mem::replace(&mut operation.stage, Stage::Orphan);
        if operation.is_waiting {
            // Some of it has gone: it is the first in line.
            operation.issued = operation.len;
            self.stop_waiting(key);
        }
        match stage {
            Stage::Running(waker) => [waker, None],
            _ => unreachable!("pieces are under way, and it is given up once"),
        }
    }

    /// The first in line has nothing more to issue.
    fn stop_waiting(&mut self, key: Key) {
        let first = self.waiting.pop_front();
        debug_assert_eq!(first, Some(key), "only the first in line issues");
        self.operations[key as usize].is_waiting = false;
    }

    fn end_if_over(&mut self, key: Key) -> Option<Waker> {
        let operation = &mut self.operations[key as usize];
        if operation.pieces > 0 || operation.is_waiting {
            return None;
        }
        match std::mem::replace(&mut operation.stage, Stage::Done) {
            Stage::Running(waker) => waker,
            Stage::Orphan => {
                self.operations.remove(key as usize);
                let heir = self.heirs.iter().position(|(of, _)| *of == key)?;
                Some(self.heirs.swap_remove(heir).1)
            }
            Stage::Done => unreachable!("an operation ends once"),
        }
    }
}

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
