//! How long a request of 16/32 bytes takes on either side, over the software NIC.
//!
//! In one thread the two sides take turns and each is timed on its own; with two threads
//! the rate is measured end to end.
//!
//! `cargo run --release -p cache --example herd_speed -- [rounds] [window] [keys] [threads] [put percent]`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cache::herd::local::LocalDoor;
use cache::herd::{
    Acceptor, Client, ClientConfig, Command, Outcome, Server, ServerConfig, StoreMode,
};
use cache::mica::{NewValue, Options, Partition};
use nic_soft::{SoftNic, SoftOptions};
use verbs::typed::Context;

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Submits until the window is full.
fn fill<D: cache::herd::client::Dial>(
    client: &mut Client<D>,
    random: &mut fastrand::Rng,
    keys: u64,
    put_percent: u8,
) -> usize {
    let mut count = 0;
    loop {
        let key = key(random.u64(..keys));
        let command = if random.u8(..100) < put_percent {
            Command::Store {
                mode: StoreMode::Set,
                key: &key,
                value: &[7; 32],
                flags: 0,
                expiry_s: 0,
            }
        } else {
            Command::Get { key: &key }
        };
        match client.submit(&command, false, 0) {
            Ok(()) => count += 1,
            Err(_) => return count,
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(200_000), |text| text.parse())?;
    let window: u32 = arguments.next().map_or(Ok(16), |text| text.parse())?;
    let keys: u64 = arguments.next().map_or(Ok(1 << 20), |text| text.parse())?;
    let threads: u32 = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let put_percent: u8 = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let run_dir = tempfile::tempdir()?;
    let options = SoftOptions::new(run_dir.path());
    let server_pd = Context::new(SoftNic::open(&options)?).alloc_pd()?;
    let client_pd = Context::new(SoftNic::open(&options)?).alloc_pd()?;

    let config = ServerConfig {
        window_max: window,
        ..ServerConfig::default()
    };
    let (mut server, port) = Server::new(&server_pd, 0, &config)?;
    let door = LocalDoor::new(Acceptor::new(server_pd, &config, vec![port])?);
    let mut partition = Partition::new(&Options::new(256 << 20))?;
    for number in 0..keys {
        let key = key(number);
        let hash = partition.hash(&key);
        let stored = partition.set(hash, &key, NewValue::new(&[7; 32]), 0)?;
        assert!(stored.cas().is_some());
    }
    let client_config = ClientConfig {
        window,
        retry_ns: 100_000_000,
        ..ClientConfig::default()
    };
    let mut client = Client::connect(client_pd, client_config, door.clone(), 0)?;
    door.serve(&mut server, 0);

    let mut random = fastrand::Rng::with_seed(1);
    let start = Instant::now();
    let now_ns = move || start.elapsed().as_nanos() as u64;
    let (mut submitting, mut serving, mut taking) =
        (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let (mut sent, mut hits) = (0, 0);
    for _ in 0..rounds {
        let time_ns = now_ns();
        let began = Instant::now();
        sent += fill(&mut client, &mut random, keys, put_percent);
        client.flush(time_ns);
        let flushed = Instant::now();
        server.poll(&mut partition, time_ns, 0, 64);
        let served = Instant::now();
        client.poll(time_ns, &mut |_, outcome| {
            hits +=
                usize::from(matches!(outcome, Outcome::Value { value, .. } if value.len() == 32));
        });
        submitting += flushed - began;
        serving += served - flushed;
        taking += served.elapsed();
    }
    let each = |time: Duration| time.as_nanos() as f64 / sent as f64;
    println!(
        "one thread, window {window}: {sent} requests, {hits} hits; client submit+post {:.0} ns, \
         server {:.0} ns, client poll {:.0} ns",
        each(submitting),
        each(serving),
        each(taking),
    );
    if threads < 2 {
        return Ok(());
    }
    let mut idle = 0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(100) {
        for _ in 0..100 {
            server.poll(&mut partition, 1, 0, 64);
        }
        idle += 100;
    }
    println!(
        "an empty server poll: {:.0} ns",
        began.elapsed().as_nanos() as f64 / f64::from(idle)
    );

    let stop = Arc::new(AtomicBool::new(false));
    let server_thread = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if server.poll(&mut partition, now_ns(), 0, 64) == 0 {
                    // The two threads may have to share a core.
                    std::thread::yield_now();
                }
            }
            server.stats()
        })
    };
    let began = Instant::now();
    let mut answered = 0usize;
    while began.elapsed() < Duration::from_secs(2) {
        fill(&mut client, &mut random, keys, put_percent);
        let taken = client.poll(now_ns(), &mut |_, outcome| {
            answered += usize::from(matches!(outcome, Outcome::Value { .. }));
        });
        if taken == 0 {
            std::thread::yield_now();
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let stats = server_thread.join().expect("the server did not panic");
    println!("two threads: {:.2} Mop/s", answered as f64 / seconds / 1e6);
    println!("server {stats:?}\nclient {:?}", client.stats());
    Ok(())
}
