//! What clients hold: opens, share reservations, locks, delegations.

use files::{
    Answer, Caller, Conflict, Delegation, Error, Event, Handle, Holder, Lock, LockKind, LockRange,
    Request, Share,
};

use super::Fixture;
use super::fixture::{remove, rename, with_size};

const ROOT: Caller = Caller::ROOT;
const ONE: Holder = Holder {
    client: 1,
    owner: 1,
};
const TWO: Holder = Holder {
    client: 2,
    owner: 1,
};

fn by(holder: Holder) -> Caller {
    Caller {
        holder: Some(holder),
        ..Caller::user(10, 10)
    }
}

fn open(file: Handle, holder: Holder, access: Share, deny: Share) -> Request {
    Request::Open {
        file,
        holder,
        access,
        deny,
        reclaim: false,
    }
}

fn downgrade(file: Handle, holder: Holder, access: Share, deny: Share) -> Request {
    Request::Downgrade {
        file,
        holder,
        access,
        deny,
    }
}

fn close(file: Handle, holder: Holder) -> Request {
    downgrade(file, holder, Share::empty(), Share::empty())
}

fn ask(fixture: &Fixture, request: Request) -> Option<Error> {
    match fixture.call(&ROOT, request) {
        Ok(answer) => {
            assert_eq!(answer, Answer::Done);
            None
        }
        Err(error) => Some(error),
    }
}

/// A file lives on while somebody has it open, whatever becomes of its names.
pub fn an_open_file_outlives_its_name(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&ROOT, root, "a", 0o666);
    fixture.write(&ROOT, file, 0, b"data").expect("a write");
    for holder in [ONE, TWO] {
        assert_eq!(
            ask(fixture, open(file, holder, Share::READ, Share::empty())),
            None
        );
    }
    fixture.file(&ROOT, root, "b", 0o666);
    fixture
        .call(&ROOT, rename(root, "b", root, "a"))
        .expect("a rename over it");
    assert_eq!(fixture.stat(file).links, 0);
    assert_eq!(ask(fixture, close(file, ONE)), None);
    assert_eq!(ask(fixture, close(file, ONE)), Some(Error::NotHeld));
    let (data, _) = fixture.read(&by(TWO), file, 0, 9).expect("a read");
    assert_eq!(data, b"data");
    let again = super::link(file, root, "c");
    assert_eq!(
        fixture.call(&ROOT, again),
        Err(Error::NotFound),
        "it has no name to add to"
    );
    assert_eq!(ask(fixture, Request::Forget { client: 2 }), None);
    let gone = fixture.call(&ROOT, Request::GetAttributes(file));
    assert_eq!(gone, Err(Error::Stale));
}

/// Permission is judged at the open: a mode that changes later takes nothing away.
pub fn an_open_keeps_its_permission(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "a", 0o666);
    let wanted = open(file, ONE, Share::all(), Share::empty());
    fixture
        .call(&Caller::user(10, 10), wanted)
        .expect("all may");
    fixture.chmod(file, 0);
    let refused = open(file, TWO, Share::READ, Share::empty());
    let answer = fixture.call(&Caller::user(10, 10), refused);
    assert_eq!(answer, Err(Error::AccessDenied));
    fixture
        .write(&by(ONE), file, 0, b"data")
        .expect("it is open for that");
    fixture
        .read(&by(ONE), file, 0, 4)
        .expect("it is open for that");
    let cut = Request::SetAttributes(file, with_size(0));
    fixture.call(&by(ONE), cut).expect("a size is written");
    assert_eq!(
        fixture.write(&by(TWO), file, 0, b"x"),
        Err(Error::AccessDenied)
    );
    let access = (Share::READ, Share::empty());
    assert_eq!(ask(fixture, downgrade(file, ONE, access.0, access.1)), None);
    assert_eq!(
        fixture.write(&by(ONE), file, 0, b"x"),
        Err(Error::AccessDenied)
    );
}

/// Every pair of opens: they conflict if one denies what the other is for.
pub fn opens_deny_what_they_say(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "a", 0o666);
    let shares: Vec<Share> = (0..4).map(Share::from_bits_truncate).collect();
    let uses = &shares[1..];
    for (&access, &deny) in uses.iter().flat_map(|a| shares.iter().map(move |d| (a, d))) {
        assert_eq!(ask(fixture, open(file, ONE, access, deny)), None);
        for (&other, &denied) in uses.iter().flat_map(|a| shares.iter().map(move |d| (a, d))) {
            let conflicts = deny.intersects(other) || denied.intersects(access);
            let expected = conflicts.then_some(Error::ShareDenied);
            assert_eq!(ask(fixture, open(file, TWO, other, denied)), expected);
            if !conflicts {
                assert_eq!(ask(fixture, close(file, TWO)), None);
            }
        }
        let refused = |share| deny.contains(share).then_some(Error::ShareDenied);
        assert_eq!(fixture.read(&ROOT, file, 0, 1).err(), refused(Share::READ));
        assert_eq!(
            fixture.write(&ROOT, file, 0, b"x").err(),
            refused(Share::WRITE)
        );
        let cut = fixture.call(&ROOT, Request::SetAttributes(file, with_size(0)));
        assert_eq!(cut.err(), refused(Share::WRITE));
        assert_eq!(ask(fixture, close(file, ONE)), None);
    }
    let nothing = open(file, ONE, Share::empty(), Share::READ);
    assert_eq!(ask(fixture, nothing), Some(Error::Invalid));
    let (read, none) = (Share::READ, Share::empty());
    assert_eq!(ask(fixture, open(file, ONE, read, none)), None);
    assert_eq!(ask(fixture, open(file, ONE, Share::WRITE, none)), None);
    assert_eq!(
        ask(fixture, downgrade(file, ONE, Share::all(), read)),
        Some(Error::Invalid)
    );
    assert_eq!(
        ask(fixture, downgrade(file, ONE, Share::all(), none)),
        None,
        "both were added"
    );
}

/// Byte-range locks: what is in the way is told, and a holder's own are replaced, split and joined.
pub fn locks_exclude_each_other(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "a", 0o666);
    let lock = |kind, offset, len| Lock {
        range: LockRange { offset, len },
        kind,
    };
    let take = |holder, lock| Request::Lock {
        file,
        holder,
        lock,
        reclaim: false,
    };
    let test = |holder, lock| Request::TestLock { file, holder, lock };
    let has = |holder| ask(fixture, Request::HasLocks { file, holder });
    let (read, write) = (LockKind::Read, LockKind::Write);
    assert_eq!(has(ONE), Some(Error::NotHeld));
    assert_eq!(ask(fixture, take(ONE, lock(read, 0, Some(100)))), None);
    assert_eq!((has(ONE), has(TWO)), (None, Some(Error::NotHeld)));
    assert_eq!(ask(fixture, take(ONE, lock(write, 40, Some(20)))), None);
    let locked = |kind, offset, len| {
        let lock = lock(kind, offset, len);
        Some(Error::Locked(Conflict { holder: ONE, lock }))
    };
    let in_the_way = |kind, offset, len| ask(fixture, test(TWO, lock(kind, offset, len)));
    assert_eq!(in_the_way(write, 0, Some(1)), locked(read, 0, Some(40)));
    assert_eq!(in_the_way(read, 0, Some(100)), locked(write, 40, Some(20)));
    assert_eq!(in_the_way(read, 60, None), None);
    assert_eq!(in_the_way(write, 60, None), locked(read, 60, Some(40)));
    let unlock = |offset, len| Request::Unlock {
        file,
        holder: ONE,
        range: LockRange { offset, len },
    };
    assert_eq!(ask(fixture, unlock(10, Some(60))), None);
    assert_eq!(in_the_way(write, 10, Some(60)), None);
    assert_eq!(in_the_way(write, 10, Some(61)), locked(read, 70, Some(30)));
    assert_eq!(ask(fixture, take(ONE, lock(read, 100, None))), None);
    assert_eq!(in_the_way(write, u64::MAX, Some(1)), locked(read, 70, None));
    for bad in [lock(read, 5, Some(0)), lock(read, u64::MAX, Some(2))] {
        assert_eq!(ask(fixture, take(TWO, bad)), Some(Error::Invalid));
    }
    assert_eq!(ask(fixture, Request::Forget { client: 1 }), None);
    assert_eq!(has(ONE), Some(Error::NotHeld));
    assert_eq!(ask(fixture, take(TWO, lock(write, 0, None))), None);
    let all = LockRange {
        offset: 0,
        len: None,
    };
    let unlock = Request::Unlock {
        file,
        holder: TWO,
        range: all,
    };
    assert_eq!(has(TWO), None);
    assert_eq!(ask(fixture, unlock), None);
    assert_eq!(has(TWO), Some(Error::NotHeld));
}

/// A delegation is had back before anybody does what it excludes.
pub fn delegations_are_recalled(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&ROOT, root, "a", 0o666);
    let give = |client, kind| Request::Delegate {
        file,
        client,
        kind,
        reclaim: false,
    };
    let back = |client| Request::ReturnDelegation { file, client };
    let none = Share::empty();
    assert_eq!(ask(fixture, give(1, Delegation::Read)), None);
    assert_eq!(ask(fixture, give(2, Delegation::Read)), None);
    assert_eq!(
        ask(fixture, open(file, TWO, Share::READ, none)),
        None,
        "readers do not disturb"
    );
    assert_eq!(fixture.event(), None);
    let delayed = Some(Error::Delay);
    assert_eq!(fixture.write(&by(TWO), file, 0, b"x").err(), delayed);
    let recall = |client, kind| Some(Event::Recall { client, file, kind });
    assert_eq!(
        fixture.event(),
        recall(1, Delegation::Read),
        "one's own is not recalled"
    );
    let remover = Caller {
        holder: Some(TWO),
        ..Caller::ROOT
    };
    assert_eq!(fixture.call(&remover, remove(root, "a")).err(), delayed);
    assert_eq!(fixture.event(), None, "it is recalled once");
    assert_eq!(ask(fixture, back(1)), None);
    assert_eq!(ask(fixture, back(1)), Some(Error::NotHeld));
    fixture
        .write(&by(TWO), file, 0, b"x")
        .expect("nobody is in the way");
    assert_eq!(
        ask(fixture, give(1, Delegation::Write)),
        Some(Error::Delay),
        "it is open"
    );
    assert_eq!(ask(fixture, close(file, TWO)), None);
    assert_eq!(ask(fixture, back(2)), None);
    assert_eq!(ask(fixture, give(1, Delegation::Write)), None);
    fixture
        .write(&by(ONE), file, 0, b"y")
        .expect("it is its own");
    assert_eq!(
        ask(fixture, open(file, TWO, Share::READ, none)),
        Some(Error::Delay)
    );
    assert_eq!(fixture.event(), recall(1, Delegation::Write));
    assert_eq!(ask(fixture, Request::Forget { client: 1 }), None);
    assert_eq!(ask(fixture, open(file, TWO, Share::READ, none)), None);
}

/// Outside of the grace period nothing is claimed again.
pub fn nothing_is_claimed_without_a_restart(fixture: &Fixture) {
    let file = fixture.file(&ROOT, fixture.root(), "a", 0o666);
    let claim = Request::Open {
        file,
        holder: ONE,
        access: Share::READ,
        deny: Share::empty(),
        reclaim: true,
    };
    assert_eq!(ask(fixture, claim), Some(Error::NoGrace));
    assert_eq!(
        ask(fixture, Request::EndGrace),
        None,
        "ending it twice is nothing"
    );
}
