//! The agent: a thread of each adapter that answers first contacts, takes the answers of peers and
//! their new lanes, notices who has gone, and tries requests again that could not be carried out
//! yet.
//!
//! Everything it does is bounded, and it waits for nobody: a peer
//! that does not read its answers loses the connection.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::io::Errno;
use verbs::VerbsError;

use crate::contact::adapter::{TOKEN_LISTENER, TOKEN_OUTGOING, TOKEN_STOP, TOKEN_WAKE};
use crate::device::objects::Registry;
use crate::device::reaper::Reaper;

/// Turns in which [`catch_up`] serves peers at most.
const CATCH_UP_TURNS: usize = 256;
/// Time in which nobody is taken in, or answered, after that has failed, as when the process has no
/// descriptors left.
const PAUSE_NS: u64 = 10_000_000;
/// Events taken at once.
const EVENTS: usize = 64;

/// The running thread. Dropping it stops and joins the thread.
#[derive(Debug)]
pub(crate) struct Agent {
    stop: OwnedFd,
    objects: Weak<Registry>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Binds the adapter's socket and starts the thread.
    pub(crate) fn start(objects: &Arc<Registry>, clock: fn() -> u64) -> Result<Self, VerbsError> {
        let adapter = &objects.adapter;
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
            .map_err(|e| VerbsError::io("creating an eventfd", e))?;
        let data = EventData::new_u64(TOKEN_STOP);
        epoll::add(&adapter.agent_epoll, &stop, data, EventFlags::IN)
            .map_err(|e| VerbsError::io("watching an eventfd", e))?;
        let data = EventData::new_u64(TOKEN_WAKE);
        epoll::add(
            &adapter.agent_epoll,
            &adapter.agent_wake,
            data,
            EventFlags::IN,
        )
        .map_err(|e| VerbsError::io("watching an eventfd", e))?;
        objects.incoming.listen()?;
        let weak = Arc::downgrade(objects);
        let epoll = adapter
            .agent_epoll
            .try_clone()
            .map_err(|e| VerbsError::io("duplicating a descriptor", e))?;
        let of_thread = weak.clone();
        let thread = without_signals(|| {
            std::thread::Builder::new()
                .name("nic-soft agent".into())
                .spawn(move || run(&of_thread, &epoll, clock))
        });
        let thread = thread.map_err(|e| VerbsError::io("starting the agent", e))?;
        Ok(Agent {
            stop,
            objects: weak,
            thread: Some(thread),
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let rang = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        debug_assert!(rang.is_ok(), "an eventfd takes a 1");
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the software NIC's agent panicked");
        }
        if let Some(objects) = self.objects.upgrade() {
            objects.adapter.membership.leave();
            objects.incoming.close(&*objects);
            objects.contacts.close();
        }
    }
}

/// Starts a thread that takes none of the process's signals: they are for threads that the program knows of.
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    // SAFETY: sets that are written before they are read; the mask is this thread's own.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        started
    }
}

/// Nanoseconds of the system's monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The sooner of two times to sleep, the second being a moment of the clock.
fn pause(
    again: Option<Timespec>,
    deadline_ns: Option<u64>,
    clock: fn() -> u64,
) -> Option<Timespec> {
    let Some(deadline_ns) = deadline_ns else {
        return again;
    };
    let left_ns = deadline_ns.saturating_sub(clock());
    let left = Timespec {
        tv_sec: (left_ns / 1_000_000_000) as i64,
        tv_nsec: (left_ns % 1_000_000_000) as i64,
    };
    Some(again.map_or(left, |again| again.min(left)))
}

fn run(objects: &Weak<Registry>, epoll: &OwnedFd, clock: fn() -> u64) {
    let mut reaper = Reaper::default();
    let (mut deadline_ns, mut contact_due) = (None, None);
    // When connections are to be taken again, which could not be lately.
    let mut accept_due_ns = None;
    // When peers are to be answered that could not be lately.
    let mut answer_due_ns = None;
    loop {
        let mut space = [MaybeUninit::<Event>::uninit(); EVENTS];
        let again = [reaper.comes_again_after(), contact_due];
        let due_ns = [deadline_ns, accept_due_ns, answer_due_ns]
            .into_iter()
            .flatten()
            .min();
        let timeout = pause(again.into_iter().flatten().min(), due_ns, clock);
        let events = match epoll::wait(epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => continue,
            Err(e) => {
                tracing::error!(error = %e, "the software NIC's agent cannot wait");
                return;
            }
        };
        let Some(objects) = objects.upgrade() else {
            return;
        };
        let (contacts, incoming) = (&objects.contacts, &objects.incoming);
        for event in events {
            match event.data.u64() {
                TOKEN_STOP => return,
                // What it was woken for comes below, so that a later one is for the next turn.
                TOKEN_WAKE => objects.adapter.note_woken(),
                TOKEN_LISTENER => {
                    if !incoming.accept() {
                        accept_due_ns = Some(clock().saturating_add(PAUSE_NS));
                    }
                }
                token if token & TOKEN_OUTGOING != 0 => {
                    contacts.take_outgoing(&*objects, token & !TOKEN_OUTGOING);
                }
                token => incoming.serve(&*objects, token),
            }
        }
        if accept_due_ns.is_some_and(|due_ns| clock() >= due_ns) {
            accept_due_ns = None;
            if let Err(e) = incoming.watch() {
                tracing::warn!(error = %e, "cannot watch for peers");
                accept_due_ns = Some(clock().saturating_add(PAUSE_NS));
            }
        }
        let all_answered = incoming.answer_all(&*objects);
        answer_due_ns = (!all_answered).then(|| clock().saturating_add(PAUSE_NS));
        reaper.carry_on(&objects);
        contact_due = contacts.carry_on().map(|pause| Timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: pause.subsec_nanos().into(),
        });
        deadline_ns = objects.unfinished.carry_on(clock());
    }
}

/// Does what the agent has to do for known peers, without waiting for the agent's turn: lanes that
/// they have announced by now are taken up when this returns.
pub(crate) fn catch_up(objects: &Registry) {
    // A peer has so many lanes at most.
    for _ in 0..CATCH_UP_TURNS {
        if !serve_peers(objects) {
            break;
        }
    }
    // What the agent has read by now it deals with before it gives this lock back.
    objects.incoming.wait();
}

/// As [`catch_up`], and leaves nothing out that a peer has sent by now: whether a descriptor is ready
/// cannot be asked while another thread asks, which finds it not ready for a moment.
pub(crate) fn catch_up_with_all(objects: &Registry) {
    objects.incoming.serve_all_known(objects);
}

/// Serves known peers that have something to say; false when none has.
fn serve_peers(objects: &Registry) -> bool {
    let adapter = &objects.adapter;
    let mut space = [MaybeUninit::<Event>::uninit(); EVENTS];
    let now = Timespec::default();
    // The agent looks again, whatever went wrong here.
    let Ok((events, _)) = epoll::wait(&adapter.agent_epoll, &mut space, Some(&now)) else {
        return false;
    };
    let mut any = false;
    for event in events {
        let token = event.data.u64();
        let others = matches!(token, TOKEN_STOP | TOKEN_LISTENER | TOKEN_WAKE);
        if !others && token & TOKEN_OUTGOING == 0 {
            objects.incoming.serve_known(objects, token);
            any = true;
        }
    }
    any
}
