//! What HERD reaches on this machine: a server core and client threads, each pinned to a CPU of
//! its own, over the software NIC.
//!
//! `cargo run --release -p bench --example cache_speed -- [window] [get_permille] [seconds]
//! [items] [value_len] [distribution] [verify]`

#![forbid(unsafe_code)]

#[path = "../tests/it/herd.rs"]
mod herd;

use std::time::Duration;

use bench::cache::{CacheRun, Length, Pinning};
use bench::machine::allowed_cpus;
use bench::print::write_table;
use bench::workload::Mix;

use self::herd::HerdServer;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_string());
    let window = next("32").parse()?;
    let mix = Mix::new(next("950").parse()?)?;
    let length = Length::Time(Duration::from_secs(next("5").parse()?));
    let items = next("1048576").parse()?;
    let value_len = next("32").parse()?;
    let distribution = next("uniform").parse()?;
    let verify = next("false").parse()?;
    let cpus = allowed_cpus();
    let server = if cpus.len() > 1 {
        HerdServer::start_on(&cpus[..1], 1, 512 << 20)
    } else {
        HerdServer::start(1, 512 << 20)
    };
    let run = CacheRun {
        mix,
        distribution,
        items,
        value_len,
        window,
        length,
        pinning: Pinning::Last,
        verify,
        ..CacheRun::new(server.target())
    };
    let report = run.run(&mut |_, _| {})?;
    write_table(&report, &mut std::io::stdout().lock())?;
    println!("\nserver {:?}", server.end());
    Ok(())
}
