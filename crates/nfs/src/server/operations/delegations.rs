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
        let client = {
            let mut states = self.door.states.borrow_mut();
            let held = states.get(num).map(|state| &state.held);
            if !matches!(held, Some(Held::Delegation { .. })) {
                return Err(Nfsstat4::NFS4ERR_BAD_STATEID);
            }
            states.remove(num).map(|state| state.client)
        };
        let client = client.ok_or(Nfsstat4::NFS4ERR_BAD_STATEID)?;
        let caller = self.caller(file)?;
        self.ask(&caller, Request::ReturnDelegation { file, client })
            .await
            .map(drop)
    }
}
