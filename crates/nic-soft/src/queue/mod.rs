//! Queue pairs, completion queues, shared receive queues and channels.

pub(crate) mod arrival;
pub(crate) mod channel;
pub(crate) mod cq;
pub(crate) mod events;
pub(crate) mod qp;
pub(crate) mod srq;
