//! The local side of a request: where its bytes are, checked.

use verbs::{Op, Payload, SendWr, Sge, WcStatus, mem};

use crate::adapter::Adapter;
use crate::memory;
use crate::remote::Piece;

/// The local side of a request as checked pieces.
#[derive(Clone, Copy)]
pub(crate) enum Local<'a> {
    One(Piece),
    Parts(&'a [&'a [u8]]),
    Sges(&'a [Sge]),
}

impl<'a> Local<'a> {
    /// Checks a payload's elements.
    #[inline]
    pub(crate) fn check(adapter: &Adapter, pd: u32, wr: &SendWr<'a>) -> Result<Self, WcStatus> {
        let needed = match wr.op {
            Op::Send { .. } | Op::Write { .. } => verbs::Access::empty(),
            _ => verbs::Access::LOCAL_WRITE,
        };
        match wr.payload {
            Payload::Inline(bytes) => Ok(Local::One((bytes.as_ptr().cast_mut(), bytes.len()))),
            Payload::InlineParts(parts) => Ok(Local::Parts(parts)),
            Payload::Gather([]) => Ok(Local::Parts(&[])),
            Payload::Gather([sge]) => {
                if sge.len == 0 {
                    return Ok(Local::Parts(&[]));
                }
                let at = memory::local(adapter, pd, sge, needed).ok_or(WcStatus::LocProtErr)?;
                Ok(Local::One((at, sge.len as usize)))
            }
            Payload::Gather(sges) => {
                for sge in sges.iter().filter(|sge| sge.len > 0) {
                    memory::local(adapter, pd, sge, needed).ok_or(WcStatus::LocProtErr)?;
                }
                Ok(Local::Sges(sges))
            }
        }
    }

    #[inline]
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> + Clone + use<'a> {
        let (one, parts, sges): (Option<Piece>, &'a [&'a [u8]], &'a [Sge]) = match *self {
            Local::One(piece) => (Some(piece), &[], &[]),
            Local::Parts(parts) => (None, parts, &[]),
            Local::Sges(sges) => (None, &[], sges),
        };
        one.into_iter()
            .chain(
                parts
                    .iter()
                    .map(|part| (part.as_ptr().cast_mut(), part.len())),
            )
            .chain(
                sges.iter()
                    .map(|sge| (sge.addr as *mut u8, sge.len as usize)),
            )
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
