//! The `vervain` command: one binary, noun-verb subcommands.
//!
//! | folder | what |
//! | --- | --- |
//! | `command` | every verb, and who carries it out |
//! | `cli` | flags, where things are, how errors read |
//! | `serve` | the cache as a process: cores, doors, control |
//! | `client` | one-shot commands, over the NIC or over a socket |
//! | `measure` | `bench`: the cache, the store, verbs |
//! | `soak` | a server and its clients under faults, every answer checked |
//! | `programs` | other people's verbs programs on the software NIC |
//! | `filesystem` | a file system in a directory, served over NFSv4 |
//! | `stores` | stores in files and on drives |
//! | `signals` | ending in order when a signal says so |
//! | `outside` | what reads bytes from outside, for fuzz targets |
//!
//! This is the edge: here the NIC is chosen, and here clocks, random seeds and the environment are
//! read. Exit codes: 0 done, 1 no (a miss, a refusal, a failure), 2 a call that makes no sense.

#![forbid(unsafe_code)]

pub mod cli;
mod client;
mod command;
mod filesystem;
pub mod measure;
#[cfg(feature = "fuzz")]
pub mod outside;
mod programs;
mod serve;
mod signals;
mod soak;
mod stores;

pub use command::{conclude, run, start_logging};
