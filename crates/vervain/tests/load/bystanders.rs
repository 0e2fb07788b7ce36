//! Clients over all doors that ask, and check every answer, while a test does its worst elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use crate::harness::{Raw, Server, Shell};

/// Keys of each bystander.
const KEYS: usize = 16;
/// Between two requests: they are to notice, not to load.
const PAUSE: Duration = Duration::from_millis(2);

/// Whether an item may be missing: a cache may forget, it may not lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misses {
    Never,
    Allowed,
}

/// What they have seen.
#[derive(Default, Debug)]
struct Seen {
    checked: u64,
    misses: u64,
}

/// Two clients of the socket door and one of HERD.
pub(crate) struct Bystanders {
    stop: Arc<AtomicBool>,
    threads: Vec<(&'static str, JoinHandle<Seen>)>,
}

/// The value that a key has after so many writes. Its length changes, up to what needs several pieces
/// over the NIC.
fn value(key: &str, version: u64) -> String {
    let len = (version * 7919 + key.len() as u64 * 131) % 9000;
    let unit = format!("{key}={version};");
    let mut value = unit.repeat(len as usize / unit.len() + 1);
    value.truncate(len as usize + 1);
    value
}

/// A client that knows what its items are.
trait Client {
    fn set(&mut self, key: &str, value: &str);
    fn get(&mut self, key: &str) -> Option<String>;
}

impl Client for Raw {
    fn set(&mut self, key: &str, value: &str) {
        let request = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        self.ask(&request, "STORED\r\n");
    }

    fn get(&mut self, key: &str) -> Option<String> {
        self.send(format!("get {key}\r\n").as_bytes());
        let item = self.try_item().expect("an answer");
        item.map(|(value, _)| String::from_utf8(value).expect("text"))
    }
}

impl Client for Shell {
    fn set(&mut self, key: &str, value: &str) {
        let answer = self.ask(&format!("set {key} {value}"));
        assert_eq!(answer["stored"], json!(true), "{answer}");
    }

    fn get(&mut self, key: &str) -> Option<String> {
        let answer = self.ask(&format!("get {key}"));
        assert!(answer.get("error").is_none(), "{answer}");
        answer["value"].as_str().map(str::to_string)
    }
}

impl Bystanders {
    /// Connects them, and has them store their items, before anything bad happens.
    pub(crate) fn start(server: &Server, misses: Misses) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients: Vec<(&'static str, Box<dyn Client + Send>)> =
            vec![("herd", Box::new(server.shell()))];
        for name in ["socket-a", "socket-b"] {
            clients.push((name, Box::new(server.raw())));
        }
        let threads = clients.into_iter().map(|(name, client)| {
            let (begun, ready) = std::sync::mpsc::channel();
            let stop = Arc::clone(&stop);
            let work = move || stand_by(name, client, misses, &stop, &begun);
            let thread = std::thread::Builder::new()
                .name(name.into())
                .spawn(work)
                .expect("a thread");
            // A thread that fails drops its end; the join tells.
            let _: Result<(), _> = ready.recv();
            (name, thread)
        });
        Bystanders {
            threads: threads.collect(),
            stop,
        }
    }

    /// Ends them. Each has gone on checking, until after this was called, and was never told a wrong
    /// value.
    pub(crate) fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for (name, thread) in self.threads {
            let seen = thread.join().expect("a bystander was served wrongly");
            eprintln!("{name}: {seen:?}");
        }
    }
}

fn stand_by(
    name: &str,
    mut client: Box<dyn Client + Send>,
    misses: Misses,
    stop: &AtomicBool,
    begun: &std::sync::mpsc::Sender<()>,
) -> Seen {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("{name}-{key}")).collect();
    let mut versions = [0u64; KEYS];
    for key in &keys {
        client.set(key, &value(key, 0));
    }
    // The test may have failed.
    let _: Result<(), _> = begun.send(());
    let mut random = fastrand::Rng::with_seed(7);
    let mut seen = Seen::default();
    loop {
        let ends = stop.load(Ordering::Relaxed);
        let at = random.usize(..KEYS);
        let key = &keys[at];
        if random.u8(..4) == 0 {
            versions[at] += 1;
            client.set(key, &value(key, versions[at]));
        }
        match client.get(key) {
            Some(got) => assert!(got == value(key, versions[at]), "{name}: {key} is {got:?}"),
            None => {
                assert!(misses == Misses::Allowed, "{name}: {key} is gone");
                seen.misses += 1;
            }
        }
        seen.checked += 1;
        if ends {
            return seen;
        }
        std::thread::sleep(PAUSE);
    }
}
