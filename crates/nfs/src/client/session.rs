//! Compounds on the slots of a session (RFC 8881, section 2.10).

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use arrayvec::ArrayVec;
use rt::Instant;
use rt::net::{Addr, RecvHalf, SendHalf, Stream};
use rt::sync::{Notify, Semaphore};

use crate::compound::{CompoundCall, CompoundResults};
use crate::ended::Ended;
use crate::rpc::{
    AuthSys, Call, Calls, Credential, Message, NFS_PROGRAM, NFS_VERSION, Outcome, PROC_COMPOUND,
    Records, batches, put_record,
};
use crate::wire::*;
use crate::xdr::{Decoder, Encoder, Opaque};

use super::ClientError;

/// Bytes of an answer at most.
const ANSWER_MAX: usize = (1 << 20) + (64 << 10);

/// How a client introduces itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// 1 or 2.
    pub minor: u32,
    /// The user and the group that calls are made for.
    pub user: (u32, u32),
    /// Further groups of the user: 16 at most, as AUTH_SYS has no room for more.
    pub groups: ArrayVec<u32, 16>,
    /// Its name: no other client has it at the same time.
    pub name: Vec<u8>,
    /// Another one each time it starts.
    pub verifier: [u8; 8],
    /// Calls at a time.
    pub slots: u32,
    /// How long connecting may take, and how long nothing may come while a call waits for its answer. It is
    /// [`ClientError::Silent`] after that.
    pub silence: Duration,
}

impl Options {
    /// NFSv4.1 as root with 16 slots, and 60 s of silence: as long as Linux waits before it repeats a call (nfs(5),
    /// `timeo`).
    #[must_use]
    pub fn new(name: impl Into<Vec<u8>>, verifier: u64) -> Self {
        Self {
            minor: 1,
            user: (0, 0),
            groups: ArrayVec::new(),
            name: name.into(),
            verifier: verifier.to_be_bytes(),
            slots: 16,
            silence: Duration::from_secs(60),
        }
    }
}

/// A client with a session. Cloning costs one increment. Its connection is closed with the last clone, if it
/// is not before.
#[derive(Clone)]
pub struct Client {
    inner: Rc<Whole>,
}

/// What the clones of a client have; the tasks of its connection have what is in it, and end with this.
struct Whole(Rc<Inner>);

impl Drop for Whole {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl std::ops::Deref for Whole {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

struct Inner {
    core: rt::Handle,
    options: Options,
    outbox: RefCell<Vec<Vec<u8>>>,
    news: Notify,
    /// Told once no more calls are made.
    ended: Ended,
    calls: Calls<Vec<u8>>,
    session: Cell<Sessionid4>,
    client: Cell<Clientid4>,
    /// Slots that nobody uses, with the sequence number of their next call.
    slots: RefCell<Vec<(u32, u32)>>,
    free: RefCell<Semaphore>,
    highest: Cell<u32>,
    /// Grows with whatever comes.
    heard: Cell<u64>,
    /// How long the server lets a client be silent.
    lease: Cell<Duration>,
    /// When the last call of the session began that was answered.
    renewed: Cell<Instant>,
}

/// What a compound was answered.
#[derive(Debug)]
pub struct Reply {
    record: Vec<u8>,
    /// Where its results begin.
    at: usize,
    /// Results of the client's own: SEQUENCE.
    skip: usize,
}

impl Reply {
    /// The results of the operations that were asked for; the last one may be an error.
    ///
    /// # Errors
    /// They make no sense.
    pub fn results(
        &self,
    ) -> Result<impl Iterator<Item = Result<NfsResop4<'_>, ClientError>>, ClientError> {
        let results = CompoundResults::take(Decoder::new(&self.record[self.at..]))?;
        let own = results.skip(self.skip);
        Ok(own.map(|result| result.map_err(ClientError::from)))
    }

    /// How the compound ended.
    ///
    /// # Errors
    /// [`ClientError::Status`].
    pub fn ok(&self) -> Result<&Self, ClientError> {
        let results = CompoundResults::take(Decoder::new(&self.record[self.at..]))?;
        match results.status {
            Nfsstat4::NFS4_OK => Ok(self),
            status => Err(status.into()),
        }
    }
}

impl Client {
    /// Connects, introduces itself and makes a session.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn connect(
        core: &rt::Handle,
        addr: &Addr,
        options: Options,
    ) -> Result<Self, ClientError> {
        let connected = core.timeout(options.silence, Stream::connect(core, addr));
        let stream = connected.await.map_err(|_| ClientError::Silent)??;
        let (receiver, sender) = stream.into_split();
        let client = Self {
            inner: Rc::new(Whole(Rc::new(Inner {
                core: core.clone(),
                free: RefCell::new(Semaphore::new(0)),
                options,
                outbox: RefCell::default(),
                news: Notify::new(),
                ended: Ended::default(),
                calls: Calls::default(),
                session: Cell::default(),
                client: Cell::default(),
                slots: RefCell::default(),
                highest: Cell::new(0),
                heard: Cell::new(0),
                lease: Cell::default(),
                renewed: Cell::new(core.now()),
            }))),
        };
        drop(core.spawn(send(Rc::clone(&client.inner.0), sender)));
        drop(core.spawn(receive(Rc::clone(&client.inner.0), receiver)));
        client.introduce().await?;
        Ok(client)
    }

    async fn introduce(&self) -> Result<(), ClientError> {
        let options = &self.inner.options;
        let exchange = NfsArgop4::ExchangeId(ExchangeId4Args {
            eia_clientowner: ClientOwner4 {
                co_verifier: options.verifier,
                co_ownerid: Opaque(&options.name),
            },
            eia_flags: 0,
            eia_state_protect: StateProtect4A::Sp4None,
            eia_client_impl_id: None,
        });
        let reply = self.alone(&exchange).await?;
        let Some(Ok(NfsResop4::ExchangeId(Ok(met)))) = reply.ok()?.results()?.next() else {
            return Err(ClientError::Unexpected);
        };
        let channel = |slots| ChannelAttrs4 {
            ca_headerpadsize: 0,
            ca_maxrequestsize: ANSWER_MAX as u32,
            ca_maxresponsesize: ANSWER_MAX as u32,
            ca_maxresponsesize_cached: 4096,
            ca_maxoperations: 32,
            ca_maxrequests: slots,
            ca_rdma_ird: None,
        };
        let create = NfsArgop4::CreateSession(CreateSession4Args {
            csa_clientid: met.eir_clientid,
            csa_sequence: met.eir_sequenceid,
            csa_flags: 0,
            csa_fore_chan_attrs: channel(options.slots),
            csa_back_chan_attrs: channel(1),
            csa_cb_program: 0,
            csa_sec_parms: vec![CallbackSecParms4::AuthNone],
        });
        self.inner.client.set(met.eir_clientid);
        let reply = self.alone(&create).await?;
        let Some(Ok(NfsResop4::CreateSession(Ok(made)))) = reply.ok()?.results()?.next() else {
            return Err(ClientError::Unexpected);
        };
        self.inner.session.set(made.csr_sessionid);
        let slots = made.csr_fore_chan_attrs.ca_maxrequests.min(options.slots);
        self.inner.highest.set(slots.saturating_sub(1));
        self.inner
            .slots
            .borrow_mut()
            .extend((0..slots).rev().map(|slot| (slot, 1)));
        *self.inner.free.borrow_mut() = Semaphore::new(slots as usize);
        let operations = [
            NfsArgop4::Putrootfh,
            NfsArgop4::Getattr(Getattr4Args {
                attr_request: Bitmap4::of(&[FATTR4_LEASE_TIME]),
            }),
            NfsArgop4::ReclaimComplete(ReclaimComplete4Args { rca_one_fs: false }),
        ];
        let reply = self.call(&operations).await?;
        match reply.ok() {
            // A client of the same name has said so before.
            Ok(_) | Err(ClientError::Status(Nfsstat4::NFS4ERR_COMPLETE_ALREADY)) => {}
            Err(error) => return Err(error),
        }
        let Some(Ok(NfsResop4::Getattr(Ok(got)))) = reply.results()?.nth(1) else {
            return Err(ClientError::Unexpected);
        };
        let lease_s = got.obj_attributes.attributes().find_map(|one| match one {
            Ok(Attribute::LeaseTime(seconds)) => Some(seconds),
            _ => None,
        });
        let lease_s = lease_s.ok_or(ClientError::Unexpected)?.max(1);
        let lease = Duration::from_secs(u64::from(lease_s));
        self.inner.lease.set(lease);
        Ok(())
    }

    /// Ends the session and the client, so that the server forgets them at once. The connection is closed
    /// whatever the server says.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn close(self) -> Result<(), ClientError> {
        let forgotten = self.be_forgotten().await;
        self.inner.end();
        forgotten
    }

    async fn be_forgotten(&self) -> Result<(), ClientError> {
        let end = NfsArgop4::DestroySession(DestroySession4Args {
            dsa_sessionid: self.inner.session.get(),
        });
        self.alone(&end).await?.ok()?;
        let end = NfsArgop4::DestroyClientid(DestroyClientid4Args {
            dca_clientid: self.inner.client.get(),
        });
        self.alone(&end).await?.ok()?;
        Ok(())
    }

    /// Asks for nothing, if the last call that was answered began a third of a lease ago: a client that is silent for
    /// longer than a lease may lose what it has open (RFC 8881, section 8.3). For who waits for something else.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn renew(&self) -> Result<(), ClientError> {
        let inner = &self.inner;
        if inner.core.now() - inner.renewed.get() >= inner.lease.get() / 3 {
            self.call(&[]).await?.ok()?;
        }
        Ok(())
    }

    /// The client's number at the server, which its open-owners name.
    #[must_use]
    pub fn id(&self) -> Clientid4 {
        self.inner.client.get()
    }

    /// Asks for these operations in one compound, on a free slot; waits for one if there is none.
    ///
    /// # Errors
    /// [`ClientError`], but for operations that fail: [`Reply::ok`] tells.
    pub async fn call(&self, operations: &[NfsArgop4<'_>]) -> Result<Reply, ClientError> {
        let free = self.inner.free.borrow().clone();
        let _one = free.acquire().await;
        let slot = self
            .inner
            .slots
            .borrow_mut()
            .pop()
            .ok_or(ClientError::Ended)?;
        let (number, sequence) = slot;
        // A call that is given up leaves its slot unusable: nobody knows whether the server has seen it.
        let first = NfsArgop4::Sequence(Sequence4Args {
            sa_sessionid: self.inner.session.get(),
            sa_sequenceid: sequence,
            sa_slotid: number,
            sa_highest_slotid: self.inner.highest.get(),
            sa_cachethis: false,
        });
        let began = self.inner.core.now();
        let record = self.compound(Some(&first), operations).await?;
        let renewed = self.inner.renewed.get().max(began);
        self.inner.renewed.set(renewed);
        let next = (number, sequence.wrapping_add(1));
        self.inner.slots.borrow_mut().push(next);
        self.inner.reply(record, 1)
    }

    async fn alone(&self, operation: &NfsArgop4<'_>) -> Result<Reply, ClientError> {
        let record = self.compound(None, std::slice::from_ref(operation)).await?;
        self.inner.reply(record, 0)
    }

    async fn compound(
        &self,
        first: Option<&NfsArgop4<'_>>,
        operations: &[NfsArgop4<'_>],
    ) -> Result<Vec<u8>, ClientError> {
        let inner = &self.inner;
        let waits = inner.calls.begin();
        let mut out = Encoder::default();
        put_record(&mut out, |out| {
            let (uid, gid) = inner.options.user;
            let credential = Credential::Sys(AuthSys {
                stamp: 0,
                machine_name: Opaque(b"vervain"),
                uid,
                gid,
                gids: inner.options.groups.clone(),
            });
            let procedure = (NFS_PROGRAM, NFS_VERSION, PROC_COMPOUND);
            Call::put(out, waits.xid(), procedure, &credential);
            let mut call = CompoundCall::begin(out, Opaque(b""), inner.options.minor);
            for operation in first.into_iter().chain(operations) {
                call.operation(out, operation);
            }
            call.finish(out);
        });
        inner.outbox.borrow_mut().push(out.into_bytes());
        inner.news.notify_one();
        let mut answer = pin!(waits.answer());
        loop {
            let heard = inner.heard.get();
            match inner
                .core
                .timeout(inner.options.silence, answer.as_mut())
                .await
            {
                Ok(answer) => return answer.ok_or(ClientError::Ended),
                // A long answer, or others before this one.
                Err(_) if inner.heard.get() != heard => {}
                Err(_) => {
                    // Who asks for more now would wait as long.
                    inner.end();
                    return Err(ClientError::Silent);
                }
            }
        }
    }
}

impl Inner {
    fn reply(&self, record: Vec<u8>, skip: usize) -> Result<Reply, ClientError> {
        let mut from = Decoder::new(&record);
        match Message::take(&mut from)? {
            Message::Reply(reply) if reply.outcome == Outcome::Success => {}
            Message::Reply(reply) => return Err(ClientError::Refused(reply.outcome)),
            Message::Call(_) => return Err(ClientError::Unexpected),
        }
        let at = record.len() - from.rest().len();
        Ok(Reply { record, at, skip })
    }

    fn end(&self) {
        self.calls.end();
        self.news.notify_one();
        self.ended.tell();
    }

    /// An answer has come; what is none is passed over.
    fn answered(&self, record: &[u8]) {
        let Some(xid) = record.first_chunk().map(|xid| u32::from_be_bytes(*xid)) else {
            return;
        };
        self.calls.answered(xid, record.to_vec());
    }
}

async fn send(inner: Rc<Inner>, mut sender: SendHalf) {
    while !inner.calls.is_ended() {
        let records = std::mem::take(&mut *inner.outbox.borrow_mut());
        if records.is_empty() {
            inner.news.notified().await;
            continue;
        }
        for batch in batches(records) {
            let sent = inner.ended.or(sender.send_all(batch)).await;
            if !matches!(sent, Some((Ok(()), _))) {
                return inner.end();
            }
        }
    }
}

async fn receive(inner: Rc<Inner>, mut receiver: RecvHalf) {
    let mut records = Records::new(ANSWER_MAX);
    while !inner.calls.is_ended() {
        let place = records.buffer();
        let mut buffer = std::mem::take(place);
        buffer.reserve(256 << 10);
        let received = inner.ended.or(receiver.recv(buffer)).await;
        let Some((result, buffer)) = received else {
            break;
        };
        *place = buffer;
        if !matches!(result, Ok(1..)) {
            break;
        }
        inner.heard.set(inner.heard.get() + 1);
        loop {
            match records.next_record() {
                Ok(Some(record)) => inner.answered(record),
                Ok(None) => break,
                Err(_) => return inner.end(),
            }
        }
    }
    inner.end();
}

#[cfg(test)]
mod tests {
    use rt::net::{ListenOptions, Listener};

    use super::*;

    #[test]
    fn a_server_that_takes_no_connection_is_silent_and_the_client_ends() {
        let mut core = rt::Core::new(rt::Config::default()).expect("a core");
        let handle = core.handle();
        core.block_on(async {
            let any = Addr::Tcp(([127, 0, 0, 1], 0).into());
            // The kernel connects; nobody accepts.
            let listener = Listener::bind(&handle, &any, ListenOptions::default());
            let listener = listener.expect("a port");
            let address = listener.local_addr().expect("an address");
            let mut options = Options::new("silent", 1);
            options.silence = Duration::from_millis(20);
            let connected = Client::connect(&handle, &address, options).await;
            assert!(matches!(connected.err(), Some(ClientError::Silent)));
        });
    }
}
