//! The control threads: what may block, off the cores.
//!
//! Connecting a HERD client means making queue pairs and a first contact with the client's process,
//! which may be slow to answer. So threads of their own do it; cores only get the finished
//! attachment, and give it back when the client has gone. There are several threads, so that a
//! process that does not answer holds up nobody else.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

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

/// How cores reach the control threads. They end with the last of these.
#[derive(Clone)]
pub(super) struct Control {
    jobs: mpsc::Sender<Job>,
}

/// Starts the threads.
pub(super) fn start(acceptor: Arc<Acceptor>) -> std::io::Result<(Control, Vec<JoinHandle<()>>)> {
    let (jobs, todo) = mpsc::channel();
    let todo = Arc::new(Mutex::new(todo));
    let threads = (0..THREADS).map(|number| {
        let (acceptor, todo) = (Arc::clone(&acceptor), Arc::clone(&todo));
        std::thread::Builder::new()
            .name(format!("control {number}"))
            .spawn(move || work(&acceptor, &todo))
    });
    Ok((Control { jobs }, threads.collect::<Result<_, _>>()?))
}

fn work(acceptor: &Acceptor, todo: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        // Nothing under this lock panics. One thread waits for a job, the others for the lock.
        let job = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let now_ns = SystemClock.now().as_ns();
        match job {
            Ok(Job::Line(line, reply)) => reply.send(acceptor.answer(&line, now_ns)),
            Ok(Job::Release(attachment)) => acceptor.release(*attachment, now_ns),
            Err(mpsc::RecvError) => return,
        }
    }
}

impl Control {
    /// Has a line of the handshake answered.
    pub(super) fn answer(&self, line: Vec<u8>) -> OneshotReceiver<ControlReply> {
        let (reply, answered) = oneshot();
        // Threads that have ended drop the sender with the job, which the receiver sees.
        drop(self.jobs.send(Job::Line(line, reply)));
        answered
    }

    /// Gives an attachment back.
    pub(super) fn release(&self, attachment: Box<Attachment>) {
        // Without the threads the process is ending, and the memory with it.
        drop(self.jobs.send(Job::Release(attachment)));
    }
}
