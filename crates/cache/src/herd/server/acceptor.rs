//! Connecting clients, off the cores.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use verbs::typed::{AddressHandle, ConnectOptions, MemoryRegion, ProtectionDomain, QpOptions, Uc};
use verbs::{Access, CqNum, QpCaps, QpNum, SrqNum, VerbsError};

use super::attachment::{Attachment, Stored};
use super::config::{self, ServerConfig};
use crate::herd::slots::Geometry;
use crate::herd::wire::answer::{Head, Status};
use crate::herd::wire::handshake::{
    Accept, AcceptLane, Connect, HandshakeError, Message, Refusal, ServerInfo, VERSION,
};

/// What the acceptor must know of a core.
#[derive(Clone, Debug)]
pub struct CorePort {
    pub(super) region: MemoryRegion,
    pub(super) recv_cq: CqNum,
    pub(super) srq: SrqNum,
    pub(super) ud_qpn: QpNum,
}

/// Why a client was not connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// As many clients as there may be; quarantined ones count.
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

/// What a gone client leaves.
#[derive(Debug)]
struct Remains {
    chunk: u32,
    since_ns: u64,
    /// Answers on their way out may still name them.
    _handles: Vec<AddressHandle>,
}

#[derive(Debug, Default)]
struct Chunks {
    free: Vec<u32>,
    /// Oldest first.
    quarantined: VecDeque<Remains>,
    /// Chunks that are being released, with what their cores have handed back so far.
    returning: HashMap<u32, Vec<AddressHandle>>,
    client_next: u32,
}

/// Makes and releases connections. Shared by control threads; no core ever waits for it.
#[derive(Debug)]
pub struct Acceptor {
    pd: ProtectionDomain,
    config: ServerConfig,
    geometry: Geometry,
    answer_len_max: usize,
    cores: Vec<CorePort>,
    chunks: Mutex<Chunks>,
}

impl Acceptor {
    /// An acceptor for these cores, in order.
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
        let answer_len_max = config::ANSWER_LEN_MAX.min(pd.context().port(1)?.mtu_max.bytes());
        Ok(Acceptor {
            geometry: config.geometry()?,
            answer_len_max,
            cores,
            chunks: Mutex::new(Chunks {
                free: (0..config.clients_max).rev().collect(),
                client_next: 1,
                ..Chunks::default()
            }),
            pd,
            config: config.clone(),
        })
    }

    /// What the server tells everybody.
    pub fn info(&self) -> ServerInfo {
        self.config.info(self.answer_len_max)
    }

    /// Answers a line of the handshake.
    pub fn answer(&self, line: &[u8], now_ns: u64) -> ControlReply {
        let reply = |message: Message| ControlReply {
            line: message.to_line(),
            attached: None,
            close: matches!(message, Message::Refuse(_)),
        };
        match Message::from_line(line) {
            Ok(Message::Hello(from, until)) if (from..=until).contains(&VERSION) => {
                reply(Message::Info(self.info()))
            }
            Ok(Message::Hello(..)) | Err(HandshakeError::Version(_)) => {
                reply(Message::Refuse(Refusal::Version))
            }
            Ok(Message::Connect(connect)) => match self.accept(&connect, now_ns) {
                Ok((accept, attachments)) => ControlReply {
                    attached: Some((accept.client, attachments)),
                    ..reply(Message::Accept(accept))
                },
                Err(error) => {
                    tracing::warn!(%error, "a client was refused");
                    reply(Message::Refuse(match error {
                        AcceptError::Full => Refusal::Full,
                        AcceptError::Mismatch(_) => Refusal::Malformed,
                        AcceptError::Incarnation => Refusal::Incarnation,
                        AcceptError::Nic(_) => Refusal::Nic,
                    }))
                }
            },
            Ok(_) | Err(_) => reply(Message::Refuse(Refusal::Malformed)),
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
        if connect.lanes.len() != self.cores.len() {
            return Err(AcceptError::Mismatch("number of cores"));
        }
        let window = connect.window.min(self.config.window_max) as usize;
        let geometry =
            Geometry::new(self.geometry.slot_len, window).ok_or(AcceptError::Mismatch("window"))?;
        let (client, chunk) = self.take_chunk(now_ns)?;
        let made = self.make(connect, client, chunk, geometry);
        if made.is_err() {
            self.lock().quarantined.push_back(Remains {
                chunk,
                since_ns: now_ns,
                _handles: Vec::new(),
            });
        }
        made
    }

    fn make(
        &self,
        connect: &Connect,
        client: u32,
        chunk: u32,
        geometry: Geometry,
    ) -> Result<(Accept, Vec<Attachment>), AcceptError> {
        let mut attachments = Vec::with_capacity(self.cores.len());
        let mut lanes = Vec::with_capacity(self.cores.len());
        for (core, (port, wish)) in self.cores.iter().zip(&connect.lanes).enumerate() {
            let chunk_at = chunk as usize * self.geometry.chunk_len();
            // Ids that an earlier client left would look like requests of this one. Its queue
            // pairs are gone, so nothing more arrives.
            for slot in 0..self.config.window_max {
                let end = chunk_at + self.geometry.slot_end(slot);
                port.region.write(end - 8, &[0; 8]);
            }
            let mut uc = self.pd.create_qp::<Uc>(&QpOptions {
                send_cq: port.recv_cq,
                recv_cq: port.recv_cq,
                srq: Some(port.srq),
                caps: QpCaps {
                    send_wr_max: 1,
                    recv_wr_max: 1,
                    send_sge_max: 1,
                    recv_sge_max: 1,
                    inline_max: 0,
                },
            })?;
            uc.connect(
                &wish.uc,
                &ConnectOptions {
                    access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
                    mtu: self.pd.context().port(1)?.mtu_max,
                    ..ConnectOptions::default()
                },
            )?;
            lanes.push(AcceptLane {
                uc: uc.endpoint()?,
                chunk: port.region.remote(chunk_at),
                ud_qpn: port.ud_qpn,
            });
            let none = Stored {
                head: Head::bare(0, Status::Invalid),
                number: 0,
            };
            attachments.push(Attachment {
                client,
                core: core as u32,
                chunk,
                geometry,
                uc,
                ah: self.pd.create_ah(connect.gid)?,
                ud_qpn: wish.ud_qpn,
                qkey: wish.qkey,
                results: vec![none; geometry.window].into_boxed_slice(),
            });
        }
        let accept = Accept {
            client,
            window: geometry.window as u32,
            slot_len: geometry.slot_len as u32,
            stride: geometry.stride as u32,
            first_id: self.config.first_id,
            lanes,
        };
        Ok((accept, attachments))
    }

    /// Takes an attachment back from a core, or one that never got there. When the client's last
    /// one is back, its memory goes into quarantine.
    pub fn release(&self, attachment: Attachment, now_ns: u64) {
        let Attachment { chunk, uc, ah, .. } = attachment;
        // First the queue pair, so that nothing arrives in the chunk any more.
        drop(uc);
        let mut chunks = self.lock();
        let handles = chunks.returning.entry(chunk).or_default();
        handles.push(ah);
        if handles.len() == self.cores.len() {
            let handles = chunks.returning.remove(&chunk).unwrap_or_default();
            chunks.quarantined.push_back(Remains {
                chunk,
                since_ns: now_ns,
                _handles: handles,
            });
        }
    }

    fn take_chunk(&self, now_ns: u64) -> Result<(u32, u32), AcceptError> {
        let mut chunks = self.lock();
        let rested =
            |old: &Remains| now_ns.saturating_sub(old.since_ns) >= self.config.quarantine_ns;
        while chunks.quarantined.front().is_some_and(rested) {
            let remains = chunks.quarantined.pop_front();
            chunks.free.extend(remains.map(|old| old.chunk));
        }
        let chunk = chunks.free.pop().ok_or(AcceptError::Full)?;
        let client = chunks.client_next;
        chunks.client_next = client.wrapping_add(1).max(1);
        Ok((client, chunk))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Chunks> {
        // Each change under the lock is complete in itself.
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
