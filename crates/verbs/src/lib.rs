//! The RDMA vocabulary: what a NIC does, and typed handles for those who use one.
//!
//! The words are libibverbs': device, protection domain (PD), memory region (MR), completion queue
//! (CQ), completion channel, queue pair (QP) of the transports RC, UC and UD, shared receive queue
//! (SRQ), address handle (AH), work request (WR), work completion (WC). There is no I/O here: a
//! NIC is a value that somebody passes in.
//!
//! Two layers (`docs/design/verbs.md` says why they look as they do):
//! - [`nic`]: object-safe traits. A NIC implements them, and decorators wrap them. Posting takes a
//!   [`batch`], polling fills a [`polled`]: one virtual call each.
//! - [`typed`]: what a user holds. A queue pair's type carries its transport, so a datagram
//!   without an address handle or a READ on UC does not compile.
//!
//! # Map
//! | module | what |
//! | --- | --- |
//! | [`names`] | numbers with a meaning: keys, QP numbers, GIDs, addresses |
//! | [`batch`] | batches of work requests, composed in place |
//! | [`polled`] | completions, and the messages lent with them |
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
//! A region's implementer promises that its memory is there, so that safe code can rely on it:
//! ```compile_fail
//! #[derive(Debug)]
//! struct Nowhere;
//! impl verbs::nic::NicMr for Nowhere { // needs `unsafe`
//!     fn addr(&self) -> u64 { 8 }
//!     fn len(&self) -> usize { 8 }
//!     fn lkey(&self) -> verbs::Lkey { verbs::Lkey(1) }
//!     fn rkey(&self) -> verbs::Rkey { verbs::Rkey(1) }
//!     fn base(&self) -> Option<std::ptr::NonNull<u8>> { std::ptr::NonNull::new(8 as *mut u8) }
//! }
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
pub mod batch;
pub mod connect;
pub mod decorate;
pub mod error;
pub mod mem;
pub mod names;
pub mod nic;
pub mod polled;
pub mod rules;
pub mod state;
pub mod typed;
pub mod wc;
pub mod wr;

pub use attr::{
    Access, AhAttr, AtomicScope, CqInit, DeviceAttr, GidEntry, GidKind, LentRecvs, LinkLayer, Mtu,
    PortAttr, PortState, QpAttr, QpCaps, QpInit, QpState, SrqInit, Transport,
};
pub use batch::{Dest, RecvBatch, SendBatch, SendLimits};
pub use error::{CqError, PostError, PostReason, VerbsError};
pub use names::{
    AhNum, ChannelNum, CqNum, Gid, Guid, Iova, Lkey, PdNum, Pkey, Psn, Qkey, QpNum, RemoteAddr,
    Rkey, SrqNum, VendorErr,
};
pub use polled::Polled;
pub use wc::{Wc, WcFlags, WcOpcode, WcStatus};
pub use wr::{Op, Payload, RecvWr, SendFlags, SendWr, Sge, UdDest, WindowBind};
