//! The suite of file systems over the model, and the model beside the machine's own file systems.

mod differences;
mod forgetful;
mod local;

use std::path::Path;

use conformance::files::program::{
    OnFixture, Scope, check, draw, model, random_programs_match_the_model, seeds, side_by_side,
    users,
};

use local::Local;

mod over_the_model {
    use super::*;

    conformance::files_tests!(model());
}

/// Programs on a directory of the machine and on the model.
fn matches_the_machine(parent: &Path) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only the superuser can act as several users");
        return;
    }
    rustix::process::umask(rustix::fs::Mode::empty());
    let directory = || tempfile::tempdir_in(parent).expect("a directory");
    for seed in seeds(0..300) {
        let steps = draw(seed, 80, Scope::Local, &users());
        check(seed, &steps, &mut |steps| {
            let directory = directory();
            let local = Local::new(directory.path());
            let model = OnFixture::new(model());
            side_by_side(steps, model, local)
        });
    }
}

#[test]
fn the_model_is_as_the_disks_file_system() {
    matches_the_machine(&std::env::temp_dir());
}

#[test]
fn the_model_is_as_the_memorys_file_system() {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        matches_the_machine(shm);
    }
}

#[test]
#[should_panic(expected = "seed")]
fn a_file_system_that_loses_writes_is_noticed() {
    random_programs_match_the_model(&forgetful::fixture);
}
