//! What programs rely on, tried with programs that nobody here wrote, and with some that are compiled here.

mod answers;
mod api;
mod around;
mod beside_rxe;
mod check;
mod cm;
mod confined;
mod dlopen;
mod faults;
mod gids;
mod last_words;
mod layout;
mod libfabric;
mod matrix;
mod memory;
mod mpi;
mod newer;
mod own;
mod pair;
mod places;
mod programs;
mod pyverbs;
mod sideway;
mod ucx;
