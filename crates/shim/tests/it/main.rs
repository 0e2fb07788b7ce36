//! What programs rely on, tried with programs that nobody here wrote.

mod around;
mod layout;
mod pair;
mod perftest;
mod pyverbs;
mod utilities;
