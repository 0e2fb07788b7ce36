//! The Memcache door: the protocol that every memcached client speaks, without I/O, over any engine.
//!
//! Bytes come in and bytes go out; who reads the socket, what holds the items and what time it is
//! come in as values. One [`Connection`] is one client's conversation; an [`Engine`](engine::Engine)
//! is what it asks, and a [`Host`] the program around that.
//!
//! | module | what it is |
//! | --- | --- |
//! | `connection` | [`Connection`]: the state machine from bytes to commands |
//! | `host` | [`Host`]: what the door asks of the program around an engine |
//! | `text` | the text protocol's command lines |
//! | `ahead` | the keys of requests that come next |
//! | `limits`, `pool` | [`Limits`] of one connection; [`Pool`]: memory that all share, [`Account`]: one's part of it |
//! | `reply`, `sequence` | answers as bytes; answers in request order |
//! | `server` | [`serve`], [`serve_accounted`]: one connection over a socket of `rt` |
//!
//! ```
//! use std::task::{Context, Waker};
//! use engine::MapEngine;
//! use memcache::{Connection, Limits, Step};
//!
//! let mut engine = MapEngine::default();
//! let mut client = Connection::new(Limits::default());
//! let mut context = Context::from_waker(Waker::noop());
//! let input = b"set greeting 0 0 5\r\nhello\r\nget greeting\r\nget gree";
//! let progress = client.advance(&mut engine, 1_700_000_000, &mut context, input);
//!
//! assert_eq!(progress.step, Step::Input);
//! assert_eq!(&input[progress.consumed..], b"get gree");
//! assert_eq!(client.output(), b"STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\n");
//! ```
//!
//! # The text protocol
//! `get gets gat gats set add replace append prepend cas delete incr decr touch flush_all stats
//! version verbosity quit`, with `noreply`, answered byte for byte like memcached 1.6 answers, errors
//! included. Where that depends on how the bytes were cut into packets, loses answers, or wraps a
//! number that is out of range, the door does otherwise:
//! - A line without an end in its first 2048 bytes is `CLIENT_ERROR line too long`, and the
//!   connection is closed, whether or not the end arrived meanwhile. Lines of keys may be longer, up
//!   to [`Limits::line_size_max`].
//! - A `get` with a key that is too long does not drop the answers before it.
//! - Flags beyond 32 bits and sizes beyond 31 are refused; expiries are 64-bit numbers.
//! - Keys and values may hold any byte; NUL ends neither.
//! - A blank other than a space does not pass for part of a number.
//! - An answer too large to be sent at once is sent as the client reads it, not gathered first.
//!
//! Not served: the meta commands, `bget`, `stats detail`, and memcached's own administration (`slabs`,
//! `lru`, `lru_crawler`, `watch`, `cache_memlimit`, `shutdown`), which get `ERROR`; the binary
//! protocol, whose clients are disconnected; UDP.
#![forbid(unsafe_code)]

mod ahead;
mod connection;
mod host;
mod limits;
mod pool;
mod reply;
mod sequence;
mod server;
mod text;

/// The version that clients are told: that of the memcached whose protocol this is. Clients parse it,
/// and choose by it what they may ask for.
pub const VERSION: &str = "1.6.18";

pub use connection::{Connection, Progress, Step};
pub use host::{Event, Host};
pub use limits::{Limits, Pressure};
pub use pool::{Account, Pool};
pub use server::{Ended, serve, serve_accounted};
