//! Those who go while nobody has anything more to send them.

use std::path::Path;

use verbs::typed::{
    CompletionChannel, CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain,
    QpOptions, QueuePair, Rc, Uc, Ud, Wr,
};
use verbs::{Access, RecvWr, Wc, WcStatus};

use crate::speaker::{descriptors, mappings};
use crate::victim::{Honest, QKEY, until};

/// Somebody whose queue has a channel, so that others hold a bell for it.
struct Node {
    ud: QueuePair<Ud>,
    uc: QueuePair<Uc>,
    cq: CompletionQueue,
    sends: CompletionQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
    channel: CompletionChannel,
}

impl Node {
    fn new(run_dir: &Path) -> Self {
        let context = Context::new(crate::pair::open(run_dir));
        let pd = context.alloc_pd().expect("a domain");
        let channel = context.create_channel().expect("a channel");
        let cq = context.create_cq_on(64, &channel).expect("a queue");
        let sends = context.create_cq(64).expect("a queue");
        let mut on = QpOptions::on(&cq);
        on.send_cq = sends.handle();
        let mut ud: QueuePair<Ud> = pd.create_qp(&on).expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        Node {
            ud,
            uc: pd.create_qp(&on).expect("a queue pair"),
            cq,
            sends,
            memory: pd.allocate(4096, Access::LOCAL_WRITE).expect("memory"),
            pd,
            channel,
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
            on.send_cq = here.sends.handle();
            here.pd.create_qp(&on).expect("a queue pair")
        };
    }
}

/// What a process holds for others.
fn holdings() -> (usize, usize) {
    (descriptors(), mappings("vervain"))
}

/// A process that comes, and our queue pairs that are connected to it.
struct Guest {
    rc: QueuePair<Rc>,
    uc: QueuePair<Uc>,
    its_uc: QueuePair<Uc>,
    it: Honest,
}

impl Guest {
    fn new(mut it: Honest, here: &Node) -> Self {
        let mut its_uc: QueuePair<Uc> = {
            let on = QpOptions::on(&it.cq);
            it.pd.create_qp(&on).expect("a queue pair")
        };
        let mut on = QpOptions::on(&here.cq);
        on.send_cq = here.sends.handle();
        let mut rc = here.pd.create_qp(&on).expect("a queue pair");
        let mut uc: QueuePair<Uc> = here.pd.create_qp(&on).expect("a queue pair");
        let options = ConnectOptions::default();
        it.connect(&mut rc, &options);
        let ends = (uc.endpoint(), its_uc.endpoint());
        uc.connect(&ends.1.expect("a GID"), &options)
            .expect("connected");
        its_uc
            .connect(&ends.0.expect("a GID"), &options)
            .expect("connected");
        Guest { rc, uc, its_uc, it }
    }

    /// Both sides write, and send in each way; all of it arrives.
    fn talk(&mut self, here: &mut Node) {
        let Guest { rc, uc, its_uc, it } = self;
        let sges = [here.memory.sge(0..256)];
        let recv = [RecvWr { id: 1, sges: &sges }];
        here.ud.post_recv(&recv).expect("posted");
        rc.post_recv(&recv).expect("posted");
        uc.post_recv(&recv).expect("posted");
        let sges = [it.memory.sge(0..256)];
        let recv = [RecvWr { id: 1, sges: &sges }];
        it.ud.post_recv(&recv).expect("posted");
        it.qp.post_recv(&recv).expect("posted");
        its_uc.post_recv(&recv).expect("posted");

        let gid = here.pd.context().gid().expect("a GID");
        let ah = here.pd.create_ah(gid).expect("an address");
        let its_ah = it.pd.create_ah(gid).expect("an address");
        let remote = it.memory.remote(512);
        rc.post_send(&[Wr::write_inline(b"rc", remote), Wr::send_inline(b"rc")])
            .expect("posted");
        uc.post_send(&[Wr::write_inline(b"uc", remote), Wr::send_inline(b"uc")])
            .expect("posted");
        let datagram = Wr::send_inline_to(&ah, it.ud.num(), QKEY, b"ud");
        here.ud.post_send(&[datagram]).expect("posted");
        let datagram = Wr::send_inline_to(&its_ah, here.ud.num(), QKEY, b"ud");
        it.ud.post_send(&[datagram]).expect("posted");
        it.qp.post_send(&[Wr::send_inline(b"rc")]).expect("posted");
        its_uc.post_send(&[Wr::send_inline(b"uc")]).expect("posted");

        // What it sent, and what came, complete on one queue there.
        for (cq, completions) in [(&mut here.sends, 5), (&mut here.cq, 3), (&mut it.cq, 6)] {
            for _ in 0..completions {
                let mut out = [Wc::default()];
                until("a message", || (cq.poll(&mut out) == Ok(1)).then_some(()));
                assert!(out[0].is_ok(), "{out:?}");
            }
        }
    }
}

#[test]
fn those_who_go_take_their_mappings_with_them_though_nobody_sends_again() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut here = Node::new(run_dir.path());
    let mut ours = Vec::new();
    for round in 0..2 {
        let guests: Vec<_> = (0..4).map(|_| Honest::start(run_dir.path())).collect();
        // The streams that steer those processes stay.
        let streams: Vec<_> = guests.iter().map(|it| it.pd.clone()).collect();
        let before = holdings();
        let mut guests: Vec<_> = guests.into_iter().map(|it| Guest::new(it, &here)).collect();
        for guest in &mut guests {
            guest.talk(&mut here);
        }
        assert!(holdings().1 >= before.1 + 4 * 4, "{:?}", holdings());
        for (number, guest) in guests.into_iter().enumerate() {
            let Guest { rc, uc, its_uc, it } = guest;
            ours.push((rc, uc));
            if number % 2 == 0 {
                it.kill();
                std::mem::forget(its_uc);
            } else {
                drop((its_uc, it));
            }
        }
        // Our queue pairs stay, and nobody posts to them.
        until(
            "the mappings and descriptors of those who have gone",
            || {
                assert_eq!(here.cq.poll(&mut [Wc::default()]), Ok(0), "{round}");
                (holdings() == before).then_some(())
            },
        );
        std::mem::forget(streams);
    }
    // They are as the queue pairs of those whose peers have gone are.
    for (rc, uc) in &mut ours {
        rc.post_send(&[Wr::send_inline(b"hello?")]).expect("posted");
        uc.post_send(&[Wr::send_inline(b"hello?")]).expect("posted");
        for status in [WcStatus::WrFlushErr, WcStatus::Success] {
            let mut out = [Wc::default()];
            until("its end", || {
                (here.sends.poll(&mut out) == Ok(1)).then_some(())
            });
            assert_eq!(out[0].status, status);
        }
    }
}

#[test]
fn one_that_goes_wakes_those_who_read_its_lanes() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut here = Node::new(run_dir.path());
    let mut it = Honest::start(run_dir.path());
    let before = holdings();
    let sges = [here.memory.sge(0..256)];
    here.ud
        .post_recv(&[RecvWr { id: 1, sges: &sges }])
        .expect("posted");
    let gid = here.pd.context().gid().expect("a GID");
    let ah = it.pd.create_ah(gid).expect("an address");
    it.ud
        .post_send(&[Wr::send_inline_to(&ah, here.ud.num(), QKEY, b"ud")])
        .expect("posted");
    let mut out = [Wc::default()];
    until("a datagram", || {
        (here.cq.poll(&mut out) == Ok(1)).then_some(())
    });
    here.cq.arm(false).expect("it has a channel");
    assert_eq!(here.cq.poll(&mut out), Ok(0));
    assert_eq!(here.channel.event().expect("an event or none"), None);
    std::mem::forget(ah);
    it.kill();
    // Whoever sleeps does not poll before that.
    let event = until("the event", || {
        here.channel.event().expect("an event or none")
    });
    assert_eq!(event, here.cq.num());
    assert_eq!(here.cq.poll(&mut out), Ok(0));
    assert_eq!(holdings(), before);
}
