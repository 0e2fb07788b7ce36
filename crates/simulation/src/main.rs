//! Runs seeds, and nothing else: what `cargo lab mutants` builds for each mutant, as it builds sooner than
//! the lab.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use simulation::command::{SimulateFlags, run};

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    flags: SimulateFlags,
}

fn main() -> ExitCode {
    if run(&Flags::parse().flags) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
