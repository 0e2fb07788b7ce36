//! What clients lose without hearing of it, and the grace period after that (RFC 8881, section 8.4).

use std::rc::Rc;
use std::time::Duration;

use files::Request;
use nfs::wire::*;
use sim::Env;

use super::bench::*;
use super::gate::Gate;

const READ: u32 = OPEN4_SHARE_ACCESS_READ;
const WRITE: u32 = OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

/// CLAIM_PREVIOUS of an open for reading.
async fn reclaims(client: &Client, name: &str) -> Nfsstat4 {
    let NfsArgop4::Open(mut of) = open(name, "o", READ) else {
        unreachable!()
    };
    of.claim = OpenClaim4::ClaimPrevious(OpenDelegationType4::OPEN_DELEGATE_NONE);
    let done = client
        .call(&[NfsArgop4::Putrootfh, lookup(name), NfsArgop4::Open(of)])
        .await;
    done.status
}

/// A client whose delegation is taken away, because it hears no callback, though its lease holds.
async fn bereft(env: &Env) -> (Client, Stateid4) {
    let holder = Client::new(env, "holder").await;
    let other = Client::new(env, "other").await;
    holder.make("f").await;
    holder.back.on_call(|_| Reaction::Lost);
    let (_, delegation) = holder.open("f", READ).await;
    let writes = [NfsArgop4::Putrootfh, open("f", "writer", WRITE)];
    for _ in 0..100 {
        if other.call(&writes).await.status == Nfsstat4::NFS4_OK {
            break;
        }
        env.core.sleep(Duration::from_secs(2)).await;
        holder.flags().await;
    }
    let flags = holder.flags().await;
    assert_ne!(flags & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
    (holder, delegation.expect("nobody was in the way"))
}

async fn back_after_restart(env: &Env, client: &mut Client) {
    client.reconnect(env).await;
    // Any number is the first after a restart.
    client.slots.borrow_mut()[0] += 1;
}

#[test]
fn who_has_lost_something_reclaims_nothing_until_it_has_begun_anew() {
    let mut rig = Rig::new();
    let (mut holder, _) = rig.run(|env| async move { bereft(&env).await });
    rig.restart();
    let mut holder = rig.run(move |env| async move {
        back_after_restart(&env, &mut holder).await;
        let refused = reclaims(&holder, "f").await;
        assert_eq!(refused, Nfsstat4::NFS4ERR_RECLAIM_BAD);
        holder
    });
    // The server dies again before the client knows: it is no different.
    rig.restart();
    let holder = rig.run(move |env| async move {
        back_after_restart(&env, &mut holder).await;
        let refused = reclaims(&holder, "f").await;
        assert_eq!(refused, Nfsstat4::NFS4ERR_RECLAIM_BAD);
        holder.reclaim_complete().await;
        holder
    });
    rig.pass(LEASE * 2);
    rig.run(move |_| async move {
        let flags = holder.flags().await;
        assert_eq!(flags & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
        holder.open("f", READ).await;
    });
}

#[test]
fn who_has_lost_something_and_says_nothing_in_a_grace_period_reclaims_nothing_in_the_next() {
    let mut rig = Rig::new();
    let (mut holder, _) = rig.run(|env| async move { bereft(&env).await });
    rig.restart();
    let mut holder = rig.run(move |env| async move {
        back_after_restart(&env, &mut holder).await;
        holder.flags().await;
        holder
    });
    rig.pass(LEASE * 2);
    rig.restart();
    rig.run(move |env| async move {
        back_after_restart(&env, &mut holder).await;
        let refused = reclaims(&holder, "f").await;
        assert_eq!(refused, Nfsstat4::NFS4ERR_RECLAIM_BAD);
    });
}

#[test]
fn who_has_acknowledged_its_loss_reclaims_the_rest() {
    let mut rig = Rig::new();
    let mut holder = rig.run(|env| async move {
        let (holder, delegation) = bereft(&env).await;
        let of = FreeStateid4Args {
            fsa_stateid: delegation,
        };
        holder.call(&[NfsArgop4::FreeStateid(of)]).await.ok();
        let flags = holder.flags().await;
        assert_eq!(flags & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
        holder
    });
    rig.restart();
    rig.run(move |env| async move {
        back_after_restart(&env, &mut holder).await;
        assert_eq!(reclaims(&holder, "f").await, Nfsstat4::NFS4_OK);
    });
}

#[test]
fn who_begins_anew_after_a_loss_reclaims_after_the_next_restart() {
    let mut rig = Rig::new();
    let (mut holder, _) = rig.run(|env| async move { bereft(&env).await });
    for turn in 0..2 {
        rig.restart();
        holder = rig.run(move |env| async move {
            back_after_restart(&env, &mut holder).await;
            let status = reclaims(&holder, "f").await;
            let expected = [Nfsstat4::NFS4ERR_RECLAIM_BAD, Nfsstat4::NFS4_OK][turn];
            assert_eq!(status, expected);
            holder.reclaim_complete().await;
            holder
        });
    }
}

#[test]
fn nobody_gets_what_a_client_held_before_that_client_is_struck_off() {
    let mut rig = Rig::new();
    let fs = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let silent = Client::new(&env, "silent").await;
        silent.make("f").await;
        let NfsArgop4::Open(mut of) = open("f", "o", WRITE) else {
            unreachable!()
        };
        of.share_deny = OPEN4_SHARE_DENY_BOTH;
        let denies = [NfsArgop4::Putrootfh, NfsArgop4::Open(of)];
        silent.call(&denies).await.ok();
        env.core.sleep(LEASE * 2).await;
        let other = Client::new(&env, "other").await;
        let is_row = |key: &[u8]| key.starts_with(b"client/");
        fs.fail(
            3,
            move |request| matches!(request, Request::RemoveRecord(key) if is_row(key)),
        );
        let writes = [NfsArgop4::Putrootfh, open("f", "writer", WRITE)];
        let opening = other.ask(0, &writes).await;
        until(&env, || fs.failed() == 1).await;
        // Nothing that it held is given up so far.
        let second = Client::new(&env, "second").await;
        let refused = second.call(&writes).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_SHARE_DENIED);
        other.wire.answer(opening).await.expect("an answer").ok();
        assert_eq!(fs.failed(), 3);
    });
}

#[test]
fn the_grace_period_is_ended_until_it_is_over() {
    let mut rig = Rig::new();
    let mut client = rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        client
    });
    rig.fs
        .fail(3, |request| matches!(request, Request::EndGrace));
    rig.restart();
    let client = rig.run(move |env| async move {
        back_after_restart(&env, &mut client).await;
        client.reclaim_complete().await;
        client
    });
    assert!(rig.door().is_in_grace());
    rig.pass(Duration::from_secs(10));
    assert_eq!((rig.fs.failed(), rig.door().is_in_grace()), (3, false));
    rig.run(move |_| async move { client.open("f", READ).await });
}

/// A client that has opened a file so, and is silent for longer than its lease.
async fn lapsed(env: &Env, name: &str, access: u32, deny: u32) -> Client {
    let silent = Client::new(env, "silent").await;
    silent.make(name).await;
    let NfsArgop4::Open(mut of) = open(name, "o", access) else {
        unreachable!()
    };
    of.share_deny = deny;
    let opens = [NfsArgop4::Putrootfh, NfsArgop4::Open(of)];
    silent.call(&opens).await.ok();
    env.core.sleep(LEASE * 2).await;
    silent
}

/// RFC 8881, section 8.3: whatever the operation, who has lost its lease is in nobody's way.
#[test]
fn no_operation_is_refused_for_the_sake_of_who_has_lost_its_lease() {
    let range = |stateid: Stateid4| Allocate4Args {
        aa_stateid: stateid,
        aa_offset: 0,
        aa_length: 1,
    };
    let pair = |of: &mut Vec<NfsArgop4<'static>>, last| {
        of.extend([NfsArgop4::Putrootfh, lookup("g"), NfsArgop4::Savefh]);
        of.extend([NfsArgop4::Putrootfh, lookup("f"), last]);
    };
    type Plan = (u32, u32, Vec<NfsArgop4<'static>>);
    let one = |last| vec![NfsArgop4::Putrootfh, lookup("f"), last];
    let (mut copies, mut clones, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    let copy = || {
        NfsArgop4::Copy(Copy4Args {
            ca_src_stateid: ANONYMOUS,
            ca_dst_stateid: ANONYMOUS,
            ca_src_offset: 0,
            ca_dst_offset: 0,
            ca_count: 0,
            ca_consecutive: true,
            ca_synchronous: true,
            ca_source_server: Vec::new(),
        })
    };
    pair(&mut copies, copy());
    pair(
        &mut clones,
        NfsArgop4::Clone(Clone4Args {
            cl_src_stateid: ANONYMOUS,
            cl_dst_stateid: ANONYMOUS,
            cl_src_offset: 0,
            cl_dst_offset: 0,
            cl_count: 0,
        }),
    );
    // The source is the other's.
    copied.extend([NfsArgop4::Putrootfh, lookup("f"), NfsArgop4::Savefh]);
    copied.extend([NfsArgop4::Putrootfh, lookup("g"), copy()]);
    let (no_writes, no_reads) = (OPEN4_SHARE_DENY_WRITE, OPEN4_SHARE_DENY_READ);
    let set = NfsArgop4::Setxattr(Setxattr4Args {
        sxa_option: SetxattrOption4::SETXATTR4_EITHER,
        sxa_key: "x".into(),
        sxa_value: b"v".as_slice().into(),
    });
    let plans: Vec<Plan> = vec![
        (WRITE, no_writes, one(NfsArgop4::Allocate(range(ANONYMOUS)))),
        (
            WRITE,
            no_writes,
            one(NfsArgop4::Deallocate(Deallocate4Args {
                da_stateid: ANONYMOUS,
                da_offset: 0,
                da_length: 1,
            })),
        ),
        (
            WRITE,
            no_reads,
            one(NfsArgop4::Seek(Seek4Args {
                sa_stateid: ANONYMOUS,
                sa_offset: 0,
                sa_what: DataContent4::NFS4_CONTENT_HOLE,
            })),
        ),
        (WRITE, no_writes, copies),
        (WRITE, no_writes, clones),
        (WRITE, no_reads, copied),
        (READ, 0, one(set)),
        (WRITE, no_writes, one(cut(&ANONYMOUS))),
    ];
    for (access, deny, operations) in plans {
        let mut rig = Rig::new();
        rig.run(move |env| async move {
            let other = Client::new(&env, "other").await;
            other.make("g").await;
            let makes = [
                NfsArgop4::Putrootfh,
                lookup("g"),
                write(&ANONYMOUS, b"data"),
            ];
            other.call(&makes).await.ok();
            let silent = Client::new(&env, "writer").await;
            silent.make("f").await;
            let fills = [
                NfsArgop4::Putrootfh,
                lookup("f"),
                write(&ANONYMOUS, b"data"),
            ];
            silent.call(&fills).await.ok();
            lapsed(&env, "f", access, deny).await;
            let other = Client::new(&env, "another").await;
            let done = other.call_2(&operations).await;
            assert_eq!(done.status, Nfsstat4::NFS4_OK, "{operations:?}");
        });
    }
}

/// A client without a lease keeps what nobody wants, whatever is in the way of a name.
#[test]
fn who_is_in_nobodys_way_keeps_what_it_has() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let silent = lapsed(&env, "g", WRITE, 0).await;
        let alive = Client::new(&env, "alive").await;
        let third = Client::new(&env, "third").await;
        alive.make("f").await;
        let (_, delegation) = alive.open("f", READ).await;
        assert!(delegation.is_some());
        let remove = NfsArgop4::Remove(Remove4Args { target: "f".into() });
        let rename = NfsArgop4::Rename(Rename4Args {
            oldname: "f".into(),
            newname: "h".into(),
        });
        let root = NfsArgop4::Putrootfh;
        let delay = Nfsstat4::NFS4ERR_DELAY;
        let removed = third.call(&[root.clone(), remove]).await;
        assert_eq!(removed.status, delay);
        let renamed = third.call(&[root, NfsArgop4::Savefh, rename]).await;
        assert_eq!(renamed.status, delay);
        assert_eq!(silent.flags().await, 0, "it is known, and has lost nothing");
        // Who does have the name in question goes.
        let remove = NfsArgop4::Remove(Remove4Args { target: "s".into() });
        silent.make("s").await;
        let (_, delegation) = silent.open("s", READ).await;
        assert!(delegation.is_some());
        env.core.sleep(LEASE * 2).await;
        third.flags().await;
        third.call(&[NfsArgop4::Putrootfh, remove]).await.ok();
    });
}

/// RFC 8881, section 8.3: it is in somebody's way who holds what is in conflict with the request, not who
/// holds anything of the same file.
#[test]
fn who_has_the_file_open_and_denies_nothing_is_in_nobodys_way() {
    let no_delegation = OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
    let root = || NfsArgop4::Putrootfh;
    let denies = || {
        let NfsArgop4::Open(mut of) = open("f", "writer", WRITE) else {
            unreachable!()
        };
        of.share_deny = OPEN4_SHARE_DENY_WRITE;
        NfsArgop4::Open(of)
    };
    // What somebody who is alive has, and what a third one is then refused.
    let reads = |want| open("f", "alive", READ | want);
    let (delay, denied) = (Nfsstat4::NFS4ERR_DELAY, Nfsstat4::NFS4ERR_SHARE_DENIED);
    let locked = Nfsstat4::NFS4ERR_LOCKED;
    let whole = |of| {
        NfsArgop4::Lock(Lock4Args {
            locktype: NfsLockType4::WRITE_LT,
            reclaim: false,
            offset: 0,
            length: u64::MAX,
            locker: Locker4::OpenOwner(OpenToLockOwner4 {
                open_seqid: 0,
                open_stateid: CURRENT,
                lock_seqid: 0,
                lock_owner: StateOwner4 {
                    clientid: 0,
                    owner: of,
                },
            }),
        })
    };
    type Asks = Vec<NfsArgop4<'static>>;
    let plans: Vec<(Asks, Asks, Nfsstat4)> = vec![
        (
            vec![root(), reads(0)],
            vec![root(), open("f", "writer", WRITE)],
            delay,
        ),
        (
            vec![root(), reads(0)],
            vec![root(), lookup("f"), write(&ANONYMOUS, b"x")],
            delay,
        ),
        (
            vec![root(), reads(0)],
            vec![root(), lookup("f"), cut(&ANONYMOUS)],
            delay,
        ),
        (
            vec![root(), reads(0)],
            vec![root(), lookup("f"), set_mode()],
            delay,
        ),
        (
            vec![root(), reads(0)],
            vec![
                root(),
                NfsArgop4::Remove(Remove4Args { target: "f".into() }),
            ],
            delay,
        ),
        (
            vec![root(), denies()],
            vec![root(), open("f", "writer", WRITE)],
            denied,
        ),
        (
            vec![root(), denies()],
            vec![root(), lookup("f"), write(&ANONYMOUS, b"x")],
            locked,
        ),
        (
            vec![root(), open("f", "w", WRITE), whole("l".into())],
            vec![root(), open("f", "w", WRITE), whole("l".into())],
            Nfsstat4::NFS4ERR_DENIED,
        ),
        (
            vec![root(), open("f", "w", WRITE), whole("l".into())],
            vec![
                root(),
                lookup("f"),
                NfsArgop4::Lockt(Lockt4Args {
                    locktype: NfsLockType4::READ_LT,
                    offset: 0,
                    length: 1,
                    owner: StateOwner4 {
                        clientid: 0,
                        owner: "l".into(),
                    },
                }),
            ],
            Nfsstat4::NFS4ERR_DENIED,
        ),
    ];
    for (holds, asks, refused) in plans {
        let mut rig = Rig::new();
        rig.run(move |env| async move {
            let silent = lapsed(&env, "f", READ | no_delegation, 0).await;
            let alive = Client::new(&env, "alive").await;
            let third = Client::new(&env, "third").await;
            alive.call(&holds).await.ok();
            let done = third.call(&asks).await;
            assert_eq!(done.status, refused, "{asks:?}");
            assert_eq!(silent.flags().await, 0, "it has lost nothing: {asks:?}");
        });
    }
}

/// A file without a name cannot be wanted by its name: the room that it takes is wanted.
#[test]
fn what_a_lapsed_client_alone_keeps_from_ending_makes_room() {
    let mut rig = Rig::new();
    let fs = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let page = vec![7; 4096];
        let root = || NfsArgop4::Putrootfh;
        let remove = || NfsArgop4::Remove(Remove4Args { target: "f".into() });
        let fills = |name| vec![root(), lookup(name), write(&ANONYMOUS, &page)];
        let reads = || open("f", "o", READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
        let other = Client::new(&env, "other").await;
        // Files of the same name, one after the other: the first one's client stays alive, and the file of
        // the third has a name.
        let names = ["alive", "silent", "named"];
        let (mut clients, mut handle) = (Vec::new(), Vec::new());
        for name in names {
            let client = Client::new(&env, name).await;
            client.make("f").await;
            client.call(&fills("f")).await.ok();
            let opens = [root(), reads(), NfsArgop4::Getfh];
            let done = client.call(&opens).await.ok();
            let NfsResop4::Getfh(Ok(of)) = done.result(3) else {
                panic!("{done:?}");
            };
            if name == "alive" {
                handle = of.object.to_vec();
            }
            if name != "named" {
                client.call(&[root(), remove()]).await.ok();
            }
            clients.push(client);
        }
        // The file that is alive without a name is kept by one who is not, as well.
        let both = Client::new(&env, "both").await;
        let putfh = NfsArgop4::Putfh(Putfh4Args {
            object: handle.as_slice().into(),
        });
        let NfsArgop4::Open(mut of) = reads() else {
            unreachable!()
        };
        of.claim = OpenClaim4::ClaimFh;
        both.call(&[putfh, NfsArgop4::Open(of)]).await.ok();
        other.make("g").await;
        let files_max = 1 << 10;
        let full = files::model::Quota {
            bytes_max: 3 * 4096,
            files_max,
        };
        fs.model.add_volume(files::VolumeId(1), full);
        let refused = other.call(&fills("g")).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_DQUOT, "all are alive");
        for _ in 0..3 {
            env.core.sleep(LEASE / 2).await;
            clients[0].flags().await;
            other.flags().await;
        }
        let made = other.call(&fills("g")).await;
        assert_eq!(made.status, Nfsstat4::NFS4ERR_DELAY, "there will be room");
        env.core.sleep(Duration::from_millis(500)).await;
        other.call(&fills("g")).await.ok();
        // There is nothing more that is nobody's.
        env.core.sleep(Duration::from_secs(2)).await;
        other.make("h").await;
        let refused = other.call(&fills("h")).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_DQUOT);
        assert_eq!((clients[0].flags().await, clients[2].flags().await), (0, 0));
        assert_eq!(both.flags().await, 0, "it keeps no room from anybody");
        let done = clients[1].call(&[]).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_BADSESSION);
        // Now it is an orphan as well.
        other.call(&[root(), remove()]).await.ok();
        env.core.sleep(LEASE * 2).await;
        other.flags().await;
        let makes = create("i", "o");
        let full = files::model::Quota {
            bytes_max: 1 << 30,
            files_max: 1,
        };
        fs.model.add_volume(files::VolumeId(1), full);
        let made = other.call(&[root(), makes]).await;
        assert_eq!(made.status, Nfsstat4::NFS4ERR_DELAY);
        env.core.sleep(Duration::from_millis(500)).await;
        let done = clients[2].call(&[]).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_BADSESSION);
    });
}

/// A lapsed client that has a file without a name open, and another one, in a volume that has no room because of that.
async fn full(env: &Env, fs: &Gate) -> (Client, Client) {
    let silent = lapsed(env, "f", WRITE, 0).await;
    let other = Client::new(env, "other").await;
    let remove = NfsArgop4::Remove(Remove4Args { target: "f".into() });
    other.call(&[NfsArgop4::Putrootfh, remove]).await.ok();
    let full = files::model::Quota {
        bytes_max: 1 << 30,
        files_max: 1,
    };
    fs.model.add_volume(files::VolumeId(1), full);
    (silent, other)
}

/// Where there is no room to strike a client off, it stays, and whoever finds no room is told so.
#[test]
fn no_room_is_said_so_also_when_nobody_can_be_forgotten() {
    let mut rig = Rig::new();
    let fs = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let root = || NfsArgop4::Putrootfh;
        let (silent, other) = full(&env, &fs).await;
        let is_row = |request: &Request| matches!(request, Request::RemoveRecord(_));
        fs.fail_with(usize::MAX, files::Error::NoSpace, is_row);
        let makes = [root(), create("g", "o")];
        let made = other.call(&makes).await;
        assert_eq!(made.status, Nfsstat4::NFS4ERR_DELAY);
        for _ in 0..3 {
            env.core.sleep(Duration::from_secs(2)).await;
            let refused = other.call(&makes).await;
            assert_eq!(refused.status, Nfsstat4::NFS4ERR_DQUOT);
        }
        assert_eq!(fs.failed(), 1);
        silent.call(&[]).await.ok();
    });
}

/// RFC 8881, section 8.3: a lease does not run out while a request is carried out, and begins anew behind it.
#[test]
fn whose_request_takes_longer_than_the_lease_is_there_when_it_ends() {
    let mut rig = Rig::new();
    let fs = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let root = || NfsArgop4::Putrootfh;
        let slow = Client::new(&env, "slow").await;
        slow.make("f").await;
        let NfsArgop4::Open(mut denies) = open("f", "o", WRITE) else {
            unreachable!()
        };
        denies.share_deny = OPEN4_SHARE_DENY_BOTH;
        slow.call(&[root(), NfsArgop4::Open(denies)]).await.ok();
        slow.make("g").await;
        fs.delay(|request| matches!(request, Request::Remove { .. }));
        let remove = NfsArgop4::Remove(Remove4Args { target: "g".into() });
        let asked = slow.ask(0, &[root(), remove]).await;
        env.core.sleep(LEASE * 2).await;
        assert_eq!(fs.waiting(), 1);
        let other = Client::new(&env, "other").await;
        let opens = [root(), open("f", "o", WRITE)];
        let opened = async || other.call(&opens).await.status;
        assert_eq!(opened().await, Nfsstat4::NFS4ERR_SHARE_DENIED);
        fs.begin();
        let done = slow.wire.answer(asked).await.expect("an answer");
        assert_eq!(done.status, Nfsstat4::NFS4_OK);
        env.core.sleep(LEASE - Duration::from_secs(1)).await;
        assert_eq!(opened().await, Nfsstat4::NFS4ERR_SHARE_DENIED);
        env.core.sleep(Duration::from_secs(2)).await;
        assert_eq!(opened().await, Nfsstat4::NFS4_OK);
    });
}

/// Who comes back while it is struck off waits, and is told then.
#[test]
fn nothing_is_begun_for_who_is_being_forgotten_for_the_room_that_it_keeps() {
    let mut rig = Rig::new();
    let fs = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let root = || NfsArgop4::Putrootfh;
        let (silent, other) = full(&env, &fs).await;
        fs.delay(|request| matches!(request, Request::RemoveRecord(_)));
        let made = other.call(&[root(), create("g", "o")]).await;
        assert_eq!(made.status, Nfsstat4::NFS4ERR_DELAY);
        until(&env, || fs.waiting() == 1).await;
        let done = silent.call(&[root(), create("h", "o")]).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_DELAY);
        fs.begin();
        env.core.sleep(Duration::from_millis(500)).await;
        let done = silent.call(&[]).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_BADSESSION);
    });
}
