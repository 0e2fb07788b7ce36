//! This test program as a child of itself: what is killed, traced or kept from growing.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use meta::{Embedded, MetaError, Options, Outcome, Transaction};
use rt::{Config, Core};

const ROLE: &str = "META_TEST_ROLE";
const DIR: &str = "META_TEST_DIR";

/// How this program is started as a child with a role, on a directory.
pub(crate) fn command(role: &str, dir: &Path, wrap: &[&str]) -> Command {
    let exe = std::env::current_exe().expect("its own path");
    let mut command = match wrap {
        [] => Command::new(&exe),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(&exe);
            command
        }
    };
    command.args(["--exact", "child::role", "--nocapture"]);
    command.env(ROLE, role).env(DIR, dir).stdin(Stdio::null());
    command
}

/// Lines that a child writes after its first `ready`.
pub(crate) fn lines(child: &mut Child) -> std::io::Lines<BufReader<ChildStdout>> {
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    while lines.next().expect("it says `ready`").expect("a line") != "ready" {}
    lines
}

/// What a child does; in the parent there is nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let dir = PathBuf::from(std::env::var_os(DIR).expect("a directory"));
    match &*role {
        "commit for ever" => commit_for_ever(&dir),
        "commit one by one" => commit_one_by_one(&dir),
        "fill" => fill(&dir),
        other => panic!("no role is called {other}"),
    }
}

fn say(line: &str) {
    // At once, past the harness and any buffer, so that a kill loses no line.
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .expect("the parent reads");
}

/// Two rows of one value a transaction.
pub(crate) fn pair(key: &str) -> Transaction {
    let mut pair = Transaction::new();
    pair.put(format!("a/{key}"), key).expect("it fits");
    pair.put(format!("b/{key}"), key).expect("it fits");
    pair
}

fn commit_for_ever(dir: &Path) {
    let meta = Embedded::open(dir, &Options::existing()).expect("it opens");
    say("\nready");
    let mut core = Core::new(Config::default()).expect("a core");
    let handle = core.handle();
    let life = meta.revision();
    core.block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let engine = meta.handle();
                handle.spawn(async move {
                    for i in 0u64.. {
                        let key = format!("{life}.{task}.{i}");
                        let outcome = engine.commit(pair(&key)).await.expect("a commit");
                        let Outcome::Committed(revision) = outcome else {
                            panic!("{outcome:?}");
                        };
                        say(&format!("{key} {revision}"));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("it ends with the process");
        }
    });
}

/// Commits of [`commit_one_by_one`].
pub(crate) const ONE_BY_ONE: usize = 40;

fn commit_one_by_one(dir: &Path) {
    let meta = Embedded::open(dir, &Options::existing()).expect("it opens");
    let mut core = Core::new(Config::default()).expect("a core");
    let engine = meta.handle();
    say("\nready");
    // Marks in the trace, between what opening does and what closing does.
    drop(std::fs::metadata("/begin-commits"));
    for i in 0..ONE_BY_ONE {
        let outcome = core.block_on(engine.commit(pair(&i.to_string())));
        assert!(matches!(outcome, Ok(Outcome::Committed(_))), "{outcome:?}");
    }
    drop(std::fs::metadata("/end-commits"));
    meta.close().expect("it closes");
}

fn fill(dir: &Path) {
    let meta = Embedded::open(dir, &Options::existing()).expect("it opens");
    let mut core = Core::new(Config::default()).expect("a core");
    let engine = meta.handle();
    let large = |i: usize| {
        let mut large = Transaction::new();
        large
            .put(format!("{i:05}"), vec![i as u8; 100_000])
            .expect("it fits");
        large
    };
    let mut rows = 0;
    let full = loop {
        assert!(rows < 10_000, "it never gets full");
        match core.block_on(engine.commit(large(rows))) {
            Ok(Outcome::Committed(_)) => rows += 1,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    let MetaError::NoSpace { place } = &full else {
        panic!("{full}");
    };
    assert_eq!(
        &**place,
        dir.display().to_string(),
        "the error names the directory"
    );
    let all = core.block_on(engine.scan(meta::Range::all(), usize::MAX));
    assert_eq!(all.expect("reads go on").len(), rows);
    for i in 0..rows {
        let key = format!("{i:05}");
        let row = core
            .block_on(engine.get(key.as_bytes()))
            .expect("reads go on");
        assert!(row.is_some_and(|row| row.value.iter().all(|byte| *byte == i as u8)));
    }
    let again = core.block_on(engine.commit(large(rows)));
    assert!(matches!(again, Err(MetaError::NoSpace { .. })), "{again:?}");

    // Somebody makes room.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, raised).expect("the soft limit");
    let outcome = core.block_on(engine.commit(large(rows)));
    assert!(matches!(outcome, Ok(Outcome::Committed(_))), "{outcome:?}");
    meta.close().expect("it closes");
    println!("filled with {rows}");
}
