//! The send queue: what was posted, what waits, and how often it is tried again.

pub(crate) mod address;
pub(crate) mod dests;
pub(crate) mod early;
pub(crate) mod queue;
pub(crate) mod side;
