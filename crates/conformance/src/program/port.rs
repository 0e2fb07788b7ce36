//! All that a program asks of a NIC: to post, to poll, to arm, to wait and to change states.

use std::time::Duration;

use crate::WaitReadable;
use crate::rig::{Node, Options, steps};
use verbs::attr::{CqInit, QpAttr, QpInit, QpState, Transport};
use verbs::error::{PostError, VerbsError};
use verbs::names::{CqNum, Gid, QpNum};
use verbs::nic::{NicChannel, NicCq, QpParts};
use verbs::wc::Wc;
use verbs::wr::{RecvWr, SendWr};

/// A queue pair.
pub(super) struct Pair(QpParts);

impl Pair {
    pub(super) fn new(node: &Node, init: &QpInit) -> Result<Pair, VerbsError> {
        node.nic.create_qp(init).map(Pair)
    }

    pub(super) fn num(&self) -> QpNum {
        self.0.num()
    }

    pub(super) fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.0.post_send(wrs)
    }

    pub(super) fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.0.post_recv(wrs)
    }

    pub(super) fn go_to(&mut self, state: QpState) -> Result<(), VerbsError> {
        self.0.modify(&QpAttr::to(state))
    }

    pub(super) fn connect(
        &mut self,
        transport: Transport,
        peer: (Gid, QpNum),
        options: &Options,
    ) -> Result<(), VerbsError> {
        let steps = steps(transport, self.num(), peer, options);
        steps.iter().try_for_each(|attr| self.0.modify(attr))
    }
}

/// A completion queue, and the channel of its own on which its task sleeps.
pub(super) struct Events {
    cq: Box<dyn NicCq>,
    sleeper: Option<(Box<dyn NicChannel>, WaitReadable)>,
}

impl Events {
    pub(super) fn new(
        node: &Node,
        depth: u32,
        wait: Option<WaitReadable>,
    ) -> Result<Events, VerbsError> {
        let sleeper = match wait {
            Some(wait) => Some((node.nic.create_channel()?, wait)),
            None => None,
        };
        let channel = sleeper.as_ref().map(|(channel, _)| channel.num());
        let mut init = CqInit::new(depth);
        init.channel = channel;
        let cq = node.nic.create_cq(&init)?;
        Ok(Events { cq, sleeper })
    }

    pub(super) fn num(&self) -> CqNum {
        self.cq.num()
    }

    pub(super) fn poll(&mut self, out: &mut [Wc]) -> Result<usize, String> {
        self.cq.poll_slice(out).map_err(|e| format!("polling: {e}"))
    }

    pub(super) fn can_sleep(&self) -> bool {
        self.sleeper.is_some()
    }

    pub(super) fn arm(&mut self, solicited_only: bool) -> Result<(), String> {
        self.cq
            .arm(solicited_only)
            .map_err(|e| format!("arming: {e}"))
    }

    /// Sleeps until the channel has an event, or the time is up.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let wait =
            |(channel, wait): &(Box<dyn NicChannel>, WaitReadable)| wait(channel.fd(), patience);
        self.sleeper.as_ref().is_some_and(wait)
    }

    /// Takes an event, if there is one.
    pub(super) fn take(&mut self) -> Result<bool, String> {
        let Some((channel, _)) = &mut self.sleeper else {
            return Ok(false);
        };
        let event = channel
            .event()
            .map_err(|e| format!("taking an event: {e}"))?;
        match event {
            Some(num) if num != self.cq.num() => Err(format!("an event of {num:?}")),
            event => Ok(event.is_some()),
        }
    }
}
