//! The `vervain` command.
fn main() {}
