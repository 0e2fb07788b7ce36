//! Counting what passes through a NIC.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::trace::accepted;
use super::wrap::{Layer, Made, Wrap};
use crate::attr::{CqInit, QpAttr, QpInit, SrqInit};
use crate::batch::{RecvBatch, SendBatch};
use crate::error::{CqError, PostError, VerbsError};
use crate::names::{CqNum, QpNum, SrqNum};
use crate::nic::{Nic, NicCq, NicSrq, QpCtl, QpParts, RecvHalf, SendHalf};
use crate::polled::Polled;
use crate::wc::{WcOpcode, WcStatus};

/// A NIC that counts.
///
/// Each object has counters of its own, written by its owner only with plain loads and stores, and
/// summed when somebody asks.
pub type Counted = Wrap<Count>;

impl Counted {
    /// Counts what passes through a NIC.
    pub fn new(nic: Arc<dyn Nic>) -> Self {
        Wrap::around(nic, Count::default())
    }

    /// The sums over all objects, those that are gone included.
    pub fn counts(&self) -> Counts {
        let table = self.layer().lock();
        let mut sum = table.gone;
        for (_, cells) in &table.alive {
            cells.add_to(&mut sum);
        }
        sum
    }

    /// The counters of each object that has not been dropped.
    pub fn by_object(&self) -> Vec<(Object, Counts)> {
        let table = self.layer().lock();
        let mut all: Vec<(Object, Counts)> = Vec::new();
        for (object, cells) in &table.alive {
            // A queue pair's parts have counters of their own.
            let known = all.iter().position(|(one, _)| one == object);
            let index = known.unwrap_or_else(|| {
                all.push((*object, Counts::default()));
                all.len() - 1
            });
            cells.add_to(&mut all[index].1);
        }
        all
    }
}

/// An object that has counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Object {
    /// A queue pair.
    Qp(QpNum),
    /// A completion queue.
    Cq(CqNum),
    /// A shared receive queue.
    Srq(SrqNum),
}

/// Values of [`WcStatus`].
const STATUSES: usize = WcStatus::GeneralErr as usize + 1;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// What was counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct Counts {
            $( $(#[$doc])* pub $name: u64, )*
            /// Completions polled, by the number of their [`WcStatus`].
            pub completions: [u64; STATUSES],
        }

        /// One object's counters.
        #[derive(Debug, Default)]
        struct Cells {
            $( $name: Cell, )*
            completions: [Cell; STATUSES],
        }

        impl Cells {
            fn add_to(&self, counts: &mut Counts) {
                $( counts.$name += self.$name.read(); )*
                for (sum, cell) in counts.completions.iter_mut().zip(&self.completions) {
                    *sum += cell.read();
                }
            }
        }
    };
}

counters! {
    /// Calls that posted send work requests.
    send_batches
    /// Send work requests accepted.
    sends
    /// Bytes of their payloads.
    send_bytes
    /// Calls that posted RECVs.
    recv_batches
    /// RECVs accepted.
    recvs
    /// Calls of either kind that stopped at a request that was not accepted.
    refusals
    /// State changes asked for.
    modifies
    /// Polls that found nothing.
    polls_empty
    /// Polls that found completions.
    polls_full
    /// Bytes of successful completions: received, read or swapped.
    completion_bytes
    /// Times that a completion queue was armed.
    arms
}

impl Counts {
    /// Completions polled with a status.
    pub fn completed(&self, status: WcStatus) -> u64 {
        self.completions[status as usize]
    }
}

/// A counter with one writer: adding is a load and a store, without a locked instruction.
#[derive(Default)]
struct Cell(AtomicU64);

impl Cell {
    #[inline]
    fn add(&self, more: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(more);
        self.0.store(sum, Ordering::Relaxed);
    }

    /// Adds where several threads may.
    fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

/// The layer of [`Counted`].
#[derive(Debug, Default)]
pub struct Count {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    alive: Vec<(Object, Arc<Cells>)>,
    gone: Counts,
}

impl Count {
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, object: Object) -> Kept {
        let cells = Arc::new(Cells::default());
        self.lock().alive.push((object, Arc::clone(&cells)));
        Kept {
            cells,
            table: Arc::clone(&self.table),
        }
    }
}

/// An object's counters; dropping them adds them to those of objects that are gone.
#[derive(Debug)]
pub struct Kept {
    cells: Arc<Cells>,
    table: Arc<Mutex<Table>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table
            .alive
            .retain(|(_, cells)| !Arc::ptr_eq(cells, &self.cells));
        self.cells.add_to(&mut table.gone);
    }
}

impl Layer for Count {
    type Ctl = Kept;
    type Send = Kept;
    type Recv = Kept;
    type Cq = Kept;

    fn make_qp(
        &self,
        nic: &dyn Nic,
        init: &QpInit,
    ) -> Result<(QpParts, (Kept, Kept, Kept)), VerbsError> {
        let qp = nic.create_qp(init)?;
        let add = || self.add(Object::Qp(qp.num()));
        let kept = (add(), add(), add());
        Ok((qp, kept))
    }

    fn make_cq(&self, nic: &dyn Nic, init: &CqInit) -> Result<Made<dyn NicCq, Kept>, VerbsError> {
        let cq = nic.create_cq(init)?;
        let kept = self.add(Object::Cq(cq.num()));
        Ok((cq, kept))
    }

    fn make_srq(
        &self,
        nic: &dyn Nic,
        init: &SrqInit,
    ) -> Result<Made<dyn NicSrq, Kept>, VerbsError> {
        let srq = nic.create_srq(init)?;
        let kept = self.add(Object::Srq(srq.num()));
        Ok((srq, kept))
    }

    fn modify(&self, kept: &Kept, ctl: &dyn QpCtl, attr: &QpAttr) -> Result<(), VerbsError> {
        kept.cells.modifies.add_shared(1);
        ctl.modify(attr)
    }

    #[inline]
    fn post_send(
        &self,
        kept: &mut Kept,
        half: &mut dyn SendHalf,
        batch: &SendBatch,
    ) -> Result<(), PostError> {
        let posted = half.post(batch);
        let done = &batch.wqes()[..accepted(batch.len(), &posted)];
        let bytes: u64 = done.iter().map(|wqe| u64::from(wqe.len())).sum();
        let cells = &kept.cells;
        cells.send_batches.add(1);
        cells.sends.add(done.len() as u64);
        cells.send_bytes.add(bytes);
        cells.refusals.add(u64::from(posted.is_err()));
        posted
    }

    #[inline]
    fn post_recv(
        &self,
        kept: &mut Kept,
        half: &mut dyn RecvHalf,
        batch: &RecvBatch,
    ) -> Result<(), PostError> {
        let posted = half.post(batch);
        let cells = &kept.cells;
        cells.recv_batches.add(1);
        cells.recvs.add(accepted(batch.len(), &posted) as u64);
        cells.refusals.add(u64::from(posted.is_err()));
        posted
    }

    #[inline]
    fn poll(
        &self,
        kept: &mut Kept,
        cq: &mut dyn NicCq,
        out: &mut Polled,
    ) -> Result<usize, CqError> {
        let count = cq.poll(out)?;
        let cells = &kept.cells;
        if count == 0 {
            cells.polls_empty.add(1);
            return Ok(0);
        }
        cells.polls_full.add(1);
        for wc in out.completions() {
            cells.completions[wc.status as usize].add(1);
            // What was sent or written is counted when posted; its completion has no length.
            if wc.is_ok() && !matches!(wc.opcode, WcOpcode::Send | WcOpcode::Write) {
                cells.completion_bytes.add(wc.byte_len.into());
            }
        }
        Ok(count)
    }

    fn arm(
        &self,
        kept: &mut Kept,
        cq: &mut dyn NicCq,
        solicited_only: bool,
    ) -> Result<(), VerbsError> {
        kept.cells.arms.add(1);
        cq.arm(solicited_only)
    }
}
