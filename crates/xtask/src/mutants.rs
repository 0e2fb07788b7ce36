//! `cargo x mutants`: breaks the cache on purpose, and counts the seeds in which the simulation notices.
//!
//! The ways to break it are in `crates/simulation/mutants.md`. Each is applied to a copy of the tree,
//! which is built and run over some seeds. A mutant that should be caught and is not means that the
//! simulation is blind to that kind of mistake; a text that is not in the tree any more has to be
//! brought up to date.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// The list, from the root.
const LIST: &str = "crates/simulation/mutants.md";
/// A run that takes so long hangs.
const TIME_MAX: Duration = Duration::from_secs(300);
/// As the release profile, but quicker to build: it is built once for each mutant.
const QUICK: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_INCREMENTAL", "1"),
];

/// `cargo x mutants`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Parts of names of mutants to try [default: all].
    names: Vec<String>,
    /// Seeds for each.
    #[arg(long, value_name = "N", default_value_t = 500)]
    seeds: u64,
    /// Only checks that every mutant's text is in the tree.
    #[arg(long)]
    check: bool,
    /// Lists the mutants.
    #[arg(long, conflicts_with = "check")]
    list: bool,
}

/// A way to break the cache.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    name: String,
    /// It should not be caught: nobody can tell the difference, for a reason that the list gives.
    is_harmless: bool,
    changes: Vec<Change>,
}

/// A text of one file, and what takes its place.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    path: PathBuf,
    old: String,
    new: String,
}

/// What a run over seeds came to.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// So many seeds failed, and the first of them.
    Failed(u64, Option<u64>),
    /// It did not end.
    Hung,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().context("finding the repository")?;
    let mutants = read(&root)?;
    let chosen: Vec<&Mutant> = mutants
        .iter()
        .filter(|mutant| {
            let named = |name: &String| mutant.name.contains(name.as_str());
            arguments.names.is_empty() || arguments.names.iter().any(named)
        })
        .collect();
    ensure!(!chosen.is_empty(), "no mutant is called so; see --list");
    if arguments.list {
        for mutant in chosen {
            let note = if mutant.is_harmless {
                " (harmless)"
            } else {
                ""
            };
            println!("{}{note}", mutant.name);
        }
        return Ok(());
    }
    // All of them first, so that a text that is gone is known before anything is built.
    check(&root, &chosen)?;
    if arguments.check {
        println!("{} mutants fit the tree", chosen.len());
        return Ok(());
    }
    let scratch = Scratch::new(&root)?;
    let seeds = arguments.seeds;
    ensure!(
        scratch.run(seeds).context("the tree as it is")? == Outcome::Failed(0, None),
        "the tree as it is fails: see `cargo x simulate --seeds {seeds}`"
    );
    let mut unexpected = Vec::new();
    println!(
        "{:<44} {:>14}  first seed",
        "mutant",
        format!("of {seeds} seeds")
    );
    for mutant in chosen {
        scratch.apply(mutant)?;
        let outcome = scratch.run(seeds);
        scratch.restore(mutant)?;
        let outcome = outcome.with_context(|| format!("mutant `{}`", mutant.name))?;
        let is_caught = outcome != Outcome::Failed(0, None);
        let (count, first) = match outcome {
            Outcome::Failed(0, _) if mutant.is_harmless => ("harmless".to_string(), None),
            Outcome::Failed(0, _) => ("MISSED".to_string(), None),
            Outcome::Failed(count, first) => (count.to_string(), first),
            Outcome::Hung => ("hangs".to_string(), None),
        };
        let first = first.map_or_else(String::new, |seed| seed.to_string());
        println!("{:<44} {count:>14}  {first}", mutant.name);
        if is_caught == mutant.is_harmless {
            unexpected.push(mutant.name.as_str());
        }
    }
    ensure!(
        unexpected.is_empty(),
        "not as {LIST} says, in {seeds} seeds: {}",
        unexpected.join(", ")
    );
    Ok(())
}

/// The list of the tree at `root`.
fn read(root: &Path) -> anyhow::Result<Vec<Mutant>> {
    let path = root.join(LIST);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    parse(&text).with_context(|| format!("in {LIST}"))
}

/// Reads the list: a heading of the second level begins a mutant, a line that is nothing but a path in
/// backquotes names a file, and a `diff` block says what changes there.
fn parse(text: &str) -> anyhow::Result<Vec<Mutant>> {
    let mut mutants: Vec<Mutant> = Vec::new();
    let mut path = None;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let at = || format!("line {}", number + 1);
        if let Some(name) = line.strip_prefix("## ") {
            let (name, is_harmless) = match name.strip_suffix(" (harmless)") {
                Some(name) => (name, true),
                None => (name, false),
            };
            ensure!(
                mutants.iter().all(|mutant| mutant.name != name),
                "{}: a second mutant `{name}`",
                at()
            );
            mutants.push(Mutant {
                name: name.to_string(),
                is_harmless,
                changes: Vec::new(),
            });
            path = None;
        } else if let Some(name) = line
            .strip_prefix('`')
            .and_then(|line| line.strip_suffix('`'))
        {
            path = Some(PathBuf::from(name));
        } else if line == "```diff" {
            let path = path
                .clone()
                .with_context(|| format!("{}: of which file?", at()))?;
            let mutant = mutants
                .last_mut()
                .with_context(|| format!("{}: of what?", at()))?;
            let (mut old, mut new) = (String::new(), String::new());
            loop {
                let (number, line) = lines.next().context("a block without an end")?;
                if line == "```" {
                    break;
                }
                let (mark, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
                let texts: &mut [&mut String] = match mark {
                    "-" => &mut [&mut old],
                    "+" => &mut [&mut new],
                    " " => &mut [&mut old, &mut new],
                    _ => bail!("line {}: `{line}` begins with no mark", number + 1),
                };
                for text in texts {
                    text.push_str(rest);
                    text.push('\n');
                }
            }
            ensure!(old != new, "{}: nothing changes", at());
            mutant.changes.push(Change { path, old, new });
        }
    }
    for mutant in &mutants {
        ensure!(
            !mutant.changes.is_empty(),
            "`{}` changes nothing",
            mutant.name
        );
    }
    Ok(mutants)
}

/// Insists that each text is in its file once.
fn check(root: &Path, mutants: &[&Mutant]) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for mutant in mutants {
        if let Err(error) = mutated(root, mutant) {
            wrong.push(format!("  {}: {error:#}", mutant.name));
        }
    }
    ensure!(
        wrong.is_empty(),
        "mutants that do not fit the tree any more; bring {LIST} up to date:\n{}",
        wrong.join("\n")
    );
    Ok(())
}

/// The files that a mutant changes, and what becomes of them.
fn mutated(root: &Path, mutant: &Mutant) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for change in &mutant.changes {
        let index = match files.iter().position(|(path, _)| *path == change.path) {
            Some(index) => index,
            None => {
                let text = fs::read_to_string(root.join(&change.path))
                    .with_context(|| format!("reading {}", change.path.display()))?;
                files.push((change.path.clone(), text));
                files.len() - 1
            }
        };
        let text = &mut files[index].1;
        let count = text.matches(&change.old).count();
        ensure!(
            count == 1,
            "its text is in {} {count} times",
            change.path.display()
        );
        *text = text.replacen(&change.old, &change.new, 1);
    }
    Ok(files)
}

/// A copy of the tree, built for itself.
struct Scratch {
    root: PathBuf,
    tree: PathBuf,
    build: PathBuf,
}

impl Scratch {
    /// Copies what git knows of the tree, as it is now.
    fn new(root: &Path) -> anyhow::Result<Scratch> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let folder = root.join(target).join("mutants");
        let scratch = Scratch {
            root: root.to_path_buf(),
            tree: folder.join("tree"),
            build: folder.join("build"),
        };
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()
            .context("starting git")?;
        ensure!(
            listed.status.success(),
            "git does not list the tree: {}",
            String::from_utf8_lossy(&listed.stderr).trim()
        );
        if scratch.tree.exists() {
            fs::remove_dir_all(&scratch.tree)
                .with_context(|| format!("emptying {}", scratch.tree.display()))?;
        }
        let names = String::from_utf8(listed.stdout).context("a name that is not UTF-8")?;
        for name in names.split_terminator('\0') {
            // A file that git knows may be gone from the tree.
            if root.join(name).is_file() {
                scratch.copy(Path::new(name))?;
            }
        }
        Ok(scratch)
    }

    /// Copies a file from the tree.
    fn copy(&self, path: &Path) -> anyhow::Result<()> {
        let text = fs::read(self.root.join(path))
            .with_context(|| format!("reading {}", path.display()))?;
        self.write(path, &text)
    }

    /// Writes a file of the copy. Its time is now, so that cargo builds it anew.
    fn write(&self, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
        let to = self.tree.join(path);
        let write = || {
            fs::create_dir_all(to.parent().unwrap_or(&self.tree))?;
            fs::write(&to, bytes)
        };
        write().with_context(|| format!("writing {}", to.display()))
    }

    fn apply(&self, mutant: &Mutant) -> anyhow::Result<()> {
        for (path, text) in mutated(&self.root, mutant)? {
            self.write(&path, text.as_bytes())?;
        }
        Ok(())
    }

    fn restore(&self, mutant: &Mutant) -> anyhow::Result<()> {
        for change in &mutant.changes {
            self.copy(&change.path)?;
        }
        Ok(())
    }

    /// Builds the simulation and runs seeds.
    fn run(&self, seeds: u64) -> anyhow::Result<Outcome> {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--release", "--quiet", "--package", "simulation"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.build)
            // A mutant may leave something unused.
            .env("RUSTFLAGS", "-Awarnings")
            .envs(QUICK)
            .status()
            .context("starting cargo")?;
        ensure!(built.success(), "it does not build");
        let log = self.build.join("simulation.log");
        let output =
            fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut simulation = Command::new(self.build.join("release/simulation"))
            .args(["--keep-going", "--seeds", &seeds.to_string()])
            .stdout(output)
            // Panics are failures of their seeds.
            .stderr(Stdio::null())
            .spawn()
            .context("starting the simulation")?;
        let began = Instant::now();
        loop {
            if simulation.try_wait()?.is_some() {
                break;
            }
            if began.elapsed() > TIME_MAX {
                simulation.kill().context("ending the simulation")?;
                simulation.wait()?;
                return Ok(Outcome::Hung);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let said = fs::read(&log).with_context(|| format!("reading {}", log.display()))?;
        outcome(&String::from_utf8_lossy(&said))
            .with_context(|| format!("the simulation did not say how it ended: {}", log.display()))
    }
}

/// How a run ended, by what the simulation printed last.
fn outcome(said: &str) -> Option<Outcome> {
    let last = said.lines().next_back()?;
    if last == "no wrong answer, nothing stuck, nothing kept" {
        return Some(Outcome::Failed(0, None));
    }
    let (count, seeds) = last.split_once(" seeds failed: [")?;
    let first = seeds.split([',', ']']).next()?.parse().ok();
    Some(Outcome::Failed(count.parse().ok()?, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_fits_the_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mutants = read(&root).unwrap();
        assert!(mutants.len() > 10);
        check(&root, &mutants.iter().collect::<Vec<_>>()).unwrap();
    }

    #[test]
    fn a_list_is_read() {
        let text = "# List\n\n## one thing (harmless)\n\nWhy.\n\n`a/b.rs`\n```diff\n same\n-old\n+new\n\n```\n";
        let change = Change {
            path: "a/b.rs".into(),
            old: "same\nold\n\n".into(),
            new: "same\nnew\n\n".into(),
        };
        let mutant = Mutant {
            name: "one thing".into(),
            is_harmless: true,
            changes: vec![change],
        };
        assert_eq!(parse(text).unwrap(), [mutant]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "## a\n",
            "## a\n```diff\n-x\n+y\n```\n",
            "## a\n`f`\n```diff\n-x\n+y\n",
            "## a\n`f`\n```diff\n x\n```\n",
            "## a\n`f`\n```diff\nx\n```\n",
            "`f`\n```diff\n-x\n+y\n```\n",
            "## a\n`f`\n```diff\n-x\n+y\n```\n## a\n`f`\n```diff\n-x\n+y\n```\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_gone_or_there_twice_does_not_fit() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let fits = |old: &str| {
            let change = Change {
                path: "Cargo.toml".into(),
                old: old.into(),
                new: String::new(),
            };
            let mutant = Mutant {
                name: "m".into(),
                is_harmless: false,
                changes: vec![change],
            };
            mutated(here, &mutant).is_ok()
        };
        assert!(fits("name = \"xtask\"\n"));
        assert!(!fits("name = \"nothing\"\n"));
        assert!(!fits("workspace = true\n"));
    }

    #[test]
    fn what_the_simulation_says_is_understood() {
        let fine = "500 seeds from 0 in 9 s\nno wrong answer, nothing stuck, nothing kept\n";
        assert_eq!(outcome(fine), Some(Outcome::Failed(0, None)));
        let failed = "seed 7: stuck\n\n2 seeds failed: [7, 12]\n";
        assert_eq!(outcome(failed), Some(Outcome::Failed(2, Some(7))));
        assert_eq!(outcome("seed 7: stuck\n"), None);
        assert_eq!(outcome(""), None);
    }
}
