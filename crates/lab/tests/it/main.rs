//! The lab from outside, and its parts over real processes.

mod memcached;
mod program;
mod pynfs;
mod report;
mod verbs;
