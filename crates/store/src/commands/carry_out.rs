//! A command as operations of a session.

use ::engine::item::{Effect, Item, decide};
use ::engine::{Answer, Command, Expiry, Failure, Limits, Mode, Segments};

use super::key_locks::{Outcome, Permit};
use crate::change::{Attributes, Put, Swap, Update};
use crate::error::StoreError;
use crate::session::{Session, Value};

/// An answer, with its value in the buffer that it was read into.
pub(super) enum Reply {
    /// The item.
    Item(Value),
    /// The item, whose bytes were needed elsewhere as well.
    Copy(Vec<u8>, u32, u64),
    /// Anything else.
    Plain(Answer<'static>),
}

impl Reply {
    /// Bytes of its value.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Item(value) => value.len(),
            Self::Copy(value, ..) => value.len(),
            Self::Plain(_) => 0,
        }
    }

    pub(super) fn answer(&self) -> Answer<'_> {
        match self {
            Self::Item(value) => Answer::Item {
                value: value[..].into(),
                flags: value.flags(),
                cas: value.version().0,
            },
            Self::Copy(value, flags, cas) => Answer::Item {
                value: value.into(),
                flags: *flags,
                cas: *cas,
            },
            Self::Plain(answer) => *answer,
        }
    }
}

/// Unix seconds as records keep them; times beyond 2106 never come.
fn expiry_s(expiry: Expiry) -> u32 {
    let seconds = |at_s: u64| u32::try_from(at_s).unwrap_or(u32::MAX).max(1);
    expiry.unix_s().map_or(0, seconds)
}

pub(super) fn failure(error: &StoreError) -> Failure {
    match error {
        StoreError::Full | StoreError::IndexFull => Failure::OutOfMemory,
        StoreError::KeyTooLong { .. } | StoreError::TooLong { .. } => Failure::TooLarge,
        StoreError::Damaged { .. } | StoreError::MaybeOld { .. } => Failure::Damaged,
        StoreError::Closed => Failure::Busy("the store is closed"),
        _ => Failure::Device,
    }
}

fn stored(put: Put) -> Answer<'static> {
    Answer::Stored { cas: put.version.0 }
}

/// Carries a command on a key out.
pub(super) async fn carry_out(
    session: &Session,
    command: &Command<'_>,
    limits: &Limits,
    permit: &Permit,
) -> Reply {
    let done = match *command {
        Command::Get { key, touch: None } => match session.get(key).await {
            Ok(Some(value)) => return Reply::Item(value),
            Ok(None) => Ok(Answer::Miss),
            Err(error) => Err(error),
        },
        Command::Store {
            mode,
            key,
            value,
            flags,
            expiry,
        } => {
            let with = Attributes {
                flags,
                expiry: expiry_s(expiry),
            };
            if limits.allow(key.len(), value.len()) && !matches!(mode, Mode::Append | Mode::Prepend)
            {
                store(session, mode, (key, value), with, permit).await
            } else {
                return change(session, command, key, limits).await;
            }
        }
        Command::Delete { key } => match session.delete(key).await {
            Ok(true) => Ok(Answer::Deleted),
            Ok(false) => Ok(Answer::NotFound),
            Err(error) => Err(error),
        },
        Command::Get { key, .. } | Command::Arith { key, .. } | Command::Touch { key, .. } => {
            return change(session, command, key, limits).await;
        }
        Command::FlushAll { .. } | Command::Stats { .. } | Command::ResetStats => {
            Ok(Answer::Failed(Failure::Unsupported))
        }
    };
    Reply::Plain(done.unwrap_or_else(|error| {
        tracing::debug!(%error, "a command failed");
        Answer::Failed(failure(&error))
    }))
}

/// Stores a value in a mode that does not need the old one.
async fn store(
    session: &Session,
    mode: Mode,
    (key, value): (&[u8], Segments<'_>),
    with: Attributes,
    permit: &Permit,
) -> Result<Answer<'static>, StoreError> {
    let copy;
    let bytes = match value.as_slice() {
        Some(bytes) => bytes,
        None => {
            copy = value.to_vec();
            &copy[..]
        }
    };
    Ok(match mode {
        Mode::Set => {
            let put = permit.put(session.put_with(key, bytes, with)).await;
            let outcome = match &put {
                Ok(_) => Outcome::Stored,
                Err(StoreError::Full | StoreError::IndexFull) => Outcome::Refused,
                Err(_) => Outcome::Failed,
            };
            if permit.ends(outcome) {
                // The client holds the item for overwritten: nobody may read the old value.
                session.delete(key).await?;
            }
            stored(put?)
        }
        Mode::Add => {
            (session.put_if_absent(key, bytes, with).await?).map_or(Answer::NotStored, stored)
        }
        Mode::Replace => {
            (session.put_if_present(key, bytes, with).await?).map_or(Answer::NotStored, stored)
        }
        Mode::Cas(token) => {
            let version = crate::format::Version(token);
            match session.compare_and_swap(key, version, bytes, with).await? {
                Swap::Swapped(put) => stored(put),
                Swap::Changed(_) => Answer::Exists,
                Swap::Missing => Answer::NotFound,
            }
        }
        Mode::Append | Mode::Prepend => Answer::Failed(Failure::Unsupported),
    })
}

/// Reads the item, and writes what the rules make of it.
async fn change(session: &Session, command: &Command<'_>, key: &[u8], limits: &Limits) -> Reply {
    let mut outcome = None;
    let mut copy = None;
    let updated = session
        .update(key, |old| {
            let item = old.map(|value| Item {
                value: value[..].into(),
                flags: value.flags(),
                expiry: Expiry::from_unix_s(value.expiry().into()),
                cas: value.version().0,
            });
            let (effect, told) = decide(command, item.as_ref(), limits);
            outcome = Some(told);
            if let (Command::Get { .. }, Some(item)) = (command, &item) {
                copy = Some((item.value.to_vec(), item.flags));
            }
            match (effect, item) {
                (Effect::Keep, _) => Update::Keep,
                (Effect::Remove, _) => Update::Delete,
                (Effect::Write(new), item) => {
                    let mut bytes = Vec::new();
                    let old = item.map_or(Segments::EMPTY, |item| item.value);
                    new.value.write_to(old, &mut bytes);
                    let with = Attributes {
                        flags: new.flags,
                        expiry: expiry_s(new.expiry),
                    };
                    Update::Put(bytes, with)
                }
                (Effect::Expire(_), None) => Update::Keep,
                // A record cannot be changed where it lies, so the item is written again, and gets
                // another token.
                (Effect::Expire(expiry), Some(item)) => {
                    let with = Attributes {
                        flags: item.flags,
                        expiry: expiry_s(expiry),
                    };
                    Update::Put(item.value.to_vec(), with)
                }
            }
        })
        .await;
    match (updated, outcome) {
        (Ok(version), Some(outcome)) => {
            let cas = version.map_or(0, |version| version.0);
            match copy {
                Some((value, flags)) => Reply::Copy(value, flags, cas),
                None => Reply::Plain(
                    outcome
                        .answer(None, cas)
                        .with_value(Segments::EMPTY)
                        .unwrap_or(Answer::Miss),
                ),
            }
        }
        (Ok(_), None) => Reply::Plain(Answer::Miss),
        (Err(error), _) => {
            tracing::debug!(%error, "a command failed");
            Reply::Plain(Answer::Failed(failure(&error)))
        }
    }
}
