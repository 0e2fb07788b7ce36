//! A NIC whose messages a test loses, doubles or holds back, one by one.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use verbs::nic::{AsyncEvent, Nic, NicChannel, NicCq, NicMr, NicQp, NicSrq};
use verbs::{
    Access, AhAttr, AhNum, CqInit, DeviceAttr, Mtu, Op, Payload, PdNum, PortAttr, PostError,
    QpAttr, QpInit, QpNum, RecvWr, Rkey, SendFlags, SendWr, SrqInit, Transport, UdDest, VerbsError,
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
            attr.mtu_max = mtu;
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
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.nic.register(pd, start, len, access) }
    }
    fn create_channel(&self) -> Result<Box<dyn NicChannel>, VerbsError> {
        self.nic.create_channel()
    }
    fn create_cq(&self, init: &CqInit) -> Result<Box<dyn NicCq>, VerbsError> {
        self.nic.create_cq(init)
    }
    fn create_srq(&self, init: &SrqInit) -> Result<Box<dyn NicSrq>, VerbsError> {
        self.nic.create_srq(init)
    }
    fn create_qp(&self, init: &QpInit) -> Result<Box<dyn NicQp>, VerbsError> {
        Ok(Box::new(MeddledQp {
            qp: self.nic.create_qp(init)?,
            script: Arc::clone(&self.script),
            last: Arc::clone(&self.last),
            held: None,
        }))
    }
    fn create_ah(&self, pd: PdNum, attr: &AhAttr) -> Result<AhNum, VerbsError> {
        self.nic.create_ah(pd, attr)
    }
    fn destroy_ah(&self, ah: AhNum) -> Result<(), VerbsError> {
        self.nic.destroy_ah(ah)
    }
    fn async_event(&self) -> Option<AsyncEvent> {
        self.nic.async_event()
    }
}

struct MeddledQp {
    qp: Box<dyn NicQp>,
    script: Script,
    last: Arc<Mutex<Option<Datagram>>>,
    held: Option<(Vec<u8>, UdDest)>,
}

impl std::fmt::Debug for MeddledQp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meddled({:?})", self.qp)
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

impl MeddledQp {
    fn post(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let message = match wr.op {
            Op::Write { imm: Some(_), .. } => Message::Kick,
            Op::Write { .. } => Message::Request,
            _ => Message::Answer,
        };
        let fate = (self.script.lock().unwrap())(message);
        if let (Fate::Lose, Payload::Inline(bytes), Some(to)) = (fate, wr.payload, wr.to) {
            *self.last.lock().unwrap() = Some((self.qp.num(), to, bytes.to_vec()));
        }
        let before = self.held.take();
        match fate {
            Fate::Pass => self.qp.post_send(&[*wr])?,
            Fate::Lose => self.qp.post_send(&[astray(wr)])?,
            Fate::Double => {
                let mut again = *wr;
                again.flags.remove(SendFlags::SIGNALED);
                self.qp.post_send(&[*wr])?;
                let _ = self.qp.post_send(&[again]);
            }
            Fate::Hold => {
                let Payload::Inline(bytes) = wr.payload else {
                    panic!("only inlined datagrams can be held");
                };
                self.held = Some((bytes.to_vec(), wr.to.expect("a datagram")));
                self.qp.post_send(&[astray(wr)])?;
            }
        }
        if let Some((bytes, to)) = before {
            // With a full queue it is lost; the message itself has been posted.
            let _ = self.qp.post_send(&[SendWr {
                id: 0,
                op: Op::Send { imm: None },
                payload: Payload::Inline(&bytes),
                flags: SendFlags::empty(),
                to: Some(to),
            }]);
        }
        Ok(())
    }
}

impl NicQp for MeddledQp {
    fn num(&self) -> QpNum {
        self.qp.num()
    }
    fn transport(&self) -> Transport {
        self.qp.transport()
    }
    fn modify(&mut self, attr: &QpAttr) -> Result<(), VerbsError> {
        self.qp.modify(attr)
    }
    fn query(&self) -> QpAttr {
        self.qp.query()
    }
    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        for (index, wr) in wrs.iter().enumerate() {
            self.post(wr).map_err(|error| PostError {
                index,
                reason: error.reason,
            })?;
        }
        Ok(())
    }
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.qp.post_recv(wrs)
    }
}
