//! `vervain fs put` and `get`, while calls are delayed and connections break: what exits with 0 is whole, and what does
//! not has changed nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nfs::client::{Changes, Client, Files, Options};
use rt::net::Addr;
use rustix::process::Signal;

use crate::between::{Between, Break};
use crate::filesystem::{FsServer, ask, ask_at};
use crate::harness::{Guard, Place, Said, eventually, fixed_port, vervain};

const OLD: &[u8] = b"what was there";

/// More than one piece of 1 MiB.
fn new() -> Vec<u8> {
    (0..2_500_000_u32).map(|at| ((at * 7) >> 3) as u8).collect()
}

/// Names at the root.
fn names(server: &FsServer) -> Vec<String> {
    let said = ask(server, &["ls", "/"], b"");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let name = |line: &str| line.rsplit(' ').next().unwrap_or_default().to_string();
    said.text().lines().map(name).collect()
}

/// Breaks each call of a command in each way, once; it is told how, and is given whom to ask, and says what it was
/// asked for. Returns how many calls there are.
fn each_break(server: &FsServer, mut each: impl FnMut(&str, SocketAddr)) -> usize {
    let whole = Between::new(server.address, None);
    each("nothing is broken", whole.address);
    let calls = whole.calls();
    for at in 0..calls {
        for how in [Break::Delay, Break::Before, Break::After] {
            let between = Between::new(server.address, Some((at, how)));
            each(&format!("call {at} of {calls}: {how:?}"), between.address);
        }
    }
    calls
}

#[test]
fn a_put_that_says_0_is_whole_whatever_breaks() {
    let place = Place::new();
    // Whose file has no write bit opens it again only if it is root's; here nobody's is.
    let server = of_nobody(&place, |_| {});
    ask(&server, &["put", "-", "/x"], OLD).expect(0, "/x: 14 B\n");
    set(server.address, "/x", None, 0o444);
    let (new, local) = (new(), place.path("local"));
    std::fs::write(&local, &new).expect("written");
    let local = local.to_str().expect("a plain path");
    for from in ["-", local] {
        let mut failed = 0;
        let calls = each_break(&server, |what, address| {
            ask(&server, &["put", "-", "/x"], OLD).expect(0, "/x: 14 B\n");
            let input: &[u8] = if from == "-" { &new } else { b"" };
            let said = ask_at(address, &["put", from, "/x"], input);
            let what = format!("{from}: {what}: {:?}: {}", said.code, said.err);
            let there = ask(&server, &["get", "/x"], b"").out;
            match said.code {
                Some(0) => assert!(there == new, "{what}"),
                Some(1) => assert!(there == OLD, "{what}"),
                _ => panic!("{what}"),
            }
            failed += usize::from(said.code != Some(0));
            // A file can be read again.
            assert!(from == "-" || said.code == Some(0), "{what}");
            assert_eq!(names(&server), ["x"], "{what}");
        });
        println!("{from}: {calls} calls, {failed} puts failed");
        assert_eq!(rights(server.address, "/x").2, 0o444);
        // Connecting, looking and naming are done again in any case; of a pipe, three pieces, COMMIT and CLOSE are not.
        assert!(calls >= 12 && failed <= 3 * 5, "{failed} of {calls}");
    }
}

/// How long somebody waits for a server that does not answer any more. It answers before that within this time.
const PATIENT: [&str; 2] = ["--timeout", "5s"];

/// Which call of a command is its last but those that end its session.
fn last_call(server: &FsServer, words: &[&str]) -> usize {
    let whole = Between::new(server.address, None);
    ask_at(whole.address, words, b"").expect(0, "");
    whole.calls() - 3
}

#[test]
fn what_may_have_been_carried_out_is_said_so() {
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let (new, local) = (new(), place.path("local"));
    std::fs::write(&local, &new).expect("written");
    let local = local.to_str().expect("a plain path");
    ask(&server, &["put", "-", "/x"], OLD).expect(0, "/x: 14 B\n");
    let whole = Between::new(server.address, None);
    ask_at(whole.address, &["put", local, "/x"], b"").expect(0, "/x: 2.4 MiB\n");
    let rename = whole.calls() - 3;
    for at in 0..whole.calls() {
        ask(&server, &["put", "-", "/x"], OLD).expect(0, "/x: 14 B\n");
        let between = Between::new(server.address, Some((at, Break::Gone)));
        let timeout = if at == rename { PATIENT[1] } else { "0s" };
        let said = ask_at(
            between.address,
            &["put", "--timeout", timeout, local, "/x"],
            b"",
        );
        let what = format!(
            "call {at} of {}: {:?}: {}",
            whole.calls(),
            said.code,
            said.err
        );
        let there = ask(&server, &["get", "/x"], b"").out;
        let is_in_doubt = said.err.contains("may have been carried out or not");
        match said.code {
            Some(0) => assert!(there == new, "{what}"),
            Some(1) => assert!(there == OLD || is_in_doubt, "{what}"),
            _ => panic!("{what}"),
        }
        if at == rename {
            assert!(is_in_doubt && there == new, "{what}");
            assert!(!said.err.contains("is left"), "{what}");
        }
        // What it could not remove.
        for name in names(&server).iter().filter(|name| *name != "x") {
            assert!(at < rename && said.err.contains(name), "{name}: {what}");
            ask(&server, &["rm", name], b"").expect(0, "");
        }
    }
    // A server that does not answer, and then does, has done it: that is found out.
    ask(&server, &["put", "-", "/x"], OLD).expect(0, "/x: 14 B\n");
    let between = Between::new(server.address, Some((rename, Break::Silent)));
    let said = ask_at(
        between.address,
        &["put", PATIENT[0], PATIENT[1], local, "/x"],
        b"",
    );
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(ask(&server, &["get", "/x"], b"").out == new);
    assert_eq!(names(&server), ["x"]);
}

#[test]
fn a_change_that_is_not_answered_is_not_said_to_have_failed() {
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let calls = ["mkdir", "rm"].map(|word| (word, last_call(&server, &[word, "/d"])));
    ask(&server, &["mkdir", "/gone"], b"").expect(0, "");
    let carry_out = |(word, call): (&str, usize), path: &str, how: Break| {
        let between = Between::new(server.address, Some((call, how)));
        let said = ask_at(between.address, &[word, PATIENT[0], PATIENT[1], path], b"");
        assert_eq!(said.code, Some(1), "{word} {how:?}: {}", said.err);
        let is_in_doubt = said.err.contains("may have been carried out or not");
        assert!(is_in_doubt, "{word} {how:?}: {}", said.err);
    };
    std::thread::scope(|scope| {
        let [mkdir, rm] = calls;
        scope.spawn(move || carry_out(mkdir, "/made", Break::Silent));
        scope.spawn(move || carry_out(rm, "/gone", Break::Silent));
        carry_out(mkdir, "/too", Break::After);
        carry_out(rm, "/too", Break::Gone);
    });
    assert_eq!(names(&server), ["made"]);
}

/// How often clients have asked for nothing, to keep what they have.
fn renewals(place: &Place) -> u64 {
    let mut command = vervain();
    command.args(["--json", "fs", "status", "--data"]);
    command.arg(place.path("files"));
    let said = crate::harness::run(&mut command, b"");
    let status = &said.json()[0];
    let operations = status["operations"].as_array().expect("a list");
    let of_sequence = operations.iter().filter(|of| of["name"] == "sequence");
    let calls = of_sequence.flat_map(|of| of["calls_us"].as_array().expect("a list"));
    calls.map(|of| of[1].as_u64().expect("a number")).sum()
}

#[test]
fn who_waits_for_a_pipe_keeps_what_is_open() {
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &["--lease", "1"]);
    let start = |words: &[&str]| {
        let mut command = vervain();
        command.arg("fs").args(words);
        command.args(["--server", &server.address.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Guard(command.spawn().expect("it starts"))
    };
    let renewed = || {
        let before = renewals(&place);
        eventually("the lease is renewed", || renewals(&place) >= before + 3);
    };
    let mut put = start(&["put", "-", "/x"]);
    let mut stdin = put.0.stdin.take().expect("piped");
    stdin.write_all(&[1; 2 << 20]).expect("written");
    eventually("a piece is there", || names(&server).len() == 1);
    renewed();
    drop(stdin);
    assert_eq!(put.wait_end(), Some(0));

    let mut get = start(&["get", "/x"]);
    let mut stdout = get.0.stdout.take().expect("piped");
    let mut read = vec![0];
    stdout.read_exact(&mut read).expect("it reads");
    renewed();
    stdout.read_to_end(&mut read).expect("read");
    assert_eq!((get.wait_end(), read.len()), (Some(0), 2 << 20));
}

#[test]
fn a_get_that_says_0_is_whole_whatever_breaks() {
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let new = new();
    ask(&server, &["put", "-", "/x"], &new).expect(0, "/x: 2.4 MiB\n");
    let dir = place.path("copies");
    std::fs::create_dir(&dir).expect("made");
    let (copy, pipe) = (dir.join("copy"), dir.join("pipe"));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let text = |path: &Path| path.to_str().expect("a plain path").to_string();
    each_break(&server, |what, address| {
        std::fs::write(&copy, OLD).expect("written");
        let said = ask_at(address, &["get", "/x", &text(&copy)], b"");
        assert_eq!(said.code, Some(0), "{what}: {}", said.err);
        assert!(std::fs::read(&copy).expect("read") == new, "{what}");
    });
    let mut failed = 0;
    each_break(&server, |what, address| {
        let from = pipe.clone();
        let reader = std::thread::spawn(move || std::fs::read(from).expect("read"));
        let said = ask_at(address, &["get", "/x", &text(&pipe)], b"");
        let read = reader.join().expect("no panic");
        match said.code {
            Some(0) => assert!(read == new, "{what}"),
            _ => {
                failed += 1;
                assert!(read.len() <= new.len() && new.starts_with(&read), "{what}");
            }
        }
    });
    assert!(failed > 0, "what was written cannot be taken back");
    let left = std::fs::read_dir(&dir).expect("listed").count();
    assert_eq!(left, 2, "the copy and the pipe");
}

#[test]
fn a_put_through_a_restart_leaves_no_second_name() {
    let place = Place::new();
    let listen = format!("127.0.0.1:{}", fixed_port());
    let mut server = FsServer::start(&place, &listen, &[]);
    ask(&server, &["put", "-", "/x"], OLD).expect(0, "/x: 14 B\n");
    let mut command = vervain();
    command.args([
        "fs",
        "put",
        "--timeout",
        "120s",
        "--server",
        &listen,
        "-",
        "/x",
    ]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut put = Guard(command.spawn().expect("it starts"));
    let mut stdin = put.0.stdin.take().expect("piped");
    stdin.write_all(&[1; 1 << 20]).expect("written");
    eventually("a piece is there", || names(&server).len() == 2);
    server.child.signal(Signal::TERM);
    assert_eq!(server.child.wait_end(), Some(0));
    // What comes now is only the end of it: a piece, and what a pipe takes.
    stdin.write_all(&[2; (1 << 20) + 1000]).expect("written");
    drop(stdin);
    let server = FsServer::start(&place, &listen, &[]);
    assert_eq!(put.wait_end(), Some(1));
    let mut err = String::new();
    let stderr = put.0.stderr.as_mut().expect("piped");
    stderr.read_to_string(&mut err).expect("read");
    assert!(err.contains("cannot be read again"), "{err}");
    // It may be told to come again before that.
    assert_eq!(ask(&server, &["get", "/x"], b"").out, OLD);
    assert_eq!(names(&server), ["x"]);
}

#[test]
fn a_signal_ends_a_put_in_order() {
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let mut command = vervain();
    command.args([
        "fs",
        "put",
        "--server",
        &server.address.to_string(),
        "-",
        "/x",
    ]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut put = Guard(command.spawn().expect("it starts"));
    let mut stdin = put.0.stdin.take().expect("piped");
    stdin.write_all(&[1; 2 << 20]).expect("written");
    eventually("a piece is there", || names(&server).len() == 1);
    put.signal(Signal::INT);
    assert_eq!(put.wait_end(), Some(1));
    assert_eq!(names(&server), [""; 0]);
    holds_nothing(&place);
}

/// Nobody has anything open, and no client is known.
fn holds_nothing(place: &Place) {
    let mut command = vervain();
    command.args(["--json", "fs", "status", "--data"]);
    command.arg(place.path("files"));
    let said = crate::harness::run(&mut command, b"");
    let gauges = &said.json()[0]["gauges"];
    assert_eq!(
        (&gauges["opens"], &gauges["clients"]),
        (&0.into(), &0.into()),
        "{gauges}"
    );
}

#[test]
fn what_fails_leaves_nothing_open_and_no_room_taken() {
    let place = Place::new();
    let mut server = FsServer::start_sized(&place, "127.0.0.1:0", "64M", &[]);
    let said = ask(&server, &["put", "-", "/big"], &vec![7; 80 << 20]);
    said.expect(1, "");
    assert!(said.err.contains("no space left"), "{}", said.err);
    holds_nothing(&place);
    // What was removed is free when compaction has come by.
    let thirty = vec![8; 30 << 20];
    eventually("there is room again", || {
        ask(&server, &["put", "-", "/big"], &thirty).code == Some(0)
    });

    // Whoever has read enough.
    let mut command = vervain();
    command.args(["fs", "get", "--server", &server.address.to_string(), "/big"]);
    command.stdout(Stdio::piped());
    let mut get = Guard(command.spawn().expect("it starts"));
    let mut out = get.0.stdout.take().expect("piped");
    out.read_exact(&mut [0]).expect("a byte");
    drop(out);
    assert_eq!(get.wait_end(), Some(0));
    holds_nothing(&place);

    server.child.signal(Signal::TERM);
    assert_eq!(server.child.wait_end(), Some(0));
    let mut command = vervain();
    command.args(["fs", "quota", "main", "--bytes", "40M", "--data"]);
    command.arg(place.path("files"));
    crate::harness::run(&mut command, b"").expect(0, "main: 40 MiB, any number of files\n");
    let server = FsServer::start_sized(&place, "127.0.0.1:0", "64M", &[]);
    // The disk may be full of what was removed until compaction has come by, and then the quota is in the way.
    eventually("the quota is used up", || {
        let said = ask(&server, &["put", "-", "/more"], &thirty);
        said.expect(1, "");
        let is_full = said.err.contains("no space left");
        assert!(
            is_full || said.err.contains("quota is used up"),
            "{}",
            said.err
        );
        !is_full
    });
    holds_nothing(&place);
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let said = ask_at(address, &["ls", "--timeout", "0s", "/"], b"");
    said.expect(1, "");
    assert!(
        said.err.contains("the server does not answer"),
        "{}",
        said.err
    );
    let said = ask_at(address, &["ls", "--timeout", "7s", "/"], b"");
    said.expect(1, "");
    assert!(said.err.contains("trying again for 2 s"), "{}", said.err);
}

/// Does something with the files of a server, as root.
fn with_files<T>(address: SocketAddr, work: impl AsyncFnOnce(&Files) -> T) -> T {
    let mut core = rt::Core::new(rt::Config::default()).expect("a core");
    let handle = core.handle();
    core.block_on(async {
        let name = format!("test {}", fastrand::u64(..));
        let client = Client::connect(&handle, &Addr::Tcp(address), Options::new(name, 1)).await;
        let client = client.expect("a session");
        let done = work(&Files::new(client.clone())).await;
        client.close().await.expect("closed");
        done
    })
}

/// A server's file gets other attributes, one after the other: a change of the owner may take bits from the mode.
fn set(address: SocketAddr, path: &str, owner: Option<(&str, &str)>, mode: u32) {
    with_files(address, async |files| {
        if let Some((owner, group)) = owner {
            let changes = Changes {
                owner: Some(owner),
                group: Some(group),
                ..Changes::default()
            };
            files.set(path, &changes).await.expect("set");
        }
        let changes = Changes {
            mode: Some(mode),
            ..Changes::default()
        };
        files.set(path, &changes).await.expect("set");
    });
}

/// Owner, group and mode of a server's file.
fn rights(address: SocketAddr, path: &str) -> (String, String, u32) {
    with_files(address, async |files| {
        let found = files.find(path).await.expect("it is there");
        (found.owner, found.group, found.mode)
    })
}

/// A server whose clients are all nobody, with a root directory for everybody.
fn of_nobody(place: &Place, before: impl FnOnce(&FsServer)) -> FsServer {
    let mut server = FsServer::start(place, "127.0.0.1:0", &[]);
    set(server.address, "/", None, 0o777);
    before(&server);
    server.child.signal(Signal::TERM);
    assert_eq!(server.child.wait_end(), Some(0));
    FsServer::start(place, "127.0.0.1:0", &["--squash", "all"])
}

#[test]
fn a_file_that_is_replaced_keeps_its_owner_if_that_can_be() {
    let place = Place::new();
    let modes = [0o600, 0o640, 0o4754, 0o664, 0o604];
    let put = |server: &FsServer, mode: u32, bytes: &[u8]| {
        let path = format!("/{mode:o}");
        let said = format!("{path}: {} B\n", bytes.len());
        ask(server, &["put", "-", &path], bytes).expect(0, &said);
        path
    };
    let server = of_nobody(&place, |server| {
        for mode in modes {
            let path = put(server, mode, b"1");
            set(server.address, &path, Some(("1234", "1235")), mode);
            put(server, mode, b"22");
            let kept = ("1234".to_string(), "1235".to_string(), mode);
            assert_eq!(rights(server.address, &path), kept);
        }
    });
    // Nobody cannot give files away: others may do no more with what was another's than before.
    for (mode, narrowed) in modes.into_iter().zip([0o600, 0o600, 0o744, 0o644, 0o600]) {
        let path = put(&server, mode, b"333");
        let (owner, group, mode) = rights(server.address, &path);
        assert!(owner != "1234" && group != "1235", "{owner} {group}");
        assert_eq!(mode, narrowed, "{path} became {mode:o}");
    }
}

#[test]
fn a_private_file_stays_private_and_long_names_have_room() {
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    ask(&server, &["put", "-", "/secrets"], b"1").expect(0, "/secrets: 1 B\n");
    set(server.address, "/secrets", None, 0o600);
    ask(&server, &["put", "-", "/secrets"], b"22").expect(0, "/secrets: 2 B\n");
    let said = ask(&server, &["ls", "/secrets"], b"");
    assert!(said.text().starts_with("-rw------- "), "{}", said.text());

    let long = format!("/{}", "文".repeat(85));
    ask(&server, &["put", "-", &long], b"1").expect(0, &format!("{long}: 1 B\n"));
    let copy: PathBuf = place.path(&long[1..]);
    let to = copy.to_str().expect("a plain path");
    std::fs::write(&copy, "").expect("written");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).expect("set");
    ask(&server, &["get", &long, to], b"").expect(0, "");
    let mode = std::fs::metadata(&copy)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
}

/// `get /x TO`, its standard output a file.
fn get_to_file(server: &FsServer, to: &str, out: &Path) -> Said {
    let mut command = vervain();
    command.args([
        "fs",
        "get",
        "--server",
        &server.address.to_string(),
        "/x",
        to,
    ]);
    let out = std::fs::File::options().append(true).open(out);
    command.stdout(out.expect("opened")).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let output = child.wait_with_output().expect("it ends");
    Said {
        code: output.status.code(),
        out: output.stdout,
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn links_and_standard_output_by_name_are_written_through() {
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    ask(&server, &["put", "-", "/x"], b"content").expect(0, "/x: 7 B\n");
    let (target, link) = (place.path("v1"), place.path("current"));
    std::fs::write(&target, OLD).expect("written");
    std::os::unix::fs::symlink("v1", &link).expect("made");
    let to = link.to_str().expect("a plain path");
    ask(&server, &["get", "/x", to], b"").expect(0, "");
    assert!(link.is_symlink());
    assert_eq!(std::fs::read(&target).expect("read"), b"content");

    // Not the machine's own link, in case it does not stay.
    let name = place.path("stdout");
    std::os::unix::fs::symlink("/proc/self/fd/1", &name).expect("made");
    let out = place.path("out");
    std::fs::write(&out, "before ").expect("written");
    let said = get_to_file(&server, name.to_str().expect("a plain path"), &out);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(name.is_symlink());
    assert_eq!(std::fs::read(&out).expect("read"), b"before content");
}
