//! What a cache may answer, from the protocol's text: what an item is and what commands do to it, written
//! once for all who check a cache. It never calls the product's own decisions.
//!
//! | module | what |
//! | --- | --- |
//! | [`history`] | what clients asked and were told |
//! | [`item`] | what commands do to an item, and what may be forgotten |
//! | `search` | [`check`] and [`Search`]: whether some order of commands explains all answers about an item |
//! | `exact` | [`Exact`]: one client's items, each answer as it comes |
//! | [`partition`] | commands of a history, carried out on a partition of MICA |
//!
//! ```
//! use checker::Exact;
//! use checker::history::{Action, Answer};
//! use cache::herd::StoreMode;
//!
//! let mut exact = Exact::new(1000, 1 << 20);
//! let set = Action::Store { mode: StoreMode::Set, value: b"v".into(), flags: 7, expiry_s: 0 };
//! exact.told(b"key", &set, &Answer::Done { cas: Some(1) }).expect("stored");
//! let other = Answer::Value { value: b"w".into(), flags: 7, cas: None };
//! assert!(exact.told(b"key", &Action::Get, &other).is_err());
//! ```

#![forbid(unsafe_code)]

mod exact;
pub mod history;
pub mod item;
pub mod partition;
mod search;
#[cfg(test)]
mod tests;

pub use exact::Exact;
pub use search::{Lie, Search, Unexplained, check};
