//! One call, one answer: for the command line, and for those who can wait.

use verbs::typed::ProtectionDomain;

use super::{Client, ClientConfig, ConnectError, Dial, Outcome, SubmitError};
use crate::herd::wire::answer::Status;
use crate::herd::wire::request::{Command, StoreMode};

/// The clock, and what to do while waiting.
pub trait Pace {
    /// Nanoseconds since some moment.
    fn now_ns(&mut self) -> u64;

    /// Called between polls that brought nothing: spin, yield, or let others work.
    fn wait(&mut self);
}

/// An item, copied out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Its value.
    pub value: Vec<u8>,
    /// The user's flags.
    pub flags: u32,
    /// Its token.
    pub cas: u64,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockingError {
    /// The server said no.
    #[error("{0}")]
    Refused(Status),
    /// No answer in time.
    #[error("no answer before the deadline")]
    TimedOut,
    /// The connection was lost, and it is not known whether the command was carried out.
    #[error("the connection was lost; the command may have been carried out")]
    Unknown,
    /// The command makes no sense.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// A [`Client`] that waits for each answer.
#[derive(Debug)]
pub struct BlockingClient<D: Dial, P: Pace> {
    client: Client<D>,
    pace: P,
    deadline_ns: u64,
}

/// An outcome that owns what it holds.
#[derive(Debug)]
enum Owned {
    Value(Item),
    Done(u64),
    Number(u64),
    Failed(BlockingError),
}

impl Owned {
    fn from(outcome: Outcome<'_>) -> Self {
        match outcome {
            Outcome::Value { value, flags, cas } => Owned::Value(Item {
                value: value.to_vec(),
                flags,
                cas,
            }),
            Outcome::Done { cas } => Owned::Done(cas),
            Outcome::Number { value, .. } => Owned::Number(value),
            Outcome::Refused(status) => Owned::Failed(BlockingError::Refused(status)),
            Outcome::TimedOut => Owned::Failed(BlockingError::TimedOut),
            Outcome::Unknown => Owned::Failed(BlockingError::Unknown),
        }
    }

    fn unexpected<T>(self) -> Result<T, BlockingError> {
        match self {
            Owned::Failed(error) => Err(error),
            _ => Err(BlockingError::Refused(Status::Invalid)),
        }
    }

    fn done(self) -> Result<u64, BlockingError> {
        match self {
            Owned::Done(cas) => Ok(cas),
            other => other.unexpected(),
        }
    }

    fn value(self) -> Result<Option<Item>, BlockingError> {
        match self {
            Owned::Value(item) => Ok(Some(item)),
            Owned::Failed(BlockingError::Refused(Status::NotFound)) => Ok(None),
            other => other.unexpected(),
        }
    }

    fn number(self) -> Result<u64, BlockingError> {
        match self {
            Owned::Number(value) => Ok(value),
            other => other.unexpected(),
        }
    }
}

impl<D: Dial, P: Pace> BlockingClient<D, P> {
    /// Connects.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(
        pd: ProtectionDomain,
        config: ClientConfig,
        dial: D,
        mut pace: P,
    ) -> Result<Self, ConnectError> {
        let deadline_ns = config.deadline_ns;
        let now_ns = pace.now_ns();
        Ok(BlockingClient {
            client: Client::connect(pd, config, dial, now_ns)?,
            pace,
            deadline_ns,
        })
    }

    /// The client below, for its statistics.
    pub fn client(&self) -> &Client<D> {
        &self.client
    }

    /// An item, or `None`.
    ///
    /// # Errors
    /// `TimedOut`, `Refused`, `Submit`.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Item>, BlockingError> {
        self.call(&Command::Get { key })?.value()
    }

    /// An item, or `None`; changes its expiry.
    ///
    /// # Errors
    /// `TimedOut`, `Unknown`, `Refused`, `Submit`.
    pub fn get_and_touch(
        &mut self,
        key: &[u8],
        expiry_s: u32,
    ) -> Result<Option<Item>, BlockingError> {
        self.call(&Command::GetAndTouch { key, expiry_s })?.value()
    }

    /// Many items at once, in the order of their keys: all windows are kept full.
    ///
    /// # Errors
    /// As [`BlockingClient::get`], for the first key that fails.
    pub fn get_many(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Item>>, BlockingError> {
        let commands = keys.iter().map(|key| Command::Get { key });
        let outcomes = self.call_all(commands.collect::<Vec<_>>().as_slice())?;
        outcomes.into_iter().map(Owned::value).collect()
    }

    /// Stores a value and returns its token.
    ///
    /// # Errors
    /// `Refused` with `NotStored`, `Exists`, `NotFound` or `TooLarge`; `TimedOut`, `Unknown`,
    /// `Submit`.
    pub fn store(
        &mut self,
        mode: StoreMode,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expiry_s: u32,
    ) -> Result<u64, BlockingError> {
        self.call(&Command::Store {
            mode,
            key,
            value,
            flags,
            expiry_s,
        })?
        .done()
    }

    /// Stores a value, without flags and for ever.
    ///
    /// # Errors
    /// As [`BlockingClient::store`].
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<u64, BlockingError> {
        self.store(StoreMode::Set, key, value, 0, 0)
    }

    /// Stores a value if there is no item.
    ///
    /// # Errors
    /// As [`BlockingClient::store`].
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<u64, BlockingError> {
        self.store(StoreMode::Add, key, value, 0, 0)
    }

    /// Stores a value if there is an item.
    ///
    /// # Errors
    /// As [`BlockingClient::store`].
    pub fn replace(&mut self, key: &[u8], value: &[u8]) -> Result<u64, BlockingError> {
        self.store(StoreMode::Replace, key, value, 0, 0)
    }

    /// Removes an item.
    ///
    /// # Errors
    /// `Refused` with `NotFound`; `TimedOut`, `Unknown`, `Submit`.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), BlockingError> {
        self.call(&Command::Delete { key })?.done().map(drop)
    }

    /// Adds to a number.
    ///
    /// # Errors
    /// `Refused` with `NotFound` or `NotANumber`; `TimedOut`, `Unknown`, `Submit`.
    pub fn incr(&mut self, key: &[u8], delta: u64) -> Result<u64, BlockingError> {
        self.call(&Command::Incr { key, delta })?.number()
    }

    /// Subtracts from a number, down to 0.
    ///
    /// # Errors
    /// As [`BlockingClient::incr`].
    pub fn decr(&mut self, key: &[u8], delta: u64) -> Result<u64, BlockingError> {
        self.call(&Command::Decr { key, delta })?.number()
    }

    /// Changes an item's expiry.
    ///
    /// # Errors
    /// As [`BlockingClient::delete`].
    pub fn touch(&mut self, key: &[u8], expiry_s: u32) -> Result<(), BlockingError> {
        self.call(&Command::Touch { key, expiry_s })?
            .done()
            .map(drop)
    }

    fn call(&mut self, command: &Command<'_>) -> Result<Owned, BlockingError> {
        let outcomes = self.call_all(std::slice::from_ref(command))?;
        Ok(outcomes
            .into_iter()
            .next()
            .expect("one command, one outcome"))
    }

    /// Submits all commands and waits for all outcomes.
    fn call_all(&mut self, commands: &[Command<'_>]) -> Result<Vec<Owned>, BlockingError> {
        let mut outcomes: Vec<Option<Owned>> = Vec::new();
        outcomes.resize_with(commands.len(), || None);
        let mut missing = commands.len();
        let mut next = 0;
        // A full window or a lost connection may keep a command out for ever.
        let give_up_ns = self.pace.now_ns() + self.deadline_ns;
        let mut failure = None;
        while missing > 0 {
            let now_ns = self.pace.now_ns();
            self.client.now_ns = now_ns;
            while next < commands.len() && failure.is_none() {
                match self.client.submit(&commands[next], true, next as u64) {
                    Ok(()) => next += 1,
                    Err(SubmitError::Full) if now_ns < give_up_ns => break,
                    Err(SubmitError::Full) => failure = Some(BlockingError::TimedOut),
                    Err(error) => failure = Some(error.into()),
                }
            }
            // What was submitted still has its outcome to come.
            if failure.is_some() && missing == commands.len() - next {
                break;
            }
            let taken = self.client.poll(now_ns, &mut |tag, outcome| {
                if let Some(place @ None) = outcomes.get_mut(tag as usize) {
                    *place = Some(Owned::from(outcome));
                    missing -= 1;
                }
            });
            if taken == 0 {
                self.pace.wait();
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(outcomes.into_iter().flatten().collect()),
        }
    }
}
