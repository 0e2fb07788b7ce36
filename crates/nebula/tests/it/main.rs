//! Streams on simulated disks.

mod alloc;
mod basics;
mod crashes;
mod faults;
mod owners;
mod rig;
mod room;
mod rot;
