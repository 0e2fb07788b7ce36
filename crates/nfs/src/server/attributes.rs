//! Attributes of files as `fattr4`, both ways (RFC 8881, section 5).

use files::{
    Attributes, FsStat, Kind, Mode, NAME_LEN_MAX, SetAttributes, SetTime, Timestamp, VolumeId,
};

use crate::wire::*;
use crate::xdr::Opaque;

/// What can be asked for or set, on every object.
pub(super) const SUPPORTED: Bitmap4 = Bitmap4::of(&[
    FATTR4_SUPPORTED_ATTRS,
    FATTR4_TYPE,
    FATTR4_FH_EXPIRE_TYPE,
    FATTR4_CHANGE,
    FATTR4_SIZE,
    FATTR4_LINK_SUPPORT,
    FATTR4_SYMLINK_SUPPORT,
    FATTR4_NAMED_ATTR,
    FATTR4_FSID,
    FATTR4_UNIQUE_HANDLES,
    FATTR4_LEASE_TIME,
    FATTR4_RDATTR_ERROR,
    FATTR4_ACLSUPPORT,
    FATTR4_CANSETTIME,
    FATTR4_CASE_INSENSITIVE,
    FATTR4_CASE_PRESERVING,
    FATTR4_CHOWN_RESTRICTED,
    FATTR4_FILEHANDLE,
    FATTR4_FILEID,
    FATTR4_FILES_AVAIL,
    FATTR4_FILES_FREE,
    FATTR4_FILES_TOTAL,
    FATTR4_HOMOGENEOUS,
    FATTR4_MAXFILESIZE,
    FATTR4_MAXLINK,
    FATTR4_MAXNAME,
    FATTR4_MAXREAD,
    FATTR4_MAXWRITE,
    FATTR4_MODE,
    FATTR4_NO_TRUNC,
    FATTR4_NUMLINKS,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_RAWDEV,
    FATTR4_SPACE_AVAIL,
    FATTR4_SPACE_FREE,
    FATTR4_SPACE_TOTAL,
    FATTR4_SPACE_USED,
    FATTR4_TIME_ACCESS,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_CREATE,
    FATTR4_TIME_DELTA,
    FATTR4_TIME_METADATA,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_MODIFY_SET,
    FATTR4_MOUNTED_ON_FILEID,
]);

/// What came with 4.1.
const SUPPORTED_41: Bitmap4 = Bitmap4::of(&[FATTR4_SUPPATTR_EXCLCREAT]);

/// What came with 4.2 and after it.
const SUPPORTED_42: Bitmap4 = Bitmap4::of(&[
    FATTR4_CHANGE_ATTR_TYPE,
    FATTR4_CLONE_BLKSIZE,
    FATTR4_XATTR_SUPPORT,
    FATTR4_MODE_UMASK,
]);

/// What an exclusive create can set besides: times hold no verifier here.
const EXCLUSIVE: Bitmap4 = Bitmap4::of(&[
    FATTR4_MODE,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_SIZE,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_CREATE,
    FATTR4_TIME_MODIFY_SET,
    FATTR4_MODE_UMASK,
]);

/// What needs a volume's room.
const OF_VOLUME: Bitmap4 = Bitmap4::of(&[
    FATTR4_FILES_AVAIL,
    FATTR4_FILES_FREE,
    FATTR4_FILES_TOTAL,
    FATTR4_SPACE_AVAIL,
    FATTR4_SPACE_FREE,
    FATTR4_SPACE_TOTAL,
]);

/// Bytes of a file at most: offsets are signed for POSIX.
const SIZE_MAX: u64 = i64::MAX as u64;

/// What a minor version supports.
pub(super) fn supported(minor: u32) -> Bitmap4 {
    match minor {
        0 => SUPPORTED,
        1 => SUPPORTED.union(&SUPPORTED_41),
        _ => SUPPORTED.union(&SUPPORTED_41).union(&SUPPORTED_42),
    }
}

/// Whether a volume's room is among what is wanted.
pub(super) fn wants_room(wanted: &Bitmap4) -> bool {
    !wanted.and(&OF_VOLUME).is_empty()
}

/// What is told of an object beside its attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) minor: u32,
    pub(super) lease_s: u32,
    /// Bytes of a READ or WRITE at most.
    pub(super) io_max: u32,
    pub(super) handle: &'a [u8],
    /// None: above all volumes.
    pub(super) volume: Option<VolumeId>,
    /// What the directory would be if nothing was mounted on it.
    pub(super) mounted_on: u64,
    /// If [`wants_room`].
    pub(super) room: FsStat,
}

/// An attribute's value; none: it is not supported.
pub(super) fn value<'v>(
    number: u32,
    of: &Attributes,
    texts: &'v OwnerTexts,
    context: &Context<'v>,
) -> Option<Attribute<'v>> {
    if !supported(context.minor).has(number) {
        return None;
    }
    let (handle, room) = (context.handle, &context.room);
    Some(match number {
        FATTR4_SUPPORTED_ATTRS => Attribute::SupportedAttrs(supported(context.minor)),
        FATTR4_TYPE => Attribute::Type(kind(of.kind)),
        FATTR4_FH_EXPIRE_TYPE => Attribute::FhExpireType(FH4_PERSISTENT),
        FATTR4_CHANGE => Attribute::Change(of.change),
        FATTR4_SIZE => Attribute::Size(of.size),
        FATTR4_LINK_SUPPORT => Attribute::LinkSupport(true),
        FATTR4_SYMLINK_SUPPORT => Attribute::SymlinkSupport(true),
        FATTR4_NAMED_ATTR => Attribute::NamedAttr(false),
        FATTR4_FSID => Attribute::Fsid(Fsid4 {
            major: context.volume.map_or(0, |volume| u64::from(volume.0) + 1),
            minor: 0,
        }),
        FATTR4_UNIQUE_HANDLES => Attribute::UniqueHandles(true),
        FATTR4_LEASE_TIME => Attribute::LeaseTime(context.lease_s),
        FATTR4_RDATTR_ERROR => Attribute::RdattrError(Nfsstat4::NFS4_OK),
        FATTR4_ACLSUPPORT => Attribute::Aclsupport(0),
        FATTR4_CANSETTIME => Attribute::Cansettime(true),
        FATTR4_CASE_INSENSITIVE => Attribute::CaseInsensitive(false),
        FATTR4_CASE_PRESERVING => Attribute::CasePreserving(true),
        FATTR4_CHOWN_RESTRICTED => Attribute::ChownRestricted(true),
        FATTR4_FILEHANDLE => Attribute::Filehandle(Opaque(handle)),
        FATTR4_FILEID => Attribute::Fileid(of.file.0),
        FATTR4_FILES_AVAIL => Attribute::FilesAvail(room.files_free),
        FATTR4_FILES_FREE => Attribute::FilesFree(room.files_free),
        FATTR4_FILES_TOTAL => Attribute::FilesTotal(room.files_total),
        FATTR4_HOMOGENEOUS => Attribute::Homogeneous(true),
        FATTR4_MAXFILESIZE => Attribute::Maxfilesize(SIZE_MAX),
        FATTR4_MAXLINK => Attribute::Maxlink(u32::MAX),
        FATTR4_MAXNAME => Attribute::Maxname(NAME_LEN_MAX as u32),
        FATTR4_MAXREAD => Attribute::Maxread(u64::from(context.io_max)),
        FATTR4_MAXWRITE => Attribute::Maxwrite(u64::from(context.io_max)),
        FATTR4_MODE => Attribute::Mode(of.mode.bits()),
        FATTR4_NO_TRUNC => Attribute::NoTrunc(true),
        FATTR4_NUMLINKS => Attribute::Numlinks(of.links),
        FATTR4_OWNER => Attribute::Owner(Opaque(texts.owner.as_bytes())),
        FATTR4_OWNER_GROUP => Attribute::OwnerGroup(Opaque(texts.group.as_bytes())),
        FATTR4_RAWDEV => Attribute::Rawdev(device(of.kind)),
        FATTR4_SPACE_AVAIL => Attribute::SpaceAvail(room.bytes_free),
        FATTR4_SPACE_FREE => Attribute::SpaceFree(room.bytes_free),
        FATTR4_SPACE_TOTAL => Attribute::SpaceTotal(room.bytes_total),
        FATTR4_SPACE_USED => Attribute::SpaceUsed(of.used),
        FATTR4_TIME_ACCESS => Attribute::TimeAccess(time(of.atime)),
        FATTR4_TIME_CREATE => Attribute::TimeCreate(time(of.birth)),
        FATTR4_TIME_DELTA => Attribute::TimeDelta(Nfstime4 {
            seconds: 0,
            nseconds: 1,
        }),
        FATTR4_TIME_METADATA => Attribute::TimeMetadata(time(of.ctime)),
        FATTR4_TIME_MODIFY => Attribute::TimeModify(time(of.mtime)),
        FATTR4_MOUNTED_ON_FILEID => Attribute::MountedOnFileid(context.mounted_on),
        FATTR4_SUPPATTR_EXCLCREAT => {
            Attribute::SuppattrExclcreat(EXCLUSIVE.and(&supported(context.minor)))
        }
        FATTR4_CHANGE_ATTR_TYPE => {
            Attribute::ChangeAttrType(ChangeAttrType4::NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR)
        }
        FATTR4_CLONE_BLKSIZE => Attribute::CloneBlksize(4096),
        FATTR4_XATTR_SUPPORT => Attribute::XattrSupport(context.volume.is_some()),
        _ => return None,
    })
}

/// Owner and group as clients get them: numbers (RFC 7530, section 5.9), since that is what AUTH_SYS
/// speaks of.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerTexts {
    owner: String,
    group: String,
}

impl OwnerTexts {
    pub(super) fn new(of: &Attributes, wanted: &Bitmap4) -> Self {
        let text = |number: u32, id: u32| {
            if wanted.has(number) {
                id.to_string()
            } else {
                String::new()
            }
        };
        Self {
            owner: text(FATTR4_OWNER, of.uid),
            group: text(FATTR4_OWNER_GROUP, of.gid),
        }
    }
}

pub(super) fn kind(kind: Kind) -> NfsFtype4 {
    match kind {
        Kind::File => NfsFtype4::NF4REG,
        Kind::Directory => NfsFtype4::NF4DIR,
        Kind::Symlink => NfsFtype4::NF4LNK,
        Kind::BlockDevice(_) => NfsFtype4::NF4BLK,
        Kind::CharDevice(_) => NfsFtype4::NF4CHR,
        Kind::Fifo => NfsFtype4::NF4FIFO,
        Kind::Socket => NfsFtype4::NF4SOCK,
    }
}

fn device(kind: Kind) -> Specdata4 {
    let (major, minor) = match kind {
        Kind::BlockDevice(device) | Kind::CharDevice(device) => (device.major, device.minor),
        _ => (0, 0),
    };
    Specdata4 {
        specdata1: major,
        specdata2: minor,
    }
}

fn time(time: Timestamp) -> Nfstime4 {
    Nfstime4 {
        seconds: time.seconds,
        nseconds: time.nanoseconds,
    }
}

/// What a client wants to set, and which attributes that were.
///
/// # Errors
/// ATTRNOTSUPP, INVAL (an attribute that can only be read, a time that is none), BADOWNER (names
/// without numbers), BADXDR.
pub(super) fn to_set(from: &Fattr4<'_>, minor: u32) -> Result<(SetAttributes, Bitmap4), Nfsstat4> {
    let mut set = SetAttributes::default();
    for attribute in from.attributes() {
        let attribute = attribute.map_err(|error| match error {
            AttributeError::Xdr(_) => Nfsstat4::NFS4ERR_BADXDR,
            _ => Nfsstat4::NFS4ERR_ATTRNOTSUPP,
        })?;
        if !supported(minor).has(attribute.number()) {
            return Err(Nfsstat4::NFS4ERR_ATTRNOTSUPP);
        }
        match attribute {
            Attribute::Size(size) if size > SIZE_MAX => return Err(Nfsstat4::NFS4ERR_FBIG),
            Attribute::Size(size) => set.size = Some(size),
            Attribute::Mode(mode) if mode > 0o7777 => return Err(Nfsstat4::NFS4ERR_INVAL),
            Attribute::Mode(mode) => set.mode = Some(Mode::new(mode)),
            // Without default ACLs a directory's umask is the client's (RFC 8275, section 4).
            Attribute::ModeUmask(mode) => set.mode = Some(Mode::new(mode.mu_mode & !mode.mu_umask)),
            Attribute::Owner(owner) => set.uid = Some(number(&owner)?),
            Attribute::OwnerGroup(group) => set.gid = Some(number(&group)?),
            Attribute::TimeAccessSet(time) => set.atime = Some(set_time(&time)?),
            Attribute::TimeModifySet(time) => set.mtime = Some(set_time(&time)?),
            Attribute::TimeCreate(time) => set.birth = Some(timestamp(&time)?),
            _ => return Err(Nfsstat4::NFS4ERR_INVAL),
        }
    }
    Ok((set, from.attrmask))
}

/// A user or group: a number, or the superuser's name, with or without a domain.
fn number(text: &[u8]) -> Result<u32, Nfsstat4> {
    let text = std::str::from_utf8(text).map_err(|_| Nfsstat4::NFS4ERR_INVAL)?;
    let name = text.split_once('@').map_or(text, |(name, _)| name);
    match name {
        "root" => Ok(0),
        "nobody" | "nogroup" => Ok(65534),
        digits if digits.starts_with('+') => Err(Nfsstat4::NFS4ERR_BADOWNER),
        digits => digits.parse().map_err(|_| Nfsstat4::NFS4ERR_BADOWNER),
    }
}

fn set_time(time: &Settime4) -> Result<SetTime, Nfsstat4> {
    match time {
        Settime4::SetToClientTime4(time) => timestamp(time).map(SetTime::To),
        Settime4::Default(_) => Ok(SetTime::Now),
    }
}

fn timestamp(time: &Nfstime4) -> Result<Timestamp, Nfsstat4> {
    match time.nseconds {
        0..1_000_000_000 => Ok(Timestamp {
            seconds: time.seconds,
            nanoseconds: time.nseconds,
        }),
        _ => Err(Nfsstat4::NFS4ERR_INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Encoder, from_bytes};

    fn fattr(attributes: &[Attribute<'_>]) -> Vec<u8> {
        let wanted: Bitmap4 = attributes.iter().map(Attribute::number).collect();
        let mut to = Encoder::default();
        put_attributes(&mut to, &wanted, |number| {
            attributes
                .iter()
                .find(|one| one.number() == number)
                .cloned()
        });
        to.into_bytes()
    }

    fn set(attributes: &[Attribute<'_>], minor: u32) -> Result<SetAttributes, Nfsstat4> {
        let bytes = fattr(attributes);
        let fattr: Fattr4<'_> = from_bytes(&bytes).expect("attributes");
        to_set(&fattr, minor).map(|(set, _)| set)
    }

    #[test]
    fn what_can_be_set_is_taken() {
        let time = || Nfstime4 {
            seconds: -3,
            nseconds: 999_999_999,
        };
        let set = set(
            &[
                Attribute::Size(7),
                Attribute::Mode(0o4755),
                Attribute::Owner(Opaque(b"12")),
                Attribute::OwnerGroup(Opaque(b"root@example.org")),
                Attribute::TimeAccessSet(Settime4::Default(TimeHow4::SET_TO_SERVER_TIME4)),
                Attribute::TimeModifySet(Settime4::SetToClientTime4(time())),
                Attribute::TimeCreate(time()),
            ],
            1,
        );
        let then = Timestamp {
            seconds: -3,
            nanoseconds: 999_999_999,
        };
        let expected = SetAttributes {
            mode: Some(Mode::new(0o4755)),
            uid: Some(12),
            gid: Some(0),
            size: Some(7),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::To(then)),
            birth: Some(then),
        };
        assert_eq!(set, Ok(expected));
    }

    #[test]
    fn what_cannot_be_set_is_refused() {
        let refused = |attribute, status| assert_eq!(set(&[attribute], 2), Err(status));
        refused(Attribute::Change(1), Nfsstat4::NFS4ERR_INVAL);
        refused(Attribute::Hidden(true), Nfsstat4::NFS4ERR_ATTRNOTSUPP);
        refused(Attribute::Size(1 << 63), Nfsstat4::NFS4ERR_FBIG);
        refused(Attribute::Mode(0o10000), Nfsstat4::NFS4ERR_INVAL);
        refused(
            Attribute::Owner(Opaque(b"alice")),
            Nfsstat4::NFS4ERR_BADOWNER,
        );
        let bad = || Nfstime4 {
            seconds: 0,
            nseconds: 1_000_000_000,
        };
        refused(Attribute::TimeCreate(bad()), Nfsstat4::NFS4ERR_INVAL);
        let bad = Settime4::SetToClientTime4(bad());
        refused(Attribute::TimeAccessSet(bad), Nfsstat4::NFS4ERR_INVAL);
    }

    #[test]
    fn a_umask_is_the_clients_and_of_4_2() {
        let mode = || {
            Attribute::ModeUmask(ModeUmask4 {
                mu_mode: 0o666,
                mu_umask: 0o027,
            })
        };
        assert_eq!(
            set(&[mode()], 2).map(|set| set.mode),
            Ok(Some(Mode::new(0o640)))
        );
        assert_eq!(set(&[mode()], 1), Err(Nfsstat4::NFS4ERR_ATTRNOTSUPP));
    }

    #[test]
    fn everything_supported_that_can_be_read_has_a_value() {
        let zero = Timestamp::default();
        let of = Attributes {
            file: files::FileId(3),
            kind: Kind::File,
            mode: Mode::new(0o644),
            links: 1,
            uid: 1,
            gid: 2,
            size: 3,
            used: 4096,
            atime: zero,
            mtime: zero,
            ctime: zero,
            birth: zero,
            change: 9,
        };
        let wanted = supported(2).without(&WRITE_ONLY);
        let texts = OwnerTexts::new(&of, &wanted);
        let context = Context {
            minor: 2,
            lease_s: 90,
            io_max: 1 << 20,
            handle: b"handle",
            volume: Some(VolumeId(0)),
            mounted_on: 3,
            room: FsStat::default(),
        };
        for number in wanted.iter() {
            let value = value(number, &of, &texts, &context);
            assert_eq!(value.map(|value| value.number()), Some(number));
        }
        assert!(
            value(
                FATTR4_CLONE_BLKSIZE,
                &of,
                &texts,
                &Context {
                    minor: 1,
                    ..context
                }
            )
            .is_none()
        );
    }
}
