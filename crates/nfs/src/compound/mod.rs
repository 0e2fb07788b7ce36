//! COMPOUND, one operation at a time: a server carries the first one out before it looks at the
//! second, so that a damaged third one does not hide the results of those before it (RFC 8881, section
//! 15.2 and 2.6.3.1).
//!
//! | file | what is in it |
//! | --- | --- |
//! | `operations` | which operations each minor version has |
//! | `server` | [`CompoundArgs`], [`CompoundReply`] |
//! | `client` | [`CompoundCall`], [`CompoundResults`] |

mod client;
mod operations;
mod server;

pub use client::{CompoundCall, CompoundResults};
pub use operations::is_operation_of;
pub use server::{BadOperation, CompoundArgs, CompoundReply};
