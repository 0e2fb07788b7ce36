//! Memory regions of this process, their keys, and the local side of a request.

pub(crate) mod atomic;
pub(crate) mod copy;
pub(crate) mod known;
pub(crate) mod local;
pub(crate) mod mr;
mod named;
pub(crate) mod pages;
pub(crate) mod pd;
pub(crate) mod remap;
pub(crate) mod window;
pub(crate) mod windows;
