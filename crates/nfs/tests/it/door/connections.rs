//! Connections that clients leave, fill, or open too many of.

use std::time::Duration;

use nfs::compound::CompoundCall;
use nfs::rpc::{self, Call, Credential};
use nfs::wire::NfsArgop4;
use nfs::xdr::Encoder;
use rt::net::Stream;
use sim::Env;

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
