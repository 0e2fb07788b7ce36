//! HERD's servers and clients over the reference NIC.

mod allocation;
mod faults;
mod lifetimes;
mod meddler;
mod operations;
mod raw;
mod rig;
mod wire;
