//! Clusters in virtual time, from outside.

mod cores;
mod disks;
mod fabric;
mod streams;
mod troubles;
