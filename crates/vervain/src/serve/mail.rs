//! What cores send each other: requests for keys that live elsewhere, their answers, and clients
//! that come and go.
//!
//! A request's bytes travel in a buffer that comes back with the answer and is used again, so that
//! nothing is allocated once there are enough of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use cache::herd::Attachment;
use cache::mica::KeyHash;
use memcache::{Reply, Request};
use rt::cross::{ChannelSender, TrySendError};
use rt::sync::Notify;
use slab::Slab;

/// Messages on their way to one core at most; more wait at their sender.
pub(super) const MAIL_MAX: usize = 4096;
/// Buffers kept for the next requests.
const BUFFERS_KEPT: usize = 1024;
/// Larger buffers are given back.
const BUFFER_KEPT_LEN: usize = 64 << 10;

/// A message to a core.
pub(super) enum Mail {
    /// Do this, and answer.
    Errand(Errand),
    /// The answer.
    Answer(Answer),
    /// A HERD client has come.
    Attach(Box<Attachment>),
    /// A HERD client has gone.
    Detach(u32),
    /// Start counting anew.
    ResetStats,
}

/// A request for a key of the core it is sent to.
pub(super) struct Errand {
    pub(super) from: usize,
    token: usize,
    pub(super) hash: KeyHash,
    shape: Request<'static>,
    key_len: usize,
    /// The key, then the value.
    bytes: Vec<u8>,
}

/// An answer, owned.
pub(super) struct Answer {
    token: usize,
    /// The value's place is taken by `bytes`.
    shape: Reply<'static>,
    bytes: Vec<u8>,
}

impl Errand {
    /// The request, borrowed from the buffer.
    pub(super) fn request(&self) -> Request<'_> {
        let (key, value) = self.bytes.split_at(self.key_len);
        self.shape.with_bytes(key, value)
    }

    /// Makes the answer of a copy of `reply`, in a buffer of the core that answers.
    pub(super) fn answer(token: usize, reply: Reply<'_>, mut bytes: Vec<u8>) -> Answer {
        bytes.clear();
        if let Reply::Value { value, .. } = reply {
            bytes.extend_from_slice(value);
        }
        let shape = reply.with_bytes(b"");
        Answer {
            token,
            shape,
            bytes,
        }
    }

    pub(super) fn token(&self) -> usize {
        self.token
    }

    /// The buffer, for use again.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Answer {
    fn reply(&self) -> Reply<'_> {
        self.shape.with_bytes(&self.bytes)
    }
}

/// An errand under way. A flush is one errand to each other core.
struct Pending {
    missing: usize,
    answer: Option<Answer>,
    waker: Option<Waker>,
    given_up: bool,
}

/// A core's side of the mail.
pub(super) struct Post {
    pub(super) core: usize,
    to: Vec<ChannelSender<Mail>>,
    /// What did not fit into a channel, in order, by core.
    waiting: RefCell<Vec<VecDeque<Mail>>>,
    waiting_count: Cell<usize>,
    has_waiting: Notify,
    pending: RefCell<Slab<Pending>>,
    buffers: RefCell<Vec<Vec<u8>>>,
}

impl Post {
    pub(super) fn new(core: usize, to: Vec<ChannelSender<Mail>>) -> Self {
        let waiting = to.iter().map(|_| VecDeque::new()).collect();
        Post {
            core,
            to,
            waiting: RefCell::new(waiting),
            waiting_count: Cell::new(0),
            has_waiting: Notify::new(),
            pending: RefCell::new(Slab::new()),
            buffers: RefCell::new(Vec::new()),
        }
    }

    pub(super) fn cores(&self) -> usize {
        self.to.len()
    }

    /// Sends a message, behind those that wait already.
    pub(super) fn send(&self, core: usize, mail: Mail) {
        let mut waiting = self.waiting.borrow_mut();
        let queue = &mut waiting[core];
        if queue.is_empty() {
            match self.to[core].try_send(mail) {
                Ok(()) => return,
                Err(TrySendError::Full(mail)) => queue.push_back(mail),
                // The core has ended, and with it this process.
                Err(_) => return,
            }
        } else {
            queue.push_back(mail);
        }
        self.waiting_count.set(self.waiting_count.get() + 1);
        self.has_waiting.notify_one();
    }

    /// Sends what waits, as channels get room. Runs for ever.
    pub(super) async fn send_waiting(&self, core: &rt::Handle) {
        loop {
            if self.waiting_count.get() == 0 {
                self.has_waiting.notified().await;
                continue;
            }
            for (to, queue) in self.to.iter().zip(self.waiting.borrow_mut().iter_mut()) {
                while let Some(mail) = queue.pop_front() {
                    match to.try_send(mail) {
                        Ok(()) => self.waiting_count.set(self.waiting_count.get() - 1),
                        Err(TrySendError::Full(mail)) => {
                            queue.push_front(mail);
                            break;
                        }
                        Err(_) => self.waiting_count.set(self.waiting_count.get() - 1),
                    }
                }
            }
            core.yield_now().await;
        }
    }

    /// A buffer for bytes to send.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a buffer for next time.
    pub(super) fn keep(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < BUFFERS_KEPT && buffer.capacity() <= BUFFER_KEPT_LEN {
            buffers.push(buffer);
        }
    }

    /// Sends a request to these cores; the ticket waits for all their answers.
    pub(super) fn ask(
        &self,
        cores: impl Iterator<Item = usize> + Clone,
        hash: KeyHash,
        request: &Request<'_>,
    ) -> usize {
        let token = self.pending.borrow_mut().insert(Pending {
            missing: cores.clone().count(),
            answer: None,
            waker: None,
            given_up: false,
        });
        for core in cores {
            let mut bytes = self.buffer();
            bytes.clear();
            let key = request.key().unwrap_or_default();
            bytes.extend_from_slice(key);
            if let Request::Store { value, .. } = request {
                bytes.extend_from_slice(value);
            }
            let errand = Errand {
                from: self.core,
                token,
                hash,
                shape: request.with_bytes(b"", b""),
                key_len: key.len(),
                bytes,
            };
            self.send(core, Mail::Errand(errand));
        }
        token
    }

    /// Takes an answer in.
    pub(super) fn answered(&self, answer: Answer) {
        let mut pending = self.pending.borrow_mut();
        let token = answer.token;
        let Some(entry) = pending.get_mut(token) else {
            return;
        };
        entry.missing -= 1;
        if let Some(earlier) = entry.answer.replace(answer) {
            self.keep(earlier.bytes);
        }
        if entry.missing > 0 {
            return;
        }
        if entry.given_up {
            if let Some(answer) = pending.remove(token).answer {
                self.keep(answer.bytes);
            }
        } else if let Some(waker) = entry.waker.take() {
            drop(pending);
            waker.wake();
        }
    }

    /// Fetches the answer to a ticket, or has the waker called when it is there.
    pub(super) fn poll<R>(
        &self,
        token: usize,
        context: &mut Context<'_>,
        reply: impl FnOnce(Reply<'_>) -> R,
    ) -> Poll<R> {
        let mut pending = self.pending.borrow_mut();
        let entry = &mut pending[token];
        if entry.missing > 0 {
            match &mut entry.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        let answer = pending.remove(token).answer;
        drop(pending);
        match answer {
            Some(answer) => {
                let result = reply(answer.reply());
                self.keep(answer.bytes);
                Poll::Ready(result)
            }
            None => Poll::Ready(reply(Reply::Busy("the answer was lost"))),
        }
    }

    /// Nobody waits for a ticket's answer any more.
    pub(super) fn give_up(&self, token: usize) {
        let mut pending = self.pending.borrow_mut();
        let Some(entry) = pending.get_mut(token) else {
            return;
        };
        if entry.missing > 0 {
            entry.given_up = true;
            entry.waker = None;
        } else {
            pending.remove(token);
        }
    }
}
