//! A channel: queues that sleep on one socket, and those who ring it. The kernel's socket is a short
//! list behind a lock, which is all that the protocol around it knows of it.

use std::convert::Infallible;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::arming::must_ring;
use crate::bounded_model;
use crate::layout::CqEntry;
use crate::rings::{Ring, Sleeper, event};
use crate::sync::AtomicBool;

/// Stands for a datagram socket: a ring that finds no room is lost.
pub(super) struct Bell {
    rings: Mutex<Vec<u32>>,
    room: usize,
    changed: Condvar,
}

impl Bell {
    pub(super) fn new(room: usize) -> Self {
        Bell {
            rings: Mutex::new(Vec::new()),
            room,
            changed: Condvar::new(),
        }
    }

    pub(super) fn ring(&self, number: u32) {
        let mut rings = self.rings.lock().unwrap();
        if rings.len() < self.room {
            rings.push(number);
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

    fn take(&self) -> Ring {
        let mut rings = self.rings.lock().unwrap();
        if rings.is_empty() {
            return Ring::End;
        }
        Ring::For(rings.remove(0))
    }
}

/// A queue whose completions are counted.
struct Queue {
    number: u32,
    entry: CqEntry,
    fired: AtomicBool,
    owed: AtomicBool,
    completions: AtomicUsize,
}

impl Queue {
    fn sleeper(&self) -> Sleeper<'_> {
        Sleeper {
            number: self.number,
            entry: &self.entry,
            fired: &self.fired,
            owed: &self.owed,
        }
    }
}

struct Channel {
    queues: Vec<Queue>,
    bell: Bell,
}

/// Room for rings in a socket.
const ROOM: usize = 2;
/// A number that no queue has.
const NOBODYS: u32 = 9;

impl Channel {
    fn new(queues: u32) -> Self {
        let queue = |number| Queue {
            number,
            entry: CqEntry {
                armed: Default::default(),
            },
            fired: AtomicBool::new(false),
            owed: AtomicBool::new(false),
            completions: AtomicUsize::new(0),
        };
        Channel {
            queues: (0..queues).map(queue).collect(),
            bell: Bell::new(ROOM),
        }
    }

    /// One whose socket is full of anybody's rings.
    fn flooded(queues: u32) -> Self {
        let channel = Channel::new(queues);
        (0..ROOM).for_each(|_| channel.bell.ring(NOBODYS));
        channel
    }

    /// Another process completes on a queue: it can ring, and mark nothing.
    fn complete_from_outside(&self, queue: usize) {
        let queue = &self.queues[queue];
        queue.completions.fetch_add(1, Ordering::Release);
        if must_ring(&queue.entry, false) {
            self.bell.ring(queue.number);
        }
    }

    /// This process does.
    fn complete(&self, queue: usize) {
        let queue = &self.queues[queue];
        queue.completions.fetch_add(1, Ordering::Release);
        let ring = || self.bell.ring(queue.number);
        queue.sleeper().notify(false, ring);
    }

    fn event(&self, last: &mut u32) -> Option<u32> {
        let sleepers = self.queues.iter().map(Queue::sleeper);
        let take = || Ok::<_, Infallible>(self.bell.take());
        let ring = |other| self.bell.ring(other);
        event(sleepers, last, self.bell.room, take, ring).unwrap()
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
            self.bell.wait();
            // One event each time that it is readable, as a scheduler does.
            let named = self.event(&mut last).map(|named| named as usize);
            if let Some(named) = named.filter(|named| self.has(*named, count)) {
                waiting.retain(|number| *number != named);
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
