//! An opened device, and the program's objects of it.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nic_soft::SoftNic;
use verbs::Lkey;
use verbs::decorate::FaultPlan;
use verbs::nic::Nic;

use super::fork;
use super::on_demand::OnDemand;
use crate::abi;
use crate::abi::errno::Errno;
use crate::abi::theirs::Theirs;
use crate::around::Around;
use crate::check;
use crate::process::generation;

/// An opened device, as a program holds it.
#[repr(C)]
pub(crate) struct Opened {
    c: Theirs<abi::VerbsContext>,
    pub(crate) nic: Arc<dyn Nic>,
    /// As [`Around`] has it.
    pub(crate) soft: Option<Arc<SoftNic>>,
    /// As [`Around`] has it.
    pub(crate) check: Option<Arc<check::State>>,
    /// As [`Around`] has it.
    pub(crate) faults: Option<FaultPlan>,
    /// Readable when an asynchronous event waits. A program may have its reads block.
    pub(crate) events: OwnedFd,
    objects: Mutex<Objects>,
    /// Of the process that has opened it.
    generation: u32,
    /// What programs call it: the end of `c`.
    context: *mut abi::Context,
}

/// The program's objects by their numbers, as the program holds them.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) cqs: HashMap<u32, *mut abi::CqEx>,
    pub(crate) qps: HashMap<u32, *mut abi::Qp>,
    pub(crate) srqs: HashMap<u32, *mut abi::Srq>,
    pub(crate) on_demand: HashMap<u32, OnDemand>,
}

impl Opened {
    /// Makes one around its NIC, and gives what programs call it. `c` is what it offers them.
    pub(crate) fn make(around: Around, events: OwnedFd, c: abi::VerbsContext) -> *mut abi::Context {
        let room = Box::into_raw(Box::<Opened>::new_uninit()).cast::<Opened>();
        // SAFETY: within what was allocated.
        let context = unsafe { &raw mut (*room.cast::<abi::VerbsContext>()).context };
        let opened = Opened {
            c: Theirs::new(c),
            nic: around.nic,
            soft: around.soft,
            check: around.check,
            faults: around.faults,
            events,
            objects: Mutex::default(),
            generation: generation(),
            context,
        };
        fork::sleeps_on(opened.events.as_raw_fd());
        // SAFETY: there is room for it.
        unsafe { room.write(opened) };
        fork::opened(context);
        context
    }

    /// Ends one.
    ///
    /// # Safety
    /// It was made here, and is of no more use to anybody.
    pub(crate) unsafe fn end(context: *mut abi::Context) {
        // SAFETY: the caller's promise.
        let opened = unsafe { Opened::of(context) };
        fork::closed(context);
        fork::forget(opened.events.as_raw_fd());
        if let Some(state) = &opened.check {
            check::close(state);
        }
        // SAFETY: made by `make`.
        unsafe { check::give_back(Opened::around(context)) };
    }

    /// # Safety
    /// `context` is one of ours that is not closed meanwhile.
    pub(crate) unsafe fn of<'a>(context: *mut abi::Context) -> &'a Opened {
        // SAFETY: the caller's promise.
        unsafe { &*Opened::around(context) }
    }

    /// What a context is the end of the beginning of.
    ///
    /// # Safety
    /// `context` is one of ours.
    unsafe fn around(context: *mut abi::Context) -> *mut Opened {
        let before = std::mem::offset_of!(abi::VerbsContext, context);
        // SAFETY: ours begin with a `VerbsContext`, of which the program holds the end.
        unsafe { context.byte_sub(before).cast::<Opened>() }
    }

    /// What programs call it.
    pub(crate) fn context(&self) -> *mut abi::Context {
        self.context
    }

    /// Notes that two regions have exchanged their keys.
    pub(crate) fn exchange_on_demand(&self, one: Lkey, other: Lkey) {
        let on_demand = &mut self.objects().on_demand;
        let known = [on_demand.remove(&one.0), on_demand.remove(&other.0)];
        for (key, known) in [other, one].into_iter().zip(known) {
            known.map(|known| on_demand.insert(key.0, known));
        }
    }

    /// Whether a parent of this process has opened it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != generation()
    }

    /// For what makes or changes something: a forked child has inherited nothing that it may use.
    ///
    /// # Errors
    /// `ENODEV` there.
    pub(crate) fn checked(&self) -> Result<&Opened, Errno> {
        if self.is_inherited() {
            fork::tell();
            return Err(libc::ENODEV);
        }
        Ok(self)
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
