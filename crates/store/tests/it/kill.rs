//! A real process, killed again and again while it works.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use block::{Engine, FileDevice};
use store::{Options, Recovery, Store};

const PATH: &str = "VERVAIN_STORE_KILL_PATH";
const SEED: &str = "VERVAIN_STORE_KILL_SEED";
const KEYS: u64 = 40;

fn open(path: &Path) -> Store {
    let file = match path.exists() {
        true => block::Options::existing(),
        false => block::Options::create(4 << 20),
    };
    // The next process may come before the kernel has let go of the killed one's lock.
    for _ in 0..12_000 {
        match FileDevice::open(path, &file.clone().with_engine(Engine::Blocking)) {
            Ok(device) => {
                return Store::on(Arc::new(device), &Options::default()).expect("a store");
            }
            Err(block::BlockError::InUse { .. }) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the killed process still has the file");
}

/// The process that is killed: four threads change keys of their own, and tell before and after.
/// Does nothing when the tests are run as usual.
#[test]
fn victim() {
    let (Ok(path), Ok(seed)) = (std::env::var(PATH), std::env::var(SEED)) else {
        return;
    };
    let seed: u64 = seed.parse().expect("a seed");
    let store = open(Path::new(&path));
    let tell = |line: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes())
            .expect("the other end listens");
        out.flush().expect("the other end listens");
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, tell) = (&store, &tell);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed << 8 | thread);
                loop {
                    let key = random.u64(..KEYS / 4) * 4 + thread;
                    let number = random.u32(1..);
                    let deletes = random.u32(..5) == 0;
                    let number = if deletes { 0 } else { number };
                    tell(format!("begin {key} {number}\n"));
                    let name = key.to_le_bytes();
                    if deletes {
                        store.delete(&name).expect("deleted");
                    } else {
                        let mut value = number.to_le_bytes().to_vec();
                        value.resize(4 + random.usize(..3000), number as u8);
                        store.put(&name, &value).expect("put");
                    }
                    tell(format!("end {key} {number}\n"));
                }
            });
        }
    });
}

#[test]
fn a_killed_process_loses_nothing_that_it_has_acknowledged() {
    if std::env::var(PATH).is_ok() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    // What each key may have; 0 is nothing.
    let mut may: HashMap<u64, Vec<u32>> = (0..KEYS).map(|key| (key, vec![0])).collect();
    let mut acknowledged = 0;
    for round in 0..12_u64 {
        let program = std::env::current_exe().expect("this program");
        let mut victim = Command::new(program)
            .args([
                "kill::victim",
                "--exact",
                "--nocapture",
                "--test-threads",
                "1",
            ])
            .env(PATH, &path)
            .env(SEED, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let out = BufReader::new(victim.stdout.take().expect("its output"));
        let mut acknowledged_now = 0;
        let mut is_killed = false;
        for line in out.split(b'\n') {
            let line = line.expect("read");
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<&str> = line.split(' ').collect();
            // The test harness says things too, and the last line may be cut.
            let [what @ ("begin" | "end"), key, number] = words[..] else {
                continue;
            };
            let (Ok(key), Ok(number)) = (key.parse::<u64>(), number.parse::<u32>()) else {
                continue;
            };
            let may = may.entry(key).or_default();
            if what == "begin" {
                may.push(number);
            } else {
                *may = vec![number];
                acknowledged_now += 1;
            }
            if acknowledged_now >= 150 + round * 20 && !is_killed {
                victim.kill().expect("killed");
                is_killed = true;
            }
        }
        victim.wait().expect("ended");
        acknowledged += acknowledged_now;
        let store = open(&path);
        assert!(matches!(store.recovery(), Recovery::Log { .. }));
        for (&key, may) in &mut may {
            let value = store.get(&key.to_le_bytes()).expect("got");
            let number = value.as_ref().map_or(0, |value| {
                u32::from_le_bytes(value[..4].try_into().expect("four bytes"))
            });
            assert!(
                may.contains(&number),
                "round {round}, key {key}: {number} of {may:?}"
            );
            if let Some(value) = &value {
                assert!(value[4..].iter().all(|&byte| byte == number as u8));
            }
            *may = vec![number];
        }
    }
    assert!(acknowledged > 2000, "{acknowledged}");
}
