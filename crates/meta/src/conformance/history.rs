//! What was asked and answered, and whether some order explains it.
//!
//! The order is known: it is that of the revisions. What is left to check is whether each answer fits some
//! state that was current between its question and its end. A state is current from the moment that its
//! transaction was asked for, at the earliest, until every answer after the next one's own, at the latest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Engine, Key, Outcome, Range, Row, Transaction};

/// Something that was asked and answered.
#[derive(Clone, Debug)]
pub enum Event {
    /// A read of a row.
    Get(Key, Option<Row>),
    /// A scan with its limit.
    Scan(Range, usize, Vec<(Key, Row)>),
    /// A transaction that was carried out, as its answer or a later read has said.
    Committed(Transaction, u64),
    /// A transaction of which a comparison failed.
    Conflict(Transaction),
}

struct Recorded {
    /// Of any task that reads one after the other.
    task: usize,
    began: u64,
    ended: u64,
    event: Event,
}

/// A history, of all tasks and cores that share it.
#[derive(Clone)]
pub struct History {
    /// The rows before it, with their revision.
    first: Arc<(BTreeMap<Key, Row>, u64)>,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    ticks: u64,
    recorded: Vec<Recorded>,
}

type State = BTreeMap<Key, Row>;

impl History {
    /// An empty history of an engine, of which nothing is asked meanwhile.
    ///
    /// # Panics
    /// If the engine does not answer.
    pub async fn of(engine: &dyn Engine) -> Self {
        let rows = engine.scan(Range::all(), usize::MAX).await;
        let rows = rows.expect("a scan").into_iter().collect();
        let revision = loop {
            match engine.commit(Transaction::new()).await.expect("a commit") {
                Outcome::Committed(revision) => break revision,
                Outcome::Unknown => {}
                Outcome::Conflict => panic!("nothing was compared"),
            }
        };
        Self {
            first: Arc::new((rows, revision)),
            log: Arc::default(),
        }
    }

    /// A moment, later than all before it.
    #[must_use]
    pub fn tick(&self) -> u64 {
        let mut log = self.log();
        log.ticks += 1;
        log.ticks
    }

    /// Notes something that has begun at that moment and ends now.
    pub fn record(&self, task: usize, began: u64, event: Event) {
        let ended = self.tick();
        self.log().recorded.push(Recorded {
            task,
            began,
            ended,
            event,
        });
    }

    /// Looks whether the order of the revisions explains everything.
    ///
    /// # Panics
    /// If it does not, with the seed.
    pub fn check(&self, seed: u64) {
        let mut log = self.log();
        log.recorded.sort_by_key(|recorded| recorded.ended);
        let states = self.states(&log.recorded, seed);
        let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
        for recorded in &log.recorded {
            let (low, high) = self.window(&log.recorded, recorded);
            let own = seen.entry(recorded.task).or_default();
            let low = low.max(*own);
            let fits = |at: &usize| explains(&states, *at, self.first.1, &recorded.event);
            let found = (low..=high.min(states.len() - 1)).find(fits);
            let Some(found) = found else {
                let began = states.get(low);
                panic!(
                    "seed {seed}: task {} saw what no state from {low} to {high} explains: {:?}; the first is {began:?}",
                    recorded.task, recorded.event
                );
            };
            *own = found;
        }
    }

    /// The state after each revision, the one before all of them first.
    fn states(&self, recorded: &[Recorded], seed: u64) -> Vec<State> {
        let mut writers: BTreeMap<u64, &Transaction> = BTreeMap::new();
        for recorded in recorded {
            if let Event::Committed(transaction, revision) = &recorded.event
                && !transaction.is_read_only()
            {
                let other = writers.insert(*revision, transaction);
                assert!(other.is_none(), "seed {seed}: two have revision {revision}");
            }
        }
        let mut states = vec![self.first.0.clone()];
        for (revision, transaction) in writers {
            let expected = self.first.1 + states.len() as u64;
            assert_eq!(
                revision, expected,
                "seed {seed}: revisions follow each other"
            );
            let mut state = states.last().expect("there is one").clone();
            for write in transaction.writes() {
                let key = write.key().clone();
                match write.value().cloned() {
                    Some(value) => {
                        let version = revision;
                        state.insert(key, Row { value, version });
                    }
                    None => drop(state.remove(&key)),
                }
            }
            states.push(state);
        }
        states
    }

    /// The first and the last state that may have been current during something.
    fn window(&self, recorded: &[Recorded], of: &Recorded) -> (usize, usize) {
        let mut low = 0;
        let mut high = 0;
        for other in recorded {
            if let Event::Committed(transaction, revision) = &other.event
                && !transaction.is_read_only()
            {
                let at = (revision - self.first.1) as usize;
                if other.ended < of.began {
                    low = low.max(at);
                }
                if other.began < of.ended {
                    high = high.max(at);
                }
            }
        }
        (low, high)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether what happened fits the state at `at`: a transaction, that it has made it of the one before.
fn explains(states: &[State], at: usize, first: u64, event: &Event) -> bool {
    let state = &states[at];
    let holds = |state: &State, transaction: &Transaction| {
        let mut compares = transaction.compares().iter();
        compares.all(|compare| compare.holds(state.get(compare.key())))
    };
    match event {
        Event::Get(key, row) => state.get(key) == row.as_ref(),
        Event::Scan(range, limit, rows) => {
            let inside = state.iter().filter(|(key, _)| range.contains(key));
            inside
                .take(*limit)
                .eq(rows.iter().map(|(key, row)| (key, row)))
        }
        Event::Committed(transaction, revision) => {
            let is_at = first + at as u64 == *revision;
            let before = if transaction.is_read_only() {
                Some(at)
            } else {
                at.checked_sub(1)
            };
            is_at && before.is_some_and(|before| holds(&states[before], transaction))
        }
        Event::Conflict(transaction) => !holds(state, transaction),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, absent: bool) -> Transaction {
        let mut put = Transaction::new();
        put.put(key, key).unwrap();
        if absent {
            put.absent(key).unwrap();
        }
        put
    }

    fn history(events: &[(usize, u64, Event)]) -> History {
        let history = History {
            first: Arc::new((State::new(), 0)),
            log: Arc::default(),
        };
        for (task, began, event) in events {
            while history.tick() < *began {}
            history.record(*task, *began, event.clone());
        }
        history
    }

    fn is_refused(events: &[(usize, u64, Event)]) -> bool {
        let history = history(events);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| history.check(0))).is_err()
    }

    fn get(key: &str, version: Option<u64>) -> Event {
        let value = key.as_bytes().into();
        Event::Get(
            key.as_bytes().into(),
            version.map(|version| Row { value, version }),
        )
    }

    #[test]
    fn what_an_order_explains_passes() {
        let events = [
            (1, 1, Event::Committed(put("a", true), 1)),
            (2, 1, get("a", None)),
            (2, 20, get("a", Some(1))),
            (1, 21, Event::Conflict(put("a", true))),
        ];
        assert!(!is_refused(&events));
    }

    #[test]
    fn what_no_order_explains_is_found() {
        let committed = (1, 1, Event::Committed(put("a", true), 1));
        let second = (1, 50, Event::Committed(put("a", true), 2));
        for (name, wrong) in [
            ("a read that is late", (2, 20, get("a", None))),
            ("a row that nobody wrote", (2, 20, get("b", Some(1)))),
            ("a wrong version", (2, 20, get("a", Some(2)))),
            (
                "a conflict with nothing",
                (2, 20, Event::Conflict(put("b", true))),
            ),
            (
                "a revision twice",
                (2, 20, Event::Committed(put("b", false), 1)),
            ),
            ("a gap", (2, 20, Event::Committed(put("b", false), 3))),
            ("a comparison that failed", second),
            (
                "a row left out of a scan",
                (2, 20, Event::Scan(Range::all(), 9, Vec::new())),
            ),
        ] {
            assert!(is_refused(&[committed.clone(), wrong]), "{name}");
        }
        let back = [committed, (2, 1, get("a", Some(1))), (2, 1, get("a", None))];
        assert!(is_refused(&back), "a step back");
    }
}
