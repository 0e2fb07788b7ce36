//! GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR (RFC 8276). Names are those of the user's namespace,
//! without its prefix.

use files::{Answer, Request, SetXattr, XATTR_VALUE_LEN_MAX};

use crate::server::compound::{Compound, change, name, put};
use crate::server::conflicts::Wants;
use crate::wire::*;
use crate::xdr::{Encoder, Opaque};

impl Compound<'_> {
    /// GETXATTR (RFC 8276, section 8.4.1).
    pub(super) async fn getxattr(&self, of: &Getxattr4Args<'_>, out: &mut Encoder) -> Nfsstat4 {
        let value = self.xattr(of).await;
        let result = value
            .as_ref()
            .map(|value| Opaque::<{ u32::MAX as usize }>(value));
        put(
            out,
            NfsOpnum4::OP_GETXATTR,
            result.map_err(|status| *status),
        )
    }

    async fn xattr(&self, of: &Getxattr4Args<'_>) -> Result<Vec<u8>, Nfsstat4> {
        let object = self.object_or(Nfsstat4::NFS4ERR_NOXATTR)?;
        let caller = self.caller(object)?;
        let name = name(&of.gxa_name)?;
        match self.ask(&caller, Request::GetXattr(object, name)).await? {
            Answer::Value(value) => Ok(value),
            _ => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
        }
    }

    /// SETXATTR (RFC 8276, section 8.4.2).
    pub(super) async fn setxattr(&self, of: &Setxattr4Args<'_>) -> Result<ChangeInfo4, Nfsstat4> {
        let object = self.object()?;
        let caller = self.changer(object)?;
        let how = match of.sxa_option {
            SetxattrOption4::SETXATTR4_EITHER => SetXattr::Either,
            SetxattrOption4::SETXATTR4_CREATE => SetXattr::Create,
            SetxattrOption4::SETXATTR4_REPLACE => SetXattr::Replace,
            _ => return Err(Nfsstat4::NFS4ERR_INVAL),
        };
        if of.sxa_value.len() > XATTR_VALUE_LEN_MAX {
            return Err(Nfsstat4::NFS4ERR_XATTR2BIG);
        }
        let request = Request::SetXattr {
            object,
            name: name(&of.sxa_key)?,
            value: of.sxa_value.to_vec(),
            how,
        };
        let wants = Wants::change(object, caller.holder);
        let set = || self.ask(&caller, request.clone());
        match self.door.settling(&[wants], set).await? {
            Answer::Changed(info) => Ok(change(info)),
            _ => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
        }
    }

    /// LISTXATTRS (RFC 8276, section 8.4.3).
    pub(super) async fn listxattrs(&self, of: &Listxattrs4Args, out: &mut Encoder) -> Nfsstat4 {
        /// Bytes of a result before what the client has bounded: operation, status.
        const HEAD: usize = 8;
        /// Bytes of a result around its names: cookie, count, end.
        const FRAME: usize = 16;
        let room = (of.lxa_maxcount as usize)
            .min(self.room(out).saturating_sub(HEAD))
            .checked_sub(FRAME);
        let page = match room {
            Some(room) => self.xattr_names(of.lxa_cookie, room).await,
            None => Err(Nfsstat4::NFS4ERR_TOOSMALL),
        };
        let result = page
            .as_ref()
            .map(|(names, cookie, is_end)| Listxattrs4Resok {
                lxr_cookie: *cookie,
                lxr_names: names.iter().map(|name| Opaque(name)).collect(),
                lxr_eof: *is_end,
            });
        put(
            out,
            NfsOpnum4::OP_LISTXATTRS,
            result.map_err(|status| *status),
        )
    }

    async fn xattr_names(
        &self,
        cookie: u64,
        room: usize,
    ) -> Result<(Vec<files::Name>, u64, bool), Nfsstat4> {
        let object = self.object_or(Nfsstat4::NFS4ERR_NOTSUPP)?;
        let caller = self.caller(object)?;
        let request = Request::ListXattrs {
            object,
            cookie,
            bytes_max: u32::try_from(room).unwrap_or(u32::MAX),
        };
        let answer = self.ask(&caller, request).await?;
        let Answer::Names {
            names,
            cookie,
            is_end,
        } = answer
        else {
            return Err(Nfsstat4::NFS4ERR_SERVERFAULT);
        };
        let size = names.iter().map(files::Name::listed_len).sum::<usize>();
        // One name is told however long it is.
        if size > room {
            return Err(Nfsstat4::NFS4ERR_TOOSMALL);
        }
        Ok((names, cookie, is_end))
    }

    /// REMOVEXATTR (RFC 8276, section 8.4.4).
    pub(super) async fn removexattr(
        &self,
        of: &Removexattr4Args<'_>,
    ) -> Result<ChangeInfo4, Nfsstat4> {
        let object = self.object()?;
        let caller = self.changer(object)?;
        let name = name(&of.rxa_name)?;
        let wants = Wants::change(object, caller.holder);
        let remove = || self.ask(&caller, Request::RemoveXattr(object, name.clone()));
        match self.door.settling(&[wants], remove).await? {
            Answer::Changed(info) => Ok(change(info)),
            _ => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
        }
    }
}
