//! Who may do what, and what becomes of modes: POSIX as Linux has it.

use files::{
    Access, Attributes, Caller, Error, Kind, Mode, SetAttributes, SetTime, Timestamp, allowed,
};

/// Refuses a caller whom the mode does not allow it.
pub(crate) fn need(caller: &Caller, attributes: &Attributes, access: Access) -> Result<(), Error> {
    match allowed(caller, attributes).contains(access) {
        true => Ok(()),
        false => Err(Error::AccessDenied),
    }
}

/// Whether the write bit that counts for the caller is set, of a directory too without its search bit.
pub(crate) fn may_write(caller: &Caller, attributes: &Attributes) -> bool {
    let as_file = Attributes {
        kind: Kind::File,
        ..*attributes
    };
    allowed(caller, &as_file).contains(Access::MODIFY)
}

/// Who may remove an entry: who may change the directory, and of a sticky one only who owns it or the
/// object.
pub(crate) fn may_remove(
    caller: &Caller,
    directory: &Attributes,
    victim: &Attributes,
) -> Result<(), Error> {
    need(caller, directory, Access::DELETE)?;
    let owns = caller.uid == 0 || [directory.uid, victim.uid].contains(&caller.uid);
    match directory.mode.has(Mode::STICKY) && !owns {
        true => Err(Error::NotPermitted),
        false => Ok(()),
    }
}

/// Who may change which attributes, but for the size.
pub(crate) fn may_set(
    caller: &Caller,
    attributes: &Attributes,
    set: &SetAttributes,
) -> Result<(), Error> {
    if caller.uid == 0 {
        return Ok(());
    }
    let owns = caller.uid == attributes.uid;
    let keeps_owner = set.uid.is_none_or(|uid| owns && uid == attributes.uid);
    let keeps_group = set
        .gid
        .is_none_or(|gid| owns && (gid == attributes.gid || caller.is_in(gid)));
    let keeps_mode = set.mode.is_none() || owns;
    let is_to = |time| matches!(time, Some(SetTime::To(_)));
    let keeps_times = owns || !(is_to(set.atime) || is_to(set.mtime) || set.birth.is_some());
    if !(keeps_owner && keeps_group && keeps_mode && keeps_times) {
        return Err(Error::NotPermitted);
    }
    let is_now = [set.atime, set.mtime].contains(&Some(SetTime::Now));
    match is_now && !owns && !may_write(caller, attributes) {
        true => Err(Error::AccessDenied),
        false => Ok(()),
    }
}

/// Sets attributes but the size, for who may.
pub(crate) fn set(
    attributes: &mut Attributes,
    caller: &Caller,
    set: &SetAttributes,
    now: Timestamp,
) {
    let changes_owner = set.uid.is_some() || set.gid.is_some();
    let loses_privileges = changes_owner && attributes.kind != Kind::Directory;
    if loses_privileges {
        drop_privileges(attributes, caller);
    }
    attributes.uid = set.uid.unwrap_or(attributes.uid);
    attributes.gid = set.gid.unwrap_or(attributes.gid);
    if let Some(mode) = set.mode {
        attributes.mode = mode;
        if loses_privileges {
            drop_privileges(attributes, caller);
        } else if caller.uid != 0 && !caller.is_in(attributes.gid) {
            attributes.mode = mode.without(Mode::SET_GID);
        }
    }
    let at = |time| match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    attributes.atime = set.atime.map_or(attributes.atime, at);
    attributes.mtime = set.mtime.map_or(attributes.mtime, at);
    attributes.birth = set.birth.unwrap_or(attributes.birth);
}

/// A file does not run as its owner any more; nor as its group, if that is what the bit means (the group
/// may execute it) or the caller is a stranger to the group.
pub(crate) fn drop_privileges(attributes: &mut Attributes, caller: &Caller) {
    let mode = attributes.mode.without(Mode::SET_UID);
    let is_stranger = caller.uid != 0 && !caller.is_in(attributes.gid);
    attributes.mode = match mode.has(0o010) || is_stranger {
        true => mode.without(Mode::SET_GID),
        false => mode,
    };
}

/// Whether a write by this caller takes privileges from a file.
pub(crate) fn would_drop_privileges(attributes: &Attributes, caller: &Caller) -> bool {
    let mut after = *attributes;
    drop_privileges(&mut after, caller);
    caller.uid != 0 && after.mode != attributes.mode
}

/// The owner, group and mode of a new object in a directory.
pub(crate) fn of_new(
    caller: &Caller,
    directory: &Attributes,
    kind: Kind,
    set: &SetAttributes,
) -> Result<(u32, u32, Mode), Error> {
    let is_inherited = directory.mode.has(Mode::SET_GID);
    let usual_gid = if is_inherited {
        directory.gid
    } else {
        caller.gid
    };
    let uid = set.uid.unwrap_or(caller.uid);
    let gid = set.gid.unwrap_or(usual_gid);
    let gives_away = uid != caller.uid || (gid != usual_gid && !caller.is_in(gid));
    if gives_away && caller.uid != 0 {
        return Err(Error::NotPermitted);
    }
    let mode = match kind {
        Kind::Symlink => Mode::new(0o777),
        Kind::Directory => {
            let mode = set.mode.map_or(0o777, Mode::bits);
            let inherited = if is_inherited { Mode::SET_GID } else { 0 };
            Mode::new(mode | u32::from(inherited))
        }
        _ => {
            let mode = set.mode.unwrap_or(Mode::new(0o666));
            let is_stranger = caller.uid != 0 && !caller.is_in(gid);
            match is_stranger && mode.has(Mode::SET_GID | 0o010) {
                true => mode.without(Mode::SET_GID),
                false => mode,
            }
        }
    };
    Ok((uid, gid, mode))
}
