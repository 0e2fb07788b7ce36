//! A Memcache request carried out on a partition.

use cache::mica::{Arith, KeyHash, NewValue, Partition, Store, StoreError};
use memcache::{Direction, Expiry, Mode, Reply, Request};

/// Unix seconds as a partition keeps them; times beyond 2106 never come.
pub(super) fn seconds(unix_s: u64) -> u32 {
    u32::try_from(unix_s).unwrap_or(u32::MAX)
}

fn expiry_s(expiry: Expiry) -> u32 {
    expiry.unix_s().map_or(0, |at_s| seconds(at_s).max(1))
}

fn found(found: bool, yes: Reply<'static>) -> Reply<'static> {
    if found { yes } else { Reply::NotFound }
}

fn stored(result: Result<Store, StoreError>) -> Reply<'static> {
    match result {
        Ok(Store::Stored { .. }) => Reply::Stored,
        Ok(Store::NotStored) => Reply::NotStored,
        Ok(Store::Exists) => Reply::Exists,
        Ok(Store::NotFound) => Reply::NotFound,
        Err(_) => Reply::TooLarge,
    }
}

/// Carries a request out and calls `reply` with the answer, which may borrow the item.
pub(super) fn execute<R>(
    partition: &mut Partition,
    hash: KeyHash,
    request: &Request<'_>,
    now_s: u64,
    reply: impl FnOnce(Reply<'_>) -> R,
) -> R {
    let now = seconds(now_s);
    let answer = match *request {
        Request::Get { key } => {
            return reply(match partition.get(hash, key, now) {
                Some(item) => Reply::Value {
                    value: item.value,
                    flags: item.flags,
                    cas: item.cas,
                },
                None => Reply::Miss,
            });
        }
        Request::GetAndTouch { key, expiry } => {
            let item = partition.get_and_touch(hash, key, expiry_s(expiry), now);
            return reply(match item {
                Some(item) => Reply::Value {
                    value: item.value,
                    flags: item.flags,
                    cas: item.cas,
                },
                None => Reply::Miss,
            });
        }
        Request::Store {
            mode,
            key,
            value,
            flags,
            expiry,
        } => {
            let new = NewValue {
                bytes: value,
                flags,
                expiry_s: expiry_s(expiry),
            };
            match mode {
                Mode::Set => stored(partition.set(hash, key, new, now)),
                Mode::Add => stored(partition.add(hash, key, new, now)),
                Mode::Replace => stored(partition.replace(hash, key, new, now)),
                Mode::Cas(token) => stored(partition.cas(hash, key, new, token, now)),
                // An item that would grow too large stays as it is.
                Mode::Append => match partition.append(hash, key, value, now) {
                    Err(_) => Reply::NotStored,
                    done => stored(done),
                },
                Mode::Prepend => match partition.prepend(hash, key, value, now) {
                    Err(_) => Reply::NotStored,
                    done => stored(done),
                },
            }
        }
        Request::Delete { key } => found(partition.delete(hash, key, now), Reply::Deleted),
        Request::Touch { key, expiry } => {
            let touched = partition.touch(hash, key, expiry_s(expiry), now);
            found(touched, Reply::Touched)
        }
        Request::Arith {
            key,
            delta,
            direction,
        } => {
            let done = match direction {
                Direction::Up => partition.incr(hash, key, delta, now),
                Direction::Down => partition.decr(hash, key, delta, now),
            };
            match done {
                Ok(Arith::Number { value, .. }) => Reply::Number(value),
                Ok(Arith::NotFound) => Reply::NotFound,
                Ok(Arith::NotANumber) => Reply::NotANumber,
                Err(_) => Reply::OutOfMemory,
            }
        }
        Request::FlushAll { at_s } => {
            partition.flush_all(seconds(at_s), now);
            Reply::Flushed
        }
        _ => Reply::Busy("this engine does not know the request"),
    };
    reply(answer)
}
