//! Counts of what the hot paths do: instructions, locked instructions, allocations, system calls
//! and cache lines, an operation.
//!
//! Time flickers, counts do not. A driver (`gates-driver`) runs one hot path at full speed until it
//! is in its steady state; then it is stepped through instruction by instruction (ptrace), and
//! each instruction is decoded. So one pass gives, exactly and for each side on its own:
//!
//! - instructions, with those that lock the bus among them (a `lock` prefix, or `xchg` with memory);
//! - system calls and allocations;
//! - distinct cache lines that a round touches, by what they belong to;
//! - *transfers*: lines of shared memory that would have to travel from one core's cache to
//!   another's, were each side on a core of its own.
//!
//! Libraries choose some of their ways by what the processor can do. The driver is told that it can do
//! AVX2 and nothing newer, whatever it can, so that the counts of one machine hold on another.
//!
//! Nothing of this needs privileges, performance counters or an emulator, and large tables are
//! filled at full speed.
//!
//! | module | what |
//! | --- | --- |
//! | `marks` | what a driver tells |
//! | `cases` | the hot paths, and what may be counted of them |
//! | `decode` | what an instruction does, from its bytes |
//! | `places` | what an address belongs to |
//! | `caches` | which lines travel between two caches |
//! | `tracee` | a process, stepped through |
//! | `trace` | from steps to counts |
//! | `serve` | system calls of a whole server |
//! | `book` | the file of counts, and comparing with it |
//! | `print` | tables |
//! | `explain` | which source lines the counts come from |

#![forbid(unsafe_code)]

mod marks;

pub use marks::Mark;

pub mod book;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod caches;
pub mod cases;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod decode;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod explain;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod places;
pub mod print;
pub mod serve;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod trace;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tracee;
