//! Who asks.

use serde::{Deserialize, Serialize};

use crate::Holder;

/// Who asks: the identity that permissions are judged by, after the door's squashing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// User; 0 may do nearly everything.
    pub uid: u32,
    /// Group that new objects get.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// For whom the request is made, if it is made under an open, a lock or a delegation: its own
    /// holds are no conflicts, and an open for writing allows what the mode would now refuse
    /// (POSIX judges permissions at open).
    pub holder: Option<Holder>,
    /// For [`Request::Copy`](crate::Request::Copy) and [`Request::Clone`](crate::Request::Clone): under
    /// which open the source is read, if that is another one than `holder`.
    pub source: Option<Holder>,
    /// For requests that must not be carried out twice.
    pub once: Option<Once>,
}

impl Caller {
    /// The superuser, without holds.
    pub const ROOT: Caller = Caller {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        holder: None,
        source: None,
        once: None,
    };

    /// A user with one group.
    #[must_use]
    pub const fn user(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: Vec::new(),
            holder: None,
            source: None,
            once: None,
        }
    }

    /// Who reads the source of a copy.
    #[must_use]
    pub fn of_source(&self) -> Self {
        Self {
            holder: self.source.or(self.holder),
            ..self.clone()
        }
    }

    /// Whether the caller is in a group.
    #[must_use]
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Names one operation of one compound, for ever: a request that carries it is carried out once, and
/// its answer is kept in the same transaction as its effect. A repeat gets that answer, also after a
/// restart (RFC 8881, section 2.10.6.5: a persistent reply cache). The next sequence number of a slot
/// replaces what was kept for the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Once {
    /// The session.
    pub session: [u8; 16],
    /// Its slot.
    pub slot: u32,
    /// The slot's sequence number.
    pub sequence: u32,
    /// Which operation of the compound.
    pub operation: u32,
}
