//! Reads and writes of a random program, and delegations that are wanted back.

use std::collections::BTreeSet;

use nfs::wire::*;
use sim::Env;

use super::super::bench::*;
use super::model::Owner;
use super::program::{FILES, Program};

impl Program {
    /// Reads, writes, or cuts the file off, by an open or by none.
    pub(super) async fn transfer(&mut self, env: &Env, (of, file): (Owner, usize)) {
        let (client, _) = of;
        let writes = self.random.bool();
        let cuts = writes && self.random.bool();
        self.note(format!("transfer {of:?} of {file}: {writes} {cuts}"));
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
                self.settle(env, &before | &others);
                let shares = self.files[file].share_conflicts(by, needs, 0);
                delegated = self.files[file].delegation_conflicts(client, writes);
                match (shares.is_empty(), delegated.is_empty()) {
                    (false, _) => Nfsstat4::NFS4ERR_LOCKED,
                    (true, false) => Nfsstat4::NFS4ERR_DELAY,
                    (true, true) => Nfsstat4::NFS4_OK,
                }
            }
        };
        let operation = match writes {
            true if cuts => cut(&stateid),
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

    /// Changes the mode or the names of a file, or asks for its size. In 4.0 none of that is heard of as
    /// any client's.
    pub(super) async fn change(&mut self, env: &Env, client: usize, file: usize) {
        let which = self.random.usize(..3);
        self.note(format!("change by {client} of {file}: {which}"));
        if self.peers[client].id.is_some() || self.is_gone(env, client).await {
            return;
        }
        self.peers[client].renewed = env.core.now();
        let attr_request = Bitmap4::of(&[FATTR4_SIZE]);
        let (root, name) = (NfsArgop4::Putrootfh, lookup(FILES[file]));
        let operations = match which {
            0 => vec![root, name, set_mode()],
            1 => {
                let newname = "another".into();
                let link = NfsArgop4::Link(Link4Args { newname });
                vec![root.clone(), name, NfsArgop4::Savefh, root, link]
            }
            _ => vec![
                root,
                name,
                NfsArgop4::Getattr(Getattr4Args { attr_request }),
            ],
        };
        // The size is the matter of who writes alone, and a writer that does not say it has to give the file
        // back.
        let in_the_way = |program: &Self| {
            let held = &program.files[file];
            let mut others = held.delegation_conflicts(client, true);
            others.retain(|other| which < 2 || held.delegations[other].writes);
            others
        };
        self.settle(env, in_the_way(self));
        let delegated = in_the_way(self);
        let expected = match delegated.is_empty() {
            true => Nfsstat4::NFS4_OK,
            false => Nfsstat4::NFS4ERR_DELAY,
        };
        let done = self.ask(env, client, &operations).await;
        self.judge(&done, expected);
        if expected == Nfsstat4::NFS4ERR_DELAY {
            self.have_back(env, file, delegated).await;
        } else if which == 1 {
            let target = "another".into();
            let removes = [
                NfsArgop4::Putrootfh,
                NfsArgop4::Remove(Remove4Args { target }),
            ];
            let done = self.ask(env, client, &removes).await;
            self.judge(&done, Nfsstat4::NFS4_OK);
        }
    }

    /// Those that hold a delegation which is in the way are called back, and give it back.
    pub(super) async fn have_back(&mut self, env: &Env, file: usize, from: BTreeSet<usize>) {
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

    pub(super) async fn give_back(&mut self, env: &Env, client: usize, file: usize) {
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
}
