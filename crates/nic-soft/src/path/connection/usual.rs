//! The short way of usual operations, in far fewer instructions: to a peer that was heard of before, in
//! memory that is mapped. Each stops before it has done anything as soon as something is odd.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use verbs::batch::Wqe;
use verbs::{Access, SendBatch, WcOpcode, mem};

use crate::contact::adapter::Adapter;
use crate::memory::mr;
use crate::path::connection::Connection;
use crate::path::remote::{RemoteMemory, Window};

/// Requests of a list between asking for a WRITE's line and writing it.
const AHEAD: usize = 8;

impl Connection {
    /// Carries WRITEs of a batch out, from one on up to the first that is odd, and says how many.
    /// `note` is told of each, and how many there are then; where it says so, that was the last one.
    #[inline(always)]
    pub(crate) fn write_list(
        &mut self,
        batch: &SendBatch,
        from: usize,
        mut note: impl FnMut(&Wqe, usize) -> bool,
    ) -> usize {
        let needed = Access::REMOTE_WRITE;
        let wqes = &batch.wqes()[from..];
        let Some(link) = &mut self.link else {
            return 0;
        };
        if !link.is_as_before() || !link.allowed().contains(needed) {
            return 0;
        }
        // One alone is written at once.
        if wqes.len() > 1 {
            let first = wqes.iter().take(AHEAD);
            first.for_each(|wqe| claim(&self.memory, wqe));
        }
        let mut window = Window::NONE;
        let mut done = 0;
        for wqe in wqes {
            if let Some(later) = wqes.get(done + AHEAD) {
                claim(&self.memory, later);
            }
            if !wqe.is_plain_write() {
                break;
            }
            let (bytes, remote) = (batch.inline_bytes(wqe), wqe.remote());
            if !window.is_of(remote.rkey) {
                match self.memory.window(&link.peer, link.pd, remote.rkey, needed) {
                    Some(other) => window = other,
                    None => break,
                }
            }
            let Some(to) = window.place(remote.addr, bytes.len()) else {
                break;
            };
            // SAFETY: the window has checked the place for this length.
            unsafe { mem::place(to, bytes.as_ptr(), bytes.len()) };
            done += 1;
            if !note(wqe, done) {
                break;
            }
        }
        done
    }

    /// A READ, an atomic or a WRITE that has one element; false, and nothing has been done, if anything is odd.
    #[inline(always)]
    pub(crate) fn transfer(
        &mut self,
        adapter: &Adapter,
        pd: u32,
        batch: &SendBatch,
        wqe: &Wqe,
    ) -> bool {
        let (needed, of_element) = match wqe.opcode() {
            WcOpcode::Read => (Access::REMOTE_READ, Access::LOCAL_WRITE),
            WcOpcode::CompareSwap | WcOpcode::FetchAdd => {
                (Access::REMOTE_ATOMIC, Access::LOCAL_WRITE)
            }
            WcOpcode::Write if wqe.imm().is_none() => (Access::REMOTE_WRITE, Access::empty()),
            _ => return false,
        };
        let (Some(link), [sge]) = (&mut self.link, batch.elements(wqe)) else {
            return false;
        };
        if !link.is_as_before() || !link.allowed().contains(needed) {
            return false;
        }
        let (remote, len) = (wqe.remote(), wqe.len() as usize);
        let known = self.memory.known(&link.peer, link.pd, remote, len, needed);
        let Some(theirs) = known else {
            return false;
        };
        let Some(ours) = mr::local(adapter, pd, sge, of_element) else {
            return false;
        };
        match wqe.opcode() {
            WcOpcode::Read => {
                // SAFETY: both places were checked for this length.
                unsafe { mem::fetch(ours, theirs, len) };
                return true;
            }
            WcOpcode::Write => {
                // SAFETY: the same.
                unsafe { mem::place(theirs, ours, len) };
                return true;
            }
            _ => {}
        }
        if !(theirs.addr() | remote.addr as usize).is_multiple_of(8) {
            return false;
        }
        // SAFETY: the place was checked for eight bytes, those of every atomic, and is aligned.
        let word = unsafe { AtomicU64::from_ptr(theirs.cast()) };
        let [first, second] = wqe.operands();
        let before = match wqe.opcode() {
            WcOpcode::CompareSwap => match word.compare_exchange(first, second, AcqRel, Acquire) {
                Ok(before) | Err(before) => before,
            },
            _ => word.fetch_add(first, AcqRel),
        };
        let before = before.to_ne_bytes();
        // SAFETY: the element has these eight bytes and was checked for local writing.
        unsafe { mem::place(ours, before.as_ptr(), 8) };
        true
    }
}

/// Asks for the line that a WRITE will go to, to be written: it may be in the peer's cache, from where
/// it takes as long as carrying out some requests. What else it is asked for costs nothing but time.
#[inline(always)]
fn claim(remote: &RemoteMemory, wqe: &Wqe) {
    if let Some(to) = remote.guess(wqe.remote()) {
        mem::prefetch_to_write(to.wrapping_add((wqe.len() as usize).wrapping_sub(1)));
    }
}
