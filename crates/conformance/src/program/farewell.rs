//! How links end: an end leaves in the middle of everything, and what is left of a link begins anew.

use super::end::End;
use super::plan::{Farewell, Leave};
use super::run::lock;
use super::task::{Task, say};
use verbs::attr::{QpState, Transport};

impl Task<'_> {
    /// An end of this task says farewell.
    pub(super) fn leave(&mut self, farewell: Farewell) -> Result<(), String> {
        let index = self.index(farewell.leaver);
        match farewell.how {
            Leave::Error => {
                let pair = self.ends[index].pair.as_mut();
                let gone = pair.map_or(Ok(()), |pair| pair.go_to(QpState::Err));
                return gone.map_err(say("to ERR"));
            }
            Leave::Reset => {
                let pair = self.ends[index].pair.as_mut();
                let gone = pair.map_or(Ok(()), |pair| pair.go_to(QpState::Reset));
                self.ends[index].forget();
                self.ends[index].tell(self.world);
                return gone.map_err(say("to RESET"));
            }
            Leave::Forget => {
                self.ends[index].target = None;
                *lock(&self.world.known(farewell.leaver).region) = None;
                return Ok(());
            }
            Leave::BadKey | Leave::TooLong | Leave::Starve => return Ok(()),
            Leave::Destroy | Leave::Die => {}
        }
        // What has completed by then was received.
        self.ends[index].leaving = true;
        self.drain(true, |task| task.ends.iter().any(End::is_leaving_and_owes))?;
        self.ends[index].leave(self.world);
        self.ends[index].tell(self.world);
        // Its RECVs go with it.
        self.ends[index].leaving = false;
        let num = self.ends[index].num();
        if farewell.how == Leave::Destroy {
            self.destroyed.extend(num);
            self.ends[index].pair = None;
            return Ok(());
        }
        self.note(|| "dies".into());
        if let Some(mortal) = self.mortal.take() {
            (mortal.kill)();
        }
        self.ends[index].dead = true;
        self.ends[index].pair = None;
        self.events = None;
        self.node = None;
        Ok(())
    }

    /// The ends of a link that says farewell give up what they still have, see that what was
    /// confirmed was received, and begin anew.
    pub(super) fn part(&mut self, farewell: Farewell) -> Result<(), String> {
        let of_link = |end: &&mut End| end.id.0 == farewell.leaver.0 && !end.dead;
        if farewell.abandoned {
            // The NIC may be about to notice that the peer has gone.
            for end in self.ends.iter_mut().filter(of_link) {
                self.destroyed.extend(end.num());
                end.pair = None;
            }
        }
        for end in self.ends.iter_mut().filter(of_link) {
            if let Some(pair) = &mut end.pair {
                pair.go_to(QpState::Err).map_err(say("to ERR"))?;
                end.leaving = true;
            }
        }
        self.drain(true, |task| {
            task.ends.iter().any(End::is_leaving_and_has_recvs)
        })?;
        for end in self.ends.iter_mut().filter(of_link) {
            end.leave(self.world);
        }
        self.pass()?;
        // Messages may have to wait for RECVs of a shared queue.
        self.drain(true, |task| {
            let mut ends = task.ends.iter();
            ends.any(|end| end.torn && end.is_behind(task.world))
        })?;
        // What has come to those that have no RECVs of their own is told, too.
        self.poll_all()?;
        for end in self.ends.iter().filter(|end| end.id.0 == farewell.leaver.0) {
            let (received, confirmed) = (end.ledger.received, self.world.confirmed(end.peer()));
            // Whoever was destroyed or forgot everything did not look any more.
            let leaves = end.id == farewell.leaver && farewell.how == Leave::Reset;
            let looked = end.transport == Transport::Rc && end.pair.is_some() && !leaves;
            if looked && received < confirmed {
                return Err(format!(
                    "{:?} received {received} messages, but {confirmed} completed at their sender",
                    end.id
                ));
            }
        }
        let mut ends = std::mem::take(&mut self.ends);
        for end in ends.iter_mut().filter(of_link) {
            match &mut end.pair {
                Some(pair) => pair.go_to(QpState::Reset).map_err(say("to RESET"))?,
                None => self.make_pair(end).map_err(say("a queue pair"))?,
            }
            if end.target.is_none() {
                self.make_target(end).map_err(say("a region"))?;
            }
            end.clear(self.world);
        }
        self.ends = ends;
        self.pass()?;
        let died = farewell.how == Leave::Die;
        for end in self.ends.iter_mut().filter(of_link) {
            match died {
                true => end.dead = true,
                false => end.connect(self.world, self.node.as_ref())?,
            }
        }
        self.pass()
    }
}
