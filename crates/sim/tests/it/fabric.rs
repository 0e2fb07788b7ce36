//! NICs of nodes.

use std::sync::Arc;
use std::time::Duration;

use sim::{Env, World, twice};
use verbs::typed::{ConnectOptions, Context, Endpoint, QpOptions, QueuePair, Rc, Wr};
use verbs::{Access, RemoteAddr, Wc};

const US: Duration = Duration::from_micros(1);

/// A node writes into another one's memory, which sees it when virtual time has passed.
#[test]
fn a_write_takes_its_time_and_arrives() {
    let run = |seed| {
        let mut world = World::of(seed, 2);
        let (server, client) = (world.env(0), world.env(1));
        let (server_context, mut back, memory) = open(&server);
        let (client_context, mut front, _) = open(&client);
        let ends: (Endpoint, Endpoint) = (back.endpoint().unwrap(), front.endpoint().unwrap());
        back.connect(&ends.1, &ConnectOptions::default()).unwrap();
        front.connect(&ends.0, &ConnectOptions::default()).unwrap();
        let to: RemoteAddr = memory.remote(0);
        let before = world.now();
        let mut cq = client_context.1;
        let done = world.run(1, |env| async move {
            front
                .post_send(&[Wr::write_inline(b"hello", to).id(9)])
                .unwrap();
            let mut out = [Wc::default()];
            while cq.poll(&mut out).unwrap() == 0 {
                env.core.sleep(US).await;
            }
            out[0].id
        });
        assert_eq!(done.unwrap(), 9);
        let mut bytes = [0; 5];
        memory.read(0, &mut bytes);
        assert_eq!(&bytes, b"hello");
        drop(server_context);
        assert!(world.now() - before >= Duration::from_nanos(500));
        (world.now(), world.trace())
    };
    assert_ne!(twice(1, run), twice(2, run));
}

type Opened = (
    (Context, verbs::typed::CompletionQueue),
    QueuePair<Rc>,
    verbs::typed::MemoryRegion,
);

fn open(env: &Env) -> Opened {
    let context = Context::new(Arc::new(env.nic.clone()));
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let qp = pd.create_qp(&QpOptions::on(&cq)).unwrap();
    let memory = pd
        .allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)
        .unwrap();
    ((context, cq), qp, memory)
}

/// What a program holds of its NIC goes with its node.
#[test]
fn a_dead_node_leaves_nothing_on_its_nic() {
    let mut world = World::of(3, 2);
    world.boot(0, |env| async move {
        let held = open(&env);
        std::future::pending::<()>().await;
        drop(held);
    });
    world.run_for(US).unwrap();
    assert!(world.fabric().objects(0) > 0);
    world.kill(0);
    assert_eq!(world.fabric().objects(0), 0);
}
