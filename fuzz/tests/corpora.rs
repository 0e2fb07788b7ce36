//! Every input that was worth keeping, tried again.

use std::fs;
use std::path::{Path, PathBuf};

use fuzz::{TARGETS, Target};

/// Bytes of all corpora together, so that a clone stays small.
const BYTES_MAX: u64 = 2 << 20;

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind)
}

/// The files of a folder, in the order of their names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = list.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn replay(name: &str) {
    let target: &Target = TARGETS
        .iter()
        .find(|target| target.name == name)
        .expect("a target");
    let files = entries(&folder("corpus").join(name));
    assert!(!files.is_empty(), "{name} has no corpus");
    for file in files {
        let input = fs::read(&file).expect("an input");
        // Shown only when it fails.
        println!("{}", file.display());
        (target.run)(&input);
    }
    // What no corpus has, because libFuzzer always tries it first.
    (target.run)(&[]);
}

/// A test for each target, so that they run side by side.
macro_rules! replay {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*
        const REPLAYED: &[&str] = &[$(stringify!($name)),*];
    };
}

replay!(
    command_line,
    files,
    herd_client,
    herd_server,
    herd_wire,
    memcache,
    mica,
    nfs_attributes,
    nfs_compound,
    nfs_records,
    nic_lane,
    socket_answers,
    store,
);

#[test]
fn every_target_has_its_files() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(REPLAYED, names, "each target is replayed");
    for name in names {
        let program = folder("fuzz_targets").join(format!("{name}.rs"));
        assert!(program.is_file(), "{} is missing", program.display());
        let words = folder("dictionaries").join(format!("{name}.dict"));
        assert!(words.is_file(), "{} is missing", words.display());
    }
    for kind in ["corpus", "dictionaries", "fuzz_targets"] {
        for file in entries(&folder(kind)) {
            let stem = file.file_stem().expect("a name").to_string_lossy();
            let known = TARGETS.iter().any(|target| target.name == stem);
            assert!(known, "{} belongs to no target", file.display());
        }
    }
}

#[test]
fn the_corpora_are_small() {
    let inputs = entries(&folder("corpus"))
        .into_iter()
        .flat_map(|corpus| entries(&corpus));
    let bytes: u64 = inputs
        .map(|file| file.metadata().expect("a file").len())
        .sum();
    assert!(
        bytes <= BYTES_MAX,
        "{bytes} bytes: `cargo x fuzz --minimize` drops inputs"
    );
}
