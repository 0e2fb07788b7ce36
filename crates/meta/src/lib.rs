//! The metadata engine: an ordered map of rows, changed by transactions that compare and write.
//!
//! Every role of the file system that must remember something (the namespace, block maps, streams,
//! clients) keeps it in rows of an [`Engine`]. A transaction names what it has seen, as [`Compare`]s,
//! and what it changes, as [`Write`]s. It is carried out as a whole or not at all. The interface is the
//! part of etcd's that an index needs, with etcd's limits, so that a distributed engine can take the
//! place of the embedded one.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Engine`], [`Outcome`] | what every implementation does |
//! | [`Transaction`], [`Compare`], [`Write`], [`LimitError`] | what is asked of it, within etcd's limits |
//! | [`Key`], [`Row`], [`Range`] | what it holds |
//! | [`Scoped`] | rows of one's own in an engine that others use too |
//! | [`MetaError`] | what went wrong, and where |
//! | [`conformance`] | what every implementation must do, as a suite |
//! | [`Embedded`], [`Options`] | an engine in a directory: a journal, rows in memory, a redb database |
//! | [`Model`] | an engine in memory, for tests and simulations: slow, forgetful, full, uncertain |
//!
//! ```
//! use meta::{Engine, Model, Outcome, Transaction};
//!
//! let mut core = rt::Core::new(rt::Config::default())?;
//! let engine = Model::new(1).handle();
//! core.block_on(async {
//!     let mut create = Transaction::new();
//!     create.absent("name")?.put("name", "42")?;
//!     assert_eq!(engine.commit(create.clone()).await?, Outcome::Committed(1));
//!     assert_eq!(engine.commit(create).await?, Outcome::Conflict, "it is there now");
//!     let row = engine.get(b"name").await?.expect("it was committed");
//!     assert_eq!((&row.value[..], row.version), (&b"42"[..], 1));
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod conformance;
mod embedded;
mod engine;
mod error;
mod model;
mod row;
mod scoped;
mod transaction;

pub use embedded::{BackupError, Counts, Embedded, HandleMaker, OpenError, Options, Verified};
pub use engine::{Engine, Outcome, Pending};
pub use error::MetaError;
pub use model::{Fault, Model, ModelCounts, Pace};
pub use row::{Key, Range, Row, Value};
pub use scoped::Scoped;
pub use transaction::{
    BYTES_MAX, Compare, KEY_LEN_MAX, LimitError, OPERATION_BYTES, OPERATIONS_MAX, Transaction,
    Write,
};
