//! All that a program asks of a NIC: to post, to poll, to arm, to wait and to change states.

use std::time::Duration;

use super::plan::QUEUES;
use crate::WaitReadable;
use crate::rig::{Node, Options, steps};
use verbs::attr::{CqInit, QpAttr, QpInit, QpState, Transport};
use verbs::error::{PostError, VerbsError};
use verbs::names::{CqNum, Gid, QpNum};
use verbs::nic::{NicChannel, NicCq, QpParts};
use verbs::polled::Polled;
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

    pub(super) fn state(&self) -> Option<QpState> {
        self.0.query().state
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

/// What a poll has found: a completion, and the message that is lent with it.
pub(super) type Found = (Wc, Option<Vec<u8>>);

/// Completion queues, and the channel of theirs on which their task sleeps.
pub(super) struct Events {
    queues: Vec<(Box<dyn NicCq>, Polled)>,
    sleeper: Option<(Box<dyn NicChannel>, WaitReadable)>,
}

impl Events {
    /// Makes queues as deep as is said, which have room for so many bytes of what is lent in a poll.
    pub(super) fn new(
        node: &Node,
        depths: [u32; QUEUES],
        lent_len: usize,
        wait: Option<WaitReadable>,
    ) -> Result<Events, VerbsError> {
        let sleeper = match wait {
            Some(wait) => Some((node.nic.create_channel()?, wait)),
            None => None,
        };
        let channel = sleeper.as_ref().map(|(channel, _)| channel.num());
        let queue = |depth: u32| {
            let mut init = CqInit::new(depth.max(1));
            init.channel = channel;
            let polled = Polled::with_bytes(1, lent_len);
            Ok((node.nic.create_cq(&init)?, polled))
        };
        let queues: Result<_, VerbsError> = depths.into_iter().map(queue).collect();
        Ok(Events {
            queues: queues?,
            sleeper,
        })
    }

    pub(super) fn num(&self, queue: usize) -> CqNum {
        self.queues[queue].0.num()
    }

    /// Polls all queues, each for up to `max` completions.
    pub(super) fn poll(&mut self, max: usize) -> Result<Vec<Found>, String> {
        let mut found = Vec::new();
        for (cq, polled) in &mut self.queues {
            polled.set_max(max);
            cq.poll(polled).map_err(|e| format!("polling: {e}"))?;
            let own = |(wc, lent): (&Wc, Option<&[u8]>)| (*wc, lent.map(<[u8]>::to_vec));
            found.extend(polled.iter().map(own));
        }
        Ok(found)
    }

    pub(super) fn can_sleep(&self) -> bool {
        self.sleeper.is_some()
    }

    pub(super) fn arm(&mut self, solicited_only: bool) -> Result<(), String> {
        for (cq, _) in &mut self.queues {
            let armed = cq.arm(solicited_only);
            armed.map_err(|e| format!("arming: {e}"))?;
        }
        Ok(())
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
        let is_own = |num| self.queues.iter().any(|(cq, _)| cq.num() == num);
        match event {
            Some(num) if !is_own(num) => Err(format!("an event of {num:?}")),
            event => Ok(event.is_some()),
        }
    }
}
