//! The server's wall clock, set forwards and backwards while it runs, and whether its items mind.
//!
//! The server adds to the machine's clock what a file says, so that no other process is concerned.
//! That items do not live too long, the clients' models see: what a date meant is known by how far
//! the clock was ahead. That they do not end too early, they cannot see, for a cache may forget; so
//! before a step items are stored side by side, one that never expires, one that expires in an hour,
//! and one that expires at the date which is then. A cache that has most of the first kind and none of
//! another has not forgotten them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use cache::herd::client::Address;

use super::flush::{count_found, dial, tell};
use super::model::Moment;
use super::world::{Failure, World, Wrong, lock, unix_s};

/// Steps of a clock: as when one is corrected, when a time zone was wrong, and when a year was.
const STEPS_S: [std::ops::Range<i64>; 3] = [5..60, 3_600..86_400, 2_592_000..34_560_000];
/// A clock goes no further than this, either way.
const AHEAD_S_MAX: i64 = 600_000_000;
/// How long cores may go on with the date that they have read, when they are not held up.
const SETTLES: Duration = Duration::from_millis(500);
/// Items of each kind that are stored before a step, and how long those live that expire.
const ITEMS: usize = 32;
const LIVES_S: u64 = 3_600;

/// How the clock was set.
#[derive(Clone, Copy, Debug)]
struct Stand {
    ahead_s: i64,
    /// Until when anybody may have gone by it.
    until: Moment,
}

/// The server's wall clock.
pub(super) struct Wall {
    path: PathBuf,
    file: File,
    stands: Mutex<Vec<Stand>>,
}

impl Wall {
    /// A clock that shows what the machine's does.
    pub(super) fn new(dir: &Path) -> io::Result<Self> {
        let path = dir.join("clock");
        let file = File::create(&path)?;
        file.write_all_at(&0_i64.to_le_bytes(), 0)?;
        let now = Stand {
            ahead_s: 0,
            until: Moment::MAX,
        };
        Ok(Wall {
            path,
            file,
            stands: Mutex::new(vec![now]),
        })
    }

    /// The file that tells the server.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What it shows.
    pub(super) fn unix_s(&self) -> u64 {
        let ahead_s = lock(&self.stands).last().map_or(0, |last| last.ahead_s);
        unix_s().saturating_add_signed(ahead_s)
    }

    /// By how many seconds it was ahead at least, from this moment on.
    pub(super) fn ahead_s_min(&self, from: Moment) -> i64 {
        let stands = lock(&self.stands);
        let since = stands.iter().filter(|stand| stand.until >= from);
        since.map(|stand| stand.ahead_s).min().unwrap_or(0)
    }

    fn ahead_s(&self) -> i64 {
        lock(&self.stands).last().map_or(0, |last| last.ahead_s)
    }

    /// Sets it. Until it has settled, answers may go by either date.
    fn set(&self, ahead_s: i64) -> io::Result<()> {
        lock(&self.stands).push(Stand {
            ahead_s,
            until: Moment::MAX,
        });
        self.file.write_all_at(&ahead_s.to_le_bytes(), 0)
    }

    /// The server goes by how it is now.
    fn settled(&self, now: Moment) {
        if let [before @ .., _] = &mut lock(&self.stands)[..] {
            for stand in before {
                stand.until = stand.until.min(now);
            }
        }
    }
}

/// Sets the server's clock, and checks that this ends no item.
pub(super) fn step(
    world: &World,
    door: &Address,
    forwards: bool,
    random: &mut fastrand::Rng,
) -> anyhow::Result<()> {
    let (wall, number) = (&world.wall, random.u32(..));
    let kinds = [
        ("for-ever", 0),
        ("for-an-hour", LIVES_S),
        ("until-a-date", wall.unix_s() + LIVES_S),
    ];
    let key = |kind: &str, item: usize| format!("clock-{number:x}-{item}-{kind}");
    let mut talk = dial(door)?;
    for item in 0..ITEMS {
        for (kind, expiry) in kinds {
            let key = key(kind, item);
            tell(
                &mut talk,
                &format!("set {key} 0 {expiry} 1\r\nv\r\n"),
                "STORED",
            )?;
        }
    }
    drop(talk);
    let range = random.choice(&STEPS_S).cloned().unwrap_or(5..60);
    let by_s = if forwards { 1 } else { -1 } * random.i64(range);
    let ahead_s = match wall.ahead_s() + by_s {
        ahead_s if ahead_s.abs() <= AHEAD_S_MAX => ahead_s,
        _ => wall.ahead_s() + by_s.signum(),
    };
    world.note(&format!(
        "the server's clock goes by {} s, to {ahead_s} s ahead",
        ahead_s - wall.ahead_s()
    ));
    wall.set(ahead_s)?;
    std::thread::sleep(SETTLES);
    let look = || {
        let mut talk = dial(door)?;
        let mut found = [0; 3];
        for ((kind, _), found) in kinds.into_iter().zip(&mut found) {
            let keys: Vec<String> = (0..ITEMS).map(|item| key(kind, item)).collect();
            *found = count_found(&mut talk, &keys)?;
        }
        anyhow::Ok(found)
    };
    // Wrong answers may pass until it has settled.
    let found = loop {
        match look() {
            Ok(found) => break found,
            Err(error) if world.is_stopping() => return Err(error),
            Err(error) => world.note(&format!("no look after a step of the clock: {error:#}")),
        }
        world.pause(SETTLES);
    };
    // A core that was held up with an old date has read another one since: it has answered several times.
    wall.settled(world.now());
    if found[0] > ITEMS / 2 && found.contains(&0) {
        let came: Vec<String> = kinds
            .iter()
            .zip(found)
            .map(|((kind, _), found)| format!("{found} {kind}"))
            .collect();
        world.fail(Failure::Wrong(Box::new(Wrong {
            client: "the one who sets the clock".into(),
            key: format!("clock-{number:x}-*"),
            asked: format!("get of {ITEMS} of each kind, when the clock was {ahead_s} s ahead"),
            came: came.join(", "),
            allowed: "some of each kind".into(),
            at: world.began.elapsed(),
            history: Vec::new(),
        })));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{SocketAddr, TcpListener};

    use super::*;

    /// A server without items, which closes its first connections at their first `gets`.
    fn forgetful() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let client = client.expect("a client");
                for line in BufReader::new(&client).lines().map_while(Result::ok) {
                    let answer = match line.split(' ').next() {
                        Some("set") => "STORED\r\n",
                        Some("gets") if number < 2 => break,
                        Some("gets") => "END\r\n",
                        _ => "",
                    };
                    let answered = (&client).write_all(answer.as_bytes());
                    answered.expect("a client that reads");
                }
            }
        });
        address
    }

    #[test]
    fn a_step_settles_although_a_connection_is_lost() {
        let dir = tempfile::tempdir().expect("a folder");
        let world = World::new(dir.path().to_path_buf(), Vec::new()).expect("a world");
        let door = Address::Tcp(forgetful());
        let mut random = fastrand::Rng::with_seed(1);
        step(&world, &door, true, &mut random).expect("a server that answers");
        let ahead_s = world.wall.ahead_s();
        assert!(ahead_s > 0);
        assert_eq!(world.wall.ahead_s_min(world.now()), ahead_s);
    }

    #[test]
    fn the_least_that_a_clock_was_ahead_since_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        let wall = Wall::new(dir.path()).expect("a clock");
        assert_eq!(wall.ahead_s_min(0), 0);
        *lock(&wall.stands) = [(0, 10), (-70, 20), (500, 30), (300, Moment::MAX)]
            .map(|(ahead_s, until)| Stand { ahead_s, until })
            .to_vec();
        for (from, least_s) in [(0, -70), (10, -70), (20, -70), (21, 300), (31, 300)] {
            assert_eq!(wall.ahead_s_min(from), least_s, "from {from} on");
        }
        assert!(wall.unix_s().abs_diff(unix_s() + 300) <= 1);
        wall.set(600).expect("a clock");
        assert_eq!(wall.ahead_s_min(31), 300);
        wall.settled(40);
        for (from, least_s) in [(21, 300), (40, 300), (41, 600)] {
            assert_eq!(wall.ahead_s_min(from), least_s, "from {from} on");
        }
    }
}
