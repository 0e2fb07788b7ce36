//! The control threads: what may block, off the cores.
//!
//! Connecting a HERD client means making queue pairs and a first contact with the client's process,
//! which may be slow to answer. So threads of their own do it; cores only get the finished
//! attachment, and give it back when the client has gone. There are several threads, so that a
//! process that does not answer holds up nobody else.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cache::herd::server::ControlReply;
use cache::herd::{Acceptor, Attachment};
use rt::cross::{OneshotReceiver, OneshotSender, oneshot};
use rt::{Clock, SystemClock};

enum Job {
    /// A line of the handshake.
    Line(Vec<u8>, OneshotSender<ControlReply>),
    /// An attachment that its core has let go.
    Release(Box<Attachment>),
}

/// Threads; as many clients may keep their contact waiting before others wait for them.
const THREADS: usize = 16;

/// What waits for the threads.
#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// No more come.
    is_closed: bool,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    came: Condvar,
}

impl Queue {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        // Every change is a single step.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How cores reach the control threads. They end with the last of these.
#[derive(Clone)]
pub(super) struct Control {
    end: Arc<End>,
}

/// The cores' end of the queue.
struct End(Arc<Queue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.jobs().is_closed = true;
        self.0.came.notify_all();
    }
}

/// Starts the threads.
pub(super) fn start(acceptor: Arc<Acceptor>) -> std::io::Result<(Control, Vec<JoinHandle<()>>)> {
    let queue = Arc::new(Queue::default());
    let end = Arc::new(End(Arc::clone(&queue)));
    let threads = (0..THREADS).map(|number| {
        let (acceptor, queue) = (Arc::clone(&acceptor), Arc::clone(&queue));
        std::thread::Builder::new()
            .name(format!("control {number}"))
            .spawn(move || work(&acceptor, &queue))
    });
    Ok((Control { end }, threads.collect::<Result<_, _>>()?))
}

fn work(acceptor: &Acceptor, queue: &Queue) {
    while let Some(job) = next(acceptor, queue) {
        let now_ns = SystemClock.now().as_ns();
        match job {
            Job::Line(line, reply) => reply.send(acceptor.answer(&line, now_ns)),
            Job::Release(attachment) => acceptor.release(*attachment, now_ns),
        }
    }
}

/// Waits for a job; `None` when no more come. Meanwhile drops what clients have left, when its time
/// has come: the thread that took the last of it looks, and the others sleep.
fn next(acceptor: &Acceptor, queue: &Queue) -> Option<Job> {
    loop {
        let now_ns = SystemClock.now().as_ns();
        let turn_ns = acceptor.drop_rested(now_ns);
        let mut jobs = queue.jobs();
        if let Some(job) = jobs.waiting.pop_front() {
            return Some(job);
        }
        if jobs.is_closed {
            return None;
        }
        let left = turn_ns.map(|turn_ns| Duration::from_nanos(turn_ns.saturating_sub(now_ns)));
        match left {
            Some(left) => drop(queue.came.wait_timeout(jobs, left)),
            None => drop(queue.came.wait(jobs)),
        }
    }
}

impl Control {
    /// Has a line of the handshake answered. A thread that dies of it drops the sender, which the
    /// receiver sees.
    pub(super) fn answer(&self, line: Vec<u8>) -> OneshotReceiver<ControlReply> {
        let (reply, answered) = oneshot();
        self.give(Job::Line(line, reply));
        answered
    }

    /// Gives an attachment back.
    pub(super) fn release(&self, attachment: Box<Attachment>) {
        self.give(Job::Release(attachment));
    }

    fn give(&self, job: Job) {
        self.end.0.jobs().waiting.push_back(job);
        self.end.0.came.notify_one();
    }
}
