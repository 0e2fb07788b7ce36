//! RDMA in the tests of any crate, without RDMA hardware: verbs programs, as they are, on Vervain's software NIC.
//!
//! It needs an installed `vervain` with its library: in `$PATH`, or named by `$VERVAIN`.
//!
//! | module | what |
//! | --- | --- |
//! | `installed` | where `vervain` is, and how this process itself comes onto the software NIC |
//! | `rdma` | hosts, and programs on them |
//! | `server` | programs that are killed in the end, and waiting for them |
//! | `port` | TCP ports: one that is free, and whether somebody listens |
//!
//! A test that starts programs:
//!
//! ```no_run
//! use vervain_test::{Rdma, Server, free_port};
//!
//! # fn main() -> std::io::Result<()> {
//! let rdma = Rdma::new()?;
//! let port = free_port()?;
//! let program = ["ib_write_lat".to_string(), "-p".into(), port.to_string()];
//! let mut server = Server::start(&mut rdma.command(&program))?;
//! server.until_listening(port)?;
//! let client = rdma.host("10.0.0.2").faults("rc-error@7").command(&program).arg("localhost").output()?;
//! assert!(!client.status.success(), "it should have noticed that its request 7 failed");
//! # Ok(())
//! # }
//! ```
//!
//! A test binary that calls verbs itself starts again on the software NIC with one line at its top, [`on_software_nic!`]; one with
//! a `main` of its own (`harness = false`) calls [`reexec`] first.

mod installed;
mod port;
mod rdma;
mod server;

pub use installed::{Vervain, is_on_software_nic, reexec};
pub use port::{free_port, is_listening};
pub use rdma::Rdma;
pub use server::Server;
