//! The program: everything is in the library, where tests reach it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    lab::run()
}
