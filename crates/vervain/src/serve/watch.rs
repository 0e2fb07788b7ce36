//! Watching over a core's connections: who is idle for too long, who holds memory that others need.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memcache::{Account, Pool, Pressure};
use rt::sync::Notify;
use rt::{Handle, Instant};
use slab::Slab;

use super::limits::Limits;
use super::stats::Doors;

/// How often connections that hold memory are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often they are looked at for idleness, at most and at least.
const IDLE_LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A connection that waits for its client for so long gives back what it does not need meanwhile.
const LESS_AFTER: Duration = Duration::from_millis(500);

/// Why a connection was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It said nothing for longer than allowed, though nothing was on its way to it.
    Idle,
    /// It kept memory without taking its answers, or without finishing its request, while others had
    /// none.
    Memory,
}

/// A connection among those that are watched over.
pub(super) struct Member {
    pub(super) account: Account,
    ended: Cell<Option<Cause>>,
    /// Silence is no offence: the client speaks elsewhere.
    may_idle: Cell<bool>,
    /// When it last got on when it was asked for less memory.
    asked_at: Cell<Option<Instant>>,
    /// What it held when it was ended for want of memory; counted until the account has given it back, so
    /// declared behind it.
    leaving: Cell<Option<Leaving>>,
}

impl Member {
    /// Why it is to be closed, if it is.
    pub(super) fn ended(&self) -> Option<Cause> {
        self.ended.get()
    }

    /// Lets it be silent for as long as it likes.
    pub(super) fn let_idle(&self) {
        self.may_idle.set(true);
    }

    fn end(&self, cause: Cause) {
        self.ended.set(Some(cause));
        self.account.wake();
    }
}

/// All connections of a core.
pub(super) struct Watch {
    core: Handle,
    limits: Limits,
    pool: Arc<Pool>,
    doors: Arc<Doors>,
    members: RefCell<Slab<Rc<Member>>>,
    /// Somebody came, or somebody holds memory.
    news: Notify,
}

/// A connection among those that are watched; it leaves when this is dropped.
pub(super) struct Membership<'a> {
    watch: &'a Watch,
    key: usize,
    pub(super) member: Rc<Member>,
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        self.watch.members.borrow_mut().remove(self.key);
    }
}

impl Watch {
    pub(super) fn new(core: &Handle, limits: Limits, pool: Arc<Pool>, doors: Arc<Doors>) -> Self {
        Watch {
            core: core.clone(),
            limits,
            pool,
            doors,
            members: RefCell::new(Slab::new()),
            news: Notify::new(),
        }
    }

    /// Takes a connection in.
    pub(super) fn admit(&self) -> Membership<'_> {
        let member = Rc::new(Member {
            account: Account::new(Arc::clone(&self.pool), self.news.clone(), self.core.now()),
            ended: Cell::new(None),
            may_idle: Cell::new(false),
            asked_at: Cell::new(None),
            leaving: Cell::new(None),
        });
        let mut members = self.members.borrow_mut();
        if members.is_empty() && self.limits.idle_timeout.is_some() {
            self.news.notify_one();
        }
        let key = members.insert(Rc::clone(&member));
        drop(members);
        Membership {
            watch: self,
            key,
            member,
        }
    }

    /// Watches for ever. Sleeps while there is nothing to watch for.
    pub(super) async fn keep(&self) {
        loop {
            match self.look() {
                // Soon enough for whatever comes up meanwhile.
                Some(pause) if pause <= LOOK_EVERY => self.core.sleep(pause).await,
                // Somebody may come to hold memory before the time is up.
                Some(pause) => drop(self.core.timeout(pause, self.news.notified()).await),
                None => self.news.notified().await,
            }
        }
    }

    /// Looks at all connections once. When to look again, unless something happens first.
    fn look(&self) -> Option<Duration> {
        let now = self.core.now();
        let members = self.members.borrow();
        let mut hold = false;
        for (_, member) in members.iter() {
            let idle = now - member.account.active_at();
            if let Some(timeout) = self.limits.idle_timeout
                && idle >= timeout
                && !member.may_idle.get()
                && member.ended().is_none()
            {
                if member.account.owes() {
                    // It may have taken all of it long ago, and is asked.
                    member.account.want_less();
                } else {
                    self.doors.kicked(Cause::Idle);
                    member.end(Cause::Idle);
                }
            }
            if member.account.held() > 0 {
                hold = true;
                self.ask_for_less(member, idle);
            }
        }
        if self.pool.pressure() == Pressure::Out {
            self.make_room(now, &members);
        }
        if hold {
            Some(LOOK_EVERY)
        } else {
            let timeout = self.limits.idle_timeout.filter(|_| !members.is_empty())?;
            Some((timeout / 4).clamp(IDLE_LOOK.0, IDLE_LOOK.1))
        }
    }

    /// Has a connection that waits give back what it can, once each time that it waits.
    fn ask_for_less(&self, member: &Member, idle: Duration) {
        let active_at = Some(member.account.active_at());
        let long = idle >= LESS_AFTER || self.pool.pressure() != Pressure::None;
        if long && member.asked_at.replace(active_at) != active_at {
            member.account.want_less();
        }
    }

    /// Ends those that have stood still for longest and hold memory, until enough is free.
    fn make_room(&self, now: Instant, members: &Slab<Rc<Member>>) {
        let stalled = members
            .iter()
            .map(|(_, member)| member)
            .filter(|member| {
                member.account.held() > 0
                    && now - member.account.active_at() >= self.limits.stall_timeout
                    && !member.may_idle.get()
                    && member.ended().is_none()
            })
            .map(|member| (member.account.active_at(), member.account.held(), member))
            .collect();
        let used = || self.pool.used();
        for (member, leaving) in (self.doors.room).claim(stalled, used, self.pool.limit()) {
            self.doors.kicked(Cause::Memory);
            member.leaving.set(Some(leaving));
            member.end(Cause::Memory);
        }
    }
}

/// How much memory those held that were ended and have not given it back yet, on all cores.
#[derive(Clone, Debug, Default)]
pub(super) struct Room(Arc<Mutex<usize>>);

/// Bytes of one of them.
struct Leaving {
    room: Room,
    bytes: usize,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        *self.room.leaving() -= self.bytes;
    }
}

impl Room {
    fn leaving(&self) -> MutexGuard<'_, usize> {
        // Every change is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses whom to end, one core at a time and each in view of what the others have chosen.
    fn claim<T>(
        &self,
        stalled: Vec<(impl Ord + Copy, usize, T)>,
        used: impl FnOnce() -> usize,
        limit: usize,
    ) -> Vec<(T, Leaving)> {
        let mut leaving = self.leaving();
        let used = used().saturating_sub(*leaving);
        let chosen = longest_still(stalled, used, limit).map(|(bytes, one)| {
            *leaving += bytes;
            let room = self.clone();
            (one, Leaving { room, bytes })
        });
        chosen.collect()
    }
}

/// Of those that have stood still since some time and hold some bytes: as few as bring what is used
/// down to three quarters of the limit, and those first that have stood still for longest. Each with
/// its bytes.
fn longest_still<T>(
    mut stalled: Vec<(impl Ord + Copy, usize, T)>,
    used: usize,
    limit: usize,
) -> impl Iterator<Item = (usize, T)> {
    stalled.sort_by_key(|(since, ..)| *since);
    let mut missing = used.saturating_sub(limit / 4 * 3);
    stalled.into_iter().map_while(move |(_, held, one)| {
        if missing == 0 {
            return None;
        }
        missing = missing.saturating_sub(held);
        Some((held, one))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_stood_still_for_longest_make_room_and_no_more_than_is_needed() {
        let stalled = || vec![(30, 10, 'c'), (10, 10, 'a'), (40, 10, 'd'), (20, 10, 'b')];
        let ended = |used| {
            let all = longest_still(stalled(), used, 100);
            all.map(|(_, name)| name).collect::<String>()
        };
        assert_eq!(ended(75), "");
        assert_eq!(ended(76), "a");
        assert_eq!(ended(85), "a");
        assert_eq!(ended(100), "abc");
        assert_eq!(ended(1000), "abcd");
    }

    #[test]
    fn cores_do_not_make_room_for_one_another_twice() {
        let room = Room::default();
        let stalled = || vec![(10, 10, 'a'), (20, 10, 'b'), (30, 10, 'c')];
        let used = 95;
        let first = room.claim(stalled(), || used, 100);
        assert_eq!(first.len(), 2);
        // They have not gone yet, and the other core need not end any.
        assert_eq!(room.claim(stalled(), || used, 100).len(), 0);
        drop(first);
        assert_eq!(room.claim(stalled(), || used, 100).len(), 2);
    }
}
