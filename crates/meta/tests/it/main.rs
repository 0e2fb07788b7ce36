//! The metadata engines from outside: one suite over all, and what kills and fills the embedded one.

mod child;
mod crash;
mod opening;
mod suite;
