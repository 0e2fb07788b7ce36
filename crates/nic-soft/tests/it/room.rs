//! Room for what waits to be polled: how much there is, what is dropped, and that it is given back.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nic_soft::SoftNic;
use verbs::typed::{
    CompletionQueue, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Ud, Wr,
};
use verbs::wr::GRH_LEN;
use verbs::{Access, Qkey, QpCaps, RecvWr, Wc, WcOpcode};

const QKEY: Qkey = Qkey(3);
const LEN: usize = 4096;
const RECVS: u64 = 64;

/// A queue pair for datagrams, and memory for one of them.
struct Node {
    ud: QueuePair<Ud>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    nic: Arc<SoftNic>,
    memory: MemoryRegion,
}

impl Node {
    fn new(run_dir: &Path) -> Self {
        let nic = crate::pair::open(run_dir);
        let context = Context::new(nic.clone());
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(256).expect("a queue");
        let caps = QpCaps {
            recv_wr_max: RECVS as u32,
            ..QpCaps::default()
        };
        let mut ud: QueuePair<Ud> = pd
            .create_qp(&QpOptions::on(&cq).caps(caps))
            .expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        let memory = pd.allocate(2 * LEN, Access::LOCAL_WRITE).expect("memory");
        Node {
            ud,
            cq,
            pd,
            nic,
            memory,
        }
    }

    fn post_recvs(&mut self, count: u64) {
        let sges = [self.memory.sge(0..GRH_LEN + LEN)];
        for id in 0..count {
            self.ud
                .post_recv(&[RecvWr { id, sges: &sges }])
                .expect("posted");
        }
    }

    fn poll(&mut self) -> Option<Wc> {
        let mut out = [Wc::default()];
        (self.cq.poll(&mut out).expect("no overrun") == 1).then_some(out[0])
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(120), "waited for {what}");
        std::thread::yield_now();
    }
}

#[test]
fn datagrams_for_one_who_does_not_poll_take_bounded_room_and_are_counted() {
    const SENT: u64 = 1000;
    let run_dir = tempfile::tempdir().expect("a directory");
    let (mut here, mut there) = (Node::new(run_dir.path()), Node::new(run_dir.path()));
    let gid = there.pd.context().gid().expect("a GID");
    let ah = here.pd.create_ah(gid).expect("an address");
    there.post_recvs(RECVS);
    let (to, its_nic) = (there.ud.num(), there.nic.clone());
    let send = |here: &mut Node| {
        let sges = [here.memory.sge(0..LEN)];
        let wr = Wr::send_to(&ah, to, QKEY, &sges);
        here.ud.post_send(&[wr]).expect("posted");
        let wc = until("a datagram sent", || here.poll());
        assert!(wc.is_ok() && wc.opcode == WcOpcode::Send, "{wc:?}");
    };
    for _ in 0..SENT {
        send(&mut here);
    }
    let unsent = here.nic.usage().unsent;
    assert!(unsent > 0, "there is room without end");
    its_nic.catch_up();
    let lanes = || its_nic.usage().lanes;
    until("the lanes", || (lanes() > 1).then_some(()));
    assert!(lanes() <= 3, "{} lanes for {RECVS} RECVs", lanes());
    for id in 0..RECVS {
        let wc = until("a datagram", || there.poll());
        assert_eq!((wc.id, wc.byte_len as usize), (id, GRH_LEN + LEN));
    }
    // Those behind find no RECV.
    until("the end of the others", || {
        assert_eq!(there.poll(), None);
        (its_nic.usage().unreceived == SENT - unsent - RECVS).then_some(())
    });
    assert_eq!(lanes(), 1, "room is given back");
    there.post_recvs(1);
    send(&mut here);
    until("one more", || there.poll());
    assert_eq!(here.nic.usage().unsent, unsent);
}
