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
    pub(super) fn free_stateid(&self, stateid: &Stateid4) -> Result<(), Nfsstat4> {
        let client = self.client()?;
        let stateid = self.stateid(stateid)?;
        let mut states = self.door.states.borrow_mut();
        let Named::State(num) = states.find_revoked(&stateid, client)? else {
            return Err(Nfsstat4::NFS4ERR_BAD_STATEID);
        };
        let state = states.get(num).ok_or(Nfsstat4::NFS4ERR_BAD_STATEID)?;
        match &state.held {
            _ if state.is_revoked => {}
            // What a lock-owner has locked is known to the file system alone: the state stays until the
            // file is closed.
            Held::Lock { .. } | Held::Open(_) | Held::Delegation { .. } => {
                return Err(Nfsstat4::NFS4ERR_LOCKS_HELD);
            }
        }
        states.remove(num);
        if !states
            .of_client(client)
            .iter()
            .any(|num| states.get(*num).is_some_and(|s| s.is_revoked))
        {
            drop(states);
            self.door.acknowledged(client);
        }
        Ok(())
    }
}
