//! GETATTR, VERIFY and NVERIFY.

use files::{
    Answer, Attributes, Caller, FileId, FsStat, Handle, Holder, Kind, Mode, Request, SetAttributes,
    SetTime, Timestamp, VolumeId,
};

use crate::server::attributes::{Context, OwnerTexts, supported, value, wants_room};
use crate::server::compound::{Compound, put};
use crate::server::handles::{HANDLE_LEN, Place};
use crate::wire::*;
use crate::xdr::{Encoder, from_bytes};

/// What writing changes.
pub(super) const WRITTEN: Bitmap4 = Bitmap4::of(&[
    FATTR4_CHANGE,
    FATTR4_SIZE,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_METADATA,
]);

impl Compound<'_> {
    /// GETATTR (RFC 8881, section 18.7). The values go straight into the answer.
    pub(super) async fn getattr(&self, of: &Getattr4Args, out: &mut Encoder) -> Nfsstat4 {
        match self.describe(&of.attr_request).await {
            Ok(described) => {
                out.put(&NfsOpnum4::OP_GETATTR);
                out.put(&Nfsstat4::NFS4_OK);
                described.put(&of.attr_request, out);
                Nfsstat4::NFS4_OK
            }
            Err(status) => put::<()>(out, NfsOpnum4::OP_GETATTR, Err(status)),
        }
    }

    /// What is needed to tell these attributes of the current object.
    async fn describe(&self, wanted: &Bitmap4) -> Result<Described, Nfsstat4> {
        if !wanted.and(&WRITE_ONLY).is_empty() {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        match self.place()? {
            Place::Pseudo(node) => Ok(self.describe_pseudo(node)),
            Place::Object(object) => {
                let caller = self.caller(object)?;
                let request = Request::GetAttributes(object);
                let Answer::Attributes(of) = self.ask(&caller, request).await? else {
                    return Err(Nfsstat4::NFS4ERR_SERVERFAULT);
                };
                self.describe_object(object, of, wanted).await
            }
        }
    }

    /// A directory above the exports.
    pub(super) fn describe_pseudo(&self, node: u32) -> Described {
        let place = Place::Pseudo(node);
        let number = self.door.exports.number(place);
        let time = Timestamp::default();
        let of = Attributes {
            file: FileId(number),
            kind: Kind::Directory,
            mode: Mode::new(0o555),
            links: 2,
            uid: 0,
            gid: 0,
            size: 4096,
            used: 0,
            atime: time,
            mtime: time,
            ctime: time,
            birth: time,
            // Exports can be others after a restart, and only then.
            change: u64::from(self.door.instance),
        };
        self.described(place, of, None, number, FsStat::default())
    }

    /// An object whose attributes are known.
    pub(super) async fn describe_object(
        &self,
        object: Handle,
        of: Attributes,
        wanted: &Bitmap4,
    ) -> Result<Described, Nfsstat4> {
        let of = self.as_written(object, of, wanted).await?;
        let room = if wants_room(wanted) {
            let caller = self.caller(object)?;
            match self.ask(&caller, Request::Stat(object.volume)).await? {
                Answer::Stat(room) => room,
                _ => return Err(Nfsstat4::NFS4ERR_SERVERFAULT),
            }
        } else {
            FsStat::default()
        };
        let place = Place::Object(object);
        let hangs = object.file == FileId::ROOT && self.door.exports.above(object.volume).is_some();
        let mounted_on = if hangs {
            self.door.exports.number(place)
        } else {
            of.file.0
        };
        Ok(self.described(place, of, Some(object.volume), mounted_on, room))
    }

    /// Attributes of a file with what a client knows of it that has it delegated for writing (RFC 8881,
    /// section 10.4.3): it may have written what the file system does not have yet.
    async fn as_written(
        &self,
        object: Handle,
        of: Attributes,
        wanted: &Bitmap4,
    ) -> Result<Attributes, Nfsstat4> {
        if of.kind != Kind::File || wanted.and(&WRITTEN).is_empty() {
            return Ok(of);
        }
        let writer = || self.door.states.borrow().writer(object, self.client);
        let Some((num, client, change)) = writer() else {
            return Ok(of);
        };
        let told = self.door.ask_writer(client, object).await;
        // It may have given the file back meanwhile, and all it has written before.
        let still_has = writer().is_some_and(|found| found.0 == num);
        let root = Caller {
            holder: Some(Holder { client, owner: 0 }),
            ..Caller::ROOT
        };
        let request = match told {
            Some((now, _)) if still_has && now != change => {
                let mtime = Some(SetTime::Now);
                Request::SetAttributes(
                    object,
                    SetAttributes {
                        mtime,
                        ..SetAttributes::default()
                    },
                )
            }
            None if still_has && !self.door.forget_lapsed(client).await => {
                // Whoever asks wants the file: it comes back meanwhile.
                self.door.want_back(client, object);
                return Err(Nfsstat4::NFS4ERR_DELAY);
            }
            _ => Request::GetAttributes(object),
        };
        let Answer::Attributes(mut of) = self.ask(&root, request).await? else {
            return Err(Nfsstat4::NFS4ERR_SERVERFAULT);
        };
        if let Some((now, size)) = told.filter(|_| still_has)
            && now != change
        {
            of.size = size;
        }
        Ok(of)
    }

    fn described(
        &self,
        place: Place,
        of: Attributes,
        volume: Option<VolumeId>,
        mounted_on: u64,
        room: FsStat,
    ) -> Described {
        Described {
            minor: self.minor,
            lease_s: (self.door.lease_ms / 1000) as u32,
            handle: self.door.handles.seal(place),
            of,
            volume,
            mounted_on,
            room,
        }
    }

    /// Whether the current object's attributes are these.
    pub(super) async fn compare(&self, with: &Fattr4<'_>) -> Result<bool, Nfsstat4> {
        let wanted = &with.attrmask;
        if wanted.has(FATTR4_RDATTR_ERROR) {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        if wanted.has_beyond() || !wanted.without(&supported(self.minor)).is_empty() {
            return Err(Nfsstat4::NFS4ERR_ATTRNOTSUPP);
        }
        let described = self.describe(wanted).await?;
        if with.attributes().any(|attribute| attribute.is_err()) {
            return Err(Nfsstat4::NFS4ERR_BADXDR);
        }
        let mut ours = Encoder::default();
        described.put(wanted, &mut ours);
        let ours = ours.into_bytes();
        let ours: Fattr4<'_> = from_bytes(&ours).map_err(|_| Nfsstat4::NFS4ERR_SERVERFAULT)?;
        Ok(ours.attributes().eq(with.attributes()))
    }
}

/// An object, ready to be told of.
pub(super) struct Described {
    minor: u32,
    lease_s: u32,
    handle: [u8; HANDLE_LEN],
    of: Attributes,
    volume: Option<VolumeId>,
    mounted_on: u64,
    room: FsStat,
}

impl Described {
    /// Puts those attributes that are wanted and supported.
    pub(super) fn put(&self, wanted: &Bitmap4, out: &mut Encoder) {
        let context = Context {
            minor: self.minor,
            lease_s: self.lease_s,
            io_max: crate::server::IO_MAX,
            handle: &self.handle,
            volume: self.volume,
            mounted_on: self.mounted_on,
            room: self.room,
        };
        let texts = OwnerTexts::new(&self.of, wanted);
        put_attributes(out, wanted, |number| {
            value(number, &self.of, &texts, &context)
        });
    }
}
