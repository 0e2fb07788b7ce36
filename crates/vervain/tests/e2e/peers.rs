//! memcached's clients and HERD's on one server, while processes are killed.
//!
//! Each value is made of its key and a counter, and is compared whole. What was acknowledged must
//! be read, or something later; a miss is allowed after the server was killed, until the key is
//! written again; a wrong value never is.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::foreign::{Python, leave_out};
use crate::harness::{Guard, Place, Raw, Server, Shell, eventually, fixed_port};

/// The value that a key has at a count: small, binary or large.
fn value_of(key: &str, count: u64) -> Vec<u8> {
    let mut value = format!("{key}|{count}|").into_bytes();
    let mut random = fastrand::Rng::with_seed(count);
    match key.split('-').next() {
        Some("binary") => value.extend((0..=255u8).cycle().take(random.usize(256..2000))),
        Some("large") => {
            let filling = b'a' + (count % 26) as u8;
            value.resize(value.len() + random.usize(100_000..300_000), filling);
        }
        _ => value.resize(value.len() + random.usize(0..200), b'.'),
    }
    value
}

fn flags_of(count: u64) -> u32 {
    (count as u32).wrapping_mul(0x9e37_79b9)
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// What was acknowledged last.
    acked: u64,
    /// What was sent last.
    sent: u64,
    may_miss: bool,
}

/// What the server may hold.
#[derive(Default)]
struct Ledger(BTreeMap<String, Entry>);

impl Ledger {
    fn sends(&mut self, key: &str) -> u64 {
        let entry = self.0.entry(key.to_string()).or_insert(Entry {
            may_miss: true,
            ..Entry::default()
        });
        entry.sent += 1;
        entry.sent
    }

    fn acked(&mut self, key: &str, count: u64) {
        let entry = self.0.get_mut(key).expect("a key that was sent");
        *entry = Entry {
            acked: count,
            may_miss: false,
            ..*entry
        };
    }

    /// The server was killed, and with it what it held.
    fn forget(&mut self) {
        for entry in self.0.values_mut() {
            entry.may_miss = true;
        }
    }

    /// Checks what somebody has read.
    #[track_caller]
    fn check(&self, who: &str, key: &str, value: Option<&[u8]>) -> Option<u64> {
        let entry = self.0[key];
        let Some(value) = value else {
            assert!(entry.may_miss, "{who} misses {key}, which was stored");
            return None;
        };
        let shown = String::from_utf8_lossy(&value[..value.len().min(80)]).into_owned();
        let mut parts = shown.split('|');
        let (of, count) = (
            parts.next(),
            parts.next().and_then(|count| count.parse().ok()),
        );
        let (Some(of), Some(count)) = (of, count) else {
            panic!("{who} reads for {key} what nobody wrote: {shown:?}");
        };
        assert_eq!(of, key, "{who} reads another key's value");
        assert!(
            value == value_of(key, count),
            "{who} reads for {key} a damaged value: {shown:?}"
        );
        assert!(
            (entry.acked..=entry.sent).contains(&count),
            "{who} reads {key} at {count}, not between {} and {}",
            entry.acked,
            entry.sent
        );
        Some(count)
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16);
    digits
        .chunks(2)
        .map(|pair| byte(pair).expect("hexadecimal digits"))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A client of the Memcache protocol that connects again when it has lost its server.
trait Memcached {
    fn name(&self) -> &'static str;
    fn set(&mut self, key: &str, value: &[u8], flags: u32);
    fn get(&mut self, keys: &[&str]) -> Vec<Option<(Vec<u8>, u32)>>;
    /// Starts a client that sets these over and over, has it set so many, and kills it while it
    /// goes on.
    fn set_and_be_killed(&mut self, values: &[(String, Vec<u8>)], count: usize);
}

struct PythonClient {
    interpreter: String,
    address: SocketAddr,
    python: Python,
}

impl Memcached for PythonClient {
    fn name(&self) -> &'static str {
        "pymemcache"
    }

    fn set(&mut self, key: &str, value: &[u8], flags: u32) {
        let request = json!({ "op": "set", "key": key, "hex": hex(value), "flags": flags });
        assert_eq!(self.python.ask(&request), json!({ "stored": true }));
    }

    fn get(&mut self, keys: &[&str]) -> Vec<Option<(Vec<u8>, u32)>> {
        let Value::Array(all) = self.python.ask(&json!({ "op": "get_many", "keys": keys })) else {
            panic!("no answer for each key");
        };
        let item = |answer: &Value| {
            let flags = answer["flags"].as_u64()? as u32;
            Some((from_hex(answer["hex"].as_str()?), flags))
        };
        all.iter().map(item).collect()
    }

    fn set_and_be_killed(&mut self, values: &[(String, Vec<u8>)], count: usize) {
        let values: Vec<_> = values
            .iter()
            .map(|(key, value)| (key, hex(value)))
            .collect();
        let mut victim = Python::start(&self.interpreter, self.address).process;
        victim.tell(&json!({ "op": "stream", "values": values }).to_string());
        for stored in 1..=count {
            assert_eq!(victim.answer(), json!({ "stored": stored }));
        }
        victim.child.kill();
    }
}

/// The same from this process, where there is no Python.
struct RawClient {
    address: SocketAddr,
    raw: Raw,
}

impl RawClient {
    fn again<T>(&mut self, mut once: impl FnMut(&mut Raw) -> std::io::Result<T>) -> T {
        let mut result = None;
        eventually("a server answers", || match once(&mut self.raw) {
            Ok(value) => {
                result = Some(value);
                true
            }
            Err(_) => {
                if let Ok(raw) = Raw::try_connect(self.address) {
                    self.raw = raw;
                }
                false
            }
        });
        result.expect("a result")
    }
}

fn set_request(key: &str, value: &[u8], flags: u32) -> Vec<u8> {
    let head = format!("set {key} {flags} 0 {}\r\n", value.len());
    [head.as_bytes(), value, b"\r\n"].concat()
}

impl Memcached for RawClient {
    fn name(&self) -> &'static str {
        "a raw client"
    }

    fn set(&mut self, key: &str, value: &[u8], flags: u32) {
        let request = set_request(key, value, flags);
        let answer = self.again(|raw| {
            raw.try_send(&request)?;
            raw.try_line()
        });
        assert_eq!(answer, "STORED");
    }

    fn get(&mut self, keys: &[&str]) -> Vec<Option<(Vec<u8>, u32)>> {
        let get = |key: &&str| {
            let request = format!("get {key}\r\n");
            self.again(|raw| {
                raw.try_send(request.as_bytes())?;
                raw.try_item()
            })
        };
        keys.iter().map(get).collect()
    }

    fn set_and_be_killed(&mut self, values: &[(String, Vec<u8>)], count: usize) {
        let mut victim = Raw::connect(self.address);
        for (key, value) in values.iter().cycle().take(count) {
            victim.send(&set_request(key, value, 0));
            assert_eq!(victim.line(), "STORED");
        }
        for (key, value) in values.iter().cycle().skip(count).take(5) {
            victim.send(&set_request(key, value, 0));
        }
        // In the middle of a value, and without reading the answers.
        let (key, value) = &values[(count + 5) % values.len()];
        let request = set_request(key, value, 0);
        victim.send(&request[..request.len() - value.len() / 2 - 2]);
    }
}

/// The item that a shell's answer holds.
fn shell_item(answer: &Value) -> Option<Vec<u8>> {
    match (&answer["value"], &answer["value_hex"]) {
        (Value::String(text), _) => Some(text.clone().into_bytes()),
        (_, Value::String(digits)) => Some(from_hex(digits)),
        _ => {
            assert_eq!(answer["found"], json!(false), "{answer}");
            None
        }
    }
}

/// One server, its clients of both kinds, and what they know.
struct Shop<'a> {
    place: &'a Place,
    port: u16,
    server: Server,
    shell: Shell,
    memcached: Box<dyn Memcached>,
    ledger: Ledger,
}

const FLAGS: [&str; 4] = ["--cores", "2", "--gid", "shop"];

impl Shop<'_> {
    fn keys() -> Vec<String> {
        let kinds = [("small", 12), ("binary", 6), ("large", 4), ("ключ", 2)];
        let names = |(kind, count)| (0..count).map(move |number| format!("{kind}-{number}"));
        kinds.into_iter().flat_map(names).collect()
    }

    fn shell_set(&mut self, key: &str, value: &[u8]) {
        let text = std::str::from_utf8(value).expect("a shell takes text");
        // A store that was under way when the server died may have been carried out or not.
        for _ in 0..20 {
            let answer = self.shell.ask(&format!("set {key} {text}"));
            if answer["stored"] == json!(true) {
                return;
            }
            let error = answer["error"].as_str();
            assert!(
                error.is_some_and(|error| error.contains("connection was lost")),
                "{answer}"
            );
        }
        panic!("the shell does not find its server again");
    }

    /// Everybody reads all that the ledger knows.
    fn read_all(&mut self) {
        let keys: Vec<&str> = self.ledger.0.keys().map(String::as_str).collect();
        let items = self.memcached.get(&keys);
        for (key, item) in keys.iter().zip(items) {
            let value = item.as_ref().map(|item| &*item.0);
            self.ledger.check(self.memcached.name(), key, value);
            let value = shell_item(&self.shell.ask(&format!("get {key}")));
            self.ledger.check("HERD", key, value.as_deref());
        }
    }

    /// Both kinds write, in turns, and read what the other wrote.
    fn exchange(&mut self, rounds: usize) {
        for round in 0..rounds {
            for (number, key) in Self::keys().iter().enumerate() {
                let count = self.ledger.sends(key);
                let value = value_of(key, count);
                // A line of a shell is text.
                if key.starts_with("binary") || (round + number) % 2 == 0 {
                    self.memcached.set(key, &value, flags_of(count));
                    self.ledger.acked(key, count);
                    let read = self.shell.ask(&format!("get {key}"));
                    let got = self.ledger.check("HERD", key, shell_item(&read).as_deref());
                    assert_eq!(
                        (got, &read["flags"]),
                        (Some(count), &json!(flags_of(count)))
                    );
                } else {
                    self.shell_set(key, &value);
                    self.ledger.acked(key, count);
                    let (value, flags) = self.memcached.get(&[key]).remove(0).expect("an item");
                    let got = self.ledger.check(self.memcached.name(), key, Some(&value));
                    assert_eq!((got, flags), (Some(count), 0));
                }
            }
            self.read_all();
        }
    }

    /// Kills a memcached client in the middle of its sets.
    fn kill_a_memcached_client(&mut self) {
        let keys: Vec<String> = (0..4).map(|key| format!("large-stream-{key}")).collect();
        let keys = keys
            .into_iter()
            .chain((0..4).map(|key| format!("small-stream-{key}")));
        let values: Vec<_> = keys
            .map(|key| {
                let value = value_of(&key, self.ledger.sends(&key));
                (key, value)
            })
            .collect();
        self.memcached.set_and_be_killed(&values, values.len() + 3);
        for (key, _) in &values {
            let count = self.ledger.0[key].sent;
            self.ledger.acked(key, count);
        }
        self.read_all();
    }

    /// Kills a HERD client with requests under way.
    fn kill_a_herd_client(&mut self) {
        let mut victim = self.server.shell();
        let keys: Vec<String> = (0..40).map(|key| format!("small-victim-{key}")).collect();
        let mut told = Vec::new();
        let mut lines = Vec::new();
        for key in keys.iter().cycle().take(400) {
            let count = self.ledger.sends(key);
            let value = String::from_utf8(value_of(key, count)).expect("text");
            lines.push(format!("set {key} {value}"));
            told.push((key, count));
        }
        victim.tell(&lines.join("\n"));
        for (key, count) in &told[..150] {
            let answer = victim.answer();
            assert_eq!(
                (&answer["key"], &answer["stored"]),
                (&json!(key), &json!(true))
            );
            self.ledger.acked(key, *count);
        }
        victim.child.kill();
        self.read_all();
    }

    /// Kills the server while the shell has requests under way, and starts it again.
    fn kill_the_server(&mut self) {
        let lines = vec!["incr under-way"; 300];
        self.shell.ask("set under-way 0");
        self.shell.tell(&lines.join("\n"));
        assert_eq!(self.shell.answer()["number"], json!(1));
        self.server.child.kill();
        self.ledger.forget();
        // At once: nothing of the killed one is in the way.
        let command = self.place.serve_on(self.port, &FLAGS);
        self.server = Server::start(self.place, command);
        let mut last = 1;
        for _ in 1..lines.len() {
            let answer = self.shell.answer();
            match (answer["number"].as_u64(), answer["error"].as_str()) {
                (Some(number), _) => {
                    assert_eq!(
                        number,
                        last + 1,
                        "the killed server's numbers come in order"
                    );
                    last = number;
                }
                // After the restart there is no such item.
                (None, None) => assert_eq!(answer["number"], Value::Null, "{answer}"),
                (None, Some(error)) => {
                    assert!(error.contains("connection was lost"), "{error}");
                }
            }
        }
        self.read_all();
    }
}

fn survive_kills(connect: impl Fn(SocketAddr) -> Box<dyn Memcached>) {
    let place = Place::new();
    let port = fixed_port();
    let server = Server::start(&place, place.serve_on(port, &FLAGS));
    let mut shop = Shop {
        place: &place,
        port,
        shell: server.shell(),
        memcached: connect(server.address),
        server,
        ledger: Ledger::default(),
    };
    shop.exchange(2);
    for _ in 0..2 {
        shop.kill_the_server();
        shop.exchange(1);
    }
    // From here on whoever goes must leave nothing behind.
    shop.kill_a_herd_client();
    let clients_are_one = |server: &Server| {
        eventually("the server sees its client go", || {
            server.count("herd_clients") == 1
        });
    };
    clients_are_one(&shop.server);
    let files = place.files();
    // What led to the killed one's NIC is closed a little later than its connection.
    eventually("nothing of those who went is held", || {
        let (herd, nic) = (shop.server.stats("herd"), shop.server.stats("nic"));
        let held = [
            &herd["clients_held"],
            &herd["handles_resting"],
            &nic["peers"],
        ];
        held.map(String::as_str) == ["1", "0", "1"]
    });
    let (mut least, mut same) = (usize::MAX, 0);
    eventually("the server's descriptors settle", || {
        let now = shop.server.descriptors();
        same = if now == least { same + 1 } else { 0 };
        least = now;
        same > 20
    });
    for _ in 0..3 {
        shop.kill_a_memcached_client();
        shop.kill_a_herd_client();
        shop.exchange(1);
    }
    clients_are_one(&shop.server);
    eventually("the server's connections are the living ones'", || {
        // The shell's control stream, the other client, and the one that asks.
        shop.server.count("curr_connections") == 3
    });
    assert_eq!(place.files(), files, "killed clients leave no more files");
    eventually("the server's descriptors are as before", || {
        shop.server.descriptors() <= least
    });
    shop.kill_the_server();
    shop.exchange(1);
    assert_eq!(place.files(), files, "a killed server leaves no more files");
    assert_eq!(shop.shell.finish(), Some(1), "some answers were no");
}

#[test]
fn pymemcache_and_herd_survive_kills() {
    let Some(interpreter) = Python::interpreter() else {
        return leave_out("there is no Python with pymemcache");
    };
    survive_kills(|address| {
        Box::new(PythonClient {
            python: Python::start(&interpreter, address),
            interpreter: interpreter.clone(),
            address,
        })
    });
}

#[test]
fn raw_clients_and_herd_survive_kills() {
    survive_kills(|address| {
        Box::new(RawClient {
            raw: Raw::connect(address),
            address,
        })
    });
}

#[test]
fn a_killed_server_leaves_nothing_in_the_way() {
    let place = Place::new();
    let port = fixed_port();
    let mut files = None;
    for _ in 0..5 {
        let mut server = Server::start(&place, place.serve_on(port, &FLAGS));
        server.ask(&["set", "k", "v"]).expect(0, "stored\n");
        let guard: &mut Guard = &mut server.child;
        guard.kill();
        let now = place.files();
        assert_eq!(*files.get_or_insert(now.clone()), now);
    }
}
