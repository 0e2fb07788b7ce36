//! LOOKUP, LOOKUPP, SECINFO, SECINFO_NO_NAME.

use files::{Answer, FileId, Handle, Kind, Request};

use crate::server::compound::{Compound, name};
use crate::server::handles::Place;
use crate::wire::*;

impl Compound<'_> {
    /// LOOKUP (RFC 8881, section 18.13).
    pub(super) async fn lookup(&mut self, component: &Component4<'_>) -> Result<(), Nfsstat4> {
        let place = self.find(component).await?;
        self.go(place);
        Ok(())
    }

    /// What a name in the current directory leads to.
    async fn find(&self, component: &Component4<'_>) -> Result<Place, Nfsstat4> {
        let name = name(component)?;
        match self.place()? {
            Place::Pseudo(node) => {
                let found = self.door.exports.lookup(node, &name);
                found.ok_or(Nfsstat4::NFS4ERR_NOENT)
            }
            Place::Object(directory) => {
                let caller = self.caller(directory)?;
                match self.ask(&caller, Request::Lookup(directory, name)).await {
                    Ok(Answer::Found(handle, _)) => Ok(Place::Object(handle)),
                    Ok(_) => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
                    Err(status) => Err(self.through_symlink(directory, status).await),
                }
            }
        }
    }

    /// A symbolic link in the place of a directory has a code of its own, so that clients resolve it.
    pub(super) async fn through_symlink(&self, directory: Handle, status: Nfsstat4) -> Nfsstat4 {
        if status != Nfsstat4::NFS4ERR_NOTDIR {
            return status;
        }
        let Ok(caller) = self.caller(directory) else {
            return status;
        };
        match self.ask(&caller, Request::GetAttributes(directory)).await {
            Ok(Answer::Attributes(of)) if of.kind == Kind::Symlink => Nfsstat4::NFS4ERR_SYMLINK,
            _ => status,
        }
    }

    /// LOOKUPP (RFC 8881, section 18.14).
    pub(super) async fn lookupp(&mut self) -> Result<(), Nfsstat4> {
        let parent = self.above().await?;
        self.go(parent);
        Ok(())
    }

    async fn above(&self) -> Result<Place, Nfsstat4> {
        let none = Nfsstat4::NFS4ERR_NOENT;
        match self.place()? {
            Place::Pseudo(node) => self.door.exports.parent(node).ok_or(none),
            Place::Object(object) if object.file == FileId::ROOT => {
                self.door.exports.above(object.volume).ok_or(none)
            }
            Place::Object(object) => {
                let caller = self.caller(object)?;
                match self.ask(&caller, Request::Parent(object)).await {
                    Ok(Answer::Found(handle, _)) => Ok(Place::Object(handle)),
                    Ok(_) => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
                    Err(status) => Err(self.through_symlink(object, status).await),
                }
            }
        }
    }

    /// SECINFO (RFC 8881, section 18.29): AUTH_SYS everywhere. The current file handle is used up.
    pub(super) async fn secinfo(
        &mut self,
        component: &Component4<'_>,
    ) -> Result<Secinfo4Resok<'static>, Nfsstat4> {
        self.find(component).await?;
        if self.minor > 0 {
            self.current = None;
        }
        Ok(flavors())
    }

    /// SECINFO_NO_NAME (RFC 8881, section 18.45).
    pub(super) async fn secinfo_no_name(
        &mut self,
        style: SecinfoStyle4,
    ) -> Result<Secinfo4Resok<'static>, Nfsstat4> {
        match style {
            SecinfoStyle4::SECINFO_STYLE4_CURRENT_FH => {
                self.place()?;
            }
            SecinfoStyle4::SECINFO_STYLE4_PARENT => {
                self.above().await?;
            }
            _ => return Err(Nfsstat4::NFS4ERR_INVAL),
        }
        self.current = None;
        Ok(flavors())
    }
}

/// How callers may show who they are, the best first.
fn flavors() -> Secinfo4Resok<'static> {
    vec![Secinfo4::Default(AUTH_SYS), Secinfo4::Default(AUTH_NONE)]
}
