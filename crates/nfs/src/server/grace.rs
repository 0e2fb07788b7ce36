//! After a restart: who was there, and the time in which they claim again what they held (RFC 8881,
//! section 8.4.2).

use std::rc::Rc;
use std::time::Duration;

use files::{Caller, Request};

use crate::wire::Nfsstat4;

use super::states::ClientId;
use super::{Door, DoorError, clients, rows, sessions};

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
                    orphans.push(key);
                    continue;
                };
                client.sessions.insert(record.id);
                self.sessions
                    .borrow_mut()
                    .add(sessions::Session::new(record, true));
            }
        }
        for key in orphans {
            let request = Request::RemoveRecord(key);
            let removed = self.fs.call(&Caller::ROOT, request).await;
            removed.map_err(DoorError::Rows)?;
        }
        if self.clients.borrow().len() > 0 {
            self.grace_until_ms.set(Some(now_ms + self.lease_ms));
        } else {
            self.end_grace().await;
        }
        Ok(())
    }

    /// Whether a client may take what is no conflict now.
    ///
    /// # Errors
    /// GRACE: others come first. NO_GRACE: there is nothing to claim again, or not any more.
    pub(super) fn may_claim(&self, client: ClientId, is_reclaim: bool) -> Result<(), Nfsstat4> {
        let is_in_grace = self.is_in_grace();
        if !is_reclaim {
            let grace = Err(Nfsstat4::NFS4ERR_GRACE);
            return if is_in_grace { grace } else { Ok(()) };
        }
        let clients = self.clients.borrow();
        let may = clients.get(client);
        let may = may.is_some_and(|client| client.may_reclaim && !client.has_reclaimed);
        if is_in_grace && may {
            Ok(())
        } else {
            Err(Nfsstat4::NFS4ERR_NO_GRACE)
        }
    }

    /// A client has reclaimed all: when all have, the grace period is over.
    pub(super) fn reclaimed(&self) {
        let clients = self.clients.borrow();
        let mut waiting = clients.iter();
        if !waiting.any(|client| client.may_reclaim && !client.has_reclaimed) {
            self.grace_over.notify_one();
        }
    }

    /// The grace period ends. Who did not come back is forgotten, so that it cannot claim, after a
    /// later restart, what others have held since (RFC 8881, section 8.4.3).
    async fn end_grace(&self) {
        let silent: Vec<ClientId> = {
            let clients = self.clients.borrow();
            let silent = clients
                .iter()
                .filter(|client| client.may_reclaim && !client.has_returned);
            silent.map(|client| client.record.id).collect()
        };
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
        if let Err(error) = self.fs.call(&Caller::ROOT, Request::EndGrace).await {
            tracing::error!(%error, "the file system did not end the grace period");
        }
        self.grace_until_ms.set(None);
        for client in self.clients.borrow_mut().iter_mut() {
            client.may_reclaim = false;
        }
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
        door.end_grace().await;
    }
}
