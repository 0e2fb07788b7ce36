//! An engine that counts, that looks on at each commit, and that refuses some.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use meta::{Engine, Key, MetaError, Outcome, Pending, Range, Row, Transaction};

/// What is called at a commit: whether it is over.
type Look = Box<dyn FnMut(bool)>;

#[derive(Default)]
pub(crate) struct Spied {
    pub(crate) commits: Cell<u64>,
    pub(crate) reads: Cell<u64>,
    pub(crate) writes_most: Cell<usize>,
    pub(crate) conflict_at: Cell<Option<u64>>,
    pub(crate) read_fails_at: Cell<Option<u64>>,
    /// Whether no commit that compares says that it was carried out: that is to be found out. One that
    /// compares nothing can be repeated.
    pub(crate) is_vague: Cell<bool>,
    pub(crate) look: RefCell<Option<Look>>,
}

/// The engine, and what is seen of it.
pub(crate) struct Spy {
    engine: Rc<dyn Engine>,
    seen: Rc<Spied>,
}

impl Spy {
    pub(crate) fn around(engine: Rc<dyn Engine>) -> (Rc<dyn Engine>, Rc<Spied>) {
        let seen = Rc::new(Spied::default());
        let spy = Self {
            engine,
            seen: seen.clone(),
        };
        (Rc::new(spy), seen)
    }

    fn read(&self) -> Result<(), MetaError> {
        let number = self.seen.reads.get();
        self.seen.reads.set(number + 1);
        match self.seen.read_fails_at.get() {
            Some(at) if at == number => {
                self.seen.read_fails_at.set(None);
                Err(MetaError::Read {
                    place: "spy".into(),
                    why: "told to".into(),
                })
            }
            _ => Ok(()),
        }
    }

    fn look(&self, is_over: bool) {
        if let Some(look) = self.seen.look.borrow_mut().as_mut() {
            look(is_over);
        }
    }
}

impl Engine for Spy {
    fn get<'a>(&'a self, key: &'a [u8]) -> Pending<'a, Result<Option<Row>, MetaError>> {
        Box::pin(async move {
            self.read()?;
            self.engine.get(key).await
        })
    }

    fn scan<'a>(
        &'a self,
        range: Range,
        limit: usize,
    ) -> Pending<'a, Result<Vec<(Key, Row)>, MetaError>> {
        Box::pin(async move {
            self.read()?;
            self.engine.scan(range, limit).await
        })
    }

    fn commit(&self, transaction: Transaction) -> Pending<'_, Result<Outcome, MetaError>> {
        Box::pin(async move {
            let number = self.seen.commits.get();
            self.seen.commits.set(number + 1);
            let writes = transaction.writes().len();
            self.seen
                .writes_most
                .set(self.seen.writes_most.get().max(writes));
            if self.seen.conflict_at.get() == Some(number) {
                self.seen.conflict_at.set(None);
                return Ok(Outcome::Conflict);
            }
            self.look(false);
            let is_vague = self.seen.is_vague.get() && !transaction.compares().is_empty();
            let outcome = self.engine.commit(transaction).await;
            self.look(true);
            match outcome {
                Ok(Outcome::Committed(_)) if is_vague => Ok(Outcome::Unknown),
                outcome => outcome,
            }
        })
    }
}
