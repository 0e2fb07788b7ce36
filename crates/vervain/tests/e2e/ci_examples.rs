//! What strangers copy into their CI: the lines of README.md, docs/ci.md and examples/ci, taken from there and run in a clean directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use vervain_test::free_port;

use crate::foreign::leave_out;
use crate::harness::{Place, run};
use crate::programs::{has, library};
use crate::wheel::{ROOT, python, wheel};

/// Packages are not installed by tests. Those that an example names must be known by that name.
const APT_GET: &str = r#"#!/bin/sh
command -v dpkg-query >/dev/null || exit 0
case "$1" in update) exit 0 ;; install) shift ;; *) exit 9 ;; esac
for word; do
    case "$word" in
        -*) ;;
        *) dpkg-query -W "$word" >/dev/null || apt-cache show "$word" >/dev/null || exit 1 ;;
    esac
done
"#;

/// A program's tests as a stranger has them: they know nothing of Vervain, and pass where there is a device.
const TESTS: &str = r#"#!/bin/sh
set -e
ibv_rc_pingpong -c -g 0 -n 100 -p PORT &
server=$!
until grep -qi ":HEX [0-9A-F:]* 0A" /proc/net/tcp /proc/net/tcp6; do
    kill -0 $server
    sleep 0.01
done
ibv_rc_pingpong -c -g 0 -n 100 -p PORT 127.0.0.1
wait $server
echo passed
"#;

/// A clean directory with a stranger's tests, and what its commands have set for later ones.
struct Job {
    place: Place,
    variables: BTreeMap<String, String>,
    said: String,
}

impl Job {
    fn new() -> Self {
        let job = Job {
            place: Place::new(),
            variables: BTreeMap::new(),
            said: String::new(),
        };
        for dir in ["tools", "runtime", "work"] {
            fs::create_dir(job.place.path(dir)).expect("a directory");
        }
        job.program("tools/apt-get", APT_GET);
        job.program("tools/sudo", "#!/bin/sh\nexec \"$@\"\n");
        let port = free_port().expect("a port");
        let tests = TESTS.replace("PORT", &port.to_string());
        job.program(
            "work/your-tests",
            &tests.replace("HEX", &format!("{port:04X}")),
        );
        fs::write(job.place.path("variables"), "").expect("written");
        job
    }

    fn with_wheel(python: &str) -> Self {
        let (job, wheel) = (Job::new(), wheel(python));
        let name = wheel.file_name().expect("a name").to_str().expect("UTF-8");
        fs::copy(&wheel, job.place.path("work").join(name)).expect("copied");
        job
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.place.path(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("changed");
    }

    /// Runs a step as CI does, in a shell of its own; what it writes into $GITHUB_ENV is set for those after it.
    #[track_caller]
    fn step(&mut self, line: &str) {
        let mut shell = Command::new("bash");
        let path = std::env::var("PATH").expect("a path");
        let variables = self.place.path("variables");
        shell
            .args(["-e", "-c", line])
            .current_dir(self.place.path("work"))
            .env_clear()
            .env(
                "PATH",
                format!("{}:{path}", self.place.path("tools").display()),
            )
            .env("HOME", self.place.path("."))
            .env("XDG_RUNTIME_DIR", self.place.path("runtime"))
            .env("GITHUB_ENV", &variables)
            // There is nothing to fetch.
            .env("PIP_NO_INDEX", "1")
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
            .envs(&self.variables);
        let said = run(&mut shell, b"");
        assert_eq!(said.code, Some(0), "{line}: {}{}", said.text(), said.err);
        self.said += said.text();
        let set = fs::read_to_string(&variables).expect("readable");
        let set = set
            .lines()
            .map(|line| line.split_once('=').expect("NAME=VALUE"));
        self.variables
            .extend(set.map(|(name, value)| (name.into(), value.into())));
    }

    /// How often the tests have run on the software NIC.
    #[track_caller]
    fn passed(&self, times: usize) {
        assert_eq!(
            self.said.matches("passed\n").count(),
            times,
            "{}",
            self.said
        );
        // Both sides say so.
        let iters = self.said.matches("100 iters in").count();
        assert_eq!(iters, 2 * times, "{}", self.said);
    }
}

/// What a machine needs for these tests.
fn needed() -> Option<String> {
    let python = python()?;
    has("ibv_rc_pingpong").then_some(python)
}

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).expect(name)
}

/// The steps of a job on GitHub.
fn github_steps(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("- run: "))
        .collect()
}

/// The blocks of a page that are of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    let parts = page.split(&*begin).skip(1);
    parts
        .map(|part| part.split("```").next().expect("its end"))
        .collect()
}

/// The items of a list that belong to a key, of YAML as it is written here: a line each.
fn items<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().map(str::trim);
    let after = lines.skip_while(|line| *line != key).skip(1);
    let of_the_list = after.take_while(|line| line.starts_with("- ") || line.starts_with('#'));
    of_the_list
        .filter_map(|line| line.strip_prefix("- "))
        .collect()
}

#[test]
fn a_strangers_tests_need_a_device() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let job = Job::new();
    let mut tests = Command::new("./your-tests");
    let said = run(
        tests
            .current_dir(job.place.path("work"))
            .env_remove("LD_PRELOAD"),
        b"",
    );
    assert_ne!(said.code, Some(0), "there is a device without Vervain");
}

#[test]
fn three_lines_of_the_readme_are_enough() {
    let Some(python) = needed() else { return };
    let page = read("README.md");
    let blocks = blocks(&page, "yaml");
    let [lines] = &blocks[..] else {
        panic!("one block of YAML: {blocks:?}")
    };
    let steps = github_steps(lines);
    assert_eq!((steps.len(), lines.lines().count()), (3, 3), "{lines}");
    let mut job = Job::with_wheel(&python);
    for step in steps {
        job.step(step);
    }
    job.passed(1);
}

#[test]
fn the_example_for_github_passes() {
    let Some(python) = needed() else { return };
    let mut job = Job::with_wheel(&python);
    for step in github_steps(&read("examples/ci/github.yml")) {
        job.step(step);
    }
    job.passed(2);
    assert!(job.said.contains("hca_id:\tvervain0"), "{}", job.said);
}

#[test]
fn the_example_for_gitlab_passes() {
    let Some(python) = needed() else { return };
    let text = read("examples/ci/gitlab.yml");
    let (before, script) = (items(&text, "before_script:"), items(&text, "script:"));
    assert_eq!((before.len(), script.len()), (3, 2));
    let mut job = Job::with_wheel(&python);
    // One shell for both, as GitLab's runner has it.
    job.step(&[before, script].concat().join("\n"));
    job.passed(1);
    assert!(job.said.contains("hca_id:\tvervain0"), "{}", job.said);
}

#[test]
fn the_example_of_an_image_passes() {
    let Some(python) = needed() else { return };
    let text = read("examples/ci/Dockerfile").replace("\\\n", " ");
    let mut job = Job::with_wheel(&python);
    let mut started: Vec<String> = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (instruction, rest) = line.split_once(' ').expect("an instruction");
        match instruction {
            "RUN" => job.step(rest),
            "ENTRYPOINT" | "CMD" => {
                started.extend(serde_json::from_str::<Vec<String>>(rest).expect("a list"));
            }
            // The clean directory is the image's, and the context's.
            "FROM" | "WORKDIR" => {}
            "COPY" => assert_eq!(rest, ". ."),
            other => panic!("{other}: not known here"),
        }
    }
    job.step(&started.join(" "));
    job.passed(2);
}

#[test]
fn the_lines_for_a_checkout_pass() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    // What `cargo build` without a package builds.
    let members = "default-members = [\"crates/vervain\", \"crates/shim\"]";
    assert!(read("Cargo.toml").contains(members));
    let page = read("docs/ci.md");
    let blocks = blocks(&page, "yaml");
    let of_a_checkout = |block: &&&str| block.contains("cargo build");
    let block = blocks.iter().find(of_a_checkout).expect("the lines");
    let steps = github_steps(block);
    assert_eq!(steps.len(), 2);
    let mut job = Job::new();
    // Building it would take minutes: the binaries under test are put where cargo puts a release.
    let built = format!(
        "#!/bin/sh\n[ \"$*\" = 'build --release --manifest-path vervain/Cargo.toml' ] && mkdir -p vervain/target/release && cp {} {} vervain/target/release\n",
        env!("CARGO_BIN_EXE_vervain"),
        library().display(),
    );
    job.program("tools/cargo", &built);
    for step in steps {
        job.step(step);
    }
    job.passed(1);
}

/// A crate whose test needs a device.
const CRATE: &str = r#"
#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_get_device_list(count: *mut std::ffi::c_int) -> *mut *mut std::ffi::c_void;
}

#[test]
fn there_is_a_device() {
    let mut count = 0;
    let list = unsafe { ibv_get_device_list(&mut count) };
    assert!(!list.is_null());
    assert_eq!(count, 1);
}
"#;

#[test]
fn cargo_starts_tests_on_the_software_nic() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return leave_out("libibverbs-dev is missing");
    }
    let page = read("docs/ci.md");
    let lines: Vec<&str> = (page.lines())
        .filter_map(|line| line.strip_prefix("$ "))
        .skip_while(|line| !line.starts_with("export CARGO_TARGET"))
        .take(2)
        .collect();
    assert_eq!(lines.get(1), Some(&"cargo test"));
    let place = Place::new();
    fs::create_dir(place.path("src")).expect("a directory");
    let manifest = "[package]\nname = \"stranger\"\nversion = \"0.0.0\"\nedition = \"2024\"\n";
    fs::write(place.path("Cargo.toml"), manifest).expect("written");
    fs::write(place.path("src/lib.rs"), CRATE).expect("written");
    let program = Path::new(env!("CARGO_BIN_EXE_vervain"));
    let tools = program.parent().expect("a directory").display();
    let path = std::env::var("PATH").expect("a path");
    let mut shell = Command::new("sh");
    shell
        .args(["-e", "-c", &lines.join("\n")])
        .current_dir(place.path("."))
        .env("PATH", format!("{tools}:{path}"))
        .env("VERVAIN_VERBS_LIBRARY", library())
        .env("XDG_RUNTIME_DIR", place.path("runtime"))
        .env("CARGO_TARGET_DIR", place.path("target"))
        .env("CARGO_NET_OFFLINE", "true")
        .env_remove("LD_PRELOAD");
    let said = run(&mut shell, b"");
    assert_eq!(said.code, Some(0), "{}{}", said.text(), said.err);
    assert!(said.text().contains("1 passed"), "{}", said.text());
}

#[test]
fn the_page_shows_the_examples_as_they_are() {
    let page = read("docs/ci.md");
    for name in ["github.yml", "gitlab.yml", "Dockerfile"] {
        let text = read(&format!("examples/ci/{name}"));
        assert!(page.contains(&text), "docs/ci.md has another {name}");
    }
}
