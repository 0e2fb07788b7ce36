//! Those who go while nobody has anything more to send them.

use std::path::Path;

use verbs::typed::{
    CompletionChannel, CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain,
    QpOptions, QueuePair, Uc, Ud, Wr,
};
use verbs::{Access, RecvWr, Wc};

use crate::speaker::descriptors;
use crate::victim::{QKEY, until};

/// Somebody whose queue has a channel, so that others hold a bell for it.
struct Node {
    ud: QueuePair<Ud>,
    uc: QueuePair<Uc>,
    cq: CompletionQueue,
    sends: CompletionQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
    _channel: CompletionChannel,
}

impl Node {
    fn new(run_dir: &Path) -> Self {
        let context = Context::new(crate::pair::open(run_dir));
        let pd = context.alloc_pd().expect("a domain");
        let channel = context.create_channel().expect("a channel");
        let cq = context.create_cq_on(64, &channel).expect("a queue");
        let sends = context.create_cq(64).expect("a queue");
        let mut on = QpOptions::on(&cq);
        on.send_cq = sends.num();
        let mut ud: QueuePair<Ud> = pd.create_qp(&on).expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        Node {
            ud,
            uc: pd.create_qp(&on).expect("a queue pair"),
            cq,
            sends,
            memory: pd.allocate(4096, Access::LOCAL_WRITE).expect("memory"),
            pd,
            _channel: channel,
        }
    }

    fn connect(&mut self, peer: &Node) {
        let to = peer.uc.endpoint().expect("a GID");
        let options = ConnectOptions::default();
        self.uc.connect(&to, &options).expect("connected");
    }

    fn post_recvs(&mut self) {
        let sges = [self.memory.sge(0..256)];
        let recv = [RecvWr { id: 1, sges: &sges }];
        self.ud.post_recv(&recv).expect("posted");
        self.uc.post_recv(&recv).expect("posted");
    }

    /// Sends over both queue pairs; it is received.
    fn greet(&mut self, peer: &mut Node) {
        let gid = peer.pd.context().gid().expect("a GID");
        let ah = self.pd.create_ah(gid).expect("an address");
        self.ud
            .post_send(&[Wr::send_inline_to(&ah, peer.ud.num(), QKEY, b"ud")])
            .expect("posted");
        self.uc
            .post_send(&[Wr::send_inline(b"uc")])
            .expect("posted");
        for cq in [&mut self.sends, &mut peer.cq] {
            for _ in 0..2 {
                let mut out = [Wc::default()];
                until("a greeting", || (cq.poll(&mut out) == Ok(1)).then_some(()));
                assert!(out[0].is_ok(), "{out:?}");
            }
        }
    }
}

#[test]
fn one_that_goes_takes_its_descriptors_with_it_though_nobody_sends_again() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut here = Node::new(run_dir.path());
    let before = descriptors();
    for _ in 0..2 {
        let mut there = Node::new(run_dir.path());
        here.connect(&there);
        there.connect(&here);
        there.post_recvs();
        here.greet(&mut there);
        drop(there);
        // Queue pairs here stay as they are, and nobody polls.
        until("the last one's descriptors", || {
            (descriptors() == before).then_some(())
        });
        here.uc = {
            let mut on = QpOptions::on(&here.cq);
            on.send_cq = here.sends.num();
            here.pd.create_qp(&on).expect("a queue pair")
        };
    }
}
