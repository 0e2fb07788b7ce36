//! The RDMA vocabulary: what a NIC does, and typed handles for those who use one.
//!
//! The words are libibverbs': device, protection domain (PD), memory region (MR), completion queue
//! (CQ), completion channel, queue pair (QP) of the transports RC, UC and UD, shared receive queue
//! (SRQ), address handle (AH), work request (WR), work completion (WC). There is no I/O here: a
//! NIC is a value that somebody passes in.
//!
//! Two layers:
//! - [`nic`]: object-safe traits. A NIC implements them, and decorators wrap them.
//! - [`typed`]: what a user holds. A queue pair's type carries its transport, so a datagram
//!   without an address handle or a READ on UC does not compile.
//!
//! # Map
//! | module | what |
//! | --- | --- |
//! | [`names`] | numbers with a meaning: keys, QP numbers, GIDs, addresses |
//! | [`attr`] | attributes of devices, ports and queue pairs, access flags |
//! | [`state`] | the queue pair state machine, the same for every NIC |
//! | [`wr`], [`wc`] | work requests and work completions |
//! | [`rules`] | which operation goes on which transport, with which access (HERD, Table 1) |
//! | [`mem`] | copying to and from memory that others read and write at the same time |
//! | [`nic`] | the traits of a NIC |
//! | [`typed`] | handles for users |
//! | [`decorate`] | NICs around a NIC: tracing, counting, faults |
//! | [`error`] | what can go wrong |
//!
//! # Example
//! A work request is a plain value, and what a transport cannot do cannot be written down:
//! ```
//! use verbs::typed::{Rc, Uc, Wr};
//! use verbs::{RemoteAddr, Rkey};
//!
//! let remote = RemoteAddr { addr: 0x1000, rkey: Rkey(7) };
//! let _write: Wr<Uc> = Wr::write_inline(b"hello", remote).unsignaled().id(1);
//! let _read: Wr<Rc> = Wr::read(&[], remote);
//! ```
//! ```compile_fail
//! use verbs::typed::{Uc, Wr};
//! use verbs::{RemoteAddr, Rkey};
//! let remote = RemoteAddr { addr: 0x1000, rkey: Rkey(7) };
//! let _read: Wr<Uc> = Wr::read(&[], remote); // no READ on UC
//! ```
//! ```compile_fail
//! use verbs::typed::{Ud, Wr};
//! let _datagram: Wr<Ud> = Wr::send_inline(b"hello"); // no datagram without an address handle
//! ```

pub mod attr;
pub mod decorate;
pub mod error;
pub mod mem;
pub mod names;
pub mod nic;
pub mod rules;
pub mod state;
pub mod typed;
pub mod wc;
pub mod wr;

pub use attr::{
    Access, AhAttr, CqInit, DeviceAttr, Mtu, PortAttr, PortState, QpAttr, QpCaps, QpInit, QpState,
    SrqInit, Transport,
};
pub use error::{CqError, PostError, PostReason, VerbsError};
pub use names::{
    AhNum, ChannelNum, CqNum, Gid, Lkey, PdNum, Psn, Qkey, QpNum, RemoteAddr, Rkey, SrqNum,
};
pub use wc::{Wc, WcFlags, WcOpcode, WcStatus};
pub use wr::{Op, Payload, RecvWr, SendFlags, SendWr, Sge, UdDest};
