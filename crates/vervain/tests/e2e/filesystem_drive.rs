//! `vervain fs format --drive`: data on a drive itself. The kernel makes one of a file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use crate::filesystem::{FsServer, ask};
use crate::harness::{Place, Said, eventually, run, vervain};

/// A loop device, which goes with it.
struct Loop(String);

impl Loop {
    /// `None` where this user, or this machine, has none.
    fn over(image: &Path) -> Option<Self> {
        let mut losetup = Command::new("/sbin/losetup");
        let made = losetup.args(["--find", "--show"]).arg(image).output();
        let made = made.ok().filter(|made| made.status.success())?;
        let path = String::from_utf8(made.stdout).expect("a path");
        Some(Self(path.trim().to_string()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let mut losetup = Command::new("/sbin/losetup");
        let detached = losetup.arg("--detach").arg(&self.0).status();
        assert!(detached.is_ok_and(|status| status.success()), "{}", self.0);
    }
}

fn format(place: &Place, drive: &Path, more: &[&str]) -> Said {
    let mut command = vervain();
    command
        .args(["fs", "format", "--drive"])
        .arg(drive)
        .args(more);
    command.arg("--data").arg(place.path("files"));
    run(&mut command, b"")
}

#[test]
fn data_is_on_a_drive_that_was_blank_or_is_taken_by_force() {
    let place = Place::new();
    let image = place.path("image");
    let len = (100 << 20) + 3 * 4096;
    let made = File::create(&image).and_then(|file| file.set_len(len));
    made.expect("an image");
    let said = format(&place, &image, &[]);
    assert_ne!(said.code, Some(0));
    assert!(said.err.contains("is no drive"), "{}", said.err);

    let Some(drive) = Loop::over(&image) else {
        eprintln!("left out: no loop device for this user on this machine");
        return;
    };
    let path = Path::new(&drive.0);
    let held = OpenOptions::new().write(true).open(path);
    let held = held.and_then(|held| {
        held.write_all_at(b"somebody's", 4096)?;
        held.sync_all()
    });
    held.expect("written");
    let said = format(&place, path, &[]);
    assert_ne!(said.code, Some(0));
    assert!(said.err.contains("`--force`"), "{}", said.err);
    let said = format(&place, path, &["--force"]);
    let out = format!(
        "{}: a file system of 100.0 MiB\n",
        place.path("files").display()
    );
    said.expect(0, &out);

    let start = || FsServer::start(&place, "127.0.0.1:0", &[]);
    let mut server = start();
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    ask(&server, &["put", "-", "/f"], &data).expect(0, "/f: 2.9 MiB\n");
    server.child.kill();
    let mut server = start();
    assert_eq!(ask(&server, &["get", "/f", "-"], b"").out, data);
    server.child.signal(rustix::process::Signal::TERM);
    assert_eq!(server.child.wait_end(), Some(0));
    let mut check = vervain();
    check
        .args(["fs", "check", "--data"])
        .arg(place.path("files"));
    let said = run(&mut check, b"");
    assert_eq!(said.code, Some(0), "{}{}", said.text(), said.err);
    // The kernel closes it when it has ended.
    eventually("nobody has it open", || File::open(path).is_ok());
}
