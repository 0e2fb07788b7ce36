//! What a file's mode says about opening it, and what it does not.

use nfs::wire::*;
use nfs::xdr::Opaque;

use super::bench::*;

const READ: u32 = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

fn mode(bytes: &[u8; 4]) -> Fattr4<'_> {
    Fattr4 {
        attrmask: Bitmap4::of(&[FATTR4_MODE]),
        attr_vals: Opaque(bytes),
    }
}

/// PUTROOTFH and an OPEN that makes a file with this mode, to read and write it.
fn make<'a>(name: &'a str, bytes: &'a [u8; 4]) -> [NfsArgop4<'a>; 2] {
    let open = NfsArgop4::Open(Open4Args {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        share_deny: 0,
        owner: StateOwner4 {
            clientid: 0,
            owner: "o".into(),
        },
        openhow: Openflag4::Open4Create(Createhow4::Unchecked4(mode(bytes))),
        claim: OpenClaim4::ClaimNull(name.into()),
    });
    [NfsArgop4::Putrootfh, open]
}

/// POSIX, `open`; RFC 8881, section 18.16.3. Linux's client opens to read what it executes.
#[test]
fn a_new_files_mode_does_not_bind_its_maker_and_what_is_executed_is_read() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let for_all = NfsArgop4::Setattr(Setattr4Args {
            stateid: ANONYMOUS,
            obj_attributes: mode(&[0, 0, 1, 0xff]),
        });
        client.call(&[NfsArgop4::Putrootfh, for_all]).await.ok();
        client.wire.user.set(1001);
        let made = client.call(&make("closed", &[0; 4])).await.ok();
        let (stateid, _) = made.opened(2);
        let write = NfsArgop4::Write(Write4Args {
            stateid,
            offset: 0,
            stable: StableHow4::FILE_SYNC4,
            data: Opaque(b"x"),
        });
        let written = [NfsArgop4::Putrootfh, lookup("closed"), write];
        client.call(&written).await.ok();
        client.call(&make("program", &[0, 0, 1, 0xc9])).await.ok();

        client.wire.user.set(1002);
        let opening = |name| [NfsArgop4::Putrootfh, open(name, "p", READ)];
        let refused = client.call(&opening("closed")).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_ACCESS);
        let (stateid, _) = client.call(&opening("program")).await.ok().opened(2);
        let read = NfsArgop4::Read(Read4Args {
            stateid,
            offset: 0,
            count: 1,
        });
        let reading = [NfsArgop4::Putrootfh, lookup("program"), read];
        client.call(&reading).await.ok();
    });
}

/// RFC 8881, section 5.8.1.12: an entry whose attributes cannot be told says why where that is asked for;
/// elsewhere the listing fails.
#[test]
fn who_may_not_search_a_directory_lists_names_and_no_attributes() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let read_only = NfsArgop4::Setattr(Setattr4Args {
            stateid: ANONYMOUS,
            obj_attributes: mode(&[0, 0, 1, 0xe4]),
        });
        client.call(&[NfsArgop4::Putrootfh, read_only]).await.ok();
        client.wire.user.set(1001);
        let list = |wanted: &[u32]| {
            let listing = NfsArgop4::Readdir(Readdir4Args {
                cookie: 0,
                cookieverf: [0; 8],
                dircount: 4096,
                maxcount: 4096,
                attr_request: Bitmap4::of(wanted),
            });
            [NfsArgop4::Putrootfh, listing]
        };
        let attributes = |done: Done| match done.result(2) {
            NfsResop4::Readdir(Ok(page)) => {
                let entry = &page.reply.entries.0[0];
                let attributes = entry
                    .attrs
                    .attributes()
                    .map(|one| format!("{:?}", one.expect("one")));
                (entry.name.to_vec(), attributes.collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        };
        let refused = client.call(&list(&[FATTR4_FILEID])).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_ACCESS);
        let named = client.call(&list(&[])).await.ok();
        assert_eq!(attributes(named), (b"f".to_vec(), Vec::new()));
        let told = client
            .call(&list(&[FATTR4_RDATTR_ERROR, FATTR4_FILEID]))
            .await
            .ok();
        let error = format!("{:?}", Attribute::RdattrError(Nfsstat4::NFS4ERR_ACCESS));
        assert_eq!(attributes(told), (b"f".to_vec(), vec![error]));
    });
}
