//! A device that has little of everything: programs that take more than they have asked for are found.

use std::sync::{Arc, Weak};

use crate::attr::{DeviceAttr, QpCaps, SrqInit};
use crate::error::VerbsError;

/// What a small device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Small {
    /// Queue pairs.
    pub qp_max: u32,
    /// Work requests in a queue.
    pub qp_wr_max: u32,
    /// Elements in a work request.
    pub sge_max: u32,
    /// Completion queues.
    pub cq_max: u32,
    /// Completions in a queue.
    pub cqe_max: u32,
    /// Memory regions.
    pub mr_max: u32,
    /// Shared receive queues.
    pub srq_max: u32,
    /// READs and atomics under way on a queue pair.
    pub rd_atomic_max: u8,
    /// Bytes inline.
    pub inline_max: u32,
}

impl Small {
    /// The one that there is.
    pub const DEVICE: Small = Small {
        qp_max: 4,
        qp_wr_max: 16,
        sge_max: 1,
        cq_max: 4,
        cqe_max: 32,
        mr_max: 4,
        srq_max: 1,
        rd_atomic_max: 1,
        inline_max: 0,
    };

    /// Takes from a device what it has too much.
    pub(super) fn shrink(self, device: &mut DeviceAttr) {
        let least = |limit: &mut u32, max: u32| *limit = (*limit).min(max);
        least(&mut device.qp_max, self.qp_max);
        least(&mut device.qp_wr_max, self.qp_wr_max);
        least(&mut device.sge_max, self.sge_max);
        least(&mut device.cq_max, self.cq_max);
        least(&mut device.cqe_max, self.cqe_max);
        least(&mut device.mr_max, self.mr_max);
        least(&mut device.srq_max, self.srq_max);
        least(&mut device.srq_wr_max, self.qp_wr_max);
        least(&mut device.srq_sge_max, self.sge_max);
        least(&mut device.inline_max, self.inline_max);
        device.rd_atomic_max = device.rd_atomic_max.min(self.rd_atomic_max);
    }

    /// Whether a queue pair may be so large.
    ///
    /// # Errors
    /// `Limit`.
    pub(super) fn check_qp(self, caps: &QpCaps) -> Result<(), VerbsError> {
        limit("send work requests", caps.send_wr_max, self.qp_wr_max)?;
        limit("RECVs", caps.recv_wr_max, self.qp_wr_max)?;
        limit("send elements", caps.send_sge_max, self.sge_max)?;
        limit("receive elements", caps.recv_sge_max, self.sge_max)?;
        limit("inline bytes", caps.inline_max, self.inline_max)
    }

    /// Whether a completion queue may be so large.
    ///
    /// # Errors
    /// `Limit`.
    pub(super) fn check_cq(self, depth: u32) -> Result<(), VerbsError> {
        limit("completion queue depth", depth, self.cqe_max)
    }

    /// Whether a shared receive queue may be so large.
    ///
    /// # Errors
    /// `Limit`.
    pub(super) fn check_srq(self, init: &SrqInit) -> Result<(), VerbsError> {
        limit("shared RECVs", init.wr_max, self.qp_wr_max)?;
        limit("receive elements", init.sge_max, self.sge_max)
    }
}

fn limit(what: &'static str, value: u32, max: u32) -> Result<(), VerbsError> {
    let (value, max) = (u64::from(value), u64::from(max));
    match value <= max {
        true => Ok(()),
        false => Err(VerbsError::Limit { what, value, max }),
    }
}

/// Kept with an object, so that those that are there can be counted.
pub type Token = Arc<()>;

/// Objects of a kind that are there.
#[derive(Debug, Default)]
pub(super) struct Living(Vec<Weak<()>>);

impl Living {
    /// Notes one more.
    ///
    /// # Errors
    /// `Exhausted` when there are as many as there may be.
    pub(super) fn add(&mut self, what: &'static str, max: u32) -> Result<Token, VerbsError> {
        self.0.retain(|one| one.strong_count() > 0);
        if self.0.len() >= max as usize {
            let max = max.into();
            return Err(VerbsError::Exhausted { what, max });
        }
        let token = Token::default();
        self.0.push(Arc::downgrade(&token));
        Ok(token)
    }
}
