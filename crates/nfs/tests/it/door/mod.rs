//! The door as scripted clients see it, in virtual time: leases pass without waiting.

mod bench;
mod clients;
mod gate;
mod recalls;
mod sessions;
