//! The conformance suite over each engine.

use std::rc::Rc;

use meta::conformance::{self, History, Program};
use meta::{Embedded, Engine, Model, Options, Pace};
use rt::{Config, Core, ManualClock, ManualCore, Next};

/// The least that a journal may have, so that its areas are used many times.
pub(crate) fn options() -> Options {
    Options::create(0x5eed).with_area_len(2 << 20)
}

fn on_a_core(engine: &Rc<dyn Engine>, seed: u64) {
    let mut core = Core::new(Config::default()).expect("a core");
    let handle = core.handle();
    core.block_on(conformance::all(&handle, engine, seed));
}

#[test]
fn a_model_conforms() {
    for seed in 0..20 {
        let model = Model::new(seed);
        on_a_core(&model.handle(), seed);
        assert!(model.counts().conflicts > 0, "seed {seed}");
    }
}

/// Runs a future in virtual time.
fn in_virtual_time<F: Future<Output = ()> + 'static>(
    seed: u64,
    future: impl FnOnce(rt::Handle) -> F,
) {
    let clock = std::sync::Arc::new(ManualClock::new(0));
    let mut config = Config::default();
    config.clock = clock.clone();
    config.seed = seed;
    let core = ManualCore::new(config, None);
    let task = core.handle().spawn(future(core.handle()));
    while !task.is_finished() {
        core.turn();
        match core.next() {
            Next::Now => {}
            Next::At(then) => clock.advance_to(then),
            Next::Never => assert!(core.is_woken() || task.is_finished(), "nothing will happen"),
        }
    }
    assert!(core.end().is_none(), "seed {seed}: a task has panicked");
}

#[test]
fn a_slow_model_that_is_often_uncertain_conforms() {
    for seed in 0..20 {
        let model = Model::new(seed);
        model.set_unknown_percent(20);
        in_virtual_time(seed, {
            let model = model.clone();
            move |core| async move {
                let engine = model.handle_on(&core, Pace::default());
                conformance::all(&core, &engine, seed).await;
            }
        });
        assert!(model.counts().failed > 0, "seed {seed}");
    }
}

#[test]
fn an_embedded_engine_conforms() {
    let dir = tempfile::tempdir().expect("a directory");
    for seed in 0..3 {
        let engine = Embedded::open(dir.path(), &options()).expect("it opens");
        on_a_core(&engine.handle(), seed);
        let counts = engine.counts();
        assert!(counts.conflicts > 0 && counts.checkpoints > 0, "{counts:?}");
        engine.close().expect("it closes");
    }
    let verified = Embedded::verify(dir.path(), &Options::existing()).expect("it is sound");
    assert!(verified.rows > 0);
}

#[test]
fn an_embedded_engine_conforms_from_two_cores() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Embedded::open(dir.path(), &options()).expect("it opens");
    for seed in 0..4 {
        let mut core = Core::new(Config::default()).expect("a core");
        let history = core.block_on(History::of(&*engine.handle()));
        std::thread::scope(|scope| {
            for number in 0..2 {
                let (maker, history) = (engine.maker(), history.clone());
                scope.spawn(move || {
                    let mut core = Core::new(Config::default()).expect("a core");
                    let handle = core.handle();
                    let program = Program {
                        first_task: number * 10,
                        ..Program::default()
                    };
                    let engine = maker.handle();
                    let tasks = conformance::spawn(&handle, &engine, &history, &program, seed);
                    core.block_on(async {
                        for task in tasks {
                            task.await.expect("a task does not panic");
                        }
                    });
                });
            }
        });
        history.check(seed);
    }
    let counts = engine.counts();
    assert!(
        counts.groups < counts.committed,
        "commits share writes: {counts:?}"
    );
    engine.close().expect("it closes");
}
