//! `vervain run` on a machine that has no libibverbs.
//!
//! The machine is a dynamic linker that knows no directory but those of `LD_LIBRARY_PATH`, a directory with all libraries of the
//! programs but libibverbs, and copies of programs that name this dynamic linker. That needs no privileges.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use programs::host::{Listens, until_listening};
use programs::matrix::figures;
use programs::{Running, alone, find, free_port};
use tempfile::TempDir;

use crate::foreign::leave_out;
use crate::harness::{Said, run, vervain};
use crate::programs::library;

/// Where programs for x86-64 say that their dynamic linker is. What is put there instead is no longer.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

struct Machine {
    dir: TempDir,
}

impl Machine {
    /// With these programs, and all libraries that they need but libibverbs; none where a program is not there to be copied.
    fn with(programs: &[&str]) -> Option<Machine> {
        let paths: Vec<PathBuf> = programs.iter().filter_map(|name| find(name)).collect();
        if paths.len() < programs.len() || !Path::new(LOADER).is_file() {
            leave_out(&format!("one of {programs:?}, or {LOADER}, is missing"));
            return None;
        }
        // A short path, whatever this process's is.
        let dir = tempfile::Builder::new().prefix("v").tempdir_in("/tmp");
        let machine = Machine {
            dir: dir.expect("a directory"),
        };
        std::fs::create_dir(machine.path("lib")).expect("a directory");
        std::fs::create_dir(machine.path("bin")).expect("a directory");
        machine.make_loader();
        machine.link_libraries(&library());
        for path in paths {
            machine.link_libraries(&path);
            machine.copy(&path);
        }
        Some(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn loader(&self) -> PathBuf {
        self.path("l")
    }

    /// The system's, with other names for what it searches without being told.
    fn make_loader(&self) {
        let mut bytes = std::fs::read(LOADER).expect("readable");
        for text in bytes.split_mut(|byte| *byte == 0) {
            let is_dir = text.starts_with(b"/lib") || text.starts_with(b"/usr/lib");
            if (is_dir && text.ends_with(b"/")) || text == b"/etc/ld.so.cache" {
                text[1] = b'-';
            }
        }
        write_program(&self.loader(), &bytes);
    }

    fn link_libraries(&self, of: &Path) {
        let listed = Command::new(LOADER).arg("--list").arg(of).output();
        let listed = String::from_utf8(listed.expect("a list").stdout).expect("text");
        for line in listed.lines() {
            let Some((name, path)) = line.trim().split_once(" => ") else {
                continue;
            };
            let path = path.split(" (").next().expect("a path");
            let link = self.path("lib").join(name);
            if !name.starts_with("libibverbs.so") && !link.exists() {
                std::os::unix::fs::symlink(path, link).expect("a link");
            }
        }
    }

    /// A copy of a program with this machine's dynamic linker.
    fn copy(&self, program: &Path) -> PathBuf {
        let mut bytes = std::fs::read(program).expect("readable");
        let here = bytes
            .windows(LOADER.len())
            .position(|part| part == LOADER.as_bytes());
        let here = here.expect("the name of its dynamic linker");
        let loader = self.loader().into_os_string().into_encoded_bytes();
        let room = &mut bytes[here..here + LOADER.len()];
        room.fill(0);
        room[..loader.len()].copy_from_slice(&loader);
        let copy = self.path("bin").join(program.file_name().expect("a name"));
        write_program(&copy, &bytes);
        copy
    }

    /// A command with this machine's libraries.
    fn on(&self, mut command: Command) -> Command {
        command
            .env("LD_LIBRARY_PATH", self.path("lib"))
            .env("VERVAIN_VERBS_LIBRARY", library())
            .env_remove("LD_PRELOAD");
        command
    }

    /// `vervain run` of a program of this machine, which ends in bounded time.
    fn command(&self, words: &[&str]) -> Command {
        self.command_in("run", words)
    }

    /// The same with another run directory.
    fn command_in(&self, run_dir: &str, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "120"]);
        command.arg(vervain().get_program());
        command.args(["run", "--run-dir"]).arg(self.path(run_dir));
        command.arg("--").arg(self.path("bin").join(words[0]));
        command.args(&words[1..]);
        self.on(command)
    }

    fn say(&self, words: &[&str]) -> Said {
        run(&mut self.command(words), b"")
    }

    /// Another verb, by a `vervain` that this machine's dynamic linker has started.
    fn ask(&self, words: &[&str]) -> Command {
        self.ask_in("run", words)
    }

    /// The same with another run directory.
    fn ask_in(&self, run_dir: &str, words: &[&str]) -> Command {
        let mut command = Command::new(self.loader());
        command.arg(vervain().get_program()).args(words);
        command.arg("--run-dir").arg(self.path(run_dir));
        self.on(command)
    }

    /// What a server and its client say, which succeed.
    #[track_caller]
    fn pair(&self, words: &[&str]) -> [String; 2] {
        let _alone = alone();
        let port = free_port();
        let port_text = port.to_string();
        let words = [words, &["-p", &port_text]].concat();
        let mut server = Running::start(&mut self.command(&words));
        let listens = match words.contains(&"-R") {
            true => Listens::Manager,
            false => Listens::Tcp(port),
        };
        if let Err(why) = until_listening(&mut server, listens) {
            panic!("{why}: {}", server.text());
        }
        let mut client = self.command(&[&words[..], &["127.0.0.1"]].concat());
        let client = Running::start(&mut client).end();
        if !client.status.success() {
            server.terminate();
        }
        let (client, server) = (client.expect(""), server.end().expect(""));
        [server.text(), client.text()]
    }
}

/// By a child: whatever another thread forks meanwhile would hold a descriptor of this process until it has become its program, and
/// a file that somebody may write to cannot be started (ETXTBSY).
fn write_program(path: &Path, bytes: &[u8]) {
    let mut command = Command::new("sh");
    command.args(["-c", r#"cat >"$1" && chmod 755 "$1""#, "sh"]);
    command.arg(path).stdin(Stdio::piped());
    let mut child = command.spawn().expect("sh");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(bytes).expect("taken");
    drop(input);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_program_that_is_linked_with_it_starts() {
    let Some(machine) = Machine::with(&["ibv_devinfo"]) else {
        return;
    };
    let plain = Command::new(machine.path("bin/ibv_devinfo"));
    let plain = run(&mut machine.on(plain), b"");
    let why = "libibverbs.so.1: cannot open shared object file";
    assert!(
        plain.code == Some(127) && plain.err.contains(why),
        "{plain:?}"
    );
    // Again, when what it needs is there already.
    for _ in 0..2 {
        let said = machine.say(&["ibv_devinfo", "-v"]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
        assert!(
            said.text().starts_with("hca_id:\tvervain0\n"),
            "{}",
            said.text()
        );
        assert!(
            said.text().contains("atomic_cap:\t\t\tATOMIC_HCA"),
            "{}",
            said.text()
        );
    }
}

#[test]
fn programs_of_rdma_core_and_perftest_reach_each_other() {
    if let Some(machine) = Machine::with(&["ibv_rc_pingpong"]) {
        for said in machine.pair(&["ibv_rc_pingpong", "-g", "0", "-n", "300", "-c"]) {
            assert!(said.contains("300 iters in"), "{said}");
        }
    }
    // This one needs librdmacm and drivers' libraries, which need libibverbs' private symbols.
    if let Some(machine) = Machine::with(&["ib_write_lat"]) {
        for connected in [&[][..], &["-R"]] {
            let words = [&["ib_write_lat", "-F", "-n", "100"], connected].concat();
            let [_, client] = machine.pair(&words);
            let figures = figures(&client);
            let is_measured = figures
                .iter()
                .any(|row| row[..2] == [2.0, 100.0] && row[4] > 0.0);
            assert!(is_measured, "{client}");
        }
    }
}

/// What a command of ours says, as JSON.
#[track_caller]
fn variables(command: &mut Command) -> serde_json::Value {
    let said = run(command, b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    serde_json::from_slice(&said.out).expect("JSON")
}

fn pairs(variables: &serde_json::Value) -> impl Iterator<Item = (&String, &str)> {
    let given = variables.as_object().expect("an object").iter();
    given.map(|(name, value)| (name, value.as_str().expect("text")))
}

#[test]
fn shells_get_it_too() {
    let Some(machine) = Machine::with(&["ibv_devices"]) else {
        return;
    };
    // All that `vervain` itself needs.
    machine.link_libraries(Path::new(vervain().get_program()));
    let once = variables(&mut machine.ask(&["env", "--json"]));
    let (lib, own) = (machine.path("lib"), machine.path("run/libibverbs"));
    let search = format!("{}:{}", lib.display(), own.display());
    assert_eq!(once["LD_LIBRARY_PATH"], search);
    let mut again = machine.ask(&["env", "--json"]);
    let again = variables(again.env("LD_LIBRARY_PATH", &search));
    assert_eq!(again, once, "a shell that has read its variables");
    let mut listed = Command::new(machine.path("bin/ibv_devices"));
    let listed = run(listed.envs(pairs(&once)), b"");
    assert!(listed.text().contains("vervain0"), "{listed:?}");
    let seen = variables(&mut machine.ask(&["devices", "--json"]));
    assert_eq!(seen[0]["libibverbs"], "vervain's");
}

#[test]
fn a_shell_of_one_run_directory_runs_programs_in_another() {
    let Some(machine) = Machine::with(&["ibv_devices"]) else {
        return;
    };
    machine.link_libraries(Path::new(vervain().get_program()));
    let shell = variables(&mut machine.ask_in("a", &["env", "--json"]));
    // It is not taken for the machine's, and comes into no search beside the other.
    let mut asked = machine.ask_in("b", &["env", "--json"]);
    let other = variables(asked.envs(pairs(&shell)));
    let (lib, own) = (machine.path("lib"), machine.path("b/libibverbs"));
    let search = format!("{}:{}", lib.display(), own.display());
    assert_eq!(other["LD_LIBRARY_PATH"], search);
    assert_eq!(
        other["VERVAIN_RUN_DIR"],
        machine.path("b").to_str().expect("text")
    );
    let mut asked = machine.ask_in("b", &["devices", "--json"]);
    let seen = variables(asked.envs(pairs(&shell)));
    assert_eq!(seen[0]["libibverbs"], "vervain's");
    std::fs::remove_dir_all(&own).expect("it was put there");
    let mut command = machine.command_in("b", &["ibv_devices"]);
    let said = run(command.envs(pairs(&shell)), b"");
    assert!(
        said.code == Some(0) && said.text().contains("vervain0"),
        "{said:?}"
    );
    // The shell's may be removed while programs of the other go on.
    assert!(own.join("libibverbs.so.1").is_file());
    std::fs::remove_dir_all(machine.path("a")).expect("it was made");
    let mut listed = Command::new(machine.path("bin/ibv_devices"));
    let listed = run(listed.envs(pairs(&other)), b"");
    assert!(listed.text().contains("vervain0"), "{listed:?}");
}

#[test]
fn a_program_that_needs_none_starts_where_none_can_be_put() {
    let Some(machine) = Machine::with(&["ibv_devices"]) else {
        return;
    };
    let place = machine.path("plain");
    std::fs::create_dir(&place).expect("a directory");
    let (source, plain) = (place.join("plain.c"), place.join("plain"));
    std::fs::write(&source, "int main(void) { return 7; }\n").expect("written");
    let mut compiled = Command::new("cc");
    compiled.arg(&source).arg("-o").arg(&plain);
    assert!(compiled.status().expect("cc, of gcc").success());
    machine.link_libraries(&plain);
    machine.copy(&plain);
    // No search can name this one.
    let run_in = |words: &[&str]| run(&mut machine.command_in("a:b", words), b"");
    let why = "the dynamic linker takes no LD_LIBRARY_PATH with a colon";
    let said = run_in(&["plain"]);
    let is_warned = said.err.starts_with("vervain: warning: ") && said.err.contains(why);
    assert!(said.code == Some(7) && is_warned, "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "one sentence: {}", said.err);
    let said = run_in(&["ibv_devices"]);
    let is_refused = said.err.starts_with("vervain: ") && said.err.contains(why);
    assert!(said.code == Some(1) && is_refused, "{said:?}");
    assert!(!said.err.contains("warning"), "{}", said.err);
    // From this one nothing may be executed, in a namespace of our own.
    let run_dir = machine.path("run");
    std::fs::create_dir(&run_dir).expect("a directory");
    for (program, code) in [("plain", 7), ("ibv_devices", 1)] {
        let script = format!(
            "mount -t tmpfs -o noexec,mode=700 none {} && exec \"$@\"",
            run_dir.display()
        );
        let inner = machine.command(&[program]);
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
        command.arg(inner.get_program()).args(inner.get_args());
        let said = run(&mut machine.on(command), b"");
        if said.err.contains("unshare") || said.err.contains("mount:") {
            return eprintln!("left out: namespaces are not allowed here: {}", said.err);
        }
        let is_told = said.err.contains("(noexec)");
        assert!(said.code == Some(code) && is_told, "{said:?}");
    }
}

#[test]
fn a_machine_that_has_one_keeps_it() {
    let Some(machine) = Machine::with(&["ibv_devices"]) else {
        return;
    };
    // Of a shell that read its variables when it had none.
    machine.link_libraries(Path::new(vervain().get_program()));
    let shell = variables(&mut machine.ask(&["env", "--json"]));
    let ours = machine.path("run/libibverbs");
    // Wherever `LD_LIBRARY_PATH` leads to one.
    let found = Command::new(LOADER)
        .args(["--preload", "libibverbs.so.1", "--list"])
        .arg(library())
        .output();
    let found = String::from_utf8(found.expect("a list").stdout).expect("text");
    let path = found
        .split("libibverbs.so.1 => ")
        .nth(1)
        .and_then(|rest| rest.split(" (").next());
    let late = machine.path("late");
    std::fs::create_dir(&late).expect("a directory");
    std::os::unix::fs::symlink(path.expect("a path"), late.join("libibverbs.so.1"))
        .expect("a link");
    // Which needs others again.
    machine.link_libraries(Path::new(path.expect("a path")));
    let lib = machine.path("lib");
    let search = |dirs: &[&Path]| {
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.to_str().expect("text")).collect();
        dirs.join(":")
    };
    let mut asked = machine.ask(&["env", "--json"]);
    asked.envs(pairs(&shell));
    let seen = variables(asked.env("LD_LIBRARY_PATH", search(&[&lib, &ours, &late])));
    assert_eq!(seen["LD_LIBRARY_PATH"], search(&[&lib, &late]));
    std::fs::remove_dir_all(&ours).expect("it was put there");
    let mut command = machine.command(&["ibv_devices"]);
    let said = run(command.env("LD_LIBRARY_PATH", search(&[&lib, &late])), b"");
    assert!(
        said.code == Some(0) && said.text().contains("vervain0"),
        "{said:?}"
    );
    assert!(!ours.exists());
}

#[test]
fn what_else_of_rdma_core_is_missing_is_told_in_a_sentence() {
    let Some(machine) = Machine::with(&["ib_write_lat"]) else {
        return;
    };
    let refused = |why: &str| {
        let said = machine.say(&["ib_write_lat"]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains(why), "{why:?} is not in {}", said.err);
    };
    let drivers = machine.path("lib/libmlx5.so.1");
    std::fs::remove_file(&drivers).expect("it is there");
    refused(
        "needs libmlx5.so.1 of rdma-core, which this machine does not have, and Vervain has a libibverbs alone: install ibverbs-providers",
    );
    // A driver's library of another rdma-core, in its place.
    let compile = |output: &Path, more: &[&str]| {
        let mut command = Command::new("cc");
        command
            .args(["-shared", "-fPIC", "-o"])
            .arg(output)
            .args(more);
        assert!(command.status().expect("cc, of gcc").success());
    };
    let text = |name: &str, text: &str| {
        let path = machine.path(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let versions = text("versions", "IBVERBS_PRIVATE_99 { global: verbs_later; };\n");
    let later = text("later.c", "void verbs_later(void) { }\n");
    let driver = text(
        "driver.c",
        "void verbs_later(void);\nvoid driver(void) { verbs_later(); }\n",
    );
    let other = machine.path("other.so");
    let flags = [
        format!("-Wl,--version-script={versions}"),
        "-Wl,-soname,libibverbs.so.1".into(),
    ];
    compile(&other, &[&later, &flags[0], &flags[1]]);
    compile(
        &drivers,
        &[
            &driver,
            &other.display().to_string(),
            "-Wl,-soname,libmlx5.so.1",
        ],
    );
    refused("needs the libibverbs of another rdma-core");
    std::fs::remove_file(machine.path("lib/librdmacm.so.1")).expect("it is there");
    refused(
        "needs librdmacm.so.1 of rdma-core, which this machine does not have, and Vervain has a libibverbs alone: install librdmacm1",
    );
    // Nobody else may put another library into its place.
    let own = machine.path("run/libibverbs");
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o777)).expect("our own");
    refused("others may write there");
}
