//! SETCLIENTID, SETCLIENTID_CONFIRM, RENEW: clients of NFSv4.0.

use crate::server::clients::Met;
use crate::server::compound::Compound;
use crate::server::states::ClientId;
use crate::wire::*;
use crate::xdr::Encoder;

impl Compound<'_> {
    /// SETCLIENTID (RFC 7530, section 16.33). Callbacks are not called: no delegations in 4.0.
    pub(super) async fn setclientid(
        &self,
        of: &Setclientid4Args<'_>,
        out: &mut Encoder,
    ) -> Nfsstat4 {
        let result = self.client_set(of).await;
        let status = result.as_ref().err().copied().unwrap_or(Nfsstat4::NFS4_OK);
        out.put(&NfsOpnum4::OP_SETCLIENTID);
        out.put(&match result {
            Ok(done) => Setclientid4Res::Nfs4Ok(done),
            Err(Nfsstat4::NFS4ERR_CLID_INUSE) => Setclientid4Res::Nfs4ErrClidInuse(Netaddr4 {
                na_r_netid: "tcp".into(),
                na_r_addr: "".into(),
            }),
            Err(status) => Setclientid4Res::Default(status),
        });
        status
    }

    async fn client_set(&self, of: &Setclientid4Args<'_>) -> Result<Setclientid4Resok, Nfsstat4> {
        let principal = self.user.map(|user| user.uid);
        let now_ms = self.door.now_ms();
        let (name, verifier) = (&of.client.id, of.client.verifier);
        let meet = || {
            let clients = self.door.clients.borrow();
            clients.meet(0, name, verifier, principal)
        };
        let is_known = |met| matches!(met, Met::Same(id) if self.door.is_of_this_start(id));
        if !is_known(meet()) {
            self.door.make_room().await?;
        }
        let met = meet();
        if matches!(met, Met::Other(id) if self.door.is_alive_with_state(id)) {
            return Err(Nfsstat4::NFS4ERR_CLID_INUSE);
        }
        let mut clients = self.door.clients.borrow_mut();
        let id = match met {
            Met::Same(id) if self.door.is_of_this_start(id) => id,
            _ => clients.introduce(0, name, verifier, principal, now_ms),
        };
        Ok(Setclientid4Resok {
            clientid: id,
            setclientid_confirm: confirmation(id),
        })
    }

    /// SETCLIENTID_CONFIRM (RFC 7530, section 16.34).
    pub(super) async fn setclientid_confirm(
        &self,
        of: &SetclientidConfirm4Args,
    ) -> Result<(), Nfsstat4> {
        let stale = Nfsstat4::NFS4ERR_STALE_CLIENTID;
        {
            let clients = self.door.clients.borrow();
            let client = clients
                .get(of.clientid)
                .filter(|client| client.record.family == 0);
            // Who has not confirmed itself within a lease is a stranger.
            let (now_ms, lease_ms) = (self.door.now_ms(), self.door.lease_ms);
            let client = client.filter(|of| of.is_confirmed || !of.is_lapsed(now_ms, lease_ms));
            let client = client.ok_or(stale)?;
            if of.setclientid_confirm != confirmation(of.clientid) {
                return Err(stale);
            }
            if client.record.principal != self.user.map(|user| user.uid) {
                return Err(Nfsstat4::NFS4ERR_CLID_INUSE);
            }
        }
        self.door.confirm(of.clientid).await
    }

    /// RENEW (RFC 7530, section 16.28).
    pub(super) fn renew(&self, client: ClientId) -> Result<(), Nfsstat4> {
        self.door.renew_without_session(client)
    }
}

/// What a client shows to confirm itself: it has heard the answer.
fn confirmation(id: ClientId) -> Verifier4 {
    (id ^ 0x5645_5256_4149_4e34).to_be_bytes()
}
