//! What is peculiar to how this NIC sends: what it keeps, how long it leaves that alone, and numbers of
//! queue pairs that come round again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nic_soft::SoftNic;
use verbs::nic::Nic;
use verbs::typed::{
    CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    Rc, Wr,
};
use verbs::{Access, QpAttr, QpCaps, QpState, RecvWr, Wc, WcStatus};

use crate::pair;

const LEN: usize = 1 << 20;

/// One side of a connection.
struct Side {
    nic: Arc<SoftNic>,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    memory: MemoryRegion,
}

fn small() -> QpCaps {
    QpCaps {
        send_wr_max: 8,
        recv_wr_max: 8,
        ..QpCaps::default()
    }
}

impl Side {
    fn new(run_dir: &std::path::Path) -> Self {
        let nic = pair::open(run_dir);
        let context = Context::new(Arc::<SoftNic>::clone(&nic));
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(64).expect("a queue");
        let qp = Side::qp(&pd, &cq);
        let memory = pd.allocate(LEN, Access::LOCAL_WRITE).expect("memory");
        Side {
            nic,
            pd,
            cq,
            qp,
            memory,
        }
    }

    fn qp(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePair<Rc> {
        let caps = small();
        let options = QpOptions {
            caps,
            ..QpOptions::on(cq)
        };
        pd.create_qp(&options).expect("a queue pair")
    }

    fn connect(&mut self, to: &Side, options: &ConnectOptions) {
        let there = to.qp.endpoint().expect("a GID");
        self.qp.connect(&there, options).expect("connected");
    }

    fn post_recv(&mut self, id: u64, len: usize) {
        let sges = [self.memory.sge(0..len)];
        let posted = self.qp.post_recv(&[RecvWr { id, sges: &sges }]);
        posted.expect("room");
    }

    fn poll(&mut self) -> Option<Wc> {
        let mut one = [Wc::default()];
        let count = self.cq.poll(&mut one).expect("no overrun");
        (count == 1).then_some(one[0])
    }

    #[track_caller]
    fn completes(&mut self, id: u64, status: WcStatus) {
        let began = Instant::now();
        loop {
            if let Some(wc) = self.poll() {
                assert_eq!((wc.id, wc.status), (id, status), "{wc:?}");
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "{id} is lost");
            std::thread::yield_now();
        }
    }
}

fn connected(run_dir: &std::path::Path, options: &ConnectOptions) -> (Side, Side) {
    let (mut a, mut b) = (Side::new(run_dir), Side::new(run_dir));
    a.connect(&b, options);
    b.connect(&a, options);
    (a, b)
}

#[test]
fn a_drained_send_queue_ends_what_it_began() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let (mut a, mut b) = connected(run_dir.path(), &ConnectOptions::default());
    b.post_recv(1, LEN);
    b.post_recv(2, LEN);
    // More than goes ahead of its receiver: its beginning is on the way.
    let sges = [a.memory.sge(0..LEN)];
    a.qp.post_send(&[Wr::send(&sges).id(1)]).expect("posted");
    a.qp.modify(&QpAttr::to(QpState::Sqd)).expect("to SQD");
    a.qp.post_send(&[Wr::send_inline(b"kept").id(2)])
        .expect("posted");
    b.completes(1, WcStatus::Success);
    a.completes(1, WcStatus::Success);
    for _ in 0..100 {
        assert_eq!((a.poll(), b.poll()), (None, None), "the queue is drained");
    }
    a.qp.modify(&QpAttr::to(QpState::Rts)).expect("to RTS");
    b.completes(2, WcStatus::Success);
    a.completes(2, WcStatus::Success);
}

#[test]
fn a_peer_without_recv_is_left_alone_for_as_long_as_it_asks() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let options = ConnectOptions {
        min_rnr_timer: 31,
        ..ConnectOptions::default()
    };
    let (mut a, mut b) = connected(run_dir.path(), &options);
    assert_eq!(a.nic.progress(5), None);
    a.qp.post_send(&[Wr::send_inline(b"early").id(1)])
        .expect("posted");
    assert_eq!(a.nic.progress(5), Some(491_520_005));
    // Whoever waits for room is tried again much sooner, though a queue waits for a RECV.
    b.post_recv(1, LEN);
    let sges = [a.memory.sge(0..LEN)];
    a.qp.post_send(&[Wr::send(&sges).id(2)]).expect("posted");
    b.post_recv(2, LEN);
    b.completes(1, WcStatus::Success);
    a.completes(1, WcStatus::Success);
    b.completes(2, WcStatus::Success);
    a.completes(2, WcStatus::Success);
}

#[test]
fn a_request_without_retries_fails_when_there_is_no_recv() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let options = ConnectOptions {
        rnr_retry: 0,
        min_rnr_timer: 0,
        ..ConnectOptions::default()
    };
    let (mut a, _b) = connected(run_dir.path(), &options);
    a.qp.post_send(&[Wr::send_inline(b"early").id(1)])
        .expect("posted");
    let failed = a.poll().map(|wc| (wc.id, wc.status));
    assert_eq!(failed, Some((1, WcStatus::RnrRetryExcErr)));
}

#[test]
fn a_queue_pair_whose_number_comes_round_again_is_connected_anew() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let options = ConnectOptions::default();
    let (mut a, mut b) = connected(run_dir.path(), &options);
    for id in 0..3 {
        b.post_recv(id, 64);
        a.qp.post_send(&[Wr::send_inline(b"to the old one").id(id)])
            .expect("posted");
        b.completes(id, WcStatus::Success);
        a.completes(id, WcStatus::Success);
    }
    let number = b.qp.num();
    b.qp = Side::qp(&b.pd, &b.cq);
    while b.qp.num() != number {
        b.qp = Side::qp(&b.pd, &b.cq);
        // Queue pairs that have gone are let go by their poller.
        assert_eq!(b.poll(), None);
    }
    b.connect(&a, &options);
    // Its RECVs are not those of the old one.
    a.qp.post_send(&[Wr::send_inline(b"too early").id(6)])
        .expect("posted");
    assert_eq!((a.poll(), b.poll()), (None, None), "there is no RECV");
    b.post_recv(6, 64);
    b.completes(6, WcStatus::Success);
    a.completes(6, WcStatus::Success);
    b.post_recv(7, 64);
    a.qp.post_send(&[Wr::send_inline(b"to the new one").id(7)])
        .expect("posted");
    b.completes(7, WcStatus::Success);
    a.completes(7, WcStatus::Success);
}

#[test]
fn a_message_that_has_begun_does_not_go_on_over_a_new_connection() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let options = ConnectOptions::default();
    let (mut a, mut b) = connected(run_dir.path(), &options);
    b.post_recv(1, LEN);
    // More than goes ahead of its receiver: its beginning is on the way.
    let sges = [a.memory.sge(0..LEN)];
    let requests = [Wr::send(&sges).id(1), Wr::send_inline(b"behind").id(2)];
    a.qp.post_send(&requests).expect("posted");
    assert_eq!(a.poll(), None, "nobody reads");
    b.qp.modify(&QpAttr::to(QpState::Reset)).expect("to RESET");
    b.connect(&a, &options);
    b.post_recv(2, LEN);
    a.completes(1, WcStatus::RetryExcErr);
    a.completes(2, WcStatus::WrFlushErr);
    assert_eq!(b.poll(), None, "none of it is received");
}

#[test]
fn a_peer_that_goes_while_it_is_connected_to_is_missed() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let options = ConnectOptions::default();
    let mut a = Side::new(run_dir.path());
    let mut missed = 0;
    for pause in 0..200 {
        // One that waits until the connection stands, so that it is missed on any machine.
        let stands = (pause % 10 == 0).then(|| Arc::new(AtomicBool::new(false)));
        let b = Side::new(run_dir.path());
        let there = b.qp.endpoint().expect("a GID");
        a.qp = Side::qp(&a.pd, &a.cq);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..pause).for_each(|_| std::hint::spin_loop());
                while stands
                    .as_ref()
                    .is_some_and(|stands| !stands.load(Ordering::Acquire))
                {
                    std::thread::yield_now();
                }
                drop(b);
            });
            let connected = a.qp.connect(&there, &options);
            if let Some(stands) = &stands {
                stands.store(true, Ordering::Release);
            }
            if connected.is_err() {
                return; // It had gone before.
            }
            a.post_recv(pause, LEN);
            a.completes(pause, WcStatus::WrFlushErr);
            missed += 1;
        });
    }
    assert!(missed > 0, "it always went too early");
}

#[test]
fn a_sender_that_starts_anew_waits_for_a_recv_that_is_not_used() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let options = ConnectOptions::default();
    let (mut a, mut b) = connected(run_dir.path(), &options);
    for id in 0..3 {
        b.post_recv(id, 64);
        a.qp.post_send(&[Wr::send_inline(b"before").id(id)])
            .expect("posted");
        b.completes(id, WcStatus::Success);
        a.completes(id, WcStatus::Success);
    }
    a.qp.modify(&QpAttr::to(QpState::Reset)).expect("to RESET");
    a.connect(&b, &options);
    a.qp.post_send(&[Wr::send_inline(b"too early").id(3)])
        .expect("posted");
    assert_eq!((a.poll(), b.poll()), (None, None), "there is no RECV");
    b.post_recv(3, 64);
    b.completes(3, WcStatus::Success);
    a.completes(3, WcStatus::Success);
}
