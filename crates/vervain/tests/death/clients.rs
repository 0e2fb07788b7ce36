//! A HERD client that dies, or stands still, at each of its steps.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Instant;

use crate::calls::Call;
use crate::harness::{Guard, LIMIT, Place, Server, run};
use crate::holdings::{Auditor, Holdings};
use crate::neighbours::{Neighbours, ServerLives};
use crate::plan::{Came, Plan, Spread, Windows, behind_marks};
use crate::step::Step;
use crate::tracer::{Standing, Traced, stopped_first};
use crate::victim;

/// Clients that must not notice.
const NEIGHBOURS: usize = 2;

/// A server, its undisturbed clients, and what it holds for them.
struct Scene {
    neighbours: Neighbours,
    auditor: Auditor,
    before: Holdings,
    files: usize,
    server: Server,
    place: Place,
}

impl Scene {
    fn new() -> Self {
        let place = Place::new();
        let server = place.start(&["--cores", "2"]);
        let neighbours = Neighbours::start(
            NEIGHBOURS,
            server.run_dir(),
            server.address,
            ServerLives::On,
        );
        // They have come to each core, and have woken it.
        neighbours.go_on("clients work", 100);
        let mut auditor = Auditor::new(&server);
        let before = auditor.settled(NEIGHBOURS as u64);
        Scene {
            neighbours,
            auditor,
            before,
            files: 0,
            server,
            place,
        }
    }

    fn victim(&self) -> Traced {
        let command = victim::client(self.server.run_dir(), self.server.address);
        let mut command = stopped_first(&command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Traced::start(command)
    }

    /// The steps of a victim that is left alone: its calls, and the instructions of its data path.
    fn census(&mut self) -> (Vec<Vec<Call>>, Windows) {
        let alone = |run: fn(&mut Traced) -> Standing| {
            std::thread::scope(|scope| {
                let census = scope.spawn(|| {
                    let mut victim = self.victim();
                    let standing = run(&mut victim);
                    assert_eq!(standing, Standing::Ended(0), "{}", errors(victim.child()));
                    (victim.calls(), behind_marks(&victim.regions()))
                });
                census.join().expect("a census")
            })
        };
        let (calls, _) = alone(Traced::run_to_end);
        let (_, windows) = alone(Traced::step_to_end);
        self.after(0);
        // The victim's number has its files from now on.
        self.files = self.place.files().len() + 1;
        (calls, windows)
    }

    /// Nothing of the victim is left, and nobody has noticed.
    #[track_caller]
    fn after(&mut self, operations: u64) {
        self.auditor.expect_as_before(&self.before);
        self.neighbours.go_on("clients go on", operations);
        self.neighbours.expect_content();
        assert!(
            self.files == 0 || self.place.files().len() <= self.files,
            "dead clients leave files: {:?}",
            self.place.files()
        );
    }

    fn finish(mut self, plan: Plan) {
        self.neighbours.go_on("clients go on at the end", 100);
        let [operations, ..] = self.neighbours.sums();
        drop(self.neighbours);
        self.before = self.auditor.settled(0);
        drop(self.auditor);
        let (code, stderr) = self.server.stop(rustix::process::Signal::TERM);
        assert_eq!(code, Some(0), "{stderr}");
        plan.finish(&format!("{operations} operations of others checked"));
    }
}

/// What a victim has said on its standard error.
fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_string(&mut text).expect("text");
    }
    text
}

/// Does it for each step of a plan, and says which step it was when it fails.
pub(crate) fn for_each_step<C: Into<Came>>(plan: &mut Plan, mut cut: impl FnMut(Step) -> C) {
    while let Some(step) = plan.next() {
        let again = plan.again(step);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cut(step)));
        match done {
            Ok(came) => {
                let came = came.into();
                if !matches!(came, Came::Cut) {
                    eprintln!("step {step} was not come to");
                }
                plan.note(came);
            }
            Err(panic) => {
                eprintln!("at step {step}; to repeat it: {again}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn clients_killed() {
    let mut scene = Scene::new();
    let (calls, windows) = scene.census();
    let spread = Spread {
        calls: 60,
        instructions: 40,
    };
    let mut plan = Plan::new("clients_killed", &calls, &windows, spread);
    for_each_step(&mut plan, |step| {
        let was_cut = std::thread::scope(|scope| {
            let killing = scope.spawn(|| {
                let mut victim = scene.victim();
                match victim.run_to(step) {
                    Standing::Cut => {
                        victim.kill();
                        true
                    }
                    ended => {
                        assert_eq!(ended, Standing::Ended(0), "{}", errors(victim.child()));
                        false
                    }
                }
            });
            killing.join().expect("a victim that is killed")
        });
        scene.after(10);
        was_cut
    });
    scene.finish(plan);
}

#[test]
fn clients_stopped() {
    let mut scene = Scene::new();
    let (calls, windows) = scene.census();
    let spread = Spread {
        calls: 24,
        instructions: 16,
    };
    let mut plan = Plan::new("clients_stopped", &calls, &windows, spread);
    let mut clear_errors = 0;
    for_each_step(&mut plan, |step| {
        let (was_cut, error) = std::thread::scope(|scope| {
            let stopping = scope.spawn(|| stop(&scene, step));
            stopping.join().expect("a victim that stands still")
        });
        if let Some(error) = error {
            eprintln!("step {step}: a client that stood still gives up: {error}");
            clear_errors += 1;
        }
        scene.after(10);
        was_cut
    });
    if clear_errors > 0 {
        eprintln!("{clear_errors} gave up with a clear error");
    }
    scene.finish(plan);
}

/// Has a victim stand still at a step while others go on and come, then lets it go on. Says whether
/// it came to the step, and the error with which it ended if it did not go on.
fn stop(scene: &Scene, step: Step) -> (bool, Option<String>) {
    let mut victim = scene.victim();
    let standing = victim.run_to(step);
    if standing != Standing::Cut {
        assert_eq!(standing, Standing::Ended(0), "{}", errors(victim.child()));
        return (false, None);
    }
    let place = victim.place();
    scene
        .neighbours
        .go_on(&format!("clients go on beside one at {place}"), 40);
    // Whoever comes meanwhile is served.
    let said = run(&mut scene.server.command(&["get", "nothing"]), b"");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("nothing: not found"), "{}", said.err);
    let mut guard = Guard(victim.let_go());
    let began = Instant::now();
    let code = guard.wait_end();
    let text = errors(&mut guard.0);
    assert!(began.elapsed() < LIMIT, "a client that went on did not end");
    match code {
        Some(0) => (true, None),
        // In its own words, and not by a panic.
        Some(1) if !text.is_empty() => (true, Some(text)),
        other => panic!("after it stood still at {place} a client ended with {other:?}: {text}"),
    }
}
