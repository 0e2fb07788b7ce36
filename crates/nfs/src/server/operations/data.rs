//! READ, WRITE, COMMIT.

use files::{Answer, Caller, Error, Handle, Range, Request, Share, Stability};

use crate::server::IO_MAX;
use crate::server::compound::{Compound, put};
use crate::server::conflicts::Wants;
use crate::wire::*;
use crate::xdr::Encoder;

/// Bytes of a READ's result before its data: operation, status, end of file, length.
const READ_HEAD: usize = 16;

impl Compound<'_> {
    /// READ (RFC 8881, section 18.22). The bytes are read into the answer.
    pub(super) async fn read(&self, of: &Read4Args, out: &mut Encoder) -> Nfsstat4 {
        match self.reader(&of.stateid).await {
            Ok((file, caller)) => self.read_into(file, &caller, of, out).await,
            Err(status) => put::<()>(out, NfsOpnum4::OP_READ, Err(status)),
        }
    }

    /// The current file, and for whom it is read.
    async fn reader(&self, stateid: &Stateid4) -> Result<(Handle, Caller), Nfsstat4> {
        let file = self.object_or(Nfsstat4::NFS4ERR_ISDIR)?;
        let mut caller = self.caller(file)?;
        caller.holder = self.holder_for(stateid, file, Share::READ)?;
        Ok((file, caller))
    }

    async fn read_into(
        &self,
        file: Handle,
        caller: &Caller,
        of: &Read4Args,
        out: &mut Encoder,
    ) -> Nfsstat4 {
        let begin = out.size();
        let room = self.room(out).saturating_sub(READ_HEAD + 3);
        let len = (of.count.min(IO_MAX) as usize).min(room);
        if len == 0 && of.count > 0 {
            // No bytes, and not the end, would be asked for again and again.
            let is_cached = self.on_slot.is_some_and(|on| on.is_cached);
            return put::<()>(out, NfsOpnum4::OP_READ, Err(self.is_too_large(is_cached)));
        }
        if let Err(status) = self.reserve(len).await {
            return put::<()>(out, NfsOpnum4::OP_READ, Err(status));
        }
        out.put(&NfsOpnum4::OP_READ);
        out.put(&Nfsstat4::NFS4_OK);
        let is_end = out.later();
        let length = out.later();
        let data = out.size();
        let mut bytes = std::mem::take(out).into_bytes();
        // What lies beyond the largest file is beyond the end.
        let range = Range {
            offset: of.offset,
            len: len as u64,
        };
        let beyond = of.offset > i64::MAX as u64;
        let wants = Wants::data(file, caller.holder, Share::READ);
        let result = if beyond {
            Ok(files::ReadDone {
                len: 0,
                is_end: true,
            })
        } else {
            loop {
                match self.door.fs.read(caller, file, range, &mut bytes).await {
                    // Whoever has lost its lease is in nobody's way.
                    Err(Error::ShareDenied | Error::Delay) if self.door.settle(&wants).await => {}
                    result => break result,
                }
            }
        };
        *out = Encoder::new(bytes);
        match result {
            Ok(done) => {
                debug_assert_eq!(out.size(), data + done.len, "what it says it has read");
                out.fill_in(is_end, u32::from(done.is_end));
                out.fill_in(length, done.len as u32);
                let padding = done.len.wrapping_neg() % 4;
                out.bytes(&[0; 3][..padding]);
                Nfsstat4::NFS4_OK
            }
            Err(error) => {
                out.truncate(begin);
                put::<()>(out, NfsOpnum4::OP_READ, Err(self.of_data(error)))
            }
        }
    }

    /// Asks for something of a file's data.
    pub(super) async fn ask_of_data(
        &self,
        caller: &Caller,
        request: Request,
    ) -> Result<Answer, Nfsstat4> {
        let answer = self.door.fs.call(caller, request).await;
        answer.map_err(|error| self.of_data(error))
    }

    /// An error of what is done with a file's data: opens of others deny as locks do (RFC 8881, section
    /// 15.2), and a symbolic link has no data.
    fn of_data(&self, error: files::Error) -> Nfsstat4 {
        match error {
            files::Error::ShareDenied => Nfsstat4::NFS4ERR_LOCKED,
            files::Error::IsSymlink => self.of_error(files::Error::WrongKind),
            other => self.of_error(other),
        }
    }

    /// WRITE (RFC 8881, section 18.32).
    pub(super) async fn write(&self, of: &Write4Args<'_>) -> Result<Write4Resok, Nfsstat4> {
        let file = self.object()?;
        let stability = match of.stable {
            StableHow4::UNSTABLE4 => Stability::Unstable,
            StableHow4::DATA_SYNC4 => Stability::DataSync,
            StableHow4::FILE_SYNC4 => Stability::FileSync,
            _ => return Err(Nfsstat4::NFS4ERR_INVAL),
        };
        // A write is not counted: it may be carried out again.
        let mut caller = self.changer(file)?;
        caller.once = None;
        caller.holder = self.holder_for(&of.stateid, file, Share::WRITE)?;
        let data = &of.data[..of.data.len().min(IO_MAX as usize)];
        let wants = Wants::data(file, caller.holder, Share::WRITE);
        let fs = &self.door.fs;
        let write = || async {
            let done = fs.write(&caller, file, of.offset, data, stability).await;
            done.map_err(|error| self.of_data(error))
        };
        let done = self.door.settling(&[wants], write).await?;
        Ok(Write4Resok {
            count: done.len as u32,
            committed: of.stable,
            writeverf: done.verifier,
        })
    }

    /// COMMIT (RFC 8881, section 18.3).
    pub(super) async fn commit(&self, of: &Commit4Args) -> Result<Commit4Resok, Nfsstat4> {
        let file = self.object_or(Nfsstat4::NFS4ERR_ISDIR)?;
        let caller = self.caller(file)?;
        let range = Range {
            offset: of.offset,
            len: u64::from(of.count),
        };
        // No length: up to the end. A range that cannot be is the client's error.
        if range.offset.checked_add(range.len).is_none() {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        match self.ask(&caller, Request::Commit(file, range)).await? {
            Answer::Committed { verifier } => Ok(Commit4Resok {
                writeverf: verifier,
            }),
            _ => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
        }
    }
}
