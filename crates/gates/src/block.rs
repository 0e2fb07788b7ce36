//! A block device that takes no time: what `block` itself costs a read.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use anyhow::ensure;
use block::{Buf, Disk, Null, Transfer};
use gates::Mark;

use crate::Path;
use crate::tell::mark;

const BATCH: usize = 32;

pub(crate) struct Block {
    disk: Disk,
    bufs: Vec<Buf>,
    reads: Vec<Transfer>,
    random: fastrand::Rng,
}

impl Block {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let disk = Disk::open(&Null(1 << 30), BATCH)?;
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
