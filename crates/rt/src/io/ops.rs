//! Operations in flight.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Poll, Waker};

use rustix::io::Errno;
use slab::Slab;

use super::{Completion, Descriptor, Op};

/// Names one operation until its completion is taken or it is cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpKey {
    pub(super) index: u32,
    /// Tells apart the operations that use one index in turn.
    pub(super) serial: u32,
}

impl OpKey {
    pub(super) fn to_u64(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.index)
    }

    pub(super) fn from_u64(bits: u64) -> Self {
        let (serial, index) = (bits >> 32, bits & u64::from(u32::MAX));
        Self {
            index: u32::try_from(index).expect("masked to 32 bits"),
            serial: u32::try_from(serial).expect("shifted down to 32 bits"),
        }
    }
}

enum Stage {
    Running(Option<Waker>),
    Done(Result<usize, Errno>),
    /// Cancelled; stays until the kernel has let go of its buffer.
    Orphan,
}

pub(super) struct Slot {
    pub(super) op: Op,
    pub(super) fd: Rc<Descriptor>,
    serial: u32,
    stage: Stage,
}

impl Slot {
    /// Counts `count` more bytes as sent. Whether a whole send has to go on: not without progress,
    /// and not if nobody wants it any more.
    pub(super) fn must_send_more(&mut self, count: usize) -> bool {
        let is_wanted = !matches!(self.stage, Stage::Orphan);
        let Op::Send { buf, at, whole } = &mut self.op else {
            return false;
        };
        *at += count;
        *whole && is_wanted && count > 0 && *at < buf.len()
    }

    /// Closes what an accept has opened, which nobody takes.
    fn let_go(&self) {
        if let (Op::Accept, Stage::Done(Ok(num))) = (&self.op, &self.stage) {
            drop(self.fd.accepted(*num));
        }
    }

    /// Bytes of a send that have gone so far.
    pub(super) fn sent(&self) -> Option<usize> {
        match self.op {
            Op::Send { at, .. } => Some(at),
            _ => None,
        }
    }
}

/// The operations of one core. Memory grows to the most that were ever in flight at once.
#[derive(Default)]
pub(super) struct Ops {
    slots: Slab<Slot>,
    serial: u32,
    running: usize,
}

impl Ops {
    pub(super) fn insert(&mut self, fd: Rc<Descriptor>, op: Op) -> OpKey {
        // The topmost bit is left to the back ends' own completions.
        self.serial = (self.serial + 1) & 0x7fff_ffff;
        self.running += 1;
        let index = self.slots.insert(Slot {
            op,
            fd,
            serial: self.serial,
            stage: Stage::Running(None),
        });
        OpKey {
            index: u32::try_from(index).expect("fewer than 2^32 operations"),
            serial: self.serial,
        }
    }

    /// The operation, if it is still there.
    pub(super) fn slot_mut(&mut self, key: OpKey) -> Option<&mut Slot> {
        self.slots
            .get_mut(key.index as usize)
            .filter(|slot| slot.serial == key.serial)
    }

    /// Operations that the kernel (or a retry) has still to end, orphans included.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Records an end and wakes the task that waits for it; an orphan goes for good.
    pub(super) fn complete(&mut self, key: OpKey, result: Result<usize, Errno>) {
        let Some(slot) = self.slot_mut(key) else {
            return;
        };
        let fd = &slot.fd;
        match std::mem::replace(&mut slot.stage, Stage::Done(result)) {
            Stage::Running(waker) => {
                if let Some(waker) = waker {
                    waker.wake_by_ref();
                    fd.keep_waker(waker);
                }
                self.running -= 1;
            }
            Stage::Orphan => {
                self.running -= 1;
                self.discard(key);
            }
            Stage::Done(_) => unreachable!("an operation ends once"),
        }
    }

    pub(super) fn poll(&mut self, key: OpKey, waker: &Waker) -> Poll<Completion> {
        let slot = self.slot_mut(key).expect("the owner of a key asks");
        match &mut slot.stage {
            Stage::Done(result) => {
                let result = *result;
                let slot = self.slots.remove(key.index as usize);
                Poll::Ready(Completion {
                    result,
                    op: slot.op,
                })
            }
            Stage::Running(Some(old)) if old.will_wake(waker) => Poll::Pending,
            Stage::Running(old) => {
                *old = Some(slot.fd.waker_like(waker));
                Poll::Pending
            }
            Stage::Orphan => unreachable!("a cancelled operation has no owner"),
        }
    }

    /// Gives an operation up; `true` means that it is still running and now an orphan.
    pub(super) fn orphan(&mut self, key: OpKey) -> bool {
        let Some(slot) = self.slot_mut(key) else {
            return false;
        };
        if matches!(slot.stage, Stage::Done(_)) {
            self.discard(key);
            return false;
        }
        slot.stage = Stage::Orphan;
        true
    }

    /// Keys of all operations that still run.
    pub(super) fn keys_running(&self) -> Vec<OpKey> {
        self.slots
            .iter()
            .filter(|(_, slot)| !matches!(slot.stage, Stage::Done(_)))
            .map(|(index, slot)| OpKey {
                index: u32::try_from(index).expect("fewer than 2^32 operations"),
                serial: slot.serial,
            })
            .collect()
    }

    /// Removes an ended operation whose completion nobody takes.
    fn discard(&mut self, key: OpKey) {
        self.slots.remove(key.index as usize).let_go();
    }
}

impl Drop for Ops {
    fn drop(&mut self) {
        self.slots.drain().for_each(|slot| slot.let_go());
    }
}

/// The kernel's descriptor that an accept has opened. Called once for each such completion.
pub(super) fn accepted(fd: usize) -> OwnedFd {
    let fd = RawFd::try_from(fd).expect("descriptors are small");
    // SAFETY: the kernel has just opened it for this accept, and the completion is taken once.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
