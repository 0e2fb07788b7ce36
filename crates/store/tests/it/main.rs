//! The store on files.

mod basics;
mod cache;
mod closing;
mod cores;
mod crash;
mod faults;
mod iterate;
mod kill;
mod model;
mod moves;
mod opening;
mod rig;
