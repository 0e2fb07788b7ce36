//! Connecting clients, off the cores.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use verbs::typed::{AddressHandle, ConnectOptions, CqRef, ProtectionDomain, QpOptions, Uc};
use verbs::{Access, QpCaps, QpNum, VerbsError};

use super::attachment::{Attachment, Stored};
use super::config::{self, ServerConfig};
use super::{KICK_RECV, KICK_RECVS_MAX};
use crate::herd::memory::Chunk;
use crate::herd::secret;
use crate::herd::slots::{Geometry, next_id};
use crate::herd::wire::answer::{Head, Status};
use crate::herd::wire::handshake::{
    Accept, AcceptCore, Connect, HandshakeError, Message, Refusal, ServerInfo, VERSION,
};

/// What the acceptor must know of a core.
#[derive(Clone, Debug)]
pub struct CorePort {
    pub(super) recv_cq: CqRef,
    /// RECVs for a client's kicks.
    pub(super) kick_recvs: u32,
    pub(super) ud_qpn: QpNum,
}

/// Why a client was not connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// As many clients as there may be.
    #[error("as many clients as the server takes")]
    Full,
    /// The client has another number of cores in mind, or a window that makes no sense.
    #[error("the client's wishes do not fit the server: {0}")]
    Mismatch(&'static str),
    /// The client read the limits of an earlier start.
    #[error("the client talks to an earlier start of this server")]
    Incarnation,
    /// The NIC refused.
    #[error(transparent)]
    Nic(#[from] VerbsError),
}

/// The answer to a line of the handshake.
#[derive(Debug)]
pub struct ControlReply {
    /// What to send, without the line's end.
    pub line: String,
    /// The client's number and its attachments, one for each core to be given to.
    pub attached: Option<(u32, Vec<Attachment>)>,
    /// Whether to close the stream once the line is sent.
    pub close: bool,
}

/// What clients hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct AcceptorUsage {
    /// Clients connected.
    pub clients: usize,
    /// Queue pairs that take their requests.
    pub queue_pairs: usize,
    /// Bytes registered for their requests.
    pub registered_bytes: u64,
    /// Address handles of clients that have gone, which still rest.
    pub handles_resting: usize,
    /// Clients refused so far, for whatever reason.
    pub refused: u64,
}

/// A client, from the time it is let in until the last core has let it go.
#[derive(Debug, Default)]
struct Connected {
    registered: usize,
    /// Of the attachments that its cores have handed back.
    handles: Vec<AddressHandle>,
}

#[derive(Debug, Default)]
struct Clients {
    connected: HashMap<u32, Connected>,
    last: u32,
    refused: u64,
    /// Handles of gone clients and since when, oldest first: answers on their way out may still
    /// name them.
    resting: VecDeque<(u64, Vec<AddressHandle>)>,
}

/// Makes and releases connections. Shared by control threads; no core ever waits for it.
///
/// Each client has a protection domain, a region and queue pairs of its own, so that its keys lead
/// to nothing of another client.
#[derive(Debug)]
pub struct Acceptor {
    pd: ProtectionDomain,
    config: ServerConfig,
    geometry: Geometry,
    answer_len_max: usize,
    cores: Vec<CorePort>,
    clients: Mutex<Clients>,
}

impl Acceptor {
    /// An acceptor for these cores, in order. Answers are sent from `pd`.
    ///
    /// # Errors
    /// `Invalid` for a configuration that makes no sense or another number of cores.
    pub fn new(
        pd: ProtectionDomain,
        config: &ServerConfig,
        cores: Vec<CorePort>,
    ) -> Result<Self, VerbsError> {
        config.check()?;
        if cores.len() != config.cores as usize {
            return Err(VerbsError::invalid("cores", "not as many as configured"));
        }
        let answer_len_max = config::ANSWER_LEN_MAX.min(pd.context().port(1)?.mtu.bytes());
        Ok(Acceptor {
            geometry: config.geometry()?,
            answer_len_max,
            cores,
            clients: Mutex::default(),
            pd,
            config: config.clone(),
        })
    }

    /// What the server tells everybody.
    pub fn info(&self) -> ServerInfo {
        self.config.info(self.answer_len_max)
    }

    /// Says no to a client, and counts it.
    pub fn refuse(&self, why: Refusal) -> ControlReply {
        self.lock().refused += 1;
        ControlReply {
            line: Message::Refuse(why).to_line(),
            attached: None,
            close: true,
        }
    }

    /// Answers a line of the handshake.
    pub fn answer(&self, line: &[u8], now_ns: u64) -> ControlReply {
        let reply = |message: Message| ControlReply {
            line: message.to_line(),
            attached: None,
            close: false,
        };
        match Message::from_line(line) {
            Ok(Message::Hello(from, until)) if (from..=until).contains(&VERSION) => {
                reply(Message::Info(self.info()))
            }
            Ok(Message::Hello(..)) | Err(HandshakeError::Version(_)) => {
                self.refuse(Refusal::Version)
            }
            Ok(Message::Connect(connect)) => match self.accept(&connect, now_ns) {
                Ok((accept, attachments)) => ControlReply {
                    attached: Some((accept.client, attachments)),
                    ..reply(Message::Accept(accept))
                },
                Err(error) => {
                    tracing::warn!(%error, "a client was refused");
                    self.refuse(match error {
                        AcceptError::Full => Refusal::Full,
                        AcceptError::Mismatch(_) => Refusal::Malformed,
                        AcceptError::Incarnation => Refusal::Incarnation,
                        AcceptError::Nic(_) => Refusal::Nic,
                    })
                }
            },
            Ok(_) | Err(_) => self.refuse(Refusal::Malformed),
        }
    }

    /// Makes a client's connection to each core. The attachments may be given to the cores before
    /// or after the client is told: what it writes waits in its slots.
    ///
    /// # Errors
    /// `Full`, `Mismatch`, `Incarnation`, `Nic`.
    pub fn accept(
        &self,
        connect: &Connect,
        now_ns: u64,
    ) -> Result<(Accept, Vec<Attachment>), AcceptError> {
        if connect.incarnation != self.config.incarnation {
            return Err(AcceptError::Incarnation);
        }
        if connect.cores.len() != self.cores.len() {
            return Err(AcceptError::Mismatch("number of cores"));
        }
        let window = connect.window.min(self.config.window_max) as usize;
        let geometry =
            Geometry::new(self.geometry.slot_len, window).ok_or(AcceptError::Mismatch("window"))?;
        let registered = geometry.chunk_len() * self.cores.len();
        self.drop_rested(now_ns);
        let admitted = self.admit(registered)?;
        let made = self.make(connect, admitted.client, geometry)?;
        admitted.stay();
        Ok(made)
    }

    fn make(
        &self,
        connect: &Connect,
        client: u32,
        geometry: Geometry,
    ) -> Result<(Accept, Vec<Attachment>), AcceptError> {
        let pd = self.pd.context().alloc_pd()?;
        // Fresh memory is zero, and 0 is no id.
        let region = Arc::new(pd.allocate(
            geometry.chunk_len() * self.cores.len(),
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        )?);
        // A client says itself where its answers go, so also to another client: that one takes none
        // whose id it cannot have asked for.
        let first_id = self
            .config
            .first_id
            .unwrap_or_else(|| next_id(secret() as u32));
        let mut attachments = Vec::with_capacity(self.cores.len());
        let mut accepts = Vec::with_capacity(self.cores.len());
        for (core, (port, wish)) in self.cores.iter().zip(&connect.cores).enumerate() {
            let chunk_at = core * geometry.chunk_len();
            let mut uc = pd.create_qp::<Uc>(&QpOptions {
                caps: QpCaps {
                    send_wr_max: 1,
                    recv_wr_max: port.kick_recvs,
                    send_sge_max: 1,
                    recv_sge_max: 1,
                    inline_max: 0,
                },
                ..QpOptions::between(&port.recv_cq, &port.recv_cq)
            })?;
            uc.connect(
                &wish.uc,
                &ConnectOptions {
                    access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
                    mtu: pd.context().port(1)?.mtu,
                    ..ConnectOptions::default()
                },
            )?;
            uc.post_recv(&[KICK_RECV; KICK_RECVS_MAX as usize][..port.kick_recvs as usize])
                .map_err(|error| VerbsError::invalid("receive queue", error.to_string()))?;
            accepts.push(AcceptCore {
                uc: uc.endpoint()?,
                chunk: region.remote(chunk_at),
                ud_qpn: port.ud_qpn,
            });
            let none = Stored {
                head: Head::bare(0, Status::Invalid),
                number: 0,
            };
            attachments.push(Attachment {
                client,
                core: core as u32,
                chunk: Chunk::new(
                    Arc::clone(&region),
                    chunk_at..chunk_at + geometry.chunk_len(),
                ),
                geometry,
                first_id,
                uc,
                ah: self.pd.create_ah(connect.gid)?,
                ud_qpn: wish.ud_qpn,
                qkey: wish.qkey,
                results: vec![none; geometry.window].into_boxed_slice(),
                pending: vec![0; geometry.window].into_boxed_slice(),
                pending_count: 0,
            });
        }
        let accept = Accept {
            client,
            window: geometry.window as u32,
            slot_len: geometry.slot_len as u32,
            stride: geometry.stride as u32,
            first_id,
            cores: accepts,
        };
        Ok((accept, attachments))
    }

    /// Takes an attachment back from a core, or one that never got there.
    pub fn release(&self, attachment: Attachment, now_ns: u64) {
        let Attachment { client, uc, ah, .. } = attachment;
        // Not under the lock: it may wait for the NIC.
        drop(uc);
        let mut clients = self.lock();
        let Some(gone) = clients.connected.get_mut(&client) else {
            return;
        };
        gone.handles.push(ah);
        if gone.handles.len() == self.cores.len()
            && let Some(gone) = clients.connected.remove(&client)
        {
            clients.resting.push_back((now_ns, gone.handles));
        }
    }

    /// Drops the address handles of gone clients that have rested for long enough, and says when it
    /// is the turn of the next ones; `None` when none rest. To be called then, though nobody comes.
    pub fn drop_rested(&self, now_ns: u64) -> Option<u64> {
        let (rested, next_ns) = {
            let mut clients = self.lock();
            let ends_ns = |since_ns: u64| since_ns.saturating_add(self.config.handle_rest_ns);
            let is_rested = |(since_ns, _): &(u64, _)| ends_ns(*since_ns) <= now_ns;
            let resting = &mut clients.resting;
            let rested = resting.iter().take_while(|one| is_rested(one)).count();
            let rested: Vec<_> = resting.drain(..rested).collect();
            let next_ns = resting.front().map(|(since_ns, _)| ends_ns(*since_ns));
            (rested, next_ns)
        };
        // Not under the lock: it may wait for the NIC.
        drop(rested);
        next_ns
    }

    /// What clients hold.
    pub fn usage(&self) -> AcceptorUsage {
        let clients = self.lock();
        AcceptorUsage {
            clients: clients.connected.len(),
            queue_pairs: clients.connected.len() * self.cores.len(),
            registered_bytes: clients
                .connected
                .values()
                .map(|of| of.registered as u64)
                .sum(),
            handles_resting: clients.resting.iter().map(|(_, of)| of.len()).sum(),
            refused: clients.refused,
        }
    }

    /// Counts refused clients from zero.
    pub fn reset_stats(&self) {
        self.lock().refused = 0;
    }

    /// Gives a client a number.
    fn admit(&self, registered: usize) -> Result<Admitted<'_>, AcceptError> {
        let mut clients = self.lock();
        if clients.connected.len() >= self.config.clients_max as usize {
            return Err(AcceptError::Full);
        }
        let client = loop {
            let next = clients.last.wrapping_add(1).max(1);
            clients.last = next;
            if !clients.connected.contains_key(&next) {
                break next;
            }
        };
        let connected = Connected {
            registered,
            ..Connected::default()
        };
        clients.connected.insert(client, connected);
        Ok(Admitted {
            acceptor: self,
            client,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Clients> {
        // Each change under the lock is complete in itself.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's place, which is free again unless the client stays: also when making what it needs
/// panics.
struct Admitted<'a> {
    acceptor: &'a Acceptor,
    client: u32,
}

impl Admitted<'_> {
    fn stay(self) {
        std::mem::forget(self);
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.acceptor.lock().connected.remove(&self.client);
    }
}
