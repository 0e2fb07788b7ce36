//! A client of NFSv4.1 and later: a session over one connection, and files by their paths.
//!
//! It is what the command line and measurements use; programs mount. It holds no delegations and has no
//! back channel, and does not reconnect: what was asked when the connection broke is an error.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `session` | [`Client`]: compounds on the slots of a session |
//! | `paths` | [`Files`]: what is done by path: look up, list, read, write, remove |
//! | `open` | [`OpenFile`]: bytes of an open file by their places |
//! | `error` | [`ClientError`] |

mod error;
mod open;
mod paths;
mod session;

pub use error::ClientError;
pub use open::{OpenFile, OpenHow};
pub use paths::{Changes, Entry, FileKind, Files, Found, Room};
pub use session::{Client, Options, Reply};
