//! A server's door inside its process: for tests and measurements that hold both sides.
//!
//! Clients reach it with [`Client::connect`](super::Client::connect), for which it is a [`Dial`];
//! whoever drives a core calls [`LocalDoor::serve`] now and then, which hands the core's
//! [`Server`] the clients that have come and takes those that have gone.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::Engine;

use super::client::{Control, Dial};
use super::server::{Acceptor, AcceptorUsage, Attachment, ControlReply, Server};

/// What waits for a core.
#[derive(Debug, Default)]
struct Mail {
    arriving: Vec<Attachment>,
    leaving: Vec<u32>,
}

#[derive(Debug)]
struct Shared {
    acceptor: Acceptor,
    cores: Mutex<Vec<Mail>>,
    is_open: AtomicBool,
    /// The latest time that a core has told.
    now_ns: AtomicU64,
}

/// A door; clones are the same one. It is open until [`LocalDoor::close`].
#[derive(Clone, Debug)]
pub struct LocalDoor {
    shared: Arc<Shared>,
}

impl LocalDoor {
    /// A door to the cores that `acceptor` makes connections to.
    pub fn new(acceptor: Acceptor) -> LocalDoor {
        let cores = (0..acceptor.info().cores)
            .map(|_| Mail::default())
            .collect();
        LocalDoor {
            shared: Arc::new(Shared {
                acceptor,
                cores: Mutex::new(cores),
                is_open: AtomicBool::new(true),
                now_ns: AtomicU64::new(0),
            }),
        }
    }

    /// Hands `server` the clients that have come and takes those that have gone, whose numbers it
    /// returns.
    pub fn serve<E: Engine>(&self, server: &mut Server<E>, now_ns: u64) -> Vec<u32> {
        self.pass_time(now_ns);
        let mail = std::mem::take(&mut self.lock()[server.core() as usize]);
        for attachment in mail.arriving {
            server.attach(attachment);
        }
        for &client in &mail.leaving {
            if let Some(attachment) = server.detach(client) {
                self.shared.acceptor.release(attachment, now_ns);
            }
        }
        mail.leaving
    }

    /// Tells the door what time it is: while no core is driven nobody else does.
    pub fn pass_time(&self, now_ns: u64) {
        self.shared.now_ns.fetch_max(now_ns, Ordering::Relaxed);
        // Whoever drives the door comes again, so when it is the turn of the next does not matter.
        self.shared.acceptor.drop_rested(now_ns);
    }

    /// Whether clients have come or gone that a core does not know of.
    pub fn has_news(&self, core: u32) -> bool {
        let mail = &self.lock()[core as usize];
        !mail.arriving.is_empty() || !mail.leaving.is_empty()
    }

    /// Answers a line of the handshake, as a stream's other side does. Attachments are not kept:
    /// they are the caller's.
    pub fn answer(&self, line: &[u8]) -> ControlReply {
        let now_ns = self.shared.now_ns.load(Ordering::Relaxed);
        self.shared.acceptor.answer(line, now_ns)
    }

    /// What the clients that were let in hold.
    pub fn usage(&self) -> AcceptorUsage {
        self.shared.acceptor.usage()
    }

    /// Shuts the door, as the end of a server's process does: its streams break, and nobody is let
    /// in any more.
    pub fn close(&self) {
        self.shared.is_open.store(false, Ordering::Relaxed);
    }

    fn is_open(&self) -> bool {
        self.shared.is_open.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mail>> {
        // Each change under the lock is complete in itself.
        self.shared
            .cores
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dial for LocalDoor {
    type Stream = LocalStream;

    fn dial(&mut self) -> io::Result<LocalStream> {
        if !self.is_open() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(LocalStream {
            door: self.clone(),
            sent: Vec::new(),
            received: VecDeque::new(),
            clients: Vec::new(),
        })
    }
}

/// A control stream through a [`LocalDoor`]. Its end tells the server that the client has gone.
#[derive(Debug)]
pub struct LocalStream {
    door: LocalDoor,
    sent: Vec<u8>,
    received: VecDeque<u8>,
    clients: Vec<u32>,
}

impl LocalStream {
    /// The number of the client that was last connected over it.
    pub fn client(&self) -> Option<u32> {
        self.clients.last().copied()
    }
}

impl Write for LocalStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.door.is_open() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.sent.extend_from_slice(bytes);
        while let Some(end) = self.sent.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.sent.drain(..=end).collect();
            let reply = self.door.answer(&line);
            self.received.extend(reply.line.bytes().chain(*b"\r\n"));
            if let Some((client, attachments)) = reply.attached {
                self.clients.push(client);
                let mut cores = self.door.lock();
                for attachment in attachments {
                    cores[attachment.core() as usize].arriving.push(attachment);
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for LocalStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.received.read(bytes)
    }
}

impl Control for LocalStream {
    fn is_closed(&mut self) -> bool {
        !self.door.is_open()
    }
}

impl Drop for LocalStream {
    fn drop(&mut self) {
        for mail in self.door.lock().iter_mut() {
            mail.leaving.extend(&self.clients);
        }
    }
}
