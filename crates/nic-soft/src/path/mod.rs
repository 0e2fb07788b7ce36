//! The path of operations to a peer's queue pair and memory: over shared memory. The send queue above
//! says which operation is next, and what becomes of one that has to wait.

pub(crate) mod connection;
pub(crate) mod link;
pub(crate) mod remote;
