//! A block device that takes no time: what `block` itself costs a read.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use anyhow::ensure;
use block::{BlockError, Buf, Device, Disk, Done, Geometry, Queue, Request, Transfer};
use gates::Mark;
use rt::poller::Arm;

use crate::Path;
use crate::tell::mark;

const BATCH: usize = 32;

/// Ends every request with the next poll.
struct Null;

struct NullQueue(Vec<Done>);

impl Device for Null {
    fn name(&self) -> Arc<str> {
        "null".into()
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            len: 1 << 30,
            block: 512,
            io_max: 1 << 20,
            boundary: None,
        }
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        Ok(Box::new(NullQueue(Vec::with_capacity(depth))))
    }
}

// SAFETY: no memory is touched.
unsafe impl Queue for NullQueue {
    unsafe fn submit(&mut self, requests: &[Request]) {
        self.0.extend(requests.iter().map(|request| Done {
            token: request.token,
            result: Ok(request.len),
        }));
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        let count = self.0.len().min(done.len());
        for (place, done) in done.iter_mut().zip(self.0.drain(..count)) {
            *place = done;
        }
        count
    }

    fn arm(&mut self) -> Arm<'_> {
        Arm::Busy
    }

    fn disarm(&mut self) {}
}

pub(crate) struct Block {
    disk: Disk,
    bufs: Vec<Buf>,
    reads: Vec<Transfer>,
    random: fastrand::Rng,
}

impl Block {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let disk = Disk::open(&Null, BATCH)?;
        Ok(Self {
            bufs: (0..BATCH).map(|_| disk.buffer(4096)).collect(),
            reads: Vec::with_capacity(BATCH),
            disk,
            random: fastrand::Rng::with_seed(1),
        })
    }
}

impl Path for Block {
    fn operations(&self) -> usize {
        BATCH
    }

    fn round(&mut self) -> anyhow::Result<()> {
        let places: [u64; BATCH] = std::array::from_fn(|_| self.random.u64(0..1 << 18) * 4096);
        let mut cx = Context::from_waker(Waker::noop());
        mark(Mark::Server);
        for (buf, at) in self.bufs.drain(..).zip(places) {
            let mut read = self.disk.read(buf, at);
            // As a task does that has just asked.
            let asked = Pin::new(&mut read).poll(&mut cx);
            ensure!(asked.is_pending(), "nothing ends before it is polled");
            self.reads.push(read);
        }
        self.disk.poll();
        for mut read in self.reads.drain(..) {
            match Pin::new(&mut read).poll(&mut cx) {
                Poll::Ready((result, buf)) => {
                    result?;
                    self.bufs.push(buf);
                }
                Poll::Pending => anyhow::bail!("a read that did not end"),
            }
        }
        mark(Mark::Nobody);
        Ok(())
    }
}
