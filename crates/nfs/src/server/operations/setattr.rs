//! SETATTR.

use files::{Caller, Request, Share};

use crate::server::attributes::to_set;
use crate::server::compound::Compound;
use crate::server::conflicts::Wants;
use crate::wire::*;
use crate::xdr::Encoder;

impl Compound<'_> {
    /// SETATTR (RFC 8881, section 18.30). All of it is done or nothing.
    pub(super) async fn setattr(&self, of: &Setattr4Args<'_>, out: &mut Encoder) -> Nfsstat4 {
        let result = self.set(of).await;
        let status = result.err().unwrap_or(Nfsstat4::NFS4_OK);
        out.put(&NfsOpnum4::OP_SETATTR);
        out.put(&Setattr4Res {
            status,
            attrsset: result.unwrap_or_default(),
        });
        status
    }

    async fn set(&self, of: &Setattr4Args<'_>) -> Result<Bitmap4, Nfsstat4> {
        let object = self.object()?;
        let (set, mask) = to_set(&of.obj_attributes, self.minor)?;
        let mut caller = self.changer(object)?;
        let is_cut = set.size.is_some();
        if is_cut {
            caller.holder = match self.holder_for(&of.stateid, object, Share::WRITE) {
                // What was done before a restart is not done again, though that stateid is no more.
                Err(Nfsstat4::NFS4ERR_STALE_STATEID) if self.is_kept(&caller).await? => {
                    return Ok(mask);
                }
                holder => holder?,
            };
        }
        let wants = match is_cut {
            true => Wants::data(object, caller.holder, Share::WRITE),
            false => Wants::change(object, caller.holder),
        };
        let set = || self.ask_of_data(&caller, Request::SetAttributes(object, set));
        self.door.settling(&[wants], set).await?;
        Ok(mask)
    }

    /// Whether the answer of an operation that comes again after a restart is kept.
    async fn is_kept(&self, caller: &Caller) -> Result<bool, Nfsstat4> {
        let Some(once) = caller.once else {
            return Ok(false);
        };
        match self.ask(&Caller::ROOT, Request::KeptAnswer(once)).await {
            Ok(_) => Ok(true),
            Err(Nfsstat4::NFS4ERR_NOENT) => Ok(false),
            Err(status) => Err(status),
        }
    }
}
