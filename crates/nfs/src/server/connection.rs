//! A client's connection: records in, answers out in any order, calls of the server's in between.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rt::net::{Addr, RecvHalf, SendHalf, Stream};
use rt::sync::{Notify, Semaphore};

use crate::ended::Ended;
use crate::rpc::{
    CALLBACK_VERSION, Call, Calls, Credential, Outcome, PROC_COMPOUND, Records, Reply, batches,
    put_record,
};
use crate::xdr::Encoder;

use super::budget::Budget;
use super::call::{After, message};
use super::measure::measured;
use super::{Door, RECORD_MAX};

/// Requests of one connection that are carried out at a time: more wait in its socket.
const AT_A_TIME: usize = 256;

/// Requests that came together of which so many are begun before others have their turn.
const AT_ONCE: usize = 8;

/// Bytes of requests that are carried out, and of answers that wait for a client to take them: with
/// more, its requests wait.
const WAITING_MAX: usize = 8 << 20;

/// Bytes of a record that has not come whole yet, above which they are counted.
const PARTIAL_FREE: usize = 64 << 10;

/// Bytes that are received at once.
const RECEIVE: usize = 256 << 10;

/// Bytes that are sent at once, unless one record has more.
const SEND: usize = 256 << 10;

/// A connection, for whoever has something to send over it.
pub(super) struct Connection {
    peer: IpAddr,
    is_open: Cell<bool>,
    outbox: RefCell<Vec<Vec<u8>>>,
    waiting: Cell<usize>,
    /// Of which that is taken, and what a record takes that has not come whole.
    budget: Rc<Budget>,
    partial: Cell<usize>,
    /// There is something in the outbox, or the connection has ended.
    news: Notify,
    /// There is less of it.
    room: Notify,
    /// The connection has ended.
    ended: Ended,
    /// The server's own; none inside: it was refused.
    calls: Calls<Option<Vec<u8>>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Connection {
    fn new(peer: IpAddr, budget: Rc<Budget>) -> Self {
        Self {
            peer,
            budget,
            is_open: Cell::new(true),
            outbox: RefCell::default(),
            waiting: Cell::new(0),
            partial: Cell::new(0),
            news: Notify::new(),
            room: Notify::new(),
            ended: Ended::default(),
            calls: Calls::default(),
        }
    }

    /// Where the client is.
    pub(super) const fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Whether anything can be sent.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// So many bytes more are kept for the client.
    fn waits(&self, size: usize) {
        self.waiting.set(self.waiting.get() + size);
        self.budget.take(size);
    }

    /// So many bytes have come of a record that is not whole.
    fn has_partial(&self, size: usize) {
        let counted = if size > PARTIAL_FREE { size } else { 0 };
        let before = self.partial.replace(counted);
        self.budget.take(counted.saturating_sub(before));
        if before > counted {
            self.budget.give(before - counted);
        }
    }

    fn waits_no_more(&self, size: usize) {
        self.waiting.set(self.waiting.get().saturating_sub(size));
        self.budget.give(size);
        self.room.notify_one();
    }

    /// Waits until one more request may come: until there is not too much of this connection's, nor, if
    /// it has any under way, of all.
    async fn has_room(&self) {
        loop {
            let is_full = self.waiting.get() > WAITING_MAX;
            let is_crowded = self.waiting.get() > 0 && self.budget.is_spent();
            if !self.is_open() || !is_full && !is_crowded {
                return;
            }
            let (mut own, mut all) = (pin!(self.room.notified()), pin!(self.budget.given()));
            poll_fn(|context| match own.as_mut().poll(context) {
                Poll::Pending if is_crowded => all.as_mut().poll(context),
                own => own,
            })
            .await;
        }
    }

    fn send(&self, record: Vec<u8>) {
        if self.is_open() {
            self.waits(record.len());
            self.outbox.borrow_mut().push(record);
            self.news.notify_one();
        }
    }

    /// Records that are sent together: not all, so that a client has to take no more than these, or one
    /// large one, for it to be seen that it takes something.
    fn next_to_send(&self) -> Vec<Vec<u8>> {
        let mut outbox = self.outbox.borrow_mut();
        let mut size = 0;
        let is_next = |record: &&Vec<u8>| {
            let fits = size < SEND;
            size += record.len();
            fits
        };
        let count = outbox.iter().take_while(is_next).count();
        outbox.drain(..count).collect()
    }

    /// Calls the client's callback program; none: it has gone, or refuses.
    pub(super) async fn call(
        &self,
        program: u32,
        credential: &Credential<'_>,
        arguments: &[u8],
    ) -> Option<Vec<u8>> {
        let call = self.calls.begin();
        let mut out = Encoder::default();
        put_record(&mut out, |out| {
            let procedure = (program, CALLBACK_VERSION, PROC_COMPOUND);
            Call::put(out, call.xid(), procedure, credential);
            out.bytes(arguments);
        });
        self.send(out.into_bytes());
        call.answer().await?
    }

    /// An answer to a call of the server's has come. It may have been given up meanwhile.
    fn answered(&self, reply: &Reply, results: &[u8]) {
        let is_success = reply.outcome == Outcome::Success;
        let answer = is_success.then(|| results.to_vec());
        self.calls.answered(reply.xid, answer);
    }

    /// Nothing comes or goes any more.
    fn end(&self) {
        self.is_open.set(false);
        self.outbox.borrow_mut().clear();
        self.calls.end();
        // Each has one that waits, or comes to wait.
        for waiting in [&self.news, &self.room] {
            waiting.notify_one();
        }
        self.ended.tell();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Of answers that were not sent.
        self.budget.give(self.waiting.get() + self.partial.get());
    }
}

/// A call that panics is never answered: its connection ends, so that its client does not wait.
struct EndOnPanic<'a>(&'a Connection);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
        }
    }
}

/// Serves a connection until it ends.
pub(super) async fn serve(door: Rc<Door>, stream: Stream) {
    let peer = match stream.peer_addr() {
        Ok(Addr::Tcp(address)) => address.ip().to_canonical(),
        // Whoever reaches the socket's path is on this machine.
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let connection = Rc::new(Connection::new(peer, Rc::clone(&door.budget)));
    door.count(|counts| counts.connections += 1);
    let (receiver, sender) = stream.into_split();
    let patience = Duration::from_millis(door.lease_ms);
    let sending = send(door.core.clone(), patience, Rc::clone(&connection), sender);
    let writer = door.core.spawn(sending);
    let whole = EndOnPanic(&connection);
    if let Err(why) = receive(&door, &connection, receiver).await {
        tracing::warn!(%peer, why, "a connection was closed");
    }
    connection.end();
    // It may be sending to a client that takes nothing.
    writer.abort();
    door.count(|counts| counts.connections -= 1);
    drop((writer.await, whole));
}

/// Takes records until the client goes.
///
/// # Errors
/// Why the connection is of no use any more.
async fn receive(
    door: &Rc<Door>,
    connection: &Rc<Connection>,
    mut receiver: RecvHalf,
) -> Result<(), String> {
    let mut records = Records::new(RECORD_MAX);
    let at_a_time = Semaphore::new(AT_A_TIME);
    let lease = Duration::from_millis(door.lease_ms);
    // For how long the rest of a record was waited for.
    let mut waited = Duration::ZERO;
    loop {
        connection.has_partial(records.pending());
        let limit = (!records.is_between()).then(|| lease.saturating_sub(waited));
        let place = records.buffer();
        let mut buffer = std::mem::take(place);
        buffer.reserve(RECEIVE);
        let begun = door.core.now();
        let receiving = connection.ended.or(receiver.recv(buffer));
        let received = match limit {
            Some(limit) => door.core.timeout(limit, receiving).await,
            None => Ok(receiving.await),
        };
        let received = received.map_err(|_| "a record took longer than a lease to come")?;
        let Some((result, buffer)) = received else {
            return Ok(());
        };
        *place = buffer;
        waited = match limit {
            Some(_) => waited + (door.core.now() - begun),
            None => Duration::ZERO,
        };
        match result {
            Ok(0) if records.is_between() => return Ok(()),
            Ok(0) => return Err("it ended within a record".to_string()),
            Ok(_) => {}
            // The client has gone without a word.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        let received_at = door.core.now();
        let mut handed_out = 0;
        loop {
            connection.has_room().await;
            if !connection.is_open() {
                return Ok(());
            }
            if handed_out == AT_ONCE {
                // What these ask of the disk is under way while the next ones are carried out, and not all of one client's
                // wait for the same.
                handed_out = 0;
                door.core.yield_now().await;
            }
            let permit = at_a_time.acquire().await;
            let record = records.next_record().map_err(|error| error.to_string())?;
            let Some(record) = record else {
                break;
            };
            waited = Duration::ZERO;
            let is_call = match message(record).map_err(|error| error.to_string())? {
                After::Call(..) => true,
                After::Answer(reply, results) => {
                    connection.answered(&reply, results.rest());
                    false
                }
                After::Refuse(reply) => {
                    let mut out = Encoder::default();
                    put_record(&mut out, |out| out.put(&reply));
                    connection.send(out.into_bytes());
                    false
                }
            };
            if is_call {
                handed_out += 1;
                let (door, connection) = (Rc::clone(door), Rc::clone(connection));
                let record = records.keep();
                let core = door.core.clone();
                connection.waits(record.len());
                drop(core.spawn(async move {
                    let whole = EndOnPanic(&connection);
                    let answer = measured(&door, &connection, &record, received_at).await;
                    connection.waits_no_more(record.len());
                    connection.send(answer);
                    drop((permit, whole));
                }));
            }
        }
    }
}

/// Sends what is in the outbox, until the connection ends. A client that takes nothing for so long has
/// gone, as far as anybody can tell.
async fn send(
    core: rt::Handle,
    patience: Duration,
    connection: Rc<Connection>,
    mut sender: SendHalf,
) {
    while connection.is_open() {
        let records = connection.next_to_send();
        if records.is_empty() {
            connection.news.notified().await;
            continue;
        }
        for batch in batches(records) {
            let size = batch.len();
            let sent = core.timeout(patience, sender.send_all(batch)).await;
            connection.waits_no_more(size);
            if !matches!(sent, Ok((Ok(()), _))) {
                // The receiver's end tells why.
                return connection.end();
            }
        }
    }
}
