//! A key-value cache at RDMA speed: MICA's partitions behind HERD's requests.
//!
//! | module | what |
//! | --- | --- |
//! | [`mica`] | a core's share of the cache: a lossy index over a circular log |
//! | [`herd`] | servers and clients: requests by WRITE, answers by datagram |
//! | [`route`] | which core has a key |
//!
//! A request as it lies in a server's memory; a small one is a single cache line:
//! ```
//! use cache::herd::wire::request::Request;
//! use cache::herd::{Command, StoreMode};
//!
//! let set = Request::Command(Command::Store {
//!     mode: StoreMode::Set,
//!     key: b"sixteen bytes ..",
//!     value: &[7; 32],
//!     flags: 0,
//!     expiry_s: 0,
//! });
//! let mut slot = [0; 1024];
//! assert_eq!(set.emit(1, false, &mut slot), Some(64));
//! assert_eq!(Request::parse(&slot), Ok(set));
//! ```

mod bytes;
pub mod herd;
pub mod mica;
pub mod route;
