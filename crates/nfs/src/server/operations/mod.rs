//! The operations, one concern a file.

mod access;
mod client;
mod data;
mod delegations;
mod directory;
mod getattr;
mod handle;
mod link;
mod locks;
mod names;
mod open;
mod readdir;
mod sequenced;
mod session;
mod setattr;
mod space;
mod stateids;
mod xattrs;

use crate::wire::*;
use crate::xdr::{Decoder, Encoder};

use super::compound::{Compound, number_at, put, put_failed};
use super::handles::Place;

use sequenced::Counted;

impl Compound<'_> {
    /// Carries an operation out and puts its result; one that its owner has repeated in 4.0 is answered
    /// as it was before.
    pub(super) async fn operate(
        &mut self,
        operation: NfsArgop4<'_>,
        out: &mut Encoder,
    ) -> Nfsstat4 {
        let counted = match self.minor {
            0 => self.count_in(&operation).await,
            _ => Counted::New(None),
        };
        match counted {
            Counted::New(request) => {
                let begin = out.size();
                let mut status = self.carry_out(operation, out).await;
                if self.makes_space(status).await {
                    let number = number_at(begin, out);
                    out.truncate(begin);
                    status = put_failed(out, number, Nfsstat4::NFS4ERR_DELAY);
                }
                if let Some(request) = request {
                    self.count_out(request, status, &out.as_bytes()[begin..]);
                }
                status
            }
            Counted::Again(answered) => self.repeat(&answered, out),
            Counted::Refused(status) => put_failed(out, number_of(&operation), status),
        }
    }

    /// After an operation that has found no room: whether there will be some soon, as clients that had no
    /// lease were forgotten for it.
    async fn makes_space(&self, status: Nfsstat4) -> bool {
        let Some(Place::Object(object)) = self.current else {
            return false;
        };
        match status {
            Nfsstat4::NFS4ERR_NOSPC => self.door.make_space(None).await,
            Nfsstat4::NFS4ERR_DQUOT => self.door.make_space(Some(object.volume)).await,
            _ => false,
        }
    }

    async fn carry_out(&mut self, operation: NfsArgop4<'_>, out: &mut Encoder) -> Nfsstat4 {
        use NfsOpnum4 as Op;
        match operation {
            NfsArgop4::Access(of) => put(out, Op::OP_ACCESS, self.access(&of).await),
            NfsArgop4::Close(of) => put(out, Op::OP_CLOSE, self.close(&of).await),
            NfsArgop4::Commit(of) => put(out, Op::OP_COMMIT, self.commit(&of).await),
            NfsArgop4::Create(of) => put(out, Op::OP_CREATE, self.create(&of).await),
            NfsArgop4::Delegreturn(of) => put(out, Op::OP_DELEGRETURN, self.delegreturn(&of).await),
            NfsArgop4::Getattr(of) => self.getattr(&of, out).await,
            NfsArgop4::Getfh => self.getfh(out),
            NfsArgop4::Link(of) => put(out, Op::OP_LINK, self.link(&of).await),
            NfsArgop4::Lock(of) => self.lock(&of, out).await,
            NfsArgop4::Lockt(of) => self.lockt(&of, out).await,
            NfsArgop4::Locku(of) => put(out, Op::OP_LOCKU, self.locku(&of).await),
            NfsArgop4::Lookup(of) => put(out, Op::OP_LOOKUP, self.lookup(&of.objname).await),
            NfsArgop4::Lookupp => put(out, Op::OP_LOOKUPP, self.lookupp().await),
            NfsArgop4::Nverify(of) => {
                let result = self.compare(&of.obj_attributes).await;
                put(out, Op::OP_NVERIFY, different(result))
            }
            NfsArgop4::Verify(of) => {
                let result = self.compare(&of.obj_attributes).await;
                put(out, Op::OP_VERIFY, same(result))
            }
            NfsArgop4::Open(of) => self.open(&of, out).await,
            NfsArgop4::OpenDowngrade(of) => {
                put(out, Op::OP_OPEN_DOWNGRADE, self.open_downgrade(&of).await)
            }
            NfsArgop4::Putfh(of) => put(out, Op::OP_PUTFH, self.putfh(&of.object)),
            NfsArgop4::Putpubfh => put(out, Op::OP_PUTPUBFH, self.putrootfh()),
            NfsArgop4::Putrootfh => put(out, Op::OP_PUTROOTFH, self.putrootfh()),
            NfsArgop4::Read(of) => self.read(&of, out).await,
            NfsArgop4::Readdir(of) => self.readdir(&of, out).await,
            NfsArgop4::Readlink => self.readlink(out).await,
            NfsArgop4::Remove(of) => put(out, Op::OP_REMOVE, self.remove(&of).await),
            NfsArgop4::Rename(of) => put(out, Op::OP_RENAME, self.rename(&of).await),
            NfsArgop4::Restorefh => put(out, Op::OP_RESTOREFH, self.restorefh()),
            NfsArgop4::Savefh => put(out, Op::OP_SAVEFH, self.savefh()),
            NfsArgop4::Secinfo(of) => put(out, Op::OP_SECINFO, self.secinfo(&of.name).await),
            NfsArgop4::SecinfoNoName(style) => put(
                out,
                Op::OP_SECINFO_NO_NAME,
                self.secinfo_no_name(style).await,
            ),
            NfsArgop4::Setattr(of) => self.setattr(&of, out).await,
            NfsArgop4::Write(of) => put(out, Op::OP_WRITE, self.write(&of).await),

            NfsArgop4::ExchangeId(of) => self.exchange_id(&of, out).await,
            NfsArgop4::CreateSession(of) => self.create_session(&of, out).await,
            NfsArgop4::DestroySession(of) => put(
                out,
                Op::OP_DESTROY_SESSION,
                self.destroy_session(&of.dsa_sessionid).await,
            ),
            NfsArgop4::BindConnToSession(of) => {
                put(out, Op::OP_BIND_CONN_TO_SESSION, self.bind_connection(&of))
            }
            NfsArgop4::BackchannelCtl(of) => {
                put(out, Op::OP_BACKCHANNEL_CTL, self.backchannel_ctl(&of).await)
            }
            NfsArgop4::DestroyClientid(of) => put(
                out,
                Op::OP_DESTROY_CLIENTID,
                self.destroy_client(of.dca_clientid).await,
            ),
            NfsArgop4::ReclaimComplete(of) => put(
                out,
                Op::OP_RECLAIM_COMPLETE,
                self.reclaim_complete(&of).await,
            ),
            // The first operation alone is one, and that was carried out before.
            NfsArgop4::Sequence(_) => {
                put::<()>(out, Op::OP_SEQUENCE, Err(Nfsstat4::NFS4ERR_SEQUENCE_POS))
            }
            NfsArgop4::FreeStateid(of) => {
                let freed = self.free_stateid(&of.fsa_stateid).await;
                put(out, Op::OP_FREE_STATEID, freed)
            }
            NfsArgop4::TestStateid(of) => put(out, Op::OP_TEST_STATEID, self.test_stateids(&of)),

            NfsArgop4::Allocate(of) => put(out, Op::OP_ALLOCATE, self.allocate(&of).await),
            NfsArgop4::Deallocate(of) => put(out, Op::OP_DEALLOCATE, self.deallocate(&of).await),
            NfsArgop4::Seek(of) => put(out, Op::OP_SEEK, self.seek(&of).await),
            NfsArgop4::Copy(of) => self.copy(&of, out).await,
            NfsArgop4::Clone(of) => put(out, Op::OP_CLONE, self.clone_range(&of).await),
            NfsArgop4::IoAdvise(of) => put(out, Op::OP_IO_ADVISE, self.io_advise(&of)),
            NfsArgop4::Getxattr(of) => self.getxattr(&of, out).await,
            NfsArgop4::Setxattr(of) => put(out, Op::OP_SETXATTR, self.setxattr(&of).await),
            NfsArgop4::Listxattrs(of) => self.listxattrs(&of, out).await,
            NfsArgop4::Removexattr(of) => put(out, Op::OP_REMOVEXATTR, self.removexattr(&of).await),

            NfsArgop4::Setclientid(of) => self.setclientid(&of, out).await,
            NfsArgop4::SetclientidConfirm(of) => put(
                out,
                Op::OP_SETCLIENTID_CONFIRM,
                self.setclientid_confirm(&of).await,
            ),
            NfsArgop4::Renew(of) => put(out, Op::OP_RENEW, self.renew(of.clientid)),
            NfsArgop4::OpenConfirm(of) => put(out, Op::OP_OPEN_CONFIRM, self.open_confirm(&of)),
            NfsArgop4::ReleaseLockowner(of) => put(
                out,
                Op::OP_RELEASE_LOCKOWNER,
                self.release_lockowner(&of.lock_owner).await,
            ),
            // Layouts, offload, directory delegations, named attributes: none of them is offered.
            other => put::<()>(out, number_of(&other), Err(Nfsstat4::NFS4ERR_NOTSUPP)),
        }
    }
}

/// The number of an operation.
pub(super) fn number_of(operation: &NfsArgop4<'_>) -> NfsOpnum4 {
    // Its first word.
    let mut out = Encoder::default();
    out.put(operation);
    Decoder::new(out.as_bytes())
        .take()
        .unwrap_or(NfsOpnum4::OP_ILLEGAL)
}

fn same(result: Result<bool, Nfsstat4>) -> Result<(), Nfsstat4> {
    result.and_then(|is_same| {
        if is_same {
            Ok(())
        } else {
            Err(Nfsstat4::NFS4ERR_NOT_SAME)
        }
    })
}

fn different(result: Result<bool, Nfsstat4>) -> Result<(), Nfsstat4> {
    result.and_then(|is_same| {
        if is_same {
            Err(Nfsstat4::NFS4ERR_SAME)
        } else {
            Ok(())
        }
    })
}
