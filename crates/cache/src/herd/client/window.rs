//! A client's side of one core: the window of requests under way.

use std::ops::Range;

use verbs::typed::{Batch, QueuePair, Uc, Ud};
use verbs::{PostReason, QpNum, RemoteAddr, SendFlags};

use super::slot::{FREE, NO_TRANSFER, Slot, State, Usual};
use super::source::Source;
use super::transfer::{Kind, Live, Phase, Transfer};
use super::{ClientConfig, ClientStats, Outcome};
use crate::herd::memory::Memory;
use crate::herd::slots::{GAP, Geometry, kick, next_id};
use crate::herd::wire::answer::{self, CAS_LEN, Head, Status};
use crate::herd::wire::request::{Command, HEADER_LEN, Header, Op, Plain, Request};

/// A completion is asked for this many times while the send queue fills once.
const SIGNALS_PER_QUEUE: u32 = 4;
/// Pauses between repeats double this many times.
const DOUBLINGS_MAX: u32 = 7;

/// What is to be sent again over another connection.
#[derive(Debug)]
pub(super) enum Again {
    /// A request, as it lay in its slot.
    Request {
        bytes: Vec<u8>,
        tag: u64,
        deadline_ns: u64,
    },
    /// A large value.
    Transfer(Transfer),
}

/// What a window is made of.
pub(super) struct WindowParts {
    pub(super) number: u16,
    pub(super) uc: QueuePair<Uc>,
    pub(super) ud: QueuePair<Ud>,
    pub(super) server_ud: QpNum,
    pub(super) server: Source,
    pub(super) chunk: RemoteAddr,
    pub(super) first_id: u32,
    pub(super) geometry: Geometry,
    pub(super) inline_max: usize,
    pub(super) send_wr_max: u32,
    pub(super) send_memory: Memory,
    pub(super) answer_len_max: usize,
    /// Bytes of a value at most that there can be.
    pub(super) value_len_max: usize,
    pub(super) idle_ns: u64,
}

/// One core's window.
#[derive(Debug)]
pub(super) struct Window {
    number: u16,
    uc: QueuePair<Uc>,
    /// Where answers come in; the completion queue's poller takes them.
    _ud: QueuePair<Ud>,
    /// That queue pair's number.
    pub(super) answer_qpn: QpNum,
    pub(super) server_ud: QpNum,
    pub(super) server: Source,
    chunk: RemoteAddr,
    geometry: Geometry,
    inline_max: usize,
    send_wr_max: u32,
    signal_every: u32,
    /// What was composed since the last post. Its kept bytes are the slots as composed, from which
    /// inlined requests are sent, and sent again.
    batch: Batch<Uc>,
    /// The same slots in registered memory, for requests that are too long for inlining.
    send_memory: Memory,
    answer_len_max: usize,
    value_len_max: usize,
    idle_ns: u64,
    slots: Vec<Slot>,
    /// The id of the next request, and of the next one to be posted.
    next: u32,
    unposted: u32,
    /// Until then the server is surely awake.
    awake_until_ns: u64,
    /// No slot has anything to do before.
    check_ns: u64,
    answered_ns: u64,
    /// Sends composed, those of them whose completions have come, and the next that asks for one.
    sends: u32,
    sends_done: u32,
    signal_at: u32,
    repeats_in_flight: u32,
    transfers: Vec<Transfer>,
    /// Transfers that are not over.
    live: Live,
    transfer_next: u32,
    /// Steps of transfers that have a slot, and the transfer whose turn it is to take the next step.
    steps: usize,
    step_next: usize,
}

impl Window {
    pub(super) fn new(parts: WindowParts, now_ns: u64) -> Self {
        let window = parts.geometry.window;
        Window {
            number: parts.number,
            batch: parts
                .uc
                .batch_with_kept(window, window * parts.geometry.slot_len),
            uc: parts.uc,
            answer_qpn: parts.ud.num(),
            _ud: parts.ud,
            server_ud: parts.server_ud,
            server: parts.server,
            chunk: parts.chunk,
            geometry: parts.geometry,
            inline_max: parts.inline_max,
            send_wr_max: parts.send_wr_max,
            signal_every: parts.send_wr_max / SIGNALS_PER_QUEUE,
            send_memory: parts.send_memory,
            answer_len_max: parts.answer_len_max,
            value_len_max: parts.value_len_max,
            idle_ns: parts.idle_ns,
            slots: vec![FREE; window],
            next: parts.first_id,
            unposted: parts.first_id,
            awake_until_ns: 0,
            check_ns: u64::MAX,
            answered_ns: now_ns,
            sends: 0,
            sends_done: 0,
            signal_at: parts.send_wr_max / SIGNALS_PER_QUEUE,
            repeats_in_flight: 0,
            transfers: Vec::new(),
            live: Live::default(),
            transfer_next: 1,
            steps: 0,
            step_next: 0,
        }
    }

    /// Whether a request travels in one slot.
    #[inline]
    fn fits(&self, request: &Request<'_>) -> bool {
        request.len() <= self.geometry.slot_len
    }

    /// Whether the next id's slot can be used.
    #[inline]
    fn has_room(&self) -> bool {
        self.slots[self.geometry.slot(self.next)].is_unused()
    }

    /// Whether a read may be submitted: any of those in the window may turn out to be of a large value, and
    /// those that have are no more than would fill it. They take no slot while the server has no room.
    #[inline(always)]
    fn takes_reads(&self) -> bool {
        self.live.gets < self.geometry.window
    }

    /// Takes a command; `None` when the window is full, `Some(false)` when its value needs a
    /// transfer.
    pub(super) fn submit(
        &mut self,
        command: &Command<'_>,
        want_cas: bool,
        tag: u64,
        deadline_ns: u64,
    ) -> Option<bool> {
        if let Some(plain) = Plain::of(command)
            && self.takes_plain(&plain)
        {
            let taken = self.submit_plain(&plain, want_cas, tag, deadline_ns);
            return taken.then_some(true);
        }
        let request = Request::Command(*command);
        if !self.fits(&request) {
            return Some(false);
        }
        if !self.has_room() || request.op().is_read() && !self.takes_reads() {
            return None;
        }
        self.compose(&request, want_cas, tag, deadline_ns, None);
        Some(true)
    }

    /// Whether a GET or a SET goes inline.
    #[inline(always)]
    pub(super) fn takes_plain(&self, plain: &Plain<'_>) -> bool {
        plain.len() <= self.inline_max
    }

    /// Takes a GET or a SET that goes inline; false when the window is full.
    #[inline(always)]
    pub(super) fn submit_plain(
        &mut self,
        plain: &Plain<'_>,
        want_cas: bool,
        tag: u64,
        deadline_ns: u64,
    ) -> bool {
        let (id, len) = (self.next, plain.len());
        let index = self.geometry.slot(id);
        if plain.op == Op::Get && !self.takes_reads() {
            return false;
        }
        let slot = &mut self.slots[index];
        if !slot.is_unused() {
            return false;
        }
        // The times are those of when it is posted, and what is of a transfer alone has no meaning.
        slot.tag = tag;
        slot.deadline_ns = deadline_ns;
        slot.id = id;
        slot.state = State::Queued;
        slot.op = plain.op;
        slot.usual = Usual::of(plain.op);
        slot.len = len as u16;
        slot.doublings = 0;
        slot.transfer = NO_TRANSFER;
        let count = self.count();
        let (bytes, remote) = self.place_of(index, len);
        match self.batch.push_write_kept_mut(remote, bytes, count) {
            Ok(bytes) => plain.emit((id, want_cas), bytes),
            Err(error) => debug_assert!(false, "a batch as large as the window: {error}"),
        }
        self.next = next_id(id);
        true
    }

    /// Puts a request into the next slot, which is free.
    fn compose(
        &mut self,
        request: &Request<'_>,
        want_cas: bool,
        tag: u64,
        deadline_ns: u64,
        step: Option<(u32, u16, (u32, u32))>,
    ) {
        let id = self.next;
        let index = self.geometry.slot(id);
        let len = request.emit(id, want_cas, self.memory_of(index));
        let len = len.expect("the lengths were checked");
        let (transfer, generation, piece) = step.unwrap_or((NO_TRANSFER, 0, (0, 0)));
        self.slots[index] = Slot {
            tag,
            deadline_ns,
            id,
            piece,
            state: State::Queued,
            op: request.op(),
            usual: match step {
                None => Usual::of(request.op()),
                Some(_) => Usual::No,
            },
            len: len as u16,
            transfer,
            generation,
            ..FREE
        };
        self.enqueue(index, len);
    }

    /// The memory of a slot.
    #[inline]
    fn memory_of(&mut self, index: usize) -> &mut [u8] {
        let at = index * self.geometry.slot_len;
        &mut self.batch.kept_mut()[at..at + self.geometry.slot_len]
    }

    /// Puts the request that was composed in the slot of the next id into the batch.
    fn enqueue(&mut self, index: usize, len: usize) {
        if len > self.inline_max {
            let (range, _) = self.place_of(index, len);
            let bytes = &self.batch.kept()[range.clone()];
            self.send_memory.write(range.start, bytes);
        }
        let count = self.count();
        let composed = self.push(index, len, None, count);
        debug_assert_eq!(composed, Ok(()), "a batch as large as the window");
        self.next = next_id(self.next);
    }

    /// Counts one more send: its number, and whether it is to complete.
    #[inline(always)]
    fn count(&mut self) -> (u64, SendFlags) {
        let number = self.sends.wrapping_add(1);
        let mut flags = SendFlags::empty();
        if number == self.signal_at {
            flags = SendFlags::SIGNALED;
            self.signal_at = number.wrapping_add(self.signal_every);
        }
        self.sends = number;
        (u64::from(self.number) << 48 | u64::from(number), flags)
    }

    /// Where the last bytes of a slot are here, and at the server.
    #[inline(always)]
    fn place_of(&self, index: usize, len: usize) -> (Range<usize>, RemoteAddr) {
        let end = (index + 1) * self.geometry.slot_len;
        let at = end - len;
        (at..end, self.chunk.offset((at + index * GAP) as u64))
    }

    /// Appends the request in a slot to the batch.
    fn push(
        &mut self,
        index: usize,
        len: usize,
        imm: Option<u32>,
        (wr_id, flags): (u64, SendFlags),
    ) -> Result<(), PostReason> {
        let (range, remote) = self.place_of(index, len);
        if len <= self.inline_max {
            return self
                .batch
                .push_write_kept(remote, imm, range, (wr_id, flags));
        }
        let sges = [self.send_memory.sge(range)];
        let draft = self.batch.write_from(remote, imm, &sges)?;
        draft.id(wr_id).flags(flags).commit_gathered();
        Ok(())
    }

    /// Starts to store a value that needs a transfer; `false` when there are too many.
    #[expect(clippy::too_many_arguments, reason = "one call, all of them needed")]
    pub(super) fn submit_put(
        &mut self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        want_cas: bool,
        tag: u64,
        deadline_ns: u64,
        transfers_max: usize,
    ) -> bool {
        if self.live.puts >= transfers_max {
            return false;
        }
        let transfer = self.new_transfer(kind);
        transfer.tag = tag;
        transfer.want_cas = want_cas;
        transfer.deadline_ns = deadline_ns;
        transfer.key.clear();
        transfer.key.extend_from_slice(key);
        transfer.value.clear();
        transfer.value.extend_from_slice(value);
        self.check_ns = self.check_ns.min(deadline_ns);
        true
    }

    /// Goes on with a transfer of an earlier connection.
    pub(super) fn resume(&mut self, mut old: Transfer) {
        old.clear_pause();
        let deadline_ns = old.deadline_ns;
        let transfer = self.new_transfer(old.kind);
        let (generation, number) = (transfer.generation, transfer.number);
        std::mem::swap(transfer, &mut old);
        transfer.generation = generation;
        transfer.restart(number);
        self.check_ns = self.check_ns.min(deadline_ns);
    }

    fn new_transfer(&mut self, kind: Kind) -> &mut Transfer {
        let number = self.transfer_next;
        self.transfer_next = number.wrapping_add(1);
        let over = |transfer: &Transfer| transfer.phase == Phase::Over;
        let index = self.transfers.iter().position(over).unwrap_or_else(|| {
            self.transfers.push(Transfer::unused());
            self.transfers.len() - 1
        });
        *self.live.of(kind) += 1;
        let transfer = &mut self.transfers[index];
        transfer.kind = kind;
        transfer.clear_pause();
        transfer.restart(number);
        transfer
    }

    /// Fills free slots with steps of transfers, which take turns. Half the window stays for others.
    #[inline]
    pub(super) fn pump(&mut self, now_ns: u64) {
        if self.live.all() == 0 {
            return;
        }
        let steps_max = (self.geometry.window / 2).max(1);
        // Of those for which the server had no room the oldest asks: they would get each other's.
        let asking = self.transfers.iter().enumerate();
        let asking = asking.filter(|(_, one)| one.phase == Phase::Pieces && one.asks);
        let oldest = asking.min_by_key(|(_, one)| one.deadline_ns);
        let asker = oldest.map(|(index, _)| index);
        let mut without = 0;
        while without < self.transfers.len() && self.steps < steps_max && self.has_room() {
            let index = self.step_next % self.transfers.len();
            self.step_next = index + 1;
            match self.take_step(index, asker == Some(index), now_ns) {
                true => without = 0,
                false => without += 1,
            }
        }
    }

    /// Composes a transfer's next step, if there is one now.
    fn take_step(&mut self, index: usize, may_ask: bool, now_ns: u64) -> bool {
        // Taken out, so that its bytes can be composed into a slot of this window.
        let mut transfer = std::mem::replace(&mut self.transfers[index], Transfer::unused());
        let piece_len_max = match transfer.kind {
            Kind::Get => self.answer_len_max - answer::HEADER_LEN - CAS_LEN,
            Kind::Put { .. } => self.geometry.slot_len - HEADER_LEN - Op::PutPart.extras_len(),
        };
        let (generation, deadline_ns) = (transfer.generation, transfer.deadline_ns);
        let step = transfer.step(now_ns, may_ask, piece_len_max);
        let has_step = step.is_some();
        if let Some(step) = step {
            let owner = (index as u32, generation, (step.offset, step.len));
            self.compose(&step.request, step.want_cas, 0, deadline_ns, Some(owner));
            self.steps += 1;
        }
        self.transfers[index] = transfer;
        has_step
    }

    /// Posts what was composed: one call for all of it.
    #[inline]
    pub(super) fn flush(&mut self, now_ns: u64, config: &ClientConfig, stats: &mut ClientStats) {
        let count = self.batch.len();
        // Without room in the send queue it waits for completions, which are taken before long.
        if count == 0 || self.sends.wrapping_sub(self.sends_done) > self.send_wr_max {
            return;
        }
        let kicks = self.idle_ns > 0 && now_ns >= self.awake_until_ns;
        if kicks {
            self.batch.set_imm(0, kick(self.unposted, false));
            stats.kicks += 1;
        }
        let retry_at_ns = now_ns + config.retry_ns;
        let mut check_ns = self.check_ns.min(retry_at_ns);
        let mut id = self.unposted;
        while id != self.next {
            // Slots beside each other. The id 0, which is skipped, would begin a run.
            let index = self.geometry.slot(id);
            let run = (self.next.wrapping_sub(id) as usize).min(self.geometry.window - index);
            for slot in &mut self.slots[index..][..run] {
                slot.state = State::Sent;
                slot.posted_ns = now_ns;
                slot.retry_at_ns = retry_at_ns;
                check_ns = check_ns.min(slot.deadline_ns);
            }
            id = id.wrapping_add(run as u32).max(1);
        }
        self.check_ns = check_ns;
        self.unposted = id;
        stats.posted += count as u64;
        if let Err(error) = self.uc.post(&mut self.batch) {
            // Those not posted are sent again like those that were lost.
            let lost = (count - error.index) as u32;
            stats.posted -= u64::from(lost);
            stats.kicks -= u64::from(kicks && error.index == 0);
            stats.post_errors += u64::from(lost);
            self.sends = self.sends.wrapping_sub(lost);
            self.signal_at = self.sends.wrapping_add(1);
        }
    }

    /// Sends one request again, as a kick.
    fn kick(&mut self, index: usize, stats: &mut ClientStats) {
        // Those that wait for room come first.
        let in_flight = self.sends.wrapping_sub(self.sends_done);
        if !self.batch.is_empty() || in_flight >= self.send_wr_max {
            return;
        }
        let slot = self.slots[index];
        let number = self.sends.wrapping_add(1);
        let wr_id = u64::from(self.number) << 48 | (index as u64 + 1) << 32 | u64::from(number);
        let (imm, flags) = (Some(kick(slot.id, true)), SendFlags::SIGNALED);
        let composed = self.push(index, usize::from(slot.len), imm, (wr_id, flags));
        debug_assert_eq!(composed, Ok(()), "the batch was empty");
        match self.uc.post(&mut self.batch) {
            Ok(()) => {
                self.slots[index].repeats_in_flight += 1;
                self.repeats_in_flight += 1;
                self.sends = number;
                self.signal_at = number.wrapping_add(self.signal_every);
                stats.kicks += 1;
                stats.repeats += 1;
            }
            Err(_) => stats.post_errors += 1,
        }
    }

    /// Takes a completion of a send.
    #[inline]
    pub(super) fn sent(&mut self, wr_id: u64) {
        self.sends_done = wr_id as u32;
        let repeat = (wr_id >> 32) as u16;
        if repeat > 0 {
            self.repeats_in_flight -= 1;
            self.slots[usize::from(repeat) - 1].repeats_in_flight -= 1;
        }
    }

    /// Whether completions of sends should be looked for.
    #[inline]
    pub(super) fn wants_completions(&self) -> bool {
        let posted = self.sends.wrapping_sub(self.batch.len() as u32);
        self.repeats_in_flight > 0 || posted.wrapping_sub(self.sends_done) >= self.signal_every
    }

    /// Takes an answer.
    #[inline(always)]
    pub(super) fn answer(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        stats: &mut ClientStats,
        sink: &mut impl FnMut(u64, Outcome<'_>),
    ) {
        // The usual one: that a GET or a SET is done.
        if let Some((id, flags, value)) = Head::parse_item(bytes) {
            let index = self.geometry.slot(id);
            let slot = &self.slots[index];
            if slot.id == id && slot.state == State::Sent && slot.usual != Usual::No {
                let (tag, cas) = (slot.tag, 0);
                let outcome = match slot.usual {
                    Usual::Get => Outcome::Value { value, flags, cas },
                    Usual::Set | Usual::No => Outcome::Done { cas },
                };
                self.take(index, now_ns, stats);
                return sink(tag, outcome);
            }
        }
        self.answer_any(bytes, now_ns, stats, sink);
    }

    /// Notes that a request has been answered.
    #[inline(always)]
    fn take(&mut self, index: usize, now_ns: u64, stats: &mut ClientStats) {
        let slot = &mut self.slots[index];
        slot.state = State::Free;
        self.answered_ns = now_ns;
        // The server has worked since the request was posted, so it does not sleep before that
        // moment plus its idle time; half of it allows for the way there.
        self.awake_until_ns = self.awake_until_ns.max(slot.posted_ns + self.idle_ns / 2);
        stats.answers += 1;
    }

    /// [`Window::answer`] for whatever answer it is.
    #[inline(never)]
    fn answer_any(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        stats: &mut ClientStats,
        sink: &mut impl FnMut(u64, Outcome<'_>),
    ) {
        let Some((head, body)) = Head::parse(bytes) else {
            stats.strays += 1;
            return;
        };
        let index = self.geometry.slot(head.id);
        let slot = self.slots[index];
        if slot.id != head.id || !matches!(slot.state, State::Sent | State::Abandoned) {
            stats.strays += 1;
            return;
        }
        self.take(index, now_ns, stats);
        self.steps -= usize::from(slot.transfer != NO_TRANSFER);
        if slot.state == State::Abandoned {
            return;
        }
        if slot.transfer != NO_TRANSFER {
            return self.answer_transfer(&slot, &head, body, now_ns, sink);
        }
        let outcome = match (head.status, slot.op) {
            (Status::Ok, Op::Get | Op::GetAndTouch) => Outcome::Value {
                value: body,
                flags: head.item_flags,
                cas: head.cas.unwrap_or(0),
            },
            (Status::Partial, Op::Get | Op::GetAndTouch) => {
                return self.start_get(&slot, &head, body, sink);
            }
            (Status::Ok, Op::Incr | Op::Decr) => match answer::number(body) {
                Some(value) => Outcome::Number {
                    value,
                    cas: head.cas.unwrap_or(0),
                },
                None => Outcome::Refused(Status::Invalid),
            },
            (Status::Ok, _) => Outcome::Done {
                cas: head.cas.unwrap_or(0),
            },
            (status, _) => Outcome::Refused(status),
        };
        sink(slot.tag, outcome);
    }

    /// Goes on with a GET that brought the first piece of a large value.
    fn start_get(
        &mut self,
        slot: &Slot,
        head: &Head,
        body: &[u8],
        sink: &mut impl FnMut(u64, Outcome<'_>),
    ) {
        let index = self.geometry.slot(slot.id);
        let slot_len = self.geometry.slot_len;
        let memory = &self.batch.kept()[index * slot_len..(index + 1) * slot_len];
        let Ok(Request::Command(command)) = Request::parse(memory) else {
            return sink(slot.tag, Outcome::Refused(Status::Invalid));
        };
        let key = command.key().to_vec();
        let value_len_max = self.value_len_max;
        let transfer = self.new_transfer(Kind::Get);
        transfer.tag = slot.tag;
        transfer.key = key;
        transfer.deadline_ns = slot.deadline_ns;
        if !transfer.first_piece(head, body, value_len_max) {
            transfer.phase = Phase::Over;
            self.live.gets -= 1;
            sink(slot.tag, Outcome::Refused(Status::Invalid));
        }
    }

    fn answer_transfer(
        &mut self,
        slot: &Slot,
        head: &Head,
        body: &[u8],
        now_ns: u64,
        sink: &mut impl FnMut(u64, Outcome<'_>),
    ) {
        let transfer = &mut self.transfers[slot.transfer as usize];
        if transfer.phase == Phase::Over || transfer.generation != slot.generation {
            return;
        }
        let number = self.transfer_next;
        self.transfer_next = number.wrapping_add(1);
        let (tag, kind) = (transfer.tag, transfer.kind);
        let value_len_max = self.value_len_max;
        if let Some(outcome) =
            transfer.answer(head, body, slot.piece, number, now_ns, value_len_max)
        {
            *self.live.of(kind) -= 1;
            sink(tag, outcome);
        }
    }

    /// Repeats what has waited long enough, and gives up what is past its deadline. Returns
    /// whether the connection seems lost.
    #[inline]
    pub(super) fn tick(
        &mut self,
        now_ns: u64,
        config: &ClientConfig,
        stats: &mut ClientStats,
        sink: &mut impl FnMut(u64, Outcome<'_>),
    ) -> bool {
        if now_ns < self.check_ns {
            return false;
        }
        // Whoever looks so late stood still itself and could not hear: silence counts from now on.
        if now_ns - self.check_ns > config.lost_ns / 2 {
            self.answered_ns = now_ns;
        }
        let mut check_ns = u64::MAX;
        let mut waiting_since_ns = u64::MAX;
        for transfer in &mut self.transfers {
            if transfer.phase == Phase::Over {
                continue;
            }
            if now_ns >= transfer.deadline_ns {
                transfer.phase = Phase::Over;
                *self.live.of(transfer.kind) -= 1;
                stats.timeouts += 1;
                sink(transfer.tag, Outcome::TimedOut);
            } else {
                check_ns = check_ns.min(transfer.deadline_ns);
            }
        }
        for index in 0..self.slots.len() {
            let slot = self.slots[index];
            if !matches!(slot.state, State::Sent | State::Abandoned) {
                continue;
            }
            waiting_since_ns = waiting_since_ns.min(slot.posted_ns);
            if slot.state == State::Sent && now_ns >= slot.deadline_ns {
                self.abandon(index);
                if slot.transfer == NO_TRANSFER {
                    stats.timeouts += 1;
                    sink(slot.tag, Outcome::TimedOut);
                }
            }
            if now_ns >= slot.retry_at_ns {
                self.kick(index, stats);
                let slot = &mut self.slots[index];
                slot.doublings = (slot.doublings + 1).min(DOUBLINGS_MAX as u16);
                slot.retry_at_ns = now_ns + (config.retry_ns << slot.doublings);
            }
            let slot = &self.slots[index];
            check_ns = check_ns.min(slot.retry_at_ns);
            if slot.state == State::Sent {
                check_ns = check_ns.min(slot.deadline_ns);
            }
        }
        self.check_ns = check_ns;
        let silent_since_ns = waiting_since_ns.max(self.answered_ns);
        waiting_since_ns != u64::MAX && now_ns.saturating_sub(silent_since_ns) > config.lost_ns
    }

    /// Replaces a request by one that does nothing: if the server has not come to it by the time
    /// this one arrives, it never will be carried out.
    fn abandon(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.state = State::Abandoned;
        slot.len = HEADER_LEN as u16;
        // Goes out at once, to come before the server does.
        slot.retry_at_ns = 0;
        let header = Header {
            op: Op::Noop as u8,
            key_len: 0,
            value_len: 0,
            id: slot.id,
        };
        let end = (index + 1) * self.geometry.slot_len;
        self.batch.kept_mut()[end - HEADER_LEN..end].copy_from_slice(&header.emit());
        // A repeat that the NIC has not read yet then carries old bytes before a header that
        // does not count them: the header is one word.
        self.send_memory.write(end - HEADER_LEN, &header.emit());
    }

    /// Requests and transfers that somebody waits for.
    pub(super) fn waiting(&self) -> usize {
        let single = |slot: &&Slot| {
            slot.transfer == NO_TRANSFER && matches!(slot.state, State::Queued | State::Sent)
        };
        self.slots.iter().filter(single).count() + self.live.all()
    }

    /// Ends the window: reads and what was never sent go again, other mutations are unknown.
    pub(super) fn close(mut self, again: &mut Vec<Again>, sink: &mut impl FnMut(u64, Outcome<'_>)) {
        // Oldest first: from the slot that would be used next, once around.
        let first = self.geometry.slot(self.next);
        for turn in 0..self.geometry.window {
            let slot = self.slots[(first + turn) % self.geometry.window];
            let waiting = matches!(slot.state, State::Queued | State::Sent);
            if !waiting || slot.transfer != NO_TRANSFER {
                continue;
            }
            // To the next server core a touch would be a new one, and undo what came in between.
            let changes_nothing = slot.op.is_read() && slot.op != Op::GetAndTouch;
            if slot.state == State::Queued || changes_nothing {
                let end = (self.geometry.slot(slot.id) + 1) * self.geometry.slot_len;
                again.push(Again::Request {
                    bytes: self.batch.kept()[end - usize::from(slot.len)..end].to_vec(),
                    tag: slot.tag,
                    deadline_ns: slot.deadline_ns,
                });
            } else {
                sink(slot.tag, Outcome::Unknown);
            }
        }
        for transfer in self.transfers.drain(..) {
            match transfer.phase {
                Phase::Over => {}
                Phase::Committing => sink(transfer.tag, Outcome::Unknown),
                _ => again.push(Again::Transfer(transfer)),
            }
        }
    }
}
