//! Trying again while a server restarts, or has its clients claim what they had before it restarted.

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

/// Why an attempt has failed that may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// Nobody answers. What was asked may have been carried out.
    Away,
    /// The server says so: clients claim what they had, or a delegation is called back. Nothing was done.
    Busy,
}

impl Passing {
    /// What an error is, if it may pass.
    pub(super) fn of(error: &anyhow::Error) -> Option<Self> {
        let error = error
            .chain()
            .find_map(|cause| cause.downcast_ref::<ClientError>())?;
        match error {
            ClientError::Io(_) | ClientError::Ended => Some(Self::Away),
            ClientError::Status(Nfsstat4::NFS4ERR_GRACE | Nfsstat4::NFS4ERR_DELAY) => {
                Some(Self::Busy)
            }
            _ => None,
        }
    }
}

/// How long to try, and what was said of it.
pub(super) struct Patience {
    server: String,
    timeout: Option<Duration>,
    /// When it was first found to be so.
    since: Option<(Passing, Instant)>,
    rest: Duration,
}

impl Patience {
    pub(super) fn new(server: &FsServer) -> Self {
        Self {
            server: server.address().to_string(),
            timeout: server.timeout,
            since: None,
            rest: REST_MIN,
        }
    }

    /// How long to rest before the next attempt; none: it was tried for long enough. Says on standard error
    /// that it waits, and why, once.
    pub(super) fn next(&mut self, why: Passing) -> Option<Duration> {
        self.next_at(why, Instant::now())
    }

    fn next_at(&mut self, why: Passing, now: Instant) -> Option<Duration> {
        let (usual, what) = match why {
            Passing::Away => (AWAY, "does not answer"),
            Passing::Busy => (
                BUSY,
                "asks to come again: it has restarted, or a client has the file",
            ),
        };
        let most = self.timeout.unwrap_or(usual);
        let since = match self.since {
            Some((of, since)) if of == why => since,
            _ => {
                if !most.is_zero() {
                    eprintln!(
                        "{} {what}; trying again for {} s (--timeout)",
                        self.server,
                        most.as_secs()
                    );
                }
                self.since = Some((why, now));
                self.rest = REST_MIN;
                now
            }
        };
        let left = (since + most).checked_duration_since(now)?;
        if left.is_zero() {
            return None;
        }
        let rest = self.rest.min(left);
        self.rest = (self.rest * 2).min(REST_MAX);
        Some(rest)
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
            since: None,
            rest: REST_MIN,
        }
    }

    #[test]
    fn it_is_tried_for_as_long_as_was_asked_for() {
        for (timeout, why, most) in [
            (None, Passing::Away, AWAY),
            (None, Passing::Busy, BUSY),
            (
                Some(Duration::from_secs(3)),
                Passing::Busy,
                Duration::from_secs(3),
            ),
        ] {
            let mut patience = patience(timeout);
            let begin = Instant::now();
            let mut now = begin;
            while let Some(rest) = patience.next_at(why, now) {
                assert!(!rest.is_zero() && rest <= REST_MAX);
                now += rest;
            }
            assert_eq!(now - begin, most);
        }
        assert_eq!(patience(Some(Duration::ZERO)).next(Passing::Away), None);
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let error = |error: ClientError| Err::<(), _>(error).context("/a").unwrap_err();
        let of = |status| Passing::of(&error(ClientError::Status(status)));
        assert_eq!(of(Nfsstat4::NFS4ERR_GRACE), Some(Passing::Busy));
        assert_eq!(of(Nfsstat4::NFS4ERR_DELAY), Some(Passing::Busy));
        assert_eq!(of(Nfsstat4::NFS4ERR_NOENT), None);
        assert_eq!(Passing::of(&error(ClientError::Ended)), Some(Passing::Away));
        assert_eq!(Passing::of(&anyhow::anyhow!("a local file")), None);
    }
}
