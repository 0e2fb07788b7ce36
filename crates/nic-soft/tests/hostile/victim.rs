//! Those who keep the rules: the adapter that is attacked, and its honest peers.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conformance::remote::RemoteNic;
use nic_soft::SoftNic;
use rustix::process::Pid;
use verbs::typed::{
    CompletionChannel, CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain,
    QpOptions, QueuePair, Rc, Ud, Wr,
};
use verbs::{Access, Qkey, QpNum, RecvWr, Wc};

use crate::pair::{self, Process};

pub(crate) const QKEY: Qkey = Qkey(7);

/// Keeps the tests of this process apart: they count its descriptors and mappings.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that failed spoils nothing for the next.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for what must happen soon.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "waited in vain for {what}"
        );
        std::thread::yield_now();
    }
}

/// An honest peer in a process of its own, with a queue pair for the victim.
pub(crate) struct Honest {
    // The order of dropping: objects, proxy, process.
    pub(crate) qp: QueuePair<Rc>,
    pub(crate) ud: QueuePair<Ud>,
    pub(crate) cq: CompletionQueue,
    pub(crate) memory: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
    process: Process,
}

impl Honest {
    pub(crate) fn start(run_dir: &Path) -> Self {
        let (process, stream): (Process, UnixStream) = pair::child(run_dir);
        let reader = stream.try_clone().expect("cloned");
        let context = Context::new(Arc::new(RemoteNic::new(reader, stream)));
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(64).expect("a queue");
        let options = QpOptions::on(&cq);
        let qp = pd.create_qp(&options).expect("a queue pair");
        let mut ud: QueuePair<Ud> = pd.create_qp(&options).expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        let memory = pd.allocate(4096, Access::EVERYTHING).expect("memory");
        Honest {
            qp,
            ud,
            cq,
            memory,
            pd,
            process,
        }
    }

    /// Ends its process where it stands. What speaks to it stays: dropping that would ask it.
    pub(crate) fn kill(mut self) {
        self.process.0.kill().expect("killed");
        self.process.0.wait().expect("ended");
        std::mem::forget(self);
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process.0)
    }

    pub(crate) fn instance(&self) -> u32 {
        self.qp.num().0 >> 14
    }

    /// Connects its queue pair and one of the victim's.
    pub(crate) fn connect(&mut self, qp: &mut QueuePair<Rc>, options: &ConnectOptions) {
        let (here, there) = (
            qp.endpoint().expect("a GID"),
            self.qp.endpoint().expect("a GID"),
        );
        qp.connect(&there, options).expect("connected");
        self.qp.connect(&here, options).expect("connected");
    }

    /// Sends through its queue pair, and waits for the completion.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.qp
            .post_send(&[Wr::send_inline(bytes)])
            .expect("posted");
        let wc = self.completion("an honest SEND");
        assert!(wc.is_ok(), "{wc:?}");
    }

    pub(crate) fn completion(&mut self, what: &str) -> Wc {
        until(what, || self.poll())
    }

    pub(crate) fn poll(&mut self) -> Option<Wc> {
        let mut out = [Wc::default()];
        (self.cq.poll(&mut out).expect("no overrun") == 1).then_some(out[0])
    }
}

/// A queue pair of the victim that takes datagrams.
pub(crate) struct Datagrams {
    qp: Option<QueuePair<Ud>>,
    pub(crate) num: QpNum,
    cq: CompletionQueue,
    memory: MemoryRegion,
    _pd: ProtectionDomain,
    _channel: CompletionChannel,
}

impl Datagrams {
    pub(crate) fn new(nic: &Arc<SoftNic>) -> Self {
        Datagrams::with_recvs(nic, 16)
    }

    pub(crate) fn with_recvs(nic: &Arc<SoftNic>, recvs: u64) -> Self {
        let context = Context::new(nic.clone());
        let pd = context.alloc_pd().expect("a domain");
        let channel = context.create_channel().expect("a channel");
        let cq = context.create_cq_on(64, &channel).expect("a queue");
        let mut qp: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        qp.activate(QKEY).expect("ready");
        let memory = pd.allocate(4096, Access::LOCAL_WRITE).expect("memory");
        let sges = [memory.sge(0..256)];
        let recvs: Vec<_> = (0..recvs).map(|id| RecvWr { id, sges: &sges }).collect();
        qp.post_recv(&recvs).expect("posted");
        Datagrams {
            num: qp.num(),
            qp: Some(qp),
            cq,
            memory,
            _pd: pd,
            _channel: channel,
        }
    }

    /// As an announcement of a lane names it: number and epoch.
    pub(crate) fn address(&self) -> u64 {
        u64::from(self.num.0) | 1 << 32
    }

    pub(crate) fn poll(&mut self) -> Vec<Wc> {
        let mut out = [Wc::default(); 8];
        let n = self.cq.poll(&mut out).expect("no overrun");
        if let Some(qp) = &mut self.qp {
            for wc in &out[..n] {
                let sges = [self.memory.sge(0..256)];
                qp.post_recv(&[RecvWr {
                    id: wc.id,
                    sges: &sges,
                }])
                .expect("posted");
            }
        }
        out[..n].to_vec()
    }

    pub(crate) fn arm(&mut self) {
        self.cq.arm(false).expect("it has a channel");
    }

    pub(crate) fn drop_queue_pair(&mut self) {
        self.qp = None;
    }
}
