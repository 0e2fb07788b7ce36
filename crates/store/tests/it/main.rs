//! The store on files.

mod afterwards;
mod allowed;
mod basics;
mod cache;
mod cases;
mod closing;
mod commands;
mod concurrent;
mod cores;
mod dropped;
mod edges;
mod faults;
mod hot;
mod iterate;
mod kill;
mod loss;
mod model;
mod moves;
mod opening;
mod refusal;
mod regions;
mod rig;
mod rot;
mod taken_up;
mod world;
