//! Whole runs in one process: a server in threads of its own, the benchmark against it.

mod herd;
mod memcached;
mod process;
mod reports;
mod runs;
mod verbs;
