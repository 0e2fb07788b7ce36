//! libibverbs over the software NIC, for programs that know nothing of it.
//!
//! Loaded before a program's own libraries (`LD_PRELOAD`), this library answers in libibverbs' place: there is one device,
//! `vervain0`, whose peers are the other programs of this user on this host that run so. `vervain run` starts a program that way.
//! The real libibverbs may be there as well, for libraries that need its private symbols; none of its devices is seen.
//!
//! An object that a program holds begins with libibverbs' structure, which the program reaches into, and goes on with ours:
//!
//! ```text
//! program's pointer -> | struct ibv_qp ... | kind | QpCtl | send half, locked | receive half, locked |
//! ```
//!
//! | room | what |
//! | --- | --- |
//! | `abi` | libibverbs' structures, numbers and errors, and the part of an object that the program writes to |
//! | `process` | what this library needs of the process: the environment, the next library's functions, who called |
//! | `context` | what all objects of a context share: events that are acknowledged, forks |
//! | `check` | finds misuse of verbs |
//! | `around` | what is put around the NIC: faults, a trace, checks |
//! | `cm` | the connection manager, for librdmacm |
//! | `memory` | domains, memory regions and windows, memory that is shared from birth |
//! | `queues` | completion queues, queue pairs, shared receive queues; posting and polling |
//! | `device` | devices, contexts, their attributes and asynchronous events; what this device does not have |
//! | `discovery` | how programs find the device: `/sys`, `/dev`, `dlopen` |
//!
//! Every function is safe to call from several threads at once, as libibverbs' are. Posting and polling take one lock each,
//! which nobody waits for as long as a queue has one thread.

#[doc(hidden)]
pub mod abi;
mod around;
mod check;
mod cm;
mod context;
mod device;
mod discovery;
mod memory;
mod process;
mod queues;
