//! READLINK and LINK.

use files::{Answer, Request};

use crate::server::compound::{Compound, change, name, put};
use crate::server::conflicts::Wants;
use crate::wire::*;
use crate::xdr::{Encoder, Opaque};

impl Compound<'_> {
    /// READLINK (RFC 8881, section 18.24).
    pub(super) async fn readlink(&self, out: &mut Encoder) -> Nfsstat4 {
        let text = self.link_text().await;
        let result = text
            .as_ref()
            .map(|text| Readlink4Resok { link: Opaque(text) });
        put(
            out,
            NfsOpnum4::OP_READLINK,
            result.map_err(|status| *status),
        )
    }

    async fn link_text(&self) -> Result<Vec<u8>, Nfsstat4> {
        // Of anything else it is an invalid request (4.0: INVAL; 4.1: WRONG_TYPE).
        let wrong = if self.minor == 0 {
            Nfsstat4::NFS4ERR_INVAL
        } else {
            Nfsstat4::NFS4ERR_WRONG_TYPE
        };
        let object = self.object_or(wrong)?;
        let caller = self.caller(object)?;
        match self.ask(&caller, Request::ReadLink(object)).await {
            Ok(Answer::Link(text)) => Ok(text),
            Ok(_) => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
            Err(Nfsstat4::NFS4ERR_INVAL | Nfsstat4::NFS4ERR_WRONG_TYPE) => Err(wrong),
            Err(status) => Err(status),
        }
    }

    /// LINK (RFC 8881, section 18.9): of the saved object, in the current directory.
    pub(super) async fn link(&self, of: &Link4Args<'_>) -> Result<Link4Resok, Nfsstat4> {
        let object = self.saved_object()?;
        let directory = self.object()?;
        let name = name(&of.newname)?;
        let caller = self.changer(directory)?;
        let wants = Wants::change(object, caller.holder);
        let link = || {
            let request = Request::Link {
                object,
                directory,
                name: name.clone(),
            };
            self.ask(&caller, request)
        };
        match self.door.settling(&[wants], link).await? {
            Answer::Changed(info) => Ok(Link4Resok {
                cinfo: change(info),
            }),
            _ => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
        }
    }
}
