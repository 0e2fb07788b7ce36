//! The first bytes of a segment: of which layout it is, and whose. The magic number is stored last, so
//! that whoever finds it finds the rest.

use crate::shared::layout::{Header, MAGIC, VERSION};
use crate::sync::Ordering;

/// Whose a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) instance: u32,
    pub(crate) incarnation: u64,
}

/// Writes a segment's header.
pub(crate) fn sign(header: &Header, owner: Owner) {
    header.version.store(VERSION, Ordering::Relaxed);
    header.instance.store(owner.instance, Ordering::Relaxed);
    header
        .incarnation
        .store(owner.incarnation, Ordering::Relaxed);
    header.magic.store(MAGIC, Ordering::Release);
}

/// Whose a segment of our layout is; otherwise the version that it names.
pub(crate) fn read(header: &Header) -> Result<Owner, u32> {
    let magic = header.magic.load(Ordering::Acquire);
    let version = header.version.load(Ordering::Relaxed);
    if magic != MAGIC || version != VERSION {
        return Err(version);
    }
    Ok(Owner {
        instance: header.instance.load(Ordering::Relaxed),
        incarnation: header.incarnation.load(Ordering::Relaxed),
    })
}
