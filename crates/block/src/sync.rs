//! Requests as plain system calls, and a queue that makes them on the caller's thread.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags, pread, pwrite, pwritev2};

use super::file::OpenFile;
use super::{Done, Durable, Op, Queue, Request};
use rt::Arm;

/// Carries a request out with one system call.
///
/// # Safety
/// The request's memory is valid for its length, and nobody else touches it during the call.
pub(super) unsafe fn call(file: &OpenFile, request: &Request) -> Result<u32, Errno> {
    let (fd, len) = (file.as_fd(), request.len as usize);
    let count = match request.op {
        Op::Read => {
            // SAFETY: the caller's promise; buffers are always initialised.
            let memory = unsafe { std::slice::from_raw_parts_mut(request.memory, len) };
            pread(fd, memory, request.at)?
        }
        Op::Write(durable) => {
            // SAFETY: as above.
            let memory = unsafe { std::slice::from_raw_parts(request.memory, len) };
            match durable {
                Durable::No => pwrite(fd, memory, request.at)?,
                Durable::Yes => {
                    let slices = [IoSlice::new(memory)];
                    pwritev2(fd, &slices, request.at, ReadWriteFlags::DSYNC)?
                }
            }
        }
        Op::Flush => {
            rustix::fs::fdatasync(fd)?;
            0
        }
    };
    Ok(u32::try_from(count).expect("no more than the request's length"))
}

/// Makes each call inside of [`Queue::submit`]: for users that block their own thread anyway.
pub(super) struct Blocking {
    file: Arc<OpenFile>,
    done: Vec<Done>,
}

impl Blocking {
    pub(super) fn new(file: Arc<OpenFile>, depth: usize) -> Self {
        Self {
            file,
            done: Vec::with_capacity(depth),
        }
    }
}

// SAFETY: a call has ended, and nothing touches its memory, before its completion is kept.
unsafe impl Queue for Blocking {
    unsafe fn submit(&mut self, requests: &[Request]) {
        for request in requests {
            self.done.push(Done {
                token: request.token,
                // SAFETY: the caller's promise.
                result: unsafe { call(&self.file, request) },
            });
        }
    }

    fn begins_between_polls(&self) -> bool {
        true
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        take(&mut self.done, done)
    }

    fn arm(&mut self) -> Arm<'_> {
        if self.done.is_empty() {
            Arm::Sleep {
                fd: None,
                deadline: None,
            }
        } else {
            Arm::Ready
        }
    }

    fn disarm(&mut self) {}
}

/// Moves as many completions as fit.
pub(super) fn take(from: &mut Vec<Done>, to: &mut [Done]) -> usize {
    let count = from.len().min(to.len());
    for (place, done) in to.iter_mut().zip(from.drain(..count)) {
        *place = done;
    }
    count
}
