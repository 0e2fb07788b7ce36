//! Extended attributes.

use std::collections::BTreeMap;

use crate::{
    Access, Answer, Caller, ChangeInfo, Delegation, Error, Handle, Kind, Mode, Name, SetXattr,
    XATTR_VALUE_LEN_MAX,
};

use super::attributes::may_write;
use super::world::World;

struct Xattr {
    /// Where listings go on after it.
    cookie: u64,
    value: Vec<u8>,
}

/// An object's extended attributes.
#[derive(Default)]
pub(super) struct Xattrs {
    named: BTreeMap<Name, Xattr>,
    last_cookie: u64,
}

impl World {
    pub(super) fn get_xattr(
        &self,
        caller: &Caller,
        object: Handle,
        name: &Name,
    ) -> Result<Answer, Error> {
        self.object(object)?;
        if !self.has_xattrs(object)? {
            return Err(Error::NoXattr);
        }
        self.need(caller, object, Access::READ)?;
        let xattrs = &self.object(object)?.xattrs;
        let xattr = xattrs.named.get(name).ok_or(Error::NoXattr)?;
        Ok(Answer::Value(xattr.value.clone()))
    }

    pub(super) fn set_xattr(
        &mut self,
        caller: &Caller,
        object: Handle,
        name: Name,
        value: Vec<u8>,
        how: SetXattr,
    ) -> Result<Answer, Error> {
        self.object(object)?;
        if value.len() > XATTR_VALUE_LEN_MAX {
            return Err(Error::TooLarge);
        }
        self.may_change_xattrs(caller, object)?;
        let is_there = self.object(object)?.xattrs.named.contains_key(&name);
        match how {
            SetXattr::Create if is_there => return Err(Error::Exists),
            SetXattr::Replace if !is_there => return Err(Error::NoXattr),
            _ => self.recall(caller, object, Delegation::Write)?,
        }
        self.change_xattrs(object, |xattrs| {
            let last_cookie = &mut xattrs.last_cookie;
            let xattr = xattrs.named.entry(name).or_insert_with(|| {
                *last_cookie += 1;
                let cookie = *last_cookie;
                let value = Vec::new();
                Xattr { cookie, value }
            });
            xattr.value = value;
        })
    }

    pub(super) fn remove_xattr(
        &mut self,
        caller: &Caller,
        object: Handle,
        name: &Name,
    ) -> Result<Answer, Error> {
        self.object(object)?;
        self.may_change_xattrs(caller, object)?;
        if !self.object(object)?.xattrs.named.contains_key(name) {
            return Err(Error::NoXattr);
        }
        self.recall(caller, object, Delegation::Write)?;
        self.change_xattrs(object, |xattrs| {
            xattrs.named.remove(name);
        })
    }

    pub(super) fn list_xattrs(
        &self,
        caller: &Caller,
        object: Handle,
        cookie: u64,
        bytes_max: u32,
    ) -> Result<Answer, Error> {
        let xattrs = &self.object(object)?.xattrs;
        if self.has_xattrs(object)? {
            self.need(caller, object, Access::READ)?;
        }
        if cookie > xattrs.last_cookie {
            return Err(Error::BadCookie);
        }
        let named = xattrs.named.iter();
        let mut rest: Vec<(u64, &Name)> = named.map(|(name, xattr)| (xattr.cookie, name)).collect();
        rest.sort_unstable();
        rest.retain(|(at, _)| *at > cookie);
        let (mut names, mut last, mut bytes) = (Vec::new(), cookie, 0);
        for &(at, name) in &rest {
            bytes += name.listed_len();
            if bytes > bytes_max as usize && !names.is_empty() {
                break;
            }
            names.push(name.clone());
            last = at;
        }
        let is_end = names.len() == rest.len();
        Ok(Answer::Names {
            names,
            cookie: last,
            is_end,
        })
    }

    /// Only files and directories have any; what others' modes mean does not fit.
    fn has_xattrs(&self, object: Handle) -> Result<bool, Error> {
        let kind = self.object(object)?.attributes.kind;
        Ok(matches!(kind, Kind::File | Kind::Directory))
    }

    fn may_change_xattrs(&self, caller: &Caller, object: Handle) -> Result<(), Error> {
        let attributes = self.object(object)?.attributes;
        let is_owner = caller.uid == 0 || caller.uid == attributes.uid;
        let is_sticky = attributes.kind == Kind::Directory && attributes.mode.has(Mode::STICKY);
        if !self.has_xattrs(object)? || is_sticky && !is_owner {
            return Err(Error::NotPermitted);
        }
        match may_write(caller, &attributes) {
            true => Ok(()),
            false => Err(Error::AccessDenied),
        }
    }

    fn change_xattrs(
        &mut self,
        object: Handle,
        change: impl FnOnce(&mut Xattrs),
    ) -> Result<Answer, Error> {
        let now = self.now;
        let object = self.object_mut(object)?;
        let before = object.attributes.change;
        change(&mut object.xattrs);
        object.touch(now);
        let after = object.attributes.change;
        Ok(Answer::Changed(ChangeInfo { before, after }))
    }
}
