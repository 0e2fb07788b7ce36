//! HERD: requests by WRITE into the server's memory, answers by datagram.
//!
//! A client WRITEs a request over UC into a slot that only it uses, and the core that owns the key
//! finds it there by looking; the answer goes back by SEND over UD. The server's NIC keeps few
//! connected queue pairs busy only in the inbound direction, where they are cheap (HERD,
//! SIGCOMM'14). The layouts, and what differs from the paper, are in `docs/design/herd.md`.
//!
//! There are no threads, sockets or clocks here: who drives a [`Server`] or [`Client`] polls it
//! and passes the time in.
//!
//! | module | what |
//! | --- | --- |
//! | [`wire`] | requests, answers and the handshake as bytes |
//! | [`slots`] | where a request lies |
//! | [`server`] | the engine of a core; the acceptor, which connects clients off the cores |
//! | [`client`] | windows of requests under way, repeats, large values, connecting again |
//! | [`local`] | a server's door inside its process |
//! | `memory` | registered memory at hand; the only unsafe code |

use std::hash::{BuildHasher, RandomState};

pub mod client;
pub mod local;
mod memory;
pub mod server;
pub mod slots;
pub mod wire;

pub use client::{BlockingClient, Client, ClientConfig, Outcome, SubmitError};
pub use server::{Acceptor, AcceptorUsage, Armed, Attachment, Server, ServerConfig};
pub use wire::answer::Status;
pub use wire::handshake::ServerInfo;
pub use wire::request::{Command, StoreMode};

/// A number that nobody can guess, not even from others that were drawn: std has it from the system.
fn secret() -> u64 {
    RandomState::new().hash_one(())
}
