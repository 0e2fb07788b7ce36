//! What programs rely on, tried with programs that nobody here wrote.

mod layout;
mod pair;
mod perftest;
mod utilities;
