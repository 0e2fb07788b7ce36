//! Rust types from XDR descriptions (RFC 4506, section 6), and random values of them for tests.
//!
//! | module | what it is |
//! | --- | --- |
//! | `lexer` | a description's words |
//! | `schema` | [`Schema`]: constants, types and unions as read |
//! | `rust` | [`rust()`]: the Rust declarations, one macro call a type |
//! | `sample` | [`Sampler`]: encoded values of any type, drawn from the description alone |
//!
//! ```
//! let schema = xdrgen::Schema::parse(&["struct point { int x; int y; };"])?;
//! let source = xdrgen::rust(&schema);
//! assert!(source.contains("pub struct Point"));
//! let mut sampler = xdrgen::Sampler::new(&schema, 1);
//! assert_eq!(sampler.sample("point").len(), 8);
//! # Ok::<(), xdrgen::ParseError>(())
//! ```

#![forbid(unsafe_code)]

mod lexer;
mod rust;
mod sample;
mod schema;

pub use rust::rust;
pub use sample::Sampler;
pub use schema::{Arm, Count, Declaration, Definition, Schema, Type};

/// What is wrong with a description.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// The line, counted from one; zero when the fault is not at one place.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

impl ParseError {
    fn new(line: usize, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { line, what }
    }
}
