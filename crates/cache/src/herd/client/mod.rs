//! The client: one thread, up to W requests under way to each core of the server.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`Client`]: submitting, polling, connecting again |
//! | `window.rs` | one core's window: slots, repeats, deadlines |
//! | `slot.rs` | what is remembered of a request |
//! | `transfer.rs` | values that need more than one slot or datagram |
//! | `link.rs` | the connection's objects and its handshake |
//! | `source.rs` | who has sent a datagram |
//! | `dial.rs` | control streams |
//! | `redial.rs` | a lost connection is made again, by the client's thread or apart from it |
//! | `door.rs` | [`Address`] and [`Door`]: control streams over TCP and Unix sockets |
//! | `blocking.rs` | [`BlockingClient`]: one call, one answer |

#![forbid(unsafe_code)]

mod blocking;
mod dial;
mod door;
mod link;
mod redial;
mod slot;
mod source;
mod transfer;
mod window;

use verbs::Qkey;
use verbs::typed::ProtectionDomain;

pub use blocking::{BlockingClient, BlockingError, Item, Pace};
pub use dial::{ConnectError, Control, Dial};
pub use door::{Address, Door};
pub use redial::Job;

use self::link::Link;
use self::redial::{Attempt, Redial};
use self::transfer::Kind;
use self::window::{Again, Window};
use super::secret;
use super::wire::answer::Status;
use super::wire::handshake::ServerInfo;
use super::wire::request::{Command, KEY_LEN_MAX, Plain, Request, SHORT_KEY_LEN, StoreMode};

/// A client's sizes and times.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Requests under way to one core, a power of two; the server may allow fewer.
    pub window: u32,
    /// A request is given up after so long.
    pub deadline_ns: u64,
    /// A request is repeated after so long; each further pause is twice as long.
    pub retry_ns: u64,
    /// A core that answers nothing for so long is lost: the connection is made again.
    pub lost_ns: u64,
    /// First pause between attempts to connect; it doubles up to 64 times this.
    pub redial_ns: u64,
    /// How often to look whether the server has closed the control stream.
    pub control_check_ns: u64,
    /// Large values under way to one core, on their way in. A server with four buffers, as is usual,
    /// gives one client three: a fourth value would wait for those that come after it.
    pub transfers_max: usize,
    /// The seed of the keys of datagram queue pairs, for tests. `None` draws one that nobody can guess:
    /// whoever knows the keys can have a server's answers sent to this client.
    pub seed: Option<u64>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            window: 16,
            deadline_ns: 1_000_000_000,
            retry_ns: 2_000_000,
            lost_ns: 500_000_000,
            redial_ns: 10_000_000,
            control_check_ns: 100_000_000,
            transfers_max: 3,
            seed: None,
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// An item.
    Value {
        /// Its value, only valid during the call.
        value: &'a [u8],
        /// The user's flags.
        flags: u32,
        /// Its token; 0 when not asked for.
        cas: u64,
    },
    /// Stored, removed or touched.
    Done {
        /// The item's new token; 0 when not asked for.
        cas: u64,
    },
    /// The number after adding or subtracting.
    Number {
        /// The number.
        value: u64,
        /// The item's new token; 0 when not asked for.
        cas: u64,
    },
    /// The server said no, and changed nothing.
    Refused(Status),
    /// No answer before the deadline. It is carried out once or not at all; a request that takes
    /// its place is under way, and once that has arrived it will not be carried out any more.
    TimedOut,
    /// The connection was lost. It is carried out once or not at all: if once, before the server notices the
    /// loss, which may be after this.
    Unknown,
}

/// Why a command was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The window to the key's core is full, or as many large values are on their way as may be, or there is
    /// no connection at the moment: poll, then try again.
    #[error("the window is full")]
    Full,
    /// A key has 1 to 250 bytes.
    #[error("a key has 1 to 250 bytes, not {0}")]
    KeyLen(usize),
    /// The value is longer than the server takes.
    #[error("a value of {0} bytes is too large")]
    TooLarge(usize),
}

/// What a client has done, in requests unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ClientStats {
    /// Posted for the first time.
    pub posted: u64,
    /// Answers that somebody or nobody waited for.
    pub answers: u64,
    /// Requests posted so that they wake the server.
    pub kicks: u64,
    /// Requests posted again.
    pub repeats: u64,
    /// Datagrams that answered nothing: late, duplicate or odd.
    pub strays: u64,
    /// Commands past their deadline.
    pub timeouts: u64,
    /// Connections lost.
    pub losses: u64,
    /// Connections made.
    pub connects: u64,
    /// Attempts to connect that failed.
    pub connect_errors: u64,
    /// Requests that the NIC did not take.
    pub post_errors: u64,
}

/// A client of one server.
///
/// [`Client::submit`] composes, [`Client::poll`] posts, takes answers and hands out outcomes.
/// Nothing in it waits, except that one that was made by [`Client::connect`] makes a lost connection again by
/// itself: that may block in [`Dial::dial`] and in the handshake, as long as the stream's time-outs let it.
/// [`Client::connect_apart`] is for threads that have other things to do, such as clients of other servers.
///
/// Each answer is right for some moment between asking and being told, and changes are carried out once.
/// Commands of one key are carried out in the order submitted, but for these; who wants order there as well
/// waits for the outcome of the first:
///
/// - A GET whose answer was lost is carried out again, and may return what this client has SET after it.
/// - A value that takes several requests, because it is longer than a slot on its way in or than a datagram
///   on its way out, is overtaken by what is submitted after it, and by other such values.
/// - When the connection is lost, reads (but not GATs, which are changes) are asked again over the next one,
///   after changes that had been posted.
///   A change whose outcome is [`Outcome::Unknown`] may still be carried out for as long as the server has
///   not noticed the loss, also after commands over the next connection.
#[derive(Debug)]
pub struct Client<D: Dial> {
    pd: ProtectionDomain,
    config: ClientConfig,
    redial: Redial<D>,
    link: Option<Link<D::Stream>>,
    again: Vec<Again>,
    random: fastrand::Rng,
    redial_at_ns: u64,
    redial_ns: u64,
    control_at_ns: u64,
    stats: ClientStats,
    now_ns: u64,
}

impl<D: Dial> Client<D> {
    /// Connects.
    ///
    /// # Errors
    /// What was wrong with the door, the handshake or the NIC.
    pub fn connect(
        pd: ProtectionDomain,
        config: ClientConfig,
        dial: D,
        now_ns: u64,
    ) -> Result<Self, ConnectError> {
        Self::first(pd, config, dial, now_ns, Redial::Here)
    }

    /// Connects. What makes a lost connection again later is given to `run` as a job that may block: for
    /// a thread that may. A job that `run` drops is an attempt that has failed.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_apart(
        pd: ProtectionDomain,
        config: ClientConfig,
        dial: D,
        now_ns: u64,
        run: impl FnMut(Job) + Send + 'static,
    ) -> Result<Self, ConnectError>
    where
        D: Send + 'static,
        D::Stream: Send + 'static,
    {
        let redial = |dial| Redial::apart(dial, run);
        Self::first(pd, config, dial, now_ns, redial)
    }

    fn first(
        pd: ProtectionDomain,
        config: ClientConfig,
        mut dial: D,
        now_ns: u64,
        redial: impl FnOnce(D) -> Redial<D>,
    ) -> Result<Self, ConnectError> {
        let mut random = fastrand::Rng::with_seed(config.seed.unwrap_or_else(secret));
        let first = Attempt {
            pd,
            config,
            qkey: qkey(&mut random),
            now_ns,
        };
        let link = first.make(&mut dial)?;
        let Attempt { pd, config, .. } = first;
        Ok(Client {
            control_at_ns: now_ns + config.control_check_ns,
            redial_ns: config.redial_ns,
            link: Some(link),
            again: Vec::new(),
            redial_at_ns: 0,
            stats: ClientStats {
                connects: 1,
                ..ClientStats::default()
            },
            pd,
            config,
            redial: redial(dial),
            random,
            now_ns,
        })
    }

    /// Takes a command; its outcome will come with `tag`. Nothing is sent before
    /// [`Client::flush`] or [`Client::poll`], so that one call posts them all. The deadline
    /// counts from the last poll or flush.
    ///
    /// # Errors
    /// `Full`, `KeyLen`, `TooLarge`.
    #[inline]
    pub fn submit(
        &mut self,
        command: &Command<'_>,
        want_cas: bool,
        tag: u64,
    ) -> Result<(), SubmitError> {
        let deadline_ns = self.now_ns + self.config.deadline_ns;
        // Compiled for each of the usual requests.
        let taken = match *command {
            Command::Get { key } => self.submit_short(Plain::get(key), want_cas, tag, deadline_ns),
            Command::Store {
                mode: StoreMode::Set,
                key,
                value,
                flags,
                expiry_s,
            } => {
                let plain = Plain::set(key, value, flags, expiry_s);
                self.submit_short(plain, want_cas, tag, deadline_ns)
            }
            _ => None,
        };
        match taken {
            Some(true) => Ok(()),
            Some(false) => Err(SubmitError::Full),
            None => self.submit_until(command, want_cas, tag, deadline_ns),
        }
    }

    /// Takes a request with a key of the usual length that goes inline; false when the window is full.
    /// `None` for any other.
    #[inline(always)]
    fn submit_short(
        &mut self,
        plain: Plain<'_>,
        want_cas: bool,
        tag: u64,
        deadline_ns: u64,
    ) -> Option<bool> {
        let key = <&[u8; SHORT_KEY_LEN]>::try_from(plain.key).ok()?;
        let plain = Plain { key, ..plain };
        let link = self.link.as_mut()?;
        let window = &mut link.windows[link.route.core(key) as usize];
        let takes = window.takes_plain(&plain);
        takes.then(|| window.submit_plain(&plain, want_cas, tag, deadline_ns))
    }

    #[inline(never)]
    fn submit_until(
        &mut self,
        command: &Command<'_>,
        want_cas: bool,
        tag: u64,
        deadline_ns: u64,
    ) -> Result<(), SubmitError> {
        let key = command.key();
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            return Err(SubmitError::KeyLen(key.len()));
        }
        let link = self.link.as_mut().ok_or(SubmitError::Full)?;
        let window = &mut link.windows[link.route.core(key) as usize];
        match window.submit(command, want_cas, tag, deadline_ns) {
            Some(true) => Ok(()),
            None => Err(SubmitError::Full),
            Some(false) => {
                let Command::Store {
                    mode,
                    value,
                    flags,
                    expiry_s,
                    ..
                } = *command
                else {
                    return Err(SubmitError::KeyLen(key.len()));
                };
                if value.len() > link.info.value_len_max as usize {
                    return Err(SubmitError::TooLarge(value.len()));
                }
                let kind = Kind::Put {
                    mode,
                    flags,
                    expiry_s,
                };
                let transfers_max = self.config.transfers_max;
                window
                    .submit_put(kind, key, value, want_cas, tag, deadline_ns, transfers_max)
                    .then_some(())
                    .ok_or(SubmitError::Full)
            }
        }
    }

    /// Posts what was submitted: one call to the NIC per core.
    #[inline]
    pub fn flush(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if let Some(link) = &mut self.link {
            for window in &mut link.windows {
                window.flush(now_ns, &self.config, &mut self.stats);
            }
        }
    }

    /// Takes answers, repeats and gives up what has waited too long, posts what was submitted,
    /// and connects again if need be. Returns how many answers came.
    #[inline]
    pub fn poll(&mut self, now_ns: u64, sink: &mut impl FnMut(u64, Outcome<'_>)) -> usize {
        self.now_ns = now_ns;
        let Some(link) = &mut self.link else {
            self.reconnect(now_ns, sink);
            return 0;
        };
        let taken = link.take_answers(now_ns, &mut self.stats, sink);
        link.take_completions();
        let mut lost = link.is_broken();
        for window in &mut link.windows {
            window.pump(now_ns);
            window.flush(now_ns, &self.config, &mut self.stats);
            lost |= window.tick(now_ns, &self.config, &mut self.stats, sink);
        }
        if now_ns >= self.control_at_ns {
            self.control_at_ns = now_ns + self.config.control_check_ns;
            lost |= link.stream.is_closed();
        }
        if lost {
            self.lose(now_ns, sink);
        } else if !self.again.is_empty() {
            self.submit_again(now_ns, sink);
        }
        taken
    }

    /// Ends the connection. Reads wait for the next one, mutations are unknown.
    #[cold]
    fn lose(&mut self, now_ns: u64, sink: &mut impl FnMut(u64, Outcome<'_>)) {
        if let Some(link) = self.link.take() {
            self.stats.losses += 1;
            for window in link.windows {
                window.close(&mut self.again, sink);
            }
        }
        self.redial_ns = self.config.redial_ns;
        self.redial_at_ns = now_ns;
    }

    #[cold]
    fn reconnect(&mut self, now_ns: u64, sink: &mut impl FnMut(u64, Outcome<'_>)) {
        let made = if self.redial.is_under_way() {
            self.redial.take()
        } else if now_ns >= self.redial_at_ns {
            let attempt = Attempt {
                pd: self.pd.clone(),
                config: self.config.clone(),
                qkey: qkey(&mut self.random),
                now_ns,
            };
            self.redial.begin(attempt)
        } else {
            None
        };
        match made {
            Some(Ok(link)) => {
                self.stats.connects += 1;
                self.link = Some(link);
                self.control_at_ns = now_ns + self.config.control_check_ns;
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "connecting again failed");
                self.stats.connect_errors += 1;
                self.redial_at_ns = now_ns + self.redial_ns;
                self.redial_ns = (self.redial_ns * 2).min(self.config.redial_ns * 64);
            }
            None => {}
        }
        self.submit_again(now_ns, sink);
    }

    /// Submits what an earlier connection left, as far as there is room.
    #[cold]
    fn submit_again(&mut self, now_ns: u64, sink: &mut impl FnMut(u64, Outcome<'_>)) {
        let mut waiting = Vec::new();
        for again in std::mem::take(&mut self.again) {
            let (tag, deadline_ns) = match &again {
                Again::Request {
                    tag, deadline_ns, ..
                } => (*tag, *deadline_ns),
                Again::Transfer(transfer) => (transfer.tag, transfer.deadline_ns),
            };
            if now_ns >= deadline_ns {
                self.stats.timeouts += 1;
                sink(tag, Outcome::TimedOut);
                continue;
            }
            match again {
                Again::Transfer(transfer) => match &mut self.link {
                    Some(link) => {
                        let core = link.route.core(&transfer.key);
                        link.windows[core as usize].resume(transfer);
                    }
                    None => waiting.push(Again::Transfer(transfer)),
                },
                Again::Request { bytes, .. } => {
                    let submitted = match Request::parse(&bytes) {
                        Ok(Request::Command(command)) => {
                            let want_cas = Request::wants_cas(&bytes);
                            self.submit_until(&command, want_cas, tag, deadline_ns)
                        }
                        // Only commands are kept.
                        _ => Err(SubmitError::KeyLen(0)),
                    };
                    match submitted {
                        Ok(()) => {}
                        Err(SubmitError::Full) => waiting.push(Again::Request {
                            bytes,
                            tag,
                            deadline_ns,
                        }),
                        Err(SubmitError::TooLarge(_)) => {
                            sink(tag, Outcome::Refused(Status::TooLarge));
                        }
                        Err(SubmitError::KeyLen(_)) => {
                            sink(tag, Outcome::Refused(Status::Invalid));
                        }
                    }
                }
            }
        }
        self.again.append(&mut waiting);
    }

    /// Commands that have no outcome yet. Cost: looks at every slot.
    pub fn waiting(&self) -> usize {
        let windows = self.link.as_ref().map_or(&[][..], |link| &link.windows[..]);
        windows.iter().map(Window::waiting).sum::<usize>() + self.again.len()
    }

    /// What the server said of itself; `None` while there is no connection.
    pub fn info(&self) -> Option<ServerInfo> {
        self.link.as_ref().map(|link| link.info)
    }

    /// What the client has done.
    pub fn stats(&self) -> ClientStats {
        self.stats
    }
}

fn qkey(random: &mut fastrand::Rng) -> Qkey {
    // The top bit marks the keys that only privileged users may set.
    Qkey(random.u32(..) >> 1)
}
