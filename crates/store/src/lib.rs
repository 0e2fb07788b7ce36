//! A key-value store on flash that gives the device's full speed: uDepot (Kourtis et al., FAST'19).
//!
//! Records go to a log on the device, the index stays in memory: 8 bytes an entry. A GET is one
//! read of the device, and nothing is cached. A PUT that has returned survives a crash.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Store`] | opening, closing, and use by threads that block |
//! | [`Session`] | what a core holds of a store: operations as futures |
//! | [`StoreEngine`] | a store behind the doors of a server |
//! | [`Options`] | how a store is opened |
//! | [`examine`] | looking into a store that is not open, and mending it |
//! | [`mod@format`] | what stands on the device |
//! | [`hash`] | what a key hashes to, and which bits of it are used for what |
//! | [`index`] | from a hash to the places on the device that may hold the key |
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("my.store");
//! let store = store::Store::open(path)?;
//! store.put(b"key", b"value")?;
//! assert_eq!(store.get(b"key")?.as_deref(), Some(&b"value"[..]));
//! # store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

#[cfg(not(loom))]
mod admission;
#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
mod change;
#[cfg(not(loom))]
mod commands;
#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod effort;
#[cfg(not(loom))]
mod epochs;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod examine;
#[cfg(not(loom))]
mod fill;
#[cfg(not(loom))]
mod flights;
#[cfg(not(loom))]
pub mod format;
pub mod hash;
pub mod index;
#[cfg(not(loom))]
mod iterate;
#[cfg(not(loom))]
mod maintain;
#[cfg(not(loom))]
mod mover;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod read;
#[cfg(not(loom))]
mod recovery;
#[cfg(not(loom))]
mod scan;
#[cfg(not(loom))]
mod segments;
#[cfg(not(loom))]
mod session;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod slot;
#[cfg(not(loom))]
mod store;
#[cfg(not(loom))]
mod stream;
#[cfg(not(loom))]
mod superblock;
#[cfg(not(loom))]
mod unsettled;
#[cfg(not(loom))]
mod writer;
#[cfg(not(loom))]
mod writes;
#[cfg(not(loom))]
mod written;

#[cfg(not(loom))]
pub use change::{Attributes, Put, Swap, Update};
#[cfg(not(loom))]
pub use commands::{StoreEngine, Ticket};
#[cfg(not(loom))]
pub use counters::Stats;
#[cfg(not(loom))]
pub use error::StoreError;
#[cfg(not(loom))]
pub use iterate::Visited;
#[cfg(not(loom))]
pub use options::{Admission, Durability, Now, Options};
#[cfg(not(loom))]
pub use recovery::{OnProgress, Progress, Recovery};
#[cfg(not(loom))]
pub use segments::State;
#[cfg(not(loom))]
pub use session::{Session, Value};
#[cfg(not(loom))]
pub use store::{Maintenance, Store};
