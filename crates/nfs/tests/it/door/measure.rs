//! What the door counts of calls.

use std::rc::Rc;
use std::time::Duration;

use files::Request;
use nfs::wire::*;

use super::bench::*;

const SLOW: Duration = Duration::from_millis(50);

#[test]
fn calls_count_as_what_they_are_for_and_slow_ones_are_told() {
    let mut rig = Rig::with(|options| options.slow = Some(SLOW));
    let fs = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = Client::new(&env, "a").await;
        client.make("there").await;
        for name in ["there", "missing", "there"] {
            let look = [NfsArgop4::Putrootfh, lookup(name), NfsArgop4::Getfh];
            let is_found = client.call(&look).await.status == Nfsstat4::NFS4_OK;
            assert_eq!(is_found, name == "there");
        }
        fs.hold(|request| matches!(request, Request::Lookup(..)));
        let xid = client
            .ask(0, &[NfsArgop4::Putrootfh, lookup("there")])
            .await;
        until(&env, || fs.held() == 1).await;
        env.core.sleep(SLOW).await;
        fs.release();
        client.wire.answer(xid).await.expect("an answer").ok();
        client.flags().await;
    });
    let all = rig.door().operations();
    let of = |name: &str| {
        let found = all.iter().find(|of| of.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {all:?}"))
    };
    assert_eq!((of("open").latencies.count(), of("open").errors), (1, 0));
    let lookups = of("lookup");
    assert_eq!(
        (lookups.latencies.count(), lookups.errors, lookups.delayed),
        (4, 1, 0)
    );
    assert!(lookups.latencies.quantile(1.0) >= 50_000);
    assert!(lookups.latencies.quantile(0.5) < 50_000);
    assert_eq!(of("sequence").latencies.count(), 1);
    assert_eq!(of("create_session").latencies.count(), 1);
    let counts = rig.door().counts();
    assert_eq!(counts.slow, 1);
    let calls: u64 = all.iter().map(|of| of.latencies.count()).sum();
    assert_eq!(calls, counts.compounds);
    assert!(counts.bytes_in > 40 * calls && counts.bytes_out > 40 * calls);
}

#[test]
fn what_clients_hold_is_counted_by_its_kind() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "a").await;
        client.make("f").await;
        let access = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
        let (_, delegation) = client.open("f", access).await;
        assert!(delegation.is_some());
        // As long as the client.
        std::mem::forget(client);
    });
    let counts = rig.door().counts();
    assert_eq!((counts.opens, counts.locks, counts.delegated), (1, 0, 1));
    assert_eq!(counts.states, 2);
}
