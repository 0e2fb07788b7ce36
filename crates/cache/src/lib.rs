//! cache

pub mod mica;
