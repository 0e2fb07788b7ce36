//! After a restart: who was there, and the time in which they claim again what they held (RFC 8881,
//! section 8.4.2).

use std::rc::Rc;
use std::time::Duration;

use files::{Caller, Error, Request};

use crate::wire::Nfsstat4;

use super::states::ClientId;
use super::{Door, DoorError, LEASE, PAUSE, clients, lease_of_row, lease_row, rows, sessions};

impl Door {
    /// Takes up the clients and sessions of before the restart.
    pub(super) async fn restore(&self) -> Result<(), DoorError> {
        let damaged = |key: &[u8]| DoorError::Damaged {
            key: key.escape_ascii().to_string(),
        };
        let now_ms = self.now_ms();
        let mut orphans = Vec::new();
        for (key, row) in rows(&*self.fs).await? {
            if key.starts_with(clients::ROWS) {
                let record = clients::Record::from_row(&key, &row).ok_or_else(|| damaged(&key))?;
                self.clients.borrow_mut().restore(record, now_ms);
            } else if key.starts_with(sessions::ROWS) {
                let record = sessions::Record::from_row(&key, &row).ok_or_else(|| damaged(&key))?;
                let mut clients = self.clients.borrow_mut();
                // Its client was forgotten when the server died: so is the session.
                let Some(client) = clients.get_mut(record.client) else {
                    orphans.push(record.id);
                    continue;
                };
                client.sessions.insert(record.id);
                let mut sessions = self.sessions.borrow_mut();
                let keeps = sessions.keep(&record.limits);
                sessions.add(sessions::Session::new(record, keeps, true));
            } else if key == LEASE {
                let lease_ms = lease_of_row(&row).ok_or_else(|| damaged(&key))?;
                self.lease_before_ms.set(Some(lease_ms));
            }
        }
        for record in orphans {
            self.end_rows(&record).await.map_err(DoorError::Rows)?;
        }
        let told_ms = self.lease_told().await?;
        self.grace_until_ms.set(Some(now_ms + told_ms));
        if self.clients.borrow().len() == 0 {
            self.end_grace().await.map_err(DoorError::Rows)?;
        }
        Ok(())
    }

    /// The longest lease that clients may believe to have: the grace period is no shorter (RFC 8881,
    /// section 8.4.2). What they may hear from now on is written down first.
    async fn lease_told(&self) -> Result<u64, DoorError> {
        let told_ms = match self.lease_before_ms.get() {
            Some(before_ms) => before_ms.max(self.lease_ms),
            None => self.lease_ms,
        };
        self.tell_lease(told_ms).await.map_err(DoorError::Rows)?;
        Ok(told_ms)
    }

    /// Writes down which lease clients have been told of, if the row says otherwise.
    async fn tell_lease(&self, lease_ms: u64) -> Result<(), Error> {
        if self.lease_before_ms.get() == Some(lease_ms) {
            return Ok(());
        }
        let request = Request::PutRecord {
            key: LEASE.to_vec(),
            value: lease_row(lease_ms),
        };
        self.fs.call(&Caller::ROOT, request).await?;
        self.lease_before_ms.set(Some(lease_ms));
        Ok(())
    }

    /// Whether a client may take what is no conflict now. Who takes something new, or
    /// asks whether it could, is done with what it had before.
    ///
    /// # Errors
    /// GRACE: others come first, or the client has not said yet that it reclaims nothing. NO_GRACE: there
    /// is nothing to claim again, or not any more. RECLAIM_BAD: some of it was taken away before. The
    /// file system's.
    pub(super) async fn may_claim(
        &self,
        client: ClientId,
        is_reclaim: bool,
    ) -> Result<(), Nfsstat4> {
        let is_in_grace = self.is_in_grace();
        if !is_reclaim {
            let owes_complete = {
                let clients = self.clients.borrow();
                clients.get(client).is_some_and(|of| of.owes_complete)
            };
            if is_in_grace || owes_complete {
                return Err(Nfsstat4::NFS4ERR_GRACE);
            }
            let done = self.claims_no_more(client).await;
            return done.map_err(super::status::of_error);
        }
        let clients = self.clients.borrow();
        let client = clients.get(client);
        match client.filter(|client| client.has_claims()) {
            // Others may have had what it lost (RFC 8881, section 8.4.2.1).
            Some(client) if is_in_grace && client.has_lost => Err(Nfsstat4::NFS4ERR_RECLAIM_BAD),
            Some(_) if is_in_grace => Ok(()),
            _ => Err(Nfsstat4::NFS4ERR_NO_GRACE),
        }
    }

    /// A client has reclaimed all: when all have, the grace period is over.
    pub(super) fn reclaimed(&self) {
        let clients = self.clients.borrow();
        let mut waiting = clients.iter();
        if !waiting.any(clients::Client::has_claims) {
            self.grace_over.notify_one();
        }
    }

    /// The grace period ends. Who did not come back is forgotten, and whoever may not have claimed all
    /// is marked, so that they cannot claim, after a later restart, what others have held since (RFC
    /// 8881, section 8.4.3).
    ///
    /// # Errors
    /// The file system's: the grace period goes on, and is to be ended again.
    async fn end_grace(&self) -> Result<(), Error> {
        let silent = self.clients_that(|client| client.may_reclaim && !client.has_returned);
        for id in silent {
            // It may have come back while another one was forgotten.
            let is_silent = {
                let clients = self.clients.borrow();
                clients.get(id).is_some_and(|client| !client.has_returned)
            };
            if is_silent {
                self.forget(id).await;
            }
        }
        for id in self.clients_that(clients::Client::has_claims) {
            if self.loses_claims(id) {
                self.write_down(id).await?;
            }
        }
        self.tell_lease(self.lease_ms).await?;
        self.fs.call(&Caller::ROOT, Request::EndGrace).await?;
        self.grace_until_ms.set(None);
        for client in self.clients.borrow_mut().iter_mut() {
            client.may_reclaim = false;
        }
        Ok(())
    }

    /// A client that has not said that it has claimed all may have lost some; returns whether it has.
    /// 4.0 has no RECLAIM_COMPLETE: who has claimed anything there is taken to have claimed all.
    fn loses_claims(&self, id: ClientId) -> bool {
        let mut clients = self.clients.borrow_mut();
        let Some(client) = clients.get_mut(id).filter(|client| client.has_claims()) else {
            return false;
        };
        if client.record.family == 0 && self.states.borrow().holds_something(id) {
            return false;
        }
        client.has_lost = true;
        client.record.is_marked = true;
        true
    }

    fn clients_that(&self, are: impl Fn(&clients::Client) -> bool) -> Vec<ClientId> {
        let clients = self.clients.borrow();
        let those = clients.iter().filter(|client| are(client));
        those.map(|client| client.record.id).collect()
    }

    /// A client has claimed what it could: it believes to hold nothing but what it has got since the
    /// restart.
    ///
    /// # Errors
    /// The file system's: its row may have the mark still.
    pub(super) async fn claims_no_more(&self, id: ClientId) -> Result<(), Error> {
        {
            let mut clients = self.clients.borrow_mut();
            let Some(client) = clients.get_mut(id) else {
                return Ok(());
            };
            client.has_lost = false;
            // What was taken away since is another matter.
            client.record.is_marked = client.is_revoked;
            if client.written == Some(client.record.is_marked) {
                return Ok(());
            }
        }
        self.write_down(id).await
    }
}

/// Ends the grace period when it is time, or all have claimed what they had.
pub(super) async fn keep(door: Rc<Door>) {
    if let Some(until_ms) = door.grace_until_ms.get() {
        let left = Duration::from_millis(until_ms.saturating_sub(door.now_ms()));
        // Either end is one.
        let _is_late = door
            .core
            .timeout(left, door.grace_over.notified())
            .await
            .is_err();
        while let Err(error) = door.end_grace().await {
            tracing::error!(%error, "the grace period goes on: it cannot be ended");
            door.core.sleep(PAUSE).await;
        }
    }
}
