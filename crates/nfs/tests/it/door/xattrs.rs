//! Extended attributes, as clients page through them (RFC 8276).

use std::collections::BTreeSet;

use nfs::wire::*;

use super::bench::*;

/// Cookie and names of a page, and whether it is the last.
type Page = (u64, Vec<Vec<u8>>, bool);

async fn page(client: &Client, cookie: u64, maxcount: u32) -> Result<Page, Nfsstat4> {
    let lists = NfsArgop4::Listxattrs(Listxattrs4Args {
        lxa_cookie: cookie,
        lxa_maxcount: maxcount,
    });
    let operations = [NfsArgop4::Putrootfh, lookup("f"), lists];
    let done = client.call_2(&operations).await;
    assert!(done.is_whole(), "{done:?}");
    if done.status != Nfsstat4::NFS4_OK {
        return Err(done.status);
    }
    match done.result(3) {
        NfsResop4::Listxattrs(Ok(of)) => {
            let names = of.lxr_names.iter().map(|name| name.to_vec()).collect();
            Ok((of.lxr_cookie, names, of.lxr_eof))
        }
        other => panic!("{other:?}"),
    }
}

/// RFC 8276, section 8.4.3: TOOSMALL if not one name fits.
#[test]
fn names_come_once_each_however_small_the_pages_are() {
    for (len, count) in [(1, 26), (4, 40), (5, 40), (6, 40)] {
        let mut rig = Rig::new();
        rig.run(move |env| async move {
            let client = Client::new(&env, "c").await;
            client.make("f").await;
            let mut all = BTreeSet::new();
            for at in 0..count {
                let name = match len {
                    1 => char::from(b'a' + at as u8).to_string(),
                    _ => format!("{at:0len$}"),
                };
                let sets = NfsArgop4::Setxattr(Setxattr4Args {
                    sxa_option: SetxattrOption4::SETXATTR4_CREATE,
                    sxa_key: name.as_str().into(),
                    sxa_value: b"v".as_slice().into(),
                });
                let operations = [NfsArgop4::Putrootfh, lookup("f"), sets];
                client.call_2(&operations).await.ok();
                all.insert(name.into_bytes());
            }
            // Cookie, count and end of the list, and a name with its length.
            let least = 16 + 4 + (len as u32).next_multiple_of(4);
            let refused = page(&client, 0, least - 1).await;
            assert_eq!(refused, Err(Nfsstat4::NFS4ERR_TOOSMALL));
            for maxcount in least..16 + 12 * (count + 1) {
                let (mut cookie, mut found, mut pages) = (0, Vec::new(), 0);
                loop {
                    let (next, names, is_end) = page(&client, cookie, maxcount)
                        .await
                        .unwrap_or_else(|status| {
                            panic!("{status:?}: {maxcount} bytes of names of {len}");
                        });
                    pages += 1;
                    found.extend(names);
                    if is_end {
                        break;
                    }
                    cookie = next;
                }
                assert_eq!(found.len(), count as usize, "{maxcount}");
                assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), all);
                // As many as fit.
                let a_page = (maxcount - 16) / (least - 16);
                assert_eq!(pages, count.div_ceil(a_page), "{maxcount}");
            }
        });
    }
}

/// What a session takes bounds a page as what is asked for does.
#[test]
fn names_come_once_each_however_small_the_answers_are() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let maker = Client::new(&env, "c").await;
        maker.make("f").await;
        for at in 0..40 {
            let name = format!("{at:05}");
            let sets = NfsArgop4::Setxattr(Setxattr4Args {
                sxa_option: SetxattrOption4::SETXATTR4_CREATE,
                sxa_key: name.as_str().into(),
                sxa_value: b"v".as_slice().into(),
            });
            let operations = [NfsArgop4::Putrootfh, lookup("f"), sets];
            maker.call_2(&operations).await.ok();
        }
        for max in (512..=536).step_by(4) {
            let client = Client::with(&env, &format!("c{max}"), |of| {
                of.csa_fore_chan_attrs.ca_maxresponsesize = max;
            })
            .await;
            client.reclaim_complete().await;
            let (mut cookie, mut found) = (0, BTreeSet::new());
            loop {
                let (next, names, is_end) = page(&client, cookie, 4096)
                    .await
                    .unwrap_or_else(|status| panic!("{status:?}: {max} bytes"));
                found.extend(names);
                if is_end {
                    break;
                }
                cookie = next;
            }
            assert_eq!(found.len(), 40, "{max}");
        }
    });
}
