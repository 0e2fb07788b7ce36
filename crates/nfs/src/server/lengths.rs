//! How long results are of operations that change something: they are carried out only if there is room
//! to say that they were.

use crate::wire::NfsArgop4;

/// The operation's number, and its status.
const HEAD: usize = 8;
const STATEID: usize = 16;
/// `change_info4`.
const CHANGE: usize = 20;
/// `bitmap4` of all words that attributes have names in.
const BITMAP: usize = 4 + 4 * 4;
/// A delegation for writing: its kind, its stateid, whether it is recalled, its limit, nobody's entry.
const DELEGATION: usize = 4 + STATEID + 4 + 12 + 16;
/// `write_response4` of an operation that is done when it is answered.
const WRITTEN: usize = 4 + 8 + 4 + 8;

/// Bytes of an operation's result at most, if it has succeeded and changed something; 0: it changes
/// nothing, or its repeats are known by numbers of its own, and answered (EXCHANGE_ID, CREATE_SESSION, and
/// their likes in 4.0).
pub(super) const fn changed_len_max(operation: &NfsArgop4<'_>) -> usize {
    match operation {
        NfsArgop4::Open(_) => HEAD + STATEID + CHANGE + 4 + BITMAP + DELEGATION,
        NfsArgop4::Create(_) => HEAD + CHANGE + BITMAP,
        NfsArgop4::Rename(_) => HEAD + CHANGE + CHANGE,
        NfsArgop4::Link(_)
        | NfsArgop4::Remove(_)
        | NfsArgop4::Setxattr(_)
        | NfsArgop4::Removexattr(_) => HEAD + CHANGE,
        NfsArgop4::Setattr(_) => HEAD + BITMAP,
        NfsArgop4::Close(_)
        | NfsArgop4::Lock(_)
        | NfsArgop4::Locku(_)
        | NfsArgop4::OpenConfirm(_)
        | NfsArgop4::OpenDowngrade(_) => HEAD + STATEID,
        // A count, how it was committed, a verifier.
        NfsArgop4::Write(_) => HEAD + 16,
        // Whether it was done in one piece, and at once.
        NfsArgop4::Copy(_) => HEAD + WRITTEN + 8,
        NfsArgop4::Allocate(_)
        | NfsArgop4::Clone(_)
        | NfsArgop4::Deallocate(_)
        | NfsArgop4::Delegreturn(_)
        | NfsArgop4::BackchannelCtl(_)
        | NfsArgop4::DestroyClientid(_)
        | NfsArgop4::DestroySession(_)
        | NfsArgop4::FreeStateid(_)
        | NfsArgop4::ReclaimComplete(_)
        | NfsArgop4::ReleaseLockowner(_) => HEAD,
        _ => 0,
    }
}
