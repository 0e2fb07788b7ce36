//! Regions whose pages may come and go.

use verbs::PdNum;

use crate::abi;
use crate::abi::errno::Errno;

/// A region whose pages may come and go, for `ibv_advise_mr`.
#[derive(Clone, Copy)]
pub(crate) struct OnDemand {
    pub(crate) pd: PdNum,
    pub(crate) start: usize,
    pub(crate) iova: u64,
    pub(crate) len: usize,
    pub(crate) is_writable: bool,
}

impl OnDemand {
    /// Where an element's bytes are, if they may be fetched for a domain.
    pub(crate) fn place(
        &self,
        pd: PdNum,
        sge: &abi::Sge,
        writes: bool,
    ) -> Result<(usize, usize), Errno> {
        if self.pd != pd || (writes && !self.is_writable) {
            return Err(libc::EPERM);
        }
        let (offset, len) = (sge.addr.wrapping_sub(self.iova), sge.length as usize);
        let lies_inside = offset <= self.len as u64 && len as u64 <= self.len as u64 - offset;
        let place = || (self.start + offset as usize, len);
        lies_inside.then(place).ok_or(libc::EFAULT)
    }
}
