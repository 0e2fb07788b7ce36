//! Extended attributes: a row each, by a cookie of its name as entries of directories.

use files::{
    Access, Answer, Caller, Error, Handle, Kind, Mode, Name, SetXattr, XATTR_VALUE_LEN_MAX,
};
use meta::Row;

use crate::commit::Draft;
use crate::format::inode::Inode;
use crate::format::keys::{self, RowKind};
use crate::format::rows::Xattr;
use crate::inner::{BAD_KEY, Inner, Job, Loaded, Stop, bad_row};
use crate::names::Names;
use crate::rules::{may_write, need};

/// Names that are read at once at most: values come with them.
const SCAN_MAX: usize = 16;

/// An extended attribute that is there.
struct Found {
    xattr: Xattr,
    cookie: u64,
    row: Row,
}

impl Inner {
    pub(super) async fn get_xattr(
        &self,
        job: &Job<'_>,
        object: Handle,
        name: &Name,
    ) -> Result<Answer, Stop> {
        let loaded = self.load(object).await?;
        if !may_have_xattrs(&loaded) {
            return Err(Error::NoXattr.into());
        }
        need(job.caller, &loaded.inode.attributes, Access::READ)?;
        let (found, _) = self.find_xattr(object, &loaded, name).await?;
        let found = found.ok_or(Error::NoXattr)?;
        Ok(Answer::Value(found.xattr.value))
    }

    pub(super) async fn set_xattr(
        &self,
        job: &Job<'_>,
        object: Handle,
        (name, value): (&Name, &Vec<u8>),
        how: SetXattr,
    ) -> Result<Answer, Stop> {
        let loaded = self.load(object).await?;
        if value.len() > XATTR_VALUE_LEN_MAX {
            return Err(Error::TooLarge.into());
        }
        may_change_xattrs(job.caller, &loaded)?;
        let (found, free) = self.find_xattr(object, &loaded, name).await?;
        match (how, &found) {
            (SetXattr::Create, Some(_)) => return Err(Error::Exists.into()),
            (SetXattr::Replace, None) => return Err(Error::NoXattr.into()),
            _ => self.recall_for(job, object)?,
        }
        let mut draft = Draft::default();
        let key = match &found {
            Some(found) => {
                let key = keys::part(RowKind::Xattr, object, found.cookie);
                draft.version(key.clone(), found.row.version);
                key
            }
            None => {
                let key = keys::part(RowKind::Xattr, object, free.ok_or(Error::NoSpace)?);
                draft.absent(key.clone());
                key
            }
        };
        let xattr = Xattr {
            name: name.clone(),
            value: value.clone(),
        };
        draft.put(key, xattr.encode());
        self.change_xattrs(job, draft, object, &loaded).await
    }

    pub(super) async fn remove_xattr(
        &self,
        job: &Job<'_>,
        object: Handle,
        name: &Name,
    ) -> Result<Answer, Stop> {
        let loaded = self.load(object).await?;
        may_change_xattrs(job.caller, &loaded)?;
        let (found, _) = self.find_xattr(object, &loaded, name).await?;
        let found = found.ok_or(Error::NoXattr)?;
        self.recall_for(job, object)?;
        let mut draft = Draft::default();
        let key = keys::part(RowKind::Xattr, object, found.cookie);
        draft.version(key.clone(), found.row.version);
        draft.delete(key);
        self.change_xattrs(job, draft, object, &loaded).await
    }

    pub(super) async fn list_xattrs(
        &self,
        job: &Job<'_>,
        object: Handle,
        (cookie, bytes_max): (u64, u32),
    ) -> Result<Answer, Stop> {
        let loaded = self.load(object).await?;
        if may_have_xattrs(&loaded) {
            need(job.caller, &loaded.inode.attributes, Access::READ)?;
        }
        if cookie >> 63 != 0 {
            return Err(Error::BadCookie.into());
        }
        let (mut names, mut bytes, mut after) = (Vec::new(), 0, cookie);
        let mut is_end = !loaded.inode.has_xattrs;
        'pages: while !is_end {
            let range = keys::parts_from(RowKind::Xattr, object, after + 1, u64::MAX);
            let rows = self.scan(range, SCAN_MAX).await?;
            is_end = rows.len() < SCAN_MAX;
            for (key, row) in rows {
                let xattr = Xattr::decode(&row.value).map_err(|bad| bad_row(&key, bad))?;
                let (_, cookie) = keys::part_of(&key).ok_or_else(|| bad_row(&key, BAD_KEY))?;
                bytes += xattr.name.listed_len();
                if bytes > bytes_max as usize && !names.is_empty() {
                    is_end = false;
                    break 'pages;
                }
                names.push(xattr.name);
                after = cookie;
            }
        }
        Ok(Answer::Names {
            names,
            cookie: after,
            is_end,
        })
    }

    /// The attribute of a name, and the first cookie of its hash that is free.
    async fn find_xattr(
        &self,
        object: Handle,
        loaded: &Loaded,
        name: &Name,
    ) -> Result<(Option<Found>, Option<u64>), Error> {
        let first = self.names.first(name);
        if !loaded.inode.has_xattrs {
            return Ok((None, Some(first)));
        }
        let last = Names::last(first);
        let mut free = Some(first);
        let range = keys::parts_from(RowKind::Xattr, object, first, last);
        for (key, row) in self.scan(range, 256).await? {
            let xattr = Xattr::decode(&row.value).map_err(|bad| bad_row(&key, bad))?;
            let (_, cookie) = keys::part_of(&key).ok_or_else(|| bad_row(&key, BAD_KEY))?;
            if xattr.name == *name {
                return Ok((Some(Found { xattr, cookie, row }), free));
            }
            if free == Some(cookie) {
                free = (cookie < last).then_some(cookie + 1);
            }
        }
        Ok((None, free))
    }

    async fn change_xattrs(
        &self,
        job: &Job<'_>,
        mut draft: Draft,
        object: Handle,
        loaded: &Loaded,
    ) -> Result<Answer, Stop> {
        let mut inode = Inode::clone(&loaded.inode);
        inode.has_xattrs = true;
        let change = inode.touch_attributes(self.now());
        draft.put_inode(object, loaded, inode);
        self.finish(job, draft, Answer::Changed(change)).await
    }
}

/// Only files and directories have any: what others' modes mean does not fit.
fn may_have_xattrs(loaded: &Loaded) -> bool {
    matches!(loaded.inode.attributes.kind, Kind::File | Kind::Directory)
}

fn may_change_xattrs(caller: &Caller, loaded: &Loaded) -> Result<(), Error> {
    let attributes = &loaded.inode.attributes;
    let owns = [0, attributes.uid].contains(&caller.uid);
    let is_sticky = loaded.inode.is_directory() && attributes.mode.has(Mode::STICKY);
    if !may_have_xattrs(loaded) || is_sticky && !owns {
        return Err(Error::NotPermitted);
    }
    match may_write(caller, attributes) {
        true => Ok(()),
        false => Err(Error::AccessDenied),
    }
}
