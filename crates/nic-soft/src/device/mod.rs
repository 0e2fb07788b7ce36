//! The device, its control path, and the NIC's own thread.

pub(crate) mod agent;
pub(crate) mod channel;
pub(crate) mod cq;
pub(crate) mod host;
pub(crate) mod limits;
pub(crate) mod nic;
pub(crate) mod objects;
pub(crate) mod qp;
pub(crate) mod reaper;
pub(crate) mod srq;
pub(crate) mod unfinished;
