//! Other people's programs, started with `vervain run`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::foreign::leave_out;
use crate::harness::{Place, Said, run, vervain};

/// The library, which cargo puts beside the tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let library = test.with_file_name("libvervain_verbs.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

fn ask(place: &Place, verb: &str, rest: &[&str]) -> Said {
    let mut command = vervain();
    command
        .arg(verb)
        .arg("--run-dir")
        .arg(place.path("run"))
        .args(rest)
        .env("VERVAIN_VERBS_LIBRARY", library())
        .env_remove("LD_PRELOAD");
    run(&mut command, b"")
}

/// Whether Debian's program is there. In CI it has to be.
pub(crate) fn has(program: &str) -> bool {
    let found = Path::new("/usr/bin").join(program).exists();
    if !found {
        leave_out(&format!("{program} is missing"));
    }
    found
}

#[test]
fn a_program_is_the_process_that_was_started() {
    let place = Place::new();
    let said = ask(
        &place,
        "run",
        &["sh", "-c", "echo $VERVAIN_RUN_DIR; exit 7"],
    );
    let run_dir = place.path("run");
    said.expect(7, &format!("{}\n", run_dir.display()));
    // Flags behind the program's name are the program's.
    ask(&place, "run", &["echo", "--gid", "x", "-v"]).expect(0, "--gid x -v\n");
    let said = ask(
        &place,
        "run",
        &["--gid", "10.0.0.7", "--", "sh", "-c", "echo $VERVAIN_GID"],
    );
    said.expect(0, "::ffff:10.0.0.7\n");
}

#[test]
fn a_program_sees_one_device() {
    if !has("ibv_devices") {
        return;
    }
    let place = Place::new();
    let said = ask(&place, "run", &["ibv_devices"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.text().contains("vervain0"), "{}", said.text());
    let seen = ask(&place, "devices", &["--json"]);
    let seen: serde_json::Value = serde_json::from_slice(&seen.out).expect("JSON");
    assert_eq!(seen[0]["name"], "vervain0");
    assert_eq!(seen[0]["gids"][0], "::ffff:127.0.0.1");
    assert_eq!(seen[0]["library"], library().to_str().expect("UTF-8"));
}

#[test]
fn a_shell_gets_what_run_gives() {
    if !has("ibv_devices") {
        return;
    }
    let place = Place::new();
    let exports = ask(&place, "env", &[]);
    assert_eq!(exports.code, Some(0), "{}", exports.err);
    let script = format!("{}\nibv_devices", exports.text());
    let listed = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("sh");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("vervain0"), "{listed}");
}

#[test]
fn a_job_gets_a_variable_a_line() {
    if !has("ibv_devices") {
        return;
    }
    let place = Place::new();
    let lines = ask(&place, "env", &["--format", "github", "--gid", "10.0.0.7"]);
    assert_eq!(lines.code, Some(0), "{}", lines.err);
    // As a runner does: what stands before the first `=` is the name, the rest of the line the value.
    let variables = lines
        .text()
        .lines()
        .map(|line| line.split_once('=').expect("NAME=VALUE"));
    let mut listed = Command::new("ibv_devices");
    listed.env_clear().envs(variables);
    let listed = run(&mut listed, b"");
    assert!(
        listed.text().contains("0000ffff0a000007"),
        "{}",
        listed.text()
    );
}

#[test]
fn reading_the_variables_twice_changes_nothing() {
    let place = Place::new();
    let object =
        |said: &Said| -> serde_json::Value { serde_json::from_slice(&said.out).expect("JSON") };
    let once = object(&ask(&place, "env", &["--json"]));
    let mut again = vervain();
    again
        .args(["env", "--json", "--run-dir"])
        .arg(place.path("run"))
        .env("VERVAIN_VERBS_LIBRARY", library())
        .env("LD_PRELOAD", once["LD_PRELOAD"].as_str().expect("a path"));
    assert_eq!(object(&run(&mut again, b"")), once);
}

/// Compiles a program of a line, with these flags; `None` where the compiler cannot.
fn compile(place: &Place, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let (source, program) = (place.path(&format!("{name}.c")), place.path(name));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    let compiled = Command::new("cc")
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    compiled
        .expect("cc, of gcc")
        .status
        .success()
        .then_some(program)
}

fn refused(place: &Place, program: &Path, why: &str) {
    let said = ask(place, "run", &[program.to_str().expect("UTF-8")]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains(why), "{why:?} is not in {}", said.err);
}

#[test]
fn what_cannot_be_run_is_refused_in_a_sentence() {
    let place = Place::new();
    refused(
        &place,
        Path::new("no-such-program"),
        "there is no program no-such-program in $PATH",
    );
    refused(&place, &place.path("nothing"), "does not exist");
    let plain = compile(&place, "plain", &[]).expect("a compiler");
    let said = ask(&place, "run", &[plain.to_str().expect("UTF-8")]);
    said.expect(0, "");
    let fixed = compile(&place, "fixed", &["-static"]).expect("glibc's archive, of libc6-dev");
    refused(&place, &fixed, "statically linked");
    if let Some(short) = compile(&place, "short", &["-m32"]) {
        refused(&place, &short, "32-bit");
    }
    // The header alone is looked at.
    let mut bytes = std::fs::read(&plain).expect("readable");
    bytes[4] = 1;
    let short = place.path("short-header");
    std::fs::write(&short, bytes).expect("written");
    refused(&place, &short, "32-bit");
}
