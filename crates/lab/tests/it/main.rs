//! The lab from outside, and its parts over real processes.

mod memcached;
mod program;
mod report;
mod verbs;
