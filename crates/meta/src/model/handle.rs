//! The engine over a model's rows.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use super::Pace;
use super::state::State;
use crate::{Engine, Key, MetaError, Outcome, Pending, Range, Row, Transaction};

pub(super) struct Handle {
    state: Rc<RefCell<State>>,
    /// The power losses before it was made.
    life: u64,
    slow: Option<(rt::Handle, Pace)>,
}

impl Handle {
    pub(super) fn new(state: Rc<RefCell<State>>, slow: Option<(rt::Handle, Pace)>) -> Self {
        let life = state.borrow().life();
        Self { state, life, slow }
    }

    fn check(&self) -> Result<(), MetaError> {
        match self.state.borrow().life() == self.life {
            true => Ok(()),
            false => Err(State::closed()),
        }
    }

    async fn wait(&self, range: impl Fn(&Pace) -> &RangeInclusive<u64>) {
        if let Some((core, pace)) = &self.slow {
            let delay_us = self.state.borrow_mut().delay_us(range(pace));
            core.sleep(Duration::from_micros(delay_us)).await;
        }
    }
}

/// A commit that has begun, until it is finished. Dropped before, it is given up.
struct Begun<'a> {
    handle: &'a Handle,
    number: u64,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        // Numbers are never used again, so that a finished commit is not found.
        self.handle.state.borrow_mut().give_up(self.number);
    }
}

impl Engine for Handle {
    fn get<'a>(&'a self, key: &'a [u8]) -> Pending<'a, Result<Option<Row>, MetaError>> {
        Box::pin(async move {
            self.wait(|pace| &pace.read_us).await;
            self.check()?;
            let mut state = self.state.borrow_mut();
            state.counts.gets += 1;
            Ok(state.get(key))
        })
    }

    fn scan<'a>(
        &'a self,
        range: Range,
        limit: usize,
    ) -> Pending<'a, Result<Vec<(Key, Row)>, MetaError>> {
        Box::pin(async move {
            self.wait(|pace| &pace.read_us).await;
            self.check()?;
            let mut state = self.state.borrow_mut();
            state.counts.scans += 1;
            Ok(state.scan(&range, limit))
        })
    }

    fn commit(&self, transaction: Transaction) -> Pending<'_, Result<Outcome, MetaError>> {
        Box::pin(async move {
            self.check()?;
            let begun = Begun {
                handle: self,
                number: self.state.borrow_mut().begin(transaction),
            };
            self.wait(|pace| &pace.commit_us).await;
            if self.check().is_err() {
                // The power loss has decided it, either way.
                return Ok(Outcome::Unknown);
            }
            let result = self.state.borrow_mut().finish(begun.number);
            self.wait(|pace| &pace.answer_us).await;
            result
        })
    }
}
