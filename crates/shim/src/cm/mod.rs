//! The connection manager: what the kernel does behind `/dev/infiniband/rdma_cm`, in the process.
//!
//! librdmacm stays as it is: rsocket reaches into its private structures. It opens the device, writes commands to the
//! descriptor (version 4 of the kernel's ABI, `rdma/rdma_user_cm.h`), and sleeps on it until there are events. Here the
//! descriptor is an eventfd that counts them.
//!
//! ```text
//! librdmacm - open, write, close -> interpose -> commands -> manager, ids -> names, wire -> another process
//!                                                               ^
//!                                                            service: what comes from there, and time-outs
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `interpose` | libc's functions that are answered for our descriptors |
//! | `abi` | commands and answers as bytes |
//! | `user` | the program's memory, whose addresses may be bad |
//! | `commands` | carrying out a command |
//! | `manager` | all identifiers and event channels of the process |
//! | `ids` | one identifier: its state, what it knows of its peer |
//! | `events` | event channels, and events as bytes |
//! | `route` | asking for addresses and routes |
//! | `attributes` | queue pairs' attributes for a connection |
//! | `peers` | what is heard from the other side, and time-outs |
//! | `addresses` | which IP address is on which device |
//! | `names` | ports: the socket names by which listeners are found |
//! | `wire` | messages between connection managers |
//! | `service` | the thread that hears peers |
//! | `groups` | joining and leaving multicast groups |
//! | `faults` | connections that go wrong on purpose |
//! | `fork` | a child begins anew |
//!
//! One lock guards everything. Nothing blocks under it: sockets are non-blocking, and who waits for an event polls without it.
//! All descriptors are used through system calls of our own (rustix): librspreload redirects libc's `socket`, `connect`,
//! `send` and so on to RDMA in the same process.

mod abi;
mod addresses;
mod attributes;
mod commands;
mod events;
mod faults;
mod fork;
mod groups;
mod ids;
// In unit tests libc's functions stay libc's, and these are called by name.
#[cfg_attr(test, allow(dead_code))]
mod interpose;
mod manager;
mod names;
mod peers;
mod route;
mod service;
mod user;
mod wire;

pub(crate) use faults::polled;
pub(crate) use interpose::open_device;

#[cfg(test)]
mod tests;
