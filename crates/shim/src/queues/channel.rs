//! Completion channels: making and destroying.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use verbs::nic::NicChannel;

use crate::abi;
use crate::abi::errno::{errno_of, pointer};
use crate::abi::theirs::Theirs;
use crate::around::faults::Alarm;
use crate::context::fork;
use crate::context::opened::Opened;
use crate::context::sleep::readable_with;

/// A program's completion channel.
#[repr(C)]
pub(crate) struct Channel {
    pub(super) c: Theirs<abi::CompChannel>,
    pub(super) nic: Mutex<Box<dyn NicChannel>>,
    /// What the program sleeps on.
    pub(super) readable: OwnedFd,
    /// Events for nothing, on purpose.
    pub(super) alarm: Option<Alarm>,
    /// Completion queues on it.
    pub(super) cqs: AtomicU32,
}

impl Channel {
    /// # Safety
    /// `channel` is one of ours that is not destroyed meanwhile.
    pub(super) unsafe fn of<'a>(channel: *mut abi::CompChannel) -> &'a Channel {
        // SAFETY: ours begin with what the program holds.
        unsafe { &*channel.cast::<Channel>() }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut abi::Context) -> *mut abi::CompChannel {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    let made = opened.checked().and_then(|opened| {
        let made = opened.nic.create_channel();
        made.map_err(|error| errno_of(&error))
    });
    let made = made.and_then(|nic| {
        let readable = readable_with(nic.fd())?;
        let plan = opened
            .faults
            .as_ref()
            .filter(|plan| !plan.spurious.is_never());
        let alarm = plan.map(|plan| Alarm::on(&readable, plan.seed, &plan.spurious));
        let alarm = alarm.transpose().map_err(|error| error.raw_os_error())?;
        Ok((readable, alarm, nic))
    });
    pointer(made.map(|(readable, alarm, nic)| {
        fork::sleeps_on(readable.as_raw_fd());
        let c = abi::CompChannel {
            context,
            fd: readable.as_raw_fd(),
            refcnt: 0,
        };
        let channel = Channel {
            c: Theirs::new(c),
            nic: Mutex::new(nic),
            readable,
            alarm,
            cqs: AtomicU32::new(0),
        };
        Box::into_raw(Box::new(channel)).cast()
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut abi::CompChannel) -> c_int {
    // SAFETY: a context outlives what was made from it.
    if unsafe { Opened::of((*channel).context) }.is_inherited() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let ours = unsafe { Channel::of(channel) };
    if ours.cqs.load(Ordering::Acquire) > 0 {
        return libc::EBUSY;
    }
    fork::forget(ours.readable.as_raw_fd());
    // SAFETY: made by `ibv_create_comp_channel`, and of no more use to anybody.
    drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
    0
}
