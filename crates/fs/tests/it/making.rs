//! Making a file system, interrupted or in the wrong place.

use std::fs::{File, create_dir, rename, write};
use std::sync::Barrier;

use conformance::files::Clock;
use fs::{Local, LocalError};

use crate::rig::{core, make, open};

#[test]
fn what_an_interrupted_making_has_left_is_no_file_system_and_is_made_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path();
    let mut core = core();
    let marker = path.join("vervain.making");
    File::create(&marker).expect("a file");
    create_dir(path.join("rows")).expect("a directory");
    write(path.join("data"), b"half").expect("a file");
    assert!(!Local::is_there(path) && Local::can_make(path));
    make(&mut core, path, 1).expect("what was left is removed");
    assert!(Local::is_there(path) && !Local::can_make(path) && !marker.exists());
    let opened = open(&mut core, path, &Clock::default());
    opened.expect("it is whole");
    let again = make(&mut core, path, 2);
    assert!(matches!(again, Err(LocalError::NotEmpty(_))), "{again:?}");
}

#[test]
fn two_do_not_make_one_at_the_same_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let held = File::open(dir.path()).expect("a directory");
    held.lock().expect("nobody else has it");
    let made = make(&mut core(), dir.path(), 1);
    assert!(matches!(made, Err(LocalError::InUse(_))), "{made:?}");
}

#[test]
fn of_two_that_make_one_the_second_does_not_remove_what_the_first_has_made() {
    for round in 0..20 {
        let dir = tempfile::tempdir().expect("a directory");
        let begin = Barrier::new(2);
        let made = std::thread::scope(|scope| {
            let one = |seed| {
                let (begin, path) = (&begin, dir.path());
                scope.spawn(move || {
                    let mut core = core();
                    begin.wait();
                    // Until it is known who has made it.
                    loop {
                        match make(&mut core, path, seed) {
                            Err(LocalError::InUse(_)) => std::thread::yield_now(),
                            Err(LocalError::NotEmpty(_)) => return false,
                            made => return made.map(|()| true).expect("an empty directory"),
                        }
                    }
                })
            };
            let both = [one(1), one(2)];
            both.map(|made| made.join().expect("no panic"))
        });
        assert!(made[0] != made[1], "round {round}: {made:?}");
        open(&mut core(), dir.path(), &Clock::default()).expect("it is whole");
    }
}

#[test]
fn the_data_of_another_file_system_is_left_as_it_is() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let clock = Clock::default();
    let mut core = core();
    for (seed, dir) in (1..).zip(&dirs) {
        make(&mut core, dir.path(), seed).expect("an empty directory");
    }
    let data = dirs.each_ref().map(|dir| dir.path().join("data"));
    let swap = || {
        let aside = dirs[0].path().join("aside");
        rename(&data[0], &aside).expect("a file");
        rename(&data[1], &data[0]).expect("a file");
        rename(&aside, &data[1]).expect("a file");
    };
    swap();
    for dir in &dirs {
        let opened = open(&mut core, dir.path(), &clock).err();
        assert!(
            matches!(opened, Some(LocalError::OtherDisk(_))),
            "{opened:?}"
        );
    }
    swap();
    for dir in &dirs {
        open(&mut core, dir.path(), &clock).expect("nothing was changed");
    }
}
