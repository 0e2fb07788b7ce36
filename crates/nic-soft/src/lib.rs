//! A software RNIC: RDMA verbs over shared memory between the processes of a host.
//!
//! No RDMA hardware, no kernel module, no privileges. An adapter has a GID, and processes that open
//! adapters on the same run directory reach each other by GID and queue pair number as they would
//! over a network. The thread that posts a request carries it out: a WRITE is a copy into the
//! peer's memory, done when the post returns, without the peer's CPU.
//!
//! Processes of one user only. A peer can lie, write what it likes and die at any time without
//! harming anybody but itself (`docs/design/nic-soft.md`); but processes of one user reach each other
//! by other means as well, so tenants are separated elsewhere.
//!
//! # Map
//! | module | what |
//! | --- | --- |
//! | `nic` | the device: [`SoftNic`] and the control path |
//! | `adapter`, `instance`, `events` | an adapter's tables; its number on the GID; its asynchronous events |
//! | `layout`, `segment` | what adapters share, and how it is mapped |
//! | `agent`, `incoming`, `protocol`, `peer`, `header` | first contact |
//! | `departures`, `burial` | noticing who has gone, and letting go of what led there |
//! | `inbox`, `allotment` | the lanes of a peer's inbox, as its owner and as the peer sees them |
//! | `memory`, `region`, `remap`, `remote`, `quiescence` | regions, ours and a peer's; when memory may go |
//! | `qp`, `pair_entry`, `send`, `payload`, `dests`, `link`, `lane` | posting: from a work request to a peer's lines |
//! | `cq`, `todo`, `recv`, `recv_queue`, `credit`, `srq`, `srq_entry` | polling: from lines to completions |
//! | `channel`, `rings`, `arming` | waking a poller that sleeps |
//! | `handover` | letting a poller help a poster, and the agent visit |
//! | `sync` | the atomics and locks that this is built from |
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
//! assert_eq!(cq.poll(&mut completions)?, 1);
//! assert!(completions[0].is_ok() && completions[0].id == 7);
//! let mut bytes = [0; 5];
//! memory.read(0, &mut bytes);
//! assert_eq!(&bytes, b"hello");
//! # Ok(())
//! # }
//! ```

// Loom's tests take up the files that they explore; the rest does not run there.
#![cfg(not(loom))]

mod adapter;
mod agent;
mod allotment;
mod arming;
mod burial;
mod channel;
mod cq;
mod credit;
mod departures;
mod dests;
mod events;
mod handover;
mod header;
mod inbox;
mod incoming;
mod instance;
mod lane;
mod layout;
mod link;
mod memory;
mod nic;
#[cfg(feature = "fuzz")]
pub mod outside;
mod pair_entry;
mod payload;
mod peer;
mod protocol;
mod qp;
mod quiescence;
mod recv;
mod recv_queue;
mod region;
mod remap;
mod remote;
mod rings;
mod segment;
mod send;
mod srq;
mod srq_entry;
mod sync;
mod todo;
mod unfinished;

pub use nic::{SoftNic, SoftOptions, Usage};
