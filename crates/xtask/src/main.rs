//! `cargo x`: the project's chores.
fn main() {}
