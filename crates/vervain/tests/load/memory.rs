//! A control group, or an address space, that has little memory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bystanders::{Bystanders, Misses};
use crate::harness::{Place, Raw, Server, eventually, run};
use crate::process::{Before, MIB, address_space, limit_address_space};
use crate::{alone, leave_out, ways_of_io};

/// A control group below this process's own, removed with it.
struct Group {
    folder: PathBuf,
    usage: &'static str,
}

impl Group {
    /// Makes one with so much memory, where this process may.
    fn new(bytes: usize) -> Result<Self, String> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let name = format!("vervain-load-{}", std::process::id());
        let path_of = |wanted: &str| {
            groups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let controllers = (fields.next()?, fields.next()?);
                let path = fields.next()?.trim_start_matches('/').to_string();
                let is_it = match wanted {
                    "" => controllers == ("0", ""),
                    wanted => controllers.1.split(',').any(|one| one == wanted),
                };
                is_it.then_some(path)
            })
        };
        let root = Path::new("/sys/fs/cgroup");
        let (parent, limit, usage) = match path_of("memory") {
            Some(path) => (
                root.join("memory").join(path),
                "memory.limit_in_bytes",
                "memory.max_usage_in_bytes",
            ),
            None => {
                let path = path_of("").ok_or("there are no control groups")?;
                (root.join(path), "memory.max", "memory.peak")
            }
        };
        let folder = parent.join(name);
        let show = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir(&folder).map_err(show)?;
        let group = Group {
            folder: folder.clone(),
            usage,
        };
        std::fs::write(folder.join(limit), bytes.to_string()).map_err(show)?;
        Ok(group)
    }

    /// Has a command run in the group.
    fn take_in(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("sh");
        let enter = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
        wrapped
            .args(["-c", enter])
            .arg(&self.folder)
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped
    }

    fn most_used(&self) -> usize {
        let text = std::fs::read_to_string(self.folder.join(self.usage)).expect("a count");
        text.trim().parse().expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was just killed may be in it a moment longer.
        for _ in 0..200 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        eprintln!("{} stays", self.folder.display());
    }
}

/// Clients that send half of a large value and stand still: they come until some of them are ended for
/// the memory that takes. Small requests are served all along.
fn crowd_memory(server: &Server) -> Vec<Raw> {
    let mut raw = server.raw();
    let value = "c".repeat(500_000);
    let half = format!("set half 0 0 1000000\r\n{value}");
    let mut crowd = Vec::new();
    eventually("those that stand still are ended for their memory", || {
        // Who wants memory now is told that there is none. One whom a busy machine has kept from saying
        // all is ended like the others.
        let sent = raw.try_send(format!("set crowd 0 0 {}\r\n{value}\r\n", value.len()).as_bytes());
        match sent.and_then(|()| raw.try_line()).as_deref() {
            Ok("STORED" | "SERVER_ERROR out of memory storing object") => {}
            Ok(heard) => panic!("{heard}"),
            Err(_) => raw = server.raw(),
        }
        let mut writer = server.raw();
        drop(writer.try_send(half.as_bytes()));
        crowd.push(writer);
        server.count("memory_kicks") > 0
    });
    eprintln!(
        "{} ended for their memory, {} refused",
        server.count("memory_kicks"),
        server.count("out_of_memory")
    );
    crowd
}

#[test]
fn a_control_group_bounds_what_is_promised_and_what_is_used() {
    let _alone = alone();
    let group = match Group::new(96 * MIB) {
        Ok(group) => group,
        Err(why) => return leave_out(&format!("no control group can be made: {why}")),
    };
    let place = Place::new();
    let flags = ["--cores", "2", "--clients", "16", "--window", "16"];
    let flags = [
        &flags[..],
        &["--connections-memory", "8M", "--stall-timeout", "1s"],
    ]
    .concat();
    let start = |memory: &'static str| place.serve(&[&flags[..], &["--memory", memory]].concat());

    let said = run(&mut group.take_in(&start("256M")), b"");
    assert_eq!(said.code, Some(1));
    let sentence = "vervain: --memory 256 MiB is more than what this process's control group \
                    allows: 96 MiB\n";
    assert_eq!(said.err, sentence);
    // More than is left besides the items is said, and served all the same.
    let server = Server::start(&place, group.take_in(&start("90M")));
    let warning = server.stderr();
    assert!(warning.contains("less memory is free than"), "{warning}");
    drop(server);

    let server = Server::start(&place, group.take_in(&start("40M")));
    assert_eq!(server.stderr(), "");
    let before = Before::of(&server);
    let bystanders = Bystanders::start(&server, Misses::Allowed);
    let mut raw = server.raw();
    let value = "v".repeat(2000);
    for batch in 0..300 {
        let mut sets = String::new();
        for key in 0..100 {
            write!(sets, "set m{batch}-{key} 0 0 2000\r\n{value}\r\n").expect("a string");
        }
        raw.ask(&sets, &"STORED\r\n".repeat(100));
    }
    assert!(server.count("evictions") > 0);
    let crowd = crowd_memory(&server);
    assert!(group.most_used() <= 96 * MIB);
    drop((raw, crowd));
    bystanders.finish();
    before.expect_released(&server);
    server.ask(&["set", "still", "here"]).expect(0, "stored\n");
}

/// Where no control group can be had, an address space can: there allocations fail.
#[test]
fn an_address_space_that_is_full_is_told_and_survived() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let flags = [
            "--cores",
            "2",
            "--io",
            io,
            "--clients",
            "16",
            "--window",
            "16",
        ];
        let limits = ["--connections-memory", "8M", "--stall-timeout", "1s"];
        let mut command = place.serve(&[&flags[..], &limits].concat());
        // A thread that allocates for the first time would reserve an arena of 64 MiB.
        command.env("MALLOC_ARENA_MAX", "1");
        let server = Server::start(&place, command);
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Allowed);
        // Enough for what connections may hold, and for freed memory that is not given back at once;
        // not for what another HERD client's NIC shares.
        limit_address_space(&server, Some(address_space(&server) + 64 * MIB));
        let crowd = crowd_memory(&server);
        let said = server.ask(&["get", "nothing"]);
        assert_eq!(said.code, Some(1), "{}", said.err);
        let sentence = "the server refused: the server's NIC could not make the connection";
        assert!(said.err.contains(sentence), "{}", said.err);
        assert!(server.stderr().contains("Cannot allocate memory"));
        server.raw().ask("set small 0 0 1\r\nv\r\n", "STORED\r\n");
        drop(crowd);
        bystanders.finish();
        // Nothing of those who were refused stays, and with room the next one is taken.
        limit_address_space(&server, None);
        server.ask(&["get", "small"]).expect(0, "v\n");
        before.expect_released(&server);
    }
}

#[test]
fn more_memory_than_the_address_space_has_is_refused() {
    let _alone = alone();
    let place = Place::new();
    let mut command = Command::new("sh");
    let serve = place.serve(&["--cores", "2", "--memory", "2G"]);
    command
        .args(["-c", "ulimit -v 1048576 && exec \"$0\" \"$@\""])
        .arg(serve.get_program())
        .args(serve.get_args());
    let said = run(&mut command, b"");
    assert_eq!(said.code, Some(1), "{}", said.err);
    let sentence = "vervain: --memory 2 GiB is more than what `ulimit -v` allows this process: \
                    1 GiB\n";
    assert_eq!(said.err, sentence);
}
