//! Contact with the other processes of the host: who is there, and what they ask each other.

pub(crate) mod adapter;
pub(crate) mod atomic;
pub(crate) mod contacts;
pub(crate) mod copy;
pub(crate) mod delegated;
pub(crate) mod doorbell;
pub(crate) mod foreign;
pub(crate) mod inbox;
pub(crate) mod incoming;
mod listener;
pub(crate) mod membership;
pub(crate) mod objects;
pub(crate) mod over;
pub(crate) mod peer;
pub(crate) mod private;
pub(crate) mod protocol;
pub(crate) mod question;
