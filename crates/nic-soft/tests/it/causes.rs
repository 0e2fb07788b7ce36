//! Why requests fail, as completions say it.

use std::path::Path;
use std::sync::Arc;

use nic_soft::{Cause, SoftNic};
use verbs::typed::{
    CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    Rc, Wr,
};
use verbs::{Access, Lkey, RecvWr, RemoteAddr, Rkey, Sge, VendorErr, Wc, WcStatus};

use crate::pair;

struct Side {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    memory: MemoryRegion,
}

impl Side {
    fn new(nic: &Arc<SoftNic>) -> Self {
        let context = Context::new(Arc::<SoftNic>::clone(nic));
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(16).expect("a queue");
        let qp = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        let memory = pd.allocate(4096, Access::EVERYTHING).expect("memory");
        Side { pd, cq, qp, memory }
    }

    fn with(&self, access: Access) -> MemoryRegion {
        self.pd.allocate(4096, access).expect("memory")
    }

    fn of_another_domain(&self) -> MemoryRegion {
        let pd = self.pd.context().alloc_pd().expect("a domain");
        pd.allocate(4096, Access::EVERYTHING).expect("memory")
    }

    fn post_recv(&mut self, sge: Sge) {
        let recv = RecvWr {
            id: 2,
            sges: &[sge],
        };
        self.qp.post_recv(&[recv]).expect("posted");
    }

    fn next(&mut self) -> Wc {
        let mut one = [Wc::default()];
        let start = std::time::Instant::now();
        while self.cq.poll(&mut one).expect("no overrun") == 0 {
            assert!(start.elapsed().as_secs() < 60, "waited for a completion");
            std::thread::yield_now();
        }
        one[0]
    }
}

/// Two connected queue pairs of two adapters. The first one has a second request behind the one that
/// `post` posts, which is flushed.
fn fails(run_dir: &Path, options: &ConnectOptions, post: impl Fn(&mut Side, &mut Side)) -> [Wc; 2] {
    let (here, there) = (pair::open(run_dir), pair::open(run_dir));
    let (mut a, mut b) = (Side::new(&here), Side::new(&there));
    let endpoints = [&a, &b].map(|side| side.qp.endpoint().expect("a GID"));
    a.qp.connect(&endpoints[1], options).expect("connected");
    b.qp.connect(&endpoints[0], options).expect("connected");
    post(&mut a, &mut b);
    let behind = [Wr::send_inline(b"behind").id(9)];
    // It may have failed by now.
    a.qp.post_send(&behind).expect("posted");
    let failed = a.next();
    let flushed = a.next();
    assert_eq!((flushed.id, flushed.status), (9, WcStatus::WrFlushErr));
    assert_eq!(flushed.vendor_err, VendorErr::default());
    let with_recv = [Cause::PeerRecvRoom, Cause::PeerRecvMemory].map(VendorErr::from);
    let received = match with_recv.contains(&failed.vendor_err) {
        true => b.next(),
        false => Wc::default(),
    };
    [failed, received]
}

#[test]
fn a_completion_says_why_its_request_failed() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let options = ConnectOptions {
        rnr_retry: 0,
        ..ConnectOptions::default()
    };
    let expect = |cause: Cause, options: &ConnectOptions, post: &dyn Fn(&mut Side, &mut Side)| {
        let [failed, received] = fails(run_dir.path(), options, post);
        let said = (failed.id, failed.status, failed.vendor_err);
        assert_eq!(said, (1, cause.status(), cause.into()), "{cause:?}");
        received
    };
    let local = |cause, sge: &dyn Fn(&Side) -> Sge| {
        expect(cause, &options, &|a, b| {
            let (sges, remote) = ([sge(a)], b.memory.remote(0));
            let read = Wr::read(&sges, remote).id(1);
            a.qp.post_send(&[read]).expect("posted");
        });
    };
    local(Cause::LocalKey, &|a| Sge {
        lkey: Lkey(a.memory.lkey().0 ^ 0x007f_ff00),
        ..a.memory.sge(0..8)
    });
    let keep = std::cell::RefCell::new(Vec::new());
    let held = |region: MemoryRegion| {
        keep.borrow_mut().push(region.clone());
        region
    };
    local(Cause::LocalDomain, &|a| {
        held(a.of_another_domain()).sge(0..8)
    });
    local(Cause::LocalRange, &|a| Sge {
        len: 9,
        ..a.memory.sge(4088..4096)
    });
    local(Cause::LocalRight, &|a| {
        held(a.with(Access::REMOTE_READ)).sge(0..8)
    });
    let remote = |cause, options: &ConnectOptions, at: &dyn Fn(&Side) -> RemoteAddr| {
        expect(cause, options, &|a, b| {
            let (sges, remote) = ([a.memory.sge(0..8)], at(b));
            let add = Wr::fetch_add(&sges, remote, 1).id(1);
            a.qp.post_send(&[add]).expect("posted");
        });
    };
    remote(Cause::RemoteKey, &options, &|b| RemoteAddr {
        rkey: Rkey(b.memory.rkey().0 ^ 0x007f_ff00),
        ..b.memory.remote(0)
    });
    // Its process gives it to nobody to whom no queue pair of that domain leads.
    remote(Cause::RemoteMemory, &options, &|b| {
        held(b.of_another_domain()).remote(0)
    });
    remote(Cause::RemoteRange, &options, &|b| b.memory.remote(4096));
    remote(Cause::RemoteRight, &options, &|b| {
        held(b.with(Access::REMOTE_READ)).remote(0)
    });
    remote(Cause::Misaligned, &options, &|b| b.memory.remote(4));
    let without = ConnectOptions {
        access: Access::REMOTE_READ,
        ..options
    };
    remote(Cause::QueuePairRight, &without, &|b| b.memory.remote(0));
    let send = |a: &mut Side| {
        let send = Wr::send_inline(b"message").id(1);
        a.qp.post_send(&[send]).expect("posted");
    };
    expect(Cause::NoRecv, &options, &|a, _| send(a));
    let received = expect(Cause::PeerRecvRoom, &options, &|a, b| {
        b.post_recv(b.memory.sge(0..6));
        send(a);
    });
    assert_eq!(received.vendor_err, Cause::RecvRoom.into());
    let received = expect(Cause::PeerRecvMemory, &options, &|a, b| {
        let sge = Sge {
            lkey: Lkey(7),
            ..b.memory.sge(0..64)
        };
        b.post_recv(sge);
        send(a);
    });
    assert_eq!(received.vendor_err, Cause::RecvMemory.into());
}
