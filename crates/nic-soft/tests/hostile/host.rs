//! The listening side of a hostile NIC: a thread that answers whoever contacts it, as it likes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::{Access, Transport};

use crate::layout::{KIND_PRIVATE, KIND_SHARED, MrEntry, Published, QpEntry, RECEIVES};
use crate::speaker::{Message, Speaker, home, receive};

/// The thread; it ends when this is dropped.
pub(crate) struct Host {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Answers each request with what a closure does.
    pub(crate) fn start(
        speaker: &Arc<Speaker>,
        mut answer: impl FnMut(&OwnedFd, &Message) + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, speaker) = (Arc::clone(&stop), Arc::clone(speaker));
        let serve = move || {
            let mut connections: Vec<OwnedFd> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let ready: Vec<bool> = {
                    let all = std::iter::once(&speaker.listener).chain(&connections);
                    let mut fds: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
                    let moment = Timespec {
                        tv_sec: 0,
                        tv_nsec: 20_000_000,
                    };
                    // An interrupted wait found nothing ready.
                    let _ = poll(&mut fds, Some(&moment));
                    fds.iter().map(|fd| !fd.revents().is_empty()).collect()
                };
                let mut index = 0;
                connections.retain(|socket| {
                    index += 1;
                    if !ready[index] {
                        return true;
                    }
                    match receive(socket) {
                        Ok((bytes, _)) if bytes.is_empty() => false,
                        Ok((bytes, _)) => {
                            if let Some(request) = Message::read(&bytes) {
                                answer(socket, &request);
                            }
                            true
                        }
                        Err(_) => false,
                    }
                });
                if ready[0]
                    && let Ok(socket) = rustix::net::accept(&speaker.listener)
                {
                    connections.push(socket);
                }
            }
        };
        Host {
            stop,
            thread: Some(std::thread::spawn(serve)),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it failed with was said; a second panic would end the process.
            assert!(
                thread.join().is_ok() || std::thread::panicking(),
                "the host failed"
            );
        }
    }
}

/// Publishes a queue pair that takes everything from a peer's, which is on the same address.
pub(crate) fn publish_qp(entry: &QpEntry, transport: Transport, peer_qpn: u32, generation: u32) {
    let kind = match transport {
        Transport::Rc => 1,
        Transport::Uc => 2,
        Transport::Ud => 3,
    };
    let gid = home().0;
    let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| gid[at + i]));
    entry.peer_gid[0].store(half(0), Ordering::Relaxed);
    entry.peer_gid[1].store(half(8), Ordering::Relaxed);
    entry.peer_qpn.store(peer_qpn, Ordering::Relaxed);
    entry.qkey.store(7, Ordering::Relaxed);
    entry.recv_cq.store(0, Ordering::Relaxed);
    entry.srq.store(0, Ordering::Relaxed);
    entry.channel.store(0, Ordering::Relaxed);
    entry.recv_depth.store(64, Ordering::Relaxed);
    entry.pd.store(1, Ordering::Relaxed);
    entry.epoch_and_timer.store(1 << 16, Ordering::Relaxed);
    let access = u64::from(Access::EVERYTHING.bits());
    let word = u64::from(generation) << 32 | access << 8 | kind << 4 | RECEIVES;
    entry.word.store(word, Ordering::Release);
}

/// Publishes RECVs with room for anything.
pub(crate) fn publish_credits(published: &Published, index: usize) {
    for (slot, credit) in published.credits[index][..64].iter().enumerate() {
        credit.store((slot as u64 + 1) << 32 | 1 << 20, Ordering::Relaxed);
    }
}

/// Publishes a shared region with all rights.
pub(crate) fn publish_region(entry: &MrEntry, key: u32, len: u64) {
    publish(entry, KIND_SHARED, key, len);
}

/// The same of one that is not shared.
pub(crate) fn publish_private(entry: &MrEntry, key: u32, len: u64) {
    publish(entry, KIND_PRIVATE, key, len);
}

fn publish(entry: &MrEntry, kind: u32, key: u32, len: u64) {
    entry
        .access
        .store(Access::EVERYTHING.bits(), Ordering::Relaxed);
    entry.pd.store(1, Ordering::Relaxed);
    entry.kind.store(kind, Ordering::Relaxed);
    entry.addr.store(0x10_0000, Ordering::Relaxed);
    entry.len.store(len, Ordering::Relaxed);
    entry.key.store(key, Ordering::Release);
}
