//! Verbs programs that nobody here wrote, on the software NIC: how tests and `cargo lab` start them.
//!
//! | module | what |
//! | --- | --- |
//! | [`host`] | [`Host`]: programs with `libvervain_verbs.so` before their own libraries, alone or as a server and its client |
//! | [`running`] | [`Running`]: a program that runs, and what it says |
//! | [`matrix`] | the programs that have to work, with their options and what is looked at |
//! | [`listening`] | whether a server listens, by TCP or by the connection manager |
//!
//! A machine without these programs leaves them out:
//!
//! ```
//! use programs::{Host, find};
//!
//! if find("true").is_some() {
//!     let said = Host::without_library().command("true", &[]).output();
//!     assert!(said.expect("timeout, of coreutils").status.success());
//! }
//! ```

#![forbid(unsafe_code)]

pub mod host;
pub mod listening;
pub mod matrix;
pub mod running;

pub use host::{Host, alone, find, library};
pub use listening::{free_port, is_listening};
pub use running::{Running, Said};
