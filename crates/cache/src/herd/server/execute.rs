//! A request against the partition, and its answer.

use super::ServerStats;
use super::attachment::{Attachment, Stored};
use super::items::{Item, Items};
use super::outbox::Outbox;
use super::staging::{Staging, StagingError};
use crate::herd::wire::answer::{CAS_LEN, HEADER_LEN, Head, Status};
use crate::herd::wire::request::{self, Command, Op, Request, StoreMode, WANT_CAS};
use crate::mica::{Arith, NewValue, Partition, Probe, Store, StoreError};

/// All that the requests of a batch need.
pub(super) struct Execution<'a> {
    pub(super) partition: &'a mut Partition,
    pub(super) outbox: &'a mut Outbox,
    pub(super) staging: &'a mut Staging,
    pub(super) stats: &'a mut ServerStats,
    pub(super) clients: &'a mut [Attachment],
    pub(super) answer_len_max: usize,
    pub(super) now_ns: u64,
    pub(super) now_s: u32,
    pub(super) dates: Dates,
}

/// How far clients' dates are ahead of the time that the server is told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dates {
    pub(super) ahead_s: i64,
}

impl Dates {
    /// The moment of a client's expiry on the server's scale; 0 is never.
    #[inline]
    fn moment(self, expiry_s: u32) -> u32 {
        if self.ahead_s == 0 || expiry_s == 0 {
            return expiry_s;
        }
        let moment_s = i64::from(expiry_s).saturating_sub(self.ahead_s);
        moment_s.clamp(1, u32::MAX.into()) as u32
    }
}

/// What a mutation leaves to be told.
#[derive(Clone, Copy)]
struct Told {
    status: Status,
    cas: u64,
    number: Option<u64>,
}

impl Told {
    fn status(status: Status) -> Self {
        Told {
            status,
            cas: 0,
            number: None,
        }
    }
}

impl Execution<'_> {
    /// Carries out a request, or repeats its answer, and composes the answer.
    #[inline(always)]
    pub(super) fn run(&mut self, item: &Item, number: usize, items: &Items) {
        // Most requests are plain GETs and SETs, which need not be taken apart by parts.
        let ours = item.sound && item.ours;
        if ours && let Some(key) = item.short_get() {
            return self.read(item, key, None, item.wants_cas());
        }
        self.run_longer(item, items.bytes(number, item), ours);
    }

    #[inline]
    fn run_longer(&mut self, item: &Item, bytes: &[u8], ours: bool) {
        if ours && item.op == Op::Get {
            let (key, header) = bytes.split_at(bytes.len() - request::HEADER_LEN);
            self.read(item, key, None, header[0] & WANT_CAS != 0);
        } else if ours
            && item.op == Op::Set
            && !item.replay
            && let Some(set) = request::parse_set(bytes)
        {
            let value = NewValue {
                bytes: set.value,
                flags: set.flags,
                expiry_s: self.dates.moment(set.expiry_s),
            };
            let stored = self.partition.set(item.probe, set.key, value, self.now_s);
            if matches!(stored, Ok(Store::Stored { .. })) && !set.wants_cas {
                return self.tell_done(item);
            }
            self.tell(item, set.wants_cas, told_of_store(stored));
        } else {
            self.run_any(item, bytes);
        }
    }

    fn run_any(&mut self, item: &Item, bytes: &[u8]) {
        let request = match Request::parse(bytes) {
            Ok(request) if item.sound => request,
            _ => {
                self.stats.invalid += 1;
                return self.tell(item, false, Told::status(Status::Invalid));
            }
        };
        let wants_cas = Request::wants_cas(bytes);
        if item.replay && !request.op().is_read() {
            return self.repeat(item, request.op());
        }
        if item.op.has_key() && !item.ours {
            self.stats.wrong_core += 1;
            return self.tell(item, false, Told::status(Status::WrongCore));
        }
        let probe = item.probe;
        match request {
            Request::Command(Command::Get { key }) => {
                self.read(item, key, None, wants_cas);
            }
            Request::Command(Command::GetAndTouch { key, expiry_s }) => {
                let expiry_s = (!item.replay).then_some(self.dates.moment(expiry_s));
                self.read(item, key, expiry_s, wants_cas);
            }
            Request::GetRange {
                key,
                offset,
                len,
                cas,
            } => self.read_range(item, key, (offset, len), cas),
            Request::Command(command) => {
                let told = mutate(self.partition, probe, &command, self.now_s, self.dates);
                self.tell(item, wants_cas, told);
            }
            Request::PutPart {
                transfer,
                offset,
                total,
                bytes,
            } => {
                let owner = (self.client(item).client, transfer);
                let put = self.staging.put(owner, offset, total, bytes, self.now_ns);
                let status = put.map_or_else(status_of, |()| Status::Ok);
                self.tell(item, false, Told::status(status));
            }
            Request::PutCommit {
                mode,
                key,
                transfer,
                total,
                flags,
                expiry_s,
            } => {
                let owner = (self.client(item).client, transfer);
                let told = match self.staging.value(owner, total) {
                    Ok(value) => {
                        let command = Command::Store {
                            mode,
                            key,
                            value,
                            flags,
                            expiry_s,
                        };
                        let told = mutate(self.partition, probe, &command, self.now_s, self.dates);
                        self.staging.release(owner);
                        told
                    }
                    Err(error) => Told::status(status_of(error)),
                };
                self.tell(item, wants_cas, told);
            }
            Request::Noop => self.tell(item, false, Told::status(Status::Ok)),
        }
    }

    #[inline]
    fn client(&mut self, item: &Item) -> &mut Attachment {
        &mut self.clients[item.client as usize]
    }

    /// Sends a stored result again.
    fn repeat(&mut self, item: &Item, op: Op) {
        let slot = self.client(item).geometry.slot(item.id);
        let stored = self.client(item).results[slot];
        if stored.head.id == item.id {
            self.send(item, &stored);
        } else if op == Op::Noop {
            // It took the place of a read that had been answered.
            let head = Head::bare(item.id, Status::Ok);
            self.outbox.push(item.client, &head, &[]);
        }
    }

    /// Answers a mutation and keeps the answer.
    #[inline]
    fn tell(&mut self, item: &Item, wants_cas: bool, told: Told) {
        let stored = Stored {
            head: Head {
                cas: wants_cas.then_some(told.cas),
                is_number: told.number.is_some(),
                ..Head::bare(item.id, told.status)
            },
            number: told.number.unwrap_or(0),
        };
        if !item.replay {
            let client = self.client(item);
            let slot = client.geometry.slot(item.id);
            client.results[slot] = stored;
        }
        self.send(item, &stored);
    }

    /// As [`Execution::tell`], for a mutation that was carried out and is not a repeat: the usual
    /// answer.
    #[inline]
    fn tell_done(&mut self, item: &Item) {
        let client = self.client(item);
        let slot = client.geometry.slot(item.id);
        client.results[slot] = Stored {
            head: Head::bare(item.id, Status::Ok),
            number: 0,
        };
        self.outbox.push_short(item, 0, &[]);
    }

    #[inline]
    fn send(&mut self, item: &Item, stored: &Stored) {
        let number = stored.number.to_le_bytes();
        let body = if stored.head.is_number {
            &number[..]
        } else {
            &[]
        };
        self.outbox.push(item.client, &stored.head, body);
    }

    /// Answers with the value, or its first piece.
    #[inline(always)]
    fn read(&mut self, item: &Item, key: &[u8], expiry_s: Option<u32>, wants_cas: bool) {
        let found = match expiry_s {
            Some(expiry_s) => self
                .partition
                .get_and_touch(item.probe, key, expiry_s, self.now_s),
            None => self.partition.get(item.probe, key, self.now_s),
        };
        let Some(found) = found else {
            let head = Head::bare(item.id, Status::NotFound);
            return self.outbox.push(item.client, &head, &[]);
        };
        if !wants_cas && self.outbox.push_short(item, found.flags, found.value) {
            return;
        }
        let room = self.answer_len_max - HEADER_LEN - CAS_LEN;
        let whole = found.value.len() <= room;
        let head = Head {
            id: item.id,
            status: if whole { Status::Ok } else { Status::Partial },
            item_flags: found.flags,
            total_len: found.value.len() as u32,
            cas: (wants_cas || !whole).then_some(found.cas),
            is_number: false,
        };
        let body = &found.value[..room.min(found.value.len())];
        self.outbox.push(item.client, &head, body);
    }

    fn read_range(&mut self, item: &Item, key: &[u8], (offset, len): (u32, u32), cas: u64) {
        let bare = |status| Head::bare(item.id, status);
        let Some(found) = self.partition.get(item.probe, key, self.now_s) else {
            let head = bare(Status::NotFound);
            return self.outbox.push(item.client, &head, &[]);
        };
        if found.cas != cas {
            let head = bare(Status::Changed);
            return self.outbox.push(item.client, &head, &[]);
        }
        let room = self.answer_len_max - HEADER_LEN - CAS_LEN;
        let piece = found
            .value
            .get(offset as usize..)
            .and_then(|rest| rest.get(..len as usize))
            .filter(|piece| piece.len() <= room);
        match piece {
            Some(piece) => {
                let head = Head {
                    item_flags: found.flags,
                    total_len: found.value.len() as u32,
                    ..bare(Status::Ok)
                };
                self.outbox.push(item.client, &head, piece);
            }
            None => {
                self.stats.invalid += 1;
                let head = bare(Status::Invalid);
                self.outbox.push(item.client, &head, &[]);
            }
        }
    }
}

fn status_of(error: StagingError) -> Status {
    match error {
        StagingError::Busy => Status::Busy,
        StagingError::NoTransfer => Status::NoTransfer,
        StagingError::TooLarge => Status::TooLarge,
        StagingError::Invalid => Status::Invalid,
    }
}

#[inline]
fn mutate(
    partition: &mut Partition,
    probe: Probe,
    command: &Command<'_>,
    now_s: u32,
    dates: Dates,
) -> Told {
    match *command {
        Command::Store {
            mode,
            key,
            value,
            flags,
            expiry_s,
        } => {
            let new = NewValue {
                bytes: value,
                flags,
                expiry_s: dates.moment(expiry_s),
            };
            told_of_store(match mode {
                StoreMode::Set => partition.set(probe, key, new, now_s),
                StoreMode::Add => partition.add(probe, key, new, now_s),
                StoreMode::Replace => partition.replace(probe, key, new, now_s),
                StoreMode::Append => partition.append(probe, key, value, now_s),
                StoreMode::Prepend => partition.prepend(probe, key, value, now_s),
                StoreMode::Cas(cas) => partition.cas(probe, key, new, cas, now_s),
            })
        }
        Command::Delete { key } => told_of_bool(partition.delete(probe, key, now_s)),
        Command::Touch { key, expiry_s } => {
            told_of_bool(partition.touch(probe, key, dates.moment(expiry_s), now_s))
        }
        Command::Incr { key, delta } => told_of_arith(partition.incr(probe, key, delta, now_s)),
        Command::Decr { key, delta } => told_of_arith(partition.decr(probe, key, delta, now_s)),
        // Reads are carried out where their value goes.
        Command::Get { .. } | Command::GetAndTouch { .. } => Told::status(Status::Invalid),
    }
}

fn told_of_store(result: Result<Store, StoreError>) -> Told {
    match result {
        Ok(Store::Stored { cas }) => Told {
            cas,
            ..Told::status(Status::Ok)
        },
        Ok(Store::NotStored) => Told::status(Status::NotStored),
        Ok(Store::Exists) => Told::status(Status::Exists),
        Ok(Store::NotFound) => Told::status(Status::NotFound),
        Err(error) => Told::status(status_of_error(&error)),
    }
}

fn told_of_arith(result: Result<Arith, StoreError>) -> Told {
    match result {
        Ok(Arith::Number { value, cas }) => Told {
            status: Status::Ok,
            cas,
            number: Some(value),
        },
        Ok(Arith::NotFound) => Told::status(Status::NotFound),
        Ok(Arith::NotANumber) => Told::status(Status::NotANumber),
        Err(error) => Told::status(status_of_error(&error)),
    }
}

fn told_of_bool(found: bool) -> Told {
    Told::status(if found { Status::Ok } else { Status::NotFound })
}

fn status_of_error(error: &StoreError) -> Status {
    match error {
        StoreError::TooLarge { .. } => Status::TooLarge,
        StoreError::KeyLength { .. } => Status::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_brought_onto_the_servers_scale() {
        let none = Dates::default();
        let ahead = Dates { ahead_s: 3600 };
        let behind = Dates { ahead_s: -3600 };
        for dates in [none, ahead, behind] {
            assert_eq!(dates.moment(0), 0, "never stays never");
        }
        assert_eq!(none.moment(10_000), 10_000);
        assert_eq!(ahead.moment(10_000), 6400);
        assert_eq!(behind.moment(10_000), 13_600);
        // What has passed has passed, and does not become never.
        assert_eq!(ahead.moment(3600), 1);
        assert_eq!(ahead.moment(5), 1);
        assert_eq!(behind.moment(u32::MAX), u32::MAX);
    }
}
