//! A NIC whose messages a test loses, doubles or holds back, one by one.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use verbs::batch::{Dest, SendBatch, SendLimits};
use verbs::nic::{AsyncEvent, Nic, NicChannel, NicCq, NicMr, NicSrq, QpParts, SendHalf};
use verbs::{
    Access, AhAttr, AhNum, CqError, CqInit, CqNum, DeviceAttr, Iova, Mtu, Op, Payload, PdNum,
    Polled, PortAttr, PostError, PostReason, QpInit, QpNum, Rkey, SendFlags, SendWr, SrqInit,
    UdDest, VerbsError,
};

/// What happens to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Pass,
    Lose,
    /// Arrives twice (datagrams).
    Double,
    /// Arrives after the next message of the same queue pair (inlined datagrams).
    Hold,
    /// The NIC does not take it, nor those posted with it.
    Refuse,
}

/// What a test can tell a message by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    Request,
    Kick,
    Answer,
}

/// An inlined datagram: from which queue pair, where to, and what.
pub(crate) type Datagram = (QpNum, UdDest, Vec<u8>);

type Script = Arc<Mutex<Box<dyn FnMut(Message) -> Fate + Send>>>;

/// The decorator.
#[derive(Clone)]
pub(crate) struct Meddler {
    nic: Arc<dyn Nic>,
    script: Script,
    last: Arc<Mutex<Option<Datagram>>>,
    mtu: Arc<Mutex<Option<Mtu>>>,
    withholds: Arc<AtomicBool>,
}

impl std::fmt::Debug for Meddler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meddler({:?})", self.nic)
    }
}

impl Meddler {
    pub(crate) fn new(nic: Arc<dyn Nic>) -> Self {
        Meddler {
            nic,
            script: Arc::new(Mutex::new(Box::new(|_| Fate::Pass))),
            last: Arc::default(),
            mtu: Arc::default(),
            withholds: Arc::default(),
        }
    }

    /// From now on the port takes no longer datagrams than this, if one asks it.
    pub(crate) fn set_mtu(&self, mtu: Mtu) {
        *self.mtu.lock().unwrap() = Some(mtu);
    }

    /// The last inlined datagram that was lost.
    pub(crate) fn last_lost(&self) -> Option<Datagram> {
        self.last.lock().unwrap().clone()
    }

    /// Whether from now on completion queues without a channel seem empty.
    pub(crate) fn withhold_completions(&self, withholds: bool) {
        self.withholds.store(withholds, Ordering::Relaxed);
    }

    /// From now on `script` decides.
    pub(crate) fn set(&self, script: impl FnMut(Message) -> Fate + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }
}

impl Nic for Meddler {
    fn device(&self) -> DeviceAttr {
        self.nic.device()
    }
    fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        let mut attr = self.nic.port(port)?;
        if let Some(mtu) = *self.mtu.lock().unwrap() {
            attr.mtu = mtu;
        }
        Ok(attr)
    }
    fn alloc_pd(&self) -> Result<PdNum, VerbsError> {
        self.nic.alloc_pd()
    }
    fn dealloc_pd(&self, pd: PdNum) -> Result<(), VerbsError> {
        self.nic.dealloc_pd(pd)
    }
    fn allocate(
        &self,
        pd: PdNum,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        self.nic.allocate(pd, len, access)
    }
    unsafe fn register(
        &self,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        iova: Iova,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.nic.register(pd, start, len, iova, access) }
    }
    fn create_channel(&self) -> Result<Box<dyn NicChannel>, VerbsError> {
        self.nic.create_channel()
    }
    fn create_cq(&self, init: &CqInit) -> Result<Box<dyn NicCq>, VerbsError> {
        let cq = self.nic.create_cq(init)?;
        if init.channel.is_some() {
            return Ok(cq);
        }
        let withholds = Arc::clone(&self.withholds);
        Ok(Box::new(MeddledCq { cq, withholds }))
    }
    fn create_srq(&self, init: &SrqInit) -> Result<Box<dyn NicSrq>, VerbsError> {
        self.nic.create_srq(init)
    }
    fn create_qp(&self, init: &QpInit) -> Result<QpParts, VerbsError> {
        let qp = self.nic.create_qp(init)?;
        let send = MeddledSend {
            qpn: qp.num(),
            batch: SendBatch::new(qp.send.limits(), 1),
            half: qp.send,
            script: Arc::clone(&self.script),
            last: Arc::clone(&self.last),
            held: None,
        };
        Ok(QpParts::new(qp.ctl, Box::new(send), qp.recv))
    }
    fn create_ah(&self, pd: PdNum, attr: &AhAttr) -> Result<AhNum, VerbsError> {
        self.nic.create_ah(pd, attr)
    }
    fn destroy_ah(&self, ah: AhNum) -> Result<(), VerbsError> {
        self.nic.destroy_ah(ah)
    }
    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.nic.async_fd()
    }
    fn async_event(&self) -> Option<AsyncEvent> {
        self.nic.async_event()
    }
    fn acknowledge(&self, event: AsyncEvent) {
        self.nic.acknowledge(event);
    }
    fn progress(&self, now_ns: u64) -> Option<u64> {
        self.nic.progress(now_ns)
    }
}

#[derive(Debug)]
struct MeddledCq {
    cq: Box<dyn NicCq>,
    withholds: Arc<AtomicBool>,
}

impl NicCq for MeddledCq {
    fn num(&self) -> CqNum {
        self.cq.num()
    }
    fn poll(&mut self, out: &mut Polled) -> Result<usize, CqError> {
        if self.withholds.load(Ordering::Relaxed) {
            out.clear();
            return Ok(0);
        }
        self.cq.poll(out)
    }
    fn arm(&mut self, solicited_only: bool) -> Result<(), VerbsError> {
        self.cq.arm(solicited_only)
    }
}

struct MeddledSend {
    qpn: QpNum,
    half: Box<dyn SendHalf>,
    /// Holds one request on its way to `half`.
    batch: SendBatch,
    script: Script,
    last: Arc<Mutex<Option<Datagram>>>,
    held: Option<(Vec<u8>, UdDest)>,
}

impl std::fmt::Debug for MeddledSend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meddled({:?})", self.half)
    }
}

/// The same request, sent where nobody takes it: it completes and is lost.
fn astray<'a>(wr: &SendWr<'a>) -> SendWr<'a> {
    let mut lost = *wr;
    match &mut lost.op {
        Op::Write { remote, .. } => remote.rkey = Rkey(u32::MAX),
        _ => {
            let to = lost.to.as_mut().expect("a datagram");
            to.qkey.0 ^= 0x5555;
        }
    }
    lost
}

impl MeddledSend {
    fn pass(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        self.batch.clear();
        self.batch.push(wr)?;
        let posted = self.half.post(&self.batch);
        posted.map_err(|error| error.reason)
    }

    fn meddle(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        let message = match wr.op {
            Op::Write { imm: Some(_), .. } => Message::Kick,
            Op::Write { .. } => Message::Request,
            _ => Message::Answer,
        };
        let fate = (self.script.lock().unwrap())(message);
        if let (Fate::Lose, Payload::Inline(bytes), Some(to)) = (fate, wr.payload, wr.to) {
            *self.last.lock().unwrap() = Some((self.qpn, to, bytes.to_vec()));
        }
        let before = self.held.take();
        match fate {
            Fate::Pass => self.pass(wr)?,
            Fate::Refuse => return Err(PostReason::QueueFull),
            Fate::Lose => self.pass(&astray(wr))?,
            Fate::Double => {
                let mut again = *wr;
                again.flags.remove(SendFlags::SIGNALED);
                self.pass(wr)?;
                let _ = self.pass(&again);
            }
            Fate::Hold => {
                let Payload::Inline(bytes) = wr.payload else {
                    panic!("only inlined datagrams can be held");
                };
                self.held = Some((bytes.to_vec(), wr.to.expect("a datagram")));
                self.pass(&astray(wr))?;
            }
        }
        if let Some((bytes, to)) = before {
            // With a full queue it is lost; the message itself has been posted.
            let _ = self.pass(&SendWr {
                id: 0,
                op: Op::Send { imm: None },
                payload: Payload::Inline(&bytes),
                flags: SendFlags::empty(),
                to: Some(to),
            });
        }
        Ok(())
    }
}

impl SendHalf for MeddledSend {
    fn limits(&self) -> SendLimits {
        self.half.limits()
    }
    fn prepare(&mut self, to: &UdDest) -> Result<Dest, VerbsError> {
        self.half.prepare(to)
    }
    fn post(&mut self, batch: &SendBatch) -> Result<(), PostError> {
        for (index, wr) in batch.iter().enumerate() {
            self.meddle(&wr)
                .map_err(|reason| PostError { index, reason })?;
        }
        Ok(())
    }
}
