//! A block device that takes no time: what `block` itself costs a read.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use anyhow::{Context as _, ensure};
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
        for at in places {
            let buf = self.bufs.pop().context("as many buffers as reads")?;
            // It stays where it is until it ends, as in the future of a task that awaits it.
            self.reads.push(self.disk.read(buf, at));
        }
        for read in &mut self.reads {
            // As a task does that has just asked.
            let asked = Pin::new(read).poll(&mut cx);
            ensure!(asked.is_pending(), "nothing ends before it is polled");
        }
        self.disk.poll();
        for read in &mut self.reads {
            match Pin::new(read).poll(&mut cx) {
                Poll::Ready((Ok(()), buf)) => self.bufs.push(buf),
                Poll::Ready((Err(error), _)) => return Err(error.into()),
                Poll::Pending => anyhow::bail!("a read that did not end"),
            }
        }
        self.reads.clear();
        mark(Mark::Nobody);
        Ok(())
    }
}
