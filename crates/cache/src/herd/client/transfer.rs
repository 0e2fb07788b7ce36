//! Values that need more than one slot or datagram.

use crate::herd::wire::answer::{Head, Status};
use crate::herd::wire::request::{Command, Request, StoreMode};

use super::Outcome;

/// First pause after the server had no room for the value; it doubles.
const BACKOFF_NS: u64 = 20_000;
/// Longest pause. Room that is free waits for so long for the client whose turn it is.
const BACKOFF_NS_MAX: u64 = 500_000;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// To the client.
    Get,
    /// To the server.
    Put {
        mode: StoreMode,
        flags: u32,
        expiry_s: u32,
    },
}

/// How many values of a window are on their way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Live {
    pub(super) gets: usize,
    pub(super) puts: usize,
}

impl Live {
    pub(super) fn of(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Get => &mut self.gets,
            Kind::Put { .. } => &mut self.puts,
        }
    }

    pub(super) fn all(self) -> usize {
        self.gets + self.puts
    }
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The first step is to be taken.
    Start,
    /// The first step is under way, alone: it tells the length and token, or takes a buffer.
    Starting,
    /// Pieces are under way.
    Pieces,
    /// All pieces have been brought; the commit is under way.
    Committing,
    /// Not in use.
    Over,
}

/// One value on its way.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) tag: u64,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) phase: Phase,
    pub(super) want_cas: bool,
    pub(super) deadline_ns: u64,
    /// Goes up when the transfer starts again; answers to older steps do not count.
    pub(super) generation: u16,
    pub(super) number: u32,
    next: usize,
    confirmed: usize,
    in_flight: u32,
    /// The first of the pieces for which the server had no room: it goes on there when nothing is under
    /// way.
    busy_at: Option<usize>,
    /// Whether the server had no room last: one request asks whether it has, and the others follow it.
    pub(super) asks: bool,
    not_before_ns: u64,
    backoff_ns: u64,
    item_flags: u32,
    cas: u64,
}

/// A step, and what its slot must remember.
pub(super) struct Step<'a> {
    pub(super) request: Request<'a>,
    pub(super) want_cas: bool,
    pub(super) offset: u32,
    pub(super) len: u32,
}

impl Transfer {
    pub(super) fn unused() -> Self {
        Transfer {
            tag: 0,
            key: Vec::new(),
            value: Vec::new(),
            kind: Kind::Get,
            phase: Phase::Over,
            want_cas: false,
            deadline_ns: 0,
            generation: 0,
            number: 0,
            next: 0,
            confirmed: 0,
            in_flight: 0,
            busy_at: None,
            asks: false,
            not_before_ns: 0,
            backoff_ns: BACKOFF_NS,
            item_flags: 0,
            cas: 0,
        }
    }

    /// Starts from the beginning.
    pub(super) fn restart(&mut self, number: u32) {
        self.generation = self.generation.wrapping_add(1);
        self.number = number;
        self.phase = Phase::Start;
        self.next = 0;
        self.confirmed = 0;
        self.in_flight = 0;
        self.busy_at = None;
        self.asks = false;
    }

    /// Lets a while pass, longer each time.
    fn pause(&mut self, now_ns: u64) {
        self.not_before_ns = now_ns + self.backoff_ns;
        self.backoff_ns = (self.backoff_ns * 2).min(BACKOFF_NS_MAX);
    }

    /// Takes over a GET whose answer was the first piece. `false` when the answer makes no sense.
    pub(super) fn first_piece(&mut self, head: &Head, body: &[u8], value_len_max: usize) -> bool {
        let total = head.total_len as usize;
        let Some(cas) = head.cas else { return false };
        if total > value_len_max || body.is_empty() || body.len() >= total {
            return false;
        }
        self.value.resize(total, 0);
        self.value[..body.len()].copy_from_slice(body);
        self.cas = cas;
        self.item_flags = head.item_flags;
        self.next = body.len();
        self.confirmed = body.len();
        self.in_flight = 0;
        self.phase = Phase::Pieces;
        true
    }

    /// The next step, if there is one now. `may_ask` says whether it is this transfer's turn to ask for
    /// room for a value on its way here.
    pub(super) fn step(
        &mut self,
        now_ns: u64,
        may_ask: bool,
        piece_len_max: usize,
    ) -> Option<Step<'_>> {
        let total = self.value.len();
        let bare = |request, want_cas| Step {
            request,
            want_cas,
            offset: 0,
            len: 0,
        };
        match (self.kind, self.phase) {
            (_, Phase::Over | Phase::Starting | Phase::Committing) => None,
            (Kind::Get, Phase::Start) => {
                self.phase = Phase::Starting;
                self.in_flight = 1;
                let get = Command::Get { key: &self.key };
                Some(bare(Request::Command(get), true))
            }
            (Kind::Get, Phase::Pieces) => {
                let waits = self.in_flight > 0 || !may_ask || now_ns < self.not_before_ns;
                if self.asks && waits || self.busy_at.is_some() && self.in_flight > 0 {
                    return None;
                }
                if let Some(offset) = self.busy_at.take() {
                    (self.next, self.confirmed) = (offset, offset);
                }
                if self.next == total {
                    return None;
                }
                let offset = self.next;
                let len = piece_len_max.min(total - offset);
                self.next += len;
                self.in_flight += 1;
                Some(Step {
                    request: Request::GetRange {
                        key: &self.key,
                        offset: offset as u32,
                        len: len as u32,
                        cas: self.cas,
                    },
                    want_cas: false,
                    offset: offset as u32,
                    len: len as u32,
                })
            }
            (Kind::Put { .. }, Phase::Start) if now_ns < self.not_before_ns => None,
            (Kind::Put { .. }, Phase::Start | Phase::Pieces) if self.next < total => {
                if self.phase == Phase::Start {
                    self.phase = Phase::Starting;
                }
                let offset = self.next;
                let len = piece_len_max.min(total - offset);
                self.next += len;
                self.in_flight += 1;
                Some(Step {
                    request: Request::PutPart {
                        transfer: self.number,
                        offset: offset as u32,
                        total: total as u32,
                        bytes: &self.value[offset..offset + len],
                    },
                    want_cas: false,
                    offset: offset as u32,
                    len: len as u32,
                })
            }
            (
                Kind::Put {
                    mode,
                    flags,
                    expiry_s,
                },
                _,
            ) => {
                if self.in_flight > 0 {
                    return None;
                }
                self.phase = Phase::Committing;
                self.in_flight = 1;
                let commit = Request::PutCommit {
                    mode,
                    key: &self.key,
                    transfer: self.number,
                    total: total as u32,
                    flags,
                    expiry_s,
                };
                Some(bare(commit, self.want_cas))
            }
        }
    }

    /// Takes the answer to a step of this generation; says how the transfer ended, if it did.
    /// `number` is fresh, for a transfer that has to start again.
    pub(super) fn answer(
        &mut self,
        head: &Head,
        body: &[u8],
        (offset, len): (u32, u32),
        number: u32,
        now_ns: u64,
        value_len_max: usize,
    ) -> Option<Outcome<'_>> {
        self.in_flight -= 1;
        let refused = Outcome::Refused(head.status);
        let ended = match (self.kind, self.phase, head.status) {
            (_, Phase::Start | Phase::Over, _) => return None,
            (Kind::Get, Phase::Starting, Status::Ok) => {
                self.value.clear();
                self.value.extend_from_slice(body);
                self.item_flags = head.item_flags;
                self.cas = head.cas.unwrap_or(0);
                self.confirmed = self.value.len();
                None
            }
            (Kind::Get, Phase::Starting, Status::Partial) => {
                if self.first_piece(head, body, value_len_max) {
                    return None;
                }
                Some(Outcome::Refused(Status::Invalid))
            }
            (Kind::Get, Phase::Pieces, Status::Ok) if body.len() == len as usize => {
                let offset = offset as usize;
                self.value[offset..offset + body.len()].copy_from_slice(body);
                self.confirmed += body.len();
                self.asks = false;
                self.backoff_ns = BACKOFF_NS;
                if self.confirmed < self.value.len() {
                    return None;
                }
                None
            }
            (Kind::Get, Phase::Pieces, Status::Busy) => {
                let offset = offset as usize;
                self.busy_at = Some(self.busy_at.map_or(offset, |first| first.min(offset)));
                self.asks = true;
                if self.in_flight == 0 {
                    self.pause(now_ns);
                }
                return None;
            }
            (Kind::Get, Phase::Pieces, _) => {
                // Changed, gone, or moved: read it again from the start.
                self.restart(number);
                return None;
            }
            (Kind::Put { .. }, Phase::Starting | Phase::Pieces, Status::Ok) => {
                self.phase = Phase::Pieces;
                self.confirmed += len as usize;
                return None;
            }
            (Kind::Put { .. }, Phase::Starting, Status::Busy) => {
                self.restart(number);
                self.pause(now_ns);
                return None;
            }
            (Kind::Put { .. }, _, Status::NoTransfer) => {
                // The pieces were forgotten before they were stored.
                self.restart(number);
                return None;
            }
            (Kind::Put { .. }, Phase::Committing, Status::Ok) => Some(Outcome::Done {
                cas: head.cas.unwrap_or(0),
            }),
            _ => Some(refused),
        };
        self.phase = Phase::Over;
        Some(ended.unwrap_or(Outcome::Value {
            value: &self.value,
            flags: self.item_flags,
            cas: self.cas,
        }))
    }

    /// Forgets a pause, when the transfer goes to another connection.
    pub(super) fn clear_pause(&mut self) {
        self.not_before_ns = 0;
        self.backoff_ns = BACKOFF_NS;
    }
}
