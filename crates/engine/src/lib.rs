//! What a door asks and an engine does: one vocabulary for every protocol and every place to keep
//! items in.
//!
//! A *door* speaks a protocol with clients (Memcache over sockets, HERD over RDMA). An *engine*
//! keeps items (MICA's table in memory, a store on flash, a map for tests). Between them stand a
//! [`Command`], an [`Answer`], and the trait [`Engine`]. An answer that is not at hand, because the
//! key belongs to another core or the value is on a disk, is promised with a ticket and fetched
//! later: so no command has to be answered at once, statistics included.
//!
//! What a command means for the item under its key is written once, in [`item::decide`]. An engine
//! that has a shorter way (MICA changes values in place) is tested equal to it.
//!
//! | module | what it is |
//! | --- | --- |
//! | `command` | [`Command`], [`Mode`], [`Direction`] |
//! | `answer` | [`Answer`], [`Failure`], [`StatsPage`] |
//! | `segments`, `owned` | [`Segments`]: a value in pieces; [`OwnedAnswer`]: a copy |
//! | [`item`] | what a command does to an item |
//! | [`number`], `expiry` | values that count; when an item ceases to be |
//! | `engine` | [`Engine`]: asking, tickets, looking ahead |
//! | `budget` | [`Budget`]: memory that an engine holds for askers |
//! | `map`, `late` | for tests: [`MapEngine`] over a hash map, [`LateEngine`] that answers late |
//!
//! ```
//! use engine::{Answer, Ask, Command, Engine, Expiry, MapEngine, Mode};
//!
//! let mut engine = MapEngine::default();
//! let now_s = 1_700_000_000;
//! let set = Command::Store {
//!     mode: Mode::Set,
//!     key: b"greeting",
//!     value: b"hello"[..].into(),
//!     flags: 7,
//!     expiry: Expiry::NEVER,
//! };
//! let stored = engine.ask(now_s, set, |answer| matches!(answer, Answer::Stored { .. }));
//! assert_eq!(stored, Ok(true));
//!
//! let get = Command::Get { key: b"greeting", touch: None };
//! let value = engine.ask(now_s, get, |answer| match answer {
//!     Answer::Item { value, .. } => Some(value.to_vec()),
//!     _ => None,
//! });
//! assert_eq!(value, Ok(Some(b"hello".to_vec())));
//! ```
#![forbid(unsafe_code)]

mod answer;
mod budget;
mod command;
mod engine;
mod expiry;
pub mod item;
mod late;
mod map;
pub mod number;
mod owned;
mod segments;

pub use answer::{Answer, Failure, StatsPage};
pub use budget::{Budget, Charge, NoBudget};
pub use command::{Command, Direction, Mode};
pub use engine::{Ask, Asker, Engine, Limits};
pub use expiry::{Expiry, RELATIVE_EXPIRY_MAX_S};
pub use late::{Late, LateEngine};
pub use map::MapEngine;
pub use owned::OwnedAnswer;
pub use segments::Segments;

/// Longest key, in bytes.
pub const KEY_SIZE_MAX: usize = 250;
