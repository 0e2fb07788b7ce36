//! Reading and changing attributes.

use crate::{
    Access, Answer, Attributes, Caller, Delegation, Error, Handle, Kind, Mode, SetAttributes,
    SetTime, Share, Timestamp, allowed,
};

use super::io::SIZE_MAX;
use super::world::{Body, Object, World};

impl World {
    pub(super) fn get_attributes(&self, object: Handle) -> Result<Answer, Error> {
        self.attributes(object).map(Answer::Attributes)
    }

    pub(super) fn access(
        &self,
        caller: &Caller,
        object: Handle,
        wanted: Access,
    ) -> Result<Answer, Error> {
        let object = self.object(object)?;
        Ok(Answer::Access(allowed(caller, &object.attributes) & wanted))
    }

    pub(super) fn set_attributes(
        &mut self,
        caller: &Caller,
        handle: Handle,
        set: &SetAttributes,
    ) -> Result<Answer, Error> {
        let object = self.object(handle)?;
        if let Some(size) = set.size {
            object.bytes()?;
            if size > SIZE_MAX {
                return Err(Error::FileTooLarge);
            }
        }
        if set.mode.is_some() && object.attributes.kind == Kind::Symlink {
            return Err(Error::NotSupported);
        }
        may_set(caller, &object.attributes, set)?;
        if set.size.is_some() {
            self.need_share(caller, handle, Share::WRITE)?;
            self.need_undenied(caller, handle, Share::WRITE)?;
        }
        if *set == SetAttributes::default() {
            return self.get_attributes(handle);
        }
        self.recall(caller, handle, Delegation::Write)?;
        let now = self.now;
        let object = self.object_mut(handle)?;
        object.set(caller, set, now);
        if let Body::File { verifier, .. } = &mut object.body {
            *verifier = None;
        }
        self.get_attributes(handle)
    }
}

impl Object {
    /// Sets what the caller may set.
    pub(super) fn set(&mut self, caller: &Caller, set: &SetAttributes, now: Timestamp) {
        if let (Some(size), Body::File { bytes, .. }) = (set.size, &mut self.body) {
            if size < self.attributes.size {
                bytes.truncate(size);
            }
            self.attributes.size = size;
            self.attributes.mtime = now;
            self.drop_privileges(caller);
        }
        let is_chown = set.uid.is_some() || set.gid.is_some();
        let is_directory = self.attributes.kind == Kind::Directory;
        if is_chown && !is_directory {
            self.attributes.mode = without_privileges(&self.attributes, caller);
        }
        self.attributes.uid = set.uid.unwrap_or(self.attributes.uid);
        self.attributes.gid = set.gid.unwrap_or(self.attributes.gid);
        if let Some(mode) = set.mode {
            self.attributes.mode = mode;
            if is_chown && !is_directory {
                self.attributes.mode = without_privileges(&self.attributes, caller);
            } else if caller.uid != 0 && !caller.is_in(self.attributes.gid) {
                self.attributes.mode = mode.without(Mode::SET_GID);
            }
        }
        let at = |time| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        self.attributes.atime = set.atime.map_or(self.attributes.atime, at);
        self.attributes.mtime = set.mtime.map_or(self.attributes.mtime, at);
        self.attributes.birth = set.birth.unwrap_or(self.attributes.birth);
        self.touch(now);
    }

    /// A file that somebody but the superuser writes loses the bits by which it runs as another.
    pub(super) fn drop_privileges(&mut self, caller: &Caller) {
        if caller.uid != 0 {
            self.attributes.mode = without_privileges(&self.attributes, caller);
        }
    }
}

/// A mode without the set-user-id bit, and without the set-group-id bit if the group may execute (else
/// it does not mean that) or the caller is not in it.
fn without_privileges(attributes: &Attributes, caller: &Caller) -> Mode {
    let mode = attributes.mode.without(Mode::SET_UID);
    let is_member = caller.uid == 0 || caller.is_in(attributes.gid);
    match mode.has(0o010) || !is_member {
        true => mode.without(Mode::SET_GID),
        false => mode,
    }
}

/// Who may change what, but for the size.
fn may_set(caller: &Caller, attributes: &Attributes, set: &SetAttributes) -> Result<(), Error> {
    if caller.uid == 0 {
        return Ok(());
    }
    let is_owner = caller.uid == attributes.uid;
    let gives_away = set.uid.is_some_and(|uid| uid != attributes.uid);
    let is_stranger = |gid: u32| gid != attributes.gid && !caller.is_in(gid);
    let only_owner = set.uid.is_some() || set.gid.is_some() || set.mode.is_some();
    if gives_away || set.gid.is_some_and(is_stranger) || only_owner && !is_owner {
        return Err(Error::NotPermitted);
    }
    let times = [set.atime, set.mtime];
    let to = |time| matches!(time, Some(SetTime::To(_)));
    if (times.into_iter().any(to) || set.birth.is_some()) && !is_owner {
        return Err(Error::NotPermitted);
    }
    let is_now = times.contains(&Some(SetTime::Now));
    if is_now && !is_owner && !may_write(caller, attributes) {
        return Err(Error::AccessDenied);
    }
    Ok(())
}

/// Whether the mode lets a caller write: of directories too, without looking for the right to search.
pub(super) fn may_write(caller: &Caller, attributes: &Attributes) -> bool {
    let as_file = Attributes {
        kind: Kind::File,
        ..*attributes
    };
    allowed(caller, &as_file).contains(Access::MODIFY)
}

/// The owner, group and mode of a new object in a directory.
pub(super) fn of_new(
    caller: &Caller,
    directory: &Attributes,
    kind: Kind,
    set: &SetAttributes,
) -> Result<(u32, u32, Mode), Error> {
    let inherits = directory.mode.has(Mode::SET_GID);
    let own_gid = if inherits { directory.gid } else { caller.gid };
    let (uid, gid) = (set.uid.unwrap_or(caller.uid), set.gid.unwrap_or(own_gid));
    let is_strange = uid != caller.uid || gid != own_gid && !caller.is_in(gid);
    if caller.uid != 0 && is_strange {
        return Err(Error::NotPermitted);
    }
    let (default, setgid) = match kind {
        Kind::Symlink => return Ok((uid, gid, Mode::new(0o777))),
        Kind::Directory => (0o777, inherits),
        _ => (0o666, false),
    };
    let mode = set.mode.unwrap_or(Mode::new(default));
    if kind == Kind::Directory {
        let inherited = if setgid { u32::from(Mode::SET_GID) } else { 0 };
        return Ok((uid, gid, Mode::new(mode.bits() | inherited)));
    }
    let is_stranger = caller.uid != 0 && !caller.is_in(gid);
    let runs_as_group = mode.has(Mode::SET_GID | 0o010);
    let mode = if runs_as_group && is_stranger {
        mode.without(Mode::SET_GID)
    } else {
        mode
    };
    Ok((uid, gid, mode))
}
