//! The reply to a change is lost, and the server starts anew: the repeat gets the first answer.

use std::time::Duration;

use nfs::wire::*;

use super::client::{CURRENT, Client, attributes, close, fattr, open, put_handle};
use super::site::{Nature, Site};

/// Moments, this far apart, at which the server dies after the request was sent: the last are behind the answer.
const APART: Duration = Duration::from_micros(15);
const MOMENTS: u32 = 60;

#[derive(Clone, Copy, Debug)]
enum Change {
    Rename,
    Remove,
    Link,
    Create,
    MakeDirectory,
}

impl Change {
    /// What is asked, about a file `from` that is there and a name `to` that is not.
    fn operations<'a>(
        self,
        root: &'a [u8],
        file: &'a [u8],
        names: [&'a str; 2],
        mode: &'a [u8],
    ) -> Vec<NfsArgop4<'a>> {
        let [from, to] = names;
        match self {
            Self::Rename => vec![
                put_handle(root),
                NfsArgop4::Savefh,
                NfsArgop4::Rename(Rename4Args {
                    oldname: from.into(),
                    newname: to.into(),
                }),
            ],
            Self::Remove => vec![
                put_handle(root),
                NfsArgop4::Remove(Remove4Args {
                    target: from.into(),
                }),
            ],
            Self::Link => vec![
                put_handle(file),
                NfsArgop4::Savefh,
                put_handle(root),
                NfsArgop4::Link(Link4Args { newname: to.into() }),
            ],
            Self::Create => vec![put_handle(root), guarded(to, mode), close(&CURRENT)],
            Self::MakeDirectory => vec![
                put_handle(root),
                NfsArgop4::Create(Create4Args {
                    objtype: Createtype4::Nf4Dir,
                    objname: to.into(),
                    createattrs: fattr(mode),
                }),
            ],
        }
    }

    /// What another request of the same kind is told.
    fn refusal(self) -> Nfsstat4 {
        match self {
            Self::Rename | Self::Remove => Nfsstat4::NFS4ERR_NOENT,
            Self::Link | Self::Create | Self::MakeDirectory => Nfsstat4::NFS4ERR_EXIST,
        }
    }
}

fn guarded<'a>(name: &'a str, mode: &'a [u8]) -> NfsArgop4<'a> {
    let how = Createhow4::Guarded4(fattr(mode));
    open(
        "maker",
        Openflag4::Open4Create(how),
        OpenClaim4::ClaimNull(name.into()),
    )
}

/// A new file of the root directory, and the root's handle.
async fn made(client: &mut Client, name: &str) -> [Vec<u8>; 2] {
    let mode = attributes(&[Attribute::Mode(0o600)]);
    let make = [
        NfsArgop4::Putrootfh,
        NfsArgop4::Getfh,
        guarded(name, &mode),
        NfsArgop4::Getfh,
        close(&CURRENT),
    ];
    let done = client.call(&make).await.ok();
    let handles: Vec<Vec<u8>> = done
        .results()
        .iter()
        .filter_map(|result| match result {
            NfsResop4::Getfh(Ok(of)) => Some(of.object.to_vec()),
            _ => None,
        })
        .collect();
    handles.try_into().expect("two handles")
}

/// Returns how many repeats got an answer that had been kept.
fn lost_at_every_moment(change: Change, is_power: bool) -> u64 {
    let mut site = Site::new(3, Nature::Sound);
    let client = site
        .world
        .run(1, |env| async move { Client::new(&env, "client").await });
    let mut client = client.expect("no panic");
    let (mut breaks, mut repeats) = (0, 0);
    for moment in 0..MOMENTS {
        let names = [format!("from {moment}"), format!("to {moment}")];
        let first = names[0].clone();
        let ready = site.world.run(1, move |_| async move {
            let handles = made(&mut client, &first).await;
            (client, handles)
        });
        let (mut own, [root, file]) = ready.expect("no panic");
        let mut asked = site.world.spawn(1, move |_| async move {
            let mode = attributes(&[Attribute::Mode(0o600)]);
            let names = names.each_ref().map(String::as_str);
            let ask = change.operations(&root, &file, names, &mode);
            let told = [own.call(&ask).await.status, own.call(&ask).await.status];
            (own, told)
        });
        site.world.run_for(APART * moment).expect("no panic");
        if is_power {
            site.cut_power();
        } else {
            site.kill();
        }
        let ended = site
            .world
            .run_until(Duration::from_secs(60), |_| asked.is_finished());
        assert!(ended.expect("no panic"), "{change:?} {moment}: no answer");
        let told;
        (client, told) = asked.try_take().expect("it has ended").expect("no panic");
        let expected = [Nfsstat4::NFS4_OK, change.refusal()];
        assert_eq!(
            told, expected,
            "{change:?} {moment}: the repeat, and another one"
        );
        breaks = client.breaks;
        repeats += site.repeats();
    }
    assert!(
        breaks >= u64::from(MOMENTS / 2),
        "{breaks} connections were lost"
    );
    repeats
}

#[test]
fn a_repeat_after_a_restart_gets_the_first_answer() {
    let mut repeats = 0;
    for change in [
        Change::Rename,
        Change::Remove,
        Change::Link,
        Change::Create,
        Change::MakeDirectory,
    ] {
        for is_power in [false, true] {
            repeats += lost_at_every_moment(change, is_power);
        }
    }
    // Of many a request the change was carried out, and nobody heard of it.
    assert!(repeats > 10, "{repeats} kept answers were asked for");
}
