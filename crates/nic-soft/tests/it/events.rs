//! Asynchronous events, and the numbers in them.

use verbs::nic::AsyncEvent;
use verbs::typed::{ConnectOptions, Context, QpOptions, QueuePair, Rc, Wr};
use verbs::{Access, Wc};

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
