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
//! - a WRITE whose bytes are placed out of order is posted as pieces (`pieces`);
//! - a request by a revoked key is posted with a key that nobody has;
//! - completions are kept back here when they are polled (`late`);
//! - a queue pair that is late for its peer is late because its transition to RTR takes its time;
//! - what befalls the NIC as a whole, and events, are noted here (`incident`).
//!
//! Late requests go out on later calls: posts to their queue pair, polls of its completion queues, where
//! those of several queue pairs go in the order of their numbers. Nothing is held back on queue pairs whose
//! completion queues were ever armed, because whoever sleeps makes no more calls. A copy that is still here when its
//! address handle is given back is lost.
//!
//! What happens to a request follows from the seed, its queue pair's ordinal on this NIC, and its index there.
//!
//! Cost: a lock and an allocation here and there; this is for tests. While datagrams can be late
//! or repeated, send queues and completion queues are made deeper, so that they are not full
//! earlier than without faults, and requests whose numbers start with the bytes `fa 17 d0 b1` are
//! this layer's. While requests can be lost (UC) or fail (RC), the signaled ones under way on a queue
//! pair need numbers of their own, by which this layer finds their completions.

mod incident;
mod late;
mod pieces;
mod plan;
mod qp;
mod small;
mod spec;

pub use incident::Outside;
pub use late::Held;
pub use plan::{Chance, ConnectionFaults, Fault, FaultPlan, Scripted};
pub use small::{Small, Token};

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::wrap::{Control, Layer, Made, Wrap};
use crate::attr::{Access, CqInit, DeviceAttr, PortAttr, QpAttr, QpInit, QpState, SrqInit};
use crate::error::{CqError, VerbsError};
use crate::names::{AhNum, CqNum, Lkey, PdNum, QpNum, VendorErr};
use crate::nic::{AsyncEvent, Nic, NicCq, NicMr, NicSrq, QpCtl, QpParts};
use crate::polled::Polled;
use crate::wc::{Wc, WcOpcode, WcStatus};
use crate::wr::Sge;
use incident::{Condition, Unknown};
use pieces::PIECES_MAX;
use plan::Random;
use qp::{Core, FaultyCtl, FaultySend};
use small::Living;

/// A NIC on which things go wrong.
pub type Faulty = Wrap<Faults>;

impl Faulty {
    /// Lets things go wrong on a NIC.
    ///
    /// # Errors
    /// What the NIC says when asked for a protection domain and a small region of it.
    pub fn new(nic: Arc<dyn Nic>, plan: FaultPlan) -> Result<Self, VerbsError> {
        Faulty::within(nic, plan, Box::new(Unknown))
    }

    /// As [`new`](Faulty::new), with what is needed of the process.
    ///
    /// # Errors
    /// As there.
    pub fn within(
        nic: Arc<dyn Nic>,
        plan: FaultPlan,
        outside: Box<dyn Outside>,
    ) -> Result<Self, VerbsError> {
        let foreign = Foreign::new(&nic)?;
        let control = (Random(plan.seed), 0);
        let faults = Faults {
            shared: Arc::new(Shared {
                replies_first: plan.replies_first(),
                late_completions: plan.burst > 1 || plan.replies_first(),
                condition: Condition::new(outside),
                qps_made: AtomicU64::new(0),
                mrs_asked: AtomicU64::new(0),
                rtrs_asked: AtomicU64::new(0),
                living: Mutex::default(),
                peers_wait: Mutex::default(),
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
    qps: Mutex<BTreeMap<u32, Known>>,
    condition: Condition,
    /// Queue pairs made so far, by which each has an ordinal.
    qps_made: AtomicU64,
    /// Registrations asked for so far.
    mrs_asked: AtomicU64,
    /// Transitions to RTR asked for so far.
    rtrs_asked: AtomicU64,
    /// What there is of a small device's objects: queue pairs, completion queues, shared receive queues.
    living: Mutex<[Living; 3]>,
    /// Whether peers were told to wait, as long as the NIC stands still.
    peers_wait: Mutex<bool>,
    replies_first: bool,
    /// Whether completions may be kept back.
    late_completions: bool,
    /// Completions that are to look different.
    rewrites: Mutex<Vec<Rewrite>>,
}

/// A queue pair, as it is found by its number.
struct Known {
    core: Weak<Mutex<Core>>,
    /// To have it fail while somebody posts.
    ctl: Weak<dyn QpCtl>,
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
        self.plan.repeats_datagrams() || self.plan.places_in_pieces()
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

    /// A queue pair is about to be ready for its peer, which may know already.
    fn wait_before_rtr(&self) {
        let nth = self.rtrs_asked.fetch_add(1, Ordering::Relaxed);
        // Other sequences than queue pairs have.
        if self.plan.late_rtr.strikes(self.plan.seed, 3 << 40, nth) {
            self.condition.pause(self.plan.wait_ms);
        }
    }

    fn core(&self, qpn: QpNum) -> Option<Arc<Mutex<Core>>> {
        lock(&self.qps).get(&qpn.0)?.core.upgrade()
    }

    /// All queue pairs.
    fn cores(&self) -> Vec<Arc<Mutex<Core>>> {
        let qps = lock(&self.qps);
        qps.values().filter_map(|qp| qp.core.upgrade()).collect()
    }

    /// The device fails, with all of its queue pairs.
    fn fail(&self) {
        if !self.condition.fail() {
            return;
        }
        let ctls: Vec<_> = lock(&self.qps)
            .values()
            .filter_map(|qp| qp.ctl.upgrade())
            .collect();
        for ctl in ctls {
            // One that is not connected has nothing to flush, and stays as it is.
            let _ = ctl.modify(&QpAttr::to(QpState::Err));
        }
    }

    /// The NIC stands still for so many calls.
    fn freeze(&self, calls: u32) {
        self.condition.freeze(calls);
        self.keep_peers();
    }

    /// A call was made.
    fn pass_time(&self) {
        if self.condition.tick() {
            self.keep_peers();
        }
    }

    /// Has peers wait, or go on, as the NIC stands still or does not.
    #[cold]
    fn keep_peers(&self) {
        let mut peers_wait = lock(&self.peers_wait);
        let is_frozen = self.condition.is_frozen();
        if *peers_wait != is_frozen {
            *peers_wait = is_frozen;
            self.foreign.nic.keep_peers_waiting(is_frozen);
        }
    }

    /// Whoever made these calls is about to sleep: nothing waits for further ones.
    fn end_waiting(&self, cq: CqNum) {
        self.condition.sleeps_on(cq);
        if self.condition.end_waiting() {
            self.keep_peers();
        }
        for qp in self.cores() {
            let mut core = lock(&qp);
            if core.completes_on(cq) {
                core.let_go();
            }
        }
    }

    /// Time passes for the queue pairs of a completion queue.
    fn tick(&self, cq: CqNum) {
        self.pass_time();
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
                lock(&core).sent_own(wc);
            }
            return false;
        }
        // A receive completion may have the same number as a send work request.
        if wc.is_ok() && matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm) {
            return true;
        }
        if wc.status == WcStatus::WrFlushErr
            && let Some(core) = self.core(wc.qpn)
            && let Some((status, vendor_err)) = lock(&core).take_blame()
        {
            // It is the rest of a request whose beginning has failed.
            (wc.status, wc.vendor_err) = (status, vendor_err);
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
    type Ctl = Option<Token>;
    type Send = ();
    type Recv = Option<Token>;
    type Cq = Held;

    fn device(&self, mut device: DeviceAttr) -> DeviceAttr {
        if self.shared.plan.is_small {
            Small::DEVICE.shrink(&mut device);
        }
        device
    }

    fn port(&self, mut port: PortAttr) -> PortAttr {
        self.shared.condition.dress(&mut port);
        port
    }

    fn async_fd<'a>(&'a self, nic: &'a dyn Nic) -> Option<BorrowedFd<'a>> {
        self.shared.condition.async_fd().or_else(|| nic.async_fd())
    }

    fn async_event(&self, nic: &dyn Nic) -> Option<AsyncEvent> {
        let own = self.shared.condition.take_event();
        own.or_else(|| nic.async_event())
    }

    fn acknowledge(&self, nic: &dyn Nic, event: AsyncEvent) {
        if !Condition::is_own(event) {
            nic.acknowledge(event);
        }
    }

    fn make_qp(
        &self,
        nic: &dyn Nic,
        init: &QpInit,
    ) -> Result<(QpParts, (Option<Token>, (), Option<Token>)), VerbsError> {
        let token = self.count(QPS, Small::DEVICE.qp_max, || {
            Small::DEVICE.check_qp(&init.caps)
        })?;
        let shared = Arc::clone(&self.shared);
        let (core, recv) = Core::new(nic, init, shared)?;
        let (num, transport) = (core.num(), init.transport);
        let inner = core.ctl();
        let core = Arc::new(Mutex::new(core));
        let mut qps = lock(&self.shared.qps);
        qps.retain(|_, qp| qp.core.strong_count() > 0);
        let known = Known {
            core: Arc::downgrade(&core),
            ctl: Arc::downgrade(&inner),
        };
        qps.insert(num.0, known);
        let send = FaultySend {
            core: Arc::clone(&core),
        };
        let ctl = FaultyCtl {
            core,
            num,
            transport,
            shared: Arc::clone(&self.shared),
        };
        let parts = QpParts::new(Arc::new(ctl), Box::new(send), recv);
        Ok((parts, (token, (), None)))
    }

    fn make_cq(&self, nic: &dyn Nic, init: &CqInit) -> Result<Made<dyn NicCq, Held>, VerbsError> {
        let token = self.count(CQS, Small::DEVICE.cq_max, || {
            Small::DEVICE.check_cq(init.depth)
        })?;
        let depth = self.deepened(nic, init.depth);
        Ok((
            nic.create_cq(&CqInit { depth, ..*init })?,
            Held::with(token),
        ))
    }

    fn make_srq(
        &self,
        nic: &dyn Nic,
        init: &SrqInit,
    ) -> Result<Made<dyn NicSrq, Option<Token>>, VerbsError> {
        let token = self.count(SRQS, Small::DEVICE.srq_max, || {
            Small::DEVICE.check_srq(init)
        })?;
        Ok((nic.create_srq(init)?, token))
    }

    fn control(&self, call: Control) -> Result<(), VerbsError> {
        let plan = &self.shared.plan;
        if self.shared.condition.has_failed() {
            let error = std::io::Error::other("it has failed, by plan");
            return Err(VerbsError::io("asking the device", error));
        }
        if matches!(call, Control::Register | Control::Allocate) {
            self.register()?;
        }
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
        if self.shared.injects() || self.shared.plan.is_small {
            let mut regions = lock(&self.shared.regions);
            regions.retain(|_, region| region.strong_count() > 0);
            regions.insert(mr.lkey().0, Arc::downgrade(mr));
        }
    }

    fn exchanged_keys(&self, one: Lkey, other: Lkey) {
        let mut regions = lock(&self.shared.regions);
        let (first, second) = (regions.remove(&one.0), regions.remove(&other.0));
        regions.extend(first.map(|region| (other.0, region)));
        regions.extend(second.map(|region| (one.0, region)));
    }

    fn poll(
        &self,
        held: &mut Held,
        cq: &mut dyn NicCq,
        out: &mut Polled,
    ) -> Result<usize, CqError> {
        self.shared.tick(cq.num());
        if self.shared.condition.is_frozen() {
            out.clear();
            return Ok(0);
        }
        loop {
            let polled = cq.poll(out)?;
            out.retain(|wc| self.shared.dress(wc));
            let lends = out.iter().any(|(_, lent)| lent.is_some());
            if self.shared.late_completions && !lends {
                held.pass(&self.shared, cq.num(), out);
                return Ok(out.completions().len());
            }
            let kept = out.completions().len();
            // Zero has to mean that there was nothing.
            if kept > 0 || polled == 0 {
                return Ok(kept);
            }
        }
    }

    fn arm(
        &self,
        held: &mut Held,
        cq: &mut dyn NicCq,
        solicited_only: bool,
    ) -> Result<(), VerbsError> {
        held.arm();
        cq.arm(solicited_only)?;
        // Behind that, so that what completes by it makes an event.
        self.shared.end_waiting(cq.num());
        Ok(())
    }

    fn resize(&self, _held: &mut Held, cq: &mut dyn NicCq, depth: u32) -> Result<(), VerbsError> {
        if self.shared.plan.is_small {
            Small::DEVICE.check_cq(depth)?;
        }
        cq.resize(self.deepened(&*self.shared.foreign.nic, depth))
    }
}

/// Kinds of objects that are counted.
const QPS: (usize, &str) = (0, "queue pairs");
const CQS: (usize, &str) = (1, "completion queues");
const SRQS: (usize, &str) = (2, "shared receive queues");

impl Faults {
    /// Counts one more object of a small device.
    fn count(
        &self,
        (kind, what): (usize, &'static str),
        max: u32,
        check: impl FnOnce() -> Result<(), VerbsError>,
    ) -> Result<Option<Token>, VerbsError> {
        if !self.shared.plan.is_small {
            return Ok(None);
        }
        check()?;
        lock(&self.shared.living)[kind].add(what, max).map(Some)
    }

    /// How deep a completion queue is made that is to have this depth, so that this layer's own requests find room.
    fn deepened(&self, nic: &dyn Nic, depth: u32) -> u32 {
        let cqe_max = nic.device().cqe_max;
        if !self.shared.injects() || depth > cqe_max {
            return depth;
        }
        // Of a WRITE each piece completes where it fails.
        let factor = match self.shared.plan.places_in_pieces() {
            true => PIECES_MAX as u32,
            false => 2,
        };
        depth.saturating_mul(factor).saturating_add(64).min(cqe_max)
    }

    /// Whether one more region may be registered.
    fn register(&self) -> Result<(), VerbsError> {
        let plan = &self.shared.plan;
        let nth = self.shared.mrs_asked.fetch_add(1, Ordering::Relaxed);
        if plan.refuse_mr.strikes(plan.seed, u64::MAX, nth) {
            let what = "memory regions, by plan";
            return Err(VerbsError::Exhausted { what, max: nth });
        }
        let mut regions = lock(&self.shared.regions);
        regions.retain(|_, region| region.strong_count() > 0);
        let max = Small::DEVICE.mr_max;
        if plan.is_small && regions.len() >= max as usize {
            let (what, max) = ("memory regions", max.into());
            return Err(VerbsError::Exhausted { what, max });
        }
        Ok(())
    }
}
