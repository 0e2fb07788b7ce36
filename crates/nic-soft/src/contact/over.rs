//! The connection over which a peer is asked for an operation.
//!
//! What was asked may be carried out late: when whoever asked has given it up, and the same two queue pairs are
//! connected anew. So a request names the connection by the epochs of both ends, and the owner of the memory refuses
//! it when either has changed.
//!
//! ```text
//! b    | queue pair : 24 | kind : 8 |
//! from | its epoch u16 | the asker's epoch u16 | 0 |
//! ```

use verbs::{Gid, QpNum};

use crate::contact::protocol::Message;

/// Above the queue pair's number: which operation of its kind is asked for.
pub(crate) const KIND_SHIFT: u32 = 24;
const _: () = assert!(QpNum::MAX.0 >> KIND_SHIFT == 0);

/// A connection, as whoever asks names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Over {
    /// The queue pair of the memory's owner.
    pub(crate) qpn: u32,
    /// That queue pair's epoch.
    pub(crate) epoch: u16,
    /// The epoch of the queue pair that asks.
    pub(crate) from_epoch: u16,
}

impl Over {
    /// Puts it into a request for an operation of its kind.
    pub(super) fn put(self, kind: u32, request: Message) -> Message {
        let mut from = Gid::default();
        from.0[..2].copy_from_slice(&self.epoch.to_le_bytes());
        from.0[2..4].copy_from_slice(&self.from_epoch.to_le_bytes());
        let b = self.qpn | kind << KIND_SHIFT;
        Message { b, from, ..request }
    }

    /// What a request says, and the kind of the operation.
    pub(super) fn of(request: &Message) -> (Self, u32) {
        let epoch = |at: usize| u16::from_le_bytes([request.from.0[at], request.from.0[at + 1]]);
        let over = Over {
            qpn: request.b & QpNum::MAX.0,
            epoch: epoch(0),
            from_epoch: epoch(2),
        };
        (over, request.b >> KIND_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contact::protocol::OP_COPY;

    #[test]
    fn a_connection_reads_back_whatever_it_is() {
        for (qpn, epoch, from_epoch, kind) in [
            (0, 0, 0, 0),
            (QpNum::MAX.0, 0, u16::MAX, 0xff),
            (2, u16::MAX, 0x0102, 1),
        ] {
            let over = Over {
                qpn,
                epoch,
                from_epoch,
            };
            let request = Message::operands(OP_COPY, 7, 0, u64::MAX, Gid([0xff; 16]));
            let put = over.put(kind, request);
            assert_eq!(Over::of(&put), (over, kind));
            assert_eq!((put.a, put.c, put.gid), (request.a, request.c, request.gid));
        }
    }
}
