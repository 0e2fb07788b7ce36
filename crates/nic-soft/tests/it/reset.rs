//! Queue pairs that start anew: while other threads poll and send, and in another process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use verbs::typed::{ConnectOptions, Context, QpOptions, QueuePair, Uc, Ud, Wr};
use verbs::{Access, Qkey, QpAttr, QpCaps, QpState, RecvWr, Wc};

use crate::pair;

const ROUNDS: u64 = 3000;
const DEPTH: u64 = 8;
const QKEY: Qkey = Qkey(7);

#[test]
fn a_queue_pair_starts_anew_under_a_poller_that_takes_its_recvs() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let receiving = Context::new(pair::open(run_dir.path()));
    let sending = Context::new(pair::open(run_dir.path()));
    let pd = receiving.alloc_pd().expect("a domain");
    let mut cq = receiving.create_cq(64).expect("a queue");
    let mut qp: QueuePair<Ud> = pd
        .create_qp(&QpOptions {
            caps: QpCaps {
                recv_wr_max: DEPTH as u32,
                ..QpCaps::default()
            },
            ..QpOptions::on(&cq)
        })
        .expect("a queue pair");
    let memory = pd.allocate(4096, Access::LOCAL_WRITE).expect("memory");
    let sges = [memory.sge(0..64)];
    let their_pd = sending.alloc_pd().expect("a domain");
    let mut their_cq = sending.create_cq(64).expect("a queue");
    let mut their_qp: QueuePair<Ud> = their_pd
        .create_qp(&QpOptions::on(&their_cq))
        .expect("a queue pair");
    their_qp.activate(QKEY).expect("active");
    let ah = their_pd
        .create_ah(receiving.gid().expect("a GID"))
        .expect("an address handle");
    let (qpn, done, taken) = (qp.num(), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let datagram = Wr::send_inline_to(&ah, qpn, QKEY, b"datagram");
                their_qp.post_send(&[datagram]).expect("posted");
                // It takes room in the queue until it is known to be sent.
                their_cq.poll(&mut [Wc::default()]).expect("no overrun");
            }
        });
        scope.spawn(|| {
            let mut completions = [Wc::default(); 4];
            while !done.load(Ordering::Relaxed) {
                let count = cq.poll(&mut completions).expect("no overrun");
                taken.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        for round in 0..ROUNDS {
            qp.activate(QKEY).expect("active");
            // A queue that was not empty would not take as many.
            for id in 0..DEPTH {
                qp.post_recv(&[RecvWr { id, sges: &sges }]).expect("room");
            }
            let before = taken.load(Ordering::Relaxed);
            // Not in every round, so that resets come at every moment.
            while round % 8 == 0 && taken.load(Ordering::Relaxed) < before + 2 {
                std::thread::yield_now();
            }
            let reset = QpAttr::to(QpState::Reset);
            qp.modify(&reset).expect("reset");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn whoever_takes_the_place_of_an_unreliable_sender_is_heard() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let receiving = Context::new(pair::open(run_dir.path()));
    let pd = receiving.alloc_pd().expect("a domain");
    let mut cq = receiving.create_cq(64).expect("a queue");
    let caps = QpCaps {
        recv_wr_max: DEPTH as u32,
        ..QpCaps::default()
    };
    let mut qp: QueuePair<Uc> = pd
        .create_qp(&QpOptions::on(&cq).caps(caps))
        .expect("a queue pair");
    let memory = pd.allocate(4096, Access::LOCAL_WRITE).expect("memory");
    let sges = [memory.sge(0..64)];
    let (own, options) = (qp.endpoint().expect("a GID"), ConnectOptions::default());
    let (mut number, mut next) = (None, 0);
    for sender in 0..3 {
        // It dies at the end of the round, and the next one gets its number.
        let context = Context::new(pair::open(run_dir.path()));
        let pd = context.alloc_pd().expect("a domain");
        let their_cq = context.create_cq(64).expect("a queue");
        let mut theirs: QueuePair<Uc> = pd
            .create_qp(&QpOptions::on(&their_cq))
            .expect("a queue pair");
        let first = *number.get_or_insert(theirs.num());
        assert_eq!(theirs.num(), first, "it has the place of the one before");
        if sender == 0 {
            let to = theirs.endpoint().expect("a GID");
            qp.connect(&to, &options).expect("connected");
        }
        theirs.connect(&own, &options).expect("connected");
        // An odd number, and more than there is room for at once.
        for _ in 0..2 * DEPTH + 3 {
            let recv = RecvWr {
                id: next,
                sges: &sges,
            };
            qp.post_recv(&[recv]).expect("room");
            let message = Wr::send_inline(b"unreliable");
            theirs.post_send(&[message]).expect("posted");
            let mut out = [Wc::default()];
            let began = std::time::Instant::now();
            while cq.poll(&mut out).expect("no overrun") == 0 {
                let waited = began.elapsed().as_secs();
                assert!(waited < 60, "message {next} of sender {sender} is lost");
                std::thread::yield_now();
            }
            assert!(out[0].is_ok() && out[0].id == next, "{:?}", out[0]);
            next += 1;
        }
        drop((theirs, their_cq, pd, context));
        assert_eq!(cq.poll(&mut [Wc::default()]), Ok(0), "all was received");
    }
}
