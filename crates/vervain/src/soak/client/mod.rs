//! A client process: does what it is told on standard input, and tells what became of it.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | the process |
//! | `herd.rs` | over the software NIC |
//! | `socket.rs` | over TCP and Unix sockets |
//!
//! It knows nothing of what is right. So it may be killed at any moment, and whoever asked it still
//! knows all.

mod herd;
mod socket;

use std::time::Duration;

use anyhow::Context as _;

use super::wire::{Outcome, Report, Request, receive, send};
use crate::cli::SoakClient;
use herd::HerdWay;
use socket::SocketWay;

/// Pause after an attempt to connect that failed.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// A way to the server.
trait Way {
    /// Sends all requests, and waits for all answers as long as the deadlines let it.
    fn carry_out(&mut self, requests: &[Request]) -> Vec<Outcome>;

    /// Connections made so far.
    fn connects(&self) -> u64;
}

/// Runs until the end of standard input.
pub(crate) fn run(flags: &SoakClient) -> anyhow::Result<bool> {
    let mut way: Box<dyn Way> = if flags.client.socket {
        Box::new(SocketWay::new(&flags.client))
    } else {
        Box::new(HerdWay::new(&flags.client)?)
    };
    let input = std::io::stdin();
    while let Some(requests) = receive(input.lock()).context("reading what to do")? {
        let requests: Vec<Request> = requests;
        let outcomes = way.carry_out(&requests);
        if !outcomes.is_empty() && outcomes.iter().all(|one| *one == Outcome::NotSent) {
            std::thread::sleep(CONNECT_PAUSE);
        }
        let told = Report {
            connects: way.connects(),
            outcomes,
        };
        send(bench::print::output(), &told).context("telling what became of it")?;
    }
    Ok(true)
}
