//! Asynchronous events, and the numbers in them.

use verbs::nic::{AsyncEvent, Nic};
use verbs::typed::{ConnectOptions, Context, QpOptions, QueuePair, Rc, Wr};
use verbs::{Access, CqInit, Wc};

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
