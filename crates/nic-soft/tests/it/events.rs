//! Asynchronous events, and the numbers in them.

use verbs::nic::{AsyncEvent, Nic};
use verbs::typed::{ConnectOptions, Context, QpOptions, QueuePair, Rc, Wr};
use verbs::{Access, CqInit, QpInit, SrqInit, Transport, Wc};

use crate::pair;

#[test]
fn a_number_is_given_to_nobody_while_somebody_looks_at_its_event() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let context = Context::new(pair::open(run_dir.path()));
    let pd = context.alloc_pd().expect("a domain");
    let mut small = context.create_cq(1).expect("a queue");
    let mut qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&small)).expect("a queue pair");
    let own = qp.endpoint().expect("a GID");
    qp.connect(&own, &ConnectOptions::default())
        .expect("connected to itself");
    let memory = pd.allocate(64, Access::EVERYTHING).expect("memory");
    let write = Wr::write_inline(b"one more", memory.remote(0));
    // The first use of a region waits for its owner's answer.
    qp.post_send(&[write]).expect("posted");
    while small.poll(&mut [Wc::default()]).expect("no overrun") == 0 {
        std::thread::yield_now();
    }
    while qp.post_send(&[write, write]).is_ok() && small.poll(&mut [Wc::default()]).is_ok() {}

    let overrun = AsyncEvent::CqError(small.num());
    let event = loop {
        let event = context.async_event().expect("the overrun is told");
        if *event == overrun {
            break event;
        }
    };
    drop((qp, small));
    // Each number once, and then again.
    let device = context.device();
    let comes_round = || {
        (0..device.cq_max).any(|_| {
            let made = context.create_cq(1).expect("a queue");
            AsyncEvent::CqError(made.num()) == overrun
        })
    };
    assert!(!comes_round());
    drop(event);
    assert!(comes_round());
}

#[test]
fn a_channel_s_number_is_given_to_nobody_while_a_queue_is_on_it() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let nic = pair::open(run_dir.path());
    let channel = nic.create_channel().expect("a channel");
    let number = channel.num();
    let mut init = CqInit::new(4);
    init.channel = Some(number);
    let queue = nic.create_cq(&init).expect("a queue");
    drop(channel);
    assert!(nic.create_cq(&init).is_err(), "the channel has gone");
    // Each number once, and then again.
    let comes_round = || {
        (0..1 << 12).any(|_| {
            let made = nic.create_channel().expect("a channel");
            made.num() == number
        })
    };
    assert!(!comes_round());
    drop(queue);
    assert!(comes_round());
}

#[test]
fn the_numbers_of_queues_are_given_to_nobody_while_a_queue_pair_uses_them() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let nic = pair::open(run_dir.path());
    let device = nic.device();
    let pd = nic.alloc_pd().expect("a domain");
    let create_cq = || nic.create_cq(&CqInit::new(1)).expect("a queue");
    let create_srq = || {
        let init = SrqInit::new(pd, 1, 1);
        nic.create_srq(&init).expect("a shared receive queue")
    };
    let (cq, srq) = (create_cq(), create_srq());
    let numbers = (cq.num(), srq.num());
    let mut init = QpInit::new(pd, Transport::Rc, cq.num(), cq.num());
    init.srq = Some(srq.num());
    let qp = nic.create_qp(&init).expect("a queue pair");
    drop((cq, srq));
    assert!(nic.create_qp(&init).is_err(), "both have gone");
    // Each number once, and then again.
    let comes_round = || {
        let cqs = (0..device.cq_max).any(|_| create_cq().num() == numbers.0);
        let srqs = (0..device.srq_max).any(|_| create_srq().num() == numbers.1);
        (cqs, srqs)
    };
    assert_eq!(comes_round(), (false, false));
    drop(qp);
    assert_eq!(comes_round(), (true, true));
}

#[test]
fn a_channel_names_no_queue_that_has_gone() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let context = Context::new(pair::open(run_dir.path()));
    let pd = context.alloc_pd().expect("a domain");
    let mut channel = context.create_channel().expect("a channel");
    let mut cq = context.create_cq_on(16, &channel).expect("a queue");
    let sends = context.create_cq(16).expect("a queue");
    let mut on = QpOptions::on(&cq);
    on.recv_cq = sends.handle();
    let mut qp: QueuePair<Rc> = pd.create_qp(&on).expect("a queue pair");
    let own = qp.endpoint().expect("a GID");
    qp.connect(&own, &ConnectOptions::default())
        .expect("connected to itself");
    cq.arm(false).expect("it has a channel");
    let memory = pd.allocate(64, Access::EVERYTHING).expect("memory");
    let write = Wr::write_inline(b"rings", memory.remote(0));
    qp.post_send(&[write]).expect("posted");
    while cq.poll(&mut [Wc::default()]).expect("no overrun") == 0 {
        std::thread::yield_now();
    }
    // Nobody has taken the event.
    cq.arm(false).expect("it has a channel");
    drop(cq);
    assert_eq!(channel.event().expect("an event or none"), None);
    drop(qp);
}
