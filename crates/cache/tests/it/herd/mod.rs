//! HERD's servers and clients over the reference NIC.

mod faults;
mod lifetimes;
mod meddler;
mod operations;
mod raw;
mod rig;
mod wire;
