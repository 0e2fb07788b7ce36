//! Opening, backups, and what is wrong with a directory.

use std::path::Path;

use meta::{BackupError, Embedded, Engine, OpenError, Options, Outcome, Range, Transaction};
use redb::TableDefinition;
use rt::{Config, Core};

use crate::suite::options;

fn put(core: &mut Core, engine: &dyn Engine, key: &str, value: &str) -> Outcome {
    let mut put = Transaction::new();
    put.put(key, value).expect("it fits");
    core.block_on(engine.commit(put)).expect("a commit")
}

fn filled(dir: &Path, rows: usize) -> Embedded {
    let mut core = Core::new(Config::default()).expect("a core");
    let meta = Embedded::open(dir, &options()).expect("it opens");
    for i in 0..rows {
        put(&mut core, &*meta.handle(), &format!("{i:03}"), "value");
    }
    meta
}

#[test]
fn a_directory_in_use_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let meta = filled(dir.path(), 3);
    let second = Embedded::open(dir.path(), &options());
    let error = second.map(drop).expect_err("it is in use");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("in use by another process (stop it")
    );
    meta.close().expect("it closes");
    let meta = Embedded::open(dir.path(), &Options::existing()).expect("it is free");
    assert_eq!(meta.revision(), 3);
}

#[test]
fn what_is_no_engine_is_told_from_what_is() {
    let empty = tempfile::tempdir().expect("a directory");
    let error = Embedded::open(empty.path(), &Options::existing()).map(drop);
    assert!(matches!(error, Err(OpenError::Foreign { .. })), "{error:?}");

    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path(), 3).close().expect("it closes");
    let (journal, rows) = (dir.path().join("journal"), dir.path().join("rows.redb"));
    let bytes = std::fs::read(&journal).expect("a journal");

    std::fs::remove_file(&journal).expect("it is there");
    let error = Embedded::open(dir.path(), &options())
        .map(drop)
        .expect_err("no journal");
    assert!(error.to_string().contains("journal is missing"), "{error}");

    let mut version = bytes.clone();
    version[8] += 1;
    let crc = block::crc32c::checksum(&version[..4092]);
    version[4092..4096].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&journal, &version).expect("written");
    let error = Embedded::open(dir.path(), &options())
        .map(drop)
        .expect_err("another version");
    assert!(
        matches!(error, OpenError::Version { found: 2, .. }),
        "{error}"
    );

    let other = tempfile::tempdir().expect("a directory");
    let mut another = options();
    another.create = Some(77);
    drop(Embedded::open(other.path(), &another).expect("it opens"));
    std::fs::copy(other.path().join("journal"), &journal).expect("copied");
    let error = Embedded::open(dir.path(), &options())
        .map(drop)
        .expect_err("another's journal");
    assert!(error.to_string().contains("does not belong"), "{error}");

    std::fs::write(&journal, &bytes).expect("written");
    let database = std::fs::read(&rows).expect("a database");
    std::fs::write(&rows, b"something else entirely").expect("written");
    let error = Embedded::open(dir.path(), &options())
        .map(drop)
        .expect_err("no database");
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    std::fs::remove_file(&rows).expect("it is there");
    let error = Embedded::open(dir.path(), &options())
        .map(drop)
        .expect_err("no database");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");

    std::fs::write(&rows, database).expect("written");
    let meta = Embedded::open(dir.path(), &Options::existing()).expect("all is well again");
    assert_eq!(meta.revision(), 3);
}

#[test]
fn an_interrupted_making_is_made_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path(), 0).close().expect("it closes");
    let (journal, unfinished) = (dir.path().join("journal"), dir.path().join("journal.new"));
    std::fs::rename(&journal, &unfinished).expect("renamed");
    let meta = Embedded::open(dir.path(), &options()).expect("it is made");
    assert!(journal.exists() && !unfinished.exists());
    meta.close().expect("it closes");
}

/// What is not certainly an attempt is left as it is: without a journal too a database may have everything.
#[test]
fn a_database_that_cannot_be_read_is_not_taken_for_an_attempt() {
    const ABOUT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("about");
    const OTHER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("theirs");
    let dir = tempfile::tempdir().expect("a directory");
    let backup = dir.path().join("backup");
    filled(&dir.path().join("first"), 3)
        .backup(&backup)
        .expect("it is written");
    for (which, is_version) in [("version", true), ("foreign", false)] {
        let place = dir.path().join(which);
        std::fs::create_dir(&place).expect("made");
        let rows = place.join("rows.redb");
        let database = redb::Database::create(&rows).expect("a database");
        let transaction = database.begin_write().expect("a transaction");
        {
            let table = if is_version { ABOUT } else { OTHER };
            let mut table = transaction.open_table(table).expect("a table");
            let two = 2u32.to_le_bytes();
            table.insert("version", &two[..]).expect("a row");
        }
        transaction.commit().expect("a commit");
        drop(database);
        let opened = Embedded::open(&place, &options()).map(drop);
        let restored = Embedded::restore(&backup, &place, &options()).map(drop);
        let Err(BackupError::Open(restored)) = restored else {
            panic!("{which}: {restored:?}");
        };
        for error in [opened.expect_err("it cannot be known"), restored] {
            match error {
                OpenError::Version { found: 2, .. } => assert!(is_version),
                OpenError::Foreign { .. } => assert!(!is_version, "{error}"),
                error => panic!("{which}: {error}"),
            }
        }
        let database = redb::Database::create(&rows).expect("it is there");
        let read = redb::ReadableDatabase::begin_read(&database).expect("a transaction");
        assert_eq!(read.list_tables().expect("tables").count(), 1, "{which}");
    }
}

/// Making a directory is interrupted at any point before its journal has its name: it is made anew, by whatever makes it.
#[test]
fn what_is_made_or_restored_can_be_interrupted_anywhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let backup = dir.path().join("backup");
    let meta = filled(&dir.path().join("first"), 3);
    meta.backup(&backup).expect("it is written");
    let is_whole = |place: &Path, revision: u64| {
        let meta = Embedded::open(place, &Options::existing()).expect("it opens");
        assert_eq!(meta.revision(), revision);
        assert!(!place.join("journal.new").exists());
        meta.close().expect("it closes");
    };
    type Leave = fn(&Path);
    let leave: [(&str, Leave); 4] = [
        ("nothing", |_| {}),
        ("an empty file", |place| {
            std::fs::write(place.join("rows.redb"), b"").expect("written");
        }),
        ("a database without its magic", |place| {
            let rows = place.join("rows.redb");
            drop(redb::Database::create(&rows).expect("a database"));
            let mut bytes = std::fs::read(&rows).expect("it is there");
            bytes[..9].fill(0);
            std::fs::write(&rows, bytes).expect("written");
        }),
        ("an empty database", |place| {
            drop(redb::Database::create(place.join("rows.redb")).expect("a database"));
        }),
    ];
    for (nth, (what, leave)) in leave.into_iter().enumerate() {
        for restores in [false, true] {
            println!("{what}, restores: {restores}");
            let place = dir.path().join(format!("{nth}{restores}"));
            std::fs::create_dir(&place).expect("made");
            leave(&place);
            if restores {
                let restored = Embedded::restore(&backup, &place, &options());
                assert_eq!(restored.expect("it is made"), 3);
            } else {
                let made = Embedded::open(&place, &options()).expect("it is made");
                made.close().expect("it closes");
            }
            is_whole(&place, if restores { 3 } else { 0 });
        }
    }
    // All but the journal's name is there.
    let place = dir.path().join("restored");
    Embedded::restore(&backup, &place, &options()).expect("it is made");
    let (journal, unfinished) = (place.join("journal"), place.join("journal.new"));
    std::fs::rename(&journal, &unfinished).expect("renamed");
    Embedded::restore(&backup, &place, &options()).expect("it is made again");
    is_whole(&place, 3);
    // A journal of something else says nothing of the rows.
    std::fs::rename(&journal, dir.path().join("kept")).expect("renamed");
    let other = dir.path().join("other");
    let mut another = options();
    another.create = Some(77);
    drop(Embedded::open(&other, &another).expect("it opens"));
    std::fs::copy(other.join("journal"), &unfinished).expect("copied");
    let error = Embedded::restore(&backup, &place, &options()).expect_err("it has rows");
    assert!(error.to_string().contains("journal is missing"), "{error}");
}

#[test]
fn a_backup_is_of_one_moment_and_comes_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let meta = filled(&dir.path().join("first"), 200);
    let file = dir.path().join("backup");
    let mut core = Core::new(Config::default()).expect("a core");
    core.block_on(meta.checkpoint()).expect("a checkpoint");
    let mut delete = Transaction::new();
    delete.delete("007").expect("it fits");
    core.block_on(meta.handle().commit(delete))
        .expect("a commit");
    // Rows in the database, rows in memory, and commits that go on.
    let revision = std::thread::scope(|scope| {
        let maker = meta.maker();
        let busy = scope.spawn(move || {
            let mut core = Core::new(Config::default()).expect("a core");
            for i in 0..100 {
                // Both or none are in a backup.
                let mut both = Transaction::new();
                both.put(format!("x{i:03}"), "").expect("it fits");
                both.put(format!("y{i:03}"), "").expect("it fits");
                core.block_on(maker.handle().commit(both))
                    .expect("a commit");
            }
        });
        let revision = meta.backup(&file).expect("it is written");
        busy.join().expect("no panic");
        revision
    });
    let again = meta.backup(&file).expect_err("it is there already");
    assert!(matches!(again, BackupError::Io { .. }) && file.exists());

    let second = dir.path().join("second");
    let restored = Embedded::restore(&file, &second, &options()).expect("it is sound");
    assert_eq!(restored, revision);
    let over = Embedded::restore(&file, &second, &options());
    assert!(
        matches!(over, Err(BackupError::Open(OpenError::Foreign { .. }))),
        "{over:?}"
    );
    let copy = Embedded::open(&second, &Options::existing()).expect("it opens");
    let scan = core.block_on(copy.handle().scan(Range::all(), usize::MAX));
    let rows = scan.expect("a scan");
    let count = |prefix: u8| rows.iter().filter(|(key, _)| key[0] == prefix).count();
    assert_eq!(count(b'0') + count(b'1'), 199);
    assert_eq!(count(b'x'), count(b'y'));
    assert_eq!(201 + count(b'x') as u64, revision);
    let here = core.block_on(meta.handle().scan(Range::all(), usize::MAX));
    let here = here.expect("a scan");
    assert!(
        rows.iter().all(|row| here.contains(row)),
        "values and versions"
    );
    assert_eq!(
        put(&mut core, &*copy.handle(), "new", ""),
        Outcome::Committed(revision + 1)
    );
    copy.close().expect("it closes");
    let verified = Embedded::verify(&second, &Options::existing()).expect("it is sound");
    assert_eq!(verified.rows, rows.len() as u64 + 1);
}

#[test]
fn a_backup_with_any_byte_changed_or_missing_is_refused_and_makes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let meta = filled(&dir.path().join("first"), 5);
    let file = dir.path().join("backup");
    meta.backup(&file).expect("it is written");
    let bytes = std::fs::read(&file).expect("a backup");
    let (bad, second) = (dir.path().join("bad"), dir.path().join("second"));
    let refused = |bytes: &[u8], what: String| {
        std::fs::write(&bad, bytes).expect("written");
        let restored = Embedded::restore(&bad, &second, &options());
        assert!(
            matches!(restored, Err(BackupError::Damaged { .. })),
            "{what}: {restored:?}"
        );
        assert!(!second.exists(), "{what}");
    };
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        refused(&changed, format!("byte {at} changed"));
        refused(&bytes[..at], format!("{at} bytes"));
    }
    refused(&[&bytes[..], b"more"].concat(), "something behind".into());
}

#[test]
fn a_changed_database_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path(), 200).close().expect("it closes");
    Embedded::verify(dir.path(), &Options::existing()).expect("it is sound");
    let rows = dir.path().join("rows.redb");
    let bytes = std::fs::read(&rows).expect("a database");
    let value = bytes.windows(5).position(|window| window == b"value");
    let mut changed = bytes.clone();
    changed[value.expect("a row's value")] ^= 1;
    std::fs::write(&rows, changed).expect("written");
    let error = Embedded::verify(dir.path(), &Options::existing()).expect_err("it is damaged");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}
