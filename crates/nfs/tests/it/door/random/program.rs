//! The clients of a random program, and what each of their requests has to be answered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nfs::wire::*;
use sim::Env;

use super::super::bench::*;
use super::super::clients::set_client_id;
use super::model::File;

pub(super) const FILES: [&str; 2] = ["a", "b"];
pub(super) const CLIENTS: usize = 4;
const OWNERS: usize = 2;

/// Numbers of an owner's sequence in 4.0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sequences {
    pub(super) open: u32,
    pub(super) lock: u32,
}

/// A client: the first ones are of 4.1, the last one of 4.0.
pub(super) struct Peer {
    /// Of 4.1; of 4.0 its connection alone is used.
    pub(super) client: Client,
    /// Of 4.0.
    pub(super) id: Option<u64>,
    pub(super) sequences: BTreeMap<usize, Sequences>,
    /// When its lease was renewed.
    pub(super) renewed: rt::Instant,
    /// It can be called back.
    pub(super) has_back: bool,
    /// The door has forgotten it.
    pub(super) is_gone: bool,
    /// It came back after a restart and did not claim all that it had, which is this, and was cut off.
    pub(super) lost: Option<[File; 2]>,
    /// Until the next restart, that is.
    pub(super) is_cut_off: bool,
    /// How often it has begun anew.
    pub(super) lives: u8,
}

pub(super) struct Program {
    pub(super) random: fastrand::Rng,
    pub(super) peers: Vec<Peer>,
    pub(super) files: [File; 2],
    pub(super) is_grace: bool,
    /// So many clients may still claim something in the grace period.
    pub(super) waits_for: usize,
    pub(super) steps: Vec<String>,
    /// Delegations that were claimed, and given.
    pub(super) claimed: usize,
}

pub(super) fn owner_name(owner: usize) -> &'static str {
    ["o0", "o1"][owner]
}

/// Its last steps.
impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last = &self.steps[self.steps.len().saturating_sub(25)..];
        write!(f, "{last:#?}\n{:#?}", self.files)
    }
}

impl Peer {
    pub(super) async fn new(env: &Env, number: usize, lives: u8) -> Self {
        let name = format!("client {number}");
        let is_zero = number + 1 == CLIENTS;
        let mut session = name.clone();
        if is_zero {
            // It has the connection of a 4.1 client that holds nothing.
            session = format!("beside {number}");
        }
        let client = {
            let client = Client::begun(env, &session, lives).await;
            client.reclaim_complete().await;
            client
        };
        let id = match is_zero {
            true => Some(set_client_id(&client.wire, &name, lives).await),
            false => None,
        };
        Self {
            client,
            id,
            sequences: BTreeMap::new(),
            renewed: env.core.now(),
            has_back: !is_zero,
            is_gone: false,
            lost: None,
            is_cut_off: false,
            lives,
        }
    }
}

impl Program {
    pub(super) async fn begin(env: Env, seed: u64) -> Self {
        let mut peers = Vec::new();
        for number in 0..CLIENTS {
            peers.push(Peer::new(&env, number, 1).await);
        }
        for name in FILES {
            peers[0].client.make(name).await;
        }
        Self {
            random: fastrand::Rng::with_seed(seed),
            peers,
            files: Default::default(),
            is_grace: false,
            waits_for: 0,
            steps: Vec::new(),
            claimed: 0,
        }
    }

    pub(super) fn grace_is_over(&mut self) {
        self.is_grace = false;
    }

    /// How many stateids there are.
    pub(super) fn held(&self) -> usize {
        self.files.iter().map(File::count).sum()
    }

    pub(super) async fn steps(mut self, env: Env, steps: usize) -> Self {
        for _ in 0..steps {
            let client = self.random.usize(..CLIENTS);
            let (owner, file) = (self.random.usize(..OWNERS), self.random.usize(..2));
            let of = ((client, owner), file);
            if self.peers[client].lost.is_some() {
                self.go_on_after_loss(&env, client).await;
                continue;
            }
            match self.random.u32(..24) {
                0..6 => self.open(&env, of).await,
                6..9 => self.close(&env, of).await,
                9 => self.downgrade(&env, of).await,
                10..14 => self.lock(&env, of).await,
                14 => self.unlock(&env, of).await,
                15 | 20 => self.transfer(&env, of).await,
                21..24 => self.change(&env, client, file).await,
                16 => self.give_back(&env, client, file).await,
                17 => {
                    self.peers[client].client.wire.close();
                    self.connect(&env, client).await;
                }
                _ => {
                    self.note("time passes".to_string());
                    let seconds = [1, 41, 50][self.random.usize(..3)];
                    env.core.sleep(Duration::from_secs(seconds)).await;
                }
            }
        }
        self
    }

    pub(super) fn note(&mut self, step: String) {
        self.steps.push(step);
    }

    #[track_caller]
    pub(super) fn judge(&self, done: &Done, expected: Nfsstat4) {
        assert_eq!(done.status, expected, "{self}");
    }

    pub(super) fn is_lapsed(&self, env: &Env, client: usize) -> bool {
        env.core.now() - self.peers[client].renewed > LEASE
    }

    /// Those in the way of a request that have no lease are forgotten.
    pub(super) fn settle(&mut self, env: &Env, in_the_way: BTreeSet<usize>) {
        for client in in_the_way {
            if self.is_lapsed(env, client) {
                self.forget(client);
            }
        }
    }

    /// A client says something, and has a lease again.
    pub(super) async fn renew(&mut self, env: &Env, client: usize) {
        self.note(format!("client {client} renews its lease"));
        let peer = &mut self.peers[client];
        match peer.id {
            Some(clientid) => {
                let renew = NfsArgop4::Renew(Renew4Args { clientid });
                peer.client.wire.call(0, &[renew]).await.ok();
            }
            None => drop(peer.client.call(&[]).await.ok()),
        }
        peer.renewed = env.core.now();
    }

    pub(super) fn forget(&mut self, client: usize) {
        self.note(format!("client {client} is forgotten"));
        self.files.iter_mut().for_each(|file| file.forget(client));
        self.peers[client].is_gone = true;
        self.peers[client].lost = None;
    }

    pub(super) async fn connect(&mut self, env: &Env, client: usize) {
        self.note(format!("client {client} connects again"));
        let peer = &mut self.peers[client];
        if peer.is_gone && peer.id.is_none() {
            *peer = Peer::new(env, client, peer.lives + 1).await;
            return;
        }
        peer.client.connect(env).await;
        if peer.id.is_none() {
            peer.client.bind().await;
        }
    }

    /// Sends a request, and perhaps once more: then over another connection.
    pub(super) async fn ask(
        &mut self,
        env: &Env,
        client: usize,
        operations: &[NfsArgop4<'_>],
    ) -> Done {
        let is_repeated = self.random.u32(..6) == 0;
        let peer = &mut self.peers[client];
        let mut all = operations.to_vec();
        let minor = u32::from(peer.id.is_none());
        if peer.id.is_none() {
            let sequence = peer.client.slots.get_mut();
            sequence[0] += 1;
            let sequence = sequence[0];
            all.insert(0, peer.client.sequence(0, sequence, true));
        }
        let done = peer.client.wire.call(minor, &all).await;
        peer.renewed = env.core.now();
        if is_repeated {
            self.connect(env, client).await;
            let again = self.peers[client].client.wire.call(minor, &all).await;
            let last = self.steps.last();
            assert_eq!(format!("{again:?}"), format!("{done:?}"), "{last:?}");
        }
        done
    }

    /// Where the last of a request's operations is: in 4.1 SEQUENCE comes first.
    pub(super) fn at(&self, client: usize, operation: usize) -> usize {
        operation + usize::from(self.peers[client].id.is_none())
    }

    /// A client that the door has forgotten learns that, and begins anew.
    pub(super) async fn is_gone(&mut self, env: &Env, client: usize) -> bool {
        if !self.peers[client].is_gone {
            return false;
        }
        self.note(format!("client {client} begins anew"));
        let peer = &mut self.peers[client];
        peer.client.connect(env).await;
        let done = match peer.id {
            Some(clientid) => {
                let renew = NfsArgop4::Renew(Renew4Args { clientid });
                peer.client.wire.call(0, &[renew]).await
            }
            None => peer.client.call(&[]).await,
        };
        let expected = match peer.id {
            Some(_) => Nfsstat4::NFS4ERR_STALE_CLIENTID,
            None => Nfsstat4::NFS4ERR_BADSESSION,
        };
        let lives = peer.lives + 1;
        self.judge(&done, expected);
        self.peers[client] = Peer::new(env, client, lives).await;
        true
    }
}
