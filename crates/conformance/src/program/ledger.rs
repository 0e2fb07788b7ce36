//! The model: which completions an end is owed, in which order, with which status.
//!
//! A request that was posted completes in its turn. A link that says farewell may fail: from the
//! first failure on everything is flushed, and what its sender saw complete was received.

use std::collections::VecDeque;

use verbs::attr::Transport;
use verbs::wc::{Wc, WcFlags, WcOpcode, WcStatus};
use verbs::wr::GRH_LEN;

/// A send work request that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) id: u64,
    pub(super) opcode: WcOpcode,
    pub(super) signaled: bool,
    pub(super) consumes: bool,
}

/// A RECV that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) id: u64,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// A message that will come.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) opcode: WcOpcode,
    pub(super) imm: Option<u32>,
    pub(super) len: usize,
    /// What a SEND brings; a WRITE's bytes are elsewhere.
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) solicited: bool,
}

impl Message {
    /// Whether this is the message that has come, or what is different.
    fn came_as(
        &self,
        transport: Transport,
        wc: &Wc,
        bytes: impl Fn(usize, usize) -> Vec<u8>,
    ) -> Result<(), String> {
        let header = match transport {
            Transport::Ud => GRH_LEN,
            _ => 0,
        };
        let flags = wc.flags.contains(WcFlags::GRH) == (header > 0);
        let len = wc.byte_len as usize == header + self.len;
        if !flags || !len || wc.opcode != self.opcode || wc.immediate() != self.imm {
            let (opcode, imm, len) = (self.opcode, self.imm, self.len);
            return Err(format!(
                "{opcode:?} of {len} bytes, {imm:?} was to come: {wc:?}"
            ));
        }
        match &self.bytes {
            Some(expected) if bytes(header, self.len) != *expected => {
                Err(format!("other bytes than were sent: {wc:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// What failures are in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Fate {
    /// None.
    #[default]
    Healthy,
    /// Any, at any time.
    Torn,
    /// Any, at any time, but a request that fails by itself fails like this.
    Refused(WcStatus),
    /// The last request fails like this, and none before it.
    Last(WcStatus),
}

/// What one end is owed, and what it has got.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) fate: Fate,
    /// Posted and not known to be done: what takes room in the send queue.
    pub(super) sent: VecDeque<Sent>,
    /// Its own RECVs.
    pub(super) recvs: VecDeque<Slot>,
    pub(super) arriving: VecDeque<Message>,
    sending_failed: bool,
    receiving_failed: bool,
    /// Messages that completed with success here.
    pub(super) confirmed: usize,
    pub(super) received: usize,
}

impl Ledger {
    /// A send work request has completed.
    pub(super) fn sent(&mut self, wc: &Wc) -> Result<(), String> {
        let sent = loop {
            let Some(sent) = self.sent.pop_front() else {
                return Err(format!("nothing was to complete, but {wc:?}"));
            };
            if sent.id != wc.id && (sent.signaled || self.sending_failed) {
                return Err(format!("{sent:?} was to complete before {wc:?}"));
            }
            if sent.id == wc.id {
                break sent;
            }
            self.confirmed += usize::from(sent.consumes);
        };
        if wc.is_ok() {
            if self.sending_failed || !sent.signaled || wc.opcode != sent.opcode {
                return Err(format!("{sent:?} was not to complete so: {wc:?}"));
            }
            self.confirmed += usize::from(sent.consumes);
            return Ok(());
        }
        let right = match self.fate {
            _ if self.sending_failed => wc.status == WcStatus::WrFlushErr,
            Fate::Healthy => false,
            Fate::Torn => true,
            Fate::Refused(status) => [status, WcStatus::WrFlushErr].contains(&wc.status),
            Fate::Last(status) => wc.status == status && self.sent.is_empty(),
        };
        self.sending_failed = true;
        right
            .then_some(())
            .ok_or_else(|| format!("{sent:?} failed: {wc:?}"))
    }

    /// A RECV has completed. `bytes` reads what stands in it.
    pub(super) fn received(
        &mut self,
        transport: Transport,
        wc: &Wc,
        bytes: impl Fn(usize, usize) -> Vec<u8>,
    ) -> Result<(), String> {
        if !wc.is_ok() {
            self.receiving_failed = true;
            return match self.fate {
                Fate::Healthy => Err(format!("a RECV failed: {wc:?}")),
                _ => Ok(()),
            };
        }
        if self.receiving_failed {
            return Err(format!("a message after a failure: {wc:?}"));
        }
        // What goes over an unreliable link that ends may be lost, and what comes keeps its order.
        let may_lose = transport != Transport::Rc && self.fate != Fate::Healthy;
        let mut why = format!("no message was to come, but {wc:?}");
        while let Some(message) = self.arriving.pop_front() {
            let Err(differs) = message.came_as(transport, wc, &bytes) else {
                self.received += 1;
                return Ok(());
            };
            why = differs;
            if !may_lose {
                break;
            }
        }
        Err(why)
    }

    /// Forgets everything, for a new connection.
    pub(super) fn clear(&mut self) {
        *self = Ledger::default();
    }
}
