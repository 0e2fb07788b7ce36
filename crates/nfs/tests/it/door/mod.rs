//! The door as scripted clients see it, in virtual time: leases pass without waiting.

mod bench;
mod clients;
mod connections;
mod gate;
mod recalls;
mod sessions;
mod state;
