//! File systems in directories of this machine.

mod again;
mod check;
mod costs;
mod making;
mod rig;
mod suite;
mod volumes;
mod world;
