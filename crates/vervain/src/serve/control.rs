//! The control threads: what may block, off the cores.
//!
//! Connecting a HERD client means making queue pairs and a first contact with the client's process,
//! which may be slow to answer. So threads of their own do it; cores only get the finished
//! attachment, and give it back when the client has gone. There are several threads, so that a
//! process that does not answer holds up nobody else.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cache::herd::server::ControlReply;
use cache::herd::wire::handshake::Refusal;
use cache::herd::{Acceptor, Attachment};
use rt::cross::{OneshotReceiver, OneshotSender, oneshot};
use rt::{Clock, SystemClock};

enum Job {
    /// A line of the handshake.
    Line(Vec<u8>, OneshotSender<Answered>),
    /// An attachment that its core has let go.
    Release(Box<Attachment>),
}

/// Threads; as many clients may keep their contact waiting before others wait for them.
const THREADS: usize = 16;

/// Lines that wait at most, and their bytes; further clients are refused. Attachments that are given
/// back always wait: there are no more of them than clients.
const LINES_MAX: usize = 1024;
const LINES_LEN_MAX: usize = 4 << 20;

/// What waits for the threads.
#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// The lines among them, and their bytes.
    lines: usize,
    lines_len: usize,
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

    fn give(&self, job: Job) {
        self.jobs().waiting.push_back(job);
        self.came.notify_one();
    }

    /// Has a line wait, unless too many do; then the sender comes back.
    fn give_line(
        &self,
        line: Vec<u8>,
        asker: OneshotSender<Answered>,
    ) -> Result<(), OneshotSender<Answered>> {
        let mut jobs = self.jobs();
        if !jobs.has_room(line.len()) {
            jobs.drop_abandoned();
        }
        if !jobs.has_room(line.len()) {
            return Err(asker);
        }
        jobs.lines += 1;
        jobs.lines_len += line.len();
        jobs.waiting.push_back(Job::Line(line, asker));
        drop(jobs);
        self.came.notify_one();
        Ok(())
    }
}

impl Jobs {
    fn has_room(&self, len: usize) -> bool {
        self.lines < LINES_MAX && self.lines_len + len <= LINES_LEN_MAX
    }

    /// The next job. Lines that nobody waits for any more are dropped.
    fn take(&mut self) -> Option<Job> {
        loop {
            let job = self.waiting.pop_front()?;
            if let Job::Line(line, asker) = &job {
                self.lines -= 1;
                self.lines_len -= line.len();
                // A connection is costly to make, and nobody would take it.
                if self.is_closed || asker.is_abandoned() {
                    continue;
                }
            }
            return Some(job);
        }
    }

    /// Drops the lines of connections that have ended.
    fn drop_abandoned(&mut self) {
        let Self {
            waiting,
            lines,
            lines_len,
            ..
        } = self;
        waiting.retain(|job| match job {
            Job::Line(line, asker) if asker.is_abandoned() => {
                *lines -= 1;
                *lines_len -= line.len();
                false
            }
            _ => true,
        });
    }
}

/// The answer to a line of the handshake. The attachments in it go back to the acceptor unless they
/// are taken: a connection may end while it waits, or with its answer unread.
pub(super) struct Answered {
    reply: ControlReply,
    queue: Arc<Queue>,
}

impl Answered {
    /// What to send, without the line's end.
    pub(super) fn line(&self) -> &str {
        &self.reply.line
    }

    /// Whether to close the stream once the line is sent.
    pub(super) fn closes(&self) -> bool {
        self.reply.close
    }

    /// The client's number and its attachments, once.
    pub(super) fn take_attached(&mut self) -> Option<(u32, Vec<Attachment>)> {
        self.reply.attached.take()
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        for attachment in self.take_attached().into_iter().flat_map(|(_, all)| all) {
            self.queue.give(Job::Release(Box::new(attachment)));
        }
    }
}

/// How cores reach the control threads. They end with the last of these.
#[derive(Clone)]
pub(super) struct Control {
    end: Arc<End>,
}

/// The cores' end of the queue.
struct End {
    queue: Arc<Queue>,
    acceptor: Arc<Acceptor>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.queue.jobs().is_closed = true;
        self.queue.came.notify_all();
    }
}

/// Starts the threads.
pub(super) fn start(acceptor: Arc<Acceptor>) -> std::io::Result<(Control, Vec<JoinHandle<()>>)> {
    let queue = Arc::new(Queue::default());
    let end = Arc::new(End {
        queue: Arc::clone(&queue),
        acceptor: Arc::clone(&acceptor),
    });
    let threads = (0..THREADS).map(|number| {
        let (acceptor, queue) = (Arc::clone(&acceptor), Arc::clone(&queue));
        std::thread::Builder::new()
            .name(format!("control {number}"))
            .spawn(move || work(&acceptor, &queue))
    });
    Ok((Control { end }, threads.collect::<Result<_, _>>()?))
}

fn work(acceptor: &Acceptor, queue: &Arc<Queue>) {
    while let Some(job) = next(acceptor, queue) {
        let now_ns = SystemClock.now().as_ns();
        match job {
            Job::Line(line, asker) => {
                // The message of a panic is told where it happens; one client must not end a thread
                // that all need.
                let answer = AssertUnwindSafe(|| acceptor.answer(&line, now_ns));
                if let Ok(reply) = catch_unwind(answer) {
                    let queue = Arc::clone(queue);
                    asker.send(Answered { reply, queue });
                }
            }
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
        if let Some(job) = jobs.take() {
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
    /// Has a line of the handshake answered. One that makes a thread panic gets no answer, which the
    /// receiver sees.
    pub(super) fn answer(&self, line: Vec<u8>) -> OneshotReceiver<Answered> {
        let (reply, answered) = oneshot();
        let End { queue, acceptor } = &*self.end;
        if let Err(reply) = queue.give_line(line, reply) {
            tracing::warn!("too many clients connect at a time: one was refused");
            reply.send(Answered {
                reply: acceptor.refuse(Refusal::Full),
                queue: Arc::clone(queue),
            });
        }
        answered
    }

    /// Gives an attachment back.
    pub(super) fn release(&self, attachment: Box<Attachment>) {
        self.end.queue.give(Job::Release(attachment));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::pin::Pin;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;
    use std::task::{Poll, Waker};
    use std::time::Instant;

    use cache::herd::client::{Client, ClientConfig, Control as Stream};
    use cache::herd::{Server, ServerConfig};
    use nic_soft::{SoftNic, SoftOptions};
    use verbs::decorate::{Event, Traced};
    use verbs::nic::Nic;
    use verbs::typed::Context;

    use super::*;

    /// A client's control stream that leads to the control threads, and ends with the answer to the
    /// line that asks for a connection unread.
    struct Impatient {
        control: Control,
        lines: usize,
        said: Vec<u8>,
        heard: Vec<u8>,
    }

    impl std::fmt::Debug for Impatient {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Impatient").finish_non_exhaustive()
        }
    }

    impl Write for Impatient {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.said.extend_from_slice(bytes);
            if self.said.ends_with(b"\n") {
                self.lines += 1;
                let answered = self.control.answer(std::mem::take(&mut self.said));
                let mut core = rt::Core::new(rt::Config::default()).expect("a core");
                let answered = core.block_on(answered);
                if self.lines == 1 {
                    let answered = answered.expect("an answer");
                    self.heard = format!("{}\r\n", answered.line()).into_bytes();
                }
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Read for Impatient {
        fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
            let len = self.heard.len().min(bytes.len());
            bytes[..len].copy_from_slice(&self.heard[..len]);
            self.heard.drain(..len);
            Ok(len)
        }
    }

    impl Stream for Impatient {
        fn is_closed(&mut self) -> bool {
            false
        }
    }

    /// A NIC that gives a busy machine time.
    fn open_patiently(dir: &tempfile::TempDir) -> Arc<SoftNic> {
        let options = SoftOptions::new(dir.path()).contact_timeout(Duration::from_secs(120));
        SoftNic::open(&options).expect("a NIC")
    }

    /// An acceptor of one client, and the core that it is for.
    fn one_client(nic: Arc<dyn Nic>) -> (Server, Arc<Acceptor>) {
        let pd = Context::new(nic).alloc_pd().expect("a protection domain");
        let config = ServerConfig {
            clients_max: 1,
            ..ServerConfig::default()
        };
        let (server, port) = <Server>::new(&pd, 0, &config).expect("a core");
        let acceptor = Acceptor::new(pd, &config, vec![port]).expect("an acceptor");
        (server, Arc::new(acceptor))
    }

    /// The cores' end of a queue without threads.
    fn without_threads(acceptor: &Arc<Acceptor>) -> (Control, Arc<Queue>) {
        let queue = Arc::new(Queue::default());
        let end = End {
            queue: Arc::clone(&queue),
            acceptor: Arc::clone(acceptor),
        };
        (Control { end: Arc::new(end) }, queue)
    }

    #[test]
    fn lines_that_nobody_takes_are_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let nic = open_patiently(&dir);
        let (_server, acceptor) = one_client(nic);
        let (control, queue) = without_threads(&acceptor);
        let is_refused = |answered: &mut OneshotReceiver<Answered>| {
            let mut context = std::task::Context::from_waker(Waker::noop());
            let Poll::Ready(answered) = Pin::new(answered).poll(&mut context) else {
                return false;
            };
            answered.expect("an answer").closes()
        };
        for (len, fit) in [(10, LINES_MAX), (64 << 10, LINES_LEN_MAX >> 16)] {
            let ask = || control.answer(vec![b'x'; len]);
            let mut waiting: Vec<_> = (0..fit).map(|_| ask()).collect();
            assert!(!waiting.iter_mut().any(is_refused), "there was room");
            assert!(is_refused(&mut ask()), "there was none");
            // Those who do not wait any more make room.
            waiting.truncate(fit / 2);
            assert!(!is_refused(&mut ask()));
            assert!(queue.jobs().waiting.len() <= fit / 2 + 1);
            drop(waiting);
            queue.jobs().drop_abandoned();
            let left = queue.jobs();
            assert_eq!((left.lines, left.lines_len), (0, 0));
        }
        assert_eq!(acceptor.usage().refused, 2);
    }

    #[test]
    fn a_line_whose_asker_has_gone_is_not_answered() {
        let dir = tempfile::tempdir().expect("a directory");
        let nic = open_patiently(&dir);
        let (_server, acceptor) = one_client(nic);
        let (control, queue) = without_threads(&acceptor);
        drop(control.answer(b"gone".to_vec()));
        let _waits = control.answer(b"waits".to_vec());
        let _too_late = control.answer(b"too late".to_vec());
        let Some(Job::Line(line, _)) = next(&acceptor, &queue) else {
            panic!("a line waits");
        };
        assert_eq!(line, b"waits");
        // Nor is one when the cores have ended.
        drop(control);
        assert!(next(&acceptor, &queue).is_none());
        let left = queue.jobs();
        assert_eq!((left.lines, left.lines_len), (0, 0));
    }

    #[test]
    fn what_nobody_waits_for_any_more_goes_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || open_patiently(&dir);
        let (_server, acceptor) = one_client(open());
        let (control, threads) = start(Arc::clone(&acceptor)).expect("threads");
        let client_pd = Context::new(open())
            .alloc_pd()
            .expect("a protection domain");
        // There is room for one client: each finds what the one before it has left.
        for _ in 0..3 {
            let dial = || {
                Ok(Impatient {
                    control: control.clone(),
                    lines: 0,
                    said: Vec::new(),
                    heard: Vec::new(),
                })
            };
            let client = Client::connect(client_pd.clone(), ClientConfig::default(), dial, 0);
            assert!(client.is_err(), "the stream has ended");
            let give_up = Instant::now() + Duration::from_secs(120);
            while acceptor.usage().clients > 0 {
                assert!(Instant::now() < give_up, "a client's place is lost");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        drop(control);
        for thread in threads {
            thread.join().expect("a thread that ends");
        }
        // None was turned away.
        assert_eq!(acceptor.usage().refused, 0);
    }

    /// More panics than there are threads cost neither a thread nor a client's place.
    #[test]
    fn a_panic_costs_nothing_but_its_client() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || open_patiently(&dir);
        let left = Arc::new(AtomicUsize::new(0));
        let panics = Arc::clone(&left);
        let traced = Traced::new(open(), move |event: Event| {
            let take = |left: usize| left.checked_sub(1);
            if matches!(event, Event::Modify { .. })
                && panics.fetch_update(SeqCst, SeqCst, take).is_ok()
            {
                panic!("on purpose");
            }
        });
        let (_server, acceptor) = one_client(Arc::new(traced));
        left.store(THREADS + 4, SeqCst);
        let (control, threads) = start(Arc::clone(&acceptor)).expect("threads");
        let client_pd = Context::new(open()).alloc_pd().expect("a domain");
        let connect = || {
            let dial = || {
                Ok(Impatient {
                    control: control.clone(),
                    lines: 0,
                    said: Vec::new(),
                    heard: Vec::new(),
                })
            };
            let client = Client::connect(client_pd.clone(), ClientConfig::default(), dial, 0);
            assert!(client.is_err(), "it hears nothing of its connection");
        };
        while left.load(SeqCst) > 0 {
            connect();
            assert_eq!(acceptor.usage().clients, 0, "its place is free");
        }
        connect();
        drop(control);
        for thread in threads {
            thread.join().expect("a thread that ends");
        }
        assert_eq!(acceptor.usage().refused, 0);
    }
}
