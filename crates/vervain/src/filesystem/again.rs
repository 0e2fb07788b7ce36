//! Trying again while a server restarts, or has its clients claim what they had before it restarted.

use std::cell::RefCell;
use std::fmt;
use std::io::Write as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nfs::client::ClientError;
use nfs::wire::Nfsstat4;

use crate::cli::FsServer;

/// How long it is tried again, unless `--timeout` says.
const AWAY: Duration = Duration::from_secs(10);
const BUSY: Duration = Duration::from_secs(120);

/// The rest between two attempts: longer each time.
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(2);

/// However short `--timeout` is, an answer may take as long as this.
const ANSWER_MIN: Duration = Duration::from_secs(2);

/// How long it is waited for a connection before a line says so.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// Why an attempt has failed that may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// Nobody answers. What was asked may have been carried out.
    Away,
    /// What was written is lost, and has to be written again.
    Lost,
    /// The server says so: clients claim what they had, or a delegation is called back. Nothing was done.
    Busy,
}

/// What is said where it is not known.
pub(super) const IN_DOUBT: &str = "it may have been carried out or not";

/// Whether what was asked may have been carried out, for all that is known: no answer has come that says how it ended.
pub(super) fn is_in_doubt(error: &anyhow::Error) -> bool {
    match client_error(error) {
        Some(ClientError::Status(status)) => matches!(
            *status,
            Nfsstat4::NFS4ERR_IO | Nfsstat4::NFS4ERR_SERVERFAULT
        ),
        Some(ClientError::Refused(_) | ClientError::Path(_)) | None => false,
        Some(_) => true,
    }
}

fn client_error(error: &anyhow::Error) -> Option<&ClientError> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// Why something is not tried again that might pass.
#[derive(Debug)]
pub(super) struct Final(pub(super) String);

impl fmt::Display for Final {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Passing {
    /// What an error is, if it may pass.
    pub(super) fn of(error: &anyhow::Error) -> Option<Self> {
        if error.downcast_ref::<Final>().is_some() {
            return None;
        }
        match client_error(error)? {
            ClientError::Io(_) | ClientError::Ended => Some(Self::Away),
            ClientError::Lost => Some(Self::Lost),
            ClientError::Status(Nfsstat4::NFS4ERR_GRACE | Nfsstat4::NFS4ERR_DELAY) => {
                Some(Self::Busy)
            }
            // It was waited for long enough when `Silent` is said.
            _ => None,
        }
    }

    /// How long it is tried again, if nobody says.
    const fn usual(self) -> Duration {
        match self {
            Self::Away | Self::Lost => AWAY,
            Self::Busy => BUSY,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Away => "does not answer",
            Self::Lost => "has lost what was written before it was durable",
            Self::Busy => "asks to come again: it has restarted, or a client has the file",
        }
    }
}

/// How long to try, and what was said of it. Cloning shares it.
#[derive(Clone)]
pub(super) struct Patience {
    server: String,
    timeout: Option<Duration>,
    trouble: Rc<RefCell<Option<Trouble>>>,
}

/// Attempts that failed one after the other.
struct Trouble {
    since: Instant,
    /// The last of them.
    last: Instant,
    /// How long it is tried in all: as long as the most patient reason is worth.
    most: Duration,
    said: Vec<Passing>,
    rest: Duration,
}

impl Patience {
    pub(super) fn new(server: &FsServer) -> Self {
        Self {
            server: server.address().to_string(),
            timeout: server.timeout,
            trouble: Rc::default(),
        }
    }

    /// How long a call may go unanswered; none: as long as the client waits by itself.
    pub(super) fn silence(&self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.max(ANSWER_MIN))
    }

    /// How long connecting may take now, and after how much of that a line says that it takes long.
    pub(super) fn of_connecting(&self) -> (Duration, Duration) {
        let most = self.timeout.unwrap_or(AWAY);
        let left = match &*self.trouble.borrow() {
            Some(trouble) => trouble.left(most, Instant::now()),
            None => most,
        };
        let left = left.max(ANSWER_MIN);
        (left, TELL_AFTER.min(left))
    }

    /// Something of what was asked for is done: what fails from now on is another trouble.
    pub(super) fn worked(&self) {
        *self.trouble.borrow_mut() = None;
    }

    /// The server answers, and nothing of what was asked for is done yet. A server that has answered for as long
    /// as it would have been tried again is well; one that ends again and again before that is not.
    pub(super) fn goes_on(&self) {
        self.goes_on_at(Instant::now());
    }

    fn goes_on_at(&self, now: Instant) {
        let mut trouble = self.trouble.borrow_mut();
        let is_over = |trouble: &Trouble| now.duration_since(trouble.last) >= trouble.most;
        if trouble.as_ref().is_some_and(is_over) {
            *trouble = None;
        }
    }

    /// How long to rest before the next attempt; none: it was tried for long enough. Says on standard error
    /// that it waits, and why, once.
    pub(super) fn next(&self, why: Passing) -> Option<Duration> {
        self.next_at(why, Instant::now())
    }

    fn next_at(&self, why: Passing, now: Instant) -> Option<Duration> {
        let most = self.timeout.unwrap_or(why.usual());
        let mut trouble = self.trouble.borrow_mut();
        let trouble = trouble.get_or_insert_with(|| Trouble {
            since: now,
            last: now,
            most,
            said: Vec::new(),
            rest: REST_MIN,
        });
        trouble.most = trouble.most.max(most);
        trouble.last = now;
        let left = trouble.left(trouble.most, now);
        if left.is_zero() {
            return None;
        }
        if !trouble.said.contains(&why) {
            trouble.said.push(why);
            self.tell(why, left);
        }
        let rest = trouble.rest.min(left);
        trouble.rest = (trouble.rest * 2).min(REST_MAX);
        Some(rest)
    }

    /// Says that it is tried for so long yet.
    pub(super) fn tell(&self, why: Passing, left: Duration) {
        let (server, what, left) = (&self.server, why.words(), left.as_secs_f64().ceil());
        let line = format!("{server} {what}; trying again for {left} s (--timeout)");
        // Nothing to do about a terminal that is gone.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

impl Trouble {
    fn left(&self, most: Duration, now: Instant) -> Duration {
        let end = self.since + most;
        end.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    fn patience(timeout: Option<Duration>) -> Patience {
        Patience {
            server: "a server".into(),
            timeout,
            trouble: Rc::default(),
        }
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Fails until it is given up; how long that took.
    fn until_given_up(patience: &Patience, mut whys: impl Iterator<Item = Passing>) -> Duration {
        let begin = Instant::now();
        let mut now = begin;
        while let Some(rest) = patience.next_at(whys.next().expect("no end"), now) {
            assert!(!rest.is_zero() && rest <= REST_MAX);
            now += rest;
            assert!(now - begin <= s(1000), "it goes on for ever");
        }
        now - begin
    }

    #[test]
    fn it_is_tried_for_as_long_as_was_asked_for() {
        use Passing::{Away, Busy, Lost};
        for (timeout, why, most) in [
            (None, Away, AWAY),
            (None, Lost, AWAY),
            (None, Busy, BUSY),
            (Some(s(3)), Busy, s(3)),
        ] {
            let took = until_given_up(&patience(timeout), std::iter::repeat(why));
            assert_eq!(took, most);
        }
        assert_eq!(patience(Some(Duration::ZERO)).next(Away), None);
    }

    #[test]
    fn a_server_that_is_away_and_busy_by_turns_is_given_up() {
        let turns = [Passing::Away, Passing::Busy].into_iter().cycle();
        assert_eq!(until_given_up(&patience(None), turns.clone()), BUSY);
        assert_eq!(until_given_up(&patience(Some(s(7))), turns), s(7));
    }

    #[test]
    fn what_worked_meanwhile_is_another_trouble() {
        let patience = patience(None);
        let begin = Instant::now();
        assert!(patience.next_at(Passing::Away, begin).is_some());
        assert!(patience.next_at(Passing::Away, begin + s(3600)).is_none());
        patience.worked();
        assert!(patience.next_at(Passing::Away, begin + s(3600)).is_some());
        // A file is being written, and the server has answered for some time.
        patience.goes_on_at(begin + s(3602));
        assert!(patience.next_at(Passing::Away, begin + s(3611)).is_none());
        patience.goes_on_at(begin + s(7200));
        assert!(patience.next_at(Passing::Away, begin + s(7200)).is_some());
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let error = |error: ClientError| Err::<(), _>(error).context("/a").unwrap_err();
        let of = |status| Passing::of(&error(ClientError::Status(status)));
        assert_eq!(of(Nfsstat4::NFS4ERR_GRACE), Some(Passing::Busy));
        assert_eq!(of(Nfsstat4::NFS4ERR_DELAY), Some(Passing::Busy));
        assert_eq!(of(Nfsstat4::NFS4ERR_NOENT), None);
        assert_eq!(Passing::of(&error(ClientError::Ended)), Some(Passing::Away));
        assert_eq!(Passing::of(&error(ClientError::Lost)), Some(Passing::Lost));
        assert_eq!(Passing::of(&error(ClientError::Silent)), None);
        assert_eq!(Passing::of(&anyhow::anyhow!("a local file")), None);
        let last = error(ClientError::Ended).context(Final("no more".into()));
        assert_eq!(Passing::of(&last.context("/b")), None);
        for unknown in [
            ClientError::Ended,
            ClientError::Silent,
            ClientError::Unexpected,
        ] {
            assert!(is_in_doubt(&error(unknown)));
        }
        let of = |status| is_in_doubt(&error(ClientError::Status(status)));
        assert!(of(Nfsstat4::NFS4ERR_IO) && !of(Nfsstat4::NFS4ERR_ACCESS));
        assert!(!is_in_doubt(&error(ClientError::Path("/".into()))));
        assert!(!is_in_doubt(&anyhow::anyhow!("a local file")));
    }
}
