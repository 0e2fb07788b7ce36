//! NICs of nodes.

use std::sync::Arc;
use std::time::Duration;

use conformance::model::Faults;
use sim::{Env, World, twice};
use verbs::typed::{
    CompletionQueue, ConnectOptions, Connected, Context, MemoryRegion, QpOptions, QueuePair, Rc,
    Uc, Ud, Wr,
};
use verbs::{Access, Qkey, RecvWr, Wc, WcStatus};

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// What a node has of its NIC.
struct Opened<T: Connected> {
    cq: CompletionQueue,
    qp: QueuePair<T>,
    memory: MemoryRegion,
}

impl<T: Connected> Opened<T> {
    /// How a request ended, if one has.
    fn status(&mut self) -> Option<WcStatus> {
        let mut out = [Wc::default()];
        (self.cq.poll(&mut out).unwrap() == 1).then_some(out[0].status)
    }
}

fn open<T: Connected>(env: &Env) -> Opened<T> {
    let context = Context::new(Arc::new(env.nic.clone()));
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let qp = pd.create_qp(&QpOptions::on(&cq)).unwrap();
    let memory = pd
        .allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)
        .unwrap();
    Opened { cq, qp, memory }
}

/// Two nodes whose queue pairs are connected.
fn connected<T: Connected>(seed: u64) -> (World, Opened<T>, Opened<T>) {
    connected_with(seed, &ConnectOptions::default())
}

fn connected_with<T: Connected>(
    seed: u64,
    options: &ConnectOptions,
) -> (World, Opened<T>, Opened<T>) {
    let mut world = World::of(seed, 2);
    let (mut back, mut front) = (open::<T>(&world.env(0)), open::<T>(&world.env(1)));
    let ends = (back.qp.endpoint().unwrap(), front.qp.endpoint().unwrap());
    back.qp.connect(&ends.1, options).unwrap();
    front.qp.connect(&ends.0, options).unwrap();
    (world, back, front)
}

fn text(memory: &MemoryRegion) -> String {
    let mut bytes = [0; 5];
    memory.read(0, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A node writes into another one's memory, which sees it when virtual time has passed.
#[test]
fn a_write_takes_its_time_and_arrives() {
    let run = |seed| {
        let (mut world, back, front) = connected::<Rc>(seed);
        let (to, before) = (back.memory.remote(0), world.now());
        let (mut qp, mut cq) = (front.qp, front.cq);
        let done = world.run(1, |env| async move {
            qp.post_send(&[Wr::write_inline(b"hello", to).id(9)])
                .unwrap();
            let mut out = [Wc::default()];
            while cq.poll(&mut out).unwrap() == 0 {
                env.core.sleep(US).await;
            }
            out[0].id
        });
        assert_eq!(done.unwrap(), 9);
        assert_eq!(text(&back.memory), "hello");
        assert!(world.now() - before >= Duration::from_nanos(500));
        (world.now(), world.trace())
    };
    assert_ne!(twice(1, run), twice(2, run));
}

/// What goes over UC when its link is cut is lost, and what goes after that arrives.
#[test]
fn a_cut_link_loses_what_is_unreliable() {
    let (mut world, back, mut front) = connected::<Uc>(4);
    let to = back.memory.remote(0);
    // On its way already.
    front
        .qp
        .post_send(&[Wr::write_inline(b"first", to)])
        .unwrap();
    world.cut(0, 1);
    front
        .qp
        .post_send(&[Wr::write_inline(b"other", to)])
        .unwrap();
    world.run_for(MS).unwrap();
    assert_eq!(text(&back.memory), "\0\0\0\0\0");
    world.mend(1, 0);
    world.run_for(MS).unwrap();
    assert_eq!(text(&back.memory), "\0\0\0\0\0");
    front
        .qp
        .post_send(&[Wr::write_inline(b"third", to)])
        .unwrap();
    world.run_for(MS).unwrap();
    assert_eq!(text(&back.memory), "third");
    assert_eq!(world.fabric().stats().lost, 2);
}

/// A message that loses its end and then meets a cut link is one message, and so is one that was to
/// arrive twice.
#[test]
fn what_a_cut_link_loses_is_counted_once() {
    let (mut world, back, mut front) = connected::<Uc>(8);
    world.fabric().set_faults(Faults {
        delay_ns_max: 5_000,
        line_ns_max: 2_000,
        cut_permille: 1000,
        ..Faults::default()
    });
    let sges = [front.memory.sge(0..1024)];
    for _ in 0..10 {
        front
            .qp
            .post_send(&[Wr::write(&sges, back.memory.remote(0))])
            .unwrap();
    }
    world.run_for(30 * US).unwrap();
    let before = world.fabric().stats();
    world.cut(0, 1);
    world.run_for(MS).unwrap();
    let stats = world.fabric().stats();
    assert!(
        before.cut > 0 && stats.lost > before.lost,
        "{before:?} {stats:?}"
    );
    assert_eq!((stats.sent, stats.cut + stats.lost), (10, 10));

    world.fabric().set_faults(Faults {
        double_permille: 1000,
        ..Faults::default()
    });
    let context = Context::new(Arc::new(world.env(1).nic));
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let mut qp = pd.create_qp::<Ud>(&QpOptions::on(&cq)).unwrap();
    qp.activate(Qkey(1)).unwrap();
    let gid = Context::new(Arc::new(world.env(0).nic)).gid().unwrap();
    let to = pd.create_ah(gid).unwrap();
    qp.post_send(&[Wr::send_inline_to(&to, back.qp.num(), Qkey(1), b"hello")])
        .unwrap();
    world.run_for(MS).unwrap();
    let after = world.fabric().stats();
    assert_eq!((after.doubled, after.lost - stats.lost), (1, 1));
}

/// What goes over RC waits for a link that is cut, as long as its time-outs last.
#[test]
fn a_cut_link_delays_what_is_reliable() {
    for (cut, arrives) in [(200 * MS, true), (10_000 * MS, false)] {
        let (mut world, back, mut front) = connected::<Rc>(5);
        let to = back.memory.remote(0);
        world.cut(0, 1);
        front
            .qp
            .post_send(&[Wr::write_inline(b"hello", to)])
            .unwrap();
        world.run_for(cut).unwrap();
        assert_eq!(text(&back.memory), "\0\0\0\0\0");
        world.mend(0, 1);
        world.run_for(1000 * MS).unwrap();
        assert_eq!(text(&back.memory) == "hello", arrives, "after {cut:?}");
        let status = front.status().expect("it has ended");
        assert_eq!(status == WcStatus::Success, arrives);
    }
}

/// A peer without a RECV has answered: asking it again, however often, uses no time-out up.
#[test]
fn a_peer_that_is_not_ready_is_none_that_does_not_answer() {
    let (mut world, mut back, mut front) = connected::<Rc>(6);
    front.qp.post_send(&[Wr::send_inline(b"hello")]).unwrap();
    world.run_for(MS).unwrap();
    world.cut(0, 1);
    world.run_for(MS).unwrap();
    world.mend(0, 1);
    let sges = [back.memory.sge(0..5)];
    let recv = RecvWr { id: 1, sges: &sges };
    back.qp.post_recv(&[recv]).unwrap();
    // The time-out is 4.096 us, doubled 14 times.
    world.run_for(100 * MS).unwrap();
    assert_eq!(text(&back.memory), "hello");
    assert_eq!(front.status(), Some(WcStatus::Success));
}

/// The last attempt has its time-out as well as those before.
#[test]
fn a_request_fails_when_its_last_attempt_has_timed_out() {
    let may_retry = |retry_count| ConnectOptions {
        retry_count,
        ..ConnectOptions::default()
    };
    for (retry_count, status) in [(0, WcStatus::RetryExcErr), (1, WcStatus::Success)] {
        let (mut world, back, mut front) = connected_with::<Rc>(7, &may_retry(retry_count));
        world.cut(0, 1);
        let write = Wr::write_inline(b"hello", back.memory.remote(0));
        front.qp.post_send(&[write]).unwrap();
        world.run_for(60 * MS).unwrap();
        assert_eq!(front.status(), None);
        world.mend(0, 1);
        world.run_for(10 * MS).unwrap();
        assert_eq!(front.status(), Some(status));
    }
}

/// What a program holds of its NIC goes with its node.
#[test]
fn a_dead_node_leaves_nothing_on_its_nic() {
    let mut world = World::of(3, 2);
    world.boot(0, |env| async move {
        let held = open::<Rc>(&env);
        std::future::pending::<()>().await;
        drop(held);
    });
    world.run_for(US).unwrap();
    assert!(world.fabric().objects(0) > 0);
    world.kill(0).expect("nobody fails");
    assert_eq!(world.fabric().objects(0), 0);
}

/// A NIC that stands still does so until it is switched off.
#[test]
fn a_nic_that_is_switched_on_again_does_not_stand_still() {
    let mut world = World::of(9, 2);
    let paused = open::<Uc>(&world.env(1));
    let until = world.now() + 1000 * MS;
    world.fabric().pause(1, until.as_ns());
    drop(paused);
    world.kill(1).expect("nobody fails");
    let (mut back, mut front) = (open::<Uc>(&world.env(0)), open::<Uc>(&world.env(1)));
    let ends = (back.qp.endpoint().unwrap(), front.qp.endpoint().unwrap());
    back.qp
        .connect(&ends.1, &ConnectOptions::default())
        .unwrap();
    front
        .qp
        .connect(&ends.0, &ConnectOptions::default())
        .unwrap();
    let write = Wr::write_inline(b"hello", back.memory.remote(0));
    front.qp.post_send(&[write]).unwrap();
    world.run_for(MS).unwrap();
    assert_eq!(text(&back.memory), "hello");
}
