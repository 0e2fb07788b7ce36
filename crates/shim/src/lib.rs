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
//! | file | what |
//! | --- | --- |
//! | `abi`, `abi/numbers` | libibverbs' structures and numbers |
//! | `settings` | what the environment says |
//! | `around`, `trace` | what is put around the NIC: faults, a trace, checks |
//! | `check` | finds misuse of verbs |
//! | `caller` | where in the program this library was called from |
//! | `theirs` | the part of an object that the program writes to |
//! | `device` | devices, contexts, their attributes and asynchronous events |
//! | `domain` | protection domains, parent domains, thread domains |
//! | `memory` | memory regions |
//! | `present` | whether memory is there |
//! | `born` | memory that is shared from birth: libc's functions that map and allocate pages |
//! | `window` | memory windows |
//! | `cq` | completion channels, completion queues, polling |
//! | `cq_ex` | polling by `ibv_start_poll` and its like |
//! | `srq` | shared receive queues |
//! | `qp` | queue pairs: making, changing, asking |
//! | `attributes` | a queue pair's attributes, there and back |
//! | `post` | posting lists of work requests |
//! | `compose` | posting by `ibv_wr_*` |
//! | `address` | address handles |
//! | `l2` | the Ethernet address behind a GID |
//! | `refused` | what this device does not have |
//! | `events` | events that a program acknowledges |
//! | `faults` | what faults need of the process |
//! | `fork` | a forked child, which must not use what it inherits |
//! | `cm` | the connection manager, for librdmacm |
//! | `places` | the device's place in `/sys` and `/dev` |
//! | `facade` | libibverbs for programs that open it by `dlopen` |
//! | `interpose` | libc's functions that take paths |
//! | `errno` | errors |
//!
//! Every function is safe to call from several threads at once, as libibverbs' are. Posting and polling take one lock each,
//! which nobody waits for as long as a queue has one thread.

#[doc(hidden)]
pub mod abi;
mod address;
mod around;
mod attributes;
mod born;
mod caller;
mod check;
mod cm;
mod compose;
mod cq;
mod cq_ex;
mod device;
mod domain;
mod errno;
mod events;
// In unit tests libc's `dlopen` stays libc's.
#[cfg_attr(test, allow(dead_code))]
mod facade;
mod faults;
mod fork;
mod interpose;
mod l2;
mod memory;
mod places;
mod post;
mod present;
mod qp;
mod refused;
mod settings;
mod srq;
mod theirs;
mod trace;
mod window;
