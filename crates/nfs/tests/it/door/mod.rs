//! The door as scripted clients see it, in virtual time: leases pass without waiting.

mod bench;
mod clients;
mod connections;
mod gate;
mod grace;
mod kept;
mod listeners;
mod lost;
mod measure;
mod modes;
mod owners;
mod random;
mod recalls;
mod refused;
mod returned;
mod rules;
mod rules_of_files;
mod sequences;
mod sessions;
mod state;
mod writers;
mod xattrs;
