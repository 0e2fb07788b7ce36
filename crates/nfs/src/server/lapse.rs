//! Clients that come, go, or fall silent (RFC 8881, sections 8.3 and 8.4).
//!
//! A client whose lease has run out is treated with courtesy: it keeps what it holds until somebody
//! else wants that: a request that it is in the way of, or room when there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use files::{Answer, Caller, Error, Handle, Holder, Name, Request, VolumeId};

use crate::wire::{Nfsstat4, Sessionid4};

use super::conflicts::Wants;
use super::states::ClientId;
use super::{Door, PAUSE, clients, sessions};

/// Stands for a client's row, in the turns that are taken at it.
const ROWS: [u8; 12] = [0xff; 12];

/// No client's number.
const NOBODY: ClientId = 0;

/// Files that a request for room looks at: it is to be answered soon, also that there is none.
const LOOKS_MAX: usize = 64;

/// What is known of the room that clients without a lease keep.
#[derive(Default)]
pub(super) struct Space {
    /// When it was last sought, of a volume or of the whole, and whether there was some.
    sought: BTreeMap<Option<VolumeId>, (u64, bool)>,
    /// The last file that was looked at, and its client: the next search goes on behind it.
    looked: BTreeMap<Option<VolumeId>, (ClientId, Handle)>,
    /// Clients that are about to be forgotten, or that cannot be at present.
    tried: BTreeSet<ClientId>,
}

impl Door {
    /// A client has confirmed itself: it is written down, and the one of its name before it is
    /// forgotten.
    pub(super) async fn confirm(&self, id: ClientId) -> Result<(), Nfsstat4> {
        let is_confirmed = {
            let mut clients = self.clients.borrow_mut();
            let client = clients
                .get_mut(id)
                .ok_or(Nfsstat4::NFS4ERR_STALE_CLIENTID)?;
            client.renewed_ms = self.now_ms();
            client.has_returned = true;
            client.is_confirmed
        };
        if is_confirmed {
            return Ok(());
        }
        self.clients.borrow_mut().inherit(id);
        let written = self.write_down(id).await;
        written.map_err(super::status::of_error)?;
        if self.clients.borrow().get(id).is_none() {
            // It has introduced itself once more meanwhile.
            self.strike_off(id).await;
            return Err(Nfsstat4::NFS4ERR_STALE_CLIENTID);
        }
        let before = self.clients.borrow_mut().confirm(id);
        if let Some(before) = before {
            self.forget(before).await;
        }
        Ok(())
    }

    /// Sees to it that there is room for one more client: of those whose lease has run out one goes
    /// that never confirmed itself, or else one that holds nothing, or else any.
    ///
    /// # Errors
    /// DELAY: all are alive.
    pub(super) async fn make_room(&self) -> Result<(), Nfsstat4> {
        while self.clients.borrow().len() >= self.clients_max {
            let lapsed = self.clients.borrow().lapsed(self.now_ms(), self.lease_ms);
            let worth = |id: &ClientId| {
                let clients = self.clients.borrow();
                let is_confirmed = clients.get(*id).is_some_and(|of| of.is_confirmed);
                (is_confirmed, self.states.borrow().holds_something(*id))
            };
            let least = lapsed.into_iter().min_by_key(worth);
            self.forget(least.ok_or(Nfsstat4::NFS4ERR_DELAY)?).await;
        }
        Ok(())
    }

    /// Writes a client's row as it is now, if there is that client still and its row is another one.
    ///
    /// # Errors
    /// The file system's.
    pub(super) async fn write_down(&self, id: ClientId) -> Result<(), Error> {
        let _turn = self.turns.take(id, Handle::from_bytes(ROWS)).await;
        let (mark, value) = {
            let mut clients = self.clients.borrow_mut();
            let Some(client) = clients.get_mut(id) else {
                return Ok(());
            };
            let mark = Some(client.record.is_marked);
            if client.written == mark {
                return Ok(());
            }
            client.written = None;
            (mark, client.record.to_row())
        };
        let key = clients::Record::key(id);
        let request = Request::PutRecord { key, value };
        self.fs.call(&Caller::ROOT, request).await?;
        if let Some(client) = self.clients.borrow_mut().get_mut(id) {
            client.written = mark;
        }
        Ok(())
    }

    /// A client's row goes.
    async fn strike_off(&self, id: ClientId) {
        let _turn = self.turns.take(id, Handle::from_bytes(ROWS)).await;
        let row = Request::RemoveRecord(clients::Record::key(id));
        self.have_done(&row).await;
    }

    /// A client is no more, nor what it held.
    pub(super) async fn forget(&self, id: ClientId) {
        let Some(idle) = self.take_out(id) else {
            return;
        };
        // Before others get what it held: after a restart it must not claim that.
        self.strike_off(id).await;
        self.have_forgotten(id, idle).await;
    }

    /// A client is no more for anybody who asks; returns its sessions that are not in use.
    fn take_out(&self, id: ClientId) -> Option<BTreeSet<Sessionid4>> {
        let client = self.clients.borrow_mut().remove(id)?;
        self.count(|counts| counts.forgotten += 1);
        self.states.borrow_mut().forget_client(id);
        // Its sessions are no more for anybody who asks meanwhile.
        let mut idle = client.sessions;
        idle.retain(|session| !self.sessions.borrow_mut().end(session));
        Some(idle)
    }

    /// What a client held that is struck off is no more.
    async fn have_forgotten(&self, id: ClientId, idle: BTreeSet<Sessionid4>) {
        self.have_done(&Request::Forget { client: id }).await;
        for session in idle {
            // What is left is found at the next start.
            if let Err(error) = self.end_rows(&session).await {
                tracing::error!(%error, client = id, "a session is not wholly forgotten");
            }
        }
        if self.is_in_grace() {
            // It may have been the last one that others wait for.
            self.reclaimed();
        }
    }

    /// Forgets a client for the room that it keeps, unless there is not even the room to strike it off: then it stays,
    /// and is left alone for a lease.
    async fn forget_for_space(&self, id: ClientId) {
        if self.struck_off_for_space(id).await.is_none() {
            self.core.sleep(Duration::from_millis(self.lease_ms)).await;
        }
        self.space.borrow_mut().tried.remove(&id);
    }

    async fn struck_off_for_space(&self, id: ClientId) -> Option<()> {
        let idle = {
            let _turn = self.turns.take(id, Handle::from_bytes(ROWS)).await;
            let row = Request::RemoveRecord(clients::Record::key(id));
            loop {
                if !self.is_lapsed(id) {
                    return None;
                }
                // Who comes back meanwhile waits: without a row it could claim nothing after a restart.
                self.leaves(id, true);
                let removed = self.fs.call(&Caller::ROOT, row.clone()).await;
                if removed.is_ok() {
                    break;
                }
                self.leaves(id, false);
                match removed {
                    Err(error @ (Error::NoSpace | Error::QuotaExceeded)) => {
                        tracing::warn!(%error, client = id, "it is not forgotten for the room that it keeps");
                        return None;
                    }
                    removed => tracing::error!(?removed, ?row, "it is asked again"),
                }
                self.core.sleep(PAUSE).await;
            }
            self.take_out(id)?
        };
        self.have_forgotten(id, idle).await;
        Some(())
    }

    /// A client is being struck off, or not any more.
    fn leaves(&self, id: ClientId, is_leaving: bool) {
        if let Some(client) = self.clients.borrow_mut().get_mut(id) {
            client.is_leaving = is_leaving;
        }
    }

    /// Asks until it is done.
    async fn have_done(&self, request: &Request) {
        while let Err(error) = self.fs.call(&Caller::ROOT, request.clone()).await {
            tracing::error!(%error, ?request, "it is asked again");
            self.core.sleep(PAUSE).await;
        }
    }

    /// Asks until the file system has no more of what was held: also what has ended is not held.
    pub(super) async fn have_undone(&self, request: &Request) {
        loop {
            match self.fs.call(&Caller::ROOT, request.clone()).await {
                Ok(_) | Err(Error::NotHeld | Error::Stale) => return,
                Err(error) => tracing::error!(%error, ?request, "it is asked again"),
            }
            self.core.sleep(PAUSE).await;
        }
    }

    /// After the file system has given a client something: whether there is that client still. If not,
    /// that is forgotten too.
    ///
    /// # Errors
    /// EXPIRED.
    pub(super) async fn still_there(&self, id: ClientId) -> Result<(), Nfsstat4> {
        if self.clients.borrow().get(id).is_some() {
            return Ok(());
        }
        let forget = Request::Forget { client: id };
        let forgotten = self.fs.call(&Caller::ROOT, forget).await;
        forgotten.map_err(super::status::of_error)?;
        Err(Nfsstat4::NFS4ERR_EXPIRED)
    }

    /// Whether a client's lease has run out.
    fn is_lapsed(&self, id: ClientId) -> bool {
        let clients = self.clients.borrow();
        let client = clients.get(id);
        client.is_some_and(|client| client.is_lapsed(self.now_ms(), self.lease_ms))
    }

    /// A session is no more.
    pub(super) async fn end_session(&self, id: &Sessionid4) -> Result<(), Nfsstat4> {
        let (client, is_busy) = {
            let mut sessions = self.sessions.borrow_mut();
            let session = sessions.get(id).ok_or(Nfsstat4::NFS4ERR_BADSESSION)?;
            (session.record.client, sessions.end(id))
        };
        if let Some(client) = self.clients.borrow_mut().get_mut(client) {
            client.sessions.remove(id);
        }
        if !is_busy {
            self.have_ended(id).await;
        }
        Ok(())
    }

    /// What is kept of a session that is no more goes: its row last, so that what is left of it is found
    /// at the next start.
    async fn have_ended(&self, id: &Sessionid4) {
        self.have_done(&Request::EndSession(*id)).await;
        let row = Request::RemoveRecord(sessions::Record::key(id));
        self.have_done(&row).await;
    }

    /// Forgets a session's kept answers, and then its row.
    ///
    /// # Errors
    /// The file system's.
    pub(super) async fn end_rows(&self, id: &Sessionid4) -> Result<(), Error> {
        let answers = Request::EndSession(*id);
        self.fs.call(&Caller::ROOT, answers).await?;
        let row = Request::RemoveRecord(sessions::Record::key(id));
        self.fs.call(&Caller::ROOT, row).await.map(drop)
    }

    /// A request has ended. If its session has ended meanwhile, and this was the last request on it, so
    /// does what was kept of them.
    pub(super) async fn after_request(&self, id: &Sessionid4) {
        let is_last = self.sessions.borrow_mut().has_left(id);
        if is_last {
            self.have_ended(id).await;
        }
    }

    /// Forgets clients without a lease that are in the way of what is wanted. Returns whether there were any:
    /// then what was refused may succeed now.
    pub(super) async fn settle(&self, wants: &Wants) -> bool {
        let in_the_way = self.states.borrow().in_the_way(wants);
        let mut is_changed = false;
        for id in in_the_way {
            is_changed |= self.forget_lapsed(id).await;
        }
        is_changed
    }

    /// Forgets a client if its lease has run out: by now it may have come back. Returns whether it had.
    pub(super) async fn forget_lapsed(&self, id: ClientId) -> bool {
        let is_lapsed = self.is_lapsed(id);
        if is_lapsed {
            self.forget(id).await;
        }
        is_lapsed
    }

    /// Asks, and asks again if clients without a lease were in the way of what it wants.
    pub(super) async fn settling<T, F>(
        &self,
        wants: &[Wants],
        mut ask: impl FnMut() -> F,
    ) -> Result<T, Nfsstat4>
    where
        F: Future<Output = Result<T, Nfsstat4>>,
    {
        loop {
            let result = ask().await;
            if !is_conflict(&result) || !self.settle_all(wants).await {
                return result;
            }
        }
    }

    /// The same where names that change lead to the files.
    pub(super) async fn settling_names<T, F>(
        &self,
        names: &[(Handle, &Name)],
        holder: Option<Holder>,
        mut ask: impl FnMut() -> F,
    ) -> Result<T, Nfsstat4>
    where
        F: Future<Output = Result<T, Nfsstat4>>,
    {
        loop {
            let result = ask().await;
            if !is_conflict(&result) {
                return result;
            }
            let mut wants = Vec::new();
            for (directory, name) in names {
                let request = Request::Lookup(*directory, (*name).clone());
                if let Ok(Answer::Found(file, _)) = self.fs.call(&Caller::ROOT, request).await {
                    wants.push(Wants::change(file, holder));
                }
            }
            if !self.settle_all(&wants).await {
                return result;
            }
        }
    }

    async fn settle_all(&self, wants: &[Wants]) -> bool {
        let mut is_changed = false;
        for of in wants {
            is_changed |= self.settle(of).await;
        }
        is_changed
    }

    /// After a request that found no room: has clients without a lease forgotten that keep files from ending which
    /// have no name any more, as nobody can be in conflict with them there. Returns whether there will be more
    /// room soon: there were any, now or within the last second. They are forgotten by tasks of their own, so that
    /// who finds no room is told so whatever comes of that.
    ///
    /// Cost: a look at [`LOOKS_MAX`] files that such clients have open, once a second and volume at most.
    pub(super) async fn make_space(&self, volume: Option<VolumeId>) -> bool {
        let _turn = self.turns.take(NOBODY, Handle::from_bytes(ROWS)).await;
        let now_ms = self.now_ms();
        let is_late = |sought_ms: u64| now_ms >= sought_ms + PAUSE.as_millis() as u64;
        {
            let sought = &mut self.space.borrow_mut().sought;
            sought.retain(|_, (sought_ms, _)| !is_late(*sought_ms));
            if let Some((_, was_found)) = sought.get(&volume) {
                return *was_found;
            }
        }
        let found = self.keepers(volume).await;
        let is_found = !found.is_empty();
        for id in found {
            let Some(door) = self.me.upgrade() else {
                break;
            };
            self.space.borrow_mut().tried.insert(id);
            drop(
                self.core
                    .spawn(async move { door.forget_for_space(id).await }),
            );
        }
        let sought = &mut self.space.borrow_mut().sought;
        sought.insert(volume, (self.now_ms(), is_found));
        is_found
    }

    /// Clients that have a file open that has no name, and nobody with a lease has; of a volume, if one is given.
    async fn keepers(&self, volume: Option<VolumeId>) -> BTreeSet<ClientId> {
        let mut keepers = BTreeSet::new();
        for (id, file) in self.next_to_look_at(volume) {
            self.space.borrow_mut().looked.insert(volume, (id, file));
            if keepers.contains(&id) {
                continue;
            }
            let request = Request::GetAttributes(file);
            let answer = self.fs.call(&Caller::ROOT, request).await;
            let is_nameless = matches!(answer, Ok(Answer::Attributes(of)) if of.links == 0);
            if is_nameless && self.is_lapsed(id) {
                keepers.insert(id);
            }
        }
        keepers
    }

    /// Files that lapsed clients alone have open: those behind the last one that was looked at, and then from the first.
    fn next_to_look_at(&self, volume: Option<VolumeId>) -> Vec<(ClientId, Handle)> {
        let (space, states) = (self.space.borrow(), self.states.borrow());
        let mut lapsed = self.clients.borrow().lapsed(self.now_ms(), self.lease_ms);
        lapsed.retain(|id| !space.tried.contains(id));
        lapsed.sort_unstable();
        let is_kept = |file| {
            let openers = states.openers(file);
            openers.into_iter().any(|client| !self.is_lapsed(client))
        };
        let of_volume = |file: &Handle| volume.is_none_or(|volume| volume == file.volume);
        let all = || {
            lapsed.iter().flat_map(|id| {
                let opened = states.opened_by(*id).into_iter().filter(of_volume);
                opened.map(|file| (*id, file))
            })
        };
        let last = space.looked.get(&volume).copied();
        let is_behind = |of: &(ClientId, Handle)| last.is_none_or(|last| *of > last);
        let rest = all().filter(|of| !is_behind(of));
        let next = all().filter(is_behind).chain(rest);
        next.filter(|(_, file)| !is_kept(*file))
            .take(LOOKS_MAX)
            .collect()
    }

    /// If a client has acknowledged all that was taken away from it, it may reclaim again.
    ///
    /// # Errors
    /// The file system's.
    pub(super) async fn acknowledged(&self, id: ClientId) -> Result<(), Nfsstat4> {
        {
            let states = self.states.borrow();
            let mut held = states.of_client(id).into_iter();
            if held.any(|num| states.get(num).is_some_and(|state| state.is_revoked)) {
                return Ok(());
            }
            let mut clients = self.clients.borrow_mut();
            let Some(client) = clients.get_mut(id) else {
                return Ok(());
            };
            client.is_revoked = false;
            client.record.is_marked = client.has_lost;
        }
        let written = self.write_down(id).await;
        written.map_err(super::status::of_error)
    }
}

/// Whether a request was refused for what somebody else holds.
fn is_conflict<T>(result: &Result<T, Nfsstat4>) -> bool {
    matches!(
        result,
        Err(Nfsstat4::NFS4ERR_SHARE_DENIED | Nfsstat4::NFS4ERR_LOCKED | Nfsstat4::NFS4ERR_DELAY)
    )
}
