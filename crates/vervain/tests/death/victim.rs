//! What victims do. A victim is this program, started anew with a part to play.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cache::herd::client::{Address, BlockingError, Door, Pace};
use cache::herd::{BlockingClient, ClientConfig, Status, StoreMode};
use nic_soft::{SoftNic, SoftOptions};
use verbs::typed::Context;

use crate::bare;
use crate::harness::LIMIT;
use crate::tracer::mark;

/// Names the part of a process that was started to be a victim.
const PART: &str = "VERVAIN_DEATH_PART";
/// The run directory.
const RUN_DIR: &str = "VERVAIN_DEATH_RUN_DIR";
/// The server's door.
const DOOR: &str = "VERVAIN_DEATH_DOOR";

/// A HERD client: connects, asks for everything there is, and closes.
pub(crate) fn client(run_dir: &Path, door: SocketAddr) -> Command {
    let mut command = start("client", run_dir);
    command.env(DOOR, door.to_string());
    command
}

/// A process with queue pairs of every kind, and somebody at its standard input and output.
pub(crate) fn bare(run_dir: &Path) -> Command {
    start("bare", run_dir)
}

fn start(part: &str, run_dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        // In one thread, the first one, so that steps are where they were.
        .args([
            "--exact",
            "victim::plays_its_part",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(PART, part)
        .env(RUN_DIR, run_dir);
    command
}

/// What a victim does: nothing, when it is not one.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let run_dir = PathBuf::from(std::env::var_os(RUN_DIR).expect("a run directory"));
    let played = match &*part {
        "client" => {
            let door = std::env::var(DOOR).expect("a door");
            play_client(&run_dir, door.parse().expect("an address"))
        }
        "bare" => bare::play(&run_dir),
        other => panic!("there is no part `{other}`"),
    };
    std::process::exit(match played {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    });
}

/// Spins, so that there is no system call between two marks, but not for ever.
pub(crate) struct Spinning {
    started: Instant,
    waits: u32,
}

impl Spinning {
    pub(crate) fn new() -> Self {
        Spinning {
            started: Instant::now(),
            waits: 0,
        }
    }
}

impl Pace for Spinning {
    fn now_ns(&mut self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn wait(&mut self) {
        self.waits += 1;
        if self.waits.is_multiple_of(1 << 16) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::hint::spin_loop();
    }
}

pub(crate) type Dialer = Box<dyn FnMut() -> std::io::Result<Door> + Send>;

/// How clients of these tests are set: nothing but a server that is gone for long is given up.
pub(crate) fn config() -> ClientConfig {
    ClientConfig {
        deadline_ns: LIMIT.as_nanos() as u64,
        ..ClientConfig::default()
    }
}

pub(crate) fn dialer(door: SocketAddr) -> Dialer {
    Box::new(move || Address::Tcp(door).dial(LIMIT))
}

/// What was read is what was stored.
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), String> {
    if got == wanted {
        Ok(())
    } else {
        Err(format!("{what}: {got:?} instead of {wanted:?}"))
    }
}

fn play_client(run_dir: &Path, door: SocketAddr) -> Result<(), String> {
    let say = |what: &'static str| move |error: BlockingError| format!("{what}: {error}");
    let nic = SoftNic::open(&SoftOptions::new(run_dir).contact_timeout(LIMIT))
        .map_err(|error| error.to_string())?;
    let pd = Context::new(nic)
        .alloc_pd()
        .map_err(|error| error.to_string())?;
    let pace = Spinning::new();
    // The server lives, so that nothing is lost. While each instruction is a step, and others have the
    // CPUs, an operation takes seconds.
    let config = ClientConfig {
        deadline_ns: (10 * LIMIT).as_nanos() as u64,
        lost_ns: LIMIT.as_nanos() as u64 / 2,
        ..config()
    };
    let mut client = BlockingClient::connect(pd, config, dialer(door), pace)
        .map_err(|error| format!("connecting: {error}"))?;
    // A key of each kind to each core, and what the next one overwrites in place.
    for key in [&b"victim-a"[..], b"victim-b", b"victim-c", b"victim-d"] {
        for value in [&b"one, as long"[..], b"two, as long"] {
            mark(true);
            let stored = client.set(key, value);
            mark(false);
            stored.map_err(say("a small set"))?;
            mark(true);
            let got = client.get(key);
            mark(false);
            let got = got.map_err(say("a get"))?.map(|item| item.value);
            expect("a value", got.as_deref(), Some(value))?;
        }
    }
    // The server sleeps by now, and is woken.
    std::thread::sleep(Duration::from_millis(3));
    mark(true);
    let item = client.get(b"victim-a");
    mark(false);
    let token = item.map_err(say("a get"))?.ok_or("an item is missing")?.cas;
    mark(true);
    let swapped = client.store(StoreMode::Cas(token), b"victim-a", b"three", 7, 0);
    let refused = client.store(StoreMode::Cas(token), b"victim-a", b"four", 7, 0);
    mark(false);
    swapped.map_err(say("a swap"))?;
    if !matches!(refused, Err(BlockingError::Refused(Status::Exists))) {
        return Err(format!("a swap with an old token: {refused:?}"));
    }
    let number = client.set(b"victim-n", b"41");
    number.map_err(say("setting a number"))?;
    mark(true);
    let number = client.incr(b"victim-n", 1);
    mark(false);
    expect("a number", number.map_err(say("an incr"))?, 42)?;
    // In several pieces, both ways.
    let large: Vec<u8> = (0..9_000u32).map(|at| (at * 7) as u8).collect();
    mark(true);
    let stored = client.set(b"victim-l", &large);
    mark(false);
    stored.map_err(say("a large set"))?;
    mark(true);
    let got = client.get(b"victim-l");
    mark(false);
    let got = got.map_err(say("a large get"))?.map(|item| item.value);
    expect("a large value", got.as_deref() == Some(&large[..]), true)?;
    let keys = [&b"victim-b"[..], b"victim-c", b"nothing", b"victim-d"];
    mark(true);
    let many = client.get_many(&keys);
    mark(false);
    let found: Vec<bool> = many
        .map_err(say("many gets"))?
        .iter()
        .map(Option::is_some)
        .collect();
    expect("many items", found, vec![true, true, false, true])?;
    mark(true);
    let deleted = client.delete(b"victim-d");
    mark(false);
    deleted.map_err(say("a delete"))?;
    Ok(())
}
