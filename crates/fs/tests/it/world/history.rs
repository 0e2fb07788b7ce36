//! Clients that change the same names at the same time while the server dies: some order of their requests
//! explains what they are told.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use conformance::files::history::{Named, Op, TASKS, Told, draw, is_explained};
use conformance::files::program::seeds;
use files::Error;
use nfs::wire::*;

use super::client::{CURRENT, Client, attributes, close, fattr, handle_of, open, put_handle};
use super::site::{Nature, Site};
use super::wire::Done;

/// Two directories, the second in the first.
type Places = [Vec<u8>; 2];

fn make_directory<'a>(name: &'a str, mode: &'a [u8]) -> NfsArgop4<'a> {
    NfsArgop4::Create(Create4Args {
        objtype: Createtype4::Nf4Dir,
        objname: name.into(),
        createattrs: fattr(mode),
    })
}

fn make_file<'a>(name: &'a str, mode: &'a [u8]) -> [NfsArgop4<'a>; 2] {
    let how = Openflag4::Open4Create(Createhow4::Guarded4(fattr(mode)));
    let claim = OpenClaim4::ClaimNull(name.into());
    [open("maker", how, claim), close(&CURRENT)]
}

/// Where tasks work, as the checker has it.
async fn prepared(client: &mut Client) -> Places {
    let mode = attributes(&[Attribute::Mode(0o777)]);
    let make = [
        NfsArgop4::Putrootfh,
        make_directory("d", &mode),
        NfsArgop4::Getfh,
    ];
    let outer = handle_of(&client.call(&make).await.ok());
    let make = [
        put_handle(&outer),
        make_directory("e", &mode),
        NfsArgop4::Getfh,
    ];
    let inner = handle_of(&client.call(&make).await.ok());
    let mut make = vec![put_handle(&outer)];
    make.extend(make_file("a", &mode));
    client.call(&make).await.ok();
    [outer, inner]
}

async fn carry_out(client: &mut Client, places: &Places, op: Op) -> Told {
    let mode = attributes(&[Attribute::Mode(0o700)]);
    let at = |directory: usize| put_handle(&places[directory]);
    let mut ask = Vec::new();
    match op {
        Op::File(d, name) => {
            ask.push(at(d));
            ask.extend(make_file(name, &mode));
        }
        Op::Directory(d, name) => ask.extend([at(d), make_directory(name, &mode)]),
        Op::Remove(d, name) => {
            let remove = Remove4Args {
                target: name.into(),
            };
            ask.extend([at(d), NfsArgop4::Remove(remove)]);
        }
        Op::Rename(d, name, e, to) => {
            let rename = Rename4Args {
                oldname: name.into(),
                newname: to.into(),
            };
            ask.extend([at(d), NfsArgop4::Savefh, at(e), NfsArgop4::Rename(rename)]);
        }
        Op::Lookup(d, name) => {
            let look = Lookup4Args {
                objname: name.into(),
            };
            let kind = Getattr4Args {
                attr_request: Bitmap4::of(&[FATTR4_TYPE]),
            };
            ask.extend([at(d), NfsArgop4::Lookup(look), NfsArgop4::Getattr(kind)]);
        }
        Op::Link(d, name) => {
            let link = Link4Args {
                newname: name.into(),
            };
            ask.extend([at(1), NfsArgop4::Savefh, at(d), NfsArgop4::Link(link)]);
        }
    }
    tell(&client.call(&ask).await)
}

fn tell(done: &Done) -> Told {
    match done.status {
        Nfsstat4::NFS4_OK => {}
        Nfsstat4::NFS4ERR_NOENT => return Err(Error::NotFound),
        Nfsstat4::NFS4ERR_EXIST => return Err(Error::Exists),
        Nfsstat4::NFS4ERR_NOTDIR => return Err(Error::NotDirectory),
        Nfsstat4::NFS4ERR_ISDIR => return Err(Error::IsDirectory),
        Nfsstat4::NFS4ERR_NOTEMPTY => return Err(Error::NotEmpty),
        Nfsstat4::NFS4ERR_STALE => return Err(Error::Stale),
        Nfsstat4::NFS4ERR_INVAL => return Err(Error::Invalid),
        other => panic!("{other:?}"),
    }
    Ok(match done.last() {
        NfsResop4::Getattr(Ok(of)) => {
            let kinds = of.obj_attributes.attributes();
            let mut kinds = kinds.map(|of| of.expect("an attribute"));
            match kinds.next() {
                Some(Attribute::Type(NfsFtype4::NF4DIR)) => "directory",
                _ => "file",
            }
        }
        NfsResop4::Rename(Ok(of)) if of.source_cinfo.before == of.source_cinfo.after => {
            "nothing to do"
        }
        _ => "done",
    })
}

/// The names in both directories, and how many names each object has.
async fn names(client: &mut Client, places: &Places) -> Vec<Named> {
    let mut names = Vec::new();
    for (number, place) in places.iter().enumerate() {
        let ask = [
            put_handle(place),
            NfsArgop4::Readdir(Readdir4Args {
                cookie: 0,
                cookieverf: [0; 8],
                dircount: 32 << 10,
                maxcount: 64 << 10,
                attr_request: Bitmap4::of(&[FATTR4_NUMLINKS]),
            }),
        ];
        let done = client.call(&ask).await;
        if done.status == Nfsstat4::NFS4ERR_STALE {
            continue;
        }
        let done = done.ok();
        let NfsResop4::Readdir(Ok(of)) = done.last() else {
            panic!("{done:?}");
        };
        assert!(of.reply.eof);
        for entry in &of.reply.entries.0 {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let mut of = entry.attrs.attributes();
            let links = match of.next() {
                Some(Ok(Attribute::Numlinks(links))) => links,
                other => panic!("{other:?}"),
            };
            names.push((number, name, links));
        }
    }
    names.sort();
    names
}

/// What tasks may have been told. A file that was made before a restart, and removed by somebody else before its
/// OPEN came again, is STALE to that: it was made. Of the inner directory that may have gone itself.
fn explanations(tasks: &[Vec<Op>], told: &[Vec<Told>]) -> impl Iterator<Item = Vec<Vec<Told>>> {
    let with = |is_gone: fn(usize) -> bool| {
        let mut told = told.to_vec();
        for (told, op) in told.iter_mut().flatten().zip(tasks.iter().flatten()) {
            if let Op::File(directory, _) = op
                && *told == Err(Error::Stale)
                && is_gone(*directory)
            {
                *told = Ok("done");
            }
        }
        told
    };
    [with(|directory| directory == 0), with(|_| true)].into_iter()
}

fn run(seed: u64) {
    let tasks = draw(seed);
    let mut site = Site::new(seed, Nature::Sound);
    let ready = site.world.run(1, |env| async move {
        let places = prepared(&mut Client::new(&env, "first").await).await;
        let mut clients = Vec::new();
        for number in 0..TASKS {
            clients.push(Client::new(&env, format!("client {number}")).await);
        }
        (clients, places)
    });
    let (clients, places) = ready.expect("no panic");
    if seed.is_multiple_of(2) {
        site.doubt(10);
    }
    let told = Rc::new(RefCell::new(vec![Vec::new(); TASKS]));
    for (number, (mut client, task)) in clients.into_iter().zip(tasks.clone()).enumerate() {
        let (told, places) = (Rc::clone(&told), places.clone());
        drop(site.world.spawn(1, move |_| async move {
            for op in task {
                let answer = carry_out(&mut client, &places, op).await;
                told.borrow_mut()[number].push(answer);
            }
        }));
    }
    let count = tasks.iter().map(Vec::len).sum();
    let is_over =
        |told: &RefCell<Vec<Vec<Told>>>| told.borrow().iter().map(Vec::len).sum::<usize>() == count;
    for _ in 0..2 {
        let time = site.world.chance().u64(..4_000_000);
        let ended = site
            .world
            .run_until(Duration::from_nanos(time), |_| is_over(&told));
        if ended.expect("no panic") {
            break;
        }
        if site.world.chance().bool() {
            site.cut_power();
        } else {
            site.kill();
        }
    }
    site.doubt(0);
    let ended = site
        .world
        .run_until(Duration::from_secs(60), |_| is_over(&told));
    assert!(ended.expect("no panic"), "seed {seed}: no end");
    // Who was silent during a restart was forgotten.
    let end = site.world.run(1, move |env| async move {
        let mut client = Client::new(&env, "last").await;
        names(&mut client, &places).await
    });
    let (end, told) = (end.expect("no panic"), told.take());
    assert!(
        explanations(&tasks, &told).any(|told| is_explained(&tasks, &told, &end)),
        "seed {seed}: no order of {tasks:?} tells {told:?}, ends in {end:?}"
    );
}

#[test]
fn some_order_explains_what_clients_are_told_although_the_server_dies() {
    for seed in seeds(0..40) {
        run(seed);
    }
}
