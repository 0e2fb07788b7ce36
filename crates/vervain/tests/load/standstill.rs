//! Processes that stand still half-way: in a handshake, in a request, with answers on their way.
//!
//! They are this program, started anew with a part to play, and stop themselves at a place of the
//! conversation. Unlike connections that are merely silent, a stopped process answers nothing that
//! the NIC asks it either.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cache::herd::ClientConfig;
use cache::herd::client::{Address, Client, Control, Door, Outcome};
use cache::herd::wire::answer::Status;
use cache::herd::wire::request::{Command as Ask, StoreMode};
use nic_soft::{SoftNic, SoftOptions};
use rustix::process::Signal;
use verbs::typed::Context;

use crate::bystanders::{Bystanders, Misses};
use crate::harness::{Guard, LIMIT, Place, Server, eventually};
use crate::process::Before;
use crate::{alone, ways_of_io};

/// Names the part that a process plays.
const PART: &str = "VERVAIN_LOAD_PART";
/// The run directory.
const RUN_DIR: &str = "VERVAIN_LOAD_RUN_DIR";
/// The server's door.
const DOOR: &str = "VERVAIN_LOAD_DOOR";

/// What a process was doing when it stopped, and how many do.
const PARTS: [(&str, usize); 11] = [
    ("socket-silent", 2),
    ("socket-line", 2),
    ("socket-value", 2),
    ("socket-answers", 2),
    ("herd-hello", 2),
    ("herd-info", 2),
    ("herd-half-connect", 2),
    // The server makes contact with their NICs, and does not hear of them. They are more than it has
    // threads for that.
    ("herd-connect", 20),
    ("herd-accept", 2),
    ("herd-requests", 2),
    ("herd-large-value", 2),
];

/// Values that are read and stored.
const LARGE: usize = 300_000;

/// Stands still until somebody lets it go on. The signal is this thread's, so that it comes no step
/// further.
fn stand_still() {
    nix::sys::signal::raise(nix::sys::signal::SIGSTOP).expect("a signal to oneself");
}

/// Where a conversation is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    AfterWrite(u32),
    InWrite(u32),
    AfterRead(u32),
    Nowhere,
}

/// A control stream that stands still at a place of the handshake.
#[derive(Debug)]
struct Halting {
    door: Door,
    cut: Cut,
    reads: u32,
    writes: u32,
}

impl Read for Halting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.door.read(buffer)?;
        self.reads += 1;
        if self.cut == Cut::AfterRead(self.reads) {
            stand_still();
        }
        Ok(len)
    }
}

impl Write for Halting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writes += 1;
        if self.cut == Cut::InWrite(self.writes) {
            let half = bytes.len() / 2;
            self.door.write_all(&bytes[..half])?;
            stand_still();
            return Ok(half);
        }
        self.door.write_all(bytes)?;
        if self.cut == Cut::AfterWrite(self.writes) {
            stand_still();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.door.flush()
    }
}

impl Control for Halting {
    fn is_closed(&mut self) -> bool {
        self.door.is_closed()
    }
}

/// Starts a process that plays a part.
fn start(part: &str, server: &Server) -> Guard {
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "standstill::plays_its_part", "--nocapture"])
        .env(PART, part)
        .env(RUN_DIR, server.run_dir())
        .env(DOOR, server.address.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starting a process");
    Guard(child)
}

/// What such a process does: nothing, when it is none.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let run_dir = PathBuf::from(std::env::var_os(RUN_DIR).expect("a run directory"));
    let door: SocketAddr = std::env::var(DOOR)
        .expect("a door")
        .parse()
        .expect("an address");
    let played = match part.strip_prefix("socket-") {
        Some(part) => play_socket(part, door).map_err(|error| error.to_string()),
        None => play_herd(&part, &run_dir, door),
    };
    std::process::exit(match played {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    });
}

fn play_socket(part: &str, door: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(door)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let value = format!("set still-{part} 0 0 {LARGE}\r\n{}\r\n", "s".repeat(LARGE));
    let gets = format!("get still-{part}\r\n").repeat(4);
    let (cut, answers) = match part {
        "silent" => (0, "STORED\r\n".len()),
        "line" => (9, "STORED\r\n".len()),
        "value" => (LARGE / 2, "STORED\r\n".len()),
        "answers" => {
            stream.write_all(value.as_bytes())?;
            stream.write_all(gets.as_bytes())?;
            stand_still();
            let head = format!("VALUE still-{part} 0 {LARGE}\r\n").len();
            let item = head + LARGE + "\r\nEND\r\n".len();
            return read_exactly(&mut stream, "STORED\r\n".len() + 4 * item);
        }
        other => panic!("there is no part `{other}`"),
    };
    let (before, after) = value.as_bytes().split_at(cut);
    stream.write_all(before)?;
    stand_still();
    stream.write_all(after)?;
    read_exactly(&mut stream, answers)
}

fn read_exactly(stream: &mut TcpStream, len: usize) -> io::Result<()> {
    let mut heard = vec![0; len];
    stream.read_exact(&mut heard)?;
    assert!(heard.starts_with(b"STORED\r\n"), "{:?}", &heard[..40]);
    Ok(())
}

fn play_herd(part: &str, run_dir: &Path, door: SocketAddr) -> Result<(), String> {
    let mut cut = match part {
        "herd-hello" => Cut::AfterWrite(1),
        "herd-info" => Cut::AfterRead(1),
        "herd-half-connect" => Cut::InWrite(2),
        "herd-connect" => Cut::AfterWrite(2),
        "herd-accept" => Cut::AfterRead(2),
        _ => Cut::Nowhere,
    };
    let nic = SoftNic::open(&SoftOptions::new(run_dir).contact_timeout(LIMIT))
        .map_err(|error| error.to_string())?;
    let pd = Context::new(nic)
        .alloc_pd()
        .map_err(|error| error.to_string())?;
    let config = ClientConfig {
        deadline_ns: LIMIT.as_nanos() as u64,
        lost_ns: LIMIT.as_nanos() as u64 / 2,
        ..ClientConfig::default()
    };
    let dial = move || {
        Ok(Halting {
            door: Address::Tcp(door).dial(LIMIT)?,
            // Whoever has to connect again is not stopped again.
            cut: std::mem::replace(&mut cut, Cut::Nowhere),
            reads: 0,
            writes: 0,
        })
    };
    let began = Instant::now();
    let now_ns = move || began.elapsed().as_nanos() as u64;
    let mut client = Client::connect(pd, config, dial, now_ns())
        .map_err(|error| format!("connecting: {error}"))?;
    let large = vec![b'h'; LARGE];
    let key = format!("{part}-{}", std::process::id());
    let put = Ask::Store {
        mode: StoreMode::Set,
        key: key.as_bytes(),
        value: &large,
        flags: 0,
        expiry_s: 0,
    };
    let mut ended = Vec::new();
    let mut submitted = 0;
    if part == "herd-requests" {
        for number in 0..8 {
            let key = format!("nothing-{number}");
            let get = Ask::Get {
                key: key.as_bytes(),
            };
            client
                .submit(&get, false, number)
                .map_err(|error| error.to_string())?;
            submitted += 1;
        }
        client.flush(now_ns());
        stand_still();
    } else {
        client
            .submit(&put, false, 0)
            .map_err(|error| error.to_string())?;
        submitted += 1;
    }
    let finds_nothing = part == "herd-requests";
    let mut stops = part == "herd-large-value";
    while ended.len() < submitted {
        let taken = client.poll(now_ns(), &mut |_, outcome| {
            ended.push(match outcome {
                Outcome::Refused(Status::NotFound) if finds_nothing => Ok(()),
                Outcome::Done { .. } if !finds_nothing => Ok(()),
                other => Err(format!("{other:?}")),
            });
        });
        if stops && client.stats().posted >= 20 {
            stops = false;
            stand_still();
        }
        if taken == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    ended.into_iter().collect::<Result<(), String>>()?;
    assert!(!stops, "the value was stored before it was half-way");
    Ok(())
}

/// What a process that has ended said.
fn errors(child: &mut Guard) -> String {
    let mut said = String::new();
    let stderr = child.0.stderr.as_mut().expect("a pipe");
    stderr.read_to_string(&mut said).expect("text");
    said
}

/// Whether a process stands still.
fn stands(child: &mut Guard) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid())).expect("a child");
    // The name in parentheses may hold anything.
    let state = stat[stat.rfind(')').expect("a name")..].split(' ').nth(1);
    if state == Some("Z") {
        let ended = child.0.wait().expect("a child");
        panic!(
            "it ended before it stood still, with {ended}: {}",
            errors(child)
        );
    }
    state == Some("T")
}

#[test]
fn processes_that_stand_still_half_way_disturb_nobody() {
    let _alone = alone();
    for io in ways_of_io() {
        let place = Place::new();
        let server = place.start(&[
            "--cores",
            "2",
            "--io",
            io,
            "--prefault",
            // It gives up those that have stopped before they answer.
            "--contact-timeout",
            "5s",
        ]);
        let before = Before::of(&server);
        let bystanders = Bystanders::start(&server, Misses::Never);
        let mut all: Vec<(&str, Guard)> = Vec::new();
        for (part, count) in PARTS {
            all.extend((0..count).map(|_| (part, start(part, &server))));
        }
        for (part, child) in &mut all {
            eventually(&format!("{part} stands still"), || stands(child));
        }
        // Whoever comes meanwhile is served, through both doors: contact with those who do not answer
        // is given up.
        for round in 0..3 {
            let key = format!("meanwhile-{round}");
            server.ask(&["set", &key, "v"]).expect(0, "stored\n");
            let item = format!("VALUE {key} 0 1\r\nv\r\nEND\r\n");
            server.raw().ask(&format!("get {key}\r\n"), &item);
        }
        // Some go on and bring it to an end, or say why not; the others die where they stand.
        let (mut done, mut gave_up) = (0, 0);
        for (number, (part, mut child)) in all.into_iter().enumerate() {
            if number % 2 == 0 {
                child.kill();
                continue;
            }
            child.signal(Signal::CONT);
            let code = child.wait_end();
            let said = errors(&mut child);
            match code {
                Some(0) => done += 1,
                // In its own words, and not by a panic.
                Some(1) if !said.is_empty() => {
                    assert!(part.starts_with("herd"), "{part}: {said}");
                    eprintln!("{part}: {}", said.trim());
                    gave_up += 1;
                }
                other => panic!("{part} ended with {other:?}: {said}"),
            }
        }
        eprintln!("{io}: {done} came to their end, {gave_up} gave up");
        bystanders.finish();
        before.expect_released(&server);
    }
}
