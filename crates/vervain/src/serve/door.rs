//! The doors of one core: accepting, serving Memcache, and handing HERD clients on.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use cache::herd::wire::handshake::{DOOR_FULL, LINE_WORD};
use memcache::{Ended, Event, Host};
use rt::Handle;
use rt::net::{Listener, RecvHalf, SendHalf, Stream};

use super::control::Control;
use super::limits::Limits;
use super::mail::{Mail, Post};
use super::stats::Doors;
use super::watch::{Member, Watch};

/// Bytes of a handshake line at most: room for 256 cores.
const LINE_LEN_MAX: usize = 64 << 10;

/// What every connection of a core needs.
pub(super) struct Door<E> {
    pub(super) core: Handle,
    pub(super) engine: Rc<RefCell<E>>,
    /// Where connections go that leave the protocol.
    pub(super) herd: Herd,
    pub(super) doors: Arc<Doors>,
    pub(super) watch: Rc<Watch>,
    pub(super) limits: Limits,
}

/// Who takes HERD clients.
pub(super) struct Herd {
    pub(super) post: Rc<Post>,
    pub(super) control: Control,
}

/// Accepts for ever.
pub(super) async fn accept<E: Host + 'static>(door: Rc<Door<E>>, mut listener: Listener) {
    let doors = Arc::clone(&door.doors);
    listener.on_pause(move |pause| doors.paused(pause));
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let Some(counted) = Counted::new(&door.doors) else {
                    refuse(stream).await;
                    continue;
                };
                let door = Rc::clone(&door);
                let core = door.core.clone();
                // A connection that panics is closed, and the panic has said so itself.
                drop(core.spawn(async move {
                    connection(&door, stream).await;
                    drop(counted);
                }));
            }
            Err(error) => {
                tracing::error!(%error, "a door is broken and closes");
                return;
            }
        }
    }
}

/// Tells a client that there are too many. It is not waited for: a new socket has room for a line.
async fn refuse(mut stream: Stream) {
    let (sent, _) = stream.send(DOOR_FULL.into()).await;
    if let Err(error) = sent {
        tracing::debug!(%error, "a refused client had gone");
    }
}

/// Counts a connection while it lives.
struct Counted(Arc<Doors>);

impl Counted {
    /// Counts one more, unless there are too many.
    fn new(doors: &Arc<Doors>) -> Option<Self> {
        doors.connected().then(|| Counted(Arc::clone(doors)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}

/// Serves a connection until its client leaves, or is to leave.
async fn connection<E: Host>(door: &Door<E>, stream: Stream) {
    let place = door.watch.admit();
    let member = &*place.member;
    let mut conversation = pin!(converse(door, stream, member));
    let ended = poll_fn(|context| {
        member.account.served_by(context.waker());
        match member.ended() {
            Some(cause) => Poll::Ready(Some(cause)),
            None => conversation.as_mut().poll(context).map(|()| None),
        }
    })
    .await;
    if let Some(cause) = ended {
        tracing::debug!(?cause, "a connection was ended");
    }
}

async fn converse<E: Host>(door: &Door<E>, stream: Stream, member: &Member) {
    let limits = door.limits.connection;
    match memcache::serve_accounted(&door.core, stream, &door.engine, limits, &member.account).await
    {
        Ok(Ended::Closed) => {}
        Ok(Ended::Upgraded {
            line,
            stream,
            input,
        }) => {
            herd_client(door, line, stream, input, member).await;
        }
        Err(error) => tracing::debug!(%error, "a connection broke"),
    }
}

/// A HERD client's control stream: the handshake, then nothing until the client has gone.
async fn herd_client<E>(
    door: &Door<E>,
    arguments: Vec<u8>,
    (mut receiver, mut sender): (RecvHalf, SendHalf),
    mut input: Vec<u8>,
    member: &Member,
) {
    let herd = &door.herd;
    let mut line = [LINE_WORD.as_bytes(), b" ", &arguments].concat();
    let mut client = Client { herd, number: None };
    loop {
        member.account.set_owes(true);
        let Some(mut reply) = herd.control.answer(line).await else {
            return;
        };
        if let Some((number, attachments)) = reply.take_attached() {
            client.leave();
            client.number = Some(number);
            // From here on it speaks over the NIC.
            member.let_idle();
            for attachment in attachments {
                let core = attachment.core() as usize;
                herd.post.send(core, Mail::Attach(Box::new(attachment)));
            }
        }
        let (sent, _) = sender
            .send_all(format!("{}\r\n", reply.line()).into_bytes())
            .await;
        if sent.is_err() || reply.closes() {
            return;
        }
        member.account.got_on(door.core.now());
        member.account.set_owes(false);
        line = loop {
            if let Some(end) = input.iter().position(|byte| *byte == b'\n') {
                break input.drain(..=end).collect();
            }
            if input.len() > LINE_LEN_MAX {
                door.doors.note(Event::LineTooLong);
                return;
            }
            let (received, buffer) = receiver.recv(std::mem::take(&mut input)).await;
            input = buffer;
            member.account.settle(input.capacity());
            member.account.got_on(door.core.now());
            match received {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
    }
}

/// Detaches a client from all cores when its stream has ended.
struct Client<'a> {
    herd: &'a Herd,
    number: Option<u32>,
}

impl Client<'_> {
    fn leave(&mut self) {
        if let Some(number) = self.number.take() {
            for core in 0..self.herd.post.cores() {
                self.herd.post.send(core, Mail::Detach(number));
            }
        }
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
