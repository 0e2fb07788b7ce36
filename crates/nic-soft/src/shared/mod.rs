//! What the processes of a host share: the layouts of their segments, and how each part is written and
//! read by its two sides. Nothing here knows whose the memory is.

pub(crate) mod allotment;
pub(crate) mod arming;
pub(crate) mod cause;
pub(crate) mod credit;
pub(crate) mod header;
pub(crate) mod lane;
pub(crate) mod layout;
pub(crate) mod mr_entry;
pub(crate) mod qp_entry;
pub(crate) mod recv_queue;
pub(crate) mod route;
#[cfg(not(loom))]
pub(crate) mod segment;
pub(crate) mod srq_entry;
pub(crate) mod wakeup;
