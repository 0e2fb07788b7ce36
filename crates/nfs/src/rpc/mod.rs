//! ONC RPC, version 2 (RFC 5531): who calls what, whether it was accepted, and records on a stream.
//!
//! ```text
//!  record: fragments, the last one marked
//!  | 1 bit last, 31 bits n | n bytes | ...
//!
//!  call
//!  | xid | 0 CALL  | 2 RPC version | prog | vers | proc | cred | verf | arguments
//!  reply
//!  | xid | 1 REPLY | 0 ACCEPTED | verf | 0 SUCCESS | results
//!  | xid | 1 REPLY | 0 ACCEPTED | verf | 2 PROG_MISMATCH | low | high
//!  | xid | 1 REPLY | 0 ACCEPTED | verf | 1, 3, 4 or 5
//!  | xid | 1 REPLY | 1 DENIED   | 0 RPC_MISMATCH | low | high
//!  | xid | 1 REPLY | 1 DENIED   | 1 AUTH_ERROR | auth_stat
//!
//!  cred, verf: flavor u32, opaque body<400>
//! ```

mod auth;
mod calls;
mod message;
mod record;

pub use auth::{AuthStat, AuthSys, Credential, OpaqueAuth};
pub use calls::{Calls, Waits};
pub use message::{Call, CallError, Message, Outcome, Reply};
pub(crate) use record::batches;
pub use record::{Kept, RecordError, Records, put_record};

/// The program number of NFS, and its version 4.
pub const NFS_PROGRAM: u32 = 100_003;
/// The version of [`NFS_PROGRAM`] that is NFSv4, whatever its minor version.
pub const NFS_VERSION: u32 = 4;
/// The version of the callback program, whose number the client chooses.
pub const CALLBACK_VERSION: u32 = 1;
/// The procedure that does nothing, of both programs.
pub const PROC_NULL: u32 = 0;
/// COMPOUND of NFS, CB_COMPOUND of the callback program.
pub const PROC_COMPOUND: u32 = 1;
