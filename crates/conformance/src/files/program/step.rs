//! What a program is made of. Objects and names are picks: whatever steps are taken away, the rest
//! still is a program.

use files::{
    Access, Caller, CreateHow, Delegation, Holder, Lock, LockRange, Name, New, Range, SeekFor,
    SetAttributes, SetXattr, Share,
};

/// One of the objects that there have been: the number is taken modulo how many there are.
pub type Pick = usize;

/// One step of a program.
#[derive(Clone, Debug)]
pub struct Step {
    /// Who takes it.
    pub caller: Caller,
    /// What is done.
    pub op: Op,
}

/// What is done.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Op {
    SetAttributes(Pick, SetAttributes),
    Access(Pick, Access),
    Lookup(Pick, Name),
    Parent(Pick),
    ReadLink(Pick),
    /// A directory's whole listing, in pages of so many bytes.
    List(Pick, u32),
    Create(Pick, Name, New, SetAttributes),
    CreateFile(Pick, Name, CreateHow, SetAttributes),
    Remove(Pick, Name, Option<bool>),
    Rename(Pick, Name, Pick, Name),
    Link(Pick, Pick, Name),
    Commit(Pick, Range),
    Allocate(Pick, Range),
    Deallocate(Pick, Range),
    Seek(Pick, u64, SeekFor),
    Copy(Pick, Range, Pick, u64),
    Clone(Pick, Range, Pick, u64),
    Read(Pick, Range),
    Write(Pick, u64, Vec<u8>),
    GetXattr(Pick, Name),
    SetXattr(Pick, Name, Vec<u8>, SetXattr),
    RemoveXattr(Pick, Name),
    /// All names, in pages of so many bytes.
    ListXattrs(Pick, u32),
    Open(Pick, Holder, Share, Share),
    Downgrade(Pick, Holder, Share, Share),
    Lock(Pick, Holder, Lock),
    TestLock(Pick, Holder, Lock),
    Unlock(Pick, Holder, LockRange),
    Delegate(Pick, u64, Delegation),
    ReturnDelegation(Pick, u64),
    Forget(u64),
}

impl Op {
    /// The objects that it names.
    #[must_use]
    pub fn picks(&self) -> Vec<Pick> {
        match self {
            Self::SetAttributes(a, ..)
            | Self::Access(a, ..)
            | Self::Lookup(a, ..)
            | Self::Parent(a)
            | Self::ReadLink(a)
            | Self::List(a, ..)
            | Self::Create(a, ..)
            | Self::CreateFile(a, ..)
            | Self::Remove(a, ..)
            | Self::Commit(a, ..)
            | Self::Allocate(a, ..)
            | Self::Deallocate(a, ..)
            | Self::Seek(a, ..)
            | Self::Read(a, ..)
            | Self::Write(a, ..)
            | Self::GetXattr(a, ..)
            | Self::SetXattr(a, ..)
            | Self::RemoveXattr(a, ..)
            | Self::ListXattrs(a, ..)
            | Self::Open(a, ..)
            | Self::Downgrade(a, ..)
            | Self::Lock(a, ..)
            | Self::TestLock(a, ..)
            | Self::Unlock(a, ..)
            | Self::Delegate(a, ..)
            | Self::ReturnDelegation(a, ..) => vec![*a],
            Self::Rename(a, _, b, _)
            | Self::Link(a, b, _)
            | Self::Copy(a, _, b, _)
            | Self::Clone(a, _, b, _) => vec![*a, *b],
            Self::Forget(_) => Vec::new(),
        }
    }
}
