//! A server that dies, or stands still, at each of its steps. Its clients find it again.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::calls::Call;
use crate::clients::for_each_step;
use crate::harness::{Guard, LIMIT, Place, Raw, Server, fixed_port, run};
use crate::neighbours::{Neighbours, ServerLives};
use crate::plan::{Came, Plan, Spread, Windows};
use crate::step::{Side, Spot, Step};
use crate::tracer::{Standing, Traced, stopped_first};

const FLAGS: [&str; 2] = ["--cores", "2"];
const CORES: usize = 2;
/// Clients that live as long as the test.
const NEIGHBOURS: usize = 2;
/// Lives that are looked at before steps are chosen.
const CENSUSES: usize = 3;
/// Instructions within which a core is cut after it has waited: longer than it has work for.
const INSTRUCTIONS: u32 = 4000;

/// A place where servers come and go, and clients stay.
struct Scene {
    neighbours: Neighbours,
    place: Place,
    port: u16,
    files: usize,
}

/// What the tracer tells of a server.
enum News {
    /// It has been started.
    Started(Pid, ChildStdout),
    /// It has come to its step, or to its end.
    Stands,
}

/// What becomes of a server that has come to its step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Dies,
    /// It stands still for so long.
    StandsStill(Duration),
}

impl Scene {
    fn new() -> Self {
        let place = Place::new();
        let port = fixed_port();
        let server = Server::start(&place, place.serve_on(port, &FLAGS));
        let neighbours = Neighbours::start(
            NEIGHBOURS,
            &place.run_dir(),
            server.address,
            ServerLives::Again,
        );
        neighbours.go_on("clients work", 50);
        let files = place.files().len() + 2;
        Scene {
            neighbours,
            place,
            port,
            files,
        }
    }

    /// A server's life under a tracer: start, clients old and new, stop. It goes on up to a step, or
    /// to its end. Says how it ended, and what its threads called.
    fn life(&self, step: Option<Step>, fate: Fate) -> (Standing, Vec<Vec<Call>>) {
        let (tell, news) = channel();
        std::thread::scope(|scope| {
            let tracing = scope.spawn(move || self.trace(step, fate, &tell));
            let driven = self.drive(&news);
            let traced = tracing.join();
            let told_to_end = driven.expect("a server's life");
            let (standing, calls, gone_on) = traced.expect("tracing a server");
            if let Some(mut server) = gone_on {
                if !told_to_end {
                    self.neighbours.go_on("clients go on with the server", 20);
                    server.signal(Signal::TERM);
                }
                assert_eq!(server.wait_end(), Some(0), "after it stood still");
            }
            (standing, calls)
        })
    }

    /// What a traced server says on its standard error.
    fn errors(&self) -> PathBuf {
        self.place.path("traced-stderr")
    }

    fn trace(
        &self,
        step: Option<Step>,
        fate: Fate,
        tell: &Sender<News>,
    ) -> (Standing, Vec<Vec<Call>>, Option<Guard>) {
        let mut command = stopped_first(&self.place.serve_on(self.port, &FLAGS));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(self.errors()).expect("a file for errors"));
        let mut server = Traced::start(command);
        let pid = Pid::from_child(server.child());
        let stdout = server.child().stdout.take().expect("a pipe");
        // The driver waits for all there is to tell.
        tell.send(News::Started(pid, stdout)).expect("a driver");
        let standing = match step {
            Some(step) => server.run_to(step),
            None => server.run_to_end(),
        };
        let calls = server.calls();
        let mut gone_on = None;
        match (standing, fate) {
            (Standing::Cut, Fate::Dies) => server.kill(),
            (Standing::Cut, Fate::StandsStill(time)) => {
                std::thread::sleep(time);
                gone_on = Some(Guard(server.let_go()));
            }
            _ => {}
        }
        // The driver may have given up.
        drop(tell.send(News::Stands));
        (standing, calls, gone_on)
    }

    /// Does with a server what there is to do, until it stands; says whether it was told to end. An
    /// error is what went wrong though the server did not stand.
    fn drive(&self, news: &Receiver<News>) -> Result<bool, String> {
        let Ok(News::Started(pid, stdout)) = news.recv() else {
            return Err("no server".into());
        };
        // Not its number, which somebody else may have by the time that it is told to end.
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        };
        let (say, said) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // Nobody may be waiting any more.
            drop(say.send(stdout.read_line(&mut line).map(|_| line)));
            // The pipe stays open as long as the server.
            drop(stdout.read_line(&mut String::new()));
        });
        let give_up = Instant::now() + LIMIT;
        let stands = |patience| match news.recv_timeout(patience) {
            Ok(_) | Err(RecvTimeoutError::Disconnected) => true,
            Err(RecvTimeoutError::Timeout) => false,
        };
        let soon = Duration::from_millis(2);
        while said.try_recv().is_err() {
            if stands(soon) {
                return Ok(false);
            }
            if Instant::now() > give_up {
                return Err("the server does not say that it serves".into());
            }
        }
        let goal = self.neighbours.least() + 30;
        while self.neighbours.least() < goal {
            if stands(soon) {
                return Ok(false);
            }
            if Instant::now() > give_up {
                return Err("clients do not find the server".into());
            }
        }
        // Newcomers by both doors. They fail if the server falls meanwhile.
        let address = ([127, 0, 0, 1], self.port).into();
        if let Ok(mut raw) = Raw::try_connect(address)
            && raw.try_send(b"set newcomer 0 0 1\r\n1\r\n").is_ok()
        {
            drop(raw.try_line());
        }
        if stands(soon) {
            return Ok(false);
        }
        let told = match pidfd_send_signal(&process, Signal::TERM) {
            Ok(()) => true,
            // Its step came first, and it is dead.
            Err(Errno::SRCH) => false,
            Err(error) => return Err(error.to_string()),
        };
        if stands(LIMIT) {
            Ok(told)
        } else {
            Err("the server does not end".into())
        }
    }

    /// After a server has gone, another one serves all: those that were there and those that come.
    fn next_server(&self) {
        let server = Server::start(&self.place, self.place.serve_on(self.port, &FLAGS));
        self.neighbours.go_on("clients find the next server", 20);
        let said = run(&mut server.command(&["set", "newcomer", "2"]), b"");
        assert_eq!(
            (said.code, said.text()),
            (Some(0), "stored\n"),
            "{}",
            said.err
        );
        let files = self.place.files();
        assert!(
            files.len() <= self.files,
            "dead servers leave files: {files:?}"
        );
        // Killed, as it were at no step at all.
        drop(server);
    }

    /// The steps of servers that are left alone: of each thread the shortest of a few lives, so that others
    /// come as far.
    fn census(&self) -> Vec<Vec<Call>> {
        let lives = (0..CENSUSES).map(|_| {
            let (standing, calls) = self.life(None, Fate::Dies);
            assert_eq!(standing, Standing::Ended(0));
            calls
        });
        let shorter = |one: Vec<Call>, other: Vec<Call>| {
            if one.len() <= other.len() { one } else { other }
        };
        let shortest = lives.reduce(|all, life| {
            let threads = all.into_iter().zip(life);
            threads.map(|(one, other)| shorter(one, other)).collect()
        });
        shortest.expect("a life")
    }

    fn cut(self, mut plan: Plan, fate: impl Fn(Step) -> Fate) {
        let mut servers = 0;
        for_each_step(&mut plan, |step| {
            let (standing, calls) = self.life(Some(step), fate(step));
            if standing != Standing::Cut {
                let said = std::fs::read_to_string(self.errors()).unwrap_or_default();
                assert_eq!(standing, Standing::Ended(0), "left alone, it says: {said}");
            }
            self.next_server();
            servers += 2;
            if standing == Standing::Cut {
                return Came::Cut;
            }
            let windows = after_waits(&calls);
            Came::Otherwise(calls, windows)
        });
        let server = Server::start(&self.place, self.place.serve_on(self.port, &FLAGS));
        self.neighbours.go_on("clients find the last server", 50);
        let [operations, unknown, connects] = self.neighbours.sums();
        drop(self.neighbours);
        let (code, stderr) = server.stop(Signal::TERM);
        assert_eq!(code, Some(0), "{stderr}");
        plan.finish(&format!(
            "{servers} servers, {connects} connections of {NEIGHBOURS} clients, {operations} of \
             their operations checked, {unknown} with an unknown end"
        ));
    }
}

/// What follows when a core has waited: it looks for requests, carries them out and answers.
fn after_waits(threads: &[Vec<Call>]) -> Windows {
    let waits = |call: &Call| {
        let number = call.number as libc::c_long;
        number == libc::SYS_io_uring_enter || number == libc::SYS_epoll_wait
    };
    let after = |(thread, calls): (usize, &Vec<Call>)| -> Windows {
        let places = (0..).map(Spot::Call).zip(calls);
        let after = places.filter(|(_, call)| waits(call));
        after
            .map(|(place, _)| (thread, place, INSTRUCTIONS))
            .collect()
    };
    let mut after: Vec<Windows> = threads.iter().enumerate().map(after).collect();
    // Cores wait many times, the NIC's agent a few.
    after.sort_by_key(|after| std::cmp::Reverse(after.len()));
    after.truncate(CORES);
    after.concat()
}

#[test]
fn servers_killed() {
    let scene = Scene::new();
    let calls = scene.census();
    let spread = Spread {
        calls: 24,
        instructions: 12,
    };
    let plan = Plan::new("servers_killed", &calls, &after_waits(&calls), spread);
    scene.cut(plan, |_| Fate::Dies);
}

#[test]
fn servers_stopped() {
    let scene = Scene::new();
    let calls = scene.census();
    let spread = Spread {
        calls: 10,
        instructions: 6,
    };
    let plan = Plan::new("servers_stopped", &calls, &after_waits(&calls), spread);
    // Some for so long that clients take the server for lost.
    scene.cut(plan, |step| {
        let is_short = step.instructions > 0 || step.side == Side::Enter;
        let ms = if is_short { 50 } else { 800 };
        Fate::StandsStill(Duration::from_millis(ms))
    });
}
