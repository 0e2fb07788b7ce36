//! One core: a partition, the HERD engine over it, the doors in front of it.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use cache::herd::Server;
use cache::herd::server::Prepared;
use cache::mica::{Partition, seconds};
use cache::route::Route;
use engine::Command;
use memcache::Pool;
use rt::cross::{ChannelReceiver, ChannelSender};
use rt::net::Listener;
use rt::threads::Shutdown;
use rt::{Clock, Handle};

use super::clock::ServeClock;
use super::control::Control;
use super::door::{self, Door, accept};
use super::engine::CoreEngine;
use super::herd::{Date, HerdPoller};
use super::limits::Limits;
use super::mail::{Errand, Mail, Parked, Post};
use super::stats::Board;
use super::watch::Watch;

/// Messages taken at once.
const MAIL_AT_ONCE: usize = 64;

/// What a core is made of. It travels to the core's thread.
pub(super) struct Parts {
    pub(super) partition: Partition,
    pub(super) server: Prepared,
    pub(super) mail: ChannelReceiver<Mail>,
    pub(super) post: Vec<ChannelSender<Mail>>,
    pub(super) listeners: Vec<OwnedFd>,
    pub(super) control: Control,
    pub(super) board: Arc<Board>,
    pub(super) route: Route,
    pub(super) clock: Arc<ServeClock>,
    pub(super) limits: Limits,
    pub(super) pool: Arc<Pool>,
}

/// Runs a core until the signal to stop.
pub(super) async fn run(
    core: Handle,
    number: usize,
    parts: Parts,
    shutdown: Shutdown,
) -> std::io::Result<()> {
    let partition = Rc::new(RefCell::new(parts.partition));
    let server = Rc::new(RefCell::new(parts.server.serve()));
    let post = Rc::new(Post::new(number, parts.post, Arc::clone(&parts.pool)));
    let engine = CoreEngine::new(
        Rc::clone(&partition),
        Rc::clone(&post),
        Arc::clone(&parts.board),
        Arc::clone(&parts.clock),
        parts.route,
    );
    let doors = Arc::clone(parts.board.doors());
    let watch = Rc::new(Watch::new(&core, parts.limits, parts.pool, doors));
    let door = Rc::new(Door {
        core: core.clone(),
        engine: Rc::new(RefCell::new(engine)),
        herd: door::Herd {
            post: Rc::clone(&post),
            control: parts.control.clone(),
        },
        doors: Arc::clone(parts.board.doors()),
        watch: Rc::clone(&watch),
        limits: parts.limits,
    });
    let mut tasks = vec![core.spawn(async move { watch.keep().await })];
    for listener in parts.listeners {
        let listener = Listener::adopt(&core, listener)?;
        tasks.push(core.spawn(accept(Rc::clone(&door), listener)));
    }
    let (clock, board) = (Arc::clone(&parts.clock), Arc::clone(&parts.board));
    let _herd = core.register_poller(HerdPoller::new(
        Rc::clone(&server),
        Rc::clone(&partition),
        Arc::clone(parts.board.herd()),
        parts.clock,
        move || Date {
            now_s: clock.unix_s(),
            ahead_s: clock.ahead_s(),
        },
        move |partition| board.publish(number, partition),
    )?);
    let sender = Rc::clone(&post);
    let handle = core.clone();
    tasks.push(core.spawn(async move { sender.send_waiting(&handle).await }));
    let reader = MailReader {
        core: core.clone(),
        partition,
        server,
        post,
        parked: RefCell::default(),
        control: parts.control,
        board: parts.board,
    };
    tasks.push(core.spawn(reader.read(parts.mail)));
    // None of these tasks ends by itself.
    let mut stop = pin!(shutdown.wait());
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut ended = tasks.iter_mut().map(|task| Pin::new(task).poll(context));
        let Some(Poll::Ready(ended)) = ended.find(Poll::is_ready) else {
            return Poll::Pending;
        };
        let why = ended
            .err()
            .map_or_else(|| "it ended".into(), |error| error.to_string());
        let why = format!("core {number}: a task of the core: {why}");
        Poll::Ready(Err(std::io::Error::other(why)))
    })
    .await
}

/// Reads the core's mail.
struct MailReader {
    core: Handle,
    partition: Rc<RefCell<Partition>>,
    server: Rc<RefCell<Server>>,
    post: Rc<Post>,
    parked: RefCell<Parked>,
    control: Control,
    board: Arc<Board>,
}

impl MailReader {
    async fn read(self, mut mail: ChannelReceiver<Mail>) {
        while mail.ready().await {
            let now_s = self.core.unix_s();
            mail.drain(MAIL_AT_ONCE, |one| self.deal_with(one, now_s));
            self.core.yield_now().await;
        }
    }

    /// Carries an errand out and sends its answer. Whether its connection has to fetch that first.
    fn run(&self, errand: Errand, now_s: u64) -> bool {
        let from = errand.from;
        let buffer = self.post.buffer();
        let reply = {
            let mut partition = self.partition.borrow_mut();
            // What ends its item with its value must not do so before the value can go.
            let waits = errand.touch().is_some()
                && !errand.is_fetch()
                && self.is_too_long(&mut partition, &errand, now_s);
            let command = match errand.command() {
                Command::Get { key, .. } if waits => Command::Get { key, touch: None },
                command => command,
            };
            let carry_out = |partition: &mut Partition| {
                partition.run(errand.hash, &command, now_s, |answer| {
                    errand.reply(answer, buffer)
                })
            };
            if waits || (errand.is_fetch() && errand.touch().is_none()) {
                partition.uncounted(carry_out)
            } else {
                carry_out(&mut partition)
            }
        };
        if matches!(errand.command(), Command::ResetStats) {
            self.board
                .publish_reset(self.post.core, &self.partition.borrow());
        }
        let holds_up = reply.holds_up();
        self.post.keep(errand.into_bytes());
        self.post.send(from, Mail::Answer(reply));
        holds_up
    }

    /// Whether the value of an errand's key is longer than its asker has room for.
    fn is_too_long(&self, partition: &mut Partition, errand: &Errand, now_s: u64) -> bool {
        let command = errand.command();
        let key = command.key().unwrap_or_default();
        let len = partition.uncounted(|partition| {
            let item = partition.get(errand.hash, key, seconds(now_s));
            item.map_or(0, |item| item.value.len())
        });
        errand.is_too_long(len)
    }

    fn deal_with(&self, mail: Mail, now_s: u64) {
        match mail {
            Mail::Errand(errand) => {
                let run = |errand: Errand| self.run(errand, now_s);
                self.parked.borrow_mut().take(errand, run);
            }
            Mail::Answer(reply) => self.post.answered(reply),
            Mail::Attach(attachment) => self.server.borrow_mut().attach(*attachment),
            Mail::Detach(client) => {
                let gone = self.server.borrow_mut().detach(client);
                if let Some(attachment) = gone {
                    self.control.release(Box::new(attachment));
                }
            }
        }
    }
}
