//! `vervain fs`: what those need who run a file system, and how it says what is wrong.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::filesystem::{FsServer, ask};
use crate::harness::{Guard, Place, Said, eventually, fixed_port, run, vervain};

/// A command about a directory.
fn about(place: &Place, words: &[&str]) -> Said {
    let mut command = vervain();
    command.arg("fs").args(words);
    command.arg("--data").arg(place.path("files"));
    run(&mut command, b"")
}

fn serve(place: &Place, more: &[&str]) -> Command {
    let mut command = vervain();
    command.args(["fs", "serve", "--size", "64M", "--listen", "127.0.0.1:0"]);
    command.args(more).arg("--data").arg(place.path("files"));
    command
}

#[test]
fn a_check_says_by_its_exit_code_and_in_a_sentence_what_it_found() {
    let place = Place::new();
    let said = about(&place, &["check"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("holds no file system"), "{}", said.err);

    let mut server = FsServer::start_sized(&place, "127.0.0.1:0", "64M", &[]);
    ask(&server, &["mkdir", "/a"], b"").expect(0, "");
    ask(&server, &["put", "-", "/a/full"], &[0xa7; 50_000]).expect(0, "/a/full: 48.8 KiB\n");
    let said = about(&place, &["check"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    let pid = format!("in use by process {}", server.child.pid());
    assert!(said.err.contains(&pid), "{}", said.err);
    assert_eq!(said.err.matches("in use").count(), 1, "{}", said.err);

    server.child.signal(Signal::TERM);
    assert_eq!(server.child.wait_end(), Some(0));
    let said = about(&place, &["check"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        said.text().starts_with("sound: 3 files and directories"),
        "{}",
        said.text()
    );

    let path = place.path("files").join("data");
    let data = std::fs::read(&path).expect("read");
    let mut pages = (0..data.len()).step_by(4096);
    let page = pages
        .find(|at| data[at + 4095] == 0xa7)
        .expect("a page of the file");
    let file = File::options().write(true).open(&path).expect("opened");
    file.write_all_at(b"rot", page as u64 + 9).expect("written");
    let said = about(&place, &["check"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let first = said.text().lines().next().expect("a line");
    assert!(
        first.starts_with("data: /a/full: damaged at byte "),
        "{first}"
    );
    let said = about(&place, &["--json", "check"]);
    assert_eq!(said.code, Some(1));
    let told = &said.json()[0];
    assert_eq!(told["sound"], false);
    assert_eq!(told["faults"][0]["path"], "/a/full");
}

/// What is answered to a request.
fn http(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_server_tells_what_it_does() {
    let place = Place::new();
    let metrics = SocketAddr::from(([127, 0, 0, 1], fixed_port()));
    let server = FsServer::start(&place, "127.0.0.1:0", &["--metrics", &metrics.to_string()]);
    ask(&server, &["put", "-", "/file"], &[1; 3_000_000]).expect(0, "/file: 2.9 MiB\n");
    ask(&server, &["get", "/missing"], b"").expect(1, "");

    let said = about(&place, &["--json", "status"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let status = &said.json()[0];
    assert_eq!(status["pid"], server.child.pid());
    assert_eq!(status["listen"], server.address.to_string());
    let operations = status["operations"].as_array().expect("a list");
    let write = operations.iter().find(|of| of["name"] == "write");
    let calls = write.expect("it wrote")["calls_us"]
        .as_array()
        .expect("a list");
    let calls: u64 = calls
        .iter()
        .map(|of| of[1].as_u64().expect("a number"))
        .sum();
    assert_eq!(calls, 3, "pieces of 1 MiB");
    let counter = |name: &str| status["counters"][name].as_u64().expect("a counter");
    assert!(counter("received_bytes") > 3_000_000 && counter("device_written_bytes") > 3_000_000);
    assert!(counter("commits") > 0 && counter("journal_writes") > 0);
    assert!(status["gauges"]["space_valid_bytes"].as_u64() >= Some(3_000_000));
    assert_eq!(status["volumes"][0]["name"], "main");

    let said = about(&place, &["status"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.text().contains("\nwrite "), "{}", said.text());
    let mut command = vervain();
    command.args([
        "fs",
        "top",
        "--times",
        "2",
        "--every",
        "10ms",
        "--from",
        &metrics.to_string(),
    ]);
    let said = run(&mut command, b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(
        said.text().matches("serving ").count(),
        2,
        "{}",
        said.text()
    );

    let answer = http(metrics, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.contains("\nvervain_fs_call_seconds_count{operation=\"write\"} 3\n"),
        "{answer}"
    );
    let change = "POST /volume HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
    assert!(
        http(metrics, change).starts_with("HTTP/1.1 404"),
        "that is the socket's alone"
    );
    assert!(http(metrics, "no request\r\n\r\n").starts_with("HTTP/1.1 400"));
    drop(server);
    let said = about(&place, &["status"]);
    said.expect(1, "");
    assert!(said.err.contains("nobody serves"), "{}", said.err);
}

#[test]
fn what_keeps_it_from_serving_is_said_in_a_sentence() {
    let place = Place::new();
    std::fs::write(place.path("files"), "x").expect("written");
    let said = run(&mut serve(&place, &[]), b"");
    said.expect(1, "");
    assert!(said.err.contains("is no directory"), "{}", said.err);
    std::fs::remove_file(place.path("files")).expect("removed");

    let server = FsServer::start_sized(&place, "127.0.0.1:0", "64M", &[]);
    let said = run(&mut serve(&place, &[]), b"");
    said.expect(1, "");
    let pid = format!("is in use by process {}", server.child.pid());
    assert!(said.err.contains(&pid), "{}", said.err);
    drop(server);

    // The superblocks' version, and the clock.
    let data = place.path("files").join("data");
    let bytes = std::fs::read(&data).expect("read");
    let file = File::options().write(true).open(&data).expect("opened");
    let rows = place.path("files").join("rows/rows.redb");
    let rows = File::options().write(true).open(rows).expect("opened");
    for at in [0, 32 << 10] {
        let mut superblock = bytes[at..at + 64].to_vec();
        superblock[8] = 9;
        let sum = crc32c(&superblock[..60]);
        superblock[60..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&superblock, at as u64).expect("written");
    }
    let later = SystemTime::now() + Duration::from_secs(7200);
    rows.set_modified(later).expect("set");
    let said = run(&mut serve(&place, &[]), b"");
    said.expect(1, "");
    assert!(
        said.err.contains("use the program that wrote it"),
        "{}",
        said.err
    );
    assert!(said.err.contains("set the clock"), "{}", said.err);
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
        }
    }
    !crc
}

#[test]
fn a_disk_that_is_too_small_is_named_and_a_file_that_does_not_fit_leaves_nothing() {
    let place = Place::new();
    let mut command = vervain();
    command
        .args(["fs", "format", "--size", "1023T", "--data"])
        .arg(place.path("huge"));
    let said = run(&mut command, b"");
    said.expect(1, "");
    assert!(
        said.err.contains("`--size` takes another size"),
        "{}",
        said.err
    );

    let server = FsServer::start_sized(&place, "127.0.0.1:0", "64M", &[]);
    ask(&server, &["put", "-", "/file"], b"before").expect(0, "/file: 6 B\n");
    let said = ask(&server, &["put", "-", "/file"], &vec![7; 80 << 20]);
    said.expect(1, "");
    assert!(
        said.err.contains("no space left on the server"),
        "{}",
        said.err
    );
    let said = ask(&server, &["ls", "/"], b"");
    assert_eq!(said.text().lines().count(), 1, "{}", said.text());
    ask(&server, &["get", "/file"], b"").expect(0, "before");
}

#[test]
fn files_wait_for_a_server_that_restarts_and_for_its_clients() {
    let place = Place::new();
    // One that is still free when the next server starts.
    let listen = format!("127.0.0.1:{}", fixed_port());
    // Longer than the get rests between two attempts.
    let mut server = FsServer::start(&place, &listen, &["--lease", "30"]);
    ask(&server, &["put", "-", "/file"], b"content").expect(0, "/file: 7 B\n");

    // Somebody has a file open, so that there is something to claim after the restart.
    let mut command = vervain();
    command.args(["fs", "put", "--server", &listen, "-", "/other"]);
    command
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .stdout(Stdio::null());
    let mut open = Guard(command.spawn().expect("it starts"));
    eventually("a file is open", || {
        let said = about(&place, &["--json", "status"]);
        said.json()[0]["gauges"]["opens"] == 1
    });
    server.child.signal(Signal::KILL);
    server.child.wait_end();
    open.kill();

    let mut command = vervain();
    command.args([
        "fs",
        "get",
        "--timeout",
        "100s",
        "--server",
        &listen,
        "/file",
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut get = Guard(command.spawn().expect("it starts"));
    let mut err = get.0.stderr.take().expect("piped");
    let mut heard = vec![0; listen.len() + 20];
    err.read_exact(&mut heard).expect("a line");
    let heard = String::from_utf8(heard).expect("text");
    assert!(heard.contains("does not answer"), "{heard}");
    let server = FsServer::start(&place, &listen, &["--lease", "30"]);
    assert_eq!(get.wait_end(), Some(0));
    let mut out = String::new();
    let stdout = get.0.stdout.as_mut().expect("piped");
    stdout.read_to_string(&mut out).expect("read");
    assert_eq!(out, "content");
    let mut more = String::new();
    err.read_to_string(&mut more).expect("read");
    // Whoever had it open has not come back: the lease is waited for.
    assert!(more.contains("asks to come again"), "{heard}{more}");

    let said = ask(&server, &["get", "--timeout", "0s", "/missing"], b"");
    said.expect(1, "");
    drop(server);
    let mut command = vervain();
    command.args(["fs", "ls", "--timeout", "0s", "--server", &listen]);
    let said = run(&mut command, b"");
    said.expect(1, "");
    assert!(said.err.contains("no NFS server answers"), "{}", said.err);
}

#[test]
fn volumes_have_names_and_quotas() {
    let place = Place::new();
    let mut server = FsServer::start(&place, "127.0.0.1:0", &[]);
    ask(&server, &["put", "-", "/file"], b"first").expect(0, "/file: 5 B\n");
    let said = about(&place, &["volume", "create", "--bytes", "1M", "team"]);
    said.expect(
        0,
        "team: a volume of 1 MiB, any number of files; the next start serves it\n",
    );
    let said = about(&place, &["volume", "create", "team"]);
    said.expect(1, "");
    assert!(said.err.contains("already"), "{}", said.err);
    server.child.signal(Signal::TERM);
    assert_eq!(server.child.wait_end(), Some(0));

    // Without a server as well.
    about(&place, &["volume", "create", "--files", "2", "few"])
        .expect(0, "few: all bytes, 2 files\n");
    let said = about(&place, &["volume", "create", "a/b"]);
    said.expect(1, "");
    assert!(said.err.contains("no name of a volume"), "{}", said.err);
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let said = ask(&server, &["ls", "/"], b"");
    let names: Vec<&str> = said
        .text()
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    assert_eq!(names, ["few", "main", "team"]);
    ask(&server, &["get", "/main/file"], b"").expect(0, "first");
    let said = ask(&server, &["put", "-", "/team/big"], &[1; 2 << 20]);
    said.expect(1, "");
    assert!(said.err.contains("quota is used up"), "{}", said.err);
    about(&place, &["quota", "--bytes", "8M", "team"])
        .expect(0, "team: 8 MiB, any number of files\n");
    ask(&server, &["put", "-", "/team/big"], &[1; 2 << 20]).expect(0, "/team/big: 2 MiB\n");
    ask(&server, &["put", "-", "/few/one"], b"1").expect(0, "/few/one: 1 B\n");
    ask(&server, &["mkdir", "/few/two"], b"").expect(1, "");
    let said = about(&place, &["quota", "none"]);
    said.expect(1, "");
    assert!(
        said.err.contains("there is no volume \"none\""),
        "{}",
        said.err
    );
    let said = about(&place, &["--json", "volume", "ls"]);
    let all = &said.json()[0];
    assert_eq!(all[1]["name"], "team");
    assert_eq!(all[1]["bytes_max"], 8 << 20);
    assert!(all[1]["bytes"].as_u64() >= Some(2 << 20));
    assert_eq!(all[2]["files"], 2);
}

/// A command whose standard output nobody reads; its exit code.
fn unread(command: &mut Command) -> Option<i32> {
    let (from, to) = std::io::pipe().expect("a pipe");
    drop(from);
    let child = command.stdout(to).stderr(Stdio::null()).spawn();
    Guard(child.expect("it starts")).wait_end()
}

#[test]
fn a_check_that_nobody_reads_fails_all_the_same() {
    let place = Place::new();
    let mut server = FsServer::start_sized(&place, "127.0.0.1:0", "64M", &[]);
    ask(&server, &["put", "-", "/full"], &[0xa7; 50_000]).expect(0, "/full: 48.8 KiB\n");
    server.child.signal(Signal::TERM);
    assert_eq!(server.child.wait_end(), Some(0));
    let check = |words: &[&str]| {
        let mut command = vervain();
        command.args(words).arg("--data").arg(place.path("files"));
        unread(&mut command)
    };
    assert_eq!(check(&["fs", "check"]), Some(0));
    let path = place.path("files").join("data");
    let data = std::fs::read(&path).expect("read");
    let mut pages = (0..data.len()).step_by(4096);
    let page = pages.find(|at| data[at + 4095] == 0xa7).expect("a page");
    let file = File::options().write(true).open(&path).expect("opened");
    file.write_all_at(b"rot", page as u64 + 9).expect("written");
    assert_eq!(check(&["fs", "check"]), Some(1));
    assert_eq!(check(&["--json", "fs", "check"]), Some(1));
}

/// A part of a file system is locked by this process, as by one that starts, until the file is dropped.
fn locked(place: &Place, part: &str) -> File {
    let part = File::open(place.path("files").join(part)).expect("it is there");
    part.lock().expect("nobody has it");
    part
}

#[test]
fn a_server_that_starts_or_ends_is_not_denied_and_can_be_stopped() {
    let place = Place::new();
    about_of(&place, &["format", "--size", "64M"]).expect(0, "");
    let rows = locked(&place, "rows");
    let said = about(&place, &["status"]);
    said.expect(1, "");
    let pid = format!("process {} has", std::process::id());
    assert!(said.err.contains(&pid), "{}", said.err);
    assert!(!said.err.contains("nobody serves"), "{}", said.err);
    let said = about(&place, &["volume", "create", "team"]);
    said.expect(1, "");
    assert!(said.err.contains(&pid), "{}", said.err);

    // It waits for that lock longer than it is let.
    drop(rows);
    let data = locked(&place, "data");
    let mut server = Guard(serve(&place, &[]).spawn().expect("it starts"));
    eventually("it takes signals", || server.takes_signals());
    server.signal(Signal::TERM);
    assert_eq!(server.wait_end(), Some(0));
    drop(data);
    let said = about(&place, &["status"]);
    said.expect(1, "");
    assert!(said.err.contains("nobody serves"), "{}", said.err);
}

/// As [`about`], whatever is said.
fn about_of(place: &Place, words: &[&str]) -> Said {
    let mut said = about(place, words);
    said.out.clear();
    said
}

#[test]
fn those_who_ask_nothing_keep_nobody_out() {
    let place = Place::new();
    let metrics = SocketAddr::from(([127, 0, 0, 1], fixed_port()));
    let server = FsServer::start(&place, "127.0.0.1:0", &["--metrics", &metrics.to_string()]);
    let silent: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(metrics).expect("it listens"))
        .collect();
    let answer = http(metrics, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for stream in &silent {
        stream.set_nonblocking(true).expect("set");
        let kind = stream.peek(&mut [0]).map_err(|error| error.kind());
        assert_eq!(
            kind,
            Err(ErrorKind::WouldBlock),
            "it was answered before they went"
        );
    }
    // More than there is room for: the oldest go.
    let more: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(metrics).expect("it listens"))
        .collect();
    let answer = http(metrics, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    drop((silent, more, server));
}

#[test]
fn a_top_goes_on_when_the_server_restarts() {
    let place = Place::new();
    let mut server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let mut command = vervain();
    command.args(["fs", "top", "--every", "20ms", "--data"]);
    command.arg(place.path("files")).stdout(Stdio::piped());
    let mut top = Guard(command.spawn().expect("it starts"));
    let mut lines = BufReader::new(top.0.stdout.take().expect("piped")).lines();
    let mut until = |what: &str| {
        let found = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(what)));
        found
            .unwrap_or_else(|| panic!("it ended before {what}"))
            .expect("a line")
    };
    until(&format!("process {}", server.child.pid()));
    server.child.kill();
    let away = until("looking again");
    assert!(away.starts_with("away "), "{away}");
    server = FsServer::start(&place, "127.0.0.1:0", &[]);
    until(&format!("process {}", server.child.pid()));
}

#[test]
fn calls_that_make_no_sense_say_what_is_taken() {
    for words in [&["rm"][..], &["mkdir"]] {
        let mut command = vervain();
        command.arg("fs").args(words);
        let said = run(&mut command, b"");
        assert_eq!(said.code, Some(2), "{words:?}: {}", said.err);
    }
    let place = Place::new();
    let said = run(&mut serve(&place, &["--slow", "abc"]), b"");
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(
        said.err.contains("milliseconds, such as 100"),
        "{}",
        said.err
    );
    std::fs::create_dir(place.path("files")).expect("made");
    std::fs::write(place.path("files").join("x"), "").expect("written");
    let path = place.path("files").display().to_string();
    for said in [run(&mut serve(&place, &[]), b""), about(&place, &["check"])] {
        assert_eq!(said.err.matches(&path).count(), 1, "{}", said.err);
        assert!(said.err.contains("holds no file system"), "{}", said.err);
    }
}

#[test]
fn a_volume_that_is_half_made_moves_nothing_and_becomes_the_next_one() {
    let place = Place::new();
    let mut server = FsServer::start_sized(&place, "127.0.0.1:0", "64M", &[]);
    ask(&server, &["put", "-", "/file"], b"first").expect(0, "/file: 5 B\n");
    server.child.signal(Signal::TERM);
    assert_eq!(server.child.wait_end(), Some(0));
    // As if it was killed before the volume had its name.
    let mut core = rt::Core::new(rt::Config::default()).expect("a core");
    let handle = core.handle();
    core.block_on(async {
        let now = Rc::new(|| files::Timestamp {
            seconds: 1,
            nanoseconds: 0,
        });
        let options = fs::LocalOptions::new(now, 1);
        let fs = fs::Local::open(&handle, &place.path("files"), &options).await;
        let fs = fs.expect("nobody serves it");
        let made = fs.set_quota(files::VolumeId(2), fs::Quota::default()).await;
        made.expect("made");
        fs.close().await.expect("closed");
    });
    let mut server = FsServer::start_sized(&place, "127.0.0.1:0", "64M", &[]);
    assert_eq!(ask(&server, &["get", "/file"], b"").out, b"first");
    let said = about(&place, &["--json", "volume", "ls"]);
    assert_eq!(said.json()[0][1]["name"], serde_json::Value::Null);
    let said = about(&place, &["volume", "create", "team"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    server.child.signal(Signal::TERM);
    assert_eq!(server.child.wait_end(), Some(0));
    let server = FsServer::start_sized(&place, "127.0.0.1:0", "64M", &[]);
    assert_eq!(ask(&server, &["get", "/main/file"], b"").out, b"first");
    let said = about(&place, &["--json", "volume", "ls"]);
    let all = &said.json()[0];
    assert_eq!(
        (&all[1]["name"], &all[2]),
        (&"team".into(), &serde_json::Value::Null)
    );
}
