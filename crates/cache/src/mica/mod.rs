//! MICA's cache for one core: a lossy index over a circular log.
//!
//! A [`Partition`] belongs to one thread, which alone reads and writes it; what
//! other cores want of it reaches them as messages. It takes the memory that it
//! was given and no more: when that is full, the oldest items make way. A GET
//! costs two random memory accesses and a SET one or two, and both can be
//! started ahead of time: see [`Partition::probe`].
//!
//! | module | concern |
//! | --- | --- |
//! | `hash` | [`KeyHash`]: which bits pick the bucket, the tag |
//! | `index` | buckets of one cache line, eight slots of tag and offset |
//! | `entry` | the header of an item in the log |
//! | `log` | the circular log and its tail |
//! | `partition` | lookup, placement and accounting |
//! | `operations`, `command` | what a client may ask; an engine's command as one of them |
//! | `stats` | counters |
//! | `arena`, `tags` | memory and what processors do best; the only unsafe code |
//!
//! The layouts are drawn in `docs/design/mica.md`. The design is that of MICA
//! (NSDI'14, section 4.3, cache mode) as HERD uses it (SIGCOMM'14, section 4.1).
//!
//! ```
//! use cache::mica::{KeyHash, NewValue, Options, Partition};
//!
//! let mut partition = Partition::new(&Options::new(1 << 20))?;
//! let (seed, now_s) = (42, 1_000_000);
//! let hash = KeyHash::new(seed, b"greeting");
//!
//! let stored = partition.set(hash, b"greeting", NewValue::new(b"hello"), now_s)?;
//! let item = partition.get(hash, b"greeting", now_s).expect("just stored");
//! assert_eq!(item.value, b"hello");
//! assert_eq!(stored.cas(), Some(item.cas));
//! assert_eq!(partition.stats().hits, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arena;
mod command;
mod entry;
mod hash;
mod index;
mod log;
mod operations;
mod partition;
mod stats;
mod tags;
#[cfg(test)]
mod tests;

pub use arena::{PageKind, PagePolicy};
pub use command::seconds;
pub use entry::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use hash::KeyHash;
pub(crate) use hash::hash_bits;
pub use operations::{Arith, Item, NewValue, Store, StoreError};
pub use partition::{Census, CreateError, Options, Partition, Probe};
pub use stats::Stats;
