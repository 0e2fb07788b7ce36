//! Sessions: slots, limits, CREATE_SESSION.

use std::rc::Rc;

use files::Request;
use nfs::wire::*;
use nfs::xdr::Opaque;

use super::bench::*;

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
