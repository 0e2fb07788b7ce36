//! TEST_STATEID and FREE_STATEID.

use crate::server::compound::Compound;
use crate::server::states::{Held, Named};
use crate::wire::*;

impl Compound<'_> {
    /// TEST_STATEID (RFC 8881, section 18.48).
    pub(super) fn test_stateids(
        &self,
        of: &TestStateid4Args,
    ) -> Result<TestStateid4Resok, Nfsstat4> {
        let client = self.client()?;
        let states = self.door.states.borrow();
        let test = |stateid: &Stateid4| match states.find(stateid, Some(client)) {
            Ok(Named::State(_)) => Nfsstat4::NFS4_OK,
            Ok(_) => Nfsstat4::NFS4ERR_BAD_STATEID,
            Err(status) => status,
        };
        Ok(TestStateid4Resok {
            tsr_status_codes: of.ts_stateids.iter().map(test).collect(),
        })
    }

    /// FREE_STATEID (RFC 8881, section 18.38): of locks that lock nothing, and of what was revoked.
    pub(super) async fn free_stateid(&self, stateid: &Stateid4) -> Result<(), Nfsstat4> {
        let client = self.client()?;
        let stateid = self.stateid(stateid)?;
        let (num, is_revoked) = {
            let states = self.door.states.borrow();
            let Named::State(num) = states.find_revoked(&stateid, client)? else {
                return Err(Nfsstat4::NFS4ERR_BAD_STATEID);
            };
            let state = states.get(num).ok_or(Nfsstat4::NFS4ERR_BAD_STATEID)?;
            match &state.held {
                _ if state.is_revoked => {}
                Held::Lock { .. } => {}
                Held::Open(_) | Held::Delegation { .. } => {
                    return Err(Nfsstat4::NFS4ERR_LOCKS_HELD);
                }
            }
            (num, state.is_revoked)
        };
        if !is_revoked {
            return self.free_lock(num).await;
        }
        self.door.states.borrow_mut().remove(num);
        self.door.acknowledged(client).await
    }
}
