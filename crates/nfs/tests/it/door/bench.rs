//! A door over the model in a world of its own, and clients that say what a test has them say.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use files::VolumeId;
use nfs::compound::{CompoundCall, CompoundResults};
use nfs::rpc::{self, AuthStat, AuthSys, Call, Credential, Message, Outcome, Records, Reply};
use nfs::server::{Door, Export, Options, Squash};
use nfs::wire::*;
use nfs::xdr::{Decoder, Encoder, Opaque};
use rt::JoinHandle;
use rt::net::{ListenOptions, Listener, RecvHalf, SendHalf, Stream};
use sim::{Env, World, WorldOptions};

use super::gate::Gate;

/// How long a lease is here.
pub(super) const LEASE: Duration = Duration::from_secs(90);

pub(super) const PORT: u16 = 2049;

/// Another address of the same door.
pub(super) const PORT_ALSO: u16 = 2050;

/// Bytes of a reply before its results: its number, that it is one, that it was accepted, a verifier of
/// AUTH_NONE, and that it succeeded.
const REPLY_LEN: usize = 24;

/// The program that clients are called back by.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// Node 0 serves, node 1 has the clients.
pub(super) struct Rig {
    pub(super) world: World,
    pub(super) fs: Rc<Gate>,
    door: Rc<RefCell<Option<Rc<Door>>>>,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(super) fn with(change: impl Fn(&mut Options) + 'static) -> Self {
        Self::over(WorldOptions::new(1, 2), change)
    }

    /// The same in another world of two nodes.
    pub(super) fn over(world: WorldOptions, change: impl Fn(&mut Options) + 'static) -> Self {
        let mut world = World::new(world);
        let fs = Rc::new(Gate::default());
        let door = Rc::new(RefCell::new(None));
        let (to_fs, to_door, change) = (Rc::clone(&fs), Rc::clone(&door), Rc::new(change));
        world.boot(0, move |env| {
            let (fs, door, change) = (Rc::clone(&to_fs), Rc::clone(&to_door), Rc::clone(&change));
            async move {
                let mut export = Export::new("/", VolumeId(1));
                export.squash = Squash::None;
                let mut options = Options::new(vec![export]);
                options.lease = LEASE;
                change(&mut options);
                let opened = Door::open(&env.core, fs, options).await.expect("a door");
                *door.borrow_mut() = Some(Rc::clone(&opened));
                let listen = |port| {
                    let addr = env.addr(0, port);
                    let listener = Listener::bind(&env.core, &addr, ListenOptions::default());
                    listener.expect("a free port")
                };
                let (listener, also) = (listen(PORT), listen(PORT_ALSO));
                drop(env.core.spawn(Rc::clone(&opened).keep()));
                drop(env.core.spawn(Rc::clone(&opened).serve(also)));
                opened.serve(listener).await;
            }
        });
        let mut rig = Self { world, fs, door };
        rig.pass(Duration::from_millis(1));
        rig
    }

    /// The server dies and comes back; nothing durable is lost.
    pub(super) fn restart(&mut self) {
        *self.door.borrow_mut() = None;
        self.world.kill(0).expect("no task panics");
        self.fs.model.restart();
        self.world.restart(0);
        self.pass(Duration::from_millis(1));
    }

    pub(super) fn door(&self) -> Rc<Door> {
        self.door.borrow().clone().expect("it serves")
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.world.run_for(time).expect("nothing panics");
    }

    /// Runs a script of the clients.
    pub(super) fn run<F>(&mut self, script: impl FnOnce(Env) -> F + 'static) -> F::Output
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.world.run(1, script).expect("the script ends")
    }
}

/// Waits until something holds.
pub(super) async fn until(env: &Env, holds: impl Fn() -> bool) {
    while !holds() {
        env.core.sleep(Duration::from_millis(1)).await;
    }
}

/// What a client does with a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// CB_RECALL is answered like this, or CB_GETATTR refused.
    Answer(Nfsstat4),
    /// CB_GETATTR is answered with this change and size.
    Tell(u64, u64),
    /// The credential is refused.
    Deny(AuthStat),
    /// The call is lost on its way: the client never sees it.
    Lost,
    /// The client sees it, and the answer is lost.
    Unanswered,
    /// The client sees it, and its answer makes no sense.
    Garbled,
}

/// A callback, as it came.
#[derive(Clone, Debug)]
pub(super) struct Callback {
    /// The user of AUTH_SYS; none: AUTH_NONE.
    pub(super) user: Option<u32>,
    /// The minor version that the door speaks.
    pub(super) minor: u32,
    pub(super) sequence: u32,
    pub(super) referring: Vec<ReferringCallList4>,
    /// What is wanted back; none: CB_SEQUENCE alone, or CB_GETATTR.
    pub(super) recall: Option<Stateid4>,
    /// The file whose attributes are asked for.
    pub(super) getattr: Option<Vec<u8>>,
    /// What the client said.
    pub(super) reaction: Reaction,
}

type React = Rc<dyn Fn(&Callback) -> Reaction>;

/// What a client knows of its back channels, whatever connection they are over.
#[derive(Clone)]
pub(super) struct Back {
    pub(super) called: Rc<RefCell<Vec<Callback>>>,
    react: Rc<RefCell<React>>,
    /// The last sequence number of each session's slot.
    sequences: Rc<RefCell<BTreeMap<Sessionid4, u32>>>,
}

impl Back {
    pub(super) fn new() -> Self {
        let react: React = Rc::new(|_| Reaction::Answer(Nfsstat4::NFS4_OK));
        Self {
            called: Rc::default(),
            react: Rc::new(RefCell::new(react)),
            sequences: Rc::default(),
        }
    }

    pub(super) fn on_call(&self, react: impl Fn(&Callback) -> Reaction + 'static) {
        *self.react.borrow_mut() = Rc::new(react);
    }

    /// Recalls that the client has answered.
    pub(super) fn recalls(&self) -> usize {
        let called = self.called.borrow();
        let of_use = called
            .iter()
            .filter(|call| call.recall.is_some() && matches!(call.reaction, Reaction::Answer(_)));
        of_use.count()
    }

    /// The answer to a callback; none: there is none.
    fn answer(&self, call: &Call<'_>, mut from: Decoder<'_>) -> Option<Vec<u8>> {
        let mut out = Encoder::default();
        let user = match Credential::of(&call.credential).expect("a flavor that is served") {
            Credential::None => None,
            Credential::Sys(user) => Some(user.uid),
        };
        let arguments: CbCompound4Args<'_> = from.take().expect("a callback");
        let Some(NfsCbArgop4::CbSequence(of)) = arguments.argarray.first() else {
            panic!("a callback without CB_SEQUENCE");
        };
        let (mut recall, mut getattr) = (None, None);
        match arguments.argarray.get(1) {
            Some(NfsCbArgop4::CbRecall(of)) => recall = Some(of.stateid.clone()),
            Some(NfsCbArgop4::CbGetattr(of)) => getattr = Some(of.fh.to_vec()),
            None => {}
            other => panic!("{other:?}"),
        }
        let mut callback = Callback {
            user,
            minor: arguments.minorversion,
            sequence: of.csa_sequenceid,
            referring: of.csa_referring_call_lists.clone(),
            recall,
            getattr,
            reaction: Reaction::Lost,
        };
        let react = self.react.borrow().clone();
        let reaction = react(&callback);
        callback.reaction = reaction;
        let mut sequences = self.sequences.borrow_mut();
        let last = sequences.entry(of.csa_sessionid).or_default();
        let at = match of.csa_sequenceid.wrapping_sub(*last) {
            0 => Nfsstat4::NFS4ERR_RETRY_UNCACHED_REP,
            1 => Nfsstat4::NFS4_OK,
            _ => Nfsstat4::NFS4ERR_SEQ_MISORDERED,
        };
        let is_seen = matches!(
            reaction,
            Reaction::Answer(_) | Reaction::Tell(..) | Reaction::Unanswered | Reaction::Garbled
        );
        if is_seen && at == Nfsstat4::NFS4_OK {
            *last = of.csa_sequenceid;
        }
        if at != Nfsstat4::NFS4_OK && is_seen {
            (callback.recall, callback.getattr) = (None, None);
        }
        let has_recall = callback.recall.is_some();
        let has_getattr = callback.getattr.is_some();
        let mut values = Encoder::default();
        if let Reaction::Tell(change, size) = reaction {
            let told = Bitmap4::of(&[FATTR4_CHANGE, FATTR4_SIZE]);
            put_attributes(&mut values, &told, |number| match number {
                FATTR4_CHANGE => Some(Attribute::Change(change)),
                _ => Some(Attribute::Size(size)),
            });
        }
        self.called.borrow_mut().push(callback);
        let xid = call.xid;
        rpc::put_record(&mut out, |out| match reaction {
            Reaction::Deny(why) => out.put(&Reply {
                xid,
                outcome: Outcome::AuthError(why),
            }),
            Reaction::Answer(_) | Reaction::Tell(..) => {
                let status = match reaction {
                    Reaction::Answer(status) => status,
                    _ => Nfsstat4::NFS4_OK,
                };
                out.put(&Reply {
                    xid,
                    outcome: Outcome::Success,
                });
                let sequence = match at {
                    Nfsstat4::NFS4_OK => Ok(CbSequence4Resok {
                        csr_sessionid: of.csa_sessionid,
                        csr_sequenceid: of.csa_sequenceid,
                        csr_slotid: 0,
                        csr_highest_slotid: 0,
                        csr_target_highest_slotid: 0,
                    }),
                    refused => Err(refused),
                };
                let mut results = vec![NfsCbResop4::CbSequence(sequence)];
                let mut last = at;
                if at == Nfsstat4::NFS4_OK && has_recall {
                    last = status;
                    let is_ok = status == Nfsstat4::NFS4_OK;
                    let result = if is_ok { Ok(()) } else { Err(status) };
                    results.push(NfsCbResop4::CbRecall(result));
                }
                if at == Nfsstat4::NFS4_OK && has_getattr {
                    last = status;
                    let told = Decoder::new(values.as_bytes()).take();
                    let result = told.map(|obj_attributes| CbGetattr4Resok { obj_attributes });
                    // Who is not told what to say refuses.
                    results.push(NfsCbResop4::CbGetattr(result.map_err(|_| {
                        last = Nfsstat4::NFS4ERR_BADHANDLE;
                        last
                    })));
                }
                out.put(&CbCompound4Res {
                    status: last,
                    tag: Opaque(b""),
                    resarray: results,
                });
            }
            Reaction::Garbled => out.put(&Reply {
                xid,
                outcome: Outcome::Success,
            }),
            Reaction::Lost | Reaction::Unanswered => {}
        });
        let is_answered = matches!(
            reaction,
            Reaction::Deny(_) | Reaction::Answer(_) | Reaction::Tell(..) | Reaction::Garbled
        );
        is_answered.then(|| out.into_bytes())
    }
}

/// What a compound was answered.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) status: Nfsstat4,
    bytes: Vec<u8>,
}

impl Done {
    /// The result of an operation, from 0; SEQUENCE counts.
    pub(super) fn result(&self, at: usize) -> NfsResop4<'_> {
        let mut results = CompoundResults::take(Decoder::new(&self.bytes)).expect("results");
        let result = results.nth(at).expect("as many results");
        result.expect("a result that can be read")
    }

    /// Bytes of the record that it came in, without the record's marker.
    pub(super) fn record_len(&self) -> usize {
        REPLY_LEN + self.bytes.len()
    }

    /// The last result's bytes end the answer.
    pub(super) fn is_whole(&self) -> bool {
        let mut from = Decoder::new(&self.bytes);
        let whole: Compound4Res<'_> = from.take().expect("results");
        from.rest().is_empty() && whole.status == self.status
    }

    pub(super) fn ok(self) -> Self {
        assert_eq!(self.status, Nfsstat4::NFS4_OK, "{self:?}");
        self
    }

    /// The stateid of an OPEN, which is this operation.
    pub(super) fn opened(&self, at: usize) -> (Stateid4, Option<Stateid4>) {
        let (stateid, delegation) = self.opened_with(at);
        (stateid, delegation.map(|(stateid, _)| stateid))
    }

    /// The same, and whether the delegation is for writing.
    pub(super) fn opened_with(&self, at: usize) -> (Stateid4, Option<(Stateid4, bool)>) {
        match self.result(at) {
            NfsResop4::Open(Ok(of)) => {
                let delegation = match of.delegation {
                    OpenDelegation4::OpenDelegateRead(of) => Some((of.stateid, false)),
                    OpenDelegation4::OpenDelegateWrite(of) => Some((of.stateid, true)),
                    _ => None,
                };
                (of.stateid, delegation)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A connection.
pub(super) struct Wire {
    core: rt::Handle,
    sender: RefCell<Option<SendHalf>>,
    answers: RefCell<BTreeMap<u32, (Outcome, Vec<u8>)>>,
    xid: Cell<u32>,
    is_open: Cell<bool>,
    pub(super) user: Cell<u32>,
    /// Bytes of the tags of compounds.
    pub(super) tag: Cell<usize>,
    receiving: RefCell<Option<JoinHandle<()>>>,
}

impl Wire {
    pub(super) async fn connect(env: &Env, back: &Back) -> Rc<Self> {
        Self::connect_to(env, back, PORT).await
    }

    pub(super) async fn connect_to(env: &Env, back: &Back, port: u16) -> Rc<Self> {
        let stream = Stream::connect(&env.core, &env.addr(0, port)).await;
        let (receiver, sender) = stream.expect("a server").into_split();
        let wire = Rc::new(Self {
            core: env.core.clone(),
            sender: RefCell::new(Some(sender)),
            answers: RefCell::default(),
            xid: Cell::new(100),
            is_open: Cell::new(true),
            user: Cell::new(0),
            tag: Cell::new(0),
            receiving: RefCell::default(),
        });
        let (of, back) = (Rc::clone(&wire), back.clone());
        let receiving = env
            .core
            .spawn(async move { of.receive(receiver, back).await });
        *wire.receiving.borrow_mut() = Some(receiving);
        wire
    }

    async fn receive(self: Rc<Self>, mut receiver: RecvHalf, back: Back) {
        let mut records = Records::new(4 << 20);
        loop {
            let place = records.buffer();
            let (count, buffer) = receiver.recv(std::mem::take(place)).await;
            *place = buffer;
            if !matches!(count, Ok(1..)) {
                return self.is_open.set(false);
            }
            let mut answers = Vec::new();
            while let Some(record) = records.next_record().expect("a record") {
                let mut from = Decoder::new(record);
                match Message::take(&mut from).expect("a message") {
                    Message::Reply(reply) => {
                        let answer = (reply.outcome, from.rest().to_vec());
                        self.answers.borrow_mut().insert(reply.xid, answer);
                    }
                    Message::Call(call) => answers.extend(back.answer(&call, from)),
                }
            }
            for answer in answers {
                self.send(answer).await;
            }
        }
    }

    pub(super) async fn send(&self, bytes: Vec<u8>) {
        let mut sender = loop {
            let taken = self.sender.borrow_mut().take();
            match taken {
                Some(sender) => break sender,
                None if self.is_open() => self.core.sleep(Duration::from_micros(10)).await,
                None => return,
            }
        };
        if sender.send_all(bytes).await.0.is_err() {
            self.is_open.set(false);
        }
        *self.sender.borrow_mut() = Some(sender);
    }

    /// Goes without a word.
    pub(super) fn close(&self) {
        self.is_open.set(false);
        self.sender.borrow_mut().take();
        if let Some(receiving) = self.receiving.borrow_mut().take() {
            receiving.abort();
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Nothing is received any more.
    fn has_ended(&self) -> bool {
        let receiving = self.receiving.borrow();
        receiving.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends a compound; returns its number.
    pub(super) async fn ask(&self, minor: u32, operations: &[NfsArgop4<'_>]) -> u32 {
        let xid = self.xid.get();
        self.xid.set(xid + 1);
        let mut out = Encoder::default();
        rpc::put_record(&mut out, |out| {
            let procedure = (rpc::NFS_PROGRAM, rpc::NFS_VERSION, rpc::PROC_COMPOUND);
            let uid = self.user.get();
            let user = AuthSys {
                uid,
                ..AuthSys::default()
            };
            Call::put(out, xid, procedure, &Credential::Sys(user));
            let tag = vec![b't'; self.tag.get()];
            let mut call = CompoundCall::begin(out, tag.as_slice().into(), minor);
            for operation in operations {
                call.operation(out, operation);
            }
            call.finish(out);
        });
        self.send(out.into_bytes()).await;
        xid
    }

    /// Waits for the answer; none: the connection has ended.
    pub(super) async fn answer(&self, xid: u32) -> Option<Done> {
        loop {
            if let Some((outcome, bytes)) = self.answers.borrow_mut().remove(&xid) {
                assert_eq!(outcome, Outcome::Success);
                let mut results = Decoder::new(&bytes);
                let status = results.take().expect("a status");
                return Some(Done { status, bytes });
            }
            if self.has_ended() {
                return None;
            }
            self.core.sleep(Duration::from_micros(100)).await;
        }
    }

    pub(super) async fn call(&self, minor: u32, operations: &[NfsArgop4<'_>]) -> Done {
        let xid = self.ask(minor, operations).await;
        self.answer(xid).await.expect("an answer")
    }
}

/// A client of 4.1 with a session.
pub(super) struct Client {
    pub(super) wire: Rc<Wire>,
    pub(super) back: Back,
    pub(super) id: u64,
    pub(super) session: Sessionid4,
    /// The last sequence number of each slot.
    pub(super) slots: RefCell<[u32; 8]>,
}

/// Flags and channels as a client usually asks for them.
pub(super) fn create_session(id: u64, sequence: u32) -> CreateSession4Args<'static> {
    let channel = ChannelAttrs4 {
        ca_headerpadsize: 0,
        ca_maxrequestsize: 8192,
        ca_maxresponsesize: 8192,
        ca_maxresponsesize_cached: 4096,
        ca_maxoperations: 8,
        ca_maxrequests: 8,
        ca_rdma_ird: None,
    };
    CreateSession4Args {
        csa_clientid: id,
        csa_sequence: sequence,
        csa_flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
        csa_fore_chan_attrs: channel.clone(),
        csa_back_chan_attrs: channel,
        csa_cb_program: CALLBACK_PROGRAM,
        csa_sec_parms: vec![CallbackSecParms4::AuthSys(AuthSys {
            uid: 77,
            ..AuthSys::default()
        })],
    }
}

/// A client says who it is.
pub(super) async fn exchange_id(
    wire: &Wire,
    name: &str,
    verifier: u8,
) -> ExchangeId4Resok<'static> {
    let done = wire
        .call(
            1,
            &[NfsArgop4::ExchangeId(ExchangeId4Args {
                eia_clientowner: ClientOwner4 {
                    co_verifier: [verifier; 8],
                    co_ownerid: name.into(),
                },
                eia_flags: 0,
                eia_state_protect: StateProtect4A::Sp4None,
                eia_client_impl_id: None,
            })],
        )
        .await
        .ok();
    match done.result(0) {
        NfsResop4::ExchangeId(Ok(of)) => ExchangeId4Resok {
            eir_server_owner: ServerOwner4 {
                so_minor_id: 0,
                so_major_id: Opaque(b""),
            },
            eir_server_scope: Opaque(b""),
            eir_server_impl_id: None,
            eir_state_protect: StateProtect4R::Sp4None,
            ..of
        },
        other => panic!("{other:?}"),
    }
}

/// The session that was made.
pub(super) fn session_of(done: &Done) -> Sessionid4 {
    match done.result(0) {
        NfsResop4::CreateSession(Ok(of)) => of.csr_sessionid,
        other => panic!("{other:?}"),
    }
}

impl Client {
    /// A client that has a session and reclaims nothing.
    pub(super) async fn new(env: &Env, name: &str) -> Self {
        Self::at(env, name, PORT).await
    }

    /// The same, that comes through one of the door's addresses.
    pub(super) async fn at(env: &Env, name: &str, port: u16) -> Self {
        let client = Self::with_at(env, name, port, |_| ()).await;
        client.reclaim_complete().await;
        client
    }

    pub(super) async fn with(
        env: &Env,
        name: &str,
        change: impl FnOnce(&mut CreateSession4Args<'static>),
    ) -> Self {
        Self::with_at(env, name, PORT, change).await
    }

    async fn with_at(
        env: &Env,
        name: &str,
        port: u16,
        change: impl FnOnce(&mut CreateSession4Args<'static>),
    ) -> Self {
        let back = Back::new();
        let wire = Wire::connect_to(env, &back, port).await;
        let id = exchange_id(&wire, name, 1).await.eir_clientid;
        let mut of = create_session(id, 1);
        change(&mut of);
        let done = wire.call(1, &[NfsArgop4::CreateSession(of)]).await.ok();
        Self {
            session: session_of(&done),
            wire,
            back,
            id,
            slots: RefCell::default(),
        }
    }

    pub(super) async fn reclaim_complete(&self) {
        let of = ReclaimComplete4Args { rca_one_fs: false };
        self.call(&[NfsArgop4::ReclaimComplete(of)]).await.ok();
    }

    /// One that has restarted so often, with a session that keeps answers over a restart.
    pub(super) async fn begun(env: &Env, name: &str, verifier: u8) -> Self {
        let back = Back::new();
        let wire = Wire::connect(env, &back).await;
        let id = exchange_id(&wire, name, verifier).await.eir_clientid;
        let of = create_session(id, 1);
        let done = wire.call(1, &[NfsArgop4::CreateSession(of)]).await.ok();
        Self {
            session: session_of(&done),
            wire,
            back,
            id,
            slots: RefCell::default(),
        }
    }

    /// Connects again, and has callbacks there.
    pub(super) async fn reconnect(&mut self, env: &Env) {
        self.connect(env).await;
        self.bind().await;
    }

    /// Connects again.
    pub(super) async fn connect(&mut self, env: &Env) {
        self.wire.close();
        self.wire = Wire::connect(env, &self.back).await;
    }

    /// Has callbacks over the connection that there is.
    pub(super) async fn bind(&self) {
        let of = BindConnToSession4Args {
            bctsa_sessid: self.session,
            bctsa_dir: ChannelDirFromClient4::CDFC4_FORE_OR_BOTH,
            bctsa_use_conn_in_rdma_mode: false,
        };
        let bind = [NfsArgop4::BindConnToSession(of)];
        self.wire.call(1, &bind).await.ok();
    }

    pub(super) fn sequence(&self, slot: u32, sequence: u32, is_cached: bool) -> NfsArgop4<'static> {
        NfsArgop4::Sequence(Sequence4Args {
            sa_sessionid: self.session,
            sa_sequenceid: sequence,
            sa_slotid: slot,
            sa_highest_slotid: slot,
            sa_cachethis: is_cached,
        })
    }

    /// Operations on slot 0.
    pub(super) async fn call(&self, operations: &[NfsArgop4<'_>]) -> Done {
        let xid = self.ask(0, operations).await;
        self.wire.answer(xid).await.expect("an answer")
    }

    /// Begins operations on a slot.
    pub(super) async fn ask(&self, slot: u32, operations: &[NfsArgop4<'_>]) -> u32 {
        let sequence = {
            let mut slots = self.slots.borrow_mut();
            slots[slot as usize] += 1;
            slots[slot as usize]
        };
        let mut all = vec![self.sequence(slot, sequence, false)];
        all.extend_from_slice(operations);
        self.wire.ask(1, &all).await
    }

    /// Operations of 4.2 on slot 0.
    pub(super) async fn call_2(&self, operations: &[NfsArgop4<'_>]) -> Done {
        let sequence = {
            let mut slots = self.slots.borrow_mut();
            slots[0] += 1;
            slots[0]
        };
        let mut all = vec![self.sequence(0, sequence, false)];
        all.extend_from_slice(operations);
        self.wire.call(2, &all).await
    }

    /// A file's size, looked up in the root directory.
    pub(super) async fn size(&self, name: &str) -> u64 {
        let attr_request = Bitmap4::of(&[FATTR4_SIZE]);
        let getattr = NfsArgop4::Getattr(Getattr4Args { attr_request });
        let done = self
            .call(&[NfsArgop4::Putrootfh, lookup(name), getattr])
            .await
            .ok();
        let NfsResop4::Getattr(Ok(of)) = done.result(3) else {
            panic!("{done:?}");
        };
        let mut attributes = of.obj_attributes.attributes();
        match attributes.next() {
            Some(Ok(Attribute::Size(size))) => size,
            other => panic!("{other:?}"),
        }
    }

    /// The flags of a SEQUENCE.
    pub(super) async fn flags(&self) -> u32 {
        match self.call(&[]).await.ok().result(0) {
            NfsResop4::Sequence(Ok(of)) => of.sr_status_flags,
            other => panic!("{other:?}"),
        }
    }

    /// Opens a file of the root directory; its stateid, and that of the delegation.
    pub(super) async fn open(&self, name: &str, access: u32) -> (Stateid4, Option<Stateid4>) {
        let done = self
            .call(&[NfsArgop4::Putrootfh, open(name, "o", access)])
            .await;
        done.ok().opened(2)
    }

    /// Makes a file of the root directory, and closes it.
    pub(super) async fn make(&self, name: &str) {
        let done = self
            .call(&[NfsArgop4::Putrootfh, create(name, "maker"), close(&CURRENT)])
            .await;
        done.ok();
    }
}

/// The stateid that an operation before has given.
pub(super) const CURRENT: Stateid4 = Stateid4 {
    seqid: 1,
    other: [0; 12],
};

pub(super) const ANONYMOUS: Stateid4 = Stateid4 {
    seqid: 0,
    other: [0; 12],
};

fn opens<'a>(name: &'a str, owner: &'a str, access: u32, how: Openflag4<'a>) -> NfsArgop4<'a> {
    NfsArgop4::Open(Open4Args {
        seqid: 0,
        share_access: access,
        share_deny: 0,
        owner: StateOwner4 {
            clientid: 0,
            owner: owner.into(),
        },
        openhow: how,
        claim: OpenClaim4::ClaimNull(name.into()),
    })
}

pub(super) fn open<'a>(name: &'a str, owner: &'a str, access: u32) -> NfsArgop4<'a> {
    let how = Openflag4::Default(Opentype4::OPEN4_NOCREATE);
    opens(name, owner, access, how)
}

pub(super) fn create<'a>(name: &'a str, owner: &'a str) -> NfsArgop4<'a> {
    let how = Createhow4::Unchecked4(no_attributes());
    opens(
        name,
        owner,
        OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        Openflag4::Open4Create(how),
    )
}

pub(super) fn close(stateid: &Stateid4) -> NfsArgop4<'static> {
    NfsArgop4::Close(Close4Args {
        seqid: 0,
        open_stateid: stateid.clone(),
    })
}

pub(super) fn lookup(name: &str) -> NfsArgop4<'_> {
    NfsArgop4::Lookup(Lookup4Args {
        objname: name.into(),
    })
}

pub(super) fn no_attributes() -> Fattr4<'static> {
    Fattr4 {
        attrmask: Bitmap4::EMPTY,
        attr_vals: Opaque(b""),
    }
}

/// SETATTR of the mode.
pub(super) fn set_mode() -> NfsArgop4<'static> {
    NfsArgop4::Setattr(Setattr4Args {
        stateid: ANONYMOUS,
        obj_attributes: Fattr4 {
            attrmask: Bitmap4::of(&[FATTR4_MODE]),
            attr_vals: Opaque(&[0, 0, 1, 0x80]),
        },
    })
}

/// SETATTR of the size, to none.
pub(super) fn cut(stateid: &Stateid4) -> NfsArgop4<'static> {
    NfsArgop4::Setattr(Setattr4Args {
        stateid: stateid.clone(),
        obj_attributes: no_size(),
    })
}

/// A size of 0.
pub(super) fn no_size() -> Fattr4<'static> {
    Fattr4 {
        attrmask: Bitmap4::of(&[FATTR4_SIZE]),
        attr_vals: Opaque(&[0; 8]),
    }
}

/// WRITE from the first byte on.
pub(super) fn write<'a>(stateid: &Stateid4, data: &'a [u8]) -> NfsArgop4<'a> {
    NfsArgop4::Write(Write4Args {
        stateid: stateid.clone(),
        offset: 0,
        stable: StableHow4::FILE_SYNC4,
        data: data.into(),
    })
}

pub(super) fn delegreturn(stateid: &Stateid4) -> NfsArgop4<'static> {
    NfsArgop4::Delegreturn(Delegreturn4Args {
        deleg_stateid: stateid.clone(),
    })
}
