//! The wire as a peer sees it.

mod allocation;
mod compound;
mod door;
mod messages;
mod records;
mod tshark;
mod values;
