//! Address handles: where datagrams go when their numbers come round again.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use nic_soft::SoftNic;
use verbs::typed::{
    CompletionQueue, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Ud, Wr,
};
use verbs::{Access, Gid, Qkey, RecvWr, Wc};

use crate::pair;

const QKEY: Qkey = Qkey(3);
/// Numbers of address handles.
const NUMBERS: usize = 1 << 20;

/// Somebody at an address of his own, who can be sent datagrams and has one RECV posted.
struct Node {
    ud: QueuePair<Ud>,
    cq: CompletionQueue,
    context: Context,
    pd: ProtectionDomain,
    _memory: MemoryRegion,
}

impl Node {
    fn new(run_dir: &std::path::Path, last: u8) -> Self {
        let gid = Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, last));
        let nic = SoftNic::open(&pair::options(run_dir).gid(gid)).expect("an adapter");
        let context = Context::new(nic);
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(8).expect("a queue");
        let mut ud: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        let memory = pd.allocate(4096, Access::LOCAL_WRITE).expect("memory");
        let sges = [memory.sge(0..256)];
        ud.post_recv(&[RecvWr { id: 1, sges: &sges }])
            .expect("posted");
        Node {
            ud,
            cq,
            context,
            pd,
            _memory: memory,
        }
    }

    fn gid(&self) -> Gid {
        self.context.gid().expect("a GID")
    }

    fn has_heard(&mut self) -> bool {
        let mut out = [Wc::default()];
        self.cq.poll(&mut out).expect("no overrun") == 1
    }

    fn expect_to_hear(&mut self, what: &str) {
        let began = Instant::now();
        while !self.has_heard() {
            assert!(began.elapsed() < Duration::from_secs(120), "{what}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_number_that_comes_round_again_leads_to_its_new_address() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut here = Node::new(run_dir.path(), 1);
    let (mut old, mut new) = (Node::new(run_dir.path(), 2), Node::new(run_dir.path(), 3));
    // Else a datagram to the wrong address would find nobody.
    assert_eq!(old.ud.num(), new.ud.num());
    let to = old.ud.num();
    let pd = here.pd.clone();
    let first = pd.create_ah(old.gid()).expect("an address");
    let send = |here: &mut Node, ah: &_, text| {
        let wr = Wr::send_inline_to(ah, to, QKEY, text);
        here.ud.post_send(&[wr]).expect("posted");
        here.expect_to_hear("a datagram is sent");
    };
    send(&mut here, &first, b"to the old one");
    old.expect_to_hear("the old one hears it");
    drop(first);
    for _ in 1..NUMBERS {
        drop(pd.create_ah(old.gid()).expect("an address"));
    }
    let again = pd.create_ah(new.gid()).expect("an address");
    send(&mut here, &again, b"to the new one");
    new.expect_to_hear("the new one hears it");
    assert!(!old.has_heard());
}
