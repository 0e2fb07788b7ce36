//! Clients: who they are, whether their leases hold, and what of them survives a restart (RFC 8881,
//! sections 2.4, 8.3, 8.4 and 18.35; RFC 7530, section 16.33).
//!
//! A client's row, under `client/` and its number (8, big-endian), numbers little-endian:
//!
//! ```text
//!  0         1       2         3      4          12            12+n
//!  | version | minor | marked  | zero | verifier | owner's name | uid (4), there is one (1) |
//! ```
//! The mark says that after a restart the client must not reclaim: others may have had since what it
//! believes to hold. Something was taken away from it which it has not acknowledged; or it had to reclaim
//! before and has not said that it is done with that (RFC 8881, section 8.4.3), as a new client has not.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::Sessionid4;

use super::states::ClientId;

/// Whose requests a client's own ones are: the user of AUTH_SYS, or nobody of AUTH_NONE.
pub(super) type Principal = Option<u32>;

/// Where rows of clients begin.
pub(super) const ROWS: &[u8] = b"client/";

const VERSION: u8 = 2;

/// What is kept of a client for a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: ClientId,
    /// 0: NFSv4.0; 1: NFSv4.1 and later.
    pub(super) family: u8,
    pub(super) owner: Vec<u8>,
    /// Another one says that the client has restarted.
    pub(super) verifier: [u8; 8],
    pub(super) principal: Principal,
    /// The mark.
    pub(super) is_marked: bool,
}

impl Record {
    pub(super) fn key(id: ClientId) -> Vec<u8> {
        [ROWS, &id.to_be_bytes()].concat()
    }

    pub(super) fn to_row(&self) -> Vec<u8> {
        let mut row = vec![VERSION, self.family, u8::from(self.is_marked), 0];
        row.extend(self.verifier);
        row.extend(&self.owner);
        row.extend(self.principal.unwrap_or(0).to_le_bytes());
        row.push(u8::from(self.principal.is_some()));
        row
    }

    /// None: no row of a client of this version.
    pub(super) fn from_row(key: &[u8], row: &[u8]) -> Option<Self> {
        let id = u64::from_be_bytes(key.strip_prefix(ROWS)?.try_into().ok()?);
        let (&[VERSION, family @ (0 | 1), marked @ (0 | 1), 0], rest) = row.split_first_chunk()?
        else {
            return None;
        };
        let (verifier, rest) = rest.split_first_chunk()?;
        let (owner, &[a, b, c, d, is_there @ (0 | 1)]) = rest.split_last_chunk()? else {
            return None;
        };
        Some(Self {
            id,
            family,
            owner: owner.to_vec(),
            verifier: *verifier,
            principal: (is_there == 1).then_some(u32::from_le_bytes([a, b, c, d])),
            is_marked: marked == 1,
        })
    }
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) record: Record,
    pub(super) is_confirmed: bool,
    /// When its lease was last renewed.
    pub(super) renewed_ms: u64,
    /// Its requests that are carried out now: the lease does not run out meanwhile (RFC 8881, section 8.3).
    pub(super) under_way: u32,
    /// It is being struck off for the room that it keeps: nothing of it is begun until that has ended.
    pub(super) is_leaving: bool,
    pub(super) sessions: BTreeSet<Sessionid4>,
    /// The sequence number that its next CREATE_SESSION has.
    pub(super) session_sequence: u32,
    /// It was known before a restart: the first CREATE_SESSION may have any sequence number.
    pub(super) takes_any_sequence: bool,
    /// What has become of its last CREATE_SESSION, for a repeat.
    pub(super) session_made: Option<SessionMade>,
    /// It was known before the restart, and the grace period is its to reclaim in.
    pub(super) may_reclaim: bool,
    /// Of what it held in earlier lives of its own or the server's some is lost, which it may not have
    /// noticed: it must not reclaim.
    pub(super) has_lost: bool,
    /// It has not said RECLAIM_COMPLETE since it is new or the server has restarted, and locks nothing
    /// new before (RFC 8881, section 18.51.3). Never of 4.0.
    pub(super) owes_complete: bool,
    /// It has said that it reclaims nothing more.
    pub(super) has_reclaimed: bool,
    /// It has been heard of since the start.
    pub(super) has_returned: bool,
    /// Some of what it held was taken away, which it has not acknowledged.
    pub(super) is_revoked: bool,
    /// The mark that its row has; none: there is no row, or nobody knows.
    pub(super) written: Option<bool>,
}

/// What has become of a CREATE_SESSION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionMade {
    /// It is being carried out.
    UnderWay,
    /// This was answered.
    Answered(Vec<u8>),
}

/// What an EXCHANGE_ID or SETCLIENTID meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// Nobody of that name.
    Nobody,
    /// One that has not confirmed itself.
    Unconfirmed(ClientId),
    /// The same client again.
    Same(ClientId),
    /// The same client, restarted.
    Restarted(ClientId),
    /// Another one by the same name: other credentials.
    Other(ClientId),
}

/// All clients.
#[derive(Debug)]
pub(super) struct Clients {
    by_id: BTreeMap<ClientId, Client>,
    confirmed: BTreeMap<(u8, Vec<u8>), ClientId>,
    unconfirmed: BTreeMap<(u8, Vec<u8>), ClientId>,
    next: ClientId,
}

impl Clients {
    /// Numbers begin with the server's instance, so that they are never used again.
    pub(super) fn new(instance: u32) -> Self {
        Self {
            by_id: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            next: (u64::from(instance) << 32) + 1,
        }
    }

    pub(super) fn get(&self, id: ClientId) -> Option<&Client> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.by_id.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.by_id.values_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whom a client's introduction meets.
    pub(super) fn meet(
        &self,
        family: u8,
        owner: &[u8],
        verifier: [u8; 8],
        principal: Principal,
    ) -> Met {
        let key = (family, owner.to_vec());
        let confirmed = self.confirmed.get(&key).and_then(|id| self.by_id.get(id));
        match confirmed {
            Some(client) if client.record.principal != principal => Met::Other(client.record.id),
            Some(client) if client.record.verifier != verifier => Met::Restarted(client.record.id),
            Some(client) => Met::Same(client.record.id),
            None => self
                .unconfirmed
                .get(&key)
                .map_or(Met::Nobody, |id| Met::Unconfirmed(*id)),
        }
    }

    /// A client introduces itself; one of that name that had not confirmed itself is forgotten.
    pub(super) fn introduce(
        &mut self,
        family: u8,
        owner: &[u8],
        verifier: [u8; 8],
        principal: Principal,
        now_ms: u64,
    ) -> ClientId {
        let id = self.next;
        self.next += 1;
        let key = (family, owner.to_vec());
        if let Some(before) = self.unconfirmed.insert(key, id) {
            self.by_id.remove(&before);
        }
        let record = Record {
            id,
            family,
            owner: owner.to_vec(),
            verifier,
            principal,
            is_marked: true,
        };
        let mut client = Client::new(record, now_ms);
        client.owes_complete = family > 0;
        client.has_lost = true;
        self.by_id.insert(id, client);
        id
    }

    /// A client has confirmed itself; the one of that name that it takes the place of is returned, to be
    /// forgotten with all that it holds.
    pub(super) fn confirm(&mut self, id: ClientId) -> Option<ClientId> {
        let client = self.by_id.get_mut(&id)?;
        client.is_confirmed = true;
        let key = (client.record.family, client.record.owner.clone());
        if self.unconfirmed.get(&key) == Some(&id) {
            self.unconfirmed.remove(&key);
        }
        let before = self.confirmed.insert(key, id);
        before.filter(|before| *before != id)
    }

    /// After a restart of the server a 4.0 client gets another number, and reclaims what it held by the
    /// one before, unless it has restarted itself. To be asked before the client is written down.
    pub(super) fn inherit(&mut self, id: ClientId) {
        let client = self.by_id.get(&id);
        let Some(client) = client.filter(|of| of.record.family == 0 && !of.may_reclaim) else {
            return;
        };
        let key = (0, client.record.owner.clone());
        let before = self.confirmed.get(&key).and_then(|id| self.by_id.get(id));
        let is_it = |of: &&Client| of.may_reclaim && of.record.verifier == client.record.verifier;
        let Some(has_lost) = before.filter(is_it).map(|of| of.has_lost) else {
            return;
        };
        if let Some(client) = self.by_id.get_mut(&id) {
            client.may_reclaim = true;
            client.has_lost = has_lost;
            client.record.is_marked = has_lost;
        }
    }

    /// A client of before the restart.
    pub(super) fn restore(&mut self, record: Record, now_ms: u64) {
        let key = (record.family, record.owner.clone());
        self.confirmed.insert(key, record.id);
        let id = record.id;
        let mut client = Client::new(record, now_ms);
        client.is_confirmed = true;
        client.may_reclaim = true;
        client.owes_complete = client.record.family > 0;
        client.has_lost = client.record.is_marked;
        client.written = Some(client.record.is_marked);
        client.takes_any_sequence = true;
        self.by_id.insert(id, client);
    }

    pub(super) fn remove(&mut self, id: ClientId) -> Option<Client> {
        let client = self.by_id.remove(&id)?;
        let key = (client.record.family, client.record.owner.clone());
        for names in [&mut self.confirmed, &mut self.unconfirmed] {
            if names.get(&key) == Some(&id) {
                names.remove(&key);
            }
        }
        Some(client)
    }

    /// Clients whose lease has run out, confirmed or not.
    pub(super) fn lapsed(&self, now_ms: u64, lease_ms: u64) -> Vec<ClientId> {
        let clients = self.by_id.values();
        let lapsed = clients.filter(|client| client.is_lapsed(now_ms, lease_ms));
        lapsed.map(|client| client.record.id).collect()
    }
}

impl Client {
    fn new(record: Record, now_ms: u64) -> Self {
        Self {
            record,
            is_confirmed: false,
            renewed_ms: now_ms,
            under_way: 0,
            is_leaving: false,
            sessions: BTreeSet::new(),
            session_sequence: 1,
            takes_any_sequence: false,
            session_made: None,
            may_reclaim: false,
            has_lost: false,
            owes_complete: false,
            has_reclaimed: false,
            has_returned: false,
            is_revoked: false,
            written: None,
        }
    }

    /// Whether it may have something of before the restart to claim that it has not claimed.
    pub(super) fn has_claims(&self) -> bool {
        self.may_reclaim && !self.has_reclaimed
    }

    pub(super) fn is_lapsed(&self, now_ms: u64, lease_ms: u64) -> bool {
        self.under_way == 0 && now_ms.saturating_sub(self.renewed_ms) > lease_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_from_its_row_and_nothing_else_does() {
        for (owner, principal) in [(&b"Linux NFSv4.1 host"[..], Some(0)), (b"", None)] {
            let record = Record {
                id: 0x1_0000_0002,
                family: 1,
                owner: owner.to_vec(),
                verifier: [1, 2, 3, 4, 5, 6, 7, 8],
                principal,
                is_marked: principal.is_none(),
            };
            let (key, row) = (Record::key(record.id), record.to_row());
            assert_eq!(Record::from_row(&key, &row), Some(record));
            assert_eq!(Record::from_row(&key[1..], &row), None);
            assert_eq!(Record::from_row(&key, &row[..16]), None);
            for at in [0, 1, 2, 3, row.len() - 1] {
                let mut other = row.clone();
                other[at] = 7;
                assert_eq!(Record::from_row(&key, &other), None, "byte {at}");
            }
        }
    }

    #[test]
    fn introductions_meet_who_was_there() {
        let mut clients = Clients::new(3);
        assert_eq!(clients.meet(1, b"c", [1; 8], Some(0)), Met::Nobody);
        let first = clients.introduce(1, b"c", [1; 8], Some(0), 0);
        assert_eq!(first >> 32, 3);
        assert_eq!(
            clients.meet(1, b"c", [1; 8], Some(0)),
            Met::Unconfirmed(first)
        );
        let second = clients.introduce(1, b"c", [1; 8], Some(0), 0);
        assert!(clients.get(first).is_none(), "never confirmed");
        assert_eq!(clients.confirm(second), None);
        assert_eq!(clients.meet(1, b"c", [1; 8], Some(0)), Met::Same(second));
        assert_eq!(
            clients.meet(1, b"c", [2; 8], Some(0)),
            Met::Restarted(second)
        );
        assert_eq!(clients.meet(1, b"c", [1; 8], Some(7)), Met::Other(second));
        assert_eq!(
            clients.meet(0, b"c", [1; 8], Some(0)),
            Met::Nobody,
            "another family"
        );
        let third = clients.introduce(1, b"c", [2; 8], Some(0), 0);
        assert!(
            clients.get(second).is_some(),
            "until the new one confirms itself"
        );
        assert_eq!(clients.confirm(third), Some(second));
        clients.remove(second);
        assert_eq!(clients.meet(1, b"c", [2; 8], Some(0)), Met::Same(third));
    }

    #[test]
    fn a_lease_runs_out_unless_it_is_renewed() {
        let mut clients = Clients::new(1);
        let id = clients.introduce(1, b"c", [1; 8], None, 1000);
        assert_eq!(clients.lapsed(1090, 90), []);
        assert_eq!(clients.lapsed(1091, 90), [id]);
        clients.get_mut(id).expect("there").renewed_ms = 1050;
        assert_eq!(clients.lapsed(1140, 90), []);
    }
}
