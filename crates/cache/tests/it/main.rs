//! Integration tests of the cache.

mod herd;
mod mica_allocation;
mod mica_collisions;
mod mica_command;
mod mica_faults;
mod mica_model;
mod mica_operations;
