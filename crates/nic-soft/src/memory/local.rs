//! The local side of a request: where its bytes are, checked.

use std::ops::Range;

use verbs::{Access, Op, Payload, SendWr, Sge, mem};

use crate::contact::adapter::Adapter;
use crate::memory::mr;
use crate::shared::cause::Cause;

/// A piece of local memory, checked.
pub(crate) type Piece = (*mut u8, usize);

/// Where an element is, checked, and there.
#[inline]
pub(crate) fn find(
    adapter: &Adapter,
    pd: u32,
    sge: &Sge,
    needed: Access,
) -> Result<*mut u8, Cause> {
    match mr::local(adapter, pd, sge, needed) {
        Some(place) => Ok(place),
        None => mr::local_on_demand(adapter, pd, sge, needed),
    }
}

/// Where some bytes of an element are, of which all has been checked, and they are there.
#[inline]
pub(crate) fn part(
    adapter: &Adapter,
    pd: u32,
    sge: &Sge,
    bytes: Range<usize>,
    needed: Access,
) -> Result<*mut u8, Cause> {
    match mr::local(adapter, pd, sge, needed) {
        Some(place) => Ok(place.wrapping_add(bytes.start)),
        None => {
            mr::on_demand(adapter, pd, sge, needed)?;
            let part = Sge {
                addr: sge.addr.wrapping_add(bytes.start as u64),
                len: bytes.len() as u32,
                ..*sge
            };
            mr::local_on_demand(adapter, pd, &part, needed)
        }
    }
}

/// The local side of a request as checked pieces.
#[derive(Clone, Copy)]
pub(crate) enum Local<'a> {
    One(Piece),
    Parts(&'a [&'a [u8]]),
    Sges(&'a Adapter, &'a [Sge]),
}

impl<'a> Local<'a> {
    /// Checks a payload's elements.
    #[inline]
    pub(crate) fn check(adapter: &'a Adapter, pd: u32, wr: &SendWr<'a>) -> Result<Self, Cause> {
        let needed = match wr.op {
            Op::Send { .. } | Op::SendInvalidate { .. } | Op::Write { .. } => Access::empty(),
            _ => Access::LOCAL_WRITE,
        };
        match wr.payload {
            Payload::Inline(bytes) => Ok(Local::One((bytes.as_ptr().cast_mut(), bytes.len()))),
            Payload::InlineParts(parts) => Ok(Local::Parts(parts)),
            Payload::Gather([]) => Ok(Local::Parts(&[])),
            Payload::Gather([sge]) => {
                if sge.len == 0 {
                    return Ok(Local::Parts(&[]));
                }
                let at = find(adapter, pd, sge, needed)?;
                Ok(Local::One((at, sge.len as usize)))
            }
            Payload::Gather(sges) => {
                for sge in sges.iter().filter(|sge| sge.len > 0) {
                    find(adapter, pd, sge, needed)?;
                }
                Ok(Local::Sges(adapter, sges))
            }
        }
    }

    #[inline]
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> + Clone + use<'a> {
        let (one, parts, sges): (Option<Piece>, &'a [&'a [u8]], _) = match *self {
            Local::One(piece) => (Some(piece), &[], None),
            Local::Parts(parts) => (None, parts, None),
            Local::Sges(adapter, sges) => (None, &[], Some((adapter, sges))),
        };
        let sges = sges.into_iter().flat_map(|(adapter, sges)| {
            let used = sges.iter().filter(|sge| sge.len > 0);
            used.map(|sge| (mr::checked(adapter, sge), sge.len as usize))
        });
        one.into_iter()
            .chain(
                parts
                    .iter()
                    .map(|part| (part.as_ptr().cast_mut(), part.len())),
            )
            .chain(sges)
    }

    /// Copies the bytes `from..from + len` to one place.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, and the range lies inside the payload.
    #[inline]
    pub(crate) unsafe fn gather(&self, mut from: usize, mut to: *mut u8, mut len: usize) {
        for (start, piece_len) in self.pieces() {
            if from >= piece_len {
                from -= piece_len;
                continue;
            }
            let now = len.min(piece_len - from);
            // SAFETY: inside a checked piece, and inside the caller's room.
            unsafe { mem::put(to, start.add(from), now) };
            to = to.wrapping_add(now);
            len -= now;
            from = 0;
            if len == 0 {
                return;
            }
        }
        debug_assert!(len == 0, "the range lies inside the payload");
    }
}
