//! Dataunits on simulated devices, against tables of bytes.

mod basics;
mod compaction;
mod doubts;
mod faults;
mod index_stream;
mod model;
mod rig;
mod room;
mod rot;
