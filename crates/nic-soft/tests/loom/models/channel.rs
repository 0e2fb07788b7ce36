//! A channel: queues that sleep on one socket, and those who ring it. The kernel's socket is a short
//! list behind a lock, which is all that the protocol around it knows of it.

use std::convert::Infallible;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::bounded_model;
use crate::shared::arming::{Arming, Then, must_ring, polled};
use crate::shared::layout::CqEntry;
use crate::shared::wakeup::{Ring, Sleeper, event};
use crate::sync::AtomicBool;

/// Stands for a datagram socket: a ring that finds no room is lost.
pub(super) struct Doorbell {
    /// None: for nobody.
    rings: Mutex<Vec<Option<(u32, Arming)>>>,
    room: usize,
    changed: Condvar,
}

impl Doorbell {
    pub(super) fn new(room: usize) -> Self {
        Doorbell {
            rings: Mutex::new(Vec::new()),
            room,
            changed: Condvar::new(),
        }
    }

    pub(super) fn ring(&self, number: u32, arming: Arming) {
        self.send(Some((number, arming)));
    }

    pub(super) fn ring_for_nobody(&self) {
        self.send(None);
    }

    fn send(&self, ring: Option<(u32, Arming)>) {
        let mut rings = self.rings.lock().unwrap();
        if rings.len() < self.room {
            rings.push(ring);
            self.changed.notify_one();
        }
    }

    /// Waits until it is readable. Loom reports a deadlock if it never is.
    pub(super) fn wait(&self) {
        let mut rings = self.rings.lock().unwrap();
        while rings.is_empty() {
            rings = self.changed.wait(rings).unwrap();
        }
    }

    pub(super) fn empty(&self) {
        self.rings.lock().unwrap().clear();
    }

    pub(super) fn take(&self) -> Ring {
        let mut rings = self.rings.lock().unwrap();
        if rings.is_empty() {
            return Ring::End;
        }
        match rings.remove(0) {
            Some((number, arming)) => Ring::For(number, arming),
            None => Ring::Nobody,
        }
    }
}

/// A queue whose completions are counted.
struct Queue {
    number: u32,
    entry: CqEntry,
    owed: AtomicBool,
    completions: AtomicUsize,
}

impl Queue {
    fn sleeper(&self) -> Sleeper<'_> {
        Sleeper {
            number: self.number,
            entry: &self.entry,
            owed: &self.owed,
        }
    }

    /// Polls since arming: whether there are more completions than were seen.
    fn poll(&self, seen: &mut usize) -> bool {
        loop {
            let before = *seen;
            *seen = self.completions.load(Ordering::Acquire);
            let found = *seen > before;
            if polled(&self.entry, found) != Then::ArmAnew {
                return found;
            }
            self.sleeper().arm(false);
        }
    }
}

struct Channel {
    queues: Vec<Queue>,
    doorbell: Doorbell,
}

/// Room for rings in a socket.
const ROOM: usize = 2;

impl Channel {
    fn new(queues: u32) -> Self {
        let queue = |number| Queue {
            number,
            entry: CqEntry {
                armed: Default::default(),
            },
            owed: AtomicBool::new(false),
            completions: AtomicUsize::new(0),
        };
        Channel {
            queues: (0..queues).map(queue).collect(),
            doorbell: Doorbell::new(ROOM),
        }
    }

    /// One whose socket is full of anybody's rings.
    fn flooded(queues: u32) -> Self {
        let channel = Channel::new(queues);
        (0..ROOM).for_each(|_| channel.doorbell.ring_for_nobody());
        channel
    }

    /// Another process completes on a queue: it can ring, and mark nothing.
    fn complete_from_outside(&self, queue: usize) {
        let queue = &self.queues[queue];
        queue.completions.fetch_add(1, Ordering::Release);
        if let Some(arming) = must_ring(&queue.entry, false) {
            self.doorbell.ring(queue.number, arming);
        }
    }

    /// This process does.
    fn complete(&self, queue: usize) {
        let queue = &self.queues[queue];
        queue.completions.fetch_add(1, Ordering::Release);
        queue
            .sleeper()
            .notify(false, || self.doorbell.ring_for_nobody());
    }

    fn event(&self, last: &mut u32) -> Option<u32> {
        let sleepers = self.queues.iter().map(Queue::sleeper);
        let take = || Ok::<_, Infallible>(self.doorbell.take());
        let ring = || self.doorbell.ring_for_nobody();
        event(sleepers, last, self.doorbell.room, take, ring).unwrap()
    }

    /// Arms a queue and polls it once more: whether it has so many completions.
    fn has(&self, number: usize, count: usize) -> bool {
        let queue = &self.queues[number];
        queue.sleeper().arm(false);
        queue.completions.load(Ordering::Acquire) >= count
    }

    /// Sleeps until each queue has a completion, and looks only at those that events name.
    fn wait_for_each(&self, count: usize) {
        let mut last = u32::MAX;
        let mut waiting: Vec<usize> = (0..self.queues.len())
            .filter(|number| !self.has(*number, count))
            .collect();
        while !waiting.is_empty() {
            self.doorbell.wait();
            // One event each time that it is readable, as a scheduler does.
            let named = self.event(&mut last).map(|named| named as usize);
            if let Some(named) = named.filter(|named| self.has(*named, count)) {
                waiting.retain(|number| *number != named);
            }
        }
    }

    /// Sleeps until the one queue has so many completions, and takes between arming and polling the
    /// events that are there, as one does who had no need to sleep before.
    fn wait_clearing(&self, count: usize) {
        let (queue, mut last) = (&self.queues[0], u32::MAX);
        let mut seen = 0;
        while seen < count {
            queue.sleeper().arm(false);
            while self.event(&mut last).is_some() {}
            if !queue.poll(&mut seen) {
                self.doorbell.wait();
            }
        }
    }
}

fn completions(
    channel: &Arc<Channel>,
    each: usize,
    complete: fn(&Channel, usize),
) -> Vec<thread::JoinHandle<()>> {
    (0..channel.queues.len())
        .map(|queue| {
            let channel = channel.clone();
            thread::spawn(move || {
                for _ in 0..each {
                    complete(&channel, queue);
                }
            })
        })
        .collect()
}

#[test]
fn a_ring_from_outside_wakes_its_queue_though_the_socket_is_full() {
    bounded_model(|| {
        let channel = Arc::new(Channel::flooded(2));
        let threads = completions(&channel, 1, Channel::complete_from_outside);
        channel.wait_for_each(1);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_completion_of_this_process_wakes_its_queue_though_the_socket_is_full() {
    bounded_model(|| {
        let channel = Arc::new(Channel::flooded(2));
        let threads = completions(&channel, 1, Channel::complete);
        channel.wait_for_each(1);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn two_queues_on_one_socket_are_both_woken() {
    bounded_model(|| {
        let channel = Arc::new(Channel::new(2));
        let threads = completions(&channel, 1, Channel::complete_from_outside);
        channel.wait_for_each(1);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_queue_that_sleeps_again_is_woken_again() {
    bounded_model(|| {
        let channel = Arc::new(Channel::new(1));
        let threads = completions(&channel, 2, Channel::complete_from_outside);
        channel.wait_for_each(2);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// Two threads complete on the one queue, whose poller takes events before it polls: one of them may
/// be for a completion that it had polled before it armed.
fn taking_events_before_polling(complete: fn(&Channel, usize)) {
    let mut builder = loom::model::Builder::new();
    // Whoever completes stands still before looking whether to ring, its poller arms anew, and takes
    // the event: that needs three.
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let channel = Arc::new(Channel::new(1));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let channel = channel.clone();
                thread::spawn(move || complete(&channel, 0))
            })
            .collect();
        channel.wait_clearing(2);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn whoever_takes_events_before_polling_is_woken_from_outside() {
    taking_events_before_polling(Channel::complete_from_outside);
}

#[test]
fn whoever_takes_events_before_polling_is_woken_by_this_process() {
    taking_events_before_polling(Channel::complete);
}

#[test]
fn a_late_ring_ends_no_newer_arming() {
    bounded_model(|| {
        let channel = Arc::new(Channel::new(1));
        let queue = &channel.queues[0];
        queue.sleeper().arm(false);
        queue.completions.fetch_add(1, Ordering::Release);
        let arming = must_ring(&queue.entry, false).expect("it is armed");
        let (rings, completes) = (channel.clone(), channel.clone());
        let threads = [
            thread::spawn(move || rings.doorbell.ring(0, arming)),
            thread::spawn(move || completes.complete_from_outside(0)),
        ];
        // That completion is polled, so the event is known to be one of the first arming, and is
        // taken without another poll.
        queue.sleeper().arm(false);
        let mut last = u32::MAX;
        if queue.completions.load(Ordering::Acquire) < 2 {
            channel.event(&mut last);
            while queue.completions.load(Ordering::Acquire) < 2 {
                channel.doorbell.wait();
                channel.event(&mut last);
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_late_ring_brings_the_event_of_its_own_arming() {
    bounded_model(|| {
        let channel = Arc::new(Channel::new(1));
        let completes = channel.clone();
        let sleeper = channel.queues[0].sleeper();
        sleeper.arm(false);
        let thread = thread::spawn(move || completes.complete_from_outside(0));
        // Without a poll: whoever arms twice is woken by what came in between.
        sleeper.arm(false);
        let mut last = u32::MAX;
        while channel.event(&mut last).is_none() {
            channel.doorbell.wait();
        }
        thread.join().unwrap();
    });
}
