//! CREATE, REMOVE, RENAME.

use files::{Answer, Device, New, Request, SYMLINK_LEN_MAX};

use crate::server::attributes::to_set;
use crate::server::compound::{Compound, change, name};
use crate::server::handles::Place;
use crate::wire::*;

impl Compound<'_> {
    /// CREATE (RFC 8881, section 18.4): of what is no regular file.
    pub(super) async fn create(&mut self, of: &Create4Args<'_>) -> Result<Create4Resok, Nfsstat4> {
        let directory = self.object()?;
        let name = name(&of.objname)?;
        let new = new(&of.objtype)?;
        let (attributes, mask) = to_set(&of.createattrs, self.minor)?;
        if attributes.size.is_some() {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        let caller = self.changer(directory)?;
        let request = Request::Create {
            directory,
            name,
            new,
            attributes,
        };
        let created = self.ask(&caller, request).await?;
        let Answer::Created {
            handle, directory, ..
        } = created
        else {
            return Err(Nfsstat4::NFS4ERR_SERVERFAULT);
        };
        self.go(Place::Object(handle));
        Ok(Create4Resok {
            cinfo: change(directory),
            attrset: mask,
        })
    }

    /// REMOVE (RFC 8881, section 18.25).
    pub(super) async fn remove(&self, of: &Remove4Args<'_>) -> Result<Remove4Resok, Nfsstat4> {
        let directory = self.object()?;
        let name = name(&of.target)?;
        let caller = self.changer(directory)?;
        let remove = || {
            let request = Request::Remove {
                directory,
                name: name.clone(),
                directory_only: None,
            };
            self.ask(&caller, request)
        };
        let names = [(directory, &name)];
        match self
            .door
            .settling_names(&names, caller.holder, remove)
            .await?
        {
            Answer::Changed(info) => Ok(Remove4Resok {
                cinfo: change(info),
            }),
            _ => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
        }
    }

    /// RENAME (RFC 8881, section 18.26): from the saved directory to the current one.
    pub(super) async fn rename(&self, of: &Rename4Args<'_>) -> Result<Rename4Resok, Nfsstat4> {
        let from = self.saved_object()?;
        let to = self.object()?;
        let (from_name, to_name) = (name(&of.oldname)?, name(&of.newname)?);
        let caller = self.changer(from)?;
        let rename = || {
            let request = Request::Rename {
                from,
                from_name: from_name.clone(),
                to,
                to_name: to_name.clone(),
            };
            self.ask(&caller, request)
        };
        let names = [(from, &from_name), (to, &to_name)];
        match self
            .door
            .settling_names(&names, caller.holder, rename)
            .await?
        {
            Answer::Renamed { from, to } => Ok(Rename4Resok {
                source_cinfo: change(from),
                target_cinfo: change(to),
            }),
            _ => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
        }
    }
}

/// What is to be made.
fn new(of: &Createtype4<'_>) -> Result<New, Nfsstat4> {
    let device = |numbers: &Specdata4| Device {
        major: numbers.specdata1,
        minor: numbers.specdata2,
    };
    Ok(match of {
        Createtype4::Nf4Dir => New::Directory,
        Createtype4::Nf4Lnk(text) if text.is_empty() || text.contains(&0) => {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        Createtype4::Nf4Lnk(text) if text.len() > SYMLINK_LEN_MAX => {
            return Err(Nfsstat4::NFS4ERR_NAMETOOLONG);
        }
        Createtype4::Nf4Lnk(text) => New::Symlink(text.to_vec()),
        Createtype4::Nf4Blk(numbers) => New::BlockDevice(device(numbers)),
        Createtype4::Nf4Chr(numbers) => New::CharDevice(device(numbers)),
        Createtype4::Nf4Fifo => New::Fifo,
        Createtype4::Nf4Sock => New::Socket,
        Createtype4::Default(_) => return Err(Nfsstat4::NFS4ERR_BADTYPE),
    })
}
