//! The handshake, over a control stream between the processes.
//!
//! ```text
//!   client                          server
//!     HELLO {versions}        ->
//!                             <-    INFO {limits, cores}
//!     CONNECT {per core: QPs} ->
//!                             <-    ACCEPT {per core: QP, place of the slots}
//! ```
//! or at any step REFUSE from the server. Each message starts with a common head:
//! ```text
//!    0        4         6       8
//!    | "VRVN" | version | kind  | body
//!               u16       u16
//! ```
//! It travels as a line of text, `vervain <hex>`, so that it fits a text protocol's connection.

use verbs::typed::Endpoint;
use verbs::{Gid, Psn, Qkey, QpNum, RemoteAddr, Rkey};

/// The protocol's version: of these messages and of the slots and datagrams.
pub const VERSION: u16 = 1;
/// What everybody hears at a door with too many connections, in memcached's words.
pub const DOOR_FULL: &str = "ERROR Too many open connections\r\n";
/// The word that starts a line of the handshake.
pub const LINE_WORD: &str = "vervain";
/// Cores at most.
pub const CORES_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"VRVN";

/// What a server tells everybody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerInfo {
    /// Differs from start to start.
    pub incarnation: u64,
    /// The seed by which keys are spread over cores.
    pub route_seed: u64,
    /// The server sleeps after so long without work; 0 never sleeps.
    pub idle_ns: u64,
    /// Cores, each with a partition of its own.
    pub cores: u32,
    /// Requests at most that a client may have under way to one core, a power of two.
    pub window_max: u32,
    /// Bytes of a slot.
    pub slot_len: u32,
    /// Bytes of a datagram at most, without the global route header.
    pub answer_len_max: u32,
    /// Bytes of a value at most.
    pub value_len_max: u32,
}

/// A client's queue pairs for one core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectCore {
    /// The UC queue pair that sends requests.
    pub uc: Endpoint,
    /// The UD queue pair that receives answers.
    pub ud_qpn: QpNum,
    /// Its key.
    pub qkey: Qkey,
}

/// A client's wishes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The incarnation that the client read the limits of.
    pub incarnation: u64,
    /// Requests under way to one core, a power of two.
    pub window: u32,
    /// The port that answers go to.
    pub gid: Gid,
    /// One for each core.
    pub cores: Vec<ConnectCore>,
}

/// A server's core, for one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptCore {
    /// The queue pair that takes requests.
    pub uc: Endpoint,
    /// The client's chunk.
    pub chunk: RemoteAddr,
    /// The queue pair that answers come from.
    pub ud_qpn: QpNum,
}

/// The connection is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accept {
    /// The client's number, chosen by the server.
    pub client: u32,
    /// Slots of the chunk that are used.
    pub window: u32,
    /// Bytes of a slot.
    pub slot_len: u32,
    /// Bytes from slot to slot.
    pub stride: u32,
    /// The id of the client's first request to each core; not 0.
    pub first_id: u32,
    /// One for each core.
    pub cores: Vec<AcceptCore>,
}

/// Why a server does not connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[repr(u16)]
pub enum Refusal {
    /// No version in common.
    #[error("no protocol version in common")]
    Version = 1,
    /// As many clients as there may be.
    #[error("the server has as many clients as it takes")]
    Full = 2,
    /// The message makes no sense.
    #[error("the server did not understand the handshake")]
    Malformed = 3,
    /// The NIC refused.
    #[error("the server's NIC could not make the connection")]
    Nic = 4,
    /// The server was started again in between.
    #[error("the server was started again during the handshake")]
    Incarnation = 5,
}

/// A message of the handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The client's versions, from and to.
    Hello(u16, u16),
    /// The server's limits.
    Info(ServerInfo),
    /// The client's queue pairs.
    Connect(Connect),
    /// The server's side of them.
    Accept(Accept),
    /// No.
    Refuse(Refusal),
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// It is not `vervain <hex>`.
    #[error("not a line of the handshake")]
    Line,
    /// The bytes end too early, or there are too many.
    #[error("the message has a wrong length")]
    Length,
    /// The bytes do not start with the magic.
    #[error("not a message of the handshake")]
    Magic,
    /// A version that we do not speak.
    #[error("protocol version {0} is unknown")]
    Version(u16),
    /// No such kind.
    #[error("message kind {0} is unknown")]
    Kind(u16),
    /// A number is out of range.
    #[error("{0} is out of range")]
    Range(&'static str),
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], HandshakeError> {
        let (head, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(HandshakeError::Length)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, HandshakeError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, HandshakeError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, HandshakeError> {
        self.take().map(u64::from_le_bytes)
    }

    fn qpn(&mut self) -> Result<QpNum, HandshakeError> {
        match QpNum(self.u32()?) {
            qpn if qpn <= QpNum::MAX => Ok(qpn),
            _ => Err(HandshakeError::Range("queue pair number")),
        }
    }

    fn endpoint(&mut self) -> Result<Endpoint, HandshakeError> {
        let (gid, qpn, psn) = (Gid(self.take()?), self.qpn()?, Psn(self.u32()?));
        if psn.0 > 0x00ff_ffff {
            return Err(HandshakeError::Range("packet sequence number"));
        }
        Ok(Endpoint { gid, qpn, psn })
    }

    fn cores<T>(
        &mut self,
        core: impl Fn(&mut Self) -> Result<T, HandshakeError>,
    ) -> Result<Vec<T>, HandshakeError> {
        let count = self.u32()? as usize;
        if count == 0 || count > CORES_MAX {
            return Err(HandshakeError::Range("number of cores"));
        }
        (0..count).map(|_| core(self)).collect()
    }
}

fn put_endpoint(to: &mut Vec<u8>, endpoint: &Endpoint) {
    to.extend_from_slice(&endpoint.gid.0);
    to.extend_from_slice(&endpoint.qpn.0.to_le_bytes());
    to.extend_from_slice(&endpoint.psn.0.to_le_bytes());
}

impl Message {
    fn kind(&self) -> u16 {
        match self {
            Message::Hello(..) => 1,
            Message::Info(_) => 2,
            Message::Connect(_) => 3,
            Message::Accept(_) => 4,
            Message::Refuse(_) => 5,
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(64);
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&VERSION.to_le_bytes());
        to.extend_from_slice(&self.kind().to_le_bytes());
        match self {
            Message::Hello(from, until) => {
                to.extend_from_slice(&from.to_le_bytes());
                to.extend_from_slice(&until.to_le_bytes());
            }
            Message::Info(info) => {
                for word in [info.incarnation, info.route_seed, info.idle_ns] {
                    to.extend_from_slice(&word.to_le_bytes());
                }
                for word in [
                    info.cores,
                    info.window_max,
                    info.slot_len,
                    info.answer_len_max,
                    info.value_len_max,
                ] {
                    to.extend_from_slice(&word.to_le_bytes());
                }
            }
            Message::Connect(connect) => {
                to.extend_from_slice(&connect.incarnation.to_le_bytes());
                to.extend_from_slice(&connect.window.to_le_bytes());
                to.extend_from_slice(&connect.gid.0);
                to.extend_from_slice(&(connect.cores.len() as u32).to_le_bytes());
                for core in &connect.cores {
                    put_endpoint(&mut to, &core.uc);
                    to.extend_from_slice(&core.ud_qpn.0.to_le_bytes());
                    to.extend_from_slice(&core.qkey.0.to_le_bytes());
                }
            }
            Message::Accept(accept) => {
                for word in [
                    accept.client,
                    accept.window,
                    accept.slot_len,
                    accept.stride,
                    accept.first_id,
                ] {
                    to.extend_from_slice(&word.to_le_bytes());
                }
                to.extend_from_slice(&(accept.cores.len() as u32).to_le_bytes());
                for core in &accept.cores {
                    put_endpoint(&mut to, &core.uc);
                    to.extend_from_slice(&core.chunk.addr.to_le_bytes());
                    to.extend_from_slice(&core.chunk.rkey.0.to_le_bytes());
                    to.extend_from_slice(&core.ud_qpn.0.to_le_bytes());
                }
            }
            Message::Refuse(why) => to.extend_from_slice(&(*why as u16).to_le_bytes()),
        }
        to
    }

    /// Takes a message apart.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Message, HandshakeError> {
        let mut from = Reader(bytes);
        if from.take::<4>()? != MAGIC {
            return Err(HandshakeError::Magic);
        }
        let (version, kind) = (from.u16()?, from.u16()?);
        // HELLO and REFUSE stay as they are in every version.
        if version != VERSION && kind != 1 && kind != 5 {
            return Err(HandshakeError::Version(version));
        }
        let message = match kind {
            1 => Message::Hello(from.u16()?, from.u16()?),
            2 => Message::Info(ServerInfo {
                incarnation: from.u64()?,
                route_seed: from.u64()?,
                idle_ns: from.u64()?,
                cores: from.u32()?,
                window_max: from.u32()?,
                slot_len: from.u32()?,
                answer_len_max: from.u32()?,
                value_len_max: from.u32()?,
            }),
            3 => Message::Connect(Connect {
                incarnation: from.u64()?,
                window: from.u32()?,
                gid: Gid(from.take()?),
                cores: from.cores(|from| {
                    Ok(ConnectCore {
                        uc: from.endpoint()?,
                        ud_qpn: from.qpn()?,
                        qkey: Qkey(from.u32()?),
                    })
                })?,
            }),
            4 => Message::Accept(Accept {
                client: from.u32()?,
                window: from.u32()?,
                slot_len: from.u32()?,
                stride: from.u32()?,
                first_id: from.u32()?,
                cores: from.cores(|from| {
                    Ok(AcceptCore {
                        uc: from.endpoint()?,
                        chunk: RemoteAddr {
                            addr: from.u64()?,
                            rkey: Rkey(from.u32()?),
                        },
                        ud_qpn: from.qpn()?,
                    })
                })?,
            }),
            5 => Message::Refuse(match from.u16()? {
                1 => Refusal::Version,
                2 => Refusal::Full,
                4 => Refusal::Nic,
                5 => Refusal::Incarnation,
                _ => Refusal::Malformed,
            }),
            kind => return Err(HandshakeError::Kind(kind)),
        };
        if !from.0.is_empty() {
            return Err(HandshakeError::Length);
        }
        Ok(message)
    }

    /// The message as a line, without its end.
    pub fn to_line(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bytes = self.emit();
        let mut line = String::with_capacity(LINE_WORD.len() + 1 + 2 * bytes.len());
        line.push_str(LINE_WORD);
        line.push(' ');
        for byte in bytes {
            line.push(char::from(DIGITS[usize::from(byte >> 4)]));
            line.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        line
    }

    /// Takes a line apart; white space at its end does not count.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_line(line: &[u8]) -> Result<Message, HandshakeError> {
        let hex = line
            .trim_ascii_end()
            .strip_prefix(LINE_WORD.as_bytes())
            .and_then(|rest| rest.strip_prefix(b" "))
            .ok_or(HandshakeError::Line)?;
        if !hex.len().is_multiple_of(2) {
            return Err(HandshakeError::Line);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(HandshakeError::Line);
        let bytes: Vec<u8> = hex
            .chunks_exact(2)
            .map(|pair| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
            .collect::<Result<_, HandshakeError>>()?;
        Message::parse(&bytes)
    }
}
