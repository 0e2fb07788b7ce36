//! A queue pair that starts anew while other threads poll and send.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use verbs::typed::{Context, QpOptions, QueuePair, Ud, Wr};
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
