//! What cores send each other: requests for keys that live elsewhere, their answers, and clients
//! that come and go.
//!
//! A request's bytes travel in a buffer that comes back with the answer and is used again, so that
//! nothing is allocated once there are enough of them.
//!
//! An answer waits at the core that asked until its connection takes it, which may be long after. So
//! each errand says how much of a value may come. For a longer one only its length comes, and the
//! errands that the connection has sent since wait at the owner, in their order. Once the connection
//! has sent all that comes before the value, it fetches it, and the others go on. So whatever it asked
//! for later takes effect later.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cache::herd::Attachment;
use cache::mica::KeyHash;
use engine::{Answer, Asker, Command, Expiry, Failure, Segments};
use memcache::{Pool, Pressure};
use rt::cross::{ChannelSender, TrySendError};
use rt::sync::Notify;
use slab::Slab;

/// Messages on their way to one core at most; more wait at their sender.
pub(super) const MAIL_MAX: usize = 4096;
/// Bytes of buffers kept for the next requests.
const BUFFERS_KEPT_LEN: usize = 4 << 20;
/// Larger buffers are given back.
const BUFFER_KEPT_LEN: usize = 64 << 10;
/// Values that are fetched however short memory is.
const VALUE_ALWAYS_LEN: usize = 16 << 10;

/// A message to a core.
pub(super) enum Mail {
    /// Do this, and answer.
    Errand(Errand),
    /// The answer.
    Answer(Reply),
    /// A HERD client has come.
    Attach(Box<Attachment>),
    /// A HERD client has gone.
    Detach(u32),
}

/// A request for a key of the core it is sent to.
pub(super) struct Errand {
    pub(super) from: usize,
    to: usize,
    token: usize,
    pub(super) hash: KeyHash,
    shape: Command<'static>,
    key_len: usize,
    /// The key, then the value.
    bytes: Vec<u8>,
    asker: Asker,
    order: Order,
}

/// How an errand stands to the one that its connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// It takes its turn.
    Usual,
    /// It is the one that is waited for: the value has room now.
    Fetch,
    /// Nobody waits for that one any more.
    Skip,
}

/// An answer on its way to the core that asked.
pub(super) struct Reply {
    token: usize,
    what: What,
    bytes: Vec<u8>,
}

enum What {
    /// All of it; the bytes are its value.
    Answer(Answer<'static>),
    /// A value of so many bytes, for which there was no room. The bytes are its key.
    Later {
        connection: u64,
        owner: usize,
        hash: KeyHash,
        len: usize,
        touch: Option<Expiry>,
    },
}

impl Errand {
    /// The command, borrowed from the buffer.
    pub(super) fn command(&self) -> Command<'_> {
        let (key, value) = self.bytes.split_at(self.key_len);
        self.shape.with_bytes(key, value.into())
    }

    /// Makes a reply of a copy of `answer`, in a buffer of the core that answers.
    pub(super) fn reply(&self, answer: Answer<'_>, mut bytes: Vec<u8>) -> Reply {
        bytes.clear();
        let what = match answer.value() {
            Some(value) if self.is_too_long(value.len()) => {
                bytes.extend_from_slice(&self.bytes[..self.key_len]);
                What::Later {
                    connection: self.asker.connection,
                    owner: self.to,
                    hash: self.hash,
                    len: value.len(),
                    touch: self.touch(),
                }
            }
            value => {
                value.unwrap_or(Segments::EMPTY).append_to(&mut bytes);
                let unsupported = Answer::Failed(Failure::Unsupported);
                What::Answer(answer.with_value(Segments::EMPTY).unwrap_or(unsupported))
            }
        };
        Reply {
            token: self.token,
            what,
            bytes,
        }
    }

    /// Whether its request was carried out once already, when there was no room for the value.
    pub(super) fn is_fetch(&self) -> bool {
        self.order == Order::Fetch
    }

    /// The expiry that the item gets with its value. It gets it when the value goes, and not before:
    /// it may end the item.
    pub(super) fn touch(&self) -> Option<Expiry> {
        match self.shape {
            Command::Get { touch, .. } => touch,
            _ => None,
        }
    }

    /// Whether there is no room for a value of so many bytes.
    pub(super) fn is_too_long(&self, len: usize) -> bool {
        len > self.asker.room
    }

    /// The buffer, for use again.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Reply {
    /// Whether the errands that its connection has sent since must wait.
    pub(super) fn holds_up(&self) -> bool {
        matches!(self.what, What::Later { .. })
    }
}

/// The errands of connections that have to fetch a value first.
#[derive(Default)]
pub(super) struct Parked(HashMap<u64, VecDeque<Errand>>);

impl Parked {
    /// Carries an errand out with `run`, unless it has to wait, and those whose turn comes with it.
    pub(super) fn take(&mut self, errand: Errand, mut run: impl FnMut(Errand) -> bool) {
        let connection = errand.asker.connection;
        let mut line = match errand.order {
            Order::Usual => {
                if !self.0.is_empty()
                    && let Some(line) = self.0.get_mut(&connection)
                {
                    return line.push_back(errand);
                }
                if run(errand) {
                    self.0.insert(connection, VecDeque::new());
                }
                return;
            }
            Order::Fetch | Order::Skip => self.0.remove(&connection).unwrap_or_default(),
        };
        // Of one that is skipped what it does to the item is left.
        if errand.order == Order::Fetch || matches!(errand.shape, Command::Touch { .. }) {
            run(errand);
        }
        while let Some(next) = line.pop_front() {
            if run(next) {
                self.0.insert(connection, line);
                return;
            }
        }
    }
}

/// An errand under way. A flush is one errand to each other core.
struct Pending {
    missing: usize,
    answer: Option<Reply>,
    waker: Option<Waker>,
    given_up: bool,
    /// Bytes taken from the connections' memory for the answer.
    taken: usize,
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
    buffers_len: Cell<usize>,
    pool: Arc<Pool>,
}

impl Post {
    pub(super) fn new(core: usize, to: Vec<ChannelSender<Mail>>, pool: Arc<Pool>) -> Self {
        let waiting = to.iter().map(|_| VecDeque::new()).collect();
        Post {
            core,
            to,
            waiting: RefCell::new(waiting),
            waiting_count: Cell::new(0),
            has_waiting: Notify::new(),
            pending: RefCell::new(Slab::new()),
            buffers: RefCell::new(Vec::new()),
            buffers_len: Cell::new(0),
            pool,
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
                Err(TrySendError::Closed(mail)) => {
                    drop(waiting);
                    return self.refuse(mail);
                }
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
            let mut refused = Vec::new();
            for (to, queue) in self.to.iter().zip(self.waiting.borrow_mut().iter_mut()) {
                while let Some(mail) = queue.pop_front() {
                    match to.try_send(mail) {
                        Ok(()) => {}
                        Err(TrySendError::Full(mail)) => {
                            queue.push_front(mail);
                            break;
                        }
                        Err(TrySendError::Closed(mail)) => refused.push(mail),
                    }
                    self.waiting_count.set(self.waiting_count.get() - 1);
                }
            }
            for mail in refused {
                self.refuse(mail);
            }
            core.yield_now().await;
        }
    }

    /// Answers what was meant for a core that has ended. The process stops then, but clients that wait
    /// meanwhile are to hear of it.
    fn refuse(&self, mail: Mail) {
        if let Mail::Errand(errand) = mail {
            let ended = Failure::Busy("the core that has the key has ended");
            let reply = Reply {
                token: errand.token,
                what: What::Answer(Answer::Failed(ended)),
                bytes: Vec::new(),
            };
            self.answered(reply);
        }
    }

    /// A buffer for bytes to send.
    pub(super) fn buffer(&self) -> Vec<u8> {
        let buffer = self.buffers.borrow_mut().pop().unwrap_or_default();
        self.buffers_len
            .set(self.buffers_len.get() - buffer.capacity());
        buffer
    }

    /// Keeps a buffer for next time.
    pub(super) fn keep(&self, buffer: Vec<u8>) {
        let len = self.buffers_len.get() + buffer.capacity();
        if len <= BUFFERS_KEPT_LEN && (1..=BUFFER_KEPT_LEN).contains(&buffer.capacity()) {
            self.buffers_len.set(len);
            self.buffers.borrow_mut().push(buffer);
        }
    }

    /// Sends a request to these cores; the ticket waits for all their answers, of which a value may
    /// have so many bytes as its asker has room for.
    pub(super) fn ask(
        &self,
        cores: impl Iterator<Item = usize> + Clone,
        hash: KeyHash,
        command: &Command<'_>,
        asker: Asker,
    ) -> usize {
        let token = self.pending.borrow_mut().insert(Pending {
            missing: cores.clone().count(),
            answer: None,
            waker: None,
            given_up: false,
            taken: 0,
        });
        for core in cores {
            let mut bytes = self.buffer();
            bytes.clear();
            let key = command.key().unwrap_or_default();
            bytes.extend_from_slice(key);
            if let Some(value) = command.value() {
                value.append_to(&mut bytes);
            }
            let errand = Errand {
                from: self.core,
                to: core,
                token,
                hash,
                shape: command.with_bytes(b"", Segments::EMPTY),
                key_len: key.len(),
                bytes,
                asker,
                order: Order::Usual,
            };
            self.send(core, Mail::Errand(errand));
        }
        token
    }

    /// Takes an answer in.
    pub(super) fn answered(&self, answer: Reply) {
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
            let done = pending.remove(token);
            drop(pending);
            self.finish(done);
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
        answer: impl FnOnce(Answer<'_>) -> R,
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
        if let Some(Reply {
            what: What::Later { len, .. },
            ..
        }) = entry.answer
        {
            // All that comes before it has been sent: now there is room for one, unless memory is out.
            if len <= VALUE_ALWAYS_LEN || self.pool.pressure() != Pressure::Out {
                entry.waker = Some(context.waker().clone());
                entry.missing = 1;
                entry.taken = len;
                let later = entry.answer.take();
                drop(pending);
                self.pool.take(len);
                if let Some(later) = later {
                    self.go_on(token, later, Order::Fetch);
                }
                return Poll::Pending;
            }
        }
        let done = pending.remove(token);
        drop(pending);
        let result = match &done.answer {
            Some(reply) => answer(match reply.what {
                What::Answer(shape) => shape
                    .with_value((&reply.bytes).into())
                    .unwrap_or(Answer::Failed(Failure::Unsupported)),
                What::Later { .. } => Answer::Failed(Failure::OutOfMemory),
            }),
            None => answer(Answer::Failed(Failure::Busy("the answer was lost"))),
        };
        self.finish(done);
        Poll::Ready(result)
    }

    /// Has the owner of a value for which there was no room go on with the connection's errands.
    fn go_on(&self, token: usize, answer: Reply, order: Order) {
        let What::Later {
            connection,
            owner,
            hash,
            touch,
            ..
        } = answer.what
        else {
            return self.keep(answer.bytes);
        };
        let errand = Errand {
            from: self.core,
            to: owner,
            token,
            hash,
            shape: match (order, touch) {
                // Nobody wants the value, but the item was to be touched.
                (Order::Skip, Some(expiry)) => Command::Touch { key: b"", expiry },
                _ => Command::Get { key: b"", touch },
            },
            key_len: answer.bytes.len(),
            bytes: answer.bytes,
            asker: Asker {
                connection,
                room: usize::MAX,
            },
            order,
        };
        self.send(owner, Mail::Errand(errand));
    }

    /// Gives back what an errand held.
    fn finish(&self, done: Pending) {
        if done.taken > 0 {
            self.pool.give_back(done.taken);
        }
        if let Some(answer) = done.answer {
            // The token is not looked at: nothing comes back.
            self.go_on(usize::MAX, answer, Order::Skip);
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
            let done = pending.remove(token);
            drop(pending);
            self.finish(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use cache::mica::{Options, Partition};
    use engine::OwnedAnswer;

    use super::*;

    const NOW_S: u64 = 1_000_000;

    /// Two cores' posts, and their mail.
    fn posts() -> (Post, Post, [rt::cross::ChannelReceiver<Mail>; 2]) {
        let (to_first, first) = rt::cross::channel(MAIL_MAX);
        let (to_second, second) = rt::cross::channel(MAIL_MAX);
        let pool = Arc::new(Pool::new(1 << 20));
        let to = vec![to_first, to_second];
        let here = Post::new(0, to.clone(), Arc::clone(&pool));
        (here, Post::new(1, to, pool), [first, second])
    }

    const KEY: &[u8] = b"key";

    fn hash() -> KeyHash {
        KeyHash::new(7, KEY)
    }

    #[test]
    fn a_request_to_a_core_that_has_ended_fails() {
        let (here, _, [_first, second]) = posts();
        drop(second);
        let get = Command::Get {
            key: KEY,
            touch: None,
        };
        let token = here.ask(std::iter::once(1), hash(), &get, Asker::ANYBODY);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(said) = here.poll(token, &mut context, OwnedAnswer::new) else {
            panic!("its client waits for ever");
        };
        assert!(matches!(said.answer(), Answer::Failed(Failure::Busy(_))));
    }

    /// Carries out what has come for the second core.
    fn run_errands(
        mail: &mut rt::cross::ChannelReceiver<Mail>,
        parked: &mut Parked,
        partition: &mut Partition,
        there: &Post,
    ) {
        mail.drain(64, |mail| {
            let Mail::Errand(errand) = mail else {
                panic!("an answer without a question");
            };
            parked.take(errand, |errand| {
                let reply = partition.run(errand.hash, &errand.command(), NOW_S, |answer| {
                    errand.reply(answer, Vec::new())
                });
                let holds_up = reply.holds_up();
                there.send(errand.from, Mail::Answer(reply));
                holds_up
            });
        });
    }

    /// A `gat` whose value is too long to come at once ends its item although its client has gone.
    #[test]
    fn a_touch_outlives_the_wish_for_its_value() {
        let (here, there, [mut first, mut second]) = posts();
        let mut partition = Partition::new(&Options::new(1 << 20)).expect("a partition");
        let mut parked = Parked::default();
        let set = Command::Store {
            mode: engine::Mode::Set,
            key: KEY,
            value: (&[b'v'; 1000]).into(),
            flags: 0,
            expiry: Expiry::NEVER,
        };
        partition.run(hash(), &set, NOW_S, |_| ());
        let asker = Asker {
            connection: 1,
            room: 10,
        };
        // As the core does that finds the value too long, it only looks at first.
        let look = Command::Get {
            key: KEY,
            touch: None,
        };
        let token = here.ask(std::iter::once(1), hash(), &look, asker);
        run_errands(&mut second, &mut parked, &mut partition, &there);
        first.drain(64, |mail| {
            let Mail::Answer(mut reply) = mail else {
                panic!("a question");
            };
            if let What::Later { touch, .. } = &mut reply.what {
                *touch = Some(Expiry::from_unix_s(NOW_S + 10));
            }
            here.answered(reply);
        });
        here.give_up(token);
        run_errands(&mut second, &mut parked, &mut partition, &there);
        let get = |partition: &mut Partition, now_s| {
            partition.run(hash(), &look, now_s, |answer| answer.value().is_some())
        };
        assert!(get(&mut partition, NOW_S + 9));
        assert!(!get(&mut partition, NOW_S + 10), "the item was not touched");
    }
}
