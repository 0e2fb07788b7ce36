//! One client's conversation, as a state machine without I/O.

use std::task::Context;

use engine::{Answer, Ask, Asker, Command, Expiry, Failure, Mode};
use memchr::memchr;

use crate::ahead;
use crate::reply::{self, Form};
use crate::sequence::{Sequence, empty};
use crate::text::{self, Line, Refusal, Store};
use crate::{Event, Host, Limits, VERSION};

/// First byte of a request of the binary protocol.
const BINARY_MAGIC: u8 = 0x80;

/// Longest line, in bytes before its line feed, of a command without a list of keys.
const LINE_SIZE_MAX: usize = 2048;

const BAD_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
const TOO_MANY_KEYS: &[u8] = b"CLIENT_ERROR too many keys\r\n";
const OUT_OF_MEMORY_READING: &[u8] = b"SERVER_ERROR out of memory reading request\r\n";

/// What a connection needs to go on. Whatever it is, the driver sends the output there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More input, behind what was not consumed; or, with answers in flight, the waker's call.
    Input,
    /// Room: the output must be sent before more requests are begun.
    Drain,
    /// An answer that the engine promised; the waker tells when.
    Wait,
    /// To be called again at once, after others had their turn.
    Yield,
    /// To be closed, once its output is sent.
    Close,
    /// To leave the protocol, once its output is sent: the driver takes the line with
    /// [`Connection::take_upgrade`], and with the socket the input that was not consumed.
    Upgrade,
}

/// How far a connection came with its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that are dealt with. The rest must be given again, more behind it.
    pub consumed: usize,
    /// What is needed to go on.
    pub step: Step,
}

enum State {
    /// Before the first byte, which tells the protocol.
    Fresh,
    /// At the start of a line.
    Line,
    /// Inside the line of a `get`: its next key is `left` bytes before the line's end.
    Keys {
        left: usize,
        cas: bool,
        touch: Option<Expiry>,
    },
    /// Inside a value that did not arrive in one piece with its line.
    Body(Body),
    /// Inside a value that nobody wants.
    Swallow { left: usize },
    /// After the last request.
    Closing,
    /// After the line by which the client leaves the protocol.
    Upgrading,
}

#[derive(Clone, Copy)]
struct Body {
    mode: Mode,
    flags: u32,
    expiry: Expiry,
    size: usize,
    noreply: bool,
}

/// A client's conversation with an engine whose promises are of type `T`.
///
/// The driver reads bytes into a buffer of its own and offers them with [`Connection::advance`],
/// which answers the requests in them, in their order, into the output. A value within one piece of
/// input goes from there to the engine; one that arrives in pieces is put together first, in memory
/// that grows with what arrived. Apart from growing buffers nothing is allocated.
///
/// Dropping a connection gives up the answers in flight.
pub struct Connection<T> {
    state: State,
    limits: Limits,
    /// What the engine knows it by.
    number: u64,
    sequence: Sequence<T>,
    /// Bytes of the unfinished line known to hold no line end.
    scanned: usize,
    /// The key and the value so far, in `State::Body`.
    key: Vec<u8>,
    body: Vec<u8>,
    upgrade: Option<Vec<u8>>,
}

impl<T> Connection<T> {
    /// A conversation in which nothing was said. Allocates nothing.
    ///
    /// # Panics
    /// If a limit is zero, under which no request could begin.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        limits.check();
        Self {
            state: State::Fresh,
            limits,
            number: 0,
            sequence: Sequence::new(limits.output_high_water, limits.room_min()),
            scanned: 0,
            key: Vec::new(),
            body: Vec::new(),
            upgrade: None,
        }
    }

    /// Gives the connection the number by which the engine knows it, where others share the engine.
    pub const fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    /// Changes the limits from here on; what was begun goes on.
    ///
    /// # Panics
    /// As [`Connection::new`].
    pub fn set_limits(&mut self, limits: Limits) {
        limits.check();
        self.limits = limits;
        self.sequence
            .set_room(limits.output_high_water, limits.room_min());
    }

    /// The bytes to send.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.sequence.output()
    }

    /// Drops the first `size` bytes of the output, which were sent.
    ///
    /// # Panics
    /// If the output has fewer bytes.
    pub fn consume_output(&mut self, size: usize) {
        self.sequence.consume_output(size);
    }

    /// Takes the output whole, and leaves an emptied `spare` for what follows. Copies nothing unless
    /// a part was consumed before.
    pub fn swap_output(&mut self, spare: Vec<u8>) -> Vec<u8> {
        self.sequence.swap_output(spare)
    }

    /// Answers that the engine promised and that are not there yet.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.sequence.in_flight()
    }

    /// Whether everything there is to say is in the output. Until then [`Connection::fetch_answers`]
    /// has more, now or when the waker is called: behind the last answer in flight, too, when the
    /// output was full.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.sequence.is_caught_up()
    }

    /// The memory of the connection's buffers, in bytes. Bounded by the limits and the largest item.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.sequence.memory() + self.key.capacity() + self.body.capacity()
    }

    /// Bytes that the engine may hold for answers in flight.
    #[must_use]
    pub const fn promised(&self) -> usize {
        self.sequence.promised()
    }

    /// Gives back the memory of buffers that are empty and larger than is usual, for a client that is
    /// waited for.
    pub fn shrink(&mut self) {
        self.sequence.shrink();
        if !matches!(self.state, State::Body(_)) {
            self.key = Vec::new();
            self.body = Vec::new();
        }
    }

    /// The arguments of the line by which the client left the protocol, once.
    pub const fn take_upgrade(&mut self) -> Option<Vec<u8>> {
        self.upgrade.take()
    }

    /// Fetches promised answers that are there, and has the context's waker called when the next
    /// one is. For a driver that waits for input meanwhile; it sends the output there is then.
    pub fn fetch_answers<E: Host<Ticket = T>>(
        &mut self,
        engine: &mut E,
        context: &mut Context<'_>,
    ) {
        // Whether the high-water mark was reached shows in the output.
        let _: bool = self.sequence.poll(engine, context, &self.limits);
    }

    /// Fetches promised answers that are there, then carries out the requests in `input` until it
    /// ends or a limit is reached.
    ///
    /// `now_s` is Unix time in seconds. The context's waker is called when an answer in flight is
    /// there; then, and after the output was sent, the driver calls again.
    pub fn advance<E: Host<Ticket = T>>(
        &mut self,
        engine: &mut E,
        now_s: u64,
        context: &mut Context<'_>,
        input: &[u8],
    ) -> Progress {
        if self.sequence.poll(engine, context, &self.limits) {
            return Progress {
                consumed: 0,
                step: Step::Drain,
            };
        }
        let mut call = Call {
            engine,
            now_s,
            ahead: 0,
            is_first: true,
            requests_left: self.limits.requests_at_once,
        };
        let mut consumed = 0;
        loop {
            match self.advance_once(&mut call, &input[consumed..]) {
                Ok(size) => {
                    consumed += size;
                    call.ahead = call.ahead.saturating_sub(size);
                }
                Err(Step::Wait) => {
                    // Answers promised in this call have not seen the waker yet.
                    let before = self.in_flight();
                    self.fetch_answers(&mut *call.engine, context);
                    if self.in_flight() == before {
                        let step = Step::Wait;
                        return Progress { consumed, step };
                    }
                }
                Err(step) => return Progress { consumed, step },
            }
        }
    }

    /// Takes one step in the input. Returns the bytes it consumed, or what is missing to take it.
    #[inline]
    fn advance_once<E: Host<Ticket = T>>(
        &mut self,
        call: &mut Call<'_, E>,
        input: &[u8],
    ) -> Result<usize, Step> {
        match self.state {
            State::Line => self.advance_line(call, input),
            State::Keys { left, cas, touch } => {
                let line = input.get(..left).ok_or(Step::Input)?;
                self.check_limits(call)?;
                Ok(self.serve_keys(call, line, trim_line_end(line), cas, touch))
            }
            State::Body(body) => self.advance_body(call, body, input),
            State::Swallow { left } => {
                let size = left.min(input.len());
                if size == left {
                    self.state = State::Line;
                } else if size == 0 {
                    return Err(Step::Input);
                } else {
                    self.state = State::Swallow { left: left - size };
                }
                Ok(size)
            }
            State::Fresh => {
                // A client of the binary protocol would wait for ever for the rest of an answer
                // that it could read, so it gets none.
                let first = *input.first().ok_or(Step::Input)?;
                self.state = if first == BINARY_MAGIC {
                    State::Closing
                } else {
                    State::Line
                };
                Ok(0)
            }
            State::Closing | State::Upgrading if self.in_flight() > 0 => Err(Step::Wait),
            State::Closing => Err(Step::Close),
            State::Upgrading => Err(Step::Upgrade),
        }
    }

    /// Whether a further request may begin.
    #[inline]
    fn check_limits<E>(&self, call: &Call<'_, E>) -> Result<(), Step> {
        if self.in_flight() < self.limits.in_flight_max
            && self.sequence.size() < self.limits.output_high_water
        {
            if call.requests_left == 0 {
                return Err(Step::Yield);
            }
            Ok(())
        } else if self.output().is_empty() {
            Err(Step::Wait)
        } else {
            Err(Step::Drain)
        }
    }

    fn advance_line<E: Host<Ticket = T>>(
        &mut self,
        call: &mut Call<'_, E>,
        input: &[u8],
    ) -> Result<usize, Step> {
        if input.is_empty() {
            return Err(Step::Input);
        }
        self.check_limits(call)?;
        // A driver that gives back less than it was left with is searched from the start again.
        let scanned = if self.scanned <= input.len() {
            self.scanned
        } else {
            0
        };
        let found = memchr(b'\n', &input[scanned..]).map(|at| scanned + at);
        let size = found.unwrap_or(input.len());
        if size > LINE_SIZE_MAX
            && let Some((event, refusal)) = self.refuse_line(input, size, found.is_some())
        {
            call.engine.note(event);
            self.sequence.write(|out| out.extend_from_slice(refusal));
            self.state = State::Closing;
            return Ok(input.len());
        }
        if found.is_none() {
            self.scanned = size;
            return Err(Step::Input);
        }
        self.scanned = 0;
        let (line, after) = input.split_at(size + 1);
        // Behind the first line may be its own value and nothing else, as most often it is.
        if call.ahead == 0 && !after.is_empty() && !(call.is_first && line.starts_with(b"set ")) {
            call.look_ahead(input);
        }
        call.is_first = false;
        match text::parse(trim_line_end(line)) {
            // A key and its space are two bytes, so that short lines need not be counted.
            Ok(Line::Get { keys, .. })
                if keys.len() / 2 >= self.limits.keys_max
                    && text::count_words(keys) > self.limits.keys_max =>
            {
                call.requests_left -= 1;
                call.engine.note(Event::TooManyKeys);
                self.sequence
                    .write(|out| out.extend_from_slice(TOO_MANY_KEYS));
                Ok(line.len())
            }
            Ok(Line::Get { keys, cas, touch }) => {
                let touch = touch.map(|expiry| call.expiry(expiry));
                Ok(self.serve_keys(call, line, keys, cas, touch))
            }
            Ok(Line::Store(store)) => {
                call.requests_left -= 1;
                Ok(line.len() + self.begin_store(call, &store, after))
            }
            Ok(command) => {
                call.requests_left -= 1;
                self.serve_command(call, command);
                Ok(line.len())
            }
            Err(Refusal {
                line: refusal,
                noreply,
            }) => {
                call.requests_left -= 1;
                if !noreply {
                    self.sequence.write(|out| out.extend_from_slice(refusal));
                }
                Ok(line.len())
            }
        }
    }

    /// Why a line of so many bytes, or more if it has no end yet, is not taken.
    fn refuse_line(&self, line: &[u8], size: usize, ends: bool) -> Option<(Event, &'static [u8])> {
        if !text::has_many_keys(line) || size > self.limits.line_size_max {
            Some((Event::LineTooLong, LINE_TOO_LONG))
        } else if size > self.limits.large_max && !ends {
            Some((Event::OutOfMemory, OUT_OF_MEMORY_READING))
        } else {
            None
        }
    }

    /// Serves the keys at the end of a line until a limit is reached. Returns how much of the line
    /// is dealt with.
    #[inline]
    fn serve_keys<E: Host<Ticket = T>>(
        &mut self,
        call: &mut Call<'_, E>,
        line: &[u8],
        keys: &[u8],
        cas: bool,
        touch: Option<Expiry>,
    ) -> usize {
        let line_end_size = line.len() - trim_line_end(line).len();
        let mut rest = keys;
        let mut keys_ahead = 0usize;
        loop {
            let (key, after) = text::next_word(rest);
            if key.is_empty() {
                self.sequence.end();
                self.state = State::Line;
                return line.len();
            }
            if self.check_limits(call).is_err() {
                let left = rest.len() + line_end_size;
                self.state = State::Keys { left, cas, touch };
                return line.len() - left;
            }
            if keys_ahead == 0 && !after.is_empty() {
                let keys = ahead::of_list(rest);
                call.engine.look_ahead(keys.as_slice());
                keys_ahead = keys.as_slice().len();
            }
            keys_ahead = keys_ahead.saturating_sub(1);
            call.requests_left -= 1;
            let command = Command::Get { key, touch };
            self.begin(call, command, Form::Value { cas }, key);
            rest = after;
        }
    }

    /// Begins a storage command with the input behind its line. Returns how much of that was
    /// dealt with.
    fn begin_store<E: Host<Ticket = T>>(
        &mut self,
        call: &mut Call<'_, E>,
        store: &Store<'_>,
        input: &[u8],
    ) -> usize {
        let &Store {
            mode,
            key,
            flags,
            expiry,
            size,
            noreply,
        } = store;
        // Two bytes of line end follow the value.
        let chunk_size = size + 2;
        let is_too_large = !call.engine.limits().allow(key.len(), size);
        if is_too_large || (size > self.limits.large_max && input.len() < chunk_size) {
            let (event, form) = if is_too_large {
                (Event::ValueTooLarge, Form::TooLarge)
            } else {
                (Event::OutOfMemory, Form::NoRoom)
            };
            call.engine.note(event);
            self.refuse_value(call, mode, key, noreply, form);
            self.state = State::Swallow { left: chunk_size };
            return 0;
        }
        let expiry = call.expiry(expiry);
        let body = Body {
            mode,
            flags,
            expiry,
            size,
            noreply,
        };
        if let Some(chunk) = input.get(..chunk_size) {
            self.store(call, body, key, chunk);
            chunk_size
        } else {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.body.clear();
            self.state = State::Body(body);
            0
        }
    }

    /// Answers a storage command whose value cannot be taken.
    fn refuse_value<E: Host<Ticket = T>>(
        &mut self,
        call: &mut Call<'_, E>,
        mode: Mode,
        key: &[u8],
        noreply: bool,
        form: Form,
    ) {
        let form = if noreply { Form::Silent } else { form };
        if mode == Mode::Set {
            // The client holds the item for overwritten: nobody may read the old value.
            self.begin(call, Command::Delete { key }, form, &[]);
        } else {
            self.sequence.write(|out| {
                let refusal = Answer::Failed(Failure::TooLarge);
                reply::write_answer(out, form, &[], refusal);
            });
        }
    }

    fn advance_body<E: Host<Ticket = T>>(
        &mut self,
        call: &mut Call<'_, E>,
        body: Body,
        input: &[u8],
    ) -> Result<usize, Step> {
        let chunk_size = body.size + 2;
        let missing = chunk_size - self.body.len();
        let size = missing.min(input.len());
        if size == 0 {
            return Err(Step::Input);
        }
        if self.body.capacity() - self.body.len() < size {
            if body.size > self.limits.large_max {
                // Memory has become short meanwhile.
                call.engine.note(Event::OutOfMemory);
                let key = std::mem::take(&mut self.key);
                self.body = Vec::new();
                self.refuse_value(call, body.mode, &key, body.noreply, Form::NoRoom);
                self.key = key;
                self.state = State::Swallow { left: missing };
                return Ok(0);
            }
            // Memory follows what arrived, not what was announced, and stops at what was announced.
            let capacity = (2 * (self.body.len() + size)).min(chunk_size);
            self.body.reserve_exact(capacity - self.body.len());
        }
        self.body.extend_from_slice(&input[..size]);
        if size == missing {
            let key = std::mem::take(&mut self.key);
            let mut chunk = std::mem::take(&mut self.body);
            self.state = State::Line;
            self.store(call, body, &key, &chunk);
            empty(&mut chunk);
            self.key = key;
            self.body = chunk;
        }
        Ok(size)
    }

    /// Stores a value that arrived whole, if its line end did.
    fn store<E: Host<Ticket = T>>(
        &mut self,
        call: &mut Call<'_, E>,
        body: Body,
        key: &[u8],
        chunk: &[u8],
    ) {
        let Body {
            mode,
            flags,
            expiry,
            noreply,
            ..
        } = body;
        if let Some(value) = chunk.strip_suffix(b"\r\n") {
            let command = Command::Store {
                mode,
                key,
                value: value.into(),
                flags,
                expiry,
            };
            self.begin(call, command, line_form(noreply), &[]);
        } else if !noreply {
            self.sequence.write(|out| out.extend_from_slice(BAD_CHUNK));
        }
    }

    /// Serves a command that is a line of its own, and no `get`.
    fn serve_command<E: Host<Ticket = T>>(&mut self, call: &mut Call<'_, E>, command: Line<'_>) {
        match command {
            Line::Delete { key, noreply } => {
                self.begin(call, Command::Delete { key }, line_form(noreply), &[]);
            }
            Line::Arith {
                key,
                delta,
                direction,
                noreply,
            } => {
                let command = Command::Arith {
                    key,
                    delta,
                    direction,
                };
                self.begin(call, command, line_form(noreply), &[]);
            }
            Line::Touch {
                key,
                expiry,
                noreply,
            } => {
                let expiry = call.expiry(expiry);
                self.begin(
                    call,
                    Command::Touch { key, expiry },
                    line_form(noreply),
                    &[],
                );
            }
            Line::FlushAll { delay, noreply } => {
                // At once means no moment: a core whose date is older would wait for it.
                let at_s = call.expiry(delay).unix_s().unwrap_or(0);
                self.begin(call, Command::FlushAll { at_s }, line_form(noreply), &[]);
            }
            Line::Stats { section } => self.serve_stats(call, section),
            Line::Version => {
                self.sequence.write(|out| {
                    for part in ["VERSION ", VERSION, "\r\n"] {
                        out.extend_from_slice(part.as_bytes());
                    }
                });
            }
            // What is logged is the operator's to say, not a client's.
            Line::Verbosity { noreply: false } => {
                self.sequence.write(|out| out.extend_from_slice(b"OK\r\n"));
            }
            Line::Verbosity { noreply: true } => {}
            Line::Quit => self.state = State::Closing,
            Line::Upgrade { arguments } => {
                let arguments = arguments.strip_prefix(b" ").unwrap_or(arguments);
                if call.engine.allows_upgrade(arguments) {
                    self.upgrade = Some(arguments.to_vec());
                    self.state = State::Upgrading;
                } else {
                    self.sequence
                        .write(|out| out.extend_from_slice(text::UNKNOWN));
                }
            }
            Line::Get { .. } | Line::Store(_) => {
                unreachable!("served where the rest of their input is")
            }
        }
    }

    fn serve_stats<E: Host<Ticket = T>>(&mut self, call: &mut Call<'_, E>, section: &[u8]) {
        match std::str::from_utf8(section) {
            Ok("reset") => self.begin(call, Command::ResetStats, Form::Reset, &[]),
            Ok(section) => self.begin(call, Command::Stats { section }, Form::Stats, &[]),
            Err(_) => self
                .sequence
                .write(|out| out.extend_from_slice(text::UNKNOWN)),
        }
    }

    /// Hands a command to the engine, and its answer, or the place for it, to the sequence.
    #[inline]
    fn begin<E: Host<Ticket = T>>(
        &mut self,
        call: &mut Call<'_, E>,
        command: Command<'_>,
        form: Form,
        key: &[u8],
    ) {
        let large_max = self.limits.large_max;
        let ask = Ask {
            now_s: call.now_s,
            asker: Asker {
                connection: self.number,
                room: self.sequence.room(),
            },
            command,
        };
        let probe = command.key().map(|key| call.engine.probe(key));
        let started = self.sequence.write(|out| {
            let write = |answer: Answer<'_>| {
                reply::write_answer(out, form, key, reply::up_to(answer, large_max))
            };
            call.engine.start(&ask, probe.unwrap_or_default(), write)
        });
        match started {
            Ok(None) => {}
            Ok(Some(failure)) => {
                if reply::note(call.engine, form, failure) {
                    self.sequence.fail(failure);
                }
            }
            Err(ticket) => {
                let bytes = command.value().map_or(0, |value| value.len());
                self.sequence.wait(ticket, form, key, bytes);
            }
        }
    }
}

/// The engine, and what belongs to one call.
struct Call<'e, E> {
    engine: &'e mut E,
    now_s: u64,
    /// Bytes of input, from the next one to be dealt with on, whose keys the engine was told.
    ahead: usize,
    /// Nothing was dealt with yet.
    is_first: bool,
    /// Requests until others have their turn.
    requests_left: usize,
}

impl<E: Host> Call<'_, E> {
    /// Reads a client's number.
    fn expiry(&self, number: i64) -> Expiry {
        Expiry::resolve_with(number, self.now_s, |date_s| self.engine.moment_s(date_s))
    }

    /// Tells the engine the keys of the requests that come first in the input.
    fn look_ahead(&mut self, input: &[u8]) {
        let (keys, size) = ahead::of_lines(input);
        // A single request would only wait for its memory here instead of there.
        if keys.as_slice().len() > 1 {
            self.engine.look_ahead(keys.as_slice());
        }
        self.ahead = size;
    }
}

const fn line_form(noreply: bool) -> Form {
    if noreply { Form::Silent } else { Form::Line }
}

/// A line without its line end: a line feed, and a carriage return before it.
fn trim_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
