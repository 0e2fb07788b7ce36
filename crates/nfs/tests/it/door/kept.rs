//! Answers that are kept: repeats over a restart, and the end of what is kept (RFC 8881, section
//! 2.10.6.5).

use std::rc::Rc;

use files::{Caller, FileSystem, Once, Request};
use nfs::wire::*;
use nfs::xdr::Opaque;

use super::bench::*;
use super::gate::Gate;

/// Whether the answer to the third operation of slot 0's first request is kept.
async fn is_kept(fs: &Gate, session: Sessionid4, sequence: u32) -> bool {
    let once = Once {
        session,
        slot: 0,
        sequence,
        operation: 2,
    };
    let root = Caller::ROOT;
    let kept = fs.model.call(&root, Request::KeptAnswer(once));
    kept.await.is_ok()
}

/// A client without RECLAIM_COMPLETE in the way: its first request on slot 0 is what it makes.
async fn maker(env: &sim::Env, name: &str) -> Client {
    let client = Client::with(env, name, |of| of.csa_flags |= CREATE_SESSION4_FLAG_PERSIST).await;
    client.reclaim_complete().await;
    client
}

#[test]
fn kept_answers_go_with_their_session() {
    let mut rig = Rig::new();
    let fs = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = maker(&env, "c").await;
        let other = maker(&env, "d").await;
        for (client, name) in [(&client, "f"), (&other, "g")] {
            let made = [NfsArgop4::Putrootfh, create(name, "o")];
            client.call(&made).await.ok();
            assert!(is_kept(&fs, client.session, 2).await);
        }
        let of = DestroySession4Args {
            dsa_sessionid: client.session,
        };
        let destroy = [NfsArgop4::DestroySession(of)];
        client.wire.call(1, &destroy).await.ok();
        assert!(!is_kept(&fs, client.session, 2).await);
        assert!(is_kept(&fs, other.session, 2).await);
        // The other one restarts: its session is lost with all that it was.
        let restarted = exchange_id(&other.wire, "d", 2).await.eir_clientid;
        let ask = [NfsArgop4::CreateSession(create_session(restarted, 1))];
        other.wire.call(1, &ask).await.ok();
        assert!(!is_kept(&fs, other.session, 2).await);
    });
}

#[test]
fn what_ends_after_its_session_is_not_kept() {
    let mut rig = Rig::new();
    let fs = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = maker(&env, "c").await;
        fs.hold(|request| matches!(request, Request::CreateFile { .. }));
        let made = [NfsArgop4::Putrootfh, create("f", "o")];
        let making = client.ask(0, &made).await;
        until(&env, || fs.held() == 1).await;
        let restarted = exchange_id(&client.wire, "c", 2).await.eir_clientid;
        let ask = [NfsArgop4::CreateSession(create_session(restarted, 1))];
        client.wire.call(1, &ask).await.ok();
        fs.release();
        client.wire.answer(making).await.expect("an answer");
        assert!(!is_kept(&fs, client.session, 2).await);
    });
}

#[test]
fn what_ends_after_its_session_is_not_kept_if_the_server_dies_meanwhile() {
    let mut rig = Rig::new();
    let fs = Rc::clone(&rig.fs);
    let session = rig.run(|env| async move {
        let client = maker(&env, "c").await;
        let makes = |request: &Request| matches!(request, Request::CreateFile { .. });
        fs.delay(makes);
        fs.hold(makes);
        let made = [NfsArgop4::Putrootfh, create("f", "o")];
        client.ask(0, &made).await;
        until(&env, || fs.waiting() == 1).await;
        let restarted = exchange_id(&client.wire, "c", 2).await.eir_clientid;
        let ask = [NfsArgop4::CreateSession(create_session(restarted, 1))];
        client.wire.call(1, &ask).await.ok();
        fs.begin();
        until(&env, || fs.held() == 1).await;
        assert!(is_kept(&fs, client.session, 2).await);
        client.session
    });
    rig.restart();
    let fs = Rc::clone(&rig.fs);
    let is_kept = rig.run(move |_| async move { is_kept(&fs, session, 2).await });
    assert!(!is_kept);
}

#[test]
fn a_session_that_was_destroyed_stays_so() {
    for failing in [0, 1] {
        let mut rig = Rig::new();
        let fs = Rc::clone(&rig.fs);
        let mut client = rig.run(move |env| async move {
            let client = maker(&env, "c").await;
            fs.fail(2, move |request| match request {
                Request::EndSession(_) => failing == 0,
                Request::RemoveRecord(key) => failing == 1 && key.starts_with(b"session/"),
                _ => false,
            });
            let of = DestroySession4Args {
                dsa_sessionid: client.session,
            };
            let destroy = [NfsArgop4::DestroySession(of)];
            client.wire.call(1, &destroy).await.ok();
            assert_eq!(fs.failed(), 2);
            client
        });
        rig.restart();
        assert_eq!(rig.door().counts().sessions, 0);
        rig.run(move |env| async move {
            client.connect(&env).await;
            let done = client.call(&[]).await;
            assert_eq!(done.status, Nfsstat4::NFS4ERR_BADSESSION);
        });
    }
}

fn creates<'a>(name: &'a str, how: Createhow4<'a>) -> NfsArgop4<'a> {
    let NfsArgop4::Open(mut of) = create(name, "o") else {
        unreachable!()
    };
    of.openhow = Openflag4::Open4Create(how);
    NfsArgop4::Open(of)
}

fn handle_at(done: &Done, at: usize) -> Vec<u8> {
    match done.result(at) {
        NfsResop4::Getfh(Ok(of)) => of.object.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// What an OPEN tells of the file that it has made: its directory, and which attributes were set.
fn made_at(done: &Done, at: usize) -> (ChangeInfo4, Bitmap4) {
    match done.result(at) {
        NfsResop4::Open(Ok(of)) => (of.cinfo, of.attrset),
        other => panic!("{other:?}"),
    }
}

fn with_mode() -> Fattr4<'static> {
    Fattr4 {
        attrmask: Bitmap4::of(&[FATTR4_MODE]),
        attr_vals: Opaque(&[0, 0, 1, 0x80]),
    }
}

#[test]
fn a_creation_is_repeated_over_a_restart_while_others_reclaim() {
    let exclusive = || {
        Createhow4::Exclusive41(Creatverfattr {
            cva_verf: [7; 8],
            cva_attrs: with_mode(),
        })
    };
    for how in [Createhow4::Guarded4(with_mode()), exclusive()] {
        let mut rig = Rig::new();
        let again = how.clone();
        let (mut client, first) = rig.run(|env| async move {
            let client = maker(&env, "c").await;
            let made = [NfsArgop4::Putrootfh, creates("f", how), NfsArgop4::Getfh];
            let first = client.call(&made).await.ok();
            drop(maker(&env, "silent").await);
            (client, first)
        });
        rig.restart();
        let fs = Rc::clone(&rig.fs);
        rig.run(move |env| async move {
            client.reconnect(&env).await;
            let repeat = [
                client.sequence(0, 2, true),
                NfsArgop4::Putrootfh,
                creates("f", again.clone()),
                NfsArgop4::Getfh,
            ];
            let second = client.wire.call(1, &repeat).await.ok();
            assert_eq!(made_at(&second, 2), made_at(&first, 2));
            assert_eq!(handle_at(&second, 3), handle_at(&first, 3));
            let (stateid, _) = second.opened(2);
            client.slots.borrow_mut()[0] = 2;
            let write = NfsArgop4::Write(Write4Args {
                stateid,
                offset: 0,
                stable: StableHow4::UNSTABLE4,
                data: b"x".as_slice().into(),
            });
            client
                .call(&[NfsArgop4::Putrootfh, lookup("f"), write])
                .await
                .ok();
            // What is new has to wait, and makes nothing.
            let new = [NfsArgop4::Putrootfh, creates("g", again)];
            let done = client.call(&new).await;
            assert_eq!(done.status, Nfsstat4::NFS4ERR_GRACE);
            let look = [NfsArgop4::Putrootfh, lookup("g")];
            let done = client.call(&look).await;
            assert_eq!(done.status, Nfsstat4::NFS4ERR_NOENT);
            assert!(is_kept(&fs, client.session, 2).await);
        });
    }
}

#[test]
fn a_file_that_was_cut_is_not_cut_again_over_a_restart() {
    let mut rig = Rig::new();
    let cut = |stateid: &Stateid4| {
        NfsArgop4::Setattr(Setattr4Args {
            stateid: stateid.clone(),
            obj_attributes: Fattr4 {
                attrmask: Bitmap4::of(&[FATTR4_SIZE]),
                attr_vals: Opaque(&[0; 8]),
            },
        })
    };
    let (mut client, stateid) = rig.run(move |env| async move {
        let client = maker(&env, "c").await;
        let makes = [NfsArgop4::Putrootfh, create("f", "o")];
        let (stateid, _) = client.call(&makes).await.ok().opened(2);
        let cuts = [
            client.sequence(1, 1, true),
            NfsArgop4::Putrootfh,
            lookup("f"),
            cut(&stateid),
        ];
        client.wire.call(1, &cuts).await.ok();
        // What was written after that stays.
        let write = NfsArgop4::Write(Write4Args {
            stateid: stateid.clone(),
            offset: 0,
            stable: StableHow4::FILE_SYNC4,
            data: b"new".as_slice().into(),
        });
        let writes = [NfsArgop4::Putrootfh, lookup("f"), write];
        client.call(&writes).await.ok();
        (client, stateid)
    });
    rig.restart();
    rig.run(move |env| async move {
        client.reconnect(&env).await;
        let again = [
            client.sequence(1, 1, true),
            NfsArgop4::Putrootfh,
            lookup("f"),
            cut(&stateid),
        ];
        let done = client.wire.call(1, &again).await.ok();
        let set = Bitmap4::of(&[FATTR4_SIZE]);
        assert!(matches!(done.result(3), NfsResop4::Setattr(of) if of.attrsset == set));
        // Another request with that stateid is of before the restart.
        let other = [
            client.sequence(1, 2, true),
            NfsArgop4::Putrootfh,
            lookup("f"),
            cut(&stateid),
        ];
        let done = client.wire.call(1, &other).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_STALE_STATEID);
        let size = NfsArgop4::Getattr(Getattr4Args {
            attr_request: Bitmap4::of(&[FATTR4_SIZE]),
        });
        client.slots.borrow_mut()[0] = 100;
        let done = client
            .call(&[NfsArgop4::Putrootfh, lookup("f"), size])
            .await;
        let NfsResop4::Getattr(Ok(of)) = done.result(3) else {
            panic!("{done:?}");
        };
        assert_eq!(of.obj_attributes.attr_vals.0, [0, 0, 0, 0, 0, 0, 0, 3]);
    });
}
