//! Other people's programs, started with `vervain run`.

use std::os::unix::fs::PermissionsExt;
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
    let checks = ["sh", "-c", "echo $VERVAIN_CHECK"];
    let said = ask(&place, "run", &[&["--check"], &checks[..]].concat());
    said.expect(0, "-\n");
    let file = place.path("findings.json").display().to_string();
    let flag = format!("--check={file}");
    let said = ask(
        &place,
        "run",
        &[&[flag.as_str(), "--"], &checks[..]].concat(),
    );
    said.expect(0, &format!("{file}\n"));
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
    let seen = ask(&place, "devices", &[]);
    let last = format!("  library          {}\n", library().display());
    assert!(seen.text().ends_with(&last), "{}", seen.text());
}

#[test]
fn whose_libibverbs_it_is_is_said_only_if_somebody_knows() {
    let place = Place::new();
    let seen = |library: &Path| -> (Option<i32>, serde_json::Value) {
        let mut command = vervain();
        command
            .args(["devices", "--json", "--run-dir"])
            .arg(place.path("run"))
            .env("VERVAIN_VERBS_LIBRARY", library);
        let said = run(&mut command, b"");
        let seen: serde_json::Value = serde_json::from_slice(&said.out).expect("JSON");
        (said.code, seen[0]["libibverbs"].clone())
    };
    let (code, whose) = seen(&library());
    let is_known = ["the machine's", "vervain's"].map(serde_json::Value::from);
    assert!(code == Some(0) && is_known.contains(&whose), "{whose}");
    // The dynamic linker takes this one for no library, and says nothing of others.
    let none = place.path("none.so");
    std::fs::write(&none, "no library").expect("written");
    let unknown = "unknown: the dynamic linker cannot be asked";
    assert_eq!(seen(&none), (Some(0), unknown.into()));
    assert_eq!(seen(&place.path("absent.so")), (Some(1), unknown.into()));
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
    let bytes = std::fs::read(&plain).expect("readable");
    let changed = |name: &str, from: &[u8], to: &[u8]| {
        let mut bytes = bytes.clone();
        let at = bytes.windows(from.len()).position(|part| part == from);
        let at = at.expect("a program of this system");
        bytes[at..at + from.len()].copy_from_slice(to);
        let path = place.path(name);
        std::fs::write(&path, bytes).expect("written");
        path
    };
    refused(
        &place,
        &changed("musl", b"ld-linux", b"ld-musl-"),
        "built for musl",
    );
    // Of another processor: this header's type, machine and version.
    let machine = &bytes[16..20];
    let other = [machine[0], machine[1], 0xf3, 0];
    refused(
        &place,
        &changed("other", machine, &other),
        "another processor",
    );
    // The header alone is looked at.
    let mut bytes = bytes.clone();
    bytes[4] = 1;
    let short = place.path("short-header");
    std::fs::write(&short, bytes).expect("written");
    refused(&place, &short, "32-bit");
}

#[test]
fn a_program_of_another_user_is_refused_in_a_sentence() {
    let place = Place::new();
    // A copy of somebody else's if we may, and one of root's that every system has if not.
    let program = match rustix::process::geteuid().is_root() {
        true => {
            let program = compile(&place, "theirs", &[]).expect("a compiler");
            std::os::unix::fs::chown(&program, Some(65534), None).expect("root may");
            std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755))
                .expect("root may");
            program
        }
        false => PathBuf::from("/usr/bin/passwd"),
    };
    refused(
        &place,
        &program,
        "runs as another user or group (set-user-ID)",
    );
}

#[test]
fn what_a_program_has_before_its_libraries_already_stays() {
    let place = Place::new();
    let source = place.path("other.c");
    let text = "#include <unistd.h>\n__attribute__((constructor)) static void here(void) { write(1, \"other \", 6); }\n";
    std::fs::write(&source, text).expect("written");
    let other = place.path("other.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wno-unused-result", "-o"])
        .args([&other, &source])
        .status();
    assert!(compiled.expect("cc, of gcc").success());
    let plain = compile(&place, "plain", &[]).expect("a compiler");
    let mut command = vervain();
    command
        .args(["run", "--run-dir"])
        .arg(place.path("run"))
        .args([
            Path::new("sh"),
            Path::new("-c"),
            Path::new("printf %s \"$LD_PRELOAD\"; exec \"$0\""),
        ])
        .arg(&plain)
        .env("VERVAIN_VERBS_LIBRARY", library())
        .env("LD_PRELOAD", &other);
    let said = run(&mut command, b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    // `vervain` itself has it, the shell, and the program; the library is the first.
    let preload = format!("{}:{}", library().display(), other.display());
    let expected = format!("other other {preload}other ");
    assert_eq!(said.text(), expected);
}

#[test]
fn a_place_that_cannot_be_written_is_told_in_a_sentence() {
    let place = Place::new();
    let asked = |run_dir: &str| {
        let mut command = vervain();
        command
            .args(["run", "--run-dir", run_dir, "true"])
            .env("VERVAIN_VERBS_LIBRARY", library())
            .env_remove("LD_PRELOAD");
        let said = run(&mut command, b"");
        assert_eq!(said.code, Some(1), "{}", said.err);
        said.err
    };
    let sentence = "where programs meet: say another directory with --run-dir";
    // Nobody makes a directory there.
    let said = asked("/proc/vervain");
    assert!(
        said.contains("cannot make /proc/vervain, ") && said.contains(sentence),
        "{said}"
    );
    // Whoever may change a link says what programs find in their run directory.
    let (link, to) = (place.path("link"), place.path("elsewhere"));
    std::fs::create_dir(&to).expect("a directory");
    std::os::unix::fs::symlink(&to, &link).expect("a link");
    for link in [link.display().to_string(), format!("{}/", link.display())] {
        let said = asked(&link);
        let is_told = said.contains("is not a directory of user ") && said.contains(sentence);
        assert!(is_told, "{said}");
    }
    // A file system that is only read, in a namespace of our own.
    let script = format!(
        "mount -t tmpfs -o ro none {0} && exec \"$@\" --run-dir {0} true",
        place.path("").display()
    );
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .arg(vervain().get_program())
        .arg("run")
        .env("VERVAIN_VERBS_LIBRARY", library())
        .env_remove("LD_PRELOAD");
    let said = run(&mut command, b"");
    if said.err.contains("unshare") || said.err.contains("mount:") {
        return eprintln!("left out: namespaces are not allowed here: {}", said.err);
    }
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(
        said.err.contains("cannot write into ") && said.err.contains(sentence),
        "{}",
        said.err
    );
}

#[test]
fn a_library_that_is_missing_is_named() {
    let place = Place::new();
    let absent = place.path("libabsent.so");
    let made = Command::new("cc")
        .args(["-shared", "-o"])
        .arg(&absent)
        .args(["-x", "c", "/dev/null"])
        .status();
    assert!(made.expect("cc, of gcc").success());
    let flags = ["-Wl,--no-as-needed", absent.to_str().expect("UTF-8")];
    let program = compile(&place, "needs", &flags).expect("a compiler");
    std::fs::remove_file(&absent).expect("it is there");
    let said = ask(&place, "run", &[program.to_str().expect("UTF-8")]);
    assert_eq!(said.code, Some(127));
    assert!(
        said.err.contains("error while loading shared libraries"),
        "{}",
        said.err
    );
    assert!(said.err.contains("libabsent.so"), "{}", said.err);
}
