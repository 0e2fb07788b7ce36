//! What goes wrong by chance, and that the seed alone decides it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rt::net::{Listener, Stream};
use sim::{Chaos, Timeline, Troubles, World, WorldError, twice};

#[path = "../../examples/cluster.rs"]
#[allow(dead_code, reason = "its main is for who runs it")]
mod cluster;

const MS: Duration = Duration::from_millis(1);

fn chaos() -> Chaos {
    Chaos {
        nodes: 0..3,
        peers: 0..4,
        kill: Some(20 * MS),
        stall: Some(20 * MS),
        cut: Some(20 * MS),
        longest: 5 * MS,
    }
}

/// How often each node has ticked, and how often it had been started by then.
type Ticks = Rc<RefCell<Vec<(u64, u64)>>>;

/// Nodes that do nothing but tick.
fn ticking(seed: u64, nodes: usize, every: Duration) -> (World, Ticks) {
    let mut world = World::of(seed, nodes);
    let ticks = Ticks::new(RefCell::new(vec![(0, 0); nodes]));
    for node in 0..nodes {
        let ticks = ticks.clone();
        world.boot(node, move |env| {
            let ticks = ticks.clone();
            async move {
                loop {
                    env.core.sleep(every).await;
                    let tick = &mut ticks.borrow_mut()[env.node];
                    *tick = (tick.0 + 1, env.boots);
                }
            }
        });
    }
    (world, ticks)
}

/// What becomes of them when all goes wrong.
fn ticks(seed: u64) -> (Vec<(u64, u64)>, u64, Troubles) {
    let (mut world, ticks) = ticking(seed, 4, MS);
    let troubles = world.run_under(&chaos(), 1000 * MS).expect("nobody fails");
    assert!(
        (0..4).all(|node| world.is_on(node)),
        "all is whole at the end"
    );
    (ticks.take(), world.trace(), troubles)
}

#[test]
fn everything_happens_and_the_seed_decides_it() {
    let (done, trace, troubles) = twice(1, ticks);
    assert!(
        troubles.cuts > 10 && troubles.isolations > 5,
        "{troubles:?}"
    );
    assert!(
        troubles.kills > 10 && troubles.stalls > 10 && troubles.core_stalls > 10,
        "{troubles:?}"
    );
    // Node 3 is left alone; the others are dead or still now and then.
    let (undisturbed, boots) = done[3];
    assert_eq!(boots, 1);
    assert!((990..=1000).contains(&undisturbed), "{undisturbed}");
    let boots: u64 = done[..3].iter().map(|(_, boots)| boots - 1).sum();
    assert!(
        boots >= troubles.kills - 3 && boots <= troubles.kills,
        "{boots} {troubles:?}"
    );
    assert!(
        done[..3].iter().all(|(ticks, _)| *ticks < undisturbed),
        "{done:?}"
    );
    assert_ne!(trace, ticks(2).1);
}

#[test]
fn a_node_that_stands_still_does_nothing_until_then() {
    let (mut world, ticks) = ticking(1, 1, MS);
    world.run_for(10 * MS).expect("nobody fails");
    let before = ticks.borrow()[0];
    world.stall(0, 50 * MS);
    // A shorter one does not end it.
    world.stall(0, MS);
    world.run_for(49 * MS).expect("nobody fails");
    assert_eq!(ticks.borrow()[0], before);
    let goes_on = world.run_until(5 * MS, |_| ticks.borrow()[0] > before);
    assert!(goes_on.expect("nobody fails"));
}

/// A core that stands still leaves the others of its node alone.
#[test]
fn a_single_core_may_stand_still() {
    let mut world = World::of(2, 2);
    world.set_cores(0, 3);
    let ticks = Rc::new(RefCell::new([0; 3]));
    let cores = world.env(0).cores;
    assert_eq!((cores.len(), world.env(1).cores.len()), (3, 1));
    for (number, core) in cores.into_iter().enumerate() {
        let ticks = ticks.clone();
        let tick = {
            let core = core.clone();
            async move {
                loop {
                    core.sleep(MS).await;
                    ticks.borrow_mut()[number] += 1;
                }
            }
        };
        drop(core.spawn(tick));
    }
    world.stall_core(0, 1, 100 * MS);
    world.run_for(50 * MS).expect("nobody fails");
    let before = *ticks.borrow();
    assert!(
        before[0] > 40 && before[1] == 0 && before[2] > 40,
        "{before:?}"
    );
    world.resume(0);
    world.run_for(10 * MS).expect("nobody fails");
    assert!(ticks.borrow()[1] > 5);
}

#[test]
fn troubles_end_when_something_holds() {
    let (mut world, ticks) = ticking(8, 4, MS);
    let kills = |nodes, mean| Chaos {
        nodes,
        peers: 0..0,
        kill: Some(mean),
        stall: None,
        cut: None,
        longest: 1000 * MS,
    };
    let (often, never) = (
        kills(0..2, 2 * MS),
        Chaos {
            kill: None,
            ..kills(2..3, MS)
        },
    );
    let seen = ticks.clone();
    let troubles = world
        .run_under_until(&[often, never], 1000 * MS, move |_| {
            seen.borrow()[3].0 == 20
        })
        .expect("nobody fails");
    assert!(troubles[0].kills > 1, "{troubles:?}");
    assert_eq!(troubles[1], Troubles::default());
    assert_eq!(ticks.borrow()[3].0, 20);
    assert!(world.now() < rt::Instant::from_ns(22_000_000));
    assert!(
        (0..4).all(|node| world.is_on(node)),
        "all is whole at the end"
    );
    assert_eq!(world.env(2).boots, 1);
}

#[test]
fn a_program_that_panics_ends_the_run_with_its_seed() {
    let mut world = World::of(77, 2);
    world.boot(1, |env| async move {
        env.core.sleep(MS).await;
        panic!("on purpose");
    });
    match world.run_for(5 * MS) {
        Err(WorldError::Failed {
            seed: 77,
            node: 1,
            at_ns,
            ..
        }) => assert!(at_ns >= 1_000_000),
        other => panic!("{other:?}"),
    }
}

/// The panic of a task whose handle was dropped is nobody's result, so it is the run's.
#[test]
fn a_task_that_nobody_joins_fails_the_run() {
    let failed = |result: Result<(), WorldError>| match result {
        Err(WorldError::Failed { node: 0, error, .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let mut world = World::of(78, 1);
    world.boot(0, |env| async move {
        drop(env.core.spawn(async { panic!("on purpose") }));
        env.core.sleep(1000 * MS).await;
    });
    assert!(failed(world.run_for(5 * MS)).contains("on purpose"));

    let mut world = failing_when_dropped(79);
    world.run_for(5 * MS).expect("nobody fails");
    assert!(failed(world.kill(0)).contains("in the end"));
}

/// A node with a task that panics when it is dropped.
fn failing_when_dropped(seed: u64) -> World {
    struct Fails;
    impl Drop for Fails {
        fn drop(&mut self) {
            panic!("in the end");
        }
    }
    let mut world = World::of(seed, 1);
    world.boot(0, |env| async move {
        let _fails = Fails;
        env.core.sleep(1000 * MS).await;
    });
    world
}

/// Nor is it lost when the run ends with the node's death.
#[test]
fn a_node_that_fails_in_its_death_fails_the_run_though_it_ends_there() {
    let mut world = failing_when_dropped(80);
    let kills = Chaos {
        nodes: 0..1,
        peers: 0..0,
        kill: Some(MS),
        stall: None,
        cut: None,
        longest: 5 * MS,
    };
    let ended = world.run_under_until(&[kills], 100 * MS, |world| !world.is_on(0));
    assert!(
        matches!(
            ended,
            Err(WorldError::Failed {
                seed: 80,
                node: 0,
                ..
            })
        ),
        "{ended:?}"
    );
}

/// A node keeps the cores that it has until it is started again.
#[test]
fn troubles_meet_the_cores_that_a_node_has() {
    let (mut world, ticks) = ticking(9, 1, MS);
    world.set_cores(0, 8);
    assert_eq!(world.cores(0), 1);
    let stalls = Chaos {
        nodes: 0..1,
        kill: None,
        cut: None,
        ..chaos()
    };
    let troubles = world.run_under(&stalls, 500 * MS).expect("nobody fails");
    assert!(troubles.core_stalls > 5 && ticks.borrow()[0].0 > 10);
    world.kill(0).expect("nobody fails");
    assert_eq!(world.cores(0), 8);
    assert_eq!(world.env(0).cores.len(), 8);
}

/// When nodes were started, in order.
fn boots(seed: u64, chaos: &Chaos, draws: usize) -> Vec<(usize, rt::Instant)> {
    let mut world = World::of(seed, 3);
    let boots = Rc::new(RefCell::new(Vec::new()));
    for node in 0..3 {
        let boots = boots.clone();
        world.boot(node, move |env| {
            boots.borrow_mut().push((env.node, env.core.now()));
            async {}
        });
    }
    for _ in 0..draws {
        world.chance().bool();
    }
    world.run_under(chaos, 500 * MS).expect("nobody fails");
    boots.take()
}

#[test]
fn chance_for_one_thing_shifts_nothing_else() {
    let (all, mut kills) = (chaos(), chaos());
    (kills.stall, kills.cut) = (None, None);
    let undisturbed = boots(5, &kills, 0);
    assert!(undisturbed.len() > 10);
    assert_eq!(boots(5, &kills, 3), undisturbed);
    // Nothing runs here but the starts, so that who stands still or is cut off changes no time.
    assert_eq!(boots(5, &all, 0), undisturbed);
}

/// Links are cut to those that are named and to nobody else: to one at a time, and to all at once.
#[test]
fn nodes_are_cut_off_from_their_peers() {
    let mut world = World::of(10, 4);
    // When node 0 last heard from each.
    let heard = Rc::new(RefCell::new([rt::Instant::ZERO; 4]));
    let told = heard.clone();
    world.boot(0, move |env| {
        let told = told.clone();
        async move {
            let addr = env.addr(0, 7);
            let mut listener = Listener::bind(&env.core, &addr, Default::default()).expect("free");
            loop {
                let mut stream = listener.accept().await.expect("a client");
                let (told, core) = (told.clone(), env.core.clone());
                drop(env.core.spawn(async move {
                    loop {
                        let (_, bytes) = stream.recv(Vec::with_capacity(1)).await;
                        told.borrow_mut()[usize::from(bytes[0])] = core.now();
                    }
                }));
            }
        }
    });
    world.run_for(MS).expect("nobody fails");
    for node in 1..4 {
        world.boot(node, |env| async move {
            let to = env.addr(0, 7);
            let mut stream = Stream::connect(&env.core, &to).await.expect("it listens");
            loop {
                let sent = stream.send_all(vec![env.node as u8]).await;
                sent.0.expect("it takes all");
                env.core.sleep(MS / 10).await;
            }
        });
    }
    world.run_for(MS).expect("nobody fails");
    let cuts = Chaos {
        nodes: 0..1,
        peers: 1..3,
        kill: None,
        stall: None,
        ..chaos()
    };
    let (mut alone, mut together) = (0, 0);
    let troubles = world
        .run_under_until(&[cuts], 1000 * MS, |world| {
            let silent = heard.borrow().map(|at| world.now() - at > MS / 2);
            alone += usize::from(silent[1] != silent[2]);
            together += usize::from(silent[1] && silent[2]);
            silent[3]
        })
        .expect("nobody fails");
    assert!(
        world.now() > rt::Instant::from_ns(1_000_000_000),
        "node 3 is cut off"
    );
    assert!(alone > 0 && together > 0, "{alone} {together} {troubles:?}");
}

#[test]
fn nobody_stands_still_after_the_troubles() {
    let (mut world, ticks) = ticking(6, 3, MS / 10);
    let chaos = Chaos {
        kill: None,
        cut: None,
        stall: Some(MS),
        longest: 1000 * MS,
        ..chaos()
    };
    let troubles = world.run_under(&chaos, 20 * MS).expect("nobody fails");
    assert!(
        troubles.stalls > 3 && troubles.core_stalls > 3,
        "{troubles:?}"
    );
    let before = ticks.borrow().clone();
    world.run_for(MS).expect("nobody fails");
    let after = ticks.borrow();
    assert!((0..3).all(|node| before[node] < after[node]));
}

#[test]
fn the_example_holds_for_many_seeds() {
    let runs: Vec<_> = (0..10).map(|seed| twice(seed, cluster::run)).collect();
    assert!(runs.iter().all(|(counted, ..)| *counted > 100), "{runs:?}");
}

#[test]
fn what_is_due_comes_in_order() {
    let at = rt::Instant::from_ns;
    let mut timeline = Timeline::default();
    for (due, what) in [(5, 'a'), (3, 'b'), (5, 'c'), (1, 'd')] {
        timeline.add(at(due), what);
    }
    timeline.retain(|_, what| *what != 'd');
    assert_eq!((timeline.len(), timeline.next()), (3, Some(at(3))));
    assert_eq!(timeline.take_by(at(2)), None);
    let order: String = std::iter::from_fn(|| timeline.take_by(at(5)))
        .map(|(_, what)| what)
        .collect();
    assert_eq!(order, "bac");
    assert!(timeline.is_empty());
}
