//! A kernel's mount under load while the server is killed: fsx checks bytes, SQLite transactions,
//! a dissector the messages, and the kernel counts its round trips.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use guest::{Job, Machine};

use super::{is_deep, peer};
use crate::filesystem::{FsServer, image};
use crate::harness::{Place, fixed_port};

/// fsx's operations (`fsx --help`): all that the kernel's client has.
const FSX: &str = "
flen = 200000
[opsize]
max = 30000
[weights]
close_open = 1
invalidate = 1
mapread = 3
mapwrite = 3
read = 5
write = 5
truncate = 2
fsync = 1
fdatasync = 1
sendfile = 1
copy_file_range = 2
";

/// Those that 4.2 brings.
const FSX_SPARSE: &str = "
punch_hole = 2
posix_fallocate = 1
";

/// Runs fsx with a seed and tells of every 200th operation; what it complained of is in the output.
const FSX_RUN: &str = r#"
fsx_run() {
    echo "fsx $1 seed $2"
    { fsx -v -f /fsx-$1.toml -N $3 -S $2 -P /tmp /mnt/fsx-$1-$2; echo "fsx exit $?"; } 2>&1 |
        tee /tmp/fsx.log | awk 'NR % 200 == 0 { print "fsx operation " NR; fflush() }'
    tail -1 /tmp/fsx.log | grep -q '^fsx exit 0$' || { tail -40 /tmp/fsx.log; exit 1; }
    rm /mnt/fsx-$1-$2
}
"#;

/// Transactions of one connection; each is told once it is committed.
const SQLITE_RUN: &str = r#"
sqlite_run() {
    {
        echo "pragma journal_mode = $1; create table if not exists t (a integer primary key, b blob);"
        for i in $(seq $2); do
            echo "begin; insert into t values ($i, randomblob(700)); update t set b = randomblob(900) where a = $i / 2; commit;"
            echo ".print $1 acknowledged $i"
        done
    } > /tmp/sql
    sqlite3 -bail -cmd '.timeout 100000' /mnt/$1.db < /tmp/sql 2>&1 | tee /tmp/sql.log
    test "$(grep -c acknowledged /tmp/sql.log)" = $2 || exit 2
    umount /mnt; mount_it
    test "$(sqlite3 /mnt/$1.db 'pragma integrity_check')" = ok || exit 3
    test "$(sqlite3 /mnt/$1.db 'select count(*), min(a), max(a) from t')" = "$2|1|$2" || exit 4
}
"#;

/// Kills the server once the guest has said this, and starts it again.
fn kill_at(machine: &mut Machine, mark: &str, server: &mut FsServer, place: &Place, listen: &str) {
    machine.wait_for(mark).expect("it comes so far");
    server.child.kill();
    *server = FsServer::start(place, listen, &[]);
}

#[test]
fn fsx_and_sqlite_find_every_byte_although_the_server_is_killed() {
    let (Some(image), Some(fsx), Some(sqlite)) = (
        image(),
        peer("VERVAIN_TEST_FSX", "fsx"),
        peer("VERVAIN_TEST_SQLITE", "sqlite3"),
    ) else {
        return;
    };
    let place = Place::new();
    let listen = format!("127.0.0.1:{}", fixed_port());
    let mut server = FsServer::start(&place, &listen, &[]);
    let (seeds, operations, transactions) = if is_deep() {
        (20, 10_000, 400)
    } else {
        (1, 600, 24)
    };
    let (old, new) = (place.path("4.1.toml"), place.path("4.2.toml"));
    std::fs::write(&old, FSX).expect("written");
    std::fs::write(&new, [FSX, FSX_SPARSE].concat()).expect("written");

    let mut script = [FSX_RUN, SQLITE_RUN].concat();
    for version in ["4.2", "4.1"] {
        let mount = server.mount(version);
        script += &format!("mount_it() {{\n{mount}}}\nmount_it\n");
        for seed in 1..=seeds {
            script += &format!("fsx_run {version} {seed} {operations}\n");
        }
        script += "umount /mnt\n";
    }
    script += "mount_it\n";
    // A log in shared memory is for processes of one machine, which a mount in one machine is.
    for mode in ["delete", "truncate", "wal"] {
        script += &format!("sqlite_run {mode} {transactions}\n");
    }
    script += "umount /mnt\necho done\n";
    let job = Job::new(script)
        .timeout(std::time::Duration::from_secs(if is_deep() {
            14_400
        } else {
            1800
        }))
        .memory_mib(1024)
        .file(old, "/fsx-4.1.toml")
        .file(new, "/fsx-4.2.toml")
        .program(fsx)
        .and_then(|job| job.program(sqlite))
        .expect("programs");
    let mut machine = image.start(&job).expect("it boots");
    let marks = [
        "fsx operation 200\n",
        "fsx operation 400\n",
        "fsx 4.1 seed 1\n",
        "fsx operation 400\n",
        "delete acknowledged 10\n",
        "truncate acknowledged 12\n",
        "wal acknowledged 14\n",
    ];
    for mark in marks {
        kill_at(&mut machine, mark, &mut server, &place, &listen);
    }
    let said = machine.finish().expect("it comes to an end");
    assert_eq!(said.code, 0, "{}", said.console);
    assert!(said.text.ends_with("done\n"), "{}", said.text);
}

/// Names, data, locks and copies, for the dissector and the counters.
const TRAFFIC: &str = r#"
mkdir /mnt/d
for i in $(seq 20); do echo $i > /mnt/d/f$i; done
grep -A200 'mounted on /mnt ' /proc/self/mountstats | grep -E '^[[:space:]]+[A-Z_]+: [1-9]' | sed "s/^/count $1/"
ls -l /mnt/d >/dev/null
cat /mnt/d/f* > /mnt/all
ln /mnt/all /mnt/d/hard; ln -s all /mnt/soft; mv /mnt/all /mnt/d/moved; readlink /mnt/soft
chmod 600 /mnt/d/moved; chown 5:6 /mnt/d/moved; touch -d '2001-02-03 04:05:06' /mnt/d/moved
mkfifo /mnt/d/pipe; mknod /mnt/d/device c 1 3
flock /mnt/d/hard true
exec 3< /mnt/d/f1; rm /mnt/d/f1; cat <&3; exec 3<&-
truncate -s 1M /mnt/d/f2; df /mnt >/dev/null
cat /mnt/nothing /mnt/d/f3/no 2>/dev/null
rm -r /mnt/d /mnt/soft
"#;

/// Round trips by operation, which the kernel counts for each mount.
fn counts(text: &str, version: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (operation, rest) = line
            .strip_prefix("count ")?
            .strip_prefix(version)?
            .trim()
            .split_once(": ")?;
        let number = rest.split_whitespace().next()?.parse().ok()?;
        Some((operation.to_string(), number))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn a_mounts_messages_are_sound_and_few() {
    let (Some(image), Some(tshark), Some(flock)) = (
        image(),
        peer("VERVAIN_TEST_TSHARK", "tshark"),
        peer("VERVAIN_TEST_FLOCK", "flock"),
    ) else {
        return;
    };
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let versions = ["4.0", "4.1", "4.2"];
    let mut script = format!("traffic() {{\n{TRAFFIC}\n}}\n");
    for version in versions {
        script += &server.mount(version);
        script += &format!("traffic {version}\numount /mnt\n");
    }
    let capture = place.path("mount.pcap");
    let job = Job::new(script).capture(&capture).program(flock);
    let said = image.run(&job.expect("a program")).expect("it boots");
    assert_eq!(said.code, 0, "{}", said.console);

    for version in versions {
        let counts = counts(&said.text, version);
        println!("{version}: creating, writing and closing 20 files: {counts:?}");
        let of = |operation| counts.get(operation).copied().unwrap_or_default();
        // A file is one OPEN, one WRITE and one CLOSE, whether or not there are delegations (4.0 has none);
        // a CLOSE can wait as long as a delegation lasts. The rest is asked once for the directory.
        assert_eq!((of("OPEN"), of("WRITE")), (20, 20), "{version}: {counts:?}");
        assert!(of("CLOSE") <= 20, "{version}: {counts:?}");
        let others = ["GETATTR", "LOOKUP", "ACCESS", "COMMIT", "SETATTR"];
        let others: u64 = others.iter().map(|operation| of(operation)).sum();
        assert!(others <= 10, "{version}: {counts:?}");
    }
    let messages = dissect(&tshark, &capture, server.address.port());
    assert!(messages > 500, "{messages} messages");
}

/// Has every message looked at: how many there were.
fn dissect(tshark: &Path, capture: &Path, port: u16) -> usize {
    let mut command = Command::new(tshark);
    command.args(["-n", "-r"]).arg(capture);
    command.args(["-d", &format!("tcp.port=={port},rpc")]);
    command.args(["-Y", "rpc", "-T", "fields", "-E", "separator=|"]);
    for field in [
        "frame.number",
        "nfs.opcode",
        "nfs.cb.operation",
        "_ws.malformed",
        "_ws.expert.message",
    ] {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("alformed"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let messages = text.lines().count();
    // What is taken for another protocol cannot be malformed. A NULL call, and fragments, have no operation.
    let is_nfs = |line: &&str| {
        let mut fields = line.split('|').skip(1).take(2);
        fields.any(|operations| !operations.is_empty())
    };
    let nfs = text.lines().filter(is_nfs).count();
    assert!(
        nfs * 10 >= messages * 9,
        "{nfs} of {messages} messages have operations of NFS"
    );
    messages
}
