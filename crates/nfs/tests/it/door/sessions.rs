//! Sessions: slots, limits, CREATE_SESSION.

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
