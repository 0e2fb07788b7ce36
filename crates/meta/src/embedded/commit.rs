//! Group commit: what all cores want to commit at the moment becomes durable with one write.
//!
//! The order of revisions is the order in which transactions are taken from the queue. Each is compared
//! with what all before it leave, those of its own group included. Nobody sees or hears anything of a group
//! before its record is durable: neither its rows, nor a conflict with them.

use std::collections::VecDeque;
use std::sync::Arc;

use rt::cross::OneshotReceiver;

use super::checkpoint::{Checkpointer, Job};
use super::counters::Counters;
use super::journal::Journal;
use super::journal::record::{Composed, record_len, transaction_len};
use super::overlay::{Entry, Failure, Overlay, Rows};
use super::queue::{Answer, Command, Receiver};
use crate::{MetaError, Outcome, Transaction, Write};

/// Bytes of a group's transactions at most, unless a single one has more.
const GROUP_LEN_MAX: usize = 4 << 20;
/// Entries in memory that are enough to bring them to the database.
const ACTIVE_MAX: usize = 1 << 16;

/// The task that commits. It runs on a thread of its own, which drives the journal's disk.
pub(super) struct Committer {
    pub(super) journal: Journal,
    pub(super) overlay: Arc<Overlay>,
    pub(super) counters: Arc<Counters>,
    pub(super) checkpointer: Checkpointer,
    /// A checkpoint under way.
    pub(super) checkpoint: Option<OneshotReceiver<Result<(), MetaError>>>,
    /// What the database will say of itself once it has the frozen rows.
    pub(super) unapplied: Option<Ahead>,
}

/// How far the database will be.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    applied: u64,
    live: u64,
}

/// Transactions on their way to one record.
#[derive(Default)]
struct Group {
    /// What they write.
    rows: Rows,
    revision: u64,
    answers: Vec<(Answer<Outcome>, Result<Outcome, MetaError>)>,
}

impl Committer {
    /// Carries out commands until the queue is closed and empty, then brings all rows to the database.
    pub(super) async fn run(mut self, mut queue: Receiver) -> Result<(), MetaError> {
        let mut commands = VecDeque::new();
        let mut composed = Composed::new();
        loop {
            if commands.is_empty() && !queue.receive(&mut commands).await {
                break;
            }
            while let Some(Command::Checkpoint(_)) = commands.front() {
                if let Some(Command::Checkpoint(answer)) = commands.pop_front() {
                    answer.send(self.checkpoint_all().await);
                }
            }
            self.commit_some(&mut commands, &mut composed).await;
        }
        let result = self.checkpoint_all().await;
        self.checkpointer.end();
        result
    }

    /// Commits the first commands, as many as fit into a group.
    async fn commit_some(&mut self, commands: &mut VecDeque<Command>, composed: &mut Composed) {
        composed.clear();
        let mut group = Group {
            revision: self.overlay.layers().revision,
            ..Group::default()
        };
        let refusal = self.refusal();
        while let Some(Command::Commit(transaction, _)) = commands.front() {
            let len = composed.payload_len() + transaction_len(transaction.writes());
            let is_full = len > GROUP_LEN_MAX || record_len(len) > self.journal.record_len_max();
            if is_full && composed.count() > 0 {
                break;
            }
            let Some(Command::Commit(transaction, answer)) = commands.pop_front() else {
                unreachable!("it was looked at");
            };
            let result = match &refusal {
                Some(error) => Err(error.clone()),
                None => self.decide(&transaction, &mut group),
            };
            if matches!(result, Ok(Outcome::Committed(_))) && !transaction.is_read_only() {
                composed.add(transaction.writes());
            }
            group.answers.push((answer, result));
        }
        if composed.count() > 0 {
            self.make_durable(&mut group, composed).await;
        }
        self.finish(group);
    }

    /// Why nothing can be committed.
    fn refusal(&self) -> Option<MetaError> {
        let layers = self.overlay.layers();
        layers.failure.as_ref().map(|failure| MetaError::Refused {
            place: self.overlay.place().clone(),
            why: failure.why.clone(),
        })
    }

    /// Compares a transaction with what all before it leave, and notes what it writes.
    fn decide(&self, transaction: &Transaction, group: &mut Group) -> Result<Outcome, MetaError> {
        for compare in transaction.compares() {
            let row = match group.rows.get(compare.key()) {
                Some(entry) => entry.row(),
                None => self.overlay.get(compare.key())?,
            };
            if !compare.holds(row.as_ref()) {
                return Ok(Outcome::Conflict);
            }
        }
        if !transaction.is_read_only() {
            group.revision += 1;
        }
        for write in transaction.writes() {
            let entry = Entry {
                version: group.revision,
                value: write.value().cloned(),
            };
            group.rows.insert(write.key().clone(), entry);
        }
        Ok(Outcome::Committed(group.revision))
    }

    /// Writes the group's record. Changes the answers if that fails.
    async fn make_durable(&mut self, group: &mut Group, composed: &Composed) {
        if let Err(error) = self.make_room(composed.len()).await {
            // Nothing was written, and what was compared with the group's rows has no ground.
            let answers = group.answers.iter_mut();
            answers.for_each(|(_, result)| *result = Err(error.clone()));
            group.rows.clear();
            return;
        }
        let first = group.revision + 1 - u64::from(composed.count());
        let result = self.journal.append(composed, first).await;
        self.counters.groups.add(1);
        self.counters.journal_bytes.add(composed.len() as u64);
        let Err(error) = result else {
            return;
        };
        let why: Arc<str> = error.to_string().into();
        tracing::error!(place = %self.overlay.place(), %why, "metadata takes no more commits");
        let answers = group.answers.iter_mut();
        let undecided = answers.filter(|(_, result)| result.is_ok());
        undecided.for_each(|(_, result)| *result = Ok(Outcome::Unknown));
        let keys = std::mem::take(&mut group.rows).into_keys().collect();
        self.overlay.layers_mut().failure = Some(Failure { why, keys });
    }

    /// Lets everybody see a group's rows, then answers.
    fn finish(&self, group: Group) {
        if !group.rows.is_empty() {
            let mut layers = self.overlay.layers_mut();
            layers.revision = group.revision;
            layers.active.extend(group.rows);
        }
        for (answer, result) in group.answers {
            let count = match &result {
                Ok(Outcome::Committed(_)) => &self.counters.committed,
                Ok(Outcome::Conflict) => &self.counters.conflicts,
                Ok(Outcome::Unknown) | Err(_) => &self.counters.failed,
            };
            count.add(1);
            answer.send(result);
        }
    }

    /// Sees to it that a record of this length fits.
    async fn make_room(&mut self, len: usize) -> Result<(), MetaError> {
        let is_idle = self.checkpoint.is_none() && self.unapplied.is_none();
        let has_enough = || self.overlay.layers().active.len() >= ACTIVE_MAX;
        if self.journal.fits(len) && !(is_idle && has_enough()) {
            self.look_at_checkpoint();
            return Ok(());
        }
        if self.checkpoint.is_some() {
            self.counters.stalls.add(1);
        }
        self.end_checkpoint().await?;
        self.begin_checkpoint();
        Ok(())
    }

    /// Brings all rows to the database.
    async fn checkpoint_all(&mut self) -> Result<(), MetaError> {
        if let Some(error) = self.refusal() {
            // What the journal holds is open, and recovery decides it: the database must not go ahead.
            return Err(error);
        }
        self.end_checkpoint().await?;
        if self.overlay.layers().active.is_empty() {
            return Ok(());
        }
        self.begin_checkpoint();
        self.end_checkpoint().await
    }

    /// Takes the rows of this epoch out of use, begins the next one, and has them brought to the database.
    fn begin_checkpoint(&mut self) {
        let mut layers = self.overlay.layers_mut();
        layers.frozen = Some(Arc::new(std::mem::take(&mut layers.active)));
        let applied = layers.revision;
        drop(layers);
        let live = self.journal.epoch() + 1;
        self.journal.start(live);
        self.unapplied = Some(Ahead { applied, live });
        self.checkpoint = self.bring_frozen();
    }

    /// Has the frozen rows brought to the database, if there are any.
    fn bring_frozen(&self) -> Option<OneshotReceiver<Result<(), MetaError>>> {
        let Ahead { applied, live } = self.unapplied?;
        let rows = self.overlay.layers().frozen.clone()?;
        let job = Job {
            rows,
            applied,
            live,
        };
        Some(self.checkpointer.begin(job))
    }

    /// Waits until no rows are on their way to the database. Tries once more if the last attempt failed.
    async fn end_checkpoint(&mut self) -> Result<(), MetaError> {
        if let Some(under_way) = self.checkpoint.take()
            && self.ended(under_way.await).is_ok()
        {
            return Ok(());
        }
        match self.bring_frozen() {
            Some(under_way) => {
                let result = under_way.await;
                self.ended(result)
            }
            None => Ok(()),
        }
    }

    /// Notes how a checkpoint has ended.
    fn ended(&mut self, result: Option<Result<(), MetaError>>) -> Result<(), MetaError> {
        let result = result.unwrap_or_else(|| {
            Err(MetaError::Refused {
                place: self.overlay.place().clone(),
                why: "the thread that writes rows has died".into(),
            })
        });
        match &result {
            Ok(()) => self.unapplied = None,
            Err(error) => {
                tracing::warn!(%error, "metadata's rows stay in the journal until they can be brought to the database");
            }
        }
        result
    }

    /// Forgets a checkpoint that has succeeded meanwhile.
    fn look_at_checkpoint(&mut self) {
        if self.checkpoint.is_some() && self.overlay.layers().frozen.is_none() {
            self.checkpoint = None;
            self.unapplied = None;
        }
    }
}

/// The rows that recovered transactions leave, and the last revision.
pub(super) fn replay(rows: &mut Rows, revision: &mut u64, transactions: Vec<Vec<Write>>) {
    for writes in transactions {
        *revision += 1;
        for write in writes {
            let (key, value) = match write {
                Write::Put(key, value) => (key, Some(value)),
                Write::Delete(key) => (key, None),
            };
            let version = *revision;
            rows.insert(key, Entry { version, value });
        }
    }
}
