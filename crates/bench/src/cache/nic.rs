//! A connection through a NIC, by HERD's client.

use std::io;
use std::time::Duration;

use ::cache::herd::client::Job;
use ::cache::herd::{Client, ClientConfig, Command, Outcome, Status, StoreMode, SubmitError};
use verbs::typed::ProtectionDomain;

use super::RunError;
use super::connection::{Answer, Connection, Request, spin};
use super::report::ConnectionStats;
use super::target::{Address, Door};

/// Requests composed at most before they are posted.
///
/// Were a whole window posted at once, client and server would take turns: one composes while the
/// other has nothing to do. In pieces they work side by side; smaller ones cost more doorbells
/// than that gains.
const CHUNK_MAX: u32 = 8;

type Dialer = Box<dyn FnMut() -> io::Result<Door> + Send>;

/// A client of its own queues.
pub(super) struct NicConnection {
    client: Client<Dialer>,
    /// Requests are posted when so many are composed.
    chunk: u32,
    composed: u32,
    now_ns: u64,
}

/// Makes a lost connection again beside the load, which goes on.
fn on_a_thread(job: Job) {
    // Without a thread the attempt has failed, and another follows.
    drop(std::thread::Builder::new().spawn(job));
}

impl NicConnection {
    pub(super) fn connect(
        pd: &ProtectionDomain,
        door: &Address,
        window: u32,
        timeout: Duration,
        now_ns: u64,
    ) -> Result<Self, RunError> {
        let usual = ClientConfig::default();
        let config = ClientConfig {
            window,
            deadline_ns: timeout.as_nanos() as u64,
            // Where requests may take long, a server that is silent for long is not lost.
            lost_ns: (timeout.as_nanos() as u64 / 2).max(usual.lost_ns),
            ..usual
        };
        let door = door.clone();
        let dialer: Dialer = Box::new(move || door.dial(timeout));
        let client = Client::connect_apart(pd.clone(), config, dialer, now_ns, on_a_thread)?;
        Ok(NicConnection {
            client,
            chunk: (window / 2).clamp(1, CHUNK_MAX),
            composed: 0,
            now_ns,
        })
    }
}

impl Connection for NicConnection {
    #[inline]
    fn turn(&mut self, now_ns: u64) {
        // Deadlines count from the last flush.
        self.client.flush(now_ns);
        self.now_ns = now_ns;
        self.composed = 0;
    }

    #[inline]
    fn submit(&mut self, request: &Request<'_>, tag: u64) -> Result<bool, RunError> {
        let command = match *request {
            Request::Get { key } => Command::Get { key },
            Request::Put { key, value } => Command::Store {
                mode: StoreMode::Set,
                key,
                value,
                flags: 0,
                expiry_s: 0,
            },
        };
        match self.client.submit(&command, false, tag) {
            Ok(()) => {
                self.composed += 1;
                if self.composed == self.chunk {
                    self.composed = 0;
                    self.client.flush(self.now_ns);
                }
                Ok(true)
            }
            Err(SubmitError::Full) => Ok(false),
            Err(SubmitError::TooLarge(_)) => {
                Err(RunError::Setting("the server takes no values of this size"))
            }
            Err(_) => Err(RunError::Setting("the server takes no keys of this size")),
        }
    }

    #[inline]
    fn poll(
        &mut self,
        now_ns: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) -> Result<usize, RunError> {
        self.client.flush(now_ns);
        let taken = self.client.poll(now_ns, &mut |tag, outcome| {
            let answer = match outcome {
                Outcome::Value { value, .. } => Answer::Value(value),
                Outcome::Done { .. } => Answer::Stored,
                Outcome::Refused(Status::NotFound) => Answer::Missing,
                Outcome::TimedOut => Answer::TimedOut,
                Outcome::Unknown => Answer::Unknown,
                _ => Answer::Refused,
            };
            sink(tag, answer);
        });
        Ok(taken)
    }

    fn idle(&mut self, looks: u32, _may_sleep: bool) -> Result<(), RunError> {
        spin(looks);
        Ok(())
    }

    fn stats(&self) -> Option<ConnectionStats> {
        Some(self.client.stats().into())
    }
}
