//! DELEGRETURN.

use files::{Error, Request};

use crate::server::compound::Compound;
use crate::server::states::Held;
use crate::wire::*;

impl Compound<'_> {
    /// DELEGRETURN (RFC 8881, section 18.6).
    pub(super) async fn delegreturn(&self, of: &Delegreturn4Args) -> Result<(), Nfsstat4> {
        let file = self.object_or(Nfsstat4::NFS4ERR_ISDIR)?;
        let num = self.held(&of.deleg_stateid, file)?;
        let (client, stateid) = {
            let states = self.door.states.borrow();
            let state = states.get(num);
            let state = state.filter(|state| matches!(state.held, Held::Delegation { .. }));
            let state = state.ok_or(Nfsstat4::NFS4ERR_BAD_STATEID)?;
            (state.client, states.stateid(num))
        };
        let caller = self.caller(file)?;
        let request = Request::ReturnDelegation { file, client };
        match self.door.fs.call(&caller, request).await {
            // What has ended, or is not held, has come back too.
            Ok(_) | Err(Error::NotHeld | Error::Stale) => {}
            Err(error) => return Err(self.of_error(error)),
        }
        let removed = {
            let mut states = self.door.states.borrow_mut();
            // The client may have been forgotten meanwhile, and the place be another one's.
            let is_still = states.is_still(num, &stateid);
            is_still.then(|| states.remove(num)).flatten()
        };
        // It was taken away meanwhile, and there is nothing left for the client to free.
        if removed.is_some_and(|state| state.is_revoked) {
            self.door.acknowledged(client).await?;
        }
        Ok(())
    }
}
