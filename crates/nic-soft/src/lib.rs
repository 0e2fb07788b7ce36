//! A software RNIC: RDMA verbs over shared memory between the processes of a host.
//!
//! No RDMA hardware, no kernel module, no privileges. An adapter has a GID, and processes that open
//! adapters on the same run directory reach each other by GID and queue pair number as they would
//! over a network. The thread that posts a request carries it out: a WRITE is a copy into the
//! peer's memory, done when the post returns, without the peer's CPU. Only the first request to a
//! region waits until the peer's process has handed the memory out, and whoever posts it does not.
//!
//! Processes of one user only. A peer can lie, write what it likes and die at any time without
//! harming anybody but itself (`docs/design/nic-soft.md`); but processes of one user reach each other
//! by other means as well, so tenants are separated elsewhere.
//!
//! # Map
//! A folder is a layer and knows those below it (`docs/design/nic-soft.md` draws them).
//!
//! | layer | what |
//! | --- | --- |
//! | `device` | [`SoftNic`], the control path, the NIC's own thread |
//! | `send` | send queues: what was posted, what waits, how often it is tried again |
//! | `recv` | the responder: from what arrives in lanes to RECVs and completions |
//! | `queue` | queue pairs, completion queues, shared receive queues, channels |
//! | `path` | the way to a peer's queue pair and to its memory |
//! | `memory` | regions of this process and their keys |
//! | `contact` | the other processes of the host, and what they ask each other |
//! | `shared` | what processes share: layouts, lanes, entries, credits, wake-ups |
//! | `sync` | what threads share: atomics, hand-over of a value, quiescence |
//!
//! # Example
//! ```
//! use nic_soft::{SoftNic, SoftOptions};
//! use verbs::typed::{ConnectOptions, Context, QpOptions, QueuePair, Rc, Wr};
//! use verbs::{Access, Wc};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let run_dir = tempfile::tempdir()?;
//! let options = SoftOptions::new(run_dir.path());
//! let context = Context::new(SoftNic::open(&options)?);
//! let pd = context.alloc_pd()?;
//! let mut cq = context.create_cq(16)?;
//! let mut a: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq))?;
//! let mut b: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq))?;
//! let (to_a, to_b) = (a.endpoint()?, b.endpoint()?);
//! a.connect(&to_b, &ConnectOptions::default())?;
//! b.connect(&to_a, &ConnectOptions::default())?;
//!
//! let memory = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! a.post_send(&[Wr::write_inline(b"hello", memory.remote(0)).id(7)])?;
//! let mut completions = [Wc::default(); 4];
//! // The peer is asked for a region when it is first used.
//! while cq.poll(&mut completions)? == 0 {}
//! assert!(completions[0].is_ok() && completions[0].id == 7);
//! let mut bytes = [0; 5];
//! memory.read(0, &mut bytes);
//! assert_eq!(&bytes, b"hello");
//! # Ok(())
//! # }
//! ```

// Loom's tests take up the files that they explore; the rest does not run there.
#![cfg(not(loom))]

mod contact;
mod device;
mod memory;
#[cfg(feature = "fuzz")]
pub mod outside;
mod path;
mod queue;
mod recv;
mod send;
mod shared;
mod sync;
#[cfg(test)]
mod testing;

pub use contact::private::make_private;
pub use device::host::{HostAddress, host_addresses};
pub use device::nic::{Counters, SoftNic, SoftOptions, Usage};
pub use shared::cause::Cause;
