//! `cargo x check`: everything that CI checks, in the order that finds most in the least time, and
//! what each step took.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::{Reach, cargo, checkers, deps, docs, fuzz, lint, loom};

/// A step: what it is called, and what it does.
type Step = (&'static str, fn() -> anyhow::Result<()>);

const STEPS: [Step; 8] = [
    ("formatting and clippy", lint),
    ("tests, and builds for the steps below", tests),
    ("documentation", docs),
    ("licences, sources, duplicates", deps),
    ("what threads share, in every order", || loom(Reach::Run)),
    ("unsafe modules under AddressSanitizer", || {
        checkers::asan_brief(Reach::Run)
    }),
    // The same inputs each time, so that a change fails for what it did; who looks for more gives no
    // seed.
    ("bytes from outside, made up", || {
        fuzz::run(&fuzz::Arguments::brief())
    }),
    ("what the hot paths do, counted", gates),
];

/// Runs all steps up to the first that fails, and prints what each took.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut taken = Vec::new();
    let mut done = Ok(());
    for (name, step) in STEPS {
        eprintln!("\n== {name}");
        let (began, cpu) = (Instant::now(), children_cpu());
        done = step().with_context(|| name.to_string());
        let used = children_cpu()
            .zip(cpu)
            .map(|(after, before)| after - before);
        taken.push((name, began.elapsed(), used));
        if done.is_err() {
            break;
        }
    }
    println!("\n{:<42}{:>9}{:>9}", "step", "minutes", "CPU");
    let minutes = |time: Duration| format!("{:.1}", time.as_secs_f64() / 60.0);
    let shown = |cpu: Option<Duration>| cpu.map_or_else(|| "-".to_string(), minutes);
    for (name, time, cpu) in &taken {
        println!("{name:<42}{:>9}{:>9}", minutes(*time), shown(*cpu));
    }
    let all = taken.iter().map(|(_, time, _)| *time).sum();
    let cpu = taken.iter().map(|(_, _, cpu)| *cpu).sum();
    println!("{:<42}{:>9}{:>9}", "all", minutes(all), shown(cpu));
    done
}

/// Runs the tests, which leave the CPUs idle for half of their time, and meanwhile builds what later steps run, at
/// the lowest priority.
fn tests() -> anyhow::Result<()> {
    let are_wanted = AtomicBool::new(true);
    thread::scope(|scope| {
        let ahead = scope.spawn(|| builds_ahead(&are_wanted));
        // One run tells all that fails.
        let tested = cargo(&["test", "--workspace", "--no-fail-fast"], &[]);
        are_wanted.store(tested.is_ok(), Ordering::Relaxed);
        let built = ahead.join().expect("it does not panic");
        tested.and(built)
    })
}

/// Builds what later steps run, while these are wanted. A failure is told here, with its cause.
fn builds_ahead(are_wanted: &AtomicBool) -> anyhow::Result<()> {
    // Of this thread and the processes that it starts, on Linux.
    rustix::process::nice(19).context("lowering the priority of builds")?;
    let builds: [fn() -> anyhow::Result<()>; 4] = [
        || loom(Reach::Build),
        || checkers::asan_brief(Reach::Build),
        fuzz::build,
        build_counted,
    ];
    for build in builds {
        if !are_wanted.load(Ordering::Relaxed) {
            break;
        }
        build()?;
    }
    Ok(())
}

/// What `cargo lab gates` builds.
fn build_counted() -> anyhow::Result<()> {
    if !is_counted() {
        return Ok(());
    }
    let what = ["--package", "gates", "--package", "vervain", "--bins"];
    cargo(&[&["build", "--release"], &what[..]].concat(), &[])
}

/// Whether counts can be taken here.
const fn is_counted() -> bool {
    cfg!(all(target_os = "linux", target_arch = "x86_64"))
}

/// Counts with the lab that the tests have built.
fn gates() -> anyhow::Result<()> {
    if !is_counted() {
        eprintln!("no counts: they can be taken on Linux on x86-64 only");
        return Ok(());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let lab = root.join(target).join("debug/lab");
    let status = Command::new(&lab).arg("gates").current_dir(&root).status();
    let status = status.with_context(|| format!("starting {}", lab.display()))?;
    ensure!(status.success(), "the counts differ");
    Ok(())
}

/// The CPU time of all children that have ended, and of theirs, where the kernel tells.
fn children_cpu() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    // `cutime` and `cstime`, fields 16 and 17, in hundredths of a second.
    let mut ticks = fields.split(' ').skip(13).take(2).map(str::parse::<u64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some(Duration::from_millis((user + system) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_known() {
        let before = children_cpu().expect("Linux tells");
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let status = Command::new("sh").args(["-c", busy]).status();
        assert!(status.expect("a shell").success());
        assert!(children_cpu().expect("Linux tells") > before);
    }
}
