//! A wall clock that is set while the server runs.
//!
//! The machine's clock is everybody's, so the server is given another one: a library in front of the
//! C library adds to the date whatever a file says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::{Place, Raw, Said, Server, eventually, run};
use crate::{alone, leave_out, ways_of_io};

const LIBRARY: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long *ahead;

__attribute__((constructor)) static void open_clock(void) {
    int fd = open(getenv("CLOCK_AHEAD"), O_RDONLY);
    void *map = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED)
        ahead = map;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, id, time);
    if (result == 0 && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        time->tv_sec += *ahead;
    return result;
}
"#;

/// A wall clock of one's own.
struct Wall {
    library: PathBuf,
    ahead: PathBuf,
}

impl Wall {
    /// Makes it, where there is a C compiler.
    fn new(place: &Place) -> Option<Self> {
        let (source, library) = (place.path("clock.c"), place.path("clock.so"));
        std::fs::write(&source, LIBRARY).expect("a file");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .status();
        made.is_ok_and(|status| status.success()).then(|| {
            let wall = Wall {
                library,
                ahead: place.path("ahead"),
            };
            std::fs::write(&wall.ahead, 0i64.to_ne_bytes()).expect("a file");
            wall
        })
    }

    /// Has a command look at this clock.
    fn give<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("LD_PRELOAD", &self.library)
            .env("CLOCK_AHEAD", &self.ahead)
    }

    /// Sets it, so many seconds ahead of the real one.
    fn set(&self, ahead_s: i64) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(&self.ahead);
        let bytes = ahead_s.to_ne_bytes();
        file.and_then(|file| file.write_all_at(&bytes, 0))
            .expect("the clock's file");
    }

    /// What it shows.
    fn now_s(&self) -> i64 {
        let bytes = std::fs::read(Path::new(&self.ahead)).expect("the clock's file");
        let ahead = i64::from_ne_bytes(bytes.try_into().expect("a number"));
        let real = SystemTime::now().duration_since(UNIX_EPOCH).expect("now");
        real.as_secs() as i64 + ahead
    }

    /// Runs a command over the NIC, by this clock.
    fn ask(&self, server: &Server, words: &[&str]) -> Said {
        run(self.give(&mut server.command(words)), b"")
    }
}

#[test]
fn setting_the_clock_neither_ends_items_nor_keeps_them() {
    let _alone = alone();
    let place = Place::new();
    let Some(wall) = Wall::new(&place) else {
        return leave_out("there is no C compiler");
    };
    for io in ways_of_io() {
        wall.set(0);
        let mut command = place.serve(&["--cores", "2", "--io", io]);
        wall.give(&mut command);
        let server = Server::start(&place, command);
        let mut raw = server.raw();
        // Between a look before and one after, but for what seconds are cut to.
        let expect_time = |raw: &mut Raw| {
            let before_s = wall.now_s() - 1;
            let time_s: i64 = raw.stats("")["time"].parse().expect("a number");
            let after_s = wall.now_s() + 1;
            assert!(
                (before_s..=after_s).contains(&time_s),
                "{time_s} s, not from {before_s} s to {after_s} s"
            );
        };
        expect_time(&mut raw);
        for (step, ahead_s) in [7200, -7200, 400_000_000, 0, -900_000_000]
            .into_iter()
            .enumerate()
        {
            // Both cores have some of these.
            let keys: Vec<String> = (0..8).map(|key| format!("k{step}-{key}")).collect();
            for key in &keys {
                raw.ask(&format!("set {key} 0 3600 1\r\nv\r\n"), "STORED\r\n");
                raw.ask(&format!("set {key}-soon 0 2 1\r\nv\r\n"), "STORED\r\n");
                let date = wall.now_s() + 3600;
                raw.ask(&format!("set {key}-date 0 {date} 1\r\nv\r\n"), "STORED\r\n");
            }
            let herd = format!("h{step}");
            let soon = format!("s{step}");
            wall.ask(&server, &["set", &herd, "v", "--expire", "1h"])
                .expect(0, "stored\n");
            wall.ask(&server, &["set", &soon, "v", "--expire", "2s"])
                .expect(0, "stored\n");
            wall.set(ahead_s);
            expect_time(&mut raw);
            for key in &keys {
                for key in [key, &format!("{key}-date")] {
                    raw.ask(
                        &format!("get {key}\r\n"),
                        &format!("VALUE {key} 0 1\r\nv\r\nEND\r\n"),
                    );
                }
            }
            wall.ask(&server, &["get", &herd]).expect(0, "v\n");
            eventually("what was to expire soon has", || {
                raw.send(format!("get {}-soon {}-soon\r\n", keys[0], keys[5]).as_bytes());
                let mut there = false;
                while raw.line() != "END" {
                    there = true;
                }
                !there && wall.ask(&server, &["get", &soon]).code == Some(1)
            });
            // Dates mean the clock as it is now.
            let (ahead, past) = (wall.now_s() + 600, wall.now_s() - 600);
            raw.ask(&format!("set d 0 {ahead} 1\r\nv\r\n"), "STORED\r\n");
            raw.ask("get d\r\n", "VALUE d 0 1\r\nv\r\nEND\r\n");
            raw.ask(&format!("touch d {past}\r\n"), "TOUCHED\r\n");
            raw.ask("get d\r\n", "END\r\n");
            wall.ask(&server, &["set", "d", "w", "--expire", "10m"])
                .expect(0, "stored\n");
            raw.ask("get d\r\n", "VALUE d 0 1\r\nw\r\nEND\r\n");
            wall.ask(&server, &["touch", "d", "--expire", "1s"])
                .expect(0, "touched\n");
            eventually("it has expired", || {
                raw.send(b"get d\r\n");
                raw.try_item().expect("an answer").is_none()
            });
        }
    }
}
