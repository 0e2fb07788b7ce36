//! A software RNIC: RDMA verbs over shared memory between the processes of a host.
//!
//! No RDMA hardware, no kernel module, no privileges. An adapter has a GID, and processes that open
//! adapters on the same run directory reach each other by GID and queue pair number as they would
//! over a network. The thread that posts a request carries it out: a WRITE is a copy into the
//! peer's memory, done when the post returns, without the peer's CPU.
//!
//! Processes of one user only: whoever can reach the run directory is trusted as far as crashing
//! nobody but himself, and no further. Tenants are separated by other means.
//!
//! # Map
//! | module | what |
//! | --- | --- |
//! | `nic` | the device: [`SoftNic`] and the control path |
//! | `adapter`, `instance` | an adapter's tables; its number on the GID |
//! | `layout`, `segment` | what adapters share, and how it is mapped |
//! | `agent`, `protocol`, `peer` | first contact, and noticing who has gone |
//! | `memory`, `remap`, `remote`, `quiescence` | regions, ours and a peer's; when memory may go |
//! | `qp`, `send`, `payload`, `dests`, `link`, `lane` | posting: from a work request to a peer's lines |
//! | `cq`, `recv`, `recv_queue`, `srq`, `channel` | polling: from lines to completions |
//! | `handover` | letting a poller help a poster |
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

mod adapter;
mod agent;
mod channel;
mod cq;
mod dests;
mod handover;
mod instance;
mod lane;
mod layout;
mod link;
mod memory;
mod nic;
mod payload;
mod peer;
mod protocol;
mod qp;
mod quiescence;
mod recv;
mod recv_queue;
mod remap;
mod remote;
mod segment;
mod send;
mod srq;

pub use nic::{SoftNic, SoftOptions, Usage};
