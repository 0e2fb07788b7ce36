//! Rows, ranges, limits, one at a time.

use std::rc::Rc;

use crate::{BYTES_MAX, Engine, KEY_LEN_MAX, Key, OPERATION_BYTES, OPERATIONS_MAX};
use crate::{Outcome, Range, Row, Transaction};

/// Commits something that nobody interferes with, as often as it takes. Returns its revision.
async fn commit(engine: &dyn Engine, transaction: Transaction) -> u64 {
    loop {
        match engine.commit(transaction.clone()).await.expect("a commit") {
            Outcome::Committed(revision) => return revision,
            Outcome::Conflict => panic!("nobody interferes with {transaction:?}"),
            Outcome::Unknown => {}
        }
    }
}

async fn put(engine: &dyn Engine, key: &[u8], value: &[u8]) -> u64 {
    let mut put = Transaction::new();
    put.put(key, value).expect("one write");
    commit(engine, put).await
}

async fn get(engine: &dyn Engine, key: &[u8]) -> Option<Row> {
    engine.get(key).await.expect("a read")
}

/// Empty values, zero bytes, long keys, large values; overwriting and deleting.
pub(super) async fn rows_are_as_they_were_written(engine: &dyn Engine) {
    let long = vec![7; KEY_LEN_MAX];
    let large: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    let rows: [(&[u8], &[u8]); 6] = [
        (b"rows/empty", b""),
        (b"rows/\0", b"\0\0"),
        (b"rows/\0\0", b"another"),
        (b"\0", b"only a zero"),
        (&long, b"a long key"),
        (b"rows/large", &large),
    ];
    for (key, value) in rows {
        let version = put(engine, key, value).await;
        let row = get(engine, key).await.expect("it was put");
        assert_eq!((&*row.value, row.version), (value, version));
    }
    for (key, value) in rows {
        assert_eq!(&*get(engine, key).await.expect("still there").value, value);
        let mut delete = Transaction::new();
        delete.delete(key).expect("one write");
        commit(engine, delete.clone()).await;
        assert_eq!(get(engine, key).await, None);
        commit(engine, delete).await;
    }
    put(engine, b"rows/again", b"1").await;
    let version = put(engine, b"rows/again", b"2").await;
    let row = get(engine, b"rows/again").await.expect("it was put");
    assert_eq!((&row.value[..], row.version), (&b"2"[..], version));
}

/// Each kind of comparison, when it holds and when it does not; a conflict writes nothing.
pub(super) async fn comparisons_decide(engine: &dyn Engine) {
    let version = put(engine, b"compare/is", b"v").await;
    let attempt = |build: &dyn Fn(&mut Transaction)| {
        let mut transaction = Transaction::new();
        build(&mut transaction);
        transaction.put("compare/written", "").expect("one write");
        transaction
    };
    type Build<'a> = (bool, &'a dyn Fn(&mut Transaction));
    let cases: [Build<'_>; 9] = [
        (true, &|t| drop(t.absent("compare/none"))),
        (false, &|t| drop(t.absent("compare/is"))),
        (true, &|t| drop(t.exists("compare/is"))),
        (false, &|t| drop(t.exists("compare/none"))),
        (true, &|t| drop(t.version("compare/is", version))),
        (false, &|t| drop(t.version("compare/is", version + 1))),
        (false, &|t| drop(t.version("compare/none", 0))),
        (true, &|t| drop(t.value_is("compare/is", "v"))),
        (false, &|t| drop(t.value_is("compare/is", ""))),
    ];
    for (number, (holds, build)) in cases.into_iter().enumerate() {
        let before = get(engine, b"compare/written").await;
        let transaction = attempt(build);
        assert_eq!(transaction.compares().len(), 1, "it was built");
        let outcome = loop {
            match engine.commit(transaction.clone()).await.expect("a commit") {
                Outcome::Unknown => {}
                outcome => break outcome,
            }
        };
        let is_committed = matches!(outcome, Outcome::Committed(_));
        assert_eq!(is_committed, holds, "comparison {number}: {outcome:?}");
        let after = get(engine, b"compare/written").await;
        assert!(holds || after == before, "comparison {number} wrote");
    }
}

/// A transaction that writes takes the next revision, all of its rows have it; one that does not, none.
pub(super) async fn revisions_follow_each_other(engine: &dyn Engine) {
    let mut two = Transaction::new();
    two.put("revision/a", "").expect("one write");
    two.put("revision/b", "").expect("two writes");
    let first = commit(engine, two.clone()).await;
    let nothing = commit(engine, Transaction::new()).await;
    assert!(nothing >= first, "it has that of the last one");
    let next = commit(engine, two).await;
    assert!(next > nothing, "each is later than those before");
    for key in [b"revision/a", b"revision/b"] {
        assert_eq!(get(engine, key).await.expect("it was put").version, next);
    }
}

/// Scans of ranges, with limits, over rows that come and go.
pub(super) async fn ranges_are_ascending_and_limited(engine: &dyn Engine) {
    let key = |i: usize| Key::from(format!("range/{i:03}").into_bytes());
    for i in 0..40 {
        put(engine, &key(i), &[i as u8]).await;
    }
    for i in (0..40).step_by(3) {
        let mut delete = Transaction::new();
        delete.delete(key(i)).expect("one write");
        commit(engine, delete).await;
    }
    let left: Vec<Key> = (0..40).filter(|i| i % 3 != 0).map(key).collect();
    let scan = async |range: Range, limit| {
        let rows = engine.scan(range, limit).await.expect("a scan");
        rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    for limit in [0, 1, 7, left.len(), left.len() + 1, usize::MAX] {
        let keys = scan(Range::prefix("range/"), limit).await;
        assert_eq!(keys, left[..limit.min(left.len())]);
    }
    let (from, to) = (key(4), key(20));
    let inside = left.iter().filter(|key| **key >= from && **key < to);
    let inside: Vec<Key> = inside.cloned().collect();
    assert_eq!(scan(Range::new(&*from, &*to), usize::MAX).await, inside);
    assert_eq!(scan(Range::new(&*to, &*from), 9).await, [] as [Key; 0]);
    assert_eq!(scan(Range::new(&*to, &*to), 9).await, [] as [Key; 0]);
    let mut pages = Vec::new();
    let mut range = Range::prefix("range/");
    loop {
        let page = scan(range.clone(), 5).await;
        let Some(last) = page.last() else { break };
        range = range.after(last);
        pages.extend(page);
    }
    assert_eq!(pages, left, "page by page");
}

/// As many operations and bytes as a transaction may have.
pub(super) async fn the_largest_transaction_is_carried_out(engine: &dyn Engine) {
    let mut largest = Transaction::new();
    let key = |i: usize| format!("largest/{i:03}");
    let share = BYTES_MAX / OPERATIONS_MAX - 2 * (OPERATION_BYTES + key(0).len());
    for i in 0..OPERATIONS_MAX {
        largest.absent(key(i)).expect("it fits");
        largest.put(key(i), vec![i as u8; share]).expect("it fits");
    }
    assert_eq!(largest.room(), 0);
    assert!(BYTES_MAX - largest.bytes() < OPERATIONS_MAX, "it is full");
    // Answered with `Unknown` it may have been carried out, and then it does not repeat.
    let outcome = engine.commit(largest.clone()).await.expect("a commit");
    assert_ne!(outcome, Outcome::Conflict);
    let mut rows = engine
        .scan(Range::prefix("largest/"), usize::MAX)
        .await
        .expect("a scan");
    if outcome == Outcome::Unknown && rows.is_empty() {
        return;
    }
    assert_eq!(rows.len(), OPERATIONS_MAX);
    let version = rows[0].1.version;
    for (i, (_, row)) in rows.drain(..).enumerate() {
        assert_eq!(
            (&*row.value, row.version),
            (&vec![i as u8; share][..], version)
        );
    }
    let mut delete = Transaction::new();
    for i in 0..OPERATIONS_MAX {
        delete.delete(key(i)).expect("it fits");
    }
    commit(engine, delete).await;
    let left = engine
        .scan(Range::prefix("largest/"), 1)
        .await
        .expect("a scan");
    assert!(left.is_empty());
}

/// A row that moves from key to key is seen once by every scan, however many move it.
pub(super) async fn a_scan_sees_one_moment(core: &rt::Handle, engine: &Rc<dyn Engine>, seed: u64) {
    const KEYS: usize = 50;
    const MOVES: usize = 150;
    let key = |i: usize| format!("moment/{i:02}");
    let mut one = Transaction::new();
    for i in 1..KEYS {
        one.delete(key(i)).expect("it fits");
    }
    one.put(key(0), "").expect("it fits");
    commit(&**engine, one).await;
    let mover = core.spawn({
        let engine = engine.clone();
        async move {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut at = 0;
            for _ in 0..MOVES {
                let to = (at + rng.usize(1..KEYS)) % KEYS;
                let mut transaction = Transaction::new();
                transaction.delete(key(at)).expect("it fits");
                transaction.put(key(to), "").expect("it fits");
                commit(&*engine, transaction).await;
                at = to;
            }
        }
    });
    while !mover.is_finished() {
        let rows = engine.scan(Range::prefix("moment/"), usize::MAX).await;
        let rows = rows.expect("a scan");
        assert_eq!(rows.len(), 1, "seed {seed}: {rows:?}");
        core.yield_now().await;
    }
    mover.await.expect("the mover does not panic");
}
