//! DELEGRETURN.

use files::Request;

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
        self.ask(&caller, Request::ReturnDelegation { file, client })
            .await?;
        let mut states = self.door.states.borrow_mut();
        // The client may have been forgotten meanwhile, and the place be another one's.
        if states.is_still(num, &stateid) {
            states.remove(num);
        }
        Ok(())
    }
}
