//! That cases fail on a NIC that breaks what they are about.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use verbs::attr::{CqInit, QpInit, SrqInit};
use verbs::batch::SendBatch;
use verbs::decorate::{Layer, Made, Wrap};
use verbs::nic::{Nic, NicCq, NicSrq, QpParts, SendHalf};
use verbs::{CqError, Polled, PostError, VerbsError, WcOpcode};

use super::{fixture, nics, wait_readable};

thread_local! {
    /// Rings in the completion channel.
    static RINGS: Cell<u32> = const { Cell::new(0) };
}

/// Rings for every message, also to queues that are not armed. An event takes one ring, arming a queue
/// all of them, and looking for an event that is not there none.
#[derive(Debug)]
struct RingsForAll;

impl Layer for RingsForAll {
    type Ctl = ();
    type Send = ();
    type Recv = ();
    type Cq = ();

    fn make_qp(&self, nic: &dyn Nic, init: &QpInit) -> Result<(QpParts, ((), (), ())), VerbsError> {
        Ok((nic.create_qp(init)?, ((), (), ())))
    }

    fn make_cq(&self, nic: &dyn Nic, init: &CqInit) -> Result<Made<dyn NicCq, ()>, VerbsError> {
        Ok((nic.create_cq(init)?, ()))
    }

    fn make_srq(&self, nic: &dyn Nic, init: &SrqInit) -> Result<Made<dyn NicSrq, ()>, VerbsError> {
        Ok((nic.create_srq(init)?, ()))
    }

    fn post_send(
        &self,
        (): &mut (),
        half: &mut dyn SendHalf,
        batch: &SendBatch,
    ) -> Result<(), PostError> {
        RINGS.set(RINGS.get() + 1);
        half.post(batch)
    }

    fn arm(&self, (): &mut (), cq: &mut dyn NicCq, solicited: bool) -> Result<(), VerbsError> {
        RINGS.set(0);
        cq.arm(solicited)
    }
}

fn wait_for_rings(fd: BorrowedFd<'_>, _: Duration) -> bool {
    let (event, rings) = (wait_readable(fd, Duration::ZERO), RINGS.get());
    RINGS.set(rings.saturating_sub(u32::from(event)));
    event || rings > 0
}

#[test]
fn a_descriptor_that_is_readable_for_no_event_is_noticed() {
    let [a, b] = nics().map(|nic| Arc::new(Wrap::around(nic, RingsForAll)));
    let mut fixture = fixture(a, b).waiting_with(wait_for_rings);
    // What the model does it has done when it is asked.
    fixture.patience = Duration::ZERO;
    let case = || conformance::channels::arming_asks_for_one_event(&fixture);
    let failed = catch_unwind(AssertUnwindSafe(case)).expect_err("the case is blind");
    let why = failed.downcast_ref::<String>().expect("a message");
    assert!(why.contains("a descriptor that is not readable"), "{why}");
}

/// Repeats the completion of each SEND, in queues that hold two: those in which a program's queue pair talks
/// to itself.
#[derive(Debug)]
struct RepeatsSends;

impl Layer for RepeatsSends {
    type Ctl = ();
    type Send = ();
    type Recv = ();
    type Cq = bool;

    fn make_qp(&self, nic: &dyn Nic, init: &QpInit) -> Result<(QpParts, ((), (), ())), VerbsError> {
        Ok((nic.create_qp(init)?, ((), (), ())))
    }

    fn make_cq(&self, nic: &dyn Nic, init: &CqInit) -> Result<Made<dyn NicCq, bool>, VerbsError> {
        let is_for_two = init.depth == 2 && init.channel.is_none();
        Ok((nic.create_cq(init)?, is_for_two))
    }

    fn make_srq(&self, nic: &dyn Nic, init: &SrqInit) -> Result<Made<dyn NicSrq, ()>, VerbsError> {
        Ok((nic.create_srq(init)?, ()))
    }

    fn poll(
        &self,
        is_for_two: &mut bool,
        cq: &mut dyn NicCq,
        out: &mut Polled,
    ) -> Result<usize, CqError> {
        cq.poll(out)?;
        let mut all = out.completions().iter().copied();
        let sent = all.rfind(|wc| wc.opcode == WcOpcode::Send);
        if let Some(sent) = sent.filter(|_| *is_for_two && !out.is_full()) {
            out.push(sent);
        }
        Ok(out.completions().len())
    }
}

#[test]
fn a_completion_that_comes_twice_aside_is_noticed() {
    let [a, b] = nics().map(|nic| Arc::new(Wrap::around(nic, RepeatsSends)));
    let fixture = fixture(a, b);
    let case = || conformance::program::random_programs_match_the_model(&fixture);
    let failed = catch_unwind(AssertUnwindSafe(case)).expect_err("the programs are blind");
    let why = failed.downcast_ref::<String>().expect("a message");
    assert!(why.contains("aside came more than 2"), "{why}");
}
