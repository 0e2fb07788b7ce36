//! Files that are delegated for writing, and what others are told of them (RFC 8881, sections 10.4.3 and
//! 20.1).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use nfs::wire::*;
use sim::Env;

use super::bench::*;

const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH;

/// Two clients; the first has the file delegated for writing. Its stateid.
async fn writer(env: &Env) -> (Client, Client, Stateid4) {
    let first = Client::new(env, "first").await;
    let second = Client::new(env, "second").await;
    first.make("f").await;
    let opens = [NfsArgop4::Putrootfh, open("f", "o", BOTH)];
    let (_, delegation) = first.call(&opens).await.ok().opened_with(2);
    let (stateid, true) = delegation.expect("nobody is in the way") else {
        panic!("it is for reading");
    };
    (first, second, stateid)
}

/// Change and size of the file, as a client is told.
async fn look(client: &Client) -> Result<(u64, u64), Nfsstat4> {
    let attr_request = Bitmap4::of(&[FATTR4_CHANGE, FATTR4_SIZE]);
    let getattr = NfsArgop4::Getattr(Getattr4Args { attr_request });
    let done = client
        .call(&[NfsArgop4::Putrootfh, lookup("f"), getattr])
        .await;
    if done.status != Nfsstat4::NFS4_OK {
        return Err(done.status);
    }
    match done.result(3) {
        NfsResop4::Getattr(Ok(of)) => {
            let (mut change, mut size) = (0, 0);
            for attribute in of.obj_attributes.attributes() {
                match attribute.expect("a value") {
                    Attribute::Change(of) => change = of,
                    Attribute::Size(of) => size = of,
                    other => panic!("{other:?}"),
                }
            }
            Ok((change, size))
        }
        other => panic!("{other:?}"),
    }
}

fn callbacks(client: &Client) -> usize {
    client.back.called.borrow().len()
}

#[test]
fn others_are_told_what_the_writer_keeps() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second, delegation) = writer(&env).await;
        let (change, size) = look(&first).await.expect("its own file");
        assert_eq!((callbacks(&first), size), (0, 0), "it is not asked itself");
        // It has written nothing.
        first.back.on_call(move |_| Reaction::Tell(change, 0));
        assert_eq!(look(&second).await, Ok((change, 0)));
        assert_eq!(callbacks(&first), 1);
        // It has 100 bytes, and more of them each time.
        first.back.on_call(move |_| Reaction::Tell(change + 1, 100));
        let (second_change, size) = look(&second).await.expect("told");
        assert!(second_change > change);
        assert_eq!(size, 100);
        let (third_change, size) = look(&second).await.expect("told");
        assert!(third_change > second_change, "it may have written since");
        assert_eq!(size, 100);
        // It writes them back, by its delegation, and gives that back: nobody is asked any more.
        let writes = [
            NfsArgop4::Putrootfh,
            lookup("f"),
            write(&delegation, &[1; 50]),
            delegreturn(&delegation),
        ];
        first.call(&writes).await.ok();
        let before = callbacks(&first);
        let (last, size) = look(&second).await.expect("told");
        assert!(last > third_change);
        assert_eq!((size, callbacks(&first)), (50, before));
    });
}

#[test]
fn a_writer_that_does_not_say_gives_the_file_back() {
    for odd in [
        Reaction::Answer(Nfsstat4::NFS4ERR_BADHANDLE),
        Reaction::Lost,
        Reaction::Unanswered,
    ] {
        let mut rig = Rig::new();
        rig.run(move |env| async move {
            let (first, second, delegation) = writer(&env).await;
            first.back.on_call(move |call| match call.getattr {
                Some(_) => odd,
                None => Reaction::Answer(Nfsstat4::NFS4_OK),
            });
            assert_eq!(look(&second).await, Err(Nfsstat4::NFS4ERR_DELAY));
            let back = first.back.clone();
            until(&env, || back.recalls() == 1).await;
            let gives = [
                NfsArgop4::Putrootfh,
                lookup("f"),
                write(&delegation, b"late"),
                delegreturn(&delegation),
            ];
            first.call(&gives).await.ok();
            let (_, size) = look(&second).await.expect("it is back");
            assert_eq!(size, 4);
        });
    }
}

#[test]
fn who_has_lost_its_lease_is_not_waited_for() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second, _) = writer(&env).await;
        first.wire.close();
        for _ in 0..3 {
            env.core.sleep(LEASE / 2).await;
            second.flags().await;
        }
        assert!(look(&second).await.is_ok());
    });
}

#[test]
fn others_that_read_or_open_have_the_file_back() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second, delegation) = writer(&env).await;
        let opens = [
            NfsArgop4::Putrootfh,
            open("f", "reader", OPEN4_SHARE_ACCESS_READ),
        ];
        let refused = second.call(&opens).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_DELAY);
        let back = first.back.clone();
        until(&env, || back.recalls() == 1).await;
        let gives = [NfsArgop4::Putrootfh, lookup("f"), delegreturn(&delegation)];
        first.call(&gives).await.ok();
        let done = second.call(&opens).await.ok();
        let (_, delegation) = done.opened_with(2);
        assert_eq!(delegation, None, "the first has it open for writing");
    });
}

#[test]
fn nothing_is_delegated_for_writing_that_others_have_open() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let first = Client::new(&env, "first").await;
        let second = Client::new(&env, "second").await;
        first.make("f").await;
        let none = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
        second.open("f", none).await;
        assert_eq!(first.open("f", BOTH).await.1, None);
    });
}

#[test]
fn a_door_without_delegations_gives_none() {
    let mut rig = Rig::with(|options| options.delegations = false);
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        assert_eq!(client.open("f", BOTH).await.1, None);
        assert_eq!(client.open("f", OPEN4_SHARE_ACCESS_READ).await.1, None);
        env.core.sleep(Duration::from_secs(1)).await;
    });
}

#[test]
fn a_writer_writes_what_the_mode_forbids_since() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let of_all = NfsArgop4::Setattr(Setattr4Args {
            stateid: ANONYMOUS,
            obj_attributes: Fattr4 {
                attrmask: Bitmap4::of(&[FATTR4_MODE]),
                attr_vals: nfs::xdr::Opaque(&[0, 0, 1, 0xff]),
            },
        });
        client.call(&[NfsArgop4::Putrootfh, of_all]).await.ok();
        client.wire.user.set(1000);
        // A new file of mode 0: its maker has it open for reading and writing all the same.
        let NfsArgop4::Open(mut of) = create("f", "o") else {
            unreachable!()
        };
        of.share_access = BOTH;
        of.openhow = Openflag4::Open4Create(Createhow4::Guarded4(Fattr4 {
            attrmask: Bitmap4::of(&[FATTR4_MODE]),
            attr_vals: nfs::xdr::Opaque(&[0; 4]),
        }));
        let made = [NfsArgop4::Putrootfh, NfsArgop4::Open(of)];
        let (opened, delegation) = client.call(&made).await.ok().opened(2);
        let delegation = delegation.expect("nobody is in the way");
        for stateid in [&opened, &delegation] {
            let writes = [NfsArgop4::Putrootfh, lookup("f"), write(stateid, b"x")];
            client.call(&writes).await.ok();
        }
    });
}

/// RFC 8881, section 15.2: an open that denies reading is no matter of GETATTR.
#[test]
fn a_silent_writer_that_denies_reading_gives_the_file_back_too() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let first = Client::new(&env, "first").await;
        let second = Client::new(&env, "second").await;
        first.make("f").await;
        let NfsArgop4::Open(mut of) = open("f", "o", BOTH) else {
            unreachable!()
        };
        of.share_deny = OPEN4_SHARE_DENY_READ;
        let opens = [NfsArgop4::Putrootfh, NfsArgop4::Open(of)];
        let (_, delegation) = first.call(&opens).await.ok().opened_with(2);
        let (delegation, true) = delegation.expect("nobody is in the way") else {
            panic!("it is for reading");
        };
        first.back.on_call(move |call| match call.getattr {
            Some(_) => Reaction::Lost,
            None => Reaction::Answer(Nfsstat4::NFS4_OK),
        });
        assert_eq!(look(&second).await, Err(Nfsstat4::NFS4ERR_DELAY));
        let back = first.back.clone();
        until(&env, || back.recalls() == 1).await;
        let gives = [
            NfsArgop4::Putrootfh,
            lookup("f"),
            write(&delegation, b"late"),
            delegreturn(&delegation),
        ];
        first.call(&gives).await.ok();
        let (_, size) = look(&second).await.expect("it is back");
        assert_eq!(size, 4);
    });
}

/// A page of the root directory with sizes: names, the last cookie, and whether it is the last.
async fn page(client: &Client, cookie: u64) -> Result<(Vec<String>, u64, bool), Nfsstat4> {
    let readdir = NfsArgop4::Readdir(Readdir4Args {
        cookie,
        cookieverf: if cookie == 0 { [0; 8] } else { *b"vervain1" },
        dircount: 0,
        maxcount: 4096,
        attr_request: Bitmap4::of(&[FATTR4_SIZE]),
    });
    let done = client.call(&[NfsArgop4::Putrootfh, readdir]).await;
    if done.status != Nfsstat4::NFS4_OK {
        return Err(done.status);
    }
    let NfsResop4::Readdir(Ok(of)) = done.result(2) else {
        panic!("{done:?}");
    };
    let mut names = Vec::new();
    let mut last = cookie;
    for entry in &of.reply.entries.0 {
        names.push(String::from_utf8_lossy(&entry.name).into_owned());
        last = entry.cookie;
    }
    Ok((names, last, of.reply.eof))
}

#[test]
fn a_directory_of_a_silent_writer_is_listed_after_one_lease() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let first = Client::new(&env, "first").await;
        let second = Client::new(&env, "second").await;
        let all = ["a", "b", "c", "d", "e", "f"];
        for name in all {
            first.make(name).await;
            // The first is nobody's, so that a page can begin.
            if name != "a" {
                let opens = [NfsArgop4::Putrootfh, open(name, "o", BOTH)];
                let (_, delegation) = first.call(&opens).await.ok().opened_with(2);
                assert!(delegation.is_some_and(|(_, writes)| writes));
            }
        }
        first.back.on_call(|_| Reaction::Lost);
        let begun = env.core.now();
        let (mut names, mut cookie, mut short) = (Vec::new(), 0, 0);
        loop {
            // Its lease goes on, and it hears nothing.
            first.flags().await;
            match page(&second, cookie).await {
                Ok((more, last, is_end)) => {
                    names.extend(more);
                    cookie = last;
                    if is_end {
                        break;
                    }
                    short += 1;
                }
                Err(Nfsstat4::NFS4ERR_DELAY) => {
                    env.core.sleep(Duration::from_secs(5)).await;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        names.sort();
        assert_eq!(names, all);
        assert!(short > 0, "what is known is told before the rest");
        let took = env.core.now() - begun;
        assert!(took < LEASE * 2, "{took:?}: one file after the other");
    });
}

/// What is removed while its writer is asked for its size is no entry any more (RFC 8881, section
/// 15.1.2: STALE would be the directory).
#[test]
fn a_directory_is_listed_without_what_its_writer_removes_meanwhile() {
    for others in [vec![], vec!["b"]] {
        let mut rig = Rig::new();
        rig.run(move |env| async move {
            let first = Client::new(&env, "first").await;
            let second = Client::new(&env, "second").await;
            for name in ["a"].iter().chain(&others) {
                second.make(name).await;
            }
            let done = first
                .call(&[NfsArgop4::Putrootfh, open("a", "o", BOTH), NfsArgop4::Getfh])
                .await
                .ok();
            let (opened, delegation) = done.opened(2);
            let delegation = delegation.expect("nobody is in the way");
            let NfsResop4::Getfh(Ok(of)) = done.result(3) else {
                panic!("{done:?}");
            };
            let handle = of.object.to_vec();
            let (wire, session) = (Rc::clone(&first.wire), first.session);
            let (core, asked) = (env.core.clone(), Cell::new(false));
            // It is removed, closed and returned before the answer, in the order of the connection.
            first.back.on_call(move |call| {
                if call.getattr.is_none() || asked.replace(true) {
                    return Reaction::Answer(Nfsstat4::NFS4_OK);
                }
                let (wire, handle) = (Rc::clone(&wire), handle.clone());
                let (opened, delegation) = (opened.clone(), delegation.clone());
                drop(core.spawn(async move {
                    let sequence = NfsArgop4::Sequence(Sequence4Args {
                        sa_sessionid: session,
                        sa_sequenceid: 1,
                        sa_slotid: 5,
                        sa_highest_slotid: 5,
                        sa_cachethis: false,
                    });
                    let remove = NfsArgop4::Remove(Remove4Args { target: "a".into() });
                    let putfh = NfsArgop4::Putfh(Putfh4Args {
                        object: handle.as_slice().into(),
                    });
                    let ends = [
                        sequence,
                        NfsArgop4::Putrootfh,
                        remove,
                        putfh,
                        close(&opened),
                        delegreturn(&delegation),
                    ];
                    wire.ask(1, &ends).await;
                }));
                Reaction::Lost
            });
            let (mut names, last, is_end) = page(&second, 0).await.expect("a page");
            if !is_end {
                names.extend(page(&second, last).await.expect("a page").0);
            }
            assert_eq!(names, others);
        });
    }
}
