//! Connections that clients leave, fill, or open too many of.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use nfs::compound::CompoundCall;
use nfs::rpc::{self, Call, Credential};
use nfs::wire::*;
use nfs::xdr::Encoder;
use rt::net::Stream;
use sim::{Env, WorldOptions};

use super::bench::*;

/// Calls that a connection holds, and whose answers are more than it does.
fn calls() -> Vec<u8> {
    let mut all = Vec::new();
    for xid in 0..10 {
        let mut out = Encoder::default();
        rpc::put_record(&mut out, |out| {
            let procedure = (rpc::NFS_PROGRAM, rpc::NFS_VERSION, rpc::PROC_COMPOUND);
            Call::put(out, xid, procedure, &Credential::None);
            let mut call = CompoundCall::begin(out, "".into(), 0);
            call.operation(out, &NfsArgop4::Putrootfh);
            for _ in 0..1000 {
                call.operation(out, &NfsArgop4::Getfh);
            }
            call.finish(out);
        });
        all.extend(out.into_bytes());
    }
    all
}

/// A client that sends and never reads.
async fn deaf(env: &Env) -> Stream {
    let mut stream = Stream::connect(&env.core, &env.addr(0, PORT))
        .await
        .expect("a server");
    stream.send_all(calls()).await.0.expect("all is taken");
    env.core.sleep(Duration::from_millis(10)).await;
    stream
}

#[test]
fn who_sends_no_more_and_reads_nothing_is_let_go() {
    let mut rig = Rig::new();
    let _stream = rig.run(|env| async move {
        let mut stream = deaf(&env).await;
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        stream
    });
    assert_eq!(rig.door().counts().connections, 1);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.door().counts().connections, 0);
}

#[test]
fn who_reads_nothing_for_a_lease_is_let_go() {
    let mut rig = Rig::new();
    let _stream = rig.run(|env| async move { deaf(&env).await });
    rig.pass(LEASE * 2);
    assert_eq!(rig.door().counts().connections, 0);
}

#[test]
fn a_connection_too_many_is_closed_and_the_others_stay() {
    let mut rig = Rig::with(|options| options.connections_max = 2);
    rig.run(|env| async move {
        let first = Client::new(&env, "a").await;
        let second = Client::new(&env, "b").await;
        let mut third = Stream::connect(&env.core, &env.addr(0, PORT))
            .await
            .expect("a server");
        let (count, _) = third.recv(Vec::new()).await;
        assert!(!matches!(count, Ok(1..)), "{count:?}");
        assert_eq!((first.flags().await, second.flags().await), (0, 0));
    });
}

#[test]
fn who_goes_with_many_answers_unread_is_let_go_at_once() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let stream = Stream::connect(&env.core, &env.addr(0, PORT)).await;
        let (_receiver, mut sender) = stream.expect("a server").into_split();
        // More than the door keeps for one client: it takes no more until it is read.
        let sending = env.core.timeout(Duration::from_secs(1), async {
            for _ in 0..100 {
                let sent = sender.send_all(calls()).await.0;
                sent.expect("it is open");
            }
        });
        assert!(sending.await.is_err(), "all of it is taken");
    });
    let before = rig.door().counts();
    assert_eq!(before.connections, 1);
    assert!(before.bytes < 10 << 20, "{before:?}");
    rig.pass(Duration::from_secs(1));
    let after = rig.door().counts();
    assert_eq!((after.connections, after.bytes), (0, 0));
}

/// A 4.0 request of anybody's.
fn request(xid: u32, operations: &[NfsArgop4<'_>]) -> Vec<u8> {
    let mut out = Encoder::default();
    rpc::put_record(&mut out, |out| {
        let procedure = (rpc::NFS_PROGRAM, rpc::NFS_VERSION, rpc::PROC_COMPOUND);
        Call::put(out, xid, procedure, &Credential::None);
        let mut call = CompoundCall::begin(out, "".into(), 0);
        operations.iter().for_each(|of| call.operation(out, of));
        call.finish(out);
    });
    out.into_bytes()
}

/// What comes together is begun in parts, so that others have their turn and disks their work in between.
#[test]
fn of_what_comes_together_eight_are_begun_at_once() {
    let mut world = WorldOptions::new(1, 2);
    world.links.in_pieces = false;
    let mut rig = Rig::over(world, |options| options.exports[0].anonymous = (0, 0));
    let (door, gate) = (rig.door(), Rc::clone(&rig.fs));
    let begun = rig.run(|env| async move {
        Client::new(&env, "c").await.make("f").await;
        let operations = [NfsArgop4::Putrootfh, lookup("f"), set_mode()];
        let one = request(0, &operations).len() as u64 - 4;
        let all: Vec<u8> = (0..16).flat_map(|xid| request(xid, &operations)).collect();
        let stream = Stream::connect(&env.core, &env.addr(0, PORT)).await;
        let mut stream = stream.expect("a server");
        env.core.sleep(Duration::from_secs(1)).await;
        let (begun, seen) = (Rc::new(RefCell::new(Vec::new())), door.counts().bytes);
        let noted = Rc::clone(&begun);
        gate.hold(move |request| {
            // How many are begun when this one comes to the file system.
            let is_it = matches!(request, files::Request::SetAttributes(..));
            if is_it {
                let bytes = door.counts().bytes - seen;
                noted.borrow_mut().push(bytes / one);
            }
            is_it
        });
        stream.send_all(all).await.0.expect("it is open");
        until(&env, || gate.held() == 16).await;
        gate.release();
        begun.take()
    });
    assert_eq!(begun, [[8; 8], [16; 8]].concat());
}

#[test]
fn all_together_hold_so_much_and_no_more() {
    const MAX: usize = 1 << 20;
    const LEN: usize = 256 << 10;
    let mut rig = Rig::with(|options| {
        options.bytes_max = MAX;
        options.exports[0].anonymous = (0, 0);
    });
    let door = rig.door();
    let streams = rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let data = vec![7; LEN];
        let on_file = |operation| [NfsArgop4::Putrootfh, lookup("f"), operation];
        let write = on_file(NfsArgop4::Write(Write4Args {
            stateid: ANONYMOUS,
            offset: 0,
            stable: StableHow4::UNSTABLE4,
            data: data.as_slice().into(),
        }));
        client.wire.call(0, &write).await.ok();
        let read = on_file(NfsArgop4::Read(Read4Args {
            stateid: ANONYMOUS,
            offset: 0,
            count: LEN as u32,
        }));
        let requests: Vec<u8> = (0..20).flat_map(|xid| request(xid, &read)).collect();
        let mut streams = Vec::new();
        for _ in 0..20 {
            let stream = Stream::connect(&env.core, &env.addr(0, PORT)).await;
            let mut stream = stream.expect("a server");
            stream.send_all(requests.clone()).await.0.expect("taken");
            streams.push(stream);
        }
        env.core.sleep(Duration::from_secs(1)).await;
        let counts = door.counts();
        let bytes = counts.bytes as usize;
        assert!((MAX..MAX + 2 * LEN).contains(&bytes), "{counts:?}");
        // Who asks for little is served all the same.
        client.make("g").await;
        streams
    });
    rig.pass(LEASE * 3);
    // Their places were taken by others that read nothing either, until all were let go.
    let door = rig.door();
    let after = door.counts();
    assert!(after.bytes < 3 * MAX as u64, "{after:?}");
    drop(streams);
    rig.pass(Duration::from_secs(20));
    assert_eq!(rig.door().counts().bytes, 0);
}

#[test]
fn who_reads_slowly_stays() {
    const LEN: usize = 256 << 10;
    let mut rig = Rig::with(|options| options.exports[0].anonymous = (0, 0));
    let door = rig.door();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let data = vec![7; LEN];
        let on_file = |operation| [NfsArgop4::Putrootfh, lookup("f"), operation];
        let write = on_file(NfsArgop4::Write(Write4Args {
            stateid: ANONYMOUS,
            offset: 0,
            stable: StableHow4::UNSTABLE4,
            data: data.as_slice().into(),
        }));
        client.wire.call(0, &write).await.ok();
        let read = on_file(NfsArgop4::Read(Read4Args {
            stateid: ANONYMOUS,
            offset: 0,
            count: LEN as u32,
        }));
        let requests: Vec<u8> = (0..20).flat_map(|xid| request(xid, &read)).collect();
        let stream = Stream::connect(&env.core, &env.addr(0, PORT)).await;
        let mut stream = stream.expect("a server");
        stream.send_all(requests).await.0.expect("taken");
        // An answer in a quarter of a lease, and so all of them in five leases.
        let (mut taken, mut buffer) = (0, Vec::new());
        for answer in 1..=20 {
            while taken < answer * LEN {
                buffer.clear();
                let (count, back) = stream.recv(buffer).await;
                buffer = back;
                let count = count.expect("it is open");
                assert_ne!(count, 0, "after {taken} bytes");
                taken += count;
            }
            env.core.sleep(LEASE / 4).await;
        }
        assert_eq!(door.counts().connections, 2);
    });
}

/// Half of a record, and then nothing.
#[test]
fn who_stays_within_a_record_is_counted_and_let_go_after_a_lease() {
    const LEN: usize = 1 << 20;
    let mut rig = Rig::new();
    let _stream = rig.run(|env| async move {
        let stream = Stream::connect(&env.core, &env.addr(0, PORT)).await;
        let mut stream = stream.expect("a server");
        let mut half = vec![0; LEN / 2];
        half[..4].copy_from_slice(&(LEN as u32 | 1 << 31).to_be_bytes());
        stream.send_all(half).await.0.expect("it is open");
        stream
    });
    rig.pass(Duration::from_secs(1));
    let counts = rig.door().counts();
    assert_eq!(counts.connections, 1);
    assert!(counts.bytes >= LEN as u64 / 2 - 4, "{counts:?}");
    rig.pass(LEASE);
    let counts = rig.door().counts();
    assert_eq!((counts.connections, counts.bytes), (0, 0));
}

/// A client may be silent between two records for as long as it likes.
#[test]
fn who_is_silent_between_records_stays() {
    let mut rig = Rig::new();
    let client = rig.run(|env| async move { Client::new(&env, "c").await });
    rig.pass(LEASE * 3);
    assert_eq!(rig.door().counts().connections, 1);
    rig.run(|_| async move {
        client.flags().await;
    });
}

/// Half of a record, a byte at a time: the lease is the record's, not each byte's.
#[test]
fn who_drips_a_record_is_let_go_after_a_lease() {
    const LEN: usize = 1 << 20;
    let mut rig = Rig::new();
    let door = rig.door();
    rig.run(|env| async move {
        let stream = Stream::connect(&env.core, &env.addr(0, PORT)).await;
        let mut stream = stream.expect("a server");
        let mut half = vec![0; LEN / 2];
        half[..4].copy_from_slice(&(LEN as u32 | 1 << 31).to_be_bytes());
        stream.send_all(half).await.0.expect("it is open");
        for _ in 0..2 {
            env.core.sleep(LEASE / 3).await;
            stream.send_all(vec![0]).await.0.expect("it is open");
            assert_eq!(door.counts().connections, 1);
        }
        for _ in 0..2 {
            env.core.sleep(LEASE / 3).await;
            // It may be closed by now.
            drop(stream.send_all(vec![0]).await);
        }
        assert_eq!((door.counts().connections, door.counts().bytes), (0, 0));
    });
}

/// The library's client: nobody else ends its connection.
#[test]
fn a_client_that_has_ended_has_no_connection() {
    let mut rig = Rig::new();
    let (door, gate) = (rig.door(), Rc::clone(&rig.fs));
    rig.run(|env| async move {
        let connect = || {
            let mut options = nfs::client::Options::new("c", 1);
            options.silence = Duration::from_secs(1);
            let (core, address) = (env.core.clone(), env.addr(0, PORT));
            async move { nfs::client::Client::connect(&core, &address, options).await }
        };
        let client = connect().await.expect("a server");
        assert_eq!(door.counts().connections, 1);
        client.close().await.expect("it is forgotten");
        env.core.sleep(Duration::from_secs(1)).await;
        assert_eq!(door.counts().connections, 0, "it is closed");
        // It waits for an answer in vain.
        let client = connect().await.expect("a server");
        gate.hold(|request| matches!(request, files::Request::GetAttributes(_)));
        let attr_request = Bitmap4::of(&[FATTR4_SIZE]);
        let getattr = NfsArgop4::Getattr(Getattr4Args { attr_request });
        let done = client.call(&[NfsArgop4::Putrootfh, getattr]).await;
        assert!(matches!(done, Err(nfs::client::ClientError::Silent)));
        env.core.sleep(Duration::from_secs(1)).await;
        assert_eq!(door.counts().connections, 0, "it is given up");
        gate.release();
        // It has a file open, and so is not forgotten.
        let client = connect().await.expect("a server");
        let makes = [NfsArgop4::Putrootfh, create("f", "o")];
        let made = client.call(&makes).await.expect("an answer");
        made.ok().expect("made");
        let busy = nfs::client::ClientError::Status(Nfsstat4::NFS4ERR_CLIENTID_BUSY);
        let closed = client.close().await.expect_err("it holds something");
        assert_eq!(closed.to_string(), busy.to_string());
        env.core.sleep(Duration::from_secs(1)).await;
        assert_eq!(door.counts().connections, 0, "it is closed all the same");
    });
}

/// Who waits for something else than answers, and only then: no call of a client is beside a renewal.
#[test]
fn a_lease_is_renewed_when_nothing_was_answered_for_a_third_of_it() {
    let mut rig = Rig::new();
    let door = rig.door();
    rig.run(|env| async move {
        let options = nfs::client::Options::new("c", 1);
        let connected = nfs::client::Client::connect(&env.core, &env.addr(0, PORT), options).await;
        let client = connected.expect("a server");
        let mut calls = Vec::new();
        for sleep in [
            Duration::ZERO,
            LEASE / 2,
            Duration::ZERO,
            LEASE / 4,
            LEASE / 4,
        ] {
            env.core.sleep(sleep).await;
            let before = door.counts().compounds;
            client.renew().await.expect("a server");
            calls.push(door.counts().compounds - before);
        }
        assert_eq!(calls, [0, 1, 0, 0, 1]);
        // What it asks is a call like others: an answer tells as much.
        env.core.sleep(LEASE / 4).await;
        client
            .call(&[NfsArgop4::Putrootfh])
            .await
            .expect("a server");
        env.core.sleep(LEASE / 4).await;
        let before = door.counts().compounds;
        client.renew().await.expect("a server");
        assert_eq!(door.counts().compounds, before);
    });
}
