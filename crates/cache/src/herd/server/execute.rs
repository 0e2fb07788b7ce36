//! A request against the engine, and its answer.

use std::task::{Context, Poll};

use engine::{Answer, Ask, Asker, Command, Direction, Engine, Expiry, Mode};

use super::answers::{Range, To, status_of_answer, value_room, write_item, write_piece};
use super::attachment::{Attachment, Stored};
use super::items::{Item, Items};
use super::outbox::Outbox;
use super::outgoing::Outgoing;
use super::pending::{Asked, Form, NO_CLIENT, Pending, Promise};
use super::staging::{Staging, StagingError};
use super::{Cursor, ServerStats};
use crate::herd::wire::answer::{Head, Status};
use crate::herd::wire::request::{self, Op, Request, StoreMode, WANT_CAS};

/// All that the requests of a batch need.
pub(super) struct Execution<'a, E: Engine> {
    pub(super) engine: &'a mut E,
    pub(super) outbox: &'a mut Outbox,
    pub(super) staging: &'a mut Staging,
    pub(super) outgoing: &'a mut Outgoing,
    pub(super) pending: &'a mut Pending<E::Ticket>,
    pub(super) stats: &'a mut ServerStats,
    pub(super) cursors: &'a mut [Cursor],
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

    /// What an engine has said to a change.
    #[inline]
    fn of(answer: &Answer<'_>) -> Self {
        match *answer {
            Answer::Stored { cas } => Told {
                cas,
                ..Told::status(Status::Ok)
            },
            Answer::Number { value, cas } => Told {
                status: Status::Ok,
                cas,
                number: Some(value),
            },
            _ => Told::status(status_of_answer(answer)),
        }
    }
}

fn status_of_staging(error: StagingError) -> Status {
    match error {
        StagingError::Busy => Status::Busy,
        StagingError::NoTransfer => Status::NoTransfer,
        StagingError::TooLarge => Status::TooLarge,
        StagingError::Invalid => Status::Invalid,
    }
}

fn mode_of(mode: StoreMode) -> Mode {
    match mode {
        StoreMode::Set => Mode::Set,
        StoreMode::Add => Mode::Add,
        StoreMode::Replace => Mode::Replace,
        StoreMode::Append => Mode::Append,
        StoreMode::Prepend => Mode::Prepend,
        StoreMode::Cas(token) => Mode::Cas(token),
    }
}

impl<E: Engine> Execution<'_, E> {
    /// Carries out a request, or repeats its answer, and composes the answer.
    #[inline(always)]
    pub(super) fn run(&mut self, item: &Item<E::Probe>, items: &Items<E::Probe>) {
        // Most requests are plain GETs and SETs, which need not be taken apart by parts.
        if let Some(key) = item.short_get() {
            return self.read_short(item, key, item.wants_cas());
        }
        self.run_longer(item, items.bytes(item));
    }

    #[inline]
    fn run_longer(&mut self, item: &Item<E::Probe>, bytes: &[u8]) {
        let ours = item.sound && item.ours;
        if ours && item.op == Op::Get {
            let (key, header) = bytes.split_at(bytes.len() - request::HEADER_LEN);
            self.read(item, key, None, header[0] & WANT_CAS != 0);
        } else if ours
            && item.op == Op::Set
            && !item.replay
            && let Some(set) = request::parse_set(bytes)
        {
            let command = Command::Store {
                mode: Mode::Set,
                key: set.key,
                value: set.value.into(),
                flags: set.flags,
                expiry: self.expiry(set.expiry_s),
            };
            let ask = self.ask(item, command);
            let started = self
                .engine
                .start(&ask, item.probe, |answer| Told::of(&answer));
            match started {
                Ok(told) if told.status == Status::Ok && !set.wants_cas => self.tell_done(item),
                Ok(told) => self.tell(item, set.wants_cas, told),
                Err(ticket) => self.promise(item, set.wants_cas, Form::Change, &[], ticket),
            }
        } else {
            self.run_any(item, bytes);
        }
    }

    fn run_any(&mut self, item: &Item<E::Probe>, bytes: &[u8]) {
        let request = match Request::parse(bytes) {
            Ok(request) if item.sound => request,
            // Its client writes another request into the slot, so it has the answer.
            _ if item.replay => return,
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
        match request {
            Request::Command(request::Command::Get { key }) => {
                self.read(item, key, None, wants_cas);
            }
            Request::Command(request::Command::GetAndTouch { key, expiry_s }) => {
                let expiry = (!item.replay).then(|| self.expiry(expiry_s));
                self.read(item, key, expiry, wants_cas);
            }
            Request::GetRange {
                key,
                offset,
                len,
                cas,
            } => self.read_range(item, key, Range::new(offset, len, cas)),
            Request::Command(command) => match self.change(&command) {
                Some(command) => self.begin(item, wants_cas, Form::Change, command),
                None => self.tell(item, false, Told::status(Status::Invalid)),
            },
            Request::PutPart {
                transfer,
                offset,
                total,
                bytes,
            } => {
                let owner = (self.client(item).client, transfer);
                let put = self.staging.put(owner, offset, total, bytes, self.now_ns);
                let status = put.map_or_else(status_of_staging, |()| Status::Ok);
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
                let put = (mode, key, flags, expiry_s);
                self.commit(item, wants_cas, (transfer, total), put);
            }
            Request::Noop => self.tell(item, false, Told::status(Status::Ok)),
        }
    }

    /// Stores a large value whose pieces have come. Its buffer is free once it is stored, so that
    /// there are no more large values under way than buffers.
    fn commit(
        &mut self,
        item: &Item<E::Probe>,
        wants_cas: bool,
        (transfer, total): (u32, u32),
        (mode, key, flags, expiry_s): (StoreMode, &[u8], u32, u32),
    ) {
        let owner = (self.client(item).client, transfer);
        let expiry = self.expiry(expiry_s);
        let (now_s, connection) = (self.now_s, self.connection(item));
        let value = match self.staging.value(owner, total) {
            Ok(value) => value,
            Err(error) => {
                return self.tell(item, wants_cas, Told::status(status_of_staging(error)));
            }
        };
        let ask = Ask {
            now_s: now_s.into(),
            asker: Asker {
                connection,
                room: self.answer_len_max,
            },
            command: Command::Store {
                mode: mode_of(mode),
                key,
                value: value.into(),
                flags,
                expiry,
            },
        };
        let started = self
            .engine
            .start(&ask, item.probe, |answer| Told::of(&answer));
        match started {
            Ok(told) => {
                self.staging.release(owner);
                self.tell(item, wants_cas, told);
            }
            Err(ticket) => {
                let buffer = self.staging.lend(owner);
                self.promise(item, wants_cas, Form::Commit { buffer }, &[], ticket);
            }
        }
    }

    /// A change as the engine's command; none for a read.
    fn change<'c>(&self, command: &request::Command<'c>) -> Option<Command<'c>> {
        use request::Command as Wire;
        Some(match *command {
            Wire::Store {
                mode,
                key,
                value,
                flags,
                expiry_s,
            } => Command::Store {
                mode: mode_of(mode),
                key,
                value: value.into(),
                flags,
                expiry: self.expiry(expiry_s),
            },
            Wire::Delete { key } => Command::Delete { key },
            Wire::Touch { key, expiry_s } => Command::Touch {
                key,
                expiry: self.expiry(expiry_s),
            },
            Wire::Incr { key, delta } => Command::Arith {
                key,
                delta,
                direction: Direction::Up,
            },
            Wire::Decr { key, delta } => Command::Arith {
                key,
                delta,
                direction: Direction::Down,
            },
            Wire::Get { .. } | Wire::GetAndTouch { .. } => return None,
        })
    }

    #[inline]
    fn expiry(&self, expiry_s: u32) -> Expiry {
        Expiry::from_unix_s(self.dates.moment(expiry_s).into())
    }

    #[inline]
    pub(super) fn client(&mut self, item: &Item<E::Probe>) -> &mut Attachment {
        &mut self.clients[item.client as usize]
    }

    /// Who asks. An engine that does not want to know costs no look.
    #[inline(always)]
    fn connection(&self, item: &Item<E::Probe>) -> u64 {
        let client = self.clients.get(item.client as usize);
        client.map_or(u64::MAX, Attachment::connection)
    }

    /// A value that fits a datagram may wait for its turn; a longer one has memory when its turn has
    /// come, which is at once, because promises are looked at at once.
    #[inline(always)]
    pub(super) fn ask<'c>(&self, item: &Item<E::Probe>, command: Command<'c>) -> Ask<'c> {
        Ask {
            now_s: self.now_s.into(),
            asker: Asker {
                connection: self.connection(item),
                room: self.answer_len_max,
            },
            command,
        }
    }

    /// Begins a change, and answers it if that is all.
    fn begin(&mut self, item: &Item<E::Probe>, wants_cas: bool, form: Form, command: Command<'_>) {
        let ask = self.ask(item, command);
        let started = self
            .engine
            .start(&ask, item.probe, |answer| Told::of(&answer));
        match started {
            Ok(told) => self.tell(item, wants_cas, told),
            Err(ticket) => self.promise(item, wants_cas, form, &[], ticket),
        }
    }

    /// Sends a stored result again.
    fn repeat(&mut self, item: &Item<E::Probe>, op: Op) {
        let slot = self.client(item).geometry.slot(item.id);
        let stored = self.client(item).results[slot];
        if stored.head.id == item.id {
            self.send(item.client, &stored);
        } else if op == Op::Noop {
            // It took the place of a read that had been answered.
            let head = Head::bare(item.id, Status::Ok);
            self.outbox.push(item.client, &head, &[]);
        }
    }

    /// Answers a mutation and keeps the answer.
    #[inline]
    fn tell(&mut self, item: &Item<E::Probe>, wants_cas: bool, told: Told) {
        let stored = stored(item.id, wants_cas, told);
        if !item.replay {
            let client = self.client(item);
            let slot = client.geometry.slot(item.id);
            client.results[slot] = stored;
        }
        self.send(item.client, &stored);
    }

    /// As [`Execution::tell`], for a mutation that was carried out and is not a repeat: the usual
    /// answer.
    #[inline]
    fn tell_done(&mut self, item: &Item<E::Probe>) {
        let client = self.client(item);
        let slot = client.geometry.slot(item.id);
        client.results[slot] = Stored {
            head: Head::bare(item.id, Status::Ok),
            number: 0,
        };
        self.outbox.push_short(item.client, item.id, 0, &[]);
    }

    #[inline]
    fn send(&mut self, client: u32, stored: &Stored) {
        let number = stored.number.to_le_bytes();
        let body = if stored.head.is_number {
            &number[..]
        } else {
            &[]
        };
        self.outbox.push(client, &stored.head, body);
    }

    /// The usual read. It has a closure of its own, which only here is compiled into its caller.
    #[inline(always)]
    fn read_short(&mut self, item: &Item<E::Probe>, key: &[u8], wants_cas: bool) {
        let ask = self.ask(item, Command::Get { key, touch: None });
        let to = To {
            client: item.client,
            id: item.id,
        };
        let (outbox, answer_len_max) = (&mut *self.outbox, self.answer_len_max);
        let started = self.engine.start(&ask, item.probe, |answer| {
            write_item(outbox, to, wants_cas, answer_len_max, &answer);
        });
        if let Err(ticket) = started {
            let is_repeat = item.replay;
            self.promise(item, wants_cas, Form::Read { is_repeat }, key, ticket);
        }
    }

    /// Answers with the value, or its first piece.
    #[inline(never)]
    fn read(&mut self, item: &Item<E::Probe>, key: &[u8], touch: Option<Expiry>, wants_cas: bool) {
        let ask = self.ask(item, Command::Get { key, touch });
        let to = To {
            client: item.client,
            id: item.id,
        };
        let (outbox, answer_len_max) = (&mut *self.outbox, self.answer_len_max);
        let started = self.engine.start(&ask, item.probe, |answer| {
            write_item(outbox, to, wants_cas, answer_len_max, &answer);
        });
        if let Err(ticket) = started {
            let is_repeat = item.replay;
            self.promise(item, wants_cas, Form::Read { is_repeat }, key, ticket);
        }
    }

    /// Keeps a request whose answer is not at hand, and looks at its ticket: from then on the engine
    /// says when there is more to see. The request's repeats wait with it.
    pub(super) fn promise(
        &mut self,
        item: &Item<E::Probe>,
        wants_cas: bool,
        form: Form,
        key: &[u8],
        ticket: E::Ticket,
    ) {
        self.stats.waits += 1;
        let index = item.client as usize;
        let client = &mut self.clients[index];
        client.pending[client.geometry.slot(item.id)] = item.id;
        client.pending_count += 1;
        self.cursors[index].room = client.room();
        let asked = Asked {
            client: item.client,
            id: item.id,
            wants_cas,
            form,
        };
        let number = self.pending.add(Promise { ticket, asked }, key);
        self.look(number);
    }

    /// Ends a promise whose request has been answered. Whether the request still has its slot.
    fn end(&mut self, number: usize, asked: Asked) -> bool {
        self.pending.remove(number);
        let index = asked.client as usize;
        let client = &mut self.clients[index];
        client.pending_count -= 1;
        self.cursors[index].room = client.room();
        let slot = client.geometry.slot(asked.id);
        let has_slot = client.pending[slot] == asked.id;
        if has_slot {
            client.pending[slot] = 0;
        }
        has_slot
    }

    /// Answers a request if its ticket is ready. Whether it did; the caller has asked for room.
    pub(super) fn look(&mut self, number: usize) -> bool {
        let place = self.pending.place(number);
        let Some(promise) = &mut place.promise else {
            // Its client has gone, and this wake-up was on its way.
            return false;
        };
        let asked = promise.asked;
        if asked.client == NO_CLIENT {
            return self.look_for_nobody(number);
        }
        let (index, to) = (
            asked.client as usize,
            To {
                client: asked.client,
                id: asked.id,
            },
        );
        let ticket = &mut promise.ticket;
        let mut context = Context::from_waker(&place.waker);
        let (outbox, outgoing) = (&mut *self.outbox, &mut *self.outgoing);
        let whose = (self.clients[index].client, &place.key[..]);
        let (answer_len_max, now_ns) = (self.answer_len_max, self.now_ns);
        let room = value_room(answer_len_max);
        let told = match asked.form {
            Form::Read { is_repeat } => self.engine.fetch(ticket, &mut context, |answer| {
                write_item(outbox, to, asked.wants_cas, answer_len_max, &answer);
                // Whoever asks again may have got all pieces meanwhile.
                if let Answer::Item { value, flags, cas } = answer
                    && value.len() > room
                    && !is_repeat
                {
                    outgoing.keep(whose, (cas, flags, value), room, now_ns);
                }
                None
            }),
            Form::Range { range, has_place } => {
                let invalid = &mut self.stats.invalid;
                let fetched = self.engine.fetch(ticket, &mut context, |answer| {
                    let written = write_piece(outbox, to, range, answer_len_max, &answer);
                    *invalid += u64::from(!written);
                    if let Answer::Item { value, flags, cas } = answer
                        && has_place
                        && written
                        && cas == range.cas
                    {
                        outgoing.fill(whose, (cas, flags, value), range.bytes(), now_ns);
                    }
                    None
                });
                if has_place && fetched.is_ready() {
                    outgoing.give_up(whose);
                }
                fetched
            }
            Form::Change | Form::Commit { .. } => {
                self.engine
                    .fetch(ticket, &mut context, |answer| Some(Told::of(&answer)))
            }
        };
        let Poll::Ready(told) = told else {
            return false;
        };
        let has_slot = self.end(number, asked);
        let client = &mut self.clients[index];
        if let Form::Commit { buffer } = asked.form {
            self.staging.give_back(buffer);
        }
        if let Some(told) = told {
            let stored = stored(asked.id, asked.wants_cas, told);
            if has_slot {
                client.results[client.geometry.slot(asked.id)] = stored;
            }
            self.send(asked.client, &stored);
        }
        true
    }

    /// As [`Execution::look`], for a request whose client has gone.
    #[cold]
    fn look_for_nobody(&mut self, number: usize) -> bool {
        let place = self.pending.place(number);
        let Some(promise) = &mut place.promise else {
            return false;
        };
        let mut context = Context::from_waker(&place.waker);
        let fetched = (self.engine).fetch(&mut promise.ticket, &mut context, |_| ());
        if fetched.is_pending() {
            return false;
        }
        if let Form::Commit { buffer } = promise.asked.form {
            self.staging.give_back(buffer);
        }
        self.pending.remove(number);
        true
    }
}

fn stored(id: u32, wants_cas: bool, told: Told) -> Stored {
    Stored {
        head: Head {
            cas: wants_cas.then_some(told.cas),
            is_number: told.number.is_some(),
            ..Head::bare(id, told.status)
        },
        number: told.number.unwrap_or(0),
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
