//! A client of NFSv4.2 as a kernel is one: it connects again, repeats what was not answered, claims what it
//! held, and asks again where it is told to.

use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use nfs::wire::*;
use nfs::xdr::{Encoder, Opaque, from_bytes};
use rt::Instant;
use rt::net::Addr;
use sim::Env;

use super::site::{LEASE, PORT};
use super::wire::{Done, Wire};

/// The slot of requests, that of what a restart asks for, and that of requests beside others.
const REQUESTS: usize = 0;
const CLAIMS: usize = 1;
const BESIDE: usize = 2;

/// A slot, and what is asked on it.
type Ask<'a> = (usize, &'a [NfsArgop4<'a>]);

/// The whole file, or no stateid in particular.
pub(crate) const ANONYMOUS: Stateid4 = Stateid4 {
    seqid: 0,
    other: [0; 12],
};

/// The stateid that an operation before has given.
pub(crate) const CURRENT: Stateid4 = Stateid4 {
    seqid: 1,
    other: [0; 12],
};

/// A file that the client has open, with a lock of all of it if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) handle: Vec<u8>,
    pub(crate) owner: String,
    pub(crate) stateid: Stateid4,
    pub(crate) lock: Option<Stateid4>,
    /// Its end was asked for: after a restart it may be gone.
    pub(crate) is_closing: bool,
    /// It was asked for, and is gone.
    pub(crate) is_gone: bool,
}

/// A client with a session.
pub(crate) struct Client {
    pub(crate) core: rt::Handle,
    addr: Addr,
    wire: Option<Wire>,
    name: String,
    id: Clientid4,
    session: Sessionid4,
    /// The last sequence number of each slot.
    turns: [u32; 3],
    /// How often the connection was lost.
    pub(crate) breaks: u64,
    /// How many opens were claimed again.
    pub(crate) claims: u64,
    /// A restart may have made claims due.
    has_claims: bool,
    pub(crate) held: Vec<Held>,
    /// When the last request was sent that was answered: its lease holds for so much longer at least.
    renewed: Instant,
    /// Its session was taken away.
    pub(crate) is_lost: Rc<Cell<bool>>,
    /// It ends with its session; else whoever asks is told.
    pub(crate) ends_with_session: bool,
}

impl Client {
    pub(crate) async fn new(env: &Env, name: impl Into<String>) -> Self {
        let mut client = Self {
            core: env.core.clone(),
            addr: env.addr(0, PORT),
            wire: None,
            name: name.into(),
            id: 0,
            session: [0; 16],
            turns: [0; 3],
            breaks: 0,
            claims: 0,
            has_claims: false,
            held: Vec::new(),
            renewed: env.core.now(),
            is_lost: Rc::default(),
            ends_with_session: false,
        };
        client.introduce().await;
        client
    }

    /// Who does not hear the answer introduces itself anew: nothing is held yet.
    async fn introduce(&mut self) {
        loop {
            let owner = self.name.clone();
            let exchange = NfsArgop4::ExchangeId(ExchangeId4Args {
                eia_clientowner: ClientOwner4 {
                    co_verifier: [1; 8],
                    co_ownerid: owner.as_str().into(),
                },
                eia_flags: 0,
                eia_state_protect: StateProtect4A::Sp4None,
                eia_client_impl_id: None,
            });
            let Some(done) = self.alone(&exchange).await else {
                continue;
            };
            let (id, sequence) = match done.ok().last() {
                NfsResop4::ExchangeId(Ok(of)) => (of.eir_clientid, of.eir_sequenceid),
                other => panic!("{other:?}"),
            };
            let channel = ChannelAttrs4 {
                ca_headerpadsize: 0,
                ca_maxrequestsize: 1 << 20,
                ca_maxresponsesize: 1 << 20,
                ca_maxresponsesize_cached: 8192,
                ca_maxoperations: 16,
                ca_maxrequests: 3,
                ca_rdma_ird: None,
            };
            let create = NfsArgop4::CreateSession(CreateSession4Args {
                csa_clientid: id,
                csa_sequence: sequence,
                csa_flags: 0,
                csa_fore_chan_attrs: channel.clone(),
                csa_back_chan_attrs: channel,
                csa_cb_program: 0,
                csa_sec_parms: vec![CallbackSecParms4::AuthNone],
            });
            let Some(done) = self.alone(&create).await else {
                continue;
            };
            if done.status == Nfsstat4::NFS4ERR_STALE_CLIENTID {
                continue;
            }
            match done.ok().last() {
                NfsResop4::CreateSession(Ok(of)) => self.session = of.csr_sessionid,
                other => panic!("{other:?}"),
            }
            self.id = id;
            self.has_claims = true;
            return self.claim().await;
        }
    }

    /// One operation without a session; none: the connection has ended.
    async fn alone(&mut self, operation: &NfsArgop4<'_>) -> Option<Done> {
        let wire = self.connected().await;
        let done = wire.call(2, std::slice::from_ref(operation)).await;
        match done {
            Some(done) if done.status == Nfsstat4::NFS4ERR_DELAY => {
                self.core.sleep(Duration::from_millis(1)).await;
                None
            }
            None => {
                self.wire = None;
                None
            }
            done => done,
        }
    }

    async fn connected(&mut self) -> &mut Wire {
        while self.wire.is_none() {
            match Wire::connect(&self.core, &self.addr).await {
                Ok(wire) => self.wire = Some(wire),
                Err(_) => self.core.sleep(Duration::from_millis(1)).await,
            }
        }
        self.wire.as_mut().expect("just connected")
    }

    /// Operations, carried out once, until the server does not put the client off any more.
    pub(crate) async fn call(&mut self, operations: &[NfsArgop4<'_>]) -> Done {
        loop {
            let done = self.on_slot(REQUESTS, operations).await;
            while self.has_claims {
                self.claim().await;
            }
            match done.status {
                status if is_to_come_again(status) => self.pause().await,
                _ => return done,
            }
        }
    }

    pub(crate) async fn pause(&self) {
        self.core.sleep(Duration::from_millis(1)).await;
    }

    /// Two compounds at a time, each carried out once.
    pub(crate) async fn call_both(
        &mut self,
        one: &[NfsArgop4<'_>],
        two: &[NfsArgop4<'_>],
    ) -> [Done; 2] {
        let asks = [(REQUESTS, one), (BESIDE, two)];
        let mut all: [Option<Done>; 2] = [None, None];
        loop {
            let left: Vec<usize> = (0..2).filter(|at| all[*at].is_none()).collect();
            if let [Some(one), Some(two)] = &all {
                return [one.clone(), two.clone()];
            }
            let some: Vec<Ask<'_>> = left.iter().map(|at| asks[*at]).collect();
            let done = self.on_slots(&some).await;
            while self.has_claims {
                self.claim().await;
            }
            for (at, done) in left.into_iter().zip(done) {
                match done.status {
                    status if is_to_come_again(status) => self.pause().await,
                    _ => all[at] = Some(done),
                }
            }
        }
    }

    async fn on_slot(&mut self, slot: usize, operations: &[NfsArgop4<'_>]) -> Done {
        let mut done = self.on_slots(&[(slot, operations)]).await;
        done.pop().expect("an answer to each")
    }

    /// Asks with the same numbers until there are answers.
    async fn on_slots(&mut self, asks: &[Ask<'_>]) -> Vec<Done> {
        let mut compounds = Vec::new();
        for (slot, operations) in asks {
            self.turns[*slot] += 1;
            let sequence = NfsArgop4::Sequence(Sequence4Args {
                sa_sessionid: self.session,
                sa_sequenceid: self.turns[*slot],
                sa_slotid: *slot as u32,
                sa_highest_slotid: 2,
                sa_cachethis: !is_read(operations),
            });
            let mut all = vec![sequence];
            all.extend_from_slice(operations);
            compounds.push(all);
        }
        let mut told: Vec<Option<Done>> = vec![None; asks.len()];
        while told.iter().any(Option::is_none) {
            let left: Vec<usize> = (0..told.len()).filter(|at| told[*at].is_none()).collect();
            self.connected().await;
            let sent = self.core.now();
            let wire = self.connected().await;
            let mut xids = Vec::new();
            for at in &left {
                xids.extend(wire.ask(2, &compounds[*at]).await);
            }
            let is_sent = xids.len() == left.len();
            let answers = match is_sent {
                true => wire.answers(&xids).await,
                false => Vec::new(),
            };
            let is_lost = !is_sent || answers.iter().any(Option::is_none);
            let mut is_put_off = false;
            for (at, answer) in left.into_iter().zip(answers) {
                match answer {
                    Some(done) if done.is_refused() && done.status == Nfsstat4::NFS4ERR_DELAY => {
                        is_put_off = true;
                    }
                    Some(done)
                        if self.ends_with_session
                            && done.status == Nfsstat4::NFS4ERR_BADSESSION =>
                    {
                        self.end().await;
                    }
                    None => {}
                    answer => {
                        self.renewed = sent;
                        told[at] = answer;
                    }
                }
            }
            if is_lost {
                // It may be of before a restart: to another server it would say that nothing is claimed.
                for (all, (_, operations)) in compounds.iter_mut().zip(asks) {
                    if matches!(operations, [NfsArgop4::ReclaimComplete(_)]) {
                        all.truncate(1);
                    }
                }
                self.wire = None;
                self.breaks += 1;
                self.has_claims = true;
            } else if is_put_off {
                // Claims first: that is what the server may wait for.
                if asks.iter().all(|(slot, _)| *slot != CLAIMS) && self.has_claims {
                    Box::pin(self.claim()).await;
                }
                self.pause().await;
            }
        }
        told.into_iter().flatten().collect()
    }

    /// Its lease has run out, and somebody wanted the room that it kept: what it knew of files is of no use any more. Never
    /// ends.
    async fn end(&self) {
        let silent = self.core.now() - self.renewed;
        assert!(silent > LEASE, "its lease holds: {silent:?} of {LEASE:?}");
        self.is_lost.set(true);
        pending::<()>().await;
    }

    /// Claims what was held before a restart, if there was one, and says that this was all.
    async fn claim(&mut self) {
        self.has_claims = false;
        let breaks = self.breaks;
        for at in 0..self.held.len() {
            self.claim_one(at).await;
            if self.breaks != breaks {
                // Another restart: everything once more.
                return;
            }
        }
        let complete = NfsArgop4::ReclaimComplete(ReclaimComplete4Args { rca_one_fs: false });
        let done = self.ask_to_claim(&[complete]).await;
        if self.breaks != breaks {
            return;
        }
        assert!(
            matches!(
                done.status,
                Nfsstat4::NFS4_OK | Nfsstat4::NFS4ERR_COMPLETE_ALREADY
            ),
            "{done:?}"
        );
    }

    /// Operations of a claim: a server that closes puts off even these.
    async fn ask_to_claim(&mut self, operations: &[NfsArgop4<'_>]) -> Done {
        loop {
            let done = self.on_slot(CLAIMS, operations).await;
            match done.status {
                Nfsstat4::NFS4ERR_DELAY => self.pause().await,
                _ => return done,
            }
        }
    }

    async fn claim_one(&mut self, at: usize) {
        let held = self.held[at].clone();
        let claim = OpenClaim4::ClaimPrevious(OpenDelegationType4::OPEN_DELEGATE_NONE);
        let open = open(
            &held.owner,
            Openflag4::Default(Opentype4::OPEN4_NOCREATE),
            claim,
        );
        let done = self.ask_to_claim(&[put_handle(&held.handle), open]).await;
        // The connection was lost, and the server was not.
        let is_gone = held.is_closing && done.status == Nfsstat4::NFS4ERR_STALE;
        if done.status == Nfsstat4::NFS4ERR_NO_GRACE || is_gone {
            self.held[at].is_gone = is_gone;
            return;
        }
        self.held[at].stateid = opened(&done.ok());
        self.claims += 1;
        if held.lock.is_none() {
            return;
        }
        let lock = lock_all(&held.owner, &self.held[at].stateid, true);
        let breaks = self.breaks;
        let done = self.ask_to_claim(&[put_handle(&held.handle), lock]).await;
        if done.status == Nfsstat4::NFS4ERR_STALE_STATEID && self.breaks != breaks {
            // Another restart: the open is of before it.
            return;
        }
        match done.ok().last() {
            NfsResop4::Lock(Lock4Res::Nfs4Ok(of)) => self.held[at].lock = Some(of.lock_stateid),
            other => panic!("{other:?}"),
        }
    }
}

/// Whether operations are asked for again as new ones: nothing was done, or nothing was to be done.
fn is_to_come_again(status: Nfsstat4) -> bool {
    matches!(
        status,
        Nfsstat4::NFS4ERR_DELAY | Nfsstat4::NFS4ERR_GRACE | Nfsstat4::NFS4ERR_RETRY_UNCACHED_REP
    )
}

/// Whether operations read data: their answers are long, and are not kept for a repeat.
fn is_read(operations: &[NfsArgop4<'_>]) -> bool {
    let mut all = operations.iter();
    all.any(|operation| matches!(operation, NfsArgop4::Read(_)))
}

pub(crate) fn put_handle(handle: &[u8]) -> NfsArgop4<'_> {
    NfsArgop4::Putfh(Putfh4Args {
        object: Opaque(handle),
    })
}

/// An OPEN for reading and writing, which wants no delegation.
pub(crate) fn open<'a>(owner: &'a str, how: Openflag4<'a>, claim: OpenClaim4<'a>) -> NfsArgop4<'a> {
    NfsArgop4::Open(Open4Args {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: StateOwner4 {
            clientid: 0,
            owner: owner.into(),
        },
        openhow: how,
        claim,
    })
}

/// A lock of a whole file, to write.
pub(crate) fn lock_all<'a>(owner: &'a str, open: &Stateid4, reclaim: bool) -> NfsArgop4<'a> {
    NfsArgop4::Lock(Lock4Args {
        locktype: NfsLockType4::WRITE_LT,
        reclaim,
        offset: 0,
        length: u64::MAX,
        locker: Locker4::OpenOwner(OpenToLockOwner4 {
            open_seqid: 0,
            open_stateid: open.clone(),
            lock_seqid: 0,
            lock_owner: StateOwner4 {
                clientid: 0,
                owner: owner.into(),
            },
        }),
    })
}

/// The stateid of an OPEN among the results.
pub(crate) fn opened(done: &Done) -> Stateid4 {
    let results = done.results();
    let of = results.iter().find_map(|result| match result {
        NfsResop4::Open(Ok(of)) => Some(of.stateid.clone()),
        _ => None,
    });
    of.unwrap_or_else(|| panic!("{done:?}"))
}

/// The file handle of a GETFH among the results.
pub(crate) fn handle_of(done: &Done) -> Vec<u8> {
    let results = done.results();
    let of = results.iter().find_map(|result| match result {
        NfsResop4::Getfh(Ok(of)) => Some(of.object.to_vec()),
        _ => None,
    });
    of.unwrap_or_else(|| panic!("{done:?}"))
}

pub(crate) fn close(stateid: &Stateid4) -> NfsArgop4<'static> {
    NfsArgop4::Close(Close4Args {
        seqid: 0,
        open_stateid: stateid.clone(),
    })
}

/// Attributes as they are sent, for [`fattr`].
pub(crate) fn attributes(of: &[Attribute<'_>]) -> Vec<u8> {
    let wanted: Bitmap4 = of.iter().map(Attribute::number).collect();
    let mut out = Encoder::default();
    put_attributes(&mut out, &wanted, |number| {
        of.iter().find(|one| one.number() == number).cloned()
    });
    out.into_bytes()
}

pub(crate) fn fattr(bytes: &[u8]) -> Fattr4<'_> {
    from_bytes(bytes).expect("just put")
}
