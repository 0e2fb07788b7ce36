//! A NIC on which things go wrong, by a plan and a seed.
//!
//! Faults are made of what any NIC does, so that order, signaling and flushing stay the NIC's:
//! - a lost datagram is posted with a key that its receiver does not have;
//! - a lost UC request is posted as a WRITE of no bytes, and its completion keeps its own opcode;
//! - a late or repeated datagram is lost first (or sent), and a copy of its bytes, taken when it
//!   was posted, follows later from memory of this layer;
//! - a UC queue pair that stalls holds its requests back, in order; their memory is theirs until
//!   they complete anyway, and inline bytes are copied;
//! - an RC request that fails is posted with an element of another protection domain; the status
//!   of its completion is replaced, and the NIC flushes what is behind it.
//!
//! Late requests go out on later calls: posts to their queue pair, polls of its completion queues, where
//! those of several queue pairs go in the order of their numbers. A copy that is still here when its
//! address handle is given back is lost.
//!
//! Cost: a lock and an allocation here and there; this is for tests. While datagrams can be late
//! or repeated, send queues and completion queues are made deeper, so that they are not full
//! earlier than without faults, and requests whose numbers start with the bytes `fa 17 d0 b1` are
//! this layer's. While requests can be lost (UC) or fail (RC), the signaled ones under way on a queue
//! pair need numbers of their own, by which this layer finds their completions.

mod plan;
mod qp;
mod spec;

pub use plan::{Fault, FaultPlan, Scripted};

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::wrap::{Control, Layer, Made, Wrap};
use crate::attr::{Access, CqInit, QpInit, SrqInit, Transport};
use crate::error::{CqError, VerbsError};
use crate::names::{AhNum, CqNum, Lkey, PdNum, QpNum, VendorErr};
use crate::nic::{Nic, NicCq, NicMr, NicSrq, QpParts};
use crate::polled::Polled;
use crate::wc::{Wc, WcOpcode, WcStatus};
use crate::wr::Sge;
use plan::Random;
use qp::{Core, FaultyCtl, FaultySend};

/// A NIC on which things go wrong.
pub type Faulty = Wrap<Faults>;

impl Faulty {
    /// Lets things go wrong on a NIC.
    ///
    /// # Errors
    /// What the NIC says when asked for a protection domain and a small region of it.
    pub fn new(nic: Arc<dyn Nic>, plan: FaultPlan) -> Result<Self, VerbsError> {
        let foreign = Foreign::new(&nic)?;
        let control = (Random(plan.seed), 0);
        let faults = Faults {
            shared: Arc::new(Shared {
                plan,
                foreign,
                control: Mutex::new(control),
                regions: Mutex::default(),
                qps: Mutex::default(),
                rewrites: Mutex::default(),
            }),
        };
        Ok(Wrap::around(nic, faults))
    }

    /// The plan.
    pub fn plan(&self) -> &FaultPlan {
        &self.layer().shared.plan
    }
}

/// The layer of [`Faulty`].
#[derive(Debug)]
pub struct Faults {
    shared: Arc<Shared>,
}

/// What the layer's objects share.
struct Shared {
    plan: FaultPlan,
    foreign: Foreign,
    /// Random numbers for control calls, and how many there were.
    control: Mutex<(Random, u64)>,
    /// Regions by local key, to copy late datagrams from.
    regions: Mutex<HashMap<u32, Weak<dyn NicMr>>>,
    /// By number, because late requests go out in this order.
    qps: Mutex<BTreeMap<u32, Weak<Mutex<Core>>>>,
    /// Completions that are to look different.
    rewrites: Mutex<Vec<Rewrite>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.plan)
    }
}

/// A region of a protection domain that no queue pair has.
struct Foreign {
    nic: Arc<dyn Nic>,
    pd: PdNum,
    addr: u64,
    lkey: Lkey,
    region: Option<Arc<dyn NicMr>>,
}

impl Foreign {
    fn new(nic: &Arc<dyn Nic>) -> Result<Foreign, VerbsError> {
        let pd = nic.alloc_pd()?;
        let mut foreign = Foreign {
            nic: Arc::clone(nic),
            pd,
            addr: 0,
            lkey: Lkey(0),
            region: None,
        };
        let region = nic.allocate(pd, 64, Access::LOCAL_WRITE)?;
        (foreign.addr, foreign.lkey) = (region.addr(), region.lkey());
        foreign.region = Some(region);
        Ok(foreign)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.region = None;
        // Nothing else was made in it, so that the only refusal is a device that has gone.
        let _ = self.nic.dealloc_pd(self.pd);
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A completion that is to look different, whatever becomes of its request.
#[derive(Clone, Copy, Debug)]
struct Rewrite {
    qpn: QpNum,
    id: u64,
    change: Change,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// A lost SEND, which was posted as a WRITE.
    Opcode(WcOpcode),
    /// A request that was made to fail.
    Status(WcStatus),
}

/// The upper half of the numbers of this layer's own requests; the lower half has an epoch and a slot.
const OWN: u64 = 0xfa17_d0b1;

impl Shared {
    /// Whether this layer posts requests of its own.
    fn injects(&self) -> bool {
        !self.plan.spares(Transport::Ud)
    }

    fn sge_of_foreign(&self) -> Sge {
        Sge {
            addr: self.foreign.addr,
            len: 8,
            lkey: self.foreign.lkey,
        }
    }

    fn rewrite(&self, rewrite: Rewrite) {
        lock(&self.rewrites).push(rewrite);
    }

    /// Takes the latest rewrite of a request back, which was not accepted.
    fn take_back(&self, qpn: QpNum, id: u64) {
        let mut rewrites = lock(&self.rewrites);
        let last = rewrites.iter().rposition(|r| r.qpn == qpn && r.id == id);
        if let Some(index) = last {
            rewrites.remove(index);
        }
    }

    fn forget(&self, qpn: QpNum) {
        lock(&self.rewrites).retain(|rewrite| rewrite.qpn != qpn);
    }

    fn core(&self, qpn: QpNum) -> Option<Arc<Mutex<Core>>> {
        lock(&self.qps).get(&qpn.0).and_then(Weak::upgrade)
    }

    /// All queue pairs.
    fn cores(&self) -> Vec<Arc<Mutex<Core>>> {
        lock(&self.qps).values().filter_map(Weak::upgrade).collect()
    }

    /// Time passes for the queue pairs of a completion queue.
    fn tick(&self, cq: CqNum) {
        for qp in self.cores() {
            let mut core = lock(&qp);
            if core.completes_on(cq) {
                core.tick();
            }
        }
    }

    /// Makes a completion look as it is to look; `false` hides it.
    fn dress(&self, wc: &mut Wc) -> bool {
        if wc.id >> 32 == OWN {
            if let Some(core) = self.core(wc.qpn) {
                lock(&core).sent_copy(wc.id as u32);
            }
            return false;
        }
        // A receive completion may have the same number as a send work request.
        if wc.is_ok() && matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm) {
            return true;
        }
        let mut rewrites = lock(&self.rewrites);
        let fits = |rewrite: &Rewrite| {
            let same = rewrite.qpn == wc.qpn && rewrite.id == wc.id;
            same && match rewrite.change {
                Change::Opcode(_) => wc.is_ok() && wc.opcode == WcOpcode::Write,
                Change::Status(_) => wc.status == WcStatus::LocProtErr,
            }
        };
        if let Some(index) = rewrites.iter().position(fits) {
            match rewrites.remove(index).change {
                Change::Opcode(opcode) => wc.opcode = opcode,
                Change::Status(status) => {
                    // What the NIC said was of the element.
                    (wc.status, wc.vendor_err) = (status, VendorErr::default());
                }
            }
        }
        true
    }
}

impl Layer for Faults {
    type Ctl = ();
    type Send = ();
    type Recv = ();
    type Cq = ();

    fn make_qp(&self, nic: &dyn Nic, init: &QpInit) -> Result<(QpParts, ((), (), ())), VerbsError> {
        let shared = Arc::clone(&self.shared);
        let (core, recv) = Core::new(nic, init, shared)?;
        let (num, transport) = (core.num(), init.transport);
        let core = Arc::new(Mutex::new(core));
        let mut qps = lock(&self.shared.qps);
        qps.retain(|_, qp| qp.strong_count() > 0);
        qps.insert(num.0, Arc::downgrade(&core));
        let send = FaultySend {
            core: Arc::clone(&core),
        };
        let ctl = FaultyCtl {
            core,
            num,
            transport,
        };
        let parts = QpParts::new(Arc::new(ctl), Box::new(send), recv);
        Ok((parts, ((), (), ())))
    }

    fn make_cq(&self, nic: &dyn Nic, init: &CqInit) -> Result<Made<dyn NicCq, ()>, VerbsError> {
        let mut init = *init;
        let cqe_max = nic.device().cqe_max;
        if self.shared.injects() && init.depth <= cqe_max {
            init.depth = init.depth.saturating_mul(2).saturating_add(64).min(cqe_max);
        }
        Ok((nic.create_cq(&init)?, ()))
    }

    fn make_srq(&self, nic: &dyn Nic, init: &SrqInit) -> Result<Made<dyn NicSrq, ()>, VerbsError> {
        Ok((nic.create_srq(init)?, ()))
    }

    fn control(&self, call: Control) -> Result<(), VerbsError> {
        let plan = &self.shared.plan;
        if plan.refuse_ppm == 0 && plan.refuse_nth.is_empty() {
            return Ok(());
        }
        let mut control = lock(&self.shared.control);
        let (random, nth) = (control.0.ppm(), control.1);
        control.1 += 1;
        if random >= plan.refuse_ppm && !plan.refuse_nth.contains(&nth) {
            return Ok(());
        }
        let what = match call {
            Control::Modify => "patience with state changes, by plan",
            _ => "objects, by plan",
        };
        Err(VerbsError::Exhausted { what, max: nth })
    }

    fn drop_ah(&self, ah: AhNum) {
        if self.shared.injects() {
            for qp in self.shared.cores() {
                lock(&qp).lose_copies_to(ah);
            }
        }
    }

    fn made_mr(&self, mr: &Arc<dyn NicMr>) {
        if self.shared.injects() {
            let mut regions = lock(&self.shared.regions);
            regions.retain(|_, region| region.strong_count() > 0);
            regions.insert(mr.lkey().0, Arc::downgrade(mr));
        }
    }

    fn poll(&self, (): &mut (), cq: &mut dyn NicCq, out: &mut Polled) -> Result<usize, CqError> {
        self.shared.tick(cq.num());
        loop {
            let polled = cq.poll(out)?;
            out.retain(|wc| self.shared.dress(wc));
            let kept = out.completions().len();
            // Zero has to mean that there was nothing.
            if kept > 0 || polled == 0 {
                return Ok(kept);
            }
        }
    }
}
