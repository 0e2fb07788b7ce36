//! The writer's task: composes frames, has them written, and answers in order.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use block::{BlockError, Buf, Durable};
use rt::JoinHandle;

use super::Appended;
use super::frame::{Composed, Part, Plan};
use super::state::{Asked, Shared};
use crate::error::{ExtentError, StreamError};
use crate::extents::Appending;
use crate::streams::{Held, start_of};

/// Frames under way at most; what is asked for meanwhile gathers, and makes the next frame longer.
const FLIGHTS_MAX: usize = 16;

/// An extent in which so many frames were to be durable by themselves is followed by one that is prepared for that.
const DURABLE_MANY: u32 = 16;

/// The end of what a flush waits for, while its frames go to another extent.
const ELSEWHERE: u32 = u32::MAX;

/// The state of the task.
pub(super) struct Driver {
    pub(super) shared: Rc<Shared>,
    pub(super) held: Held,
    /// Frames under way, in the order of their places.
    pub(super) flights: VecDeque<Flight>,
    /// Frames to be written anew, before anything else.
    pub(super) redo: VecDeque<Composed>,
    /// Written, and not acknowledged yet, in order.
    pub(super) unacknowledged: VecDeque<Pending>,
    /// Flushes that were asked for.
    pub(super) flushes: VecDeque<Pending>,
    /// A flush under way, and how far everything had been written when it began.
    pub(super) flushing: Option<Flushing>,
    /// The end of the last frame under way.
    pub(super) issued: u32,
    /// Everything up to here was written.
    pub(super) written: u32,
    /// Everything up to here survives the loss of power.
    pub(super) durable: u32,
    /// The end of the last frame under way that only a flush makes durable.
    pub(super) volatile: u32,
    /// Frames of this extent that were to be durable by themselves.
    pub(super) durable_frames: u32,
    /// Why this extent takes no more.
    pub(super) turn: Option<Turn>,
    /// Errors of the device since the last frame that was written.
    pub(super) errors_in_a_row: u32,
    /// The next extent, handed out ahead.
    pub(super) next: Option<JoinHandle<Result<Held, StreamError>>>,
    /// The same, when it is there and not needed yet.
    pub(super) ready: Option<Held>,
    /// Why what was written is in doubt, if it is.
    pub(super) doubt: Option<BlockError>,
    /// Extents that are being sealed.
    pub(super) sealing: Vec<(Held, JoinHandle<Result<(), StreamError>>)>,
    /// Whoever closes the writer.
    pub(super) closing: Option<usize>,
    /// The last group of which a record was refused or has failed, and why.
    pub(super) refused: Option<(u64, StreamError)>,
    /// Lists of records, to be used again.
    spare: Vec<Vec<Part>>,
}

/// A flush under way.
pub(super) type Flushing = Pin<Box<dyn Future<Output = Result<u32, ExtentError>>>>;

/// Why the writer goes on in another extent.
#[derive(Clone, Debug)]
pub(super) enum Turn {
    /// There is no room in this one.
    Full,
    /// The device has failed.
    Failed,
}

/// A frame under way.
pub(super) struct Flight {
    append: Appending,
    frame: Composed,
    page: u32,
    is_durable: bool,
}

/// Somebody who waits until everything up to a page is written, or durable.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) slot: usize,
    pub(super) end: u32,
    pub(super) is_durable: bool,
    pub(super) group: Option<u64>,
    pub(super) appended: Appended,
}

/// What has happened.
enum Event {
    Landed(Result<(), ExtentError>, Buf),
    Flushed(Result<u32, ExtentError>),
    /// Something was asked for, or everybody has gone.
    Asked,
}

impl Driver {
    pub(super) fn new(shared: Rc<Shared>, first: Held) -> Self {
        Self {
            shared,
            held: first,
            flights: VecDeque::with_capacity(FLIGHTS_MAX),
            redo: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            flushes: VecDeque::new(),
            flushing: None,
            issued: 0,
            written: 0,
            durable: 0,
            volatile: 0,
            durable_frames: 0,
            turn: None,
            errors_in_a_row: 0,
            next: None,
            ready: None,
            doubt: None,
            sealing: Vec::new(),
            closing: None,
            refused: None,
            spare: Vec::new(),
        }
    }

    /// Runs until all writers have gone and everything is done, or one has closed the stream.
    pub(super) async fn run(mut self) {
        loop {
            if self.turn.is_some() && self.is_landed() && self.has_work() {
                self.go_on_elsewhere().await;
            }
            let issued = self.issued;
            self.issue();
            if self.issued > issued {
                // Others compute meanwhile what goes with the next frame.
                self.held.server.disk().begin();
            }
            self.acknowledge();
            self.flush_if_needed();
            if self.is_idle() {
                if let Some(slot) = self.closing.take() {
                    return self.close(slot).await;
                }
                if self.shared.state.borrow().is_left {
                    return self.leave().await;
                }
            }
            match self.event().await {
                Event::Landed(result, buf) => self.landed(result, buf).await,
                Event::Flushed(result) => self.flushed(result),
                Event::Asked => {}
            }
        }
    }

    /// Whether nothing is under way on the device.
    fn is_landed(&self) -> bool {
        self.flights.is_empty() && self.flushing.is_none()
    }

    /// Whether something waits to be written, or to become durable.
    fn has_work(&self) -> bool {
        !self.redo.is_empty()
            || !self.unacknowledged.is_empty()
            || !self.flushes.is_empty()
            || self.closing.is_some()
            || !self.shared.state.borrow().asked.is_empty()
    }

    fn is_idle(&self) -> bool {
        let is_answered = self.unacknowledged.is_empty() && self.flushes.is_empty();
        // What is asked for behind the end is refused.
        let is_asked = self.closing.is_none() && !self.shared.state.borrow().asked.is_empty();
        self.is_landed() && self.redo.is_empty() && is_answered && !is_asked
    }

    /// Whether another frame may be begun.
    fn is_open(&self) -> bool {
        self.turn.is_none() && self.flights.len() < FLIGHTS_MAX && self.closing.is_none()
    }

    /// Begins frames of what was asked for, as long as there may be more under way.
    fn issue(&mut self) {
        let shared = self.shared.clone();
        while self.is_open() {
            if let Some(frame) = self.redo.pop_front() {
                self.write(frame);
                continue;
            }
            self.carry_flushes();
            self.refuse_rest();
            let mut state = shared.state.borrow_mut();
            match state.asked.front() {
                None => return,
                Some(Asked::Append { .. }) => {}
                Some(&Asked::Flush { slot }) => {
                    state.asked.pop_front();
                    self.flushes.push_back(self.pending(slot));
                    continue;
                }
                Some(&Asked::Close { slot }) => {
                    state.asked.pop_front();
                    self.closing = Some(slot);
                    return;
                }
            }
            let room = self.held.server.segment_pages() - self.issued;
            let plan = Plan::of(&state.asked).within(room, &state.asked);
            if plan.is_empty() {
                self.turn = Some(Turn::Full);
                return;
            }
            let spare = self.spare.pop().unwrap_or_default();
            let frame = plan.compose(&mut state.asked, self.held.server.disk(), spare);
            drop(state);
            self.write(frame);
        }
    }

    /// Refuses what was asked for together with a record that was refused.
    fn refuse_rest(&self) {
        let Some((refused, error)) = &self.refused else {
            return;
        };
        loop {
            let mut state = self.shared.state.borrow_mut();
            match state.asked.front() {
                Some(Asked::Append {
                    group: Some(group), ..
                }) if group == refused => {}
                _ => return,
            }
            let asked = state.asked.pop_front().expect("it was seen");
            drop(state);
            self.shared.answer(asked.slot(), Err(error.clone()));
        }
    }

    /// Takes note of a record that was refused, or has failed. Those behind it are not written, whatever became of it.
    pub(super) fn note_refused(&mut self, group: Option<u64>, error: &StreamError) {
        let Some(group) = group else {
            return;
        };
        let error = match error.clone() {
            StreamError::NotDurable { stream, source, .. } => {
                StreamError::NotWritten { stream, source }
            }
            error => error,
        };
        self.refused = Some((group, error));
    }

    /// Refuses records of a group of which one has failed, in frames that were to be written anew. Others' records stay in
    /// these frames.
    pub(super) fn refuse_redo(&mut self) {
        let Some((refused, error)) = &self.refused else {
            return;
        };
        let is_of_it = |part: &&Part| part.group == Some(*refused);
        for frame in std::mem::take(&mut self.redo) {
            if !frame.records.iter().any(|part| is_of_it(&part)) {
                self.redo.push_back(frame);
                continue;
            }
            for part in frame.records.iter().filter(is_of_it) {
                self.shared.answer(part.slot, Err(error.clone()));
            }
            let rest = frame.without(*refused, self.held.server.disk());
            self.redo.extend(rest);
        }
    }

    /// What is to be flushed together with frames that have gone to this extent ends where they do.
    fn carry_flushes(&mut self) {
        let issued = self.issued;
        let carried = self
            .flushes
            .iter_mut()
            .filter(|flush| flush.end == ELSEWHERE);
        carried.for_each(|flush| flush.end = issued);
    }

    /// Begins a frame. It was seen to that it has room.
    fn write(&mut self, mut frame: Composed) {
        let Shared { stream, epoch, .. } = *self.shared;
        let page = self.issued;
        // Durable by itself only if nothing before it has to be flushed.
        let is_durable = frame.is_durable && self.volatile <= self.durable;
        let durable = if is_durable {
            Durable::Yes
        } else {
            Durable::No
        };
        let buf = frame.stamp(&self.held, page, epoch, stream, self.durable);
        self.issued += frame.pages();
        if is_durable {
            self.durable_frames += 1;
        } else {
            self.volatile = self.issued;
        }
        let Held { server, place, .. } = &self.held;
        let append = server.append(*place, epoch, page, buf, durable);
        self.flights.push_back(Flight {
            append,
            frame,
            page,
            is_durable,
        });
        if self.next.is_none() && self.issued >= self.held.server.segment_pages() / 2 {
            let server = self.shared.server.clone();
            let is_prepared = self.durable_frames >= DURABLE_MANY;
            let ahead = async move {
                let next = server.new_extent(stream, epoch).await?;
                if is_prepared {
                    next.server.prepare(next.place).await;
                }
                Ok::<_, StreamError>(next)
            };
            self.next = Some(self.shared.server.core().spawn(ahead));
        }
    }

    /// Waits until the first frame or the flush ends, or something is asked for that may begin.
    async fn event(&mut self) -> Event {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Some(first) = self.flights.front_mut()
            && let Poll::Ready((result, buf)) = Pin::new(&mut first.append).poll(cx)
        {
            return Poll::Ready(Event::Landed(result, buf));
        }
        if let Some(flushing) = &mut self.flushing
            && let Poll::Ready(result) = flushing.as_mut().poll(cx)
        {
            self.flushing = None;
            return Poll::Ready(Event::Flushed(result));
        }
        let is_open = self.is_open();
        let mut state = self.shared.state.borrow_mut();
        let is_asked = is_open && !state.asked.is_empty();
        let has_turned = self.turn.is_some() && self.flights.is_empty() && self.flushing.is_none();
        let is_over = state.is_left && self.flights.is_empty() && self.flushing.is_none();
        if is_asked || (has_turned && !state.asked.is_empty()) || is_over {
            return Poll::Ready(Event::Asked);
        }
        state.task = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The first frame under way has ended.
    async fn landed(&mut self, result: Result<(), ExtentError>, buf: Buf) {
        let Some(mut flight) = self.flights.pop_front() else {
            return;
        };
        let error = match result {
            Ok(()) => return self.has_written(flight),
            Err(error) => error,
        };
        flight.frame.give_back(buf);
        // Those behind it are lost to this extent as well, whatever becomes of them: they go where it goes.
        let mut failed = vec![flight.frame];
        while let Some(mut flight) = self.flights.pop_front() {
            let (_, buf) = (&mut flight.append).await;
            flight.frame.give_back(buf);
            failed.push(flight.frame);
        }
        self.issued = self.written;
        for flush in &mut self.flushes {
            if flush.end > self.written {
                flush.end = ELSEWHERE;
            }
        }
        failed.extend(self.redo.drain(..));
        self.redo.extend(failed);
        self.errors_in_a_row += 1;
        self.turn = Some(Turn::Failed);
        tracing::warn!(stream = self.shared.stream.0, %error, "an append has failed");
        if matches!(error, ExtentError::Fenced { .. }) || self.errors_in_a_row > 1 {
            self.fail_redo(&self.told(error));
        }
    }

    fn has_written(&mut self, mut flight: Flight) {
        self.errors_in_a_row = 0;
        self.written = flight.page + flight.frame.pages();
        // All before it are: otherwise a flush would be needed.
        if flight.is_durable && self.durable >= flight.page {
            self.durable = self.written;
        }
        for part in &flight.frame.records {
            self.unacknowledged.push_back(Pending {
                slot: part.slot,
                end: self.written,
                is_durable: part.is_durable,
                group: part.group,
                appended: flight.frame.appended(part, self.held.number, flight.page),
            });
        }
        self.spare.push(std::mem::take(&mut flight.frame.records));
    }

    fn flushed(&mut self, result: Result<u32, ExtentError>) {
        match result {
            Ok(durable) => self.durable = durable.max(self.durable),
            Err(error) => {
                tracing::warn!(stream = self.shared.stream.0, %error, "a flush has failed");
                self.turn = Some(Turn::Failed);
                self.doubt(error);
            }
        }
    }

    /// Answers what is written, and durable if that was asked for: in order.
    pub(super) fn acknowledge(&mut self) {
        while let Some(first) = self.unacknowledged.front()
            && (!first.is_durable || self.durable >= first.end)
        {
            let Pending { slot, appended, .. } = *first;
            self.unacknowledged.pop_front();
            self.shared.state.borrow_mut().end = appended.end;
            self.shared.answer(slot, Ok(appended));
        }
        while let Some(first) = self.flushes.front()
            && self.durable >= first.end
        {
            let Pending { slot, appended, .. } = *first;
            self.flushes.pop_front();
            self.shared.answer(slot, Ok(appended));
        }
    }

    /// Begins a flush if somebody waits for one that can bring it.
    fn flush_if_needed(&mut self) {
        if self.flushing.is_some() || self.turn.is_some() {
            return;
        }
        let first = self.unacknowledged.front();
        let first = first
            .filter(|first| first.is_durable)
            .map(|first| first.end);
        let flush = self.flushes.front().map(|first| first.end);
        let mut wanted = [first, flush].into_iter().flatten();
        if wanted.any(|end| end <= self.written && end > self.durable) {
            let Held { server, place, .. } = self.held.clone();
            let epoch = self.shared.epoch;
            self.flushing = Some(Box::pin(async move { server.flush(place, epoch).await }));
        }
    }

    /// Somebody who waits until all that is under way is durable.
    fn pending(&self, slot: usize) -> Pending {
        let at = start_of(self.held.number).plus(self.issued);
        Pending {
            slot,
            end: self.issued,
            is_durable: true,
            group: None,
            appended: Appended {
                at,
                frame: at,
                end: at,
            },
        }
    }

    /// An extent's error, as the stream's.
    pub(super) fn told(&self, error: ExtentError) -> StreamError {
        let stream = self.shared.stream;
        match error {
            ExtentError::Fenced { epoch, by, .. } => StreamError::Fenced { stream, epoch, by },
            error => error.into(),
        }
    }

    /// A flush has failed: tells all who wait for what is written to become durable.
    pub(super) fn doubt(&mut self, error: ExtentError) {
        self.count_doubt();
        let error = match error {
            ExtentError::Device(source) => {
                self.doubt = Some(source.clone());
                self.not_durable(source)
            }
            error => self.told(error),
        };
        self.fail_durable(&error);
    }

    /// What was written and not flushed may be lost: whoever looks later sees it by the count.
    pub(super) fn count_doubt(&self) {
        let mut state = self.shared.state.borrow_mut();
        state.doubts = state.doubts.wrapping_add(1);
    }

    /// What is written and not known to be durable, and why.
    pub(super) fn not_durable(&self, source: BlockError) -> StreamError {
        StreamError::NotDurable {
            stream: self.shared.stream,
            from: start_of(self.held.number).plus(self.durable),
            to: start_of(self.held.number).plus(self.written),
            source,
        }
    }

    /// Tells all whose frames were to be written anew.
    pub(super) fn fail_redo(&mut self, error: &StreamError) {
        for frame in std::mem::take(&mut self.redo) {
            for part in &frame.records {
                self.note_refused(part.group, error);
                self.shared.answer(part.slot, Err(error.clone()));
            }
        }
        for flush in std::mem::take(&mut self.flushes) {
            if flush.end == ELSEWHERE {
                self.shared.answer(flush.slot, Err(error.clone()));
            } else {
                self.flushes.push_back(flush);
            }
        }
    }

    /// Tells all who wait for what is written to become durable.
    pub(super) fn fail_durable(&mut self, error: &StreamError) {
        for pending in std::mem::take(&mut self.unacknowledged) {
            let is_durable = !pending.is_durable || self.durable >= pending.end;
            let refused = self.refused.as_ref().map(|(group, _)| *group);
            let answer = if is_durable && (pending.group.is_none() || pending.group != refused) {
                Ok(pending.appended)
            } else {
                self.note_refused(pending.group, error);
                Err(error.clone())
            };
            self.shared.state.borrow_mut().end = pending.appended.end;
            self.shared.answer(pending.slot, answer);
        }
        for flush in std::mem::take(&mut self.flushes) {
            if flush.end == ELSEWHERE {
                self.flushes.push_back(flush);
            } else {
                self.shared.answer(flush.slot, Err(error.clone()));
            }
        }
    }
}

impl Drop for Driver {
    /// Whatever ends the task, nobody waits for ever.
    fn drop(&mut self) {
        let closed = StreamError::Closed {
            stream: self.shared.stream,
        };
        while let Some(flight) = self.flights.pop_front() {
            self.redo.push_back(flight.frame);
        }
        self.fail_redo(&closed);
        self.fail_durable(&closed);
        if let Some(slot) = self.closing.take() {
            self.shared.answer(slot, Err(closed.clone()));
        }
        self.shared.end(closed);
    }
}
