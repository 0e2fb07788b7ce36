//! The power fails before and after each commit; commits conflict, end unknown, are refused; reads fail;
//! futures are dropped.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::task::{Context, Waker};

use files::{FileSystem, Handle};
use meta::Fault;

use crate::differential::{Both, Kind};
use crate::harness::{Disk, check, run_alone};
use crate::spy::Spied;
use crate::tree::{Tree, tree};

/// What a power loss has left is recovered, whole, and says the one or the other.
fn check_fork(
    fork: &Disk,
    allowed: &[&Tree],
    is_whole: bool,
    seen: &[(Handle, u64)],
) -> Result<(), String> {
    let before = check(fork);
    if !before.findings.is_empty() {
        return Err(format!("before recovery: {:?}", before.findings));
    }
    let node = fork.open();
    let found = node.run(tree(&*node.fs));
    if is_whole && !allowed.contains(&&found) {
        return Err(format!("found {found:#?}\nallowed {allowed:#?}"));
    }
    for (object, change) in seen {
        let request = files::Request::GetAttributes(*object);
        if let Ok(files::Answer::Attributes(of)) = node.root(request)
            && of.change < *change
        {
            return Err(format!(
                "{object:?}: change went from {change} back to {}",
                of.change
            ));
        }
    }
    node.work();
    node.run(node.index.settle_all()).expect("nothing fails");
    let after = check(fork);
    if !after.findings.is_empty() || after.garbage + after.orphans + after.marked > 0 {
        return Err(format!("after recovery: {after:?}"));
    }
    let held: BTreeSet<_> = fork.blocks.blocks().into_iter().collect();
    let known: BTreeSet<_> = after.blocks.iter().copied().collect();
    if !held.is_subset(&known) {
        return Err(format!("blocks of nobody: {:?}", held.difference(&known)));
    }
    Ok(())
}

#[test]
fn a_power_loss_at_any_commit_leaves_all_or_nothing() {
    let mut forks_checked = 0;
    for seed in 0..40 {
        let mut both = Both::of_kind(seed, Kind::Crash);
        let forks: Rc<RefCell<Vec<Disk>>> = Rc::default();
        let (disk, keep) = (both.disk().clone(), forks.clone());
        let spied = both.spied();
        *spied.look.borrow_mut() = Some(Box::new(move |_| {
            let number = keep.borrow().len() as u64;
            keep.borrow_mut().push(disk.fork(number));
        }));
        for step in 0..80 {
            let before = run_alone(tree(both.model()));
            let seen = both.changes();
            both.step();
            let after = run_alone(tree(both.model()));
            for fork in forks.take() {
                forks_checked += 1;
                let checked = check_fork(&fork, &[&before, &after], both.is_atomic(), &seen);
                if let Err(why) = checked {
                    both.fail(&format!("seed {seed}, step {step}: {why}"));
                }
            }
        }
    }
    assert!(forks_checked > 1000, "only {forks_checked} commits");
}

/// Programs with a fault each, at every place: all answers are the model's, or the fault's.
fn with_faults(kind: Kind, every: u64, plant: impl Fn(&Disk, &Spied, u64)) {
    let mut at = 0;
    loop {
        let mut both = Both::of_kind(1000, kind);
        plant(both.disk(), &both.spied(), at);
        for _ in 0..250 {
            both.step();
        }
        let is_over = both.is_untouched();
        both.compare_all();
        both.end();
        if is_over {
            assert!(at > 30, "the fault struck only {at} times");
            return;
        }
        at += every;
    }
}

#[test]
fn an_unknown_end_is_found_out() {
    for fault in [Fault::UnknownDone, Fault::UnknownLost] {
        with_faults(Kind::Exact, 1, |disk, _, at| disk.rows.fail(at, fault));
    }
}

/// Every other commit, so that what one leaves open meets the next.
#[test]
fn unknown_ends_are_found_out_one_after_the_other() {
    let mut struck = 0;
    for seed in 2000..2060 {
        let mut both = Both::of_kind(seed, Kind::Exact);
        for _ in 0..250 {
            if both.rng.bool() && both.disk().rows.faults_to_come() == 0 {
                both.disk().rows.fail(0, Fault::UnknownDone);
                struck += 1;
            }
            both.step();
        }
        both.is_untouched();
        both.work();
        both.compare_all();
        both.end();
    }
    assert!(struck > 1000, "only {struck} commits");
}

#[test]
fn a_conflict_is_tried_again() {
    with_faults(Kind::Exact, 1, |_, spied, at| {
        spied.conflict_at.set(Some(spied.commits.get() + at));
    });
}

#[test]
fn a_refused_commit_changes_nothing() {
    for fault in [Fault::NoSpace, Fault::Refused] {
        with_faults(Kind::Faulty, 1, |disk, _, at| disk.rows.fail(at, fault));
    }
}

#[test]
fn a_failed_read_changes_nothing() {
    with_faults(Kind::Faulty, 3, |_, spied, at| {
        spied.read_fails_at.set(Some(spied.reads.get() + at));
    });
}

#[test]
fn a_dropped_future_is_carried_out_or_not() {
    let mut dropped = 0;
    for seed in 0..40 {
        let mut both = Both::of_kind(seed, Kind::Crash);
        for _ in 0..25 {
            both.step();
        }
        let (caller, request) = both.change();
        let node = both.take_node();
        for polls in 0..40 {
            node.run(node.index.settle_all()).expect("nothing fails");
            let before = node.run(tree(&*node.fs));
            let fork = both.disk().fork(seed).open();
            let answer = fork.call(&caller, request.clone());
            let after = fork.run(tree(&*fork.fs));
            let mut cx = Context::from_waker(Waker::noop());
            let mut future = node.fs.call(&caller, request.clone());
            let mut is_ready = false;
            for _ in 0..polls {
                is_ready = is_ready || future.as_mut().poll(&mut cx).is_ready();
                if is_ready {
                    break;
                }
                node.core.turn();
            }
            drop(future);
            dropped += 1;
            while node.core.turn() > 0 {}
            let found = node.run(tree(&*node.fs));
            assert!(
                found == before || found == after,
                "seed {seed}: {request:?} ({answer:?})"
            );
            let seen = check(both.disk());
            assert!(
                seen.findings.is_empty(),
                "seed {seed}: {request:?}: {seen:?}"
            );
            if is_ready || found != before {
                break;
            }
        }
    }
    assert!(dropped > 60, "only {dropped} dropped");
}
