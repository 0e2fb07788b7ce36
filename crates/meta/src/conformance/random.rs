//! Random transactions, reads and scans by several tasks.
//!
//! Every transaction that writes also writes a row of its task alone, with a value of its own: after
//! [`Outcome::Unknown`] the task reads that row, and so knows whether it was carried out, and when.

use std::rc::Rc;

use rt::JoinHandle;

use super::{Event, History};
use crate::{Engine, Key, Outcome, Range, Row, Transaction, Value};

/// How long a program is, and how wide.
#[derive(Clone, Debug)]
pub struct Program {
    /// Tasks at the same time.
    pub tasks: usize,
    /// Steps of each.
    pub steps: usize,
    /// Keys that they share.
    pub keys: usize,
    /// The number of the first task, different on each core.
    pub first_task: usize,
}

impl Default for Program {
    /// Enough for all kinds of answers.
    fn default() -> Self {
        Self {
            tasks: 5,
            steps: 60,
            keys: 9,
            first_task: 0,
        }
    }
}

/// Starts a program's tasks on a core.
#[must_use]
pub fn spawn(
    core: &rt::Handle,
    engine: &Rc<dyn Engine>,
    history: &History,
    program: &Program,
    seed: u64,
) -> Vec<JoinHandle<()>> {
    let tasks = program.first_task..program.first_task + program.tasks;
    let start = |task: usize| {
        let random = Random {
            core: core.clone(),
            engine: engine.clone(),
            history: history.clone(),
            rng: fastrand::Rng::with_seed(seed ^ (task as u64) << 32),
            task,
            keys: program.keys,
            seed,
        };
        core.spawn(random.run(program.steps))
    };
    tasks.map(start).collect()
}

struct Random {
    core: rt::Handle,
    engine: Rc<dyn Engine>,
    history: History,
    rng: fastrand::Rng,
    task: usize,
    keys: usize,
    seed: u64,
}

impl Random {
    async fn run(mut self, steps: usize) {
        for step in 0..steps {
            match self.rng.u8(..10) {
                0 | 1 => {
                    let number = self.rng.usize(..self.keys);
                    self.get(number).await;
                }
                2 => self.scan().await,
                3 => self.core.yield_now().await,
                _ => self.commit(step).await,
            }
        }
    }

    async fn get(&mut self, number: usize) -> Option<Row> {
        let key = key(number);
        let began = self.history.tick();
        let row = self.engine.get(&key).await;
        let row = row.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        self.history
            .record(self.task, began, Event::Get(key, row.clone()));
        row
    }

    async fn scan(&mut self) {
        let from = self.rng.usize(..self.keys);
        let range = match self.rng.u8(..3) {
            0 => Range::prefix("random/"),
            1 => Range::new(&*key(from), &*key(self.rng.usize(..self.keys))),
            _ => Range::prefix("random/").after(&key(from)),
        };
        let limit = self.rng.usize(..self.keys + 2);
        let began = self.history.tick();
        let rows = self.engine.scan(range.clone(), limit).await;
        let rows = rows.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        self.history
            .record(self.task, began, Event::Scan(range, limit, rows));
    }

    async fn commit(&mut self, step: usize) {
        let (transaction, marker) = self.transaction(step).await;
        let began = self.history.tick();
        let outcome = self.engine.commit(transaction.clone()).await;
        let outcome = outcome.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        let event = match outcome {
            Outcome::Committed(revision) => Event::Committed(transaction, revision),
            Outcome::Conflict => Event::Conflict(transaction),
            Outcome::Unknown => match self.resolve(&transaction, &marker).await {
                Some(revision) => Event::Committed(transaction, revision),
                None => return,
            },
        };
        self.history.record(self.task, began, event);
    }

    /// When a transaction was carried out whose answer was `Unknown`, if it was.
    async fn resolve(&self, transaction: &Transaction, marker: &Key) -> Option<u64> {
        let written = transaction
            .writes()
            .iter()
            .find(|write| write.key() == marker)?;
        let row = self.engine.get(marker).await;
        let row = row.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed))?;
        (Some(&row.value) == written.value()).then_some(row.version)
    }

    /// Something to commit, and the row that tells whether it was.
    async fn transaction(&mut self, step: usize) -> (Transaction, Key) {
        let marker: Key = format!("random/task {}", self.task).into_bytes().into();
        let mut transaction = Transaction::new();
        for _ in 0..self.rng.usize(..3) {
            let number = self.rng.usize(..self.keys);
            let added = match self.rng.u8(..5) {
                0 => transaction.absent(key(number)),
                1 => transaction.exists(key(number)),
                2 => {
                    let seen = self.get(number).await;
                    let value = seen.map_or(Value::from(&b""[..]), |row| row.value);
                    transaction.value_is(key(number), value)
                }
                _ => {
                    let seen = self.get(number).await;
                    transaction.unchanged(key(number), seen.as_ref())
                }
            };
            added.expect("it is far from the limits");
        }
        let writes = self.rng.usize(..4);
        for _ in 0..writes {
            let key = key(self.rng.usize(..self.keys));
            let is_written = transaction.writes().iter().any(|write| write.key() == &key);
            if is_written {
                continue;
            }
            let value = match self.rng.u8(..4) {
                0 => Vec::new(),
                1 => vec![0; self.rng.usize(..9)],
                _ => format!("{} {step}", self.task).into_bytes(),
            };
            let added = match self.rng.u8(..3) {
                0 => transaction.delete(key),
                _ => transaction.put(key, value),
            };
            added.expect("it is far from the limits");
        }
        if writes > 0 {
            let added = transaction.put(&marker, format!("{step}"));
            added.expect("it is far from the limits");
        }
        (transaction, marker)
    }
}

/// A shared key: some have zero bytes, some are each other's beginnings.
fn key(number: usize) -> Key {
    let mut key = b"random/".to_vec();
    match number % 3 {
        0 => key.extend(vec![0; number / 3 + 1]),
        1 => key.extend(vec![u8::MAX; number / 3 + 1]),
        _ => key.extend(format!("{number}").into_bytes()),
    }
    key.into()
}
