//! Several users of one engine, each with rows of its own.

use std::rc::Rc;

use crate::transaction::{Compare, Write};
use crate::{Engine, Key, MetaError, Outcome, Pending, Range, Row, Transaction};

/// The rows of an engine whose keys begin with one byte: without it, as if there were no others. So
/// roles share an engine, and its commits, and none can meet another one's rows.
///
/// A transaction is up to 256 bytes longer below than it was built here.
#[derive(Clone)]
pub struct Scoped {
    engine: Rc<dyn Engine>,
    scope: u8,
}

impl Scoped {
    /// The rows under this byte.
    #[must_use]
    pub fn new(engine: Rc<dyn Engine>, scope: u8) -> Self {
        Self { engine, scope }
    }

    fn key(&self, key: &[u8]) -> Key {
        let mut scoped = Vec::with_capacity(1 + key.len());
        scoped.push(self.scope);
        scoped.extend(key);
        scoped.into()
    }

    fn range(&self, range: &Range) -> Range {
        let whole = Range::prefix([self.scope]);
        let bound = |key: &Vec<u8>| self.key(key).to_vec();
        Range {
            from: bound(&range.from),
            to: range.to.as_ref().map(bound).or(whole.to),
        }
    }

    fn transaction(&self, of: &Transaction) -> Transaction {
        let compares = of.compares().iter().map(|compare| match compare {
            Compare::Absent(key) => Compare::Absent(self.key(key)),
            Compare::Exists(key) => Compare::Exists(self.key(key)),
            Compare::Version(key, version) => Compare::Version(self.key(key), *version),
            Compare::Value(key, value) => Compare::Value(self.key(key), value.clone()),
        });
        let writes = of.writes().iter().map(|write| match write {
            Write::Put(key, value) => Write::Put(self.key(key), value.clone()),
            Write::Delete(key) => Write::Delete(self.key(key)),
        });
        Transaction::unchecked(compares.collect(), writes.collect())
    }
}

impl Engine for Scoped {
    fn get<'a>(&'a self, key: &'a [u8]) -> Pending<'a, Result<Option<Row>, MetaError>> {
        let key = self.key(key);
        Box::pin(async move { self.engine.get(&key).await })
    }

    fn scan<'a>(
        &'a self,
        range: Range,
        limit: usize,
    ) -> Pending<'a, Result<Vec<(Key, Row)>, MetaError>> {
        Box::pin(async move {
            let rows = self.engine.scan(self.range(&range), limit).await?;
            let own = rows.into_iter().map(|(key, row)| (key[1..].into(), row));
            Ok(own.collect())
        })
    }

    fn commit(&self, transaction: Transaction) -> Pending<'_, Result<Outcome, MetaError>> {
        let scoped = self.transaction(&transaction);
        Box::pin(async move { self.engine.commit(scoped).await })
    }

    fn checkpoint(&self) -> Pending<'_, Result<(), MetaError>> {
        self.engine.checkpoint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn scopes_do_not_see_each_other() {
        let mut core = rt::Core::new(rt::Config::default()).expect("a core");
        let engine = Model::new(1).handle();
        let one = Scoped::new(engine.clone(), 7);
        let last = Scoped::new(engine.clone(), u8::MAX);
        core.block_on(async {
            for (scope, value) in [(&one, "one"), (&last, "last")] {
                let mut put = Transaction::new();
                put.absent("key")
                    .and_then(|put| put.put("key", value))
                    .expect("small");
                let outcome = scope.commit(put).await.expect("it commits");
                assert!(
                    matches!(outcome, Outcome::Committed(_)),
                    "the other's row is no conflict"
                );
            }
            for (scope, value) in [(&one, "one"), (&last, "last")] {
                let row = scope.get(b"key").await.expect("read").expect("there");
                assert_eq!(&row.value[..], value.as_bytes());
                let rows = scope.scan(Range::all(), 10).await.expect("read");
                assert_eq!(rows.len(), 1);
                assert_eq!(&rows[0].0[..], b"key");
                let none = scope.scan(Range::new("l", "z"), 10).await.expect("read");
                assert!(none.is_empty());
            }
            let all = engine.scan(Range::all(), 10).await.expect("read");
            assert_eq!(all.len(), 2);
        });
    }
}
