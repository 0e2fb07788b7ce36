//! ALLOCATE, DEALLOCATE, SEEK, COPY, CLONE, IO_ADVISE: what 4.2 has for the room that files take.

use files::{Answer, Caller, Handle, Range, Request, SeekFor, Share};

use crate::server::compound::Compound;
use crate::server::conflicts::Wants;
use crate::server::handles::Place;
use crate::wire::*;
use crate::xdr::Encoder;

/// Bytes of a COPY at most: nobody else gets at the target meanwhile. The client is told how many there
/// were, and asks for the rest (RFC 7862, section 15.2.3).
const COPY_MAX: u64 = 64 << 20;

impl Compound<'_> {
    /// The current file to be written under a stateid, and for whom.
    async fn writer(&self, stateid: &Stateid4) -> Result<(Handle, Caller), Nfsstat4> {
        let file = self.object()?;
        let mut caller = self.changer(file)?;
        caller.once = None;
        caller.holder = self.holder_for(stateid, file, Share::WRITE)?;
        Ok((file, caller))
    }

    /// ALLOCATE (RFC 7862, section 15.1).
    pub(super) async fn allocate(&self, of: &Allocate4Args) -> Result<(), Nfsstat4> {
        let (file, caller) = self.writer(&of.aa_stateid).await?;
        let range = range(of.aa_offset, of.aa_length)?;
        let wants = Wants::data(file, caller.holder, Share::WRITE);
        let allocate = || self.ask_of_data(&caller, Request::Allocate(file, range));
        self.door.settling(&[wants], allocate).await.map(drop)
    }

    /// DEALLOCATE (RFC 7862, section 15.4).
    pub(super) async fn deallocate(&self, of: &Deallocate4Args) -> Result<(), Nfsstat4> {
        let (file, caller) = self.writer(&of.da_stateid).await?;
        let range = range(of.da_offset, of.da_length)?;
        let wants = Wants::data(file, caller.holder, Share::WRITE);
        let free = || self.ask_of_data(&caller, Request::Deallocate(file, range));
        self.door.settling(&[wants], free).await.map(drop)
    }

    /// SEEK (RFC 7862, section 15.11).
    pub(super) async fn seek(&self, of: &Seek4Args) -> Result<SeekRes4, Nfsstat4> {
        let file = self.object_or(Nfsstat4::NFS4ERR_WRONG_TYPE)?;
        let mut caller = self.caller(file)?;
        caller.holder = self.holder_for(&of.sa_stateid, file, Share::READ)?;
        let what = match of.sa_what {
            DataContent4::NFS4_CONTENT_DATA => SeekFor::Data,
            DataContent4::NFS4_CONTENT_HOLE => SeekFor::Hole,
            _ => return Err(Nfsstat4::NFS4ERR_UNION_NOTSUPP),
        };
        let wants = Wants::data(file, caller.holder, Share::READ);
        let seek = || self.ask_of_data(&caller, Request::Seek(file, of.sa_offset, what));
        match self.door.settling(&[wants], seek).await? {
            Answer::Seek(done) => Ok(SeekRes4 {
                sr_eof: done.is_end,
                sr_offset: done.offset,
            }),
            _ => Err(Nfsstat4::NFS4ERR_SERVERFAULT),
        }
    }

    /// The saved file to be read and the current one to be written, and for whom.
    fn pair(
        &self,
        source: &Stateid4,
        destination: &Stateid4,
    ) -> Result<(Handle, Handle, Caller), Nfsstat4> {
        let from = match self.saved.ok_or(Nfsstat4::NFS4ERR_NOFILEHANDLE)? {
            Place::Object(handle) => handle,
            Place::Pseudo(_) => return Err(Nfsstat4::NFS4ERR_WRONG_TYPE),
        };
        let to = self.object()?;
        if from.volume != to.volume {
            return Err(Nfsstat4::NFS4ERR_XDEV);
        }
        let mut caller = self.changer(to)?;
        caller.once = None;
        caller.source = self.holder_for(source, from, Share::READ)?;
        caller.holder = self.holder_for(destination, to, Share::WRITE)?;
        Ok((from, to, caller))
    }

    /// COPY (RFC 7862, section 15.2): within this server, and done when it is answered.
    pub(super) async fn copy(&self, of: &Copy4Args<'_>, out: &mut Encoder) -> Nfsstat4 {
        let result = self.copied(of).await;
        let status = result.as_ref().err().copied().unwrap_or(Nfsstat4::NFS4_OK);
        out.put(&NfsOpnum4::OP_COPY);
        out.put(&match result {
            Ok(done) => Copy4Res::Nfs4Ok(done),
            Err(status) => Copy4Res::Default(status),
        });
        status
    }

    async fn copied(&self, of: &Copy4Args<'_>) -> Result<Copy4Resok, Nfsstat4> {
        if !of.ca_source_server.is_empty() {
            return Err(Nfsstat4::NFS4ERR_NOTSUPP);
        }
        let (from, to, caller) = self.pair(&of.ca_src_stateid, &of.ca_dst_stateid)?;
        let request = Request::Copy {
            from,
            range: Range {
                offset: of.ca_src_offset,
                len: match of.ca_count {
                    0 => COPY_MAX,
                    count => count.min(COPY_MAX),
                },
            },
            to,
            offset: of.ca_dst_offset,
        };
        let wants = of_both(from, to, &caller);
        let copy = || self.ask_of_data(&caller, request.clone());
        let Answer::Copied(count) = self.door.settling(&wants, copy).await? else {
            return Err(Nfsstat4::NFS4ERR_SERVERFAULT);
        };
        // What was copied is made durable at once, so that a client need not ask for that.
        let all = Range { offset: 0, len: 0 };
        let Answer::Committed { verifier } = self.ask(&caller, Request::Commit(to, all)).await?
        else {
            return Err(Nfsstat4::NFS4ERR_SERVERFAULT);
        };
        Ok(Copy4Resok {
            cr_response: WriteResponse4 {
                wr_callback_id: None,
                wr_count: count,
                wr_committed: StableHow4::FILE_SYNC4,
                wr_writeverf: verifier,
            },
            cr_requirements: CopyRequirements4 {
                cr_consecutive: true,
                cr_synchronous: true,
            },
        })
    }

    /// CLONE (RFC 7862, section 15.13).
    pub(super) async fn clone_range(&self, of: &Clone4Args) -> Result<(), Nfsstat4> {
        let (from, to, caller) = self.pair(&of.cl_src_stateid, &of.cl_dst_stateid)?;
        let request = Request::Clone {
            from,
            range: Range {
                offset: of.cl_src_offset,
                len: of.cl_count,
            },
            to,
            offset: of.cl_dst_offset,
        };
        let wants = of_both(from, to, &caller);
        let clone = || self.ask_of_data(&caller, request.clone());
        self.door.settling(&wants, clone).await.map(drop)
    }

    /// IO_ADVISE (RFC 7862, section 15.5): no advice is taken, which the answer says.
    pub(super) fn io_advise(&self, of: &IoAdvise4Args) -> Result<IoAdvise4Resok, Nfsstat4> {
        let file = self.object_or(Nfsstat4::NFS4ERR_WRONG_TYPE)?;
        self.holder_for(&of.iaa_stateid, file, Share::READ)?;
        Ok(IoAdvise4Resok {
            ior_hints: Bitmap4::EMPTY,
        })
    }
}

/// The data of one file for that of another.
fn of_both(from: Handle, to: Handle, caller: &Caller) -> [Wants; 2] {
    [
        Wants::data(from, caller.of_source().holder, Share::READ),
        Wants::data(to, caller.holder, Share::WRITE),
    ]
}

/// A range that can be.
fn range(offset: u64, len: u64) -> Result<Range, Nfsstat4> {
    let range = Range { offset, len };
    if len == 0 {
        return Err(Nfsstat4::NFS4ERR_INVAL);
    }
    range.end().ok_or(Nfsstat4::NFS4ERR_FBIG)?;
    Ok(range)
}
