//! Clients that nobody wants: what they send is not for the cache, and what they get is not checked.
//! A server may close their connections whenever it likes.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use cache::herd::client::{Address, Door};

use super::faults::Fault;

/// How long a hostile client waits for anything.
const PATIENCE: Duration = Duration::from_millis(300);
/// Connections of a flood.
const FLOOD: usize = 200;
/// Connections that are left half open.
const HALF_OPEN: usize = 24;

/// Does one thing. What goes wrong is its own fault.
pub(super) fn attack(fault: Fault, door: &Address, memory: usize, mut random: fastrand::Rng) {
    let random = &mut random;
    let done = match fault {
        Fault::Garbage => garbage(door, random),
        Fault::HalfOpen => half_open(door, random),
        Fault::Slow => slow(door, random),
        Fault::Flood => flood(door, random),
        Fault::Huge => huge(door, random),
        Fault::Pressure => pressure(door, memory, random),
        _ => Ok(()),
    };
    if let Err(error) = done {
        tracing::debug!(fault = fault.name(), %error, "a hostile client was sent away");
    }
}

fn bytes(random: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    let mut all = vec![0; len];
    random.fill(&mut all);
    all
}

/// Reads for a while, and throws away what comes.
fn drain(stream: &mut Door, time: Duration) {
    let until = Instant::now() + time;
    let mut piece = [0; 16 << 10];
    // Nothing more, or the end: both are enough.
    while matches!(stream.read(&mut piece), Ok(1..)) && Instant::now() < until {}
}

fn garbage(door: &Address, random: &mut fastrand::Rng) -> io::Result<()> {
    for _ in 0..random.usize(2..8) {
        let mut stream = door.dial(PATIENCE)?;
        let len = random.usize(1..64 << 10);
        let noise = bytes(random, len);
        let hex: String = noise.iter().map(|byte| format!("{byte:02x}")).collect();
        let message = match random.u8(..7) {
            0 => noise,
            1 => [&b"vervain "[..], hex.as_bytes(), b"\r\n"].concat(),
            // A handshake's head, and nonsense behind it.
            2 => format!(
                "vervain 5652564e0100{}00{}\r\n",
                random.u8(1..6),
                &hex[..hex.len() / 2]
            )
            .into_bytes(),
            3 => [&b"\x80\x01"[..], &noise].concat(),
            4 => [&b"set garbage 0 0 70000\r\n"[..], &noise].concat(),
            5 => [&b"get "[..], &vec![b'g'; len], b"\r\n"].concat(),
            _ => [
                &b"cas garbage -1 x 18446744073709551616 \0\r\nincr garbage\r\n"[..],
                &noise,
            ]
            .concat(),
        };
        // A server that has heard enough closes.
        drop(stream.write_all(&message));
        drain(&mut stream, PATIENCE);
    }
    Ok(())
}

fn half_open(door: &Address, random: &mut fastrand::Rng) -> io::Result<()> {
    let mut all = Vec::new();
    for _ in 0..HALF_OPEN {
        let mut stream = door.dial(PATIENCE)?;
        let start: &[u8] = match random.u8(..4) {
            0 => b"",
            1 => b"get half-o",
            2 => b"set half-open 0 0 1000\r\nabc",
            _ => b"vervain 5652564e",
        };
        stream.write_all(start)?;
        all.push(stream);
    }
    std::thread::sleep(Duration::from_millis(random.u64(200..2000)));
    for stream in &all {
        if random.bool() {
            // Closed without a farewell.
            rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
        }
    }
    Ok(())
}

/// Asks for more than it reads, and writes a byte at a time.
fn slow(door: &Address, random: &mut fastrand::Rng) -> io::Result<()> {
    let until = Instant::now() + Duration::from_millis(random.u64(500..2500));
    let mut reader = door.dial(PATIENCE)?;
    let value = bytes(random, 300 << 10);
    reader.write_all(format!("set slow 0 0 {}\r\n", value.len()).as_bytes())?;
    reader.write_all(&value)?;
    reader.write_all(b"\r\n")?;
    // The server stops taking these when its answers are not read.
    drop(reader.write_all(&b"get slow\r\n".repeat(500)));
    let mut writer = door.dial(PATIENCE)?;
    for byte in b"set slow-writer 0 0 100000\r\n".iter().cycle() {
        if Instant::now() > until {
            break;
        }
        writer.write_all(&[*byte])?;
        std::thread::sleep(Duration::from_millis(10));
        let mut piece = [0; 4096];
        // As much as is there.
        reader.read_exact(&mut piece)?;
    }
    Ok(())
}

fn flood(door: &Address, random: &mut fastrand::Rng) -> io::Result<()> {
    let mut all = Vec::new();
    for _ in 0..FLOOD {
        let mut stream = door.dial(PATIENCE)?;
        if random.bool() {
            stream.write_all(b"version\r\nget flood\r\n")?;
        }
        all.push(stream);
    }
    std::thread::sleep(Duration::from_millis(random.u64(..300)));
    Ok(())
}

fn huge(door: &Address, random: &mut fastrand::Rng) -> io::Result<()> {
    let mut stream = door.dial(PATIENCE)?;
    let body = bytes(random, 2 << 20);
    let message = match random.u8(..4) {
        0 => [
            format!("set huge 0 0 {}\r\n", body.len()).as_bytes(),
            &body,
            b"\r\nget huge\r\n",
        ]
        .concat(),
        1 => [&b"set huge 0 0 2147483647\r\n"[..], &body].concat(),
        2 => [&b"get"[..], &b" huge".repeat(100_000), b"\r\n"].concat(),
        _ => vec![b'h'; 3 << 20],
    };
    drop(stream.write_all(&message));
    drain(&mut stream, PATIENCE);
    Ok(())
}

/// Stores as much as the cache holds, so that its log goes round.
fn pressure(door: &Address, memory: usize, random: &mut fastrand::Rng) -> io::Result<()> {
    let mut stream = door.dial(Duration::from_secs(5))?;
    let value = bytes(random, 100 << 10);
    let mut stored = 0;
    while stored < memory {
        let len = match random.u8(..8) {
            0 => random.usize(..value.len()),
            _ => random.usize(..2000),
        };
        let number = random.u32(..1_000_000);
        let head = format!("set pressure-{number} 0 0 {len} noreply\r\n");
        stream.write_all(&[head.as_bytes(), &value[..len], b"\r\n"].concat())?;
        stored += len + 64;
    }
    stream.write_all(b"version\r\n")?;
    // All of it has been taken when this is answered.
    stream.read_exact(&mut [0; 8])
}
