//! cache

pub mod herd;
pub mod mica;
