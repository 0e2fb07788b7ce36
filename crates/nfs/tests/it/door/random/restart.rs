//! What clients of a random program do after a restart of the door.

use std::cell::RefCell;

use nfs::wire::*;
use sim::Env;

use super::super::bench::*;
use super::super::clients::set_client_id;
use super::model::{File, Owner};
use super::opens::Wish;
use super::program::{CLIENTS, Peer, Program};

impl Program {
    /// The door has restarted: some clients come back and claim what they had, or a part of it; some have
    /// restarted themselves, others stay away.
    pub(super) async fn reclaim(mut self, env: &Env) -> Self {
        self.note("the door restarts".to_string());
        self.is_grace = true;
        self.waits_for = 0;
        // At times nobody is waited for.
        let is_quick = self.random.bool();
        let before = std::mem::take(&mut self.files);
        for client in 0..CLIENTS {
            self.peers[client].has_back = false;
            if self.peers[client].is_gone {
                self.have_beside_back(env, client).await;
                continue;
            }
            let is_zero = self.peers[client].id.is_some();
            match self.random.u32(..8) {
                _ if is_quick && is_zero => self.restart(env, client).await,
                0 => self.restart(env, client).await,
                1 | 2 if !is_quick => {
                    self.note(format!("client {client} stays away"));
                    self.waits_for += 1;
                    self.peers[client].is_gone = true;
                    self.peers[client].lost = None;
                }
                3 | 4 if !is_quick => self.reclaim_some(env, client, &before).await,
                _ => self.reclaim_all(env, client, &before).await,
            }
        }
        self
    }

    /// Whether the grace period is over as soon as the clients have done that.
    pub(super) fn is_over_early(&self) -> bool {
        self.waits_for == 0
    }

    /// A client that has restarted itself holds nothing of before.
    async fn restart(&mut self, env: &Env, client: usize) {
        self.note(format!("client {client} restarts"));
        let lives = self.peers[client].lives + 1;
        self.peers[client] = Peer::new(env, client, lives).await;
    }

    async fn reclaim_all(&mut self, env: &Env, client: usize, before: &[File; 2]) {
        self.come_back(env, client).await;
        if let Some(lost) = self.peers[client].lost.take() {
            self.is_refused_all(env, client, &lost).await;
        } else {
            for (file, held) in before.iter().enumerate() {
                self.reclaim_file(env, client, file, held).await;
            }
        }
        let done = self
            .send_open(env, ((client, 0), 0), (1, 0), false, None)
            .await;
        self.judge(&done, Nfsstat4::NFS4ERR_GRACE);
        match self.peers[client].id {
            None => self.peers[client].client.reclaim_complete().await,
            // There is nothing by which it would say so.
            Some(_) => self.waits_for += 1,
        }
    }

    /// A client claims the half of what it had, or nothing, and is cut off.
    async fn reclaim_some(&mut self, env: &Env, client: usize, before: &[File; 2]) {
        self.waits_for += 1;
        self.come_back(env, client).await;
        if self.peers[client].id.is_none() {
            let needed = SEQ4_STATUS_RESTART_RECLAIM_NEEDED;
            let flags = self.peers[client].client.flags().await;
            assert_ne!(flags & needed, 0, "{self}");
        }
        if self.peers[client].lost.is_some() {
            return;
        }
        if self.random.bool() {
            self.reclaim_file(env, client, 0, &before[0]).await;
        }
        let claims = |of: &File| of.opens.keys().any(|of| of.0 == client);
        if self.peers[client].id.is_some() && claims(&self.files[0]) {
            // In 4.0 who claims something is taken to have claimed all: that is what it has from now on.
            return;
        }
        self.note(format!("client {client} is cut off"));
        self.peers[client].lost = Some(before.clone());
        self.peers[client].is_cut_off = self.random.bool();
    }

    /// What was lost in an earlier grace period is not claimed in a later one: others may have had it.
    async fn is_refused_all(&mut self, env: &Env, client: usize, lost: &[File; 2]) {
        for (file, held) in lost.iter().enumerate() {
            for (of, open) in held.opens.iter().filter(|(of, _)| of.0 == client) {
                let shares = (open.access, open.deny);
                self.note(format!("claim {of:?} of {file}, which is lost"));
                let done = self.claim(env, (*of, file), shares, Wish::Nothing).await;
                self.judge(&done, Nfsstat4::NFS4ERR_RECLAIM_BAD);
            }
        }
    }

    /// A client that was cut off is back, after the grace period; or not yet.
    pub(super) async fn go_on_after_loss(&mut self, env: &Env, client: usize) {
        if self.peers[client].is_cut_off || self.random.u32(..6) > 0 {
            return;
        }
        self.note(format!("client {client} learns what it has lost"));
        self.peers[client].lost = None;
        let done = self
            .claim(env, ((client, 0), 1), (1, 0), Wish::Nothing)
            .await;
        self.judge(&done, Nfsstat4::NFS4ERR_NO_GRACE);
        if self.peers[client].id.is_some() {
            return;
        }
        let done = self
            .send_open(env, ((client, 0), 1), (1, 0), false, None)
            .await;
        self.judge(&done, Nfsstat4::NFS4ERR_GRACE);
        let needed = SEQ4_STATUS_RESTART_RECLAIM_NEEDED;
        let peer = &self.peers[client].client;
        assert_ne!(peer.flags().await & needed, 0, "{self}");
        peer.reclaim_complete().await;
        assert_eq!(peer.flags().await & needed, 0, "{self}");
    }

    /// The 4.1 client whose connection a 4.0 client has is back, and has nothing to claim.
    async fn have_beside_back(&mut self, env: &Env, client: usize) {
        let peer = &mut self.peers[client];
        if peer.id.is_some() {
            peer.client.connect(env).await;
            peer.client.slots.get_mut()[0] += 1;
            peer.client.reclaim_complete().await;
        }
    }

    async fn come_back(&mut self, env: &Env, client: usize) {
        self.note(format!("client {client} comes back"));
        let lives = self.peers[client].lives;
        let Some(_) = self.peers[client].id else {
            let makes_session = self.random.u32(..4) > 0;
            let peer = &mut self.peers[client];
            peer.client.connect(env).await;
            if makes_session {
                // Callbacks go on in a session of this start alone; any number is the first one's.
                let of = create_session(peer.client.id, 77);
                let made = [NfsArgop4::CreateSession(of)];
                let made = peer.client.wire.call(1, &made).await.ok();
                peer.client.session = session_of(&made);
                peer.client.slots = RefCell::default();
                peer.has_back = true;
            } else {
                peer.client.bind().await;
            }
            peer.renewed = env.core.now();
            return;
        };
        self.have_beside_back(env, client).await;
        // It gets another number, and owners begin anew.
        let peer = &mut self.peers[client];
        let name = format!("client {client}");
        peer.id = Some(set_client_id(&peer.client.wire, &name, lives).await);
        peer.sequences.clear();
        peer.renewed = env.core.now();
    }

    /// CLAIM_PREVIOUS of an open.
    async fn claim(
        &mut self,
        env: &Env,
        of: (Owner, usize),
        shares: (u32, u32),
        wish: Wish,
    ) -> Done {
        let kind = match wish {
            Wish::Nothing | Wish::New => OpenDelegationType4::OPEN_DELEGATE_NONE,
            Wish::Claim(false) => OpenDelegationType4::OPEN_DELEGATE_READ,
            Wish::Claim(true) => OpenDelegationType4::OPEN_DELEGATE_WRITE,
        };
        let claim = OpenClaim4::ClaimPrevious(kind);
        let wants = wish != Wish::Nothing;
        self.send_open(env, of, shares, wants, Some(claim)).await
    }

    async fn reclaim_file(&mut self, env: &Env, client: usize, file: usize, held: &File) {
        let own = held.opens.iter().filter(|(of, _)| of.0 == client);
        let mut opens: Vec<(Owner, (u32, u32))> = own
            .map(|(of, open)| (*of, (open.access, open.deny)))
            .collect();
        let delegation = held.delegations.get(&client).map(|of| of.writes);
        // It is claimed with one of them, and if none is left with one for that.
        let mut wish = delegation.map_or(Wish::Nothing, Wish::Claim);
        if let Some(writes) = delegation.filter(|_| opens.is_empty()) {
            opens.push(((client, 0), (if writes { 3 } else { 1 }, 0)));
        }
        for (of, shares) in opens {
            self.note(format!("reclaim {of:?} of {file}: {shares:?} {wish:?}"));
            let done = self.claim(env, (of, file), shares, wish).await;
            self.judge(&done, Nfsstat4::NFS4_OK);
            self.opened(env, (of, file), shares, wish, &done).await;
            wish = Wish::Nothing;
        }
        for (of, locks) in held.locks.iter().filter(|(of, _)| of.0 == client) {
            for (byte, kind) in locks.bytes.iter().enumerate() {
                let Some(writes) = *kind else {
                    continue;
                };
                // Of a file that is open for less since, what was locked before cannot be claimed.
                let needs = if writes { 2 } else { 1 };
                if self.files[file].opens[of].access & needs == 0 {
                    continue;
                }
                let range = byte..byte + 1;
                let done = self
                    .send_lock(env, (*of, file), range.clone(), writes, true)
                    .await;
                self.judge(&done, Nfsstat4::NFS4_OK);
                self.locked((*of, file), range, Some(writes), &done);
            }
        }
    }
}
