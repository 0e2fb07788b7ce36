//! Waiting for completions on a channel.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::os::fd::AsFd;
use std::sync::PoisonError;

use verbs::CqNum;

use super::channel::Channel;
use super::cq::Cq;
use crate::abi;
use crate::abi::errno::{errno_of, minus_one};
use crate::around::faults::Alarm;
use crate::check;
use crate::context::events::acknowledge;
use crate::context::opened::Opened;
use crate::context::sleep::{is_readable, wait_for, wait_within};

/// How long a program that may have seen its channel readable waits for a completion, before it gets an event without one.
const GRACE_MS: c_int = 10;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut abi::CompChannel,
    cq: *mut *mut abi::CqEx,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let channel = unsafe { Channel::of(channel) };
    // SAFETY: a context outlives what was made from it.
    let opened = unsafe { Opened::of((*channel.c.at()).context) };
    let mut next = || {
        while let Some(num) = channel.alarm.as_ref().and_then(Alarm::take) {
            if let Some(found) = told(opened, num) {
                return Ok(Some(found));
            }
        }
        loop {
            let mut nic = channel.nic.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(num) = nic.event().map_err(|error| errno_of(&error))? else {
                return Ok(None);
            };
            drop(nic);
            // Of one that is being destroyed nobody hears any more. Whoever polls may be at an object's end, so the table is
            // not locked any more.
            let Some(found) = told(opened, num) else {
                continue;
            };
            // SAFETY: it waits for the acknowledgement of this event before it goes.
            unsafe {
                if Cq::of(found).has_completed() {
                    return Ok(Some(found));
                }
                ibv_ack_cq_events(found, 1);
            }
        }
    };
    let fd = channel.readable.as_fd();
    let found = opened.checked().and_then(|_| {
        // A program that waits by `poll` calls this when the descriptor is readable, and is not to be kept then. What made it
        // readable may be for no completion; one most likely follows, and if not, an event that finds none is allowed.
        if is_readable(fd) {
            let found = wait_within(fd, &mut next, GRACE_MS)?;
            if let Some(found) = found.or_else(|| any_queue(channel, opened)) {
                return Ok(found);
            }
        }
        if check::is_on() {
            look_before_sleep(channel, opened);
        }
        wait_for(fd, next)
    });
    minus_one(found.map(|found| {
        // SAFETY: the caller's room, and a queue that is there until the event is acknowledged.
        unsafe {
            cq.write(found);
            cq_context.write((*found).cq_context);
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut abi::CqEx, events: u32) {
    // SAFETY: the caller's promise; nobody but us and the program knows of these, and it leaves them alone.
    unsafe {
        let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
        acknowledge(mutex, cond, &raw mut (*cq).comp_events_completed, events);
    }
}

/// The queue of a number, which counts one event more.
fn told(opened: &Opened, num: CqNum) -> Option<*mut abi::CqEx> {
    let objects = opened.objects();
    let found = objects.cqs.get(&num.0).copied()?;
    // SAFETY: it is taken out before it is destroyed, which waits for the acknowledgement of this event.
    unsafe { Cq::of(found) }.tell();
    Some(found)
}

/// A completion queue on this channel, which counts one event more.
fn any_queue(channel: &Channel, opened: &Opened) -> Option<*mut abi::CqEx> {
    let objects = opened.objects();
    // SAFETY: as above.
    let is_here = |cq: &*mut abi::CqEx| unsafe { Cq::of(*cq) }.channel() == channel.c.at();
    let found = objects.cqs.values().copied().find(is_here)?;
    // SAFETY: as above.
    unsafe { Cq::of(found) }.tell();
    Some(found)
}

/// Has checks look whether completions wait in a queue of the channel, of which no event will tell.
fn look_before_sleep(channel: &Channel, opened: &Opened) {
    let flags = rustix::fs::fcntl_getfl(&channel.readable);
    if flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK)) {
        return;
    }
    let objects = opened.objects();
    // SAFETY: those in the table are there as long as it is locked.
    let all = objects.cqs.values().map(|&cq| unsafe { Cq::of(cq) });
    let on_it: HashMap<usize, &Cq> = all
        .filter(|cq| cq.channel() == channel.c.at())
        .map(|cq| (std::ptr::from_ref(cq).addr(), cq))
        .collect();
    let addresses: Vec<usize> = on_it.keys().copied().collect();
    check::sleeps(&addresses, |cq| {
        // Who polls at the moment sees what is there.
        let poller = on_it.get(&cq).and_then(|cq| cq.poller.try_lock());
        poller.is_some_and(|mut poller| poller.has_some())
    });
}
