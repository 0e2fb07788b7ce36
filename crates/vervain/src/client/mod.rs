//! One-shot commands: over the software NIC, or over a socket.

mod meeting;
mod shell;
mod socket;

use std::io::{Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use cache::herd::client::{BlockingError, ConnectError, Door, Pace};
use cache::herd::{BlockingClient, ClientConfig, Status, StoreMode};
use serde_json::json;

pub(crate) use shell::shell;
pub(crate) use socket::SocketClient;

use self::meeting::meeting;
use crate::cli::{
    ClientFlags, DelFlags, GetFlags, IncrFlags, SetFlags, StatsFlags, TouchFlags, door, open_nic,
};

/// Whether there was such an item.
pub(crate) type Found = bool;

/// An item, copied out.
pub(crate) struct Item {
    pub(crate) value: Vec<u8>,
    flags: u32,
    cas: u64,
}

/// What to store, and how.
pub(crate) struct Storing<'a> {
    mode: StoreMode,
    /// The Memcache protocol's word for the mode.
    word: &'static str,
    key: &'a str,
    value: &'a [u8],
    flags: u32,
    /// Unix seconds; 0 is never.
    expiry_s: u32,
}

/// The machine's clock, and a wait that leaves the CPU to others after a while.
pub(crate) struct Waiting {
    started: Instant,
    waits: u32,
}

impl Waiting {
    /// Time counts from now.
    pub(crate) fn new() -> Self {
        Waiting {
            started: Instant::now(),
            waits: 0,
        }
    }
}

impl Pace for Waiting {
    fn now_ns(&mut self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn wait(&mut self) {
        self.waits = self.waits.wrapping_add(1);
        if self.waits < 1000 {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

type NicClient = BlockingClient<Box<dyn FnMut() -> std::io::Result<Door>>, Waiting>;

/// A connection to a server.
enum Connection {
    Nic(Box<NicClient>),
    Socket(SocketClient),
}

impl Connection {
    fn open(flags: &ClientFlags) -> anyhow::Result<Self> {
        if flags.socket {
            return Ok(Connection::Socket(SocketClient::connect(flags)?));
        }
        let context = open_nic(&flags.nic)?.context;
        let pd = context
            .alloc_pd()
            .context("the NIC refuses a protection domain")?;
        let usual = ClientConfig::default();
        let deadline_ns = flags.timeout.as_nanos() as u64;
        let config = ClientConfig {
            deadline_ns,
            // Where answers may take long, a server that is silent for long is not lost.
            lost_ns: (deadline_ns / 2).max(usual.lost_ns),
            ..usual
        };
        let (door, timeout) = (door(flags), flags.timeout);
        let address = door.clone();
        let dialer: Box<dyn FnMut() -> std::io::Result<Door>> =
            Box::new(move || address.dial(timeout));
        let pace = Waiting::new();
        match BlockingClient::connect(pd, config, dialer, pace) {
            Ok(client) => Ok(Connection::Nic(Box::new(client))),
            Err(ConnectError::Io(error)) => Err(error)
                .with_context(|| format!("nobody answers on {door}; is `vervain serve` running?")),
            Err(ConnectError::Handshake(error)) => Err(error).with_context(|| {
                format!("{door} does not offer RDMA; if it is another memcached, use --socket")
            }),
            Err(error) => Err(error).context("cannot connect over the software NIC"),
        }
    }

    fn get(&mut self, key: &str) -> anyhow::Result<Option<Item>> {
        match self {
            Connection::Nic(client) => Ok(client.get(key.as_bytes())?.map(|item| Item {
                value: item.value,
                flags: item.flags,
                cas: item.cas,
            })),
            Connection::Socket(client) => client.get(key),
        }
    }

    fn store(&mut self, storing: &Storing<'_>) -> anyhow::Result<bool> {
        match self {
            Connection::Nic(client) => {
                let Storing {
                    mode,
                    key,
                    value,
                    flags,
                    expiry_s,
                    ..
                } = storing;
                match client.store(*mode, key.as_bytes(), value, *flags, *expiry_s) {
                    Ok(_) => Ok(true),
                    Err(BlockingError::Refused(Status::NotStored)) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
            Connection::Socket(client) => client.store(storing),
        }
    }

    fn delete(&mut self, key: &str) -> anyhow::Result<Found> {
        match self {
            Connection::Nic(client) => found(client.delete(key.as_bytes())),
            Connection::Socket(client) => client.delete(key),
        }
    }

    fn add(&mut self, key: &str, delta: i64) -> anyhow::Result<Option<u64>> {
        match self {
            Connection::Nic(client) => {
                let amount = delta.unsigned_abs();
                let done = if delta < 0 {
                    client.decr(key.as_bytes(), amount)
                } else {
                    client.incr(key.as_bytes(), amount)
                };
                match done {
                    Ok(number) => Ok(Some(number)),
                    Err(BlockingError::Refused(Status::NotFound)) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
            Connection::Socket(client) => client.add(key, delta),
        }
    }

    fn touch(&mut self, key: &str, expiry_s: u32) -> anyhow::Result<Found> {
        match self {
            Connection::Nic(client) => found(client.touch(key.as_bytes(), expiry_s)),
            Connection::Socket(client) => client.touch(key, expiry_s),
        }
    }
}

fn found(result: Result<(), BlockingError>) -> anyhow::Result<Found> {
    match result {
        Ok(()) => Ok(true),
        Err(BlockingError::Refused(Status::NotFound)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The moment that lies a duration ahead, in unix seconds; 0, which is never, stays.
fn expiry_s(ahead: Duration) -> u32 {
    if ahead.is_zero() {
        return 0;
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let at = (now + ahead).as_nanos().div_ceil(1_000_000_000);
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Bytes as JSON: text where they are text, else hexadecimal digits.
fn value_json(value: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(value) {
        Ok(text) => ("value", text.to_string()),
        Err(_) => (
            "value_hex",
            value.iter().map(|byte| format!("{byte:02x}")).collect(),
        ),
    }
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = bench::print::output();
    writeln!(out, "{text}")?;
    Ok(())
}

/// Says on standard error what is missing; standard output is for values.
fn complain(text: &str) {
    // Nothing to do about a stderr that is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What a connection is asked to do.
enum Ask<'a> {
    Get(&'a str),
    Store(Storing<'a>),
    Del(&'a str),
    Incr(&'a str, i64),
    Touch(&'a str, Duration),
}

/// Does it, prints the answer, and says whether the answer was yes.
fn answer(connection: &mut Connection, ask: &Ask<'_>, as_json: bool) -> anyhow::Result<bool> {
    match ask {
        Ask::Get(key) => {
            let item = connection.get(key)?;
            match (&item, as_json) {
                (Some(item), false) => {
                    let mut out = bench::print::output();
                    out.write_all(&item.value)?;
                    out.write_all(b"\n")?;
                }
                (None, false) => complain(&format!("{key}: not found")),
                (Some(item), true) => {
                    let (name, value) = value_json(&item.value);
                    let (flags, cas) = (item.flags, item.cas);
                    say(
                        &json!({ "key": key, "found": true, name: value, "flags": flags, "cas": cas })
                            .to_string(),
                    )?;
                }
                (None, true) => say(&json!({ "key": key, "found": false }).to_string())?,
            }
            Ok(item.is_some())
        }
        Ask::Store(storing) => {
            let stored = connection.store(storing)?;
            if as_json {
                say(&json!({ "key": storing.key, "stored": stored }).to_string())?;
            } else if stored {
                say("stored")?;
            } else if storing.mode == StoreMode::Add {
                complain("not stored: there is such an item");
            } else {
                complain("not stored: there is no such item");
            }
            Ok(stored)
        }
        Ask::Del(key) => {
            let deleted = connection.delete(key)?;
            tell_found(key, "deleted", deleted, as_json)
        }
        Ask::Incr(key, delta) => {
            let number = connection.add(key, *delta)?;
            match (number, as_json) {
                (_, true) => say(&json!({ "key": key, "number": number }).to_string())?,
                (Some(number), false) => say(&number.to_string())?,
                (None, false) => complain(&format!("{key}: not found")),
            }
            Ok(number.is_some())
        }
        Ask::Touch(key, ahead) => {
            let touched = connection.touch(key, expiry_s(*ahead))?;
            tell_found(key, "touched", touched, as_json)
        }
    }
}

fn tell_found(key: &str, done: &str, found: Found, as_json: bool) -> anyhow::Result<bool> {
    if as_json {
        say(&json!({ "key": key, done: found }).to_string())?;
    } else if found {
        say(done)?;
    } else {
        complain(&format!("{key}: not found"));
    }
    Ok(found)
}

/// `vervain set`.
pub(crate) fn set(flags: &SetFlags, as_json: bool) -> anyhow::Result<bool> {
    let mut input = Vec::new();
    let value = if flags.value == "-" {
        std::io::stdin()
            .read_to_end(&mut input)
            .context("reading the value")?;
        &input
    } else {
        flags.value.as_bytes()
    };
    let (mode, word) = match (flags.add, flags.replace) {
        (true, _) => (StoreMode::Add, "add"),
        (_, true) => (StoreMode::Replace, "replace"),
        _ => (StoreMode::Set, "set"),
    };
    let storing = Storing {
        mode,
        word,
        key: &flags.key,
        value,
        flags: flags.flags,
        expiry_s: flags.expire.map_or(0, expiry_soon_s),
    };
    meeting(&flags.client, || {
        let mut connection = Connection::open(&flags.client)?;
        answer(&mut connection, &Ask::Store(storing), as_json)
    })
}

/// As [`expiry_s`], but no time at all is at once and not never.
fn expiry_soon_s(ahead: Duration) -> u32 {
    expiry_s(ahead.max(Duration::from_nanos(1)))
}

/// `vervain get`.
pub(crate) fn get(flags: &GetFlags, as_json: bool) -> anyhow::Result<bool> {
    meeting(&flags.client, || {
        let mut connection = Connection::open(&flags.client)?;
        let mut all = true;
        for key in &flags.keys {
            all &= answer(&mut connection, &Ask::Get(key), as_json)?;
        }
        Ok(all)
    })
}

/// `vervain del`.
pub(crate) fn del(flags: &DelFlags, as_json: bool) -> anyhow::Result<bool> {
    meeting(&flags.client, || {
        let mut connection = Connection::open(&flags.client)?;
        let mut all = true;
        for key in &flags.keys {
            all &= answer(&mut connection, &Ask::Del(key), as_json)?;
        }
        Ok(all)
    })
}

/// `vervain incr`.
pub(crate) fn incr(flags: &IncrFlags, as_json: bool) -> anyhow::Result<bool> {
    let ask = Ask::Incr(&flags.key, flags.delta);
    meeting(&flags.client, || {
        let mut connection = Connection::open(&flags.client)?;
        answer(&mut connection, &ask, as_json)
    })
}

/// `vervain touch`.
pub(crate) fn touch(flags: &TouchFlags, as_json: bool) -> anyhow::Result<bool> {
    let ask = Ask::Touch(&flags.key, flags.expire);
    meeting(&flags.client, || {
        let mut connection = Connection::open(&flags.client)?;
        answer(&mut connection, &ask, as_json)
    })
}

/// `vervain stats`: over the socket whichever way items go, for counters are text.
pub(crate) fn stats(flags: &StatsFlags, as_json: bool) -> anyhow::Result<bool> {
    if flags.section.as_deref() == Some("reset") {
        return Err(socket::no_section("reset"));
    }
    let all = SocketClient::connect(&flags.client)?.stats(flags.section.as_deref())?;
    if as_json {
        let pairs = all.into_iter().map(|(name, value)| {
            let value = match value.parse::<u64>() {
                Ok(number) => json!(number),
                Err(_) => json!(value),
            };
            (name, value)
        });
        let object: serde_json::Map<_, _> = pairs.collect();
        say(&serde_json::Value::Object(object).to_string())?;
    } else {
        let widest = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &all {
            say(&format!("{name:widest$}  {value}"))?;
        }
    }
    Ok(true)
}
