//! The Python package: built from the binaries under test, installed into a fresh environment, and used by pytest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::foreign::leave_out;
use crate::harness::{Place, Said, run};
use crate::programs::library;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A Python that has pytest and pip.
pub(crate) fn python() -> Option<String> {
    let python = std::env::var("VERVAIN_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python)
        .args(["-c", "import pytest, pip, tomllib"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has {
        leave_out("there is no Python of 3.11 or newer with pytest and pip");
    }
    has.then_some(python)
}

/// A directory with the binaries under test.
fn binaries(place: &Place) -> PathBuf {
    let binaries = place.path("binaries");
    std::fs::create_dir(&binaries).expect("a directory");
    let program = Path::new(env!("CARGO_BIN_EXE_vervain"));
    for (from, name) in [(program, "vervain"), (&library(), "libvervain_verbs.so")] {
        std::os::unix::fs::symlink(from, binaries.join(name)).expect("a link");
    }
    binaries
}

/// The wheel of the binaries under test, which is built once.
pub(crate) fn wheel(python: &str) -> PathBuf {
    static BUILT: OnceLock<(Place, PathBuf)> = OnceLock::new();
    let (_, wheel) = BUILT.get_or_init(|| {
        let place = Place::new();
        let mut build = Command::new(python);
        build
            .arg(Path::new(ROOT).join("python/wheel_of_binaries.py"))
            .args([binaries(&place), place.path("wheels")]);
        let said = run(&mut build, b"");
        assert_eq!(said.code, Some(0), "{}", said.err);
        let wheel = PathBuf::from(said.text().trim_end());
        (place, wheel)
    });
    wheel.clone()
}

/// A fresh environment with the wheel in it; where its modules are.
fn install(python: &str, place: &Place) -> PathBuf {
    let environment = place.path("environment");
    let mut make = Command::new(python);
    make.args(["-m", "venv", "--without-pip"]).arg(&environment);
    run(&mut make, b"").expect(0, "");
    let mut install = Command::new(python);
    install
        .args(["-m", "pip", "--disable-pip-version-check", "--python"])
        .arg(environment.join("bin/python"))
        .args(["install", "--quiet", "--no-index"])
        .arg(wheel(python))
        .env("PIP_ROOT_USER_ACTION", "ignore");
    run(&mut install, b"").expect(0, "");
    environment
}

/// What a Python says about itself.
fn asked(python: &Path, script: &str) -> String {
    let mut ask = Command::new(python);
    let said = run(ask.args(["-c", script]), b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    said.text().trim_end().to_string()
}

/// Where a Python has its modules.
const MODULES: &str = "import sysconfig; print(sysconfig.get_path('purelib'))";

#[test]
fn pip_builds_the_same_wheel() {
    let Some(python) = python() else { return };
    let place = Place::new();
    let mut build = Command::new(&python);
    build
        .args(["-m", "pip", "--disable-pip-version-check", "wheel"])
        .args(["--quiet", "--no-index", "--wheel-dir"])
        .arg(place.path("wheels"))
        .arg(Path::new(ROOT).join("python"))
        .env("VERVAIN_BINARIES", binaries(&place));
    run(&mut build, b"").expect(0, "");
    let ours = wheel(&python);
    let theirs = place.path("wheels").join(ours.file_name().expect("a name"));
    let [ours, theirs] = [ours, theirs].map(|wheel| std::fs::read(wheel).expect("a wheel"));
    assert!(ours == theirs, "the same binaries make another wheel");
}

#[test]
fn an_installed_wheel_runs_programs() {
    let Some(python) = python() else { return };
    let place = Place::new();
    let environment = install(&python, &place);
    let vervain = environment.join("bin/vervain");
    let mut version = Command::new(&vervain);
    let version = run(version.arg("--version"), b"");
    version.expect(0, concat!("vervain ", env!("CARGO_PKG_VERSION"), "\n"));
    let mut devices = Command::new(&vervain);
    devices
        .args(["devices", "--json", "--run-dir"])
        .arg(place.path("run"));
    let seen = run(&mut devices, b"");
    let seen: serde_json::Value = serde_json::from_slice(&seen.out).expect("JSON");
    let modules = asked(&environment.join("bin/python"), MODULES);
    let library = Path::new(&modules).join("vervain/bin/libvervain_verbs.so");
    assert_eq!(
        seen[0]["library"],
        library.to_str().expect("UTF-8"),
        "its own library, and no other"
    );
    // The shell's exit code is the program's.
    let mut fails = Command::new(&vervain);
    fails.args(["run", "--run-dir"]).arg(place.path("run"));
    run(fails.args(["sh", "-c", "exit 7"]), b"").expect(7, "");
}

/// Debian's Python, which may have pyverbs.
const DEBIANS: &str = "/usr/bin/python3";

/// Runs pytest, which one Python has, with the wheel in another.
fn pytest(python: &str, other: &Path, place: &Place, arguments: &[&str]) -> Said {
    let environment = install_once(python);
    let modules = [environment.join("bin/python"), PathBuf::from(python)].map(|python| {
        // The environment's own come before those of the Python that has pytest.
        asked(&python, MODULES)
    });
    let mut command = Command::new(other);
    command
        .args(["-m", "pytest", "-p", "no:cacheprovider"])
        .args(arguments)
        .current_dir(place.path("."))
        .env("PYTHONPATH", modules.join(":"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("VERVAIN_RUN_DIR", place.path("run"))
        .env("XDG_RUNTIME_DIR", place.path("."))
        .env_remove("LD_PRELOAD");
    run(&mut command, b"")
}

fn install_once(python: &str) -> PathBuf {
    static INSTALLED: OnceLock<(Place, PathBuf)> = OnceLock::new();
    let (_, environment) = INSTALLED.get_or_init(|| {
        let place = Place::new();
        let environment = install(python, &place);
        (place, environment)
    });
    environment.clone()
}

#[test]
fn its_fixture_is_used_by_pytest() {
    let Some(python) = python() else { return };
    if !crate::programs::has("ibv_rc_pingpong") {
        return;
    }
    let place = Place::new();
    let tests = Path::new(ROOT).join("python/tests");
    let tests = tests.to_str().expect("UTF-8");
    let own = install_once(&python).join("bin/python");
    let said = pytest(&python, &own, &place, &["-v", "-rs", tests]);
    assert_eq!(said.code, Some(0), "{}{}", said.text(), said.err);
    let summary = said.text().lines().last().unwrap_or_default();
    assert!(summary.contains("9 passed, 2 skipped"), "{}", said.text());
    let why = "needs pytest itself on the software NIC: pytest --rdma";
    assert!(said.text().contains(why), "{}", said.text());
}

#[test]
fn its_readme_has_a_test_that_passes() {
    let Some(python) = python() else { return };
    if !crate::programs::has("ibv_rc_pingpong") {
        return;
    }
    let page = std::fs::read_to_string(Path::new(ROOT).join("python/README.md")).expect("a page");
    let (_, test) = page.split_once("```python\n").expect("a test");
    let (test, _) = test.split_once("```").expect("its end");
    let place = Place::new();
    std::fs::write(place.path("test_readme.py"), test).expect("written");
    let own = install_once(&python).join("bin/python");
    let said = pytest(&python, &own, &place, &["test_readme.py"]);
    assert_eq!(said.code, Some(0), "{}{}", said.text(), said.err);
    assert!(said.text().contains("1 passed"), "{}", said.text());
}

#[test]
fn pytest_itself_runs_on_the_software_nic() {
    let Some(python) = python() else { return };
    let has_pyverbs = Command::new(DEBIANS)
        .args(["-c", "import pyverbs"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_pyverbs {
        return leave_out("python3-pyverbs is missing");
    }
    let place = Place::new();
    let tests = Path::new(ROOT).join("python/tests");
    let tests = tests.to_str().expect("UTF-8");
    let debians = Path::new(DEBIANS);
    for asked in [&["--rdma"][..], &["-o", "rdma=true"]] {
        let said = pytest(
            &python,
            debians,
            &place,
            &[asked, &["-v", "-m", "rdma", tests]].concat(),
        );
        assert_eq!(said.code, Some(0), "{}{}", said.text(), said.err);
        assert_eq!(said.text().matches(" PASSED").count(), 2, "{}", said.text());
    }
    // It starts again before a conftest.py is read, says so once, and its exit code is pytest's.
    let conftest = "import os\nprint('preloaded' if 'libvervain' in os.environ.get('LD_PRELOAD', '') else 'bare')\n";
    std::fs::write(place.path("conftest.py"), conftest).expect("written");
    let fails = "def test_that_fails():\n    print('its ' + 'output')\n    assert 1 == 2\n";
    std::fs::write(place.path("test_that.py"), fails).expect("written");
    let said = pytest(&python, debians, &place, &["--rdma", "-s", "test_that.py"]);
    assert_eq!(said.code, Some(1), "{}{}", said.text(), said.err);
    let text = said.text();
    let counts =
        ["preloaded", "bare", "its output", "1 failed"].map(|part| text.matches(part).count());
    assert_eq!(counts, [1, 0, 1, 1], "{text}");
}
