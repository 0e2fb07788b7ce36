//! `vervain store`, as a stranger uses it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Said, run, vervain};

fn ask(dir: &Path, words: &[&str]) -> Said {
    ask_with(dir, words, b"")
}

fn ask_with(dir: &Path, words: &[&str], input: &[u8]) -> Said {
    run(vervain().current_dir(dir).arg("store").args(words), input)
}

#[test]
fn a_store_is_made_used_and_copied() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let missing = ask(dir, &["get", "my.store", "key"]);
    missing.expect(1, "");
    assert!(
        missing
            .err
            .contains("`vervain store create my.store` makes a store")
    );
    let made = "my.store: a store of 63 segments of 64 KiB\n";
    ask(dir, &["create", "my.store", "--size", "4M"]).expect(0, made);
    ask(dir, &["create", "my.store"]).expect(1, "");
    ask(dir, &["set", "my.store", "greeting", "hello"]).expect(0, "stored\n");
    ask_with(dir, &["set", "my.store", "piped", "-"], b"a\nb").expect(0, "stored\n");
    let some = ask(dir, &["get", "my.store", "greeting", "none", "piped"]);
    some.expect(1, "hello\na\nb\n");
    assert_eq!(some.err, "none: not found\n");
    ask(dir, &["set", "my.store", "gone", "soon"]).expect(0, "stored\n");
    ask(dir, &["del", "my.store", "gone"]).expect(0, "deleted\n");
    ask(dir, &["del", "my.store", "gone"]).expect(1, "");
    let export = ask(dir, &["export", "my.store"]);
    let items = "set greeting 0 0 5\r\nhello\r\nset piped 0 0 3\r\na\nb\r\n";
    export.expect(0, items);
    ask(dir, &["create", "two.store", "--size", "4M", "--cache"])
        .expect(0, "two.store: a cache of 63 segments of 64 KiB\n");
    ask_with(dir, &["import", "two.store"], items.as_bytes()).expect(0, "2 keys stored\n");
    ask(dir, &["get", "two.store", "greeting"]).expect(0, "hello\n");
    let cut = ask_with(dir, &["import", "two.store"], &items.as_bytes()[..30]);
    cut.expect(1, "");
    assert!(cut.err.contains("item 2"), "{}", cut.err);
    let inspected = ask(dir, &["inspect", "my.store", "--records"]);
    assert!(
        inspected.text().contains("removed gone"),
        "{}",
        inspected.text()
    );
    assert!(
        inspected
            .text()
            .contains("limit      2.9 MiB of live records"),
        "{}",
        inspected.text()
    );
    assert!(
        inspected.text().contains("closed     yes"),
        "{}",
        inspected.text()
    );
}

#[test]
fn what_cannot_become_a_store_leaves_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |words: &[&str]| {
        let said = ask(dir.path(), &[&["create", "my.store"], words].concat());
        said.expect(1, "");
        assert!(
            said.err.contains("my.store cannot hold such a store"),
            "{}",
            said.err
        );
    };
    let nothing = || {
        let mut files = fs::read_dir(dir.path()).expect("a directory");
        assert!(files.next().is_none());
    };
    refused(&["--size", "4M", "--segment", "1M"]);
    nothing();
    refused(&["--size", "4M", "--segment", "100K"]);
    nothing();
    refused(&["--size", "1M", "--segment", "256K"]);
    nothing();
    // What was there stays, whatever is wrong.
    let path = dir.path().join("my.store");
    fs::write(&path, vec![0; 4 << 20]).expect("written");
    refused(&["--segment", "1M"]);
    assert_eq!(fs::metadata(&path).expect("still there").len(), 4 << 20);
}

#[test]
fn damage_is_found_and_mended() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    ask(dir, &["create", "my.store", "--size", "4M"]);
    ask(dir, &["set", "my.store", "one", "a value that rots"]).expect(0, "stored\n");
    ask(dir, &["set", "my.store", "two", "another"]).expect(0, "stored\n");
    let sound = ask(dir, &["check", "my.store"]);
    assert_eq!(sound.code, Some(0), "{}", sound.text());
    let verdict = "; records in the log: 2\n";
    assert!(sound.text().starts_with("sound: "), "{}", sound.text());
    assert!(sound.text().ends_with(verdict), "{}", sound.text());
    ask(dir, &["repair", "my.store"]).expect(0, "nothing to repair\n");
    let path = dir.join("my.store");
    let bytes = fs::read(&path).expect("read");
    let find = |what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("opened");
    let value = find(b"a value that rots").expect("it is there");
    file.write_all_at(b"X", value as u64 + 3).expect("written");
    file.write_all_at(b"X", 20).expect("written");
    let damaged = ask(dir, &["check", "my.store"]);
    assert_eq!(damaged.code, Some(1));
    for words in [
        "the checksum of the superblock is wrong",
        "records are damaged",
        "key one\n",
        "damaged: ",
    ] {
        assert!(damaged.text().contains(words), "{}", damaged.text());
    }
    let report = run(
        vervain()
            .current_dir(dir)
            .args(["--json", "store", "check", "my.store"]),
        b"",
    );
    let report: Value = serde_json::from_str(report.text()).expect("JSON");
    assert_eq!(report["sound"], false);
    let read = ask(dir, &["get", "my.store", "one"]);
    read.expect(1, "");
    assert!(read.err.contains("is damaged"), "{}", read.err);
    // With a warning that the superblock's copy is used.
    let other = ask(dir, &["get", "my.store", "two"]);
    assert_eq!((other.code, other.text()), (Some(0), "another\n"));
    assert!(other.err.contains("its copy is used"), "{}", other.err);
    assert_eq!(
        ask(dir, &["repair", "my.store"]).code,
        Some(1),
        "only says what it would do"
    );
    let repaired = ask(dir, &["repair", "my.store", "--yes"]);
    assert_eq!(repaired.code, Some(0), "{}", repaired.err);
    assert!(
        repaired.text().contains("1 superblocks written anew"),
        "{}",
        repaired.text()
    );
    ask(dir, &["get", "my.store", "one"]).expect(1, "");
    ask(dir, &["get", "my.store", "two"]).expect(0, "another\n");
}
