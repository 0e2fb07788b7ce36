//! Opens of a random program: OPEN, CLOSE, OPEN_DOWNGRADE.

use std::collections::BTreeSet;

use nfs::wire::*;
use sim::Env;

use super::super::bench::*;
use super::model::{Delegation, Open, Owner};
use super::program::{FILES, Program, owner_name};

/// Whether a delegation is to come with an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    /// One of the open's kind.
    New,
    /// That of before a restart: for writing, or not.
    Claim(bool),
}

impl Program {
    /// The next number of an owner's sequence; none in 4.1.
    pub(super) fn open_seqid(&mut self, (client, owner): Owner) -> u32 {
        let peer = &mut self.peers[client];
        if peer.id.is_none() {
            return 0;
        }
        let sequences = peer.sequences.entry(owner).or_default();
        sequences.open += 1;
        sequences.open
    }

    pub(super) async fn open(&mut self, env: &Env, (of, file): (Owner, usize)) {
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
            self.settle(env, &shares | &others);
            // A share conflict is told first.
            let shares = self.files[file].share_conflicts(of, access, deny);
            let delegated = self.files[file].delegation_conflicts(client, writes);
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
                    let wish = if wants { Wish::New } else { Wish::Nothing };
                    self.opened(env, (of, file), (access, deny), wish, &done)
                        .await;
                    return;
                }
                Nfsstat4::NFS4ERR_DELAY => self.have_back(env, file, delegated).await,
                _ => return,
            }
        }
    }

    pub(super) async fn send_open(
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
    pub(super) async fn opened(
        &mut self,
        env: &Env,
        (of, file): (Owner, usize),
        (access, deny): (u32, u32),
        wish: Wish,
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
        let expected = match wish {
            Wish::Nothing => None,
            Wish::New => Some(access & 2 != 0),
            Wish::Claim(writes) => Some(writes),
        };
        let has_back = self.peers[client].has_back;
        let expected =
            expected.filter(|writes| has_back && self.files[file].may_delegate(client, *writes));
        let given = delegation.as_ref().map(|(_, writes)| *writes);
        assert_eq!(given, expected, "{self}");
        self.claimed += usize::from(matches!(wish, Wish::Claim(_)) && given.is_some());
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

    pub(super) async fn close(&mut self, env: &Env, (of, file): (Owner, usize)) {
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

    pub(super) async fn downgrade(&mut self, env: &Env, (of, file): (Owner, usize)) {
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
}
