//! Fuzzing led by coverage: builds libFuzzer's programs of the `fuzz` package, and runs them.
//!
//! It needs a C++ compiler, for libFuzzer itself, and neither cargo-fuzz nor a nightly compiler: the
//! instrumentation is the stable compiler's own, which `RUSTC_BOOTSTRAP` lets us ask for. The
//! programs run with AddressSanitizer.
//!
//! What a run finds stays in `found` of the build's folder, for the next one. A crash goes to
//! `fuzz/artifacts`; once mended it belongs into `fuzz/corpus`, under a name that says what it was.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::checkers::host;

/// What is in the names of files that libFuzzer made up: the hash of what is in them.
const HASH_DIGITS: usize = 40;

/// What each crate is compiled with: counters at each edge, comparisons told, memory checked.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Zsanitizer=address";

/// `cargo x fuzz`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The targets [default: all].
    targets: Vec<String>,
    /// How long each target runs.
    #[arg(long = "for", value_name = "TIME", default_value = "60s",
          value_parser = humantime::parse_duration)]
    time: Duration,
    /// How many inputs each target tries, if its time lasts [default: as many as it can].
    #[arg(long, value_name = "COUNT")]
    inputs: Option<u32>,
    /// How many targets run side by side [default: as many as there are CPUs].
    #[arg(long, value_name = "COUNT")]
    jobs: Option<NonZeroUsize>,
    /// The seed of what libFuzzer makes up [default: another one each time].
    #[arg(long)]
    seed: Option<u32>,
    /// Only try these inputs on the one target that is named, as a crash is repeated.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    input: Vec<PathBuf>,
    /// Only put what was found into the corpora, and drop inputs that reach nothing of their own.
    ///
    /// Inputs with names of their own stay.
    #[arg(long, conflicts_with = "input")]
    minimize: bool,
}

impl Arguments {
    /// A short run of all targets, as in CI: the first inputs that one seed makes up, so that CI
    /// tries the same ones each time. A slow machine tries fewer of them.
    pub(crate) fn brief() -> Self {
        Arguments {
            targets: Vec::new(),
            time: Duration::from_secs(10),
            inputs: Some(5000),
            jobs: None,
            seed: Some(1),
            input: Vec::new(),
            minimize: false,
        }
    }
}

/// Where everything is.
struct Places {
    root: PathBuf,
    build: PathBuf,
    programs: PathBuf,
}

impl Places {
    fn find() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().context("finding the repository")?;
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let build = root.join(target).join("fuzz");
        let programs = build.join(host()?).join("fuzz");
        Ok(Places {
            root,
            build,
            programs,
        })
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.root.join("fuzz/corpus").join(target)
    }

    fn found(&self, target: &str) -> PathBuf {
        self.build.join("found").join(target)
    }

    fn artifacts(&self, target: &str) -> PathBuf {
        self.root.join("fuzz/artifacts").join(target)
    }

    fn log(&self, target: &str) -> PathBuf {
        self.build.join(format!("{target}.log"))
    }

    /// A target's program, with what every run of it is told.
    fn program(&self, target: &str) -> Command {
        let mut program = Command::new(self.programs.join(target));
        let dictionary = self
            .root
            .join("fuzz/dictionaries")
            .join(format!("{target}.dict"));
        program
            .arg(format!("-dict={}", dictionary.display()))
            .arg(format!(
                "-artifact_prefix={}/",
                self.artifacts(target).display()
            ))
            // An input that takes so long is a hang. It is the wall clock's time, and the machine may be busy.
            .args(["-timeout=120", "-rss_limit_mb=2048", "-print_final_stats=1"]);
        program
    }
}

/// Does what the command line asks for.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let places = Places::find()?;
    let targets = choose(&places, &arguments.targets)?;
    build()?;
    for target in &targets {
        for folder in [
            places.corpus(target),
            places.found(target),
            places.artifacts(target),
        ] {
            fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        }
    }
    if !arguments.input.is_empty() {
        let [target] = &targets[..] else {
            bail!("an input belongs to one target: name it before --input");
        };
        let status = places.program(target).args(&arguments.input).status();
        let status = status.with_context(|| format!("starting {target}"))?;
        ensure!(status.success(), "{target} does not take this input");
        return Ok(());
    }
    if arguments.minimize {
        return targets
            .iter()
            .try_for_each(|target| minimize(&places, target));
    }
    let cpus = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = arguments.jobs.unwrap_or(cpus).get();
    fuzz(&places, &targets, jobs, arguments)
}

/// The targets that are asked for, or all.
fn choose(places: &Places, asked: &[String]) -> anyhow::Result<Vec<String>> {
    let folder = places.root.join("fuzz/fuzz_targets");
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        if let Some(name) = entry?.file_name().to_string_lossy().strip_suffix(".rs") {
            all.insert(name.to_owned());
        }
    }
    for name in asked {
        let names: Vec<&str> = all.iter().map(String::as_str).collect();
        ensure!(
            all.contains(name),
            "there is no target {name}; there are {}",
            names.join(", ")
        );
    }
    Ok(if asked.is_empty() {
        all.into_iter().collect()
    } else {
        asked.to_vec()
    })
}

/// Builds all targets.
pub(crate) fn build() -> anyhow::Result<()> {
    let places = Places::find()?;
    let build = "build --package fuzz --bins --features libfuzzer --profile fuzz --target";
    let host = host()?;
    eprintln!("$ cargo {build} {host}");
    let status = Command::new(env!("CARGO"))
        .current_dir(&places.root)
        .args(build.split(' '))
        .arg(&host)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", RUSTFLAGS)
        .env("CARGO_TARGET_DIR", &places.build)
        .status()
        .context("starting cargo")?;
    ensure!(
        status.success(),
        "the targets cannot be built (libFuzzer needs a C++ compiler)"
    );
    Ok(())
}

/// Runs the targets, some at a time, and tells of each when it ends.
fn fuzz(
    places: &Places,
    targets: &[String],
    jobs: usize,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    println!(
        "{:<14} {:>12} {:>9} {:>9} {:>8}  result",
        "target", "inputs", "a second", "edges", "kept"
    );
    let mut failed = Vec::new();
    for some in targets.chunks(jobs) {
        let mut running = Vec::new();
        for target in some {
            let log = places.log(target);
            let log = File::create(&log).with_context(|| format!("making {}", log.display()))?;
            let mut program = places.program(target);
            program
                .arg(format!(
                    "-max_total_time={}",
                    arguments.time.as_secs().max(1)
                ))
                .args(arguments.seed.map(|seed| format!("-seed={seed}")))
                .args(arguments.inputs.map(|inputs| format!("-runs={inputs}")))
                .arg(places.found(target))
                .arg(places.corpus(target))
                .stderr(log.try_clone().context("a log")?)
                .stdout(log);
            let child = program
                .spawn()
                .with_context(|| format!("starting {target}"))?;
            running.push((target, child));
        }
        // All are waited for, so that none outlives us.
        for (target, mut child) in running {
            let status = child.wait().context("waiting for a target")?;
            if !report(places, target, status)? {
                failed.push(target.as_str());
            }
        }
    }
    ensure!(
        failed.is_empty(),
        "something does not hold: {}",
        failed.join(", ")
    );
    Ok(())
}

/// Tells what a run did, from what it wrote.
fn report(places: &Places, target: &str, status: ExitStatus) -> anyhow::Result<bool> {
    let file = places.log(target);
    // Inputs are shown as they are, whatever their bytes.
    let text = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
    let text = String::from_utf8_lossy(&text);
    let figure = |name: &str| {
        text.lines()
            .rev()
            .find_map(|line| line.strip_prefix(name))
            .map_or("-", str::trim)
    };
    let word_behind = |name: &str| {
        let mut words = text.lines().rev().filter(|line| line.starts_with('#'));
        words
            .find_map(|line| line.split_once(name))
            .and_then(|(_, rest)| rest.split_ascii_whitespace().next())
            .unwrap_or("-")
    };
    println!(
        "{target:<14} {:>12} {:>9} {:>9} {:>8}  {}",
        figure("stat::number_of_executed_units:"),
        figure("stat::average_exec_per_sec:"),
        word_behind(" cov: "),
        word_behind(" corp: ").split('/').next().unwrap_or("-"),
        if status.success() { "holds" } else { "FAILS" },
    );
    if status.success() {
        return Ok(true);
    }
    let cause = text
        .lines()
        .find(|line| line.contains("panicked at") || line.contains("ERROR:"));
    if let Some(cause) = cause {
        let message = text.lines().skip_while(|line| *line != cause).take(3);
        message.for_each(|line| println!("    {line}"));
    }
    let marker = "Test unit written to ";
    if let Some((_, artifact)) = text.lines().find_map(|line| line.split_once(marker)) {
        println!("    again: cargo x fuzz {target} --input {artifact}");
    }
    println!("    all it said: {}", file.display());
    Ok(false)
}

/// Whether a file's name is the hash that libFuzzer gave it.
fn is_hash(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.len() == HASH_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let list = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    list.map(|entry| Ok(entry?.path())).collect()
}

/// Puts what was found into the corpus, as far as it reaches something that nothing else does.
fn minimize(places: &Places, target: &str) -> anyhow::Result<()> {
    let corpus = places.corpus(target);
    let merged = places.build.join("merged").join(target);
    if merged.exists() {
        fs::remove_dir_all(&merged).with_context(|| format!("emptying {}", merged.display()))?;
    }
    fs::create_dir_all(&merged).with_context(|| format!("making {}", merged.display()))?;
    for file in files(&corpus)?.iter().filter(|file| !is_hash(file)) {
        fs::copy(file, merged.join(file.file_name().context("a name")?))?;
    }
    let log = File::create(places.log(target)).context("a log")?;
    let mut program = places.program(target);
    program
        .args(["-set_cover_merge=1", "-use_counters=0"])
        .arg(&merged)
        .arg(&corpus)
        .arg(places.found(target));
    let status = program
        .stderr(log.try_clone().context("a log")?)
        .stdout(log)
        .status()
        .with_context(|| format!("starting {target}"))?;
    ensure!(
        status.success(),
        "{target} fails on an input; `cargo x fuzz {target}` tells which"
    );
    for file in files(&corpus)?.iter().filter(|file| is_hash(file)) {
        fs::remove_file(file).with_context(|| format!("removing {}", file.display()))?;
    }
    let (mut count, mut bytes) = (0, 0);
    for file in files(&merged)? {
        bytes += fs::copy(&file, corpus.join(file.file_name().context("a name")?))?;
        count += 1;
    }
    println!("{target:<14} {count} inputs, {bytes} bytes");
    Ok(())
}
