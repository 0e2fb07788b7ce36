//! Sessions: slots, limits, CREATE_SESSION.

use std::rc::Rc;

use files::{Answer, Caller, FileSystem, Request};
use nfs::wire::*;
use nfs::xdr::Opaque;

use super::bench::*;
use super::clients::{confirms, introduce};
use super::gate::Gate;

#[test]
fn what_is_too_much_takes_no_turn() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let sequence = client.slots.borrow()[0] + 1;
        let mut many = vec![client.sequence(0, sequence, true)];
        many.extend(vec![NfsArgop4::Putrootfh; 8]);
        let done = client.wire.call(1, &many).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_TOO_MANY_OPS);
        let data = vec![0; 9000];
        let write = NfsArgop4::Write(Write4Args {
            stateid: ANONYMOUS,
            offset: 0,
            stable: StableHow4::UNSTABLE4,
            data: data.as_slice().into(),
        });
        let large = [client.sequence(0, sequence, true), write];
        let done = client.wire.call(1, &large).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_REQ_TOO_BIG);
        let next = [client.sequence(0, sequence, true), NfsArgop4::Putrootfh];
        client.wire.call(1, &next).await.ok();
    });
}

#[test]
fn a_setattr_that_cannot_be_read_is_answered_whole() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let setattr = |vals| {
            NfsArgop4::Setattr(Setattr4Args {
                stateid: ANONYMOUS,
                obj_attributes: Fattr4 {
                    attrmask: Bitmap4::of(&[FATTR4_MODE]),
                    attr_vals: Opaque(vals),
                },
            })
        };
        let damaged = client.call(&[NfsArgop4::Putrootfh, setattr(b"")]).await;
        assert!(damaged.is_whole(), "{damaged:?}");
        let outside = client.wire.call(1, &[setattr(b"")]).await;
        assert_eq!(outside.status, Nfsstat4::NFS4ERR_OP_NOT_IN_SESSION);
        assert!(outside.is_whole(), "{outside:?}");
    });
}

#[test]
fn create_session_is_carried_out_once() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let of = create_session(client.id, 2);
        let ask = [NfsArgop4::CreateSession(of)];
        gate.hold(|request| matches!(request, Request::PutRecord { .. }));
        let first = client.wire.ask(1, &ask).await;
        until(&env, || gate.held() == 1).await;
        let meanwhile = client.wire.call(1, &ask).await;
        assert_eq!(meanwhile.status, Nfsstat4::NFS4ERR_DELAY);
        gate.release();
        let first = client.wire.answer(first).await.expect("an answer").ok();
        let again = client.wire.call(1, &ask).await.ok();
        assert_eq!(session_of(&first), session_of(&again));
        let misordered = [NfsArgop4::CreateSession(create_session(client.id, 4))];
        let done = client.wire.call(1, &misordered).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_SEQ_MISORDERED);
    });
}

#[test]
fn a_client_of_before_a_restart_goes_on_counting_its_sessions() {
    let mut rig = Rig::new();
    let id = rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let ask = [NfsArgop4::CreateSession(create_session(client.id, 2))];
        client.wire.call(1, &ask).await.ok();
        client.id
    });
    rig.restart();
    rig.run(move |env| async move {
        let other = Client::with(&env, "other", |_| ()).await;
        let ask = [NfsArgop4::CreateSession(create_session(id, 3))];
        let made = other.wire.call(1, &ask).await.ok();
        let again = other.wire.call(1, &ask).await.ok();
        assert_eq!(session_of(&made), session_of(&again));
        let old = [NfsArgop4::CreateSession(create_session(id, 2))];
        let done = other.wire.call(1, &old).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_SEQ_MISORDERED);
    });
}

#[test]
fn a_client_has_so_many_sessions_and_no_more() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        for sequence in 2..=16 {
            let ask = [NfsArgop4::CreateSession(create_session(
                client.id, sequence,
            ))];
            client.wire.call(1, &ask).await.ok();
        }
        let ask = [NfsArgop4::CreateSession(create_session(client.id, 17))];
        for _ in 0..2 {
            let done = client.wire.call(1, &ask).await;
            assert_eq!(done.status, Nfsstat4::NFS4ERR_NOSPC);
        }
    });
}

#[test]
fn a_session_is_persistent_if_the_client_asks_for_that() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let mut of = create_session(client.id, 2);
        of.csa_flags |= CREATE_SESSION4_FLAG_PERSIST;
        let done = client.wire.call(1, &[NfsArgop4::CreateSession(of)]).await;
        let NfsResop4::CreateSession(Ok(of)) = done.result(0) else {
            panic!("{done:?}");
        };
        let asked = CREATE_SESSION4_FLAG_CONN_BACK_CHAN | CREATE_SESSION4_FLAG_PERSIST;
        assert_eq!(of.csr_flags, asked);
        let of = create_session(client.id, 3);
        let done = client.wire.call(1, &[NfsArgop4::CreateSession(of)]).await;
        let NfsResop4::CreateSession(Ok(of)) = done.result(0) else {
            panic!("{done:?}");
        };
        assert_eq!(of.csr_flags, CREATE_SESSION4_FLAG_CONN_BACK_CHAN);
    });
}

#[test]
fn a_session_of_a_client_that_has_gone_meanwhile_goes_too() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let other = Client::new(&env, "d").await;
        let of = DestroySession4Args {
            dsa_sessionid: client.session,
        };
        let done = client.wire.call(1, &[NfsArgop4::DestroySession(of)]).await;
        done.ok();
        let ask = [NfsArgop4::CreateSession(create_session(client.id, 2))];
        gate.hold(|request| matches!(request, Request::PutRecord { .. }));
        let first = client.wire.ask(1, &ask).await;
        until(&env, || gate.held() == 1).await;
        let of = DestroyClientid4Args {
            dca_clientid: client.id,
        };
        other.call(&[NfsArgop4::DestroyClientid(of)]).await.ok();
        gate.release();
        let done = client.wire.answer(first).await.expect("an answer");
        assert_eq!(done.status, Nfsstat4::NFS4ERR_STALE_CLIENTID);
    });
}

/// How many clients there are rows of.
async fn client_rows(fs: &Gate) -> usize {
    let all = Request::Records { after: Vec::new() };
    match fs.model.call(&Caller::ROOT, all).await {
        Ok(Answer::Records(rows)) => {
            let rows = rows.iter();
            rows.filter(|(key, _)| key.starts_with(b"client/")).count()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_is_replaced_while_it_confirms_itself_leaves_no_row() {
    for minor in [0, 1] {
        let mut rig = Rig::new();
        let gate = Rc::clone(&rig.fs);
        rig.run(move |env| async move {
            let other = Client::new(&env, "other").await;
            let wire = &other.wire;
            let is_client =
                |of: &Request| matches!(of, Request::PutRecord { key, .. } if key.starts_with(b"client/"));
            let confirm = match minor {
                0 => confirms(introduce(wire, "c", 1).await.expect("no conflict")),
                _ => {
                    let id = exchange_id(wire, "c", 1).await.eir_clientid;
                    NfsArgop4::CreateSession(create_session(id, 1))
                }
            };
            gate.hold(is_client);
            let confirming = wire.ask(minor, &[confirm]).await;
            until(&env, || gate.held() == 1).await;
            // It has restarted meanwhile.
            match minor {
                0 => drop(introduce(wire, "c", 2).await.expect("no conflict")),
                _ => drop(exchange_id(wire, "c", 2).await),
            }
            gate.release();
            let done = wire.answer(confirming).await.expect("an answer");
            assert_eq!(done.status, Nfsstat4::NFS4ERR_STALE_CLIENTID, "{minor}");
            assert_eq!(client_rows(&gate).await, 1, "{minor}: the other one's");
        });
    }
}

/// What changes something and does not fit is not carried out: it would be told as failed.
#[test]
fn what_cannot_be_answered_is_not_carried_out() {
    let rename = || {
        NfsArgop4::Rename(Rename4Args {
            oldname: "f".into(),
            newname: "g".into(),
        })
    };
    let remove = || NfsArgop4::Remove(Remove4Args { target: "f".into() });
    let makes = |name| {
        NfsArgop4::Create(Create4Args {
            objtype: Createtype4::Nf4Dir,
            objname: name,
            createattrs: no_attributes(),
        })
    };
    let link = || {
        NfsArgop4::Link(Link4Args {
            newname: "g".into(),
        })
    };
    let set = || {
        NfsArgop4::Setxattr(Setxattr4Args {
            sxa_option: SetxattrOption4::SETXATTR4_EITHER,
            sxa_key: "x".into(),
            sxa_value: b"v".as_slice().into(),
        })
    };
    let mut delegated = create("g", "o");
    if let NfsArgop4::Open(of) = &mut delegated {
        of.share_access = OPEN4_SHARE_ACCESS_BOTH;
    }
    let (root, save) = (|| NfsArgop4::Putrootfh, || NfsArgop4::Savefh);
    let compounds = [
        vec![root(), delegated],
        vec![root(), lookup("f"), write(&ANONYMOUS, b"x")],
        vec![root(), lookup("f"), set()],
        vec![root(), create("g", "o")],
        vec![root(), makes("g".into())],
        vec![root(), save(), rename()],
        vec![root(), remove()],
        vec![root(), lookup("f"), save(), root(), link()],
        vec![root(), lookup("f"), set_mode()],
    ];
    for operations in compounds {
        let mut was_done = 0;
        for cached in (0..400).step_by(4) {
            let mut rig = Rig::new();
            let door = rig.door();
            let operations = operations.clone();
            was_done += rig.run(move |env| async move {
                let client = Client::with(&env, "c", |of| {
                    of.csa_fore_chan_attrs.ca_maxresponsesize_cached = cached;
                })
                .await;
                client.reclaim_complete().await;
                client.make("f").await;
                let before = root_and_file(&client).await;
                let mut all = vec![client.sequence(1, 1, true)];
                all.extend(operations);
                let done = client.wire.call(2, &all).await;
                let after = root_and_file(&client).await;
                let large = Nfsstat4::NFS4ERR_REP_TOO_BIG_TO_CACHE;
                assert!(
                    done.status == Nfsstat4::NFS4_OK || done.status == large,
                    "{done:?}"
                );
                let is_done = done.status == Nfsstat4::NFS4_OK;
                assert_eq!(before != after, is_done, "{cached}: {all:?}");
                assert!(is_done || door.counts().states == 0, "{cached}: {all:?}");
                if is_done {
                    assert!(done.record_len() <= cached as usize);
                }
                usize::from(is_done)
            });
        }
        assert!((10..90).contains(&was_done), "{operations:?}: {was_done}");
    }
}

/// Change of the root, and of its file if that is there.
async fn root_and_file(client: &Client) -> String {
    let change = || {
        NfsArgop4::Getattr(Getattr4Args {
            attr_request: Bitmap4::of(&[FATTR4_CHANGE]),
        })
    };
    let asks = [NfsArgop4::Putrootfh, change(), lookup("f"), change()];
    let done = client.call(&asks).await;
    let results = (2..=4).map_while(|at| {
        let is_there = done.status == Nfsstat4::NFS4_OK || at < 3;
        is_there.then(|| format!("{:?}", done.result(at)))
    });
    results.collect()
}

#[test]
fn no_answer_is_larger_than_the_client_takes() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let other = Client::new(&env, "other").await;
        other.make("f").await;
        for at in (0..9000).step_by(3000) {
            let write = NfsArgop4::Write(Write4Args {
                stateid: ANONYMOUS,
                offset: at,
                stable: StableHow4::UNSTABLE4,
                data: [7; 3000].as_slice().into(),
            });
            other
                .call(&[NfsArgop4::Putrootfh, lookup("f"), write])
                .await
                .ok();
        }
        let read = || {
            NfsArgop4::Read(Read4Args {
                stateid: ANONYMOUS,
                offset: 0,
                count: 9000,
            })
        };
        let list = || {
            NfsArgop4::Readdir(Readdir4Args {
                cookie: 0,
                cookieverf: [0; 8],
                dircount: 9000,
                maxcount: 9000,
                attr_request: Bitmap4::of(&[FATTR4_SIZE]),
            })
        };
        let names = || {
            NfsArgop4::Listxattrs(Listxattrs4Args {
                lxa_cookie: 0,
                lxa_maxcount: 9000,
            })
        };
        for at in 0..40 {
            let name = format!("{at:05}");
            let sets = NfsArgop4::Setxattr(Setxattr4Args {
                sxa_option: SetxattrOption4::SETXATTR4_CREATE,
                sxa_key: name.as_str().into(),
                sxa_value: b"v".as_slice().into(),
            });
            let sets = [NfsArgop4::Putrootfh, lookup("f"), sets];
            other.call_2(&sets).await.ok();
        }
        let (root, handle) = (|| NfsArgop4::Putrootfh, || NfsArgop4::Getfh);
        let compounds = [
            vec![root(), lookup("f"), names()],
            vec![root(), lookup("f"), names(), handle(), names()],
            vec![root(), lookup("f"), read()],
            vec![root(), lookup("f"), read(), handle(), read()],
            vec![root(), list(), handle()],
            vec![root(), handle(), handle(), handle(), handle(), handle()],
        ];
        for (number, max) in (512..=8192).step_by(484).enumerate() {
            let name = format!("c{number}");
            let client = Client::with(&env, &name, |of| {
                of.csa_fore_chan_attrs.ca_maxresponsesize = max;
            })
            .await;
            client.reclaim_complete().await;
            for tag in [0, 1, 40, 300] {
                client.wire.tag.set(tag);
                for operations in &compounds {
                    let done = client.call_2(operations).await;
                    let len = done.record_len();
                    assert!(len <= max as usize, "{len} > {max}: {done:?}");
                    assert!(done.is_whole());
                }
            }
        }
    });
}

/// A READ of nothing that is not at the end would be asked for again and again.
#[test]
fn a_read_gives_something_or_says_that_there_is_no_room() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let other = Client::new(&env, "other").await;
        other.make("f").await;
        let fills = [
            NfsArgop4::Putrootfh,
            lookup("f"),
            write(&ANONYMOUS, &[7; 64]),
        ];
        other.call(&fills).await.ok();
        let read = NfsArgop4::Read(Read4Args {
            stateid: ANONYMOUS,
            offset: 0,
            count: 64,
        });
        let mut reads = vec![NfsArgop4::Putrootfh, lookup("f")];
        reads.extend(vec![NfsArgop4::Getfh; 4]);
        reads.push(read);
        let client = Client::with(&env, "c", |of| {
            of.csa_fore_chan_attrs.ca_maxresponsesize = 512;
        });
        let client = client.await;
        let (mut refused, mut short) = (0, 0);
        for tag in (100..300).step_by(4) {
            client.wire.tag.set(tag);
            let done = client.call(&reads).await;
            match done.status {
                Nfsstat4::NFS4ERR_REP_TOO_BIG => refused += 1,
                status => {
                    assert_eq!(status, Nfsstat4::NFS4_OK);
                    let NfsResop4::Read(Ok(of)) = done.result(7) else {
                        panic!("{done:?}");
                    };
                    assert!(!of.data.is_empty(), "a tag of {tag}");
                    short += usize::from(of.data.len() < 64);
                }
            }
        }
        assert!(refused > 0 && short > 0, "{refused} {short}");
    });
}

#[test]
fn sessions_together_keep_answers_for_so_many_slots() {
    let mut rig = Rig::with(|options| options.kept_max = 1 << 20);
    let door = rig.door();
    rig.run(|env| async move {
        let mut slots = 0;
        for client in 0..20 {
            let name = format!("c{client}");
            let client = Client::with(&env, &name, |of| {
                of.csa_fore_chan_attrs.ca_maxrequests = 64;
                of.csa_fore_chan_attrs.ca_maxresponsesize_cached = 16 << 10;
            })
            .await;
            client.reclaim_complete().await;
            let of = CreateSession4Args {
                csa_fore_chan_attrs: ChannelAttrs4 {
                    ca_maxrequests: 64,
                    ca_maxresponsesize_cached: 16 << 10,
                    ..create_session(client.id, 2).csa_fore_chan_attrs
                },
                ..create_session(client.id, 2)
            };
            let made = client.wire.call(1, &[NfsArgop4::CreateSession(of)]).await;
            let NfsResop4::CreateSession(Ok(made)) = made.result(0) else {
                panic!("{made:?}");
            };
            let of = made.csr_fore_chan_attrs;
            assert!(of.ca_maxrequests >= 1 && of.ca_maxresponsesize_cached >= 1024);
            slots += of.ca_maxrequests;
        }
        assert!(slots < 20 * 8, "{slots}");
        assert!(door.counts().kept_max <= (1 << 20) + 40 * 2048);
    });
}
