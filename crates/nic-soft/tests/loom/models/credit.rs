//! A sender that has seen a RECV, and the poller that has to find it.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use verbs::Sge;

use crate::bounded_model;
use crate::shared::credit::{Ready, look, publish};
use crate::shared::layout::Credit;
use crate::shared::recv_queue::{Recv, RecvQueue};

#[test]
fn a_message_for_a_recv_that_was_seen_finds_it() {
    bounded_model(|| {
        let recvs = Arc::new(RecvQueue::new(1, 1));
        let credit = Arc::new(Credit::default());
        // Stands for the lane.
        let message = Arc::new(AtomicBool::new(false));
        let poster = {
            let (recvs, credit) = (recvs.clone(), credit.clone());
            thread::spawn(move || {
                let number = recvs.push(7, &[Sge::default()]).expect("room");
                publish(&credit, number, Some(100));
            })
        };
        let sender = {
            let (credit, message) = (credit.clone(), message.clone());
            thread::spawn(move || {
                if look(&credit, 0) == Ready::Room(100) {
                    message.store(true, Ordering::Release);
                }
            })
        };
        let mut recv = Recv::default();
        if message.load(Ordering::Acquire) {
            assert!(recvs.pop(&mut recv), "a message without a RECV");
            assert_eq!(recv.id, 7);
        }
        poster.join().unwrap();
        sender.join().unwrap();
        assert_eq!(look(&credit, 1), Ready::No);
    });
}
