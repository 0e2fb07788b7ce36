//! Directory index and file index: the namespace, attributes and block maps of a file system, as rows of a
//! metadata engine.
//!
//! An [`Index`] owns virtual nodes, and with them every object whose number says so. It carries out the
//! requests of [`files`] that move no data; for those that do, it says where the data is
//! ([`Index::begin_read`], [`Index::begin_write`]). Who keeps the data is behind [`Blocks`]. Requests on one
//! object take effect in their order; each change is one transaction, which compares what was read and who
//! owns it. `docs/design/index.md` has the protocol and draws the rows.
//!
//! | module | what it is |
//! | --- | --- |
//! | `index`, `options` | [`Index`], [`Format`], [`Options`]: how it is made, opened and asked |
//! | `ops` | one file a kind of request; `rules`: who may do what |
//! | `data` | plans of reads and writes, block maps, cuts, copies |
//! | `slots` | the queues in front of objects |
//! | `commit` | a transaction: compares, writes, what changes in memory with it |
//! | `inner`, `cache`, `live` | rows in memory; what no row has yet |
//! | `volumes`, `nodes`, `holds` | what volumes use; numbers of new objects; what clients hold |
//! | `background`, `recover` | what is done while nobody waits; opening |
//! | `check` | [`check()`]: reads all rows, trusts nothing |
//! | `blocks`, `model` | [`Blocks`], what the data side does, and [`ModelBlocks`], in memory, which fails as it is told |
//! | `format`, `names` | rows byte by byte; cookies |
//!
//! ```
//! use std::rc::Rc;
//!
//! use files::{Answer, Caller, Handle, Name, New, Request, SetAttributes, Timestamp, VolumeId};
//! use index::{Format, Index, ModelBlocks, Options};
//!
//! let mut core = rt::Core::new(rt::Config::default())?;
//! let (handle, rows, blocks) = (core.handle(), meta::Model::new(1), ModelBlocks::new(1 << 30));
//! core.block_on(async {
//!     let engine = rows.handle();
//!     let format = Format::new([1; 16], [2; 32], Timestamp::default());
//!     Index::format(&*engine, &format).await?;
//!     let now = Rc::new(Timestamp::default);
//!     let index = Index::open(Options::new(handle, engine, Rc::new(blocks), now)).await?;
//!     let request = Request::Create {
//!         directory: Handle::root(VolumeId(1)),
//!         name: Name::new("music")?,
//!         new: New::Directory,
//!         attributes: SetAttributes::default(),
//!     };
//!     let answer = index.call(&Caller::ROOT, request).await?;
//!     assert!(matches!(answer, Answer::Created { is_new: true, .. }));
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod background;
mod blocks;
mod cache;
mod check;
mod commit;
mod counts;
mod data;
mod format;
mod holds;
mod index;
mod inner;
mod live;
mod model;
mod names;
mod nodes;
mod ops;
mod options;
mod recover;
mod rules;
mod slots;
mod volumes;

pub use blocks::{BLOCK_LEN, BlockId, Blocks, Mark, Recovered, Room, Span};
pub use check::{Finding, Report, check};
pub use counts::Counts;
pub use data::{Piece, ReadPlan, WritePlan, Written};
pub use index::Index;
pub use model::{Failure, ModelBlocks};
pub use options::{Format, Options, Quota, VolumeUse};
pub use recover::OpenError;
