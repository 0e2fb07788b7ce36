//! Killed under load; traced; full.

use std::process::Stdio;

use meta::{Embedded, Options, Range};
use rt::{Config, Core};

use crate::child::{ONE_BY_ONE, command, lines, pair};
use crate::suite::options;

#[test]
fn a_killed_process_has_lost_nothing_and_torn_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    Embedded::open(dir.path(), &options())
        .expect("it opens")
        .close()
        .expect("it closes");
    let mut acknowledged = Vec::new();
    for life in 0..6usize {
        let mut child = command("commit for ever", dir.path(), &[])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut said = lines(&mut child);
        // Enough to fill an area some of the times, each block of which takes a group.
        for _ in 0..30 + life * 400 {
            acknowledged.push(said.next().expect("it commits for ever").expect("a line"));
        }
        child.kill().expect("it is there");
        // What it has said before its death counts.
        acknowledged.extend(said.map_while(Result::ok).filter(|line| line.contains(' ')));
        child.wait().expect("it has ended");

        let meta = Embedded::open(dir.path(), &Options::existing()).expect("it opens");
        let mut core = Core::new(Config::default()).expect("a core");
        let rows = core.block_on(meta.handle().scan(Range::all(), usize::MAX));
        let rows: std::collections::BTreeMap<_, _> = rows.expect("a scan").into_iter().collect();
        for line in &acknowledged {
            let (key, revision) = line.split_once(' ').expect("a key and a revision");
            for write in pair(key).writes() {
                let row = rows.get(write.key());
                let row = row.unwrap_or_else(|| panic!("life {life}: {key} is lost"));
                assert_eq!(row.version.to_string(), revision);
                assert_eq!(Some(&row.value), write.value());
            }
        }
        for (key, row) in &rows {
            let twin = [if key[0] == b'a' { b"b" } else { b"a" }, &key[1..]].concat();
            let twin = rows.get(&twin[..]).expect("a transaction is never torn");
            assert_eq!(twin, row);
        }
        meta.close().expect("it closes");
    }
    Embedded::verify(dir.path(), &Options::existing()).expect("it is sound");
}

#[test]
fn each_commit_is_one_synchronous_write() {
    let dir = tempfile::tempdir().expect("a directory");
    Embedded::open(dir.path(), &options())
        .expect("it opens")
        .close()
        .expect("it closes");
    let trace = dir.path().join("trace");
    let trace_path = trace.to_str().expect("a path of letters");
    let calls = "trace=pwritev2,pwrite64,pwritev,write,fsync,fdatasync,sync_file_range,statx";
    let wrap = ["strace", "-f", "-y", "-e", calls, "-o", trace_path];
    let output = match command("commit one by one", dir.path(), &wrap).output() {
        Ok(output) => output,
        Err(error) if std::env::var_os("VERVAIN_TEST_PEERS").is_none() => {
            println!("not looked at: strace does not start ({error})");
            return;
        }
        Err(error) => panic!("strace does not start: {error} (apt-get install strace)"),
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let trace = std::fs::read_to_string(trace).expect("a trace");
    let (_, commits) = trace.split_once("/begin-commits").expect("the first mark");
    let (commits, _) = commits.split_once("/end-commits").expect("the second mark");
    let journal: Vec<&str> = commits
        .lines()
        .filter(|line| line.contains("/journal>"))
        .collect();
    let durable = journal
        .iter()
        .filter(|line| line.contains("RWF_DSYNC"))
        .count();
    assert_eq!(durable, ONE_BY_ONE, "one write each:\n{commits}");
    assert_eq!(journal.len(), ONE_BY_ONE, "and no other:\n{commits}");
    let others = commits.lines().filter(|line| line.contains("/rows.redb>"));
    assert_eq!(
        others.count(),
        0,
        "the database is not in the way:\n{commits}"
    );
}

#[test]
fn a_full_disk_is_an_error_that_passes_and_reads_go_on() {
    let dir = tempfile::tempdir().expect("a directory");
    Embedded::open(dir.path(), &options())
        .expect("it opens")
        .close()
        .expect("it closes");
    // No file may grow beyond 16 Ki blocks; the journal, of 4 MiB, is below that.
    let limited = "trap '' XFSZ; ulimit -S -f 16384; exec \"$0\" \"$@\"";
    let output = command("fill", dir.path(), &["sh", "-c", limited])
        .output()
        .expect("sh");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("filled with"), "{said}{errors}");
    let verified = Embedded::verify(dir.path(), &Options::existing()).expect("it is sound");
    assert!(verified.bytes > 4 << 20, "{verified:?}");
}
