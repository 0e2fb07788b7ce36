//! Death at every step: processes that are killed, or stand still for a while, at each of their
//! system calls and between any two instructions. Nothing of them stays, and nobody else notices.
//!
//! | file | what |
//! | --- | --- |
//! | `step` | names for steps |
//! | `calls` | system calls, for people |
//! | `tracer` | a process that is watched, and cut at a step |
//! | `plan` | which steps are cut: a spread, all, or one again |
//! | `victim` | what victims do |
//! | `neighbours` | those who must not notice |
//! | `holdings` | what a server holds for its clients, counted |
//! | `clients` | HERD clients that die or stand still |
//! | `servers` | servers that do |
//! | `bare` | a process that uses the NIC alone, in every way that HERD does not |
//!
//! A victim is first left alone and its steps are counted; then it is started again for each step.
//! `cargo x death` cuts a spread of the steps, as the tests do; `cargo x death --all` cuts all of
//! them; a step that fails says how to repeat it.

mod bare;
mod calls;
mod clients;
#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod harness;
mod holdings;
mod neighbours;
mod plan;
mod servers;
mod step;
mod tracer;
mod victim;
