//! Queues of RECVs: one thread posts, others take.

use loom::sync::Arc;
use loom::thread;
use verbs::{Lkey, Sge};

use crate::bounded_model;
use crate::shared::recv_queue::{Recv, RecvQueue};

/// Elements that belong together and to the number.
fn sges(id: u64) -> [Sge; 2] {
    [0, 1].map(|which| Sge {
        addr: id * 10 + which,
        len: id as u32,
        lkey: Lkey(id as u32),
    })
}

fn check(recv: &Recv) -> u64 {
    assert_eq!(recv.sges(), sges(recv.id));
    recv.id
}

#[test]
fn one_consumer_takes_whole_recvs_in_order_over_several_laps() {
    loom::model(|| {
        let queue = Arc::new(RecvQueue::new(1, 2));
        let poster = {
            let queue = queue.clone();
            thread::spawn(move || {
                for id in 1..=3 {
                    while queue.push(id, &sges(id)).is_none() {
                        thread::yield_now();
                    }
                }
            })
        };
        let mut recv = Recv::default();
        for expected in 1..=3 {
            while !queue.pop(&mut recv) {
                thread::yield_now();
            }
            assert_eq!(check(&recv), expected);
        }
        poster.join().unwrap();
    });
}

#[test]
fn several_consumers_take_each_recv_whole_and_once() {
    bounded_model(|| {
        let queue = Arc::new(RecvQueue::new(1, 2));
        assert!(queue.push(1, &sges(1)).is_some());
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || {
                    let (mut recv, mut taken) = (Recv::default(), 0);
                    for _ in 0..2 {
                        if queue.pop_shared(&mut recv) {
                            taken += check(&recv);
                        }
                    }
                    taken
                })
            })
            .collect();
        // Goes over the first one as soon as it has been taken.
        let posted = queue.push(2, &sges(2)).is_some();
        let mut taken: u64 = consumers
            .into_iter()
            .map(|consumer| consumer.join().unwrap())
            .sum();
        let mut recv = Recv::default();
        while queue.pop_shared(&mut recv) {
            taken += check(&recv);
        }
        assert_eq!(taken, if posted { 3 } else { 1 });
    });
}
