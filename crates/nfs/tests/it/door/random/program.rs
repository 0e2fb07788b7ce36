//! The clients of a random program, and what each of their requests has to be answered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nfs::wire::*;
use sim::Env;

use super::super::bench::*;
use super::super::clients::set_client_id;
use super::model::{BYTES, Delegation, File, Locks, Open, Owner};

const FILES: [&str; 2] = ["a", "b"];
const CLIENTS: usize = 4;
const OWNERS: usize = 2;

/// Numbers of an owner's sequence in 4.0.
#[derive(Clone, Copy, Debug, Default)]
struct Sequences {
    open: u32,
    lock: u32,
}

/// A client: the first ones are of 4.1, the last one of 4.0.
struct Peer {
    /// Of 4.1; of 4.0 its connection alone is used.
    client: Client,
    /// Of 4.0.
    id: Option<u64>,
    sequences: BTreeMap<usize, Sequences>,
    /// When its lease was renewed.
    renewed: rt::Instant,
    /// It can be called back.
    has_back: bool,
    /// The door has forgotten it.
    is_gone: bool,
    /// How often it has begun anew.
    lives: u8,
}

pub(super) struct Program {
    random: fastrand::Rng,
    peers: Vec<Peer>,
    files: [File; 2],
    is_grace: bool,
    steps: Vec<String>,
}

fn owner_name(owner: usize) -> &'static str {
    ["o0", "o1"][owner]
}

impl Peer {
    async fn new(env: &Env, number: usize, lives: u8) -> Self {
        let name = format!("client {number}");
        let is_zero = number + 1 == CLIENTS;
        let mut session = name.clone();
        if is_zero {
            // It has the connection of a 4.1 client that holds nothing.
            session = format!("beside {number} {lives}");
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
            steps: Vec::new(),
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
            match self.random.u32(..20) {
                0..6 => self.open(&env, of).await,
                6..9 => self.close(&env, of).await,
                9 => self.downgrade(&env, of).await,
                10..14 => self.lock(&env, of).await,
                14 => self.unlock(&env, of).await,
                15 => self.transfer(&env, of).await,
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

    fn note(&mut self, step: String) {
        self.steps.push(step);
    }

    #[track_caller]
    fn judge(&self, done: &Done, expected: Nfsstat4) {
        let last = &self.steps[self.steps.len().saturating_sub(25)..];
        assert_eq!(done.status, expected, "{last:#?}\n{:#?}", self.files);
    }

    fn is_lapsed(&self, env: &Env, client: usize) -> bool {
        env.core.now() - self.peers[client].renewed > LEASE
    }

    /// Clients without a lease that hold something of a file are forgotten, if these are in the way.
    fn settle(&mut self, env: &Env, file: usize, in_the_way: &BTreeSet<usize>) {
        if in_the_way.is_empty() {
            return;
        }
        for client in 0..CLIENTS {
            if self.is_lapsed(env, client) && self.files[file].is_held_by(client) {
                self.forget(client);
            }
        }
    }

    fn forget(&mut self, client: usize) {
        self.note(format!("client {client} is forgotten"));
        self.files.iter_mut().for_each(|file| file.forget(client));
        self.peers[client].is_gone = true;
    }

    async fn connect(&mut self, env: &Env, client: usize) {
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
    async fn ask(&mut self, env: &Env, client: usize, operations: &[NfsArgop4<'_>]) -> Done {
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
    fn at(&self, client: usize, operation: usize) -> usize {
        operation + usize::from(self.peers[client].id.is_none())
    }

    /// A client that the door has forgotten learns that, and begins anew.
    async fn is_gone(&mut self, env: &Env, client: usize) -> bool {
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

    /// The next number of an owner's sequence; none in 4.1.
    fn open_seqid(&mut self, (client, owner): Owner) -> u32 {
        let peer = &mut self.peers[client];
        if peer.id.is_none() {
            return 0;
        }
        let sequences = peer.sequences.entry(owner).or_default();
        sequences.open += 1;
        sequences.open
    }

    fn lock_seqid(&mut self, (client, owner): Owner) -> u32 {
        let peer = &mut self.peers[client];
        if peer.id.is_none() {
            return 0;
        }
        let sequences = peer.sequences.entry(owner).or_default();
        sequences.lock += 1;
        sequences.lock
    }

    /// Those that hold a delegation which is in the way are called back, and give it back.
    async fn have_back(&mut self, env: &Env, file: usize, from: BTreeSet<usize>) {
        for client in from {
            if self.is_lapsed(env, client) {
                continue;
            }
            let back = self.peers[client].client.back.clone();
            let Some(delegation) = self.files[file].delegations.get(&client).cloned() else {
                continue;
            };
            let other = delegation.stateid.other;
            let is_called =
                move |call: &Callback| call.recall.as_ref().is_some_and(|of| of.other == other);
            let called = until(env, || back.called.borrow().iter().any(is_called));
            let called = env.core.timeout(LEASE, called).await;
            assert!(called.is_ok(), "{:#?}", self.steps);
            self.give_back(env, client, file).await;
        }
    }

    async fn open(&mut self, env: &Env, (of, file): (Owner, usize)) {
        let (client, _) = of;
        let (access, mut deny) = (self.random.u32(1..4), self.random.u32(..4));
        if self.random.u32(..3) > 0 {
            deny = 0;
        }
        let wants = self.random.bool();
        self.note(format!("open {of:?} of {file}: {access} {deny} {wants}"));
        if self.is_gone(env, client).await {
            return;
        }
        loop {
            // Who asks has a lease again.
            self.peers[client].renewed = env.core.now();
            let writes = access & 2 != 0 || deny & 1 != 0;
            let shares = self.files[file].share_conflicts(of, access, deny);
            let others = self.files[file].delegation_conflicts(client, writes);
            // A share conflict is told first; both have clients without a lease forgotten.
            let mut in_the_way = shares;
            if in_the_way.is_empty() {
                in_the_way = others;
            }
            self.settle(env, file, &in_the_way);
            let shares = self.files[file].share_conflicts(of, access, deny);
            let mut delegated = self.files[file].delegation_conflicts(client, writes);
            if shares.is_empty() && !delegated.is_empty() {
                let before = delegated;
                self.settle(env, file, &before);
                delegated = self.files[file].delegation_conflicts(client, writes);
            }
            let expected = match (shares.is_empty(), delegated.is_empty()) {
                (false, _) => Nfsstat4::NFS4ERR_SHARE_DENIED,
                (true, false) => Nfsstat4::NFS4ERR_DELAY,
                (true, true) => Nfsstat4::NFS4_OK,
            };
            let done = self
                .send_open(env, (of, file), (access, deny), wants, None)
                .await;
            self.judge(&done, expected);
            match expected {
                Nfsstat4::NFS4_OK => {
                    self.opened(env, (of, file), (access, deny), wants, &done)
                        .await;
                    return;
                }
                Nfsstat4::NFS4ERR_DELAY => self.have_back(env, file, delegated).await,
                _ => return,
            }
        }
    }

    async fn send_open(
        &mut self,
        env: &Env,
        (of, file): (Owner, usize),
        (access, deny): (u32, u32),
        wants: bool,
        claim: Option<OpenClaim4<'static>>,
    ) -> Done {
        let (client, owner) = of;
        let seqid = self.open_seqid(of);
        let mut share_access = access;
        if !wants && self.peers[client].id.is_none() {
            share_access |= OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
        }
        let NfsArgop4::Open(mut open) = open(FILES[file], owner_name(owner), share_access) else {
            unreachable!()
        };
        open.seqid = seqid;
        open.share_deny = deny;
        open.owner.clientid = self.peers[client].id.unwrap_or(0);
        let open = match claim {
            Some(claim) => vec![
                NfsArgop4::Putrootfh,
                lookup(FILES[file]),
                NfsArgop4::Open(Open4Args { claim, ..open }),
            ],
            None => vec![NfsArgop4::Putrootfh, NfsArgop4::Open(open)],
        };
        self.ask(env, client, &open).await
    }

    /// An OPEN has succeeded: the model has it open, and the file delegated if that was to be.
    async fn opened(
        &mut self,
        env: &Env,
        (of, file): (Owner, usize),
        (access, deny): (u32, u32),
        wants: bool,
        done: &Done,
    ) {
        let (client, _) = of;
        let at = self.at(client, if self.is_grace { 2 } else { 1 });
        let (mut stateid, delegation) = done.opened_with(at);
        let NfsResop4::Open(Ok(answer)) = done.result(at) else {
            unreachable!()
        };
        if answer.rflags & OPEN4_RESULT_CONFIRM != 0 {
            assert!(self.peers[client].id.is_some());
            let confirm = NfsArgop4::OpenConfirm(OpenConfirm4Args {
                open_stateid: stateid,
                seqid: self.open_seqid(of),
            });
            let confirm = [NfsArgop4::Putrootfh, lookup(FILES[file]), confirm];
            let done = self.ask(env, client, &confirm).await.ok();
            let NfsResop4::OpenConfirm(Ok(answer)) = done.result(2) else {
                unreachable!()
            };
            stateid = answer.open_stateid;
        }
        let writes = access & 2 != 0;
        let has_back = self.peers[client].has_back && wants && !self.is_grace;
        let expected = has_back && self.files[file].may_delegate(client, writes);
        let last = &self.steps[self.steps.len().saturating_sub(25)..];
        assert_eq!(
            delegation.as_ref().map(|(_, writes)| *writes),
            expected.then_some(writes),
            "{last:#?}\n{:#?}",
            self.files
        );
        let held = self.files[file].opens.entry(of).or_insert_with(|| Open {
            access: 0,
            deny: 0,
            with: BTreeSet::new(),
            stateid: stateid.clone(),
        });
        held.access |= access;
        held.deny |= deny;
        held.with.insert((access, deny));
        held.stateid = stateid;
        if let Some((stateid, writes)) = delegation {
            let delegation = Delegation { writes, stateid };
            self.files[file].delegations.insert(client, delegation);
        }
    }

    async fn close(&mut self, env: &Env, (of, file): (Owner, usize)) {
        let Some(open) = self.files[file].opens.get(&of).cloned() else {
            return;
        };
        self.note(format!("close {of:?} of {file}"));
        let close = NfsArgop4::Close(Close4Args {
            seqid: self.open_seqid(of),
            open_stateid: open.stateid,
        });
        let closes = [NfsArgop4::Putrootfh, lookup(FILES[file]), close];
        let done = self.ask(env, of.0, &closes).await;
        self.judge(&done, Nfsstat4::NFS4_OK);
        self.files[file].opens.remove(&of);
        self.files[file].locks.remove(&of);
    }

    async fn downgrade(&mut self, env: &Env, (of, file): (Owner, usize)) {
        let Some(open) = self.files[file].opens.get(&of).cloned() else {
            return;
        };
        let (access, deny) = (self.random.u32(1..4), self.random.u32(..4));
        self.note(format!("downgrade {of:?} of {file}: {access} {deny}"));
        let downgrade = NfsArgop4::OpenDowngrade(OpenDowngrade4Args {
            open_stateid: open.stateid.clone(),
            seqid: self.open_seqid(of),
            share_access: access,
            share_deny: deny,
        });
        let downgrades = [NfsArgop4::Putrootfh, lookup(FILES[file]), downgrade];
        let done = self.ask(env, of.0, &downgrades).await;
        let Some(left) = open.reduced(access, deny) else {
            return self.judge(&done, Nfsstat4::NFS4ERR_INVAL);
        };
        self.judge(&done, Nfsstat4::NFS4_OK);
        let NfsResop4::OpenDowngrade(Ok(answer)) = done.result(self.at(of.0, 2)) else {
            unreachable!()
        };
        let held = self.files[file].opens.get_mut(&of).expect("it is open");
        *held = Open {
            access,
            deny,
            with: left,
            stateid: answer.open_stateid,
        };
    }

    /// Some bytes.
    fn range(&mut self) -> std::ops::Range<usize> {
        let first = self.random.usize(..BYTES);
        first..self.random.usize(first + 1..=BYTES)
    }

    async fn lock(&mut self, env: &Env, (of, file): (Owner, usize)) {
        let Some(open) = self.files[file].opens.get(&of).cloned() else {
            return;
        };
        let (range, writes) = (self.range(), self.random.bool());
        self.note(format!("lock {of:?} of {file}: {range:?} {writes}"));
        let needs = if writes { 2 } else { 1 };
        let mut expected = Nfsstat4::NFS4_OK;
        if open.access & needs == 0 {
            expected = Nfsstat4::NFS4ERR_OPENMODE;
        } else {
            let before = self.files[file].lock_conflicts(of, range.clone(), writes);
            let mut others = before.clone();
            others.remove(&of.0);
            // Who asks has a lease again.
            self.peers[of.0].renewed = env.core.now();
            self.settle(env, file, &before);
            let after = self.files[file].lock_conflicts(of, range.clone(), writes);
            if !after.is_empty() {
                expected = Nfsstat4::NFS4ERR_DENIED;
            }
        }
        let done = self
            .send_lock(env, (of, file), range.clone(), writes, false)
            .await;
        self.judge(&done, expected);
        if expected == Nfsstat4::NFS4_OK {
            self.locked((of, file), range, Some(writes), &done);
        }
    }

    async fn send_lock(
        &mut self,
        env: &Env,
        (of, file): (Owner, usize),
        range: std::ops::Range<usize>,
        writes: bool,
        reclaim: bool,
    ) -> Done {
        let (client, owner) = of;
        let known = self.files[file].locks.get(&of).map(|of| of.stateid.clone());
        let open_stateid = self.files[file].opens[&of].stateid.clone();
        let locker = match known {
            Some(lock_stateid) => Locker4::LockOwner(ExistLockOwner4 {
                lock_stateid,
                lock_seqid: self.lock_seqid(of),
            }),
            None => Locker4::OpenOwner(OpenToLockOwner4 {
                open_seqid: self.open_seqid(of),
                open_stateid,
                lock_seqid: self.lock_seqid(of),
                lock_owner: StateOwner4 {
                    clientid: self.peers[client].id.unwrap_or(0),
                    owner: owner_name(owner).into(),
                },
            }),
        };
        let lock = NfsArgop4::Lock(Lock4Args {
            locktype: match writes {
                true => NfsLockType4::WRITE_LT,
                false => NfsLockType4::READ_LT,
            },
            reclaim,
            offset: range.start as u64,
            length: range.len() as u64,
            locker,
        });
        let locks = [NfsArgop4::Putrootfh, lookup(FILES[file]), lock];
        self.ask(env, client, &locks).await
    }

    fn locked(
        &mut self,
        (of, file): (Owner, usize),
        range: std::ops::Range<usize>,
        to: Option<bool>,
        done: &Done,
    ) {
        let stateid = match done.result(self.at(of.0, 2)) {
            NfsResop4::Lock(Lock4Res::Nfs4Ok(of)) => of.lock_stateid,
            NfsResop4::Locku(Ok(stateid)) => stateid,
            other => panic!("{other:?}"),
        };
        let locks = self.files[file].locks.entry(of).or_insert_with(|| Locks {
            bytes: [None; BYTES],
            stateid: stateid.clone(),
        });
        locks.stateid = stateid;
        locks.bytes[range].fill(to);
    }

    async fn unlock(&mut self, env: &Env, (of, file): (Owner, usize)) {
        let Some(locks) = self.files[file].locks.get(&of).cloned() else {
            return;
        };
        let range = self.range();
        self.note(format!("unlock {of:?} of {file}: {range:?}"));
        let unlock = NfsArgop4::Locku(Locku4Args {
            locktype: NfsLockType4::WRITE_LT,
            seqid: self.lock_seqid(of),
            lock_stateid: locks.stateid,
            offset: range.start as u64,
            length: range.len() as u64,
        });
        let unlocks = [NfsArgop4::Putrootfh, lookup(FILES[file]), unlock];
        let done = self.ask(env, of.0, &unlocks).await;
        self.judge(&done, Nfsstat4::NFS4_OK);
        self.locked((of, file), range, None, &done);
    }

    /// Reads or writes, by an open or by none.
    async fn transfer(&mut self, env: &Env, (of, file): (Owner, usize)) {
        let (client, _) = of;
        let writes = self.random.bool();
        self.note(format!("transfer {of:?} of {file}: {writes}"));
        if self.is_gone(env, client).await {
            return;
        }
        let open = self.files[file].opens.get(&of).cloned();
        let stateid = open.as_ref().map_or(ANONYMOUS, |of| of.stateid.clone());
        let needs = if writes { 2 } else { 1 };
        let mut delegated = BTreeSet::new();
        let expected = match &open {
            Some(open) if writes && open.access & 2 == 0 => Nfsstat4::NFS4ERR_OPENMODE,
            // Without a session nobody knows whose delegation it is.
            None if self.peers[client].id.is_some() => return,
            // What was opened for writing alone is read too, unless that is denied.
            _ => {
                self.peers[client].renewed = env.core.now();
                let by = open.as_ref().map_or((client, usize::MAX), |_| of);
                let before = self.files[file].share_conflicts(by, needs, 0);
                let others = self.files[file].delegation_conflicts(client, writes);
                let first = if before.is_empty() { others } else { before };
                self.settle(env, file, &first);
                let shares = self.files[file].share_conflicts(by, needs, 0);
                delegated = self.files[file].delegation_conflicts(client, writes);
                if shares.is_empty() {
                    let before = delegated;
                    self.settle(env, file, &before);
                    delegated = self.files[file].delegation_conflicts(client, writes);
                }
                match (shares.is_empty(), delegated.is_empty()) {
                    (false, _) => Nfsstat4::NFS4ERR_LOCKED,
                    (true, false) => Nfsstat4::NFS4ERR_DELAY,
                    (true, true) => Nfsstat4::NFS4_OK,
                }
            }
        };
        let operation = match writes {
            true => NfsArgop4::Write(Write4Args {
                stateid,
                offset: 0,
                stable: StableHow4::UNSTABLE4,
                data: b"x".as_slice().into(),
            }),
            false => NfsArgop4::Read(Read4Args {
                stateid,
                offset: 0,
                count: 1,
            }),
        };
        let transfers = [NfsArgop4::Putrootfh, lookup(FILES[file]), operation];
        let done = self.ask(env, client, &transfers).await;
        self.judge(&done, expected);
        if expected == Nfsstat4::NFS4ERR_DELAY {
            self.have_back(env, file, delegated).await;
        }
    }

    async fn give_back(&mut self, env: &Env, client: usize, file: usize) {
        let Some(delegation) = self.files[file].delegations.get(&client).cloned() else {
            return;
        };
        self.note(format!("client {client} gives {file} back"));
        let gives = [
            NfsArgop4::Putrootfh,
            lookup(FILES[file]),
            delegreturn(&delegation.stateid),
        ];
        let done = self.ask(env, client, &gives).await;
        self.judge(&done, Nfsstat4::NFS4_OK);
        self.files[file].delegations.remove(&client);
    }

    /// The door has restarted: some clients come back and claim what they had, others do not.
    pub(super) async fn reclaim(mut self, env: Env) -> Self {
        self.note("the door restarts".to_string());
        self.is_grace = true;
        let before = self.files.clone();
        self.files = Default::default();
        for client in 0..CLIENTS {
            self.peers[client].has_back = false;
            if self.peers[client].is_gone {
                continue;
            }
            if self.random.u32(..4) == 0 {
                self.note(format!("client {client} stays away"));
                self.peers[client].is_gone = true;
                continue;
            }
            self.come_back(&env, client).await;
            for (file, held) in before.iter().enumerate() {
                self.reclaim_file(&env, client, file, held).await;
            }
            let done = self
                .send_open(&env, ((client, 0), 0), (1, 0), false, None)
                .await;
            self.judge(&done, Nfsstat4::NFS4ERR_GRACE);
            if self.peers[client].id.is_none() {
                self.peers[client].client.reclaim_complete().await;
            }
        }
        self
    }

    async fn come_back(&mut self, env: &Env, client: usize) {
        self.note(format!("client {client} comes back"));
        let lives = self.peers[client].lives;
        let Some(_) = self.peers[client].id else {
            self.peers[client].client.connect(env).await;
            self.peers[client].client.bind().await;
            self.peers[client].renewed = env.core.now();
            return;
        };
        // It gets another number, and owners begin anew.
        let peer = &mut self.peers[client];
        peer.client.connect(env).await;
        let name = format!("client {client}");
        peer.id = Some(set_client_id(&peer.client.wire, &name, lives).await);
        peer.sequences.clear();
        peer.renewed = env.core.now();
    }

    async fn reclaim_file(&mut self, env: &Env, client: usize, file: usize, held: &File) {
        for (of, open) in held.opens.iter().filter(|(of, _)| of.0 == client) {
            let none = OpenDelegationType4::OPEN_DELEGATE_NONE;
            let claim = OpenClaim4::ClaimPrevious(none);
            let shares = (open.access, open.deny);
            self.note(format!("reclaim {of:?} of {file}: {shares:?}"));
            let done = self
                .send_open(env, (*of, file), shares, false, Some(claim))
                .await;
            self.judge(&done, Nfsstat4::NFS4_OK);
            self.opened(env, (*of, file), shares, false, &done).await;
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
