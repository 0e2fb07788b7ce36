//! The cache in virtual time: servers, dozens of clients and a network that loses, delays, doubles
//! and reorders, all from one seed, in one thread; and a check that every answer can be explained.
//!
//! What is simulated, what "explained" means and how to replay a seed is in
//! `docs/design/simulation.md`.
//!
//! | module | what |
//! | --- | --- |
//! | [`plan`] | what a seed stands for |
//! | [`run`](mod@run) | virtual time, clients, servers, faults, healing |
//! | [`control`] | control streams that break |
//! | [`command`] | many seeds, and what went wrong in which |
//!
//! ```
//! use simulation::{Options, Plan, run};
//!
//! let report = run(&Plan::draw(1), &Options::default());
//! assert_eq!(report.failure, None);
//! assert!(report.counts.of("commands") > 100);
//! ```

#![forbid(unsafe_code)]

pub mod command;
pub mod control;
pub mod plan;
pub mod run;

pub use plan::Plan;
pub use run::{Counts, Failure, Options, Report, run};
