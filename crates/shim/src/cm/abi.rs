//! Commands and answers as bytes: version 4 of the kernel's ABI, as `rdma/rdma_user_cm.h` lays it out.
//!
//! A command is a header of 8 bytes (`cmd: u32, in: u16, out: u16`) and a structure of `in` bytes. Numbers are in the machine's
//! order, addresses and ports in the network's.

use std::ffi::c_int;

use crate::abi::errno::Errno;

/// `RDMA_MAX_PRIVATE_DATA`.
pub(super) const PRIVATE_MAX: usize = 256;
/// `struct rdma_ucm_conn_param`.
const CONN_PARAM: usize = 16 + PRIVATE_MAX;
const SOCKADDR_IN6: usize = 28;
const SOCKADDR_STORAGE: usize = 128;
const HEADER: usize = 8;

/// `enum rdma_cm_event_type`.
pub(super) mod event {
    pub(in crate::cm) const ADDR_RESOLVED: u32 = 0;
    pub(in crate::cm) const ROUTE_RESOLVED: u32 = 2;
    pub(in crate::cm) const CONNECT_REQUEST: u32 = 4;
    pub(in crate::cm) const CONNECT_RESPONSE: u32 = 5;
    pub(in crate::cm) const UNREACHABLE: u32 = 7;
    pub(in crate::cm) const REJECTED: u32 = 8;
    pub(in crate::cm) const ESTABLISHED: u32 = 9;
    pub(in crate::cm) const DISCONNECTED: u32 = 10;
    pub(in crate::cm) const MULTICAST_JOIN: u32 = 12;
    pub(in crate::cm) const TIMEWAIT_EXIT: u32 = 15;
}

/// `RDMA_OPTION_*`: levels, and names in them.
pub(super) mod option {
    pub(in crate::cm) const LEVEL_ID: u32 = 0;
    pub(in crate::cm) const LEVEL_IB: u32 = 1;
    pub(in crate::cm) const TOS: u32 = 0;
    pub(in crate::cm) const REUSEADDR: u32 = 1;
    pub(in crate::cm) const AFONLY: u32 = 2;
    pub(in crate::cm) const ACK_TIMEOUT: u32 = 3;
    pub(in crate::cm) const IB_PATH: u32 = 1;
}

/// Where an answer goes, and how much room is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) at: u64,
    pub(super) room: usize,
}

/// Bytes of a command's private data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Private {
    bytes: [u8; PRIVATE_MAX],
    len: usize,
}

impl Private {
    /// The first `max` bytes at most.
    pub(super) fn new(from: &[u8]) -> Self {
        let len = from.len().min(PRIVATE_MAX);
        let mut bytes = [0; PRIVATE_MAX];
        bytes[..len].copy_from_slice(&from[..len]);
        Private { bytes, len }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// With zeros after it, as what comes in a message of a fixed length.
    pub(super) fn padded(mut self, len: usize) -> Self {
        self.bytes[self.len..].fill(0);
        self.len = len.min(PRIVATE_MAX);
        self
    }
}

impl std::fmt::Debug for Private {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// `struct rdma_ucm_conn_param`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnParam {
    pub(super) qp_num: u32,
    pub(super) qkey: u32,
    pub(super) private: Private,
    pub(super) srq: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
}

impl Default for ConnParam {
    fn default() -> Self {
        ConnParam {
            qp_num: 0,
            qkey: 0,
            private: Private::new(&[]),
            srq: 0,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: 0,
            retry_count: 0,
            rnr_retry_count: 0,
        }
    }
}

/// A command, checked for its length.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command<'a> {
    CreateId {
        answer: Answer,
        uid: u64,
        port_space: u16,
        qp_type: u8,
    },
    DestroyId {
        answer: Answer,
        id: u32,
    },
    /// `BIND_IP` and `BIND`.
    Bind {
        id: u32,
        address: &'a [u8],
    },
    /// `RESOLVE_IP` and `RESOLVE_ADDR`.
    ResolveAddr {
        id: u32,
        from: Option<&'a [u8]>,
        to: &'a [u8],
    },
    ResolveRoute {
        id: u32,
    },
    QueryRoute {
        answer: Answer,
        id: u32,
    },
    Query {
        answer: Answer,
        id: u32,
        option: u32,
    },
    Connect {
        id: u32,
        param: ConnParam,
    },
    Listen {
        id: u32,
        backlog: u32,
    },
    /// Without parameters it says that the queue pair is ready: `rdma_establish`.
    Accept {
        id: u32,
        uid: u64,
        param: Option<ConnParam>,
    },
    Reject {
        id: u32,
        reason: u8,
        private: Private,
    },
    Disconnect {
        id: u32,
    },
    InitQpAttr {
        answer: Answer,
        id: u32,
        state: u32,
    },
    GetEvent {
        answer: Answer,
    },
    SetOption {
        id: u32,
        level: u32,
        name: u32,
        at: u64,
        len: u32,
    },
    Notify {
        id: u32,
        event: u32,
    },
    /// `JOIN_IP_MCAST` and `JOIN_MCAST`.
    JoinGroup {
        answer: Answer,
        uid: u64,
        id: u32,
        address: &'a [u8],
    },
    LeaveGroup {
        answer: Answer,
        group: u32,
    },
    MigrateId {
        answer: Answer,
        id: u32,
        fd: c_int,
    },
}

/// Reads numbers at places within a structure whose length has been checked.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(self, at: usize, len: usize) -> &'a [u8] {
        &self.0[at..at + len]
    }

    fn array<const LEN: usize>(self, at: usize) -> [u8; LEN] {
        self.bytes(at, LEN).try_into().expect("its length")
    }

    fn u8(self, at: usize) -> u8 {
        self.0[at]
    }

    fn u16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }

    /// `struct rdma_ucm_conn_param`; none where it says that it does not hold.
    fn conn_param(self, at: usize) -> Option<ConnParam> {
        let fields = Fields(self.bytes(at, CONN_PARAM));
        let rest = 8 + PRIVATE_MAX;
        let len = fields.u8(rest) as usize;
        (fields.u8(rest + 7) != 0).then(|| ConnParam {
            qp_num: fields.u32(0),
            qkey: fields.u32(4),
            private: Private::new(fields.bytes(8, len)),
            srq: fields.u8(rest + 1),
            responder_resources: fields.u8(rest + 2),
            initiator_depth: fields.u8(rest + 3),
            flow_control: fields.u8(rest + 4),
            retry_count: fields.u8(rest + 5),
            rnr_retry_count: fields.u8(rest + 6),
        })
    }
}

/// `RDMA_USER_CM_CMD_*`, and how long each one's structure is at least.
mod number {
    pub(super) const CREATE_ID: usize = 0;
    pub(super) const DESTROY_ID: usize = 1;
    pub(super) const BIND_IP: usize = 2;
    pub(super) const RESOLVE_IP: usize = 3;
    pub(super) const RESOLVE_ROUTE: usize = 4;
    pub(super) const QUERY_ROUTE: usize = 5;
    pub(super) const CONNECT: usize = 6;
    pub(super) const LISTEN: usize = 7;
    pub(super) const ACCEPT: usize = 8;
    pub(super) const REJECT: usize = 9;
    pub(super) const DISCONNECT: usize = 10;
    pub(super) const INIT_QP_ATTR: usize = 11;
    pub(super) const GET_EVENT: usize = 12;
    pub(super) const GET_OPTION: usize = 13;
    pub(super) const SET_OPTION: usize = 14;
    pub(super) const NOTIFY: usize = 15;
    pub(super) const JOIN_IP_MCAST: usize = 16;
    pub(super) const LEAVE_MCAST: usize = 17;
    pub(super) const MIGRATE_ID: usize = 18;
    pub(super) const QUERY: usize = 19;
    pub(super) const BIND: usize = 20;
    pub(super) const RESOLVE_ADDR: usize = 21;
    pub(super) const JOIN_MCAST: usize = 22;
    pub(super) const LENGTHS: [usize; 23] = [
        24, 16, 40, 64, 8, 16, 280, 8, 288, 264, 4, 16, 8, 16, 24, 8, 48, 16, 16, 16, 136, 272, 152,
    ];
}

impl<'a> Command<'a> {
    /// What a write to the descriptor asks for.
    ///
    /// # Errors
    /// Those of the kernel: `EINVAL` for what is too short, or unknown; `ENOSYS` for what it does not have either.
    pub(super) fn parse(written: &'a [u8]) -> Result<Self, Errno> {
        let header = written.get(..HEADER).map(Fields).ok_or(libc::EINVAL)?;
        let command = header.u32(0) as usize;
        let (len, room) = (header.u16(4) as usize, header.u16(6) as usize);
        let least = *number::LENGTHS.get(command).ok_or(libc::EINVAL)?;
        let body = written.get(HEADER..HEADER + len).ok_or(libc::EINVAL)?;
        if command == number::GET_OPTION {
            // The kernel reads no options.
            return Err(libc::ENOSYS);
        }
        if body.len() < least {
            return Err(libc::EINVAL);
        }
        Self::of(command, Fields(body), room)
    }

    fn of(command: usize, body: Fields<'a>, room: usize) -> Result<Self, Errno> {
        let answer = Answer {
            at: body.0.get(..8).map_or(0, |_| body.u64(0)),
            room,
        };
        let sized = |at, len: u16, checked: bool| {
            let known = checked && len as usize <= SOCKADDR_STORAGE;
            known
                .then(|| body.bytes(at, len as usize))
                .ok_or(libc::EINVAL)
        };
        Ok(match command {
            number::CREATE_ID => Command::CreateId {
                uid: body.u64(0),
                answer: Answer {
                    at: body.u64(8),
                    room,
                },
                port_space: body.u16(16),
                qp_type: body.u8(18),
            },
            number::DESTROY_ID => Command::DestroyId {
                answer,
                id: body.u32(8),
            },
            number::BIND_IP => Command::Bind {
                address: body.bytes(8, SOCKADDR_IN6),
                id: body.u32(36),
            },
            number::RESOLVE_IP => Command::ResolveAddr {
                from: (body.u16(0) != 0).then(|| body.bytes(0, SOCKADDR_IN6)),
                to: body.bytes(SOCKADDR_IN6, SOCKADDR_IN6),
                id: body.u32(56),
            },
            number::RESOLVE_ROUTE => Command::ResolveRoute { id: body.u32(0) },
            number::QUERY_ROUTE => Command::QueryRoute {
                answer,
                id: body.u32(8),
            },
            number::CONNECT => Command::Connect {
                param: body.conn_param(0).ok_or(libc::EINVAL)?,
                id: body.u32(CONN_PARAM),
            },
            number::LISTEN => Command::Listen {
                id: body.u32(0),
                backlog: body.u32(4),
            },
            number::ACCEPT => Command::Accept {
                uid: body.u64(0),
                param: body.conn_param(8),
                id: body.u32(8 + CONN_PARAM),
            },
            number::REJECT => Command::Reject {
                id: body.u32(0),
                reason: body.u8(5),
                private: Private::new(body.bytes(8, body.u8(4) as usize)),
            },
            number::DISCONNECT => Command::Disconnect { id: body.u32(0) },
            number::INIT_QP_ATTR => Command::InitQpAttr {
                answer,
                id: body.u32(8),
                state: body.u32(12),
            },
            number::GET_EVENT => Command::GetEvent { answer },
            number::SET_OPTION => Command::SetOption {
                at: body.u64(0),
                id: body.u32(8),
                level: body.u32(12),
                name: body.u32(16),
                len: body.u32(20),
            },
            number::NOTIFY => Command::Notify {
                id: body.u32(0),
                event: body.u32(4),
            },
            number::JOIN_IP_MCAST => Command::JoinGroup {
                answer,
                uid: body.u64(8),
                address: body.bytes(16, SOCKADDR_IN6),
                id: body.u32(44),
            },
            number::JOIN_MCAST => Command::JoinGroup {
                answer,
                uid: body.u64(8),
                id: body.u32(16),
                // As a full member, or to send only.
                address: sized(24, body.u16(20), body.u16(22) <= 1)?,
            },
            number::LEAVE_MCAST => Command::LeaveGroup {
                answer,
                group: body.u32(8),
            },
            number::MIGRATE_ID => Command::MigrateId {
                answer,
                id: body.u32(8),
                fd: body.u32(12) as c_int,
            },
            number::QUERY => Command::Query {
                answer,
                id: body.u32(8),
                option: body.u32(12),
            },
            number::BIND => Command::Bind {
                id: body.u32(0),
                address: sized(8, body.u16(4), body.u16(6) == 0)?,
            },
            number::RESOLVE_ADDR => {
                let reserved = body.u32(12) == 0;
                let from = sized(16, body.u16(8), reserved)?;
                Command::ResolveAddr {
                    id: body.u32(0),
                    from: (!from.is_empty()).then_some(from),
                    to: sized(16 + SOCKADDR_STORAGE, body.u16(10), reserved)?,
                }
            }
            _ => return Err(libc::EINVAL),
        })
    }
}

/// Writes an answer, field after field.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    pub(super) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Zeros up to a length.
    pub(super) fn up_to(mut self, len: usize) -> Self {
        debug_assert!(self.0.len() <= len, "{} of {len} bytes", self.0.len());
        self.0.resize(len, 0);
        self
    }

    /// `struct rdma_ucm_conn_param`.
    pub(super) fn conn_param(self, param: &ConnParam) -> Self {
        let end = self.0.len() + CONN_PARAM;
        self.u32(param.qp_num)
            .u32(param.qkey)
            .bytes(param.private.bytes())
            .up_to(end - 8)
            .u8(param.private.bytes().len().min(255) as u8)
            .u8(param.srq)
            .u8(param.responder_resources)
            .u8(param.initiator_depth)
            .u8(param.flow_control)
            .u8(param.retry_count)
            .u8(param.rnr_retry_count)
            .u8(1)
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests;
