//! `cargo lab mutants`: breaks the product on purpose, and shows whether the suites notice.
//!
//! Each `crates/lab/mutants/*.patch` is a way to break it: why it matters, a line `Test: cargo ...` with the
//! command that has to fail, and the change with its context, so that it still fits when the code
//! around it moves. `Expect: unnoticed` stands in those that nobody can tell from the right code. A patch
//! that does not apply any more has to be brought up to date.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// The patches, from the root.
const FOLDER: &str = "crates/lab/mutants";
/// A test that takes so long hangs.
const TIME_MAX: Duration = Duration::from_secs(1200);
/// As the profiles, but quicker to build: it is built once for each mutant.
const QUICK: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_INCREMENTAL", "1"),
];

/// `cargo lab mutants`.
#[derive(clap::Args, Debug)]
pub struct MutantsFlags {
    /// Parts of names of mutants to try [default: all].
    names: Vec<String>,
    /// Only checks that every patch applies.
    #[arg(long)]
    check: bool,
    /// Lists the mutants and the tests that should notice them.
    #[arg(long, conflicts_with = "check")]
    list: bool,
}

/// A way to break the product.
#[derive(Debug)]
struct Mutant {
    name: String,
    patch: PathBuf,
    /// The words behind `cargo`.
    test: Vec<String>,
    /// Nobody can tell the difference.
    is_harmless: bool,
}

/// Runs them; false when one is not noticed, or noticed although it is harmless.
///
/// # Errors
/// A patch does not apply, or the tree as it is does not pass a test.
pub fn run(flags: &MutantsFlags) -> anyhow::Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().context("finding the repository")?;
    let all = read(&root)?;
    let named = |mutant: &&Mutant| {
        let named = |name: &String| mutant.name.contains(name.as_str());
        flags.names.is_empty() || flags.names.iter().any(named)
    };
    let chosen: Vec<&Mutant> = all.iter().filter(named).collect();
    ensure!(!chosen.is_empty(), "no mutant is called so; see --list");
    if flags.list {
        for mutant in chosen {
            println!("{:<60} cargo {}", mutant.name, mutant.test.join(" "));
        }
        return Ok(true);
    }
    // All of them first, so that a patch that does not apply is known before anything is built.
    check(&root, &chosen)?;
    if flags.check {
        println!("{} mutants apply", chosen.len());
        return Ok(true);
    }
    let scratch = Scratch::new(&root)?;
    let mut passed: Vec<&[String]> = Vec::new();
    let mut is_as_expected = true;
    for mutant in chosen {
        if !passed.contains(&&mutant.test[..]) {
            let test = mutant.test.join(" ");
            ensure!(
                !scratch.fails(&mutant.test)?,
                "the tree as it is fails `cargo {test}`"
            );
            passed.push(&mutant.test);
        }
        apply(&scratch.tree, &mutant.patch, &[])?;
        let noticed = scratch.fails(&mutant.test);
        apply(&scratch.tree, &mutant.patch, &["--reverse"])?;
        let noticed = noticed.with_context(|| format!("mutant `{}`", mutant.name))?;
        let word = match (noticed, mutant.is_harmless) {
            (true, false) => "noticed",
            (false, true) => "harmless",
            (false, false) => "MISSED",
            (true, true) => "NOTICED, though it should be harmless",
        };
        println!("{:<60} {word}", mutant.name);
        is_as_expected &= noticed != mutant.is_harmless;
    }
    Ok(is_as_expected)
}

/// The mutants of the tree at `root`.
fn read(root: &Path) -> anyhow::Result<Vec<Mutant>> {
    let folder = root.join(FOLDER);
    let mut mutants = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let patch = entry?.path();
        let text = fs::read_to_string(&patch)?;
        let mutant = parse(&patch, &text).with_context(|| format!("in {}", patch.display()))?;
        mutants.push(mutant);
    }
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(mutants)
}

fn parse(patch: &Path, text: &str) -> anyhow::Result<Mutant> {
    let (head, _) = text.split_once("\n--- a/").context("no change")?;
    let test = head
        .lines()
        .find_map(|line| line.strip_prefix("Test: cargo "));
    let name = patch.file_stem().context("no name")?;
    Ok(Mutant {
        name: name.to_string_lossy().into_owned(),
        patch: patch.to_path_buf(),
        test: test
            .context("no `Test: cargo ...`")?
            .split_whitespace()
            .map(str::to_string)
            .collect(),
        is_harmless: head.lines().any(|line| line == "Expect: unnoticed"),
    })
}

/// Insists that each patch applies.
fn check(root: &Path, mutants: &[&Mutant]) -> anyhow::Result<()> {
    let wrong: Vec<String> = mutants
        .iter()
        .filter_map(|mutant| apply(root, &mutant.patch, &["--check"]).err())
        .map(|error| format!("  {error:#}"))
        .collect();
    ensure!(
        wrong.is_empty(),
        "patches that do not apply any more; bring {FOLDER} up to date:\n{}",
        wrong.join("\n")
    );
    Ok(())
}

/// Applies a patch to the files of a folder.
fn apply(folder: &Path, patch: &Path, how: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("git")
        .arg("apply")
        .args(how)
        .arg(patch)
        .current_dir(folder)
        // The copy of the tree lies in a repository whose own files are not meant.
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder))
        .output()
        .context("starting git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let name = patch.file_stem().unwrap_or_default().to_string_lossy();
    ensure!(output.status.success(), "{name}: {}", said.trim());
    Ok(())
}

/// A copy of the tree, built for itself.
struct Scratch {
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
                let to = scratch.tree.join(name);
                let copy = || {
                    fs::create_dir_all(to.parent().unwrap_or(root))?;
                    fs::copy(root.join(name), &to)
                };
                copy().with_context(|| format!("copying {name}"))?;
            }
        }
        Ok(scratch)
    }

    /// Builds a test of the copy and runs it: whether it fails, or does not end.
    fn fails(&self, test: &[String]) -> anyhow::Result<bool> {
        // What is built is what stands before `--`; a mutant that does not build proves nothing.
        let chosen = test.split(|word| word == "--").next().unwrap_or_default();
        let chosen: Vec<&str> = chosen.iter().map(String::as_str).collect();
        let build = match chosen.split_first() {
            Some((&"test", rest)) => [&["test", "--no-run"], rest].concat(),
            Some((&"run", rest)) => [&["build"], rest].concat(),
            _ => vec!["build", "--package", "xtask"],
        };
        let built = self.cargo(&build).status().context("starting cargo")?;
        ensure!(built.success(), "it does not build");
        let log = self.build.join("mutant.log");
        let output =
            fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut running = self
            .cargo(&test.iter().map(String::as_str).collect::<Vec<_>>())
            .stdout(output)
            .spawn()
            .context("starting cargo")?;
        let began = Instant::now();
        loop {
            if let Some(status) = running.try_wait()? {
                return Ok(!status.success());
            }
            if began.elapsed() > TIME_MAX {
                running.kill().context("ending a test")?;
                running.wait()?;
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn cargo(&self, words: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .args(words)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.build)
            .envs(QUICK)
            // Panics are what is looked for.
            .stderr(Stdio::null());
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_applies() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().unwrap();
        let mutants = read(&root).unwrap();
        assert!(mutants.len() >= 40, "{}", mutants.len());
        check(&root, &mutants.iter().collect::<Vec<_>>()).unwrap();
    }

    #[test]
    fn a_patch_names_its_test() {
        let change = "\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
        let parse = |head: &str| parse("some-name.patch".as_ref(), &format!("{head}{change}"));
        let mutant = parse("Why.\n\nTest: cargo test -p x -- y\nExpect: unnoticed\n").unwrap();
        assert_eq!(mutant.name, "some-name");
        assert_eq!(mutant.test, ["test", "-p", "x", "--", "y"]);
        assert!(mutant.is_harmless);
        assert!(!parse("Test: cargo x loom\n").unwrap().is_harmless);
        assert!(parse("Why.\n").is_err());
        assert!(super::parse("x.patch".as_ref(), "Test: cargo x\n").is_err());
    }
}
