//! EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, BIND_CONN_TO_SESSION, BACKCHANNEL_CTL,
//! DESTROY_CLIENTID, RECLAIM_COMPLETE.

use std::rc::Rc;

use files::{Caller, Request};

use crate::server::clients::{Met, SessionMade};
use crate::server::compound::{Compound, put, put_failed};
use crate::server::sessions::{CallbackCredential, Limits, Record, Session};
use crate::server::states::ClientId;
use crate::wire::*;
use crate::xdr::{Decoder, Encoder, Opaque};

/// Flags of EXCHANGE_ID that a client may send.
const FLAGS_ASKED: u32 = EXCHGID4_FLAG_SUPP_MOVED_REFER
    | EXCHGID4_FLAG_SUPP_MOVED_MIGR
    | EXCHGID4_FLAG_SUPP_FENCE_OPS
    | EXCHGID4_FLAG_BIND_PRINC_STATEID
    | EXCHGID4_FLAG_MASK_PNFS
    | EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;

/// Sessions of a client at most.
const SESSIONS_MAX: usize = 16;

impl Compound<'_> {
    /// EXCHANGE_ID (RFC 8881, section 18.35).
    pub(super) async fn exchange_id(
        &self,
        of: &ExchangeId4Args<'_>,
        out: &mut Encoder,
    ) -> Nfsstat4 {
        let result = self.introduced(of).await;
        let owner = self.door.owner_id();
        let result = result.map(|(id, sequence, flags)| ExchangeId4Resok {
            eir_clientid: id,
            eir_sequenceid: sequence,
            eir_flags: flags | EXCHGID4_FLAG_USE_NON_PNFS,
            eir_state_protect: StateProtect4R::Sp4None,
            eir_server_owner: ServerOwner4 {
                so_minor_id: 0,
                so_major_id: Opaque(&owner),
            },
            eir_server_scope: Opaque(&owner),
            eir_server_impl_id: None,
        });
        put(out, NfsOpnum4::OP_EXCHANGE_ID, result)
    }

    async fn introduced(&self, of: &ExchangeId4Args<'_>) -> Result<(ClientId, u32, u32), Nfsstat4> {
        if of.eia_flags & !FLAGS_ASKED != 0 {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        if !matches!(of.eia_state_protect, StateProtect4A::Sp4None) {
            return Err(Nfsstat4::NFS4ERR_NOTSUPP);
        }
        let owner = &of.eia_clientowner;
        let (verifier, name) = (owner.co_verifier, &owner.co_ownerid.0);
        let principal = self.user.map(|user| user.uid);
        let now_ms = self.door.now_ms();
        let is_update = of.eia_flags & EXCHGID4_FLAG_UPD_CONFIRMED_REC_A != 0;
        let met = self
            .door
            .clients
            .borrow()
            .meet(1, name, verifier, principal);
        if is_update {
            return match met {
                Met::Same(id) => Ok((
                    id,
                    self.door.session_sequence(id),
                    EXCHGID4_FLAG_CONFIRMED_R,
                )),
                Met::Restarted(_) => Err(Nfsstat4::NFS4ERR_NOT_SAME),
                Met::Other(_) => Err(Nfsstat4::NFS4ERR_PERM),
                Met::Nobody | Met::Unconfirmed(_) => Err(Nfsstat4::NFS4ERR_NOENT),
            };
        }
        match met {
            // Also a client that has asked again because it did not hear the answer.
            Met::Same(id) => Ok((
                id,
                self.door.session_sequence(id),
                EXCHGID4_FLAG_CONFIRMED_R,
            )),
            Met::Other(id) if self.door.is_alive_with_state(id) => {
                Err(Nfsstat4::NFS4ERR_CLID_INUSE)
            }
            Met::Other(id) => {
                self.door.forget(id).await;
                self.introduce(name, verifier, now_ms).await
            }
            Met::Nobody | Met::Unconfirmed(_) | Met::Restarted(_) => {
                self.introduce(name, verifier, now_ms).await
            }
        }
    }

    async fn introduce(
        &self,
        name: &[u8],
        verifier: Verifier4,
        now_ms: u64,
    ) -> Result<(ClientId, u32, u32), Nfsstat4> {
        let principal = self.user.map(|user| user.uid);
        self.door.make_room().await?;
        let mut clients = self.door.clients.borrow_mut();
        let id = clients.introduce(1, name, verifier, principal, now_ms);
        Ok((id, 1, 0))
    }

    /// CREATE_SESSION (RFC 8881, section 18.36).
    pub(super) async fn create_session(
        &self,
        of: &CreateSession4Args<'_>,
        out: &mut Encoder,
    ) -> Nfsstat4 {
        let begin = out.size();
        let result = self.session_created(of).await;
        let answer = match result {
            Ok(Made::Again(answer)) => {
                out.bytes(&answer);
                let mut words = Decoder::new(&answer[4..]);
                return words.take().unwrap_or(Nfsstat4::NFS4ERR_SERVERFAULT);
            }
            Ok(Made::New(answer)) => answer,
            Err(status) => return put_failed(out, NfsOpnum4::OP_CREATE_SESSION, status),
        };
        let status = put(out, NfsOpnum4::OP_CREATE_SESSION, answer);
        let answer = out.as_bytes()[begin..].to_vec();
        let mut clients = self.door.clients.borrow_mut();
        if let Some(client) = clients.get_mut(of.csa_clientid) {
            if status == Nfsstat4::NFS4ERR_DELAY {
                // It is asked again with the same number.
                client.session_sequence = of.csa_sequence;
                client.session_made = None;
            } else {
                client.session_made = Some(SessionMade::Answered(answer));
            }
        }
        status
    }

    async fn session_created(&self, of: &CreateSession4Args<'_>) -> Result<Made, Nfsstat4> {
        let known = CREATE_SESSION4_FLAG_PERSIST
            | CREATE_SESSION4_FLAG_CONN_BACK_CHAN
            | CREATE_SESSION4_FLAG_CONN_RDMA;
        if of.csa_flags & !known != 0 {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        let id = of.csa_clientid;
        {
            let mut clients = self.door.clients.borrow_mut();
            let client = clients
                .get_mut(id)
                .filter(|client| client.record.family == 1);
            // Who has not confirmed itself within a lease is a stranger (RFC 8881, section 18.35.4).
            let (now_ms, lease_ms) = (self.door.now_ms(), self.door.lease_ms);
            let client = client.filter(|of| of.is_confirmed || !of.is_lapsed(now_ms, lease_ms));
            let client = client.ok_or(Nfsstat4::NFS4ERR_STALE_CLIENTID)?;
            if client.session_sequence.wrapping_sub(1) == of.csa_sequence
                && let Some(made) = &client.session_made
            {
                return match made {
                    SessionMade::Answered(answer) => Ok(Made::Again(answer.clone())),
                    SessionMade::UnderWay => Err(Nfsstat4::NFS4ERR_DELAY),
                };
            }
            if client.session_sequence != of.csa_sequence && !client.takes_any_sequence {
                return Err(Nfsstat4::NFS4ERR_SEQ_MISORDERED);
            }
            if !client.is_confirmed && client.record.principal != self.user.map(|user| user.uid) {
                return Err(Nfsstat4::NFS4ERR_CLID_INUSE);
            }
            // Taken before anything is waited for, so that a repeat makes no second session.
            client.session_sequence = of.csa_sequence.wrapping_add(1);
            client.session_made = Some(SessionMade::UnderWay);
            client.takes_any_sequence = false;
        }
        let made = self.make_session(of).await;
        Ok(Made::New(made))
    }

    /// Makes a session whose sequence number is the right one.
    async fn make_session(
        &self,
        of: &CreateSession4Args<'_>,
    ) -> Result<CreateSession4Resok, Nfsstat4> {
        let id = of.csa_clientid;
        let limits = Limits::agree(&of.csa_fore_chan_attrs)?;
        {
            let clients = self.door.clients.borrow();
            let count = clients.get(id).map_or(0, |client| client.sessions.len());
            if count >= SESSIONS_MAX {
                return Err(Nfsstat4::NFS4ERR_NOSPC);
            }
        }
        let back = Limits::agree(&of.csa_back_chan_attrs);
        let credential = CallbackCredential::choose(&of.csa_sec_parms);
        let wants_back = of.csa_flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0
            && back.is_ok()
            && credential != CallbackCredential::Impossible;
        self.door.confirm(id).await?;
        let (session, limits, keeps) = {
            let mut sessions = self.door.sessions.borrow_mut();
            let left = self.door.kept_max.saturating_sub(sessions.kept_max());
            let limits = limits.within(left);
            let id = sessions.fresh_id(id, self.door.instance);
            (id, limits, sessions.keep(&limits))
        };
        let record = Record {
            id: session,
            client: id,
            limits,
            callback_program: of.csa_cb_program,
            callback_credential: credential,
        };
        let request = Request::PutRecord {
            key: Record::key(&session),
            value: record.to_row(),
        };
        self.ask(&Caller::ROOT, request).await?;
        let mut made = Session::new(record, keeps, false);
        made.minor = self.minor;
        if wants_back {
            made.back = Rc::downgrade(self.connection);
        }
        if !self.has_session(id, session) {
            // The client was forgotten meanwhile.
            let request = Request::RemoveRecord(Record::key(&session));
            self.ask(&Caller::ROOT, request).await?;
            return Err(Nfsstat4::NFS4ERR_STALE_CLIENTID);
        }
        self.door.sessions.borrow_mut().add(made);
        // What changes a name or attributes is answered from its kept answer after a restart too, and an
        // OPEN that has made its file.
        let mut flags = of.csa_flags & CREATE_SESSION4_FLAG_PERSIST;
        if wants_back {
            flags |= CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
        }
        Ok(CreateSession4Resok {
            csr_sessionid: session,
            csr_sequence: of.csa_sequence,
            csr_flags: flags,
            csr_fore_chan_attrs: limits.to_wire(),
            csr_back_chan_attrs: back.map_or_else(|_| none(), Limits::to_wire),
        })
    }

    /// A client has one more session; returns whether there is such a client.
    fn has_session(&self, id: ClientId, session: Sessionid4) -> bool {
        let mut clients = self.door.clients.borrow_mut();
        let Some(client) = clients.get_mut(id) else {
            return false;
        };
        client.renewed_ms = self.door.now_ms();
        client.sessions.insert(session)
    }

    /// DESTROY_SESSION (RFC 8881, section 18.37).
    pub(super) async fn destroy_session(&self, id: &Sessionid4) -> Result<(), Nfsstat4> {
        let own = self.on_slot.filter(|on| on.session == *id);
        // In its own session it is the last operation: its answer goes with the session.
        if own.is_some() && self.operation + 1 != self.operations {
            return Err(Nfsstat4::NFS4ERR_NOT_ONLY_OP);
        }
        {
            let sessions = self.door.sessions.borrow();
            let session = sessions.get(id).ok_or(Nfsstat4::NFS4ERR_BADSESSION)?;
            if session.is_busy_but(own.map(|on| on.slot)) {
                return Err(Nfsstat4::NFS4ERR_DELAY);
            }
            if session.back_slot.available() == 0 {
                return Err(Nfsstat4::NFS4ERR_BACK_CHAN_BUSY);
            }
        }
        self.door.end_session(id).await
    }

    /// BIND_CONN_TO_SESSION (RFC 8881, section 18.34).
    pub(super) fn bind_connection(
        &self,
        of: &BindConnToSession4Args,
    ) -> Result<BindConnToSession4Resok, Nfsstat4> {
        // It stands alone (RFC 8881, section 18.34.3).
        if self.on_slot.is_some() {
            return Err(Nfsstat4::NFS4ERR_NOT_ONLY_OP);
        }
        let mut sessions = self.door.sessions.borrow_mut();
        let session = sessions
            .get_mut(&of.bctsa_sessid)
            .ok_or(Nfsstat4::NFS4ERR_BADSESSION)?;
        let back = match of.bctsa_dir {
            ChannelDirFromClient4::CDFC4_FORE => false,
            ChannelDirFromClient4::CDFC4_BACK
            | ChannelDirFromClient4::CDFC4_FORE_OR_BOTH
            | ChannelDirFromClient4::CDFC4_BACK_OR_BOTH => true,
            _ => return Err(Nfsstat4::NFS4ERR_INVAL),
        };
        if back {
            session.back = Rc::downgrade(self.connection);
            session.is_silent = false;
        }
        let direction = match of.bctsa_dir {
            ChannelDirFromClient4::CDFC4_FORE => ChannelDirFromServer4::CDFS4_FORE,
            ChannelDirFromClient4::CDFC4_BACK => ChannelDirFromServer4::CDFS4_BACK,
            _ => ChannelDirFromServer4::CDFS4_BOTH,
        };
        Ok(BindConnToSession4Resok {
            bctsr_sessid: of.bctsa_sessid,
            bctsr_dir: direction,
            bctsr_use_conn_in_rdma_mode: false,
        })
    }

    /// BACKCHANNEL_CTL (RFC 8881, section 18.33).
    pub(super) async fn backchannel_ctl(
        &self,
        of: &BackchannelCtl4Args<'_>,
    ) -> Result<(), Nfsstat4> {
        let on = self.on_slot.ok_or(Nfsstat4::NFS4ERR_OP_NOT_IN_SESSION)?;
        let credential = CallbackCredential::choose(&of.bca_sec_parms);
        if credential == CallbackCredential::Impossible {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        let value = {
            let mut sessions = self.door.sessions.borrow_mut();
            let session = sessions
                .get_mut(&on.session)
                .ok_or(Nfsstat4::NFS4ERR_BADSESSION)?;
            session.record.callback_program = of.bca_cb_program;
            session.record.callback_credential = credential;
            session.record.to_row()
        };
        let key = Record::key(&on.session);
        let request = Request::PutRecord { key, value };
        self.ask(&Caller::ROOT, request).await.map(drop)
    }

    /// DESTROY_CLIENTID (RFC 8881, section 18.50).
    pub(super) async fn destroy_client(&self, id: ClientId) -> Result<(), Nfsstat4> {
        {
            let clients = self.door.clients.borrow();
            let client = clients.get(id).filter(|client| client.record.family == 1);
            let client = client.ok_or(Nfsstat4::NFS4ERR_STALE_CLIENTID)?;
            let holds = self.door.states.borrow().holds_something(id);
            // One that was not heard of since a restart may be about to claim what it held.
            let is_away = self.door.is_in_grace() && client.has_claims() && !client.has_returned;
            if !client.sessions.is_empty() || holds || is_away {
                return Err(Nfsstat4::NFS4ERR_CLIENTID_BUSY);
            }
        }
        self.door.forget(id).await;
        Ok(())
    }

    /// RECLAIM_COMPLETE (RFC 8881, section 18.51).
    pub(super) async fn reclaim_complete(&self, of: &ReclaimComplete4Args) -> Result<(), Nfsstat4> {
        let id = self.client()?;
        if of.rca_one_fs {
            self.place()?;
            return Ok(());
        }
        {
            let mut clients = self.door.clients.borrow_mut();
            let client = clients
                .get_mut(id)
                .ok_or(Nfsstat4::NFS4ERR_STALE_CLIENTID)?;
            if client.has_reclaimed {
                return Err(Nfsstat4::NFS4ERR_COMPLETE_ALREADY);
            }
            client.has_reclaimed = true;
            client.owes_complete = false;
        }
        if let Err(error) = self.door.claims_no_more(id).await {
            // It is tried again when the client takes something.
            tracing::warn!(%error, client = id, "it could not reclaim after a restart");
        }
        self.door.reclaimed();
        Ok(())
    }
}

/// A session that was made.
enum Made {
    New(Result<CreateSession4Resok, Nfsstat4>),
    /// The client asks again: this was answered, with the operation's number and status.
    Again(Vec<u8>),
}

/// No channel.
fn none() -> ChannelAttrs4 {
    ChannelAttrs4 {
        ca_headerpadsize: 0,
        ca_maxrequestsize: 0,
        ca_maxresponsesize: 0,
        ca_maxresponsesize_cached: 0,
        ca_maxoperations: 0,
        ca_maxrequests: 0,
        ca_rdma_ird: None,
    }
}
