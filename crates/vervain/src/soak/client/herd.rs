//! Over the software NIC.

use cache::herd::ClientConfig;
use cache::herd::client::{Address, Client, Door, Job, Outcome as Came, Pace, SubmitError};
use cache::herd::wire::answer::Status;
use verbs::typed::ProtectionDomain;

use super::Way;
use crate::cli::door;
use crate::cli::{ClientFlags, open_nic};
use crate::client::Waiting;
use crate::soak::model::Answer;
use crate::soak::wire::{Outcome, Request};

type Dialer = Box<dyn FnMut() -> std::io::Result<Door> + Send>;

/// A HERD client that keeps its windows full.
pub(super) struct HerdWay {
    pd: ProtectionDomain,
    config: ClientConfig,
    address: Address,
    client: Option<Client<Dialer>>,
    pace: Waiting,
}

impl HerdWay {
    pub(super) fn new(flags: &ClientFlags) -> anyhow::Result<Self> {
        let context = open_nic(&flags.nic)?.context;
        Ok(HerdWay {
            pd: context.alloc_pd()?,
            config: ClientConfig {
                deadline_ns: flags.timeout.as_nanos() as u64,
                ..ClientConfig::default()
            },
            address: door(flags),
            client: None,
            pace: Waiting::new(),
        })
    }

    fn connect(&mut self) -> Option<Client<Dialer>> {
        let timeout = std::time::Duration::from_nanos(self.config.deadline_ns);
        let address = self.address.clone();
        let dial: Dialer = Box::new(move || address.dial(timeout));
        let config = self.config.clone();
        let on_a_thread = |job: Job| {
            // Without a thread the attempt has failed, and another follows.
            drop(std::thread::Builder::new().spawn(job));
        };
        let now_ns = self.pace.now_ns();
        match Client::connect_apart(self.pd.clone(), config, dial, now_ns, on_a_thread) {
            Ok(client) => Some(client),
            Err(error) => {
                tracing::info!(%error, "no connection over the NIC");
                None
            }
        }
    }
}

impl Way for HerdWay {
    fn carry_out(&mut self, requests: &[Request]) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::NotSent; requests.len()];
        let Some(mut client) = self.client.take().or_else(|| self.connect()) else {
            return outcomes;
        };
        let give_up_ns = self.pace.now_ns() + self.config.deadline_ns;
        let mut next = 0;
        let mut missing = 0;
        while next < requests.len() || missing > 0 {
            let now_ns = self.pace.now_ns();
            client.flush(now_ns);
            while let Some(request) = requests.get(next) {
                let action = request.action(u32::try_from(request.expiry).unwrap_or(0));
                match client.submit(&action.command(&request.key), true, next as u64) {
                    Ok(()) => {
                        outcomes[next] = Outcome::Unknown;
                        missing += 1;
                    }
                    Err(SubmitError::Full) if now_ns < give_up_ns => break,
                    // What finds no room until then was not sent.
                    Err(SubmitError::Full) => {}
                    Err(SubmitError::TooLarge(_)) => {
                        outcomes[next] = Outcome::Answered(Answer::TooLarge);
                    }
                    Err(error) => {
                        outcomes[next] = Outcome::Answered(Answer::Odd(error.to_string()));
                    }
                }
                next += 1;
            }
            let taken = client.poll(now_ns, &mut |tag, came| {
                missing -= 1;
                let (Some(place), Some(request)) =
                    (outcomes.get_mut(tag as usize), requests.get(tag as usize))
                else {
                    return;
                };
                *place = outcome(request, came);
            });
            if taken == 0 {
                self.pace.wait();
            }
        }
        self.client = Some(client);
        outcomes
    }

    fn connects(&self) -> u64 {
        self.client
            .as_ref()
            .map_or(0, |client| client.stats().connects)
    }
}

fn outcome(request: &Request, came: Came<'_>) -> Outcome {
    Outcome::Answered(match came {
        Came::Value { value, flags, cas } => Answer::Value {
            bytes: value.to_vec(),
            flags,
            token: Some(cas),
        },
        Came::Done { cas } => Answer::Done {
            token: request.kind.is_store().then_some(cas),
        },
        Came::Number { value, .. } => Answer::Number(value),
        Came::Refused(Status::NotFound) => Answer::NotFound,
        Came::Refused(Status::NotStored) => Answer::NotStored,
        Came::Refused(Status::Exists) => Answer::Exists,
        Came::Refused(Status::NotANumber) => Answer::NotANumber,
        Came::Refused(Status::TooLarge) => Answer::TooLarge,
        Came::Refused(Status::Busy | Status::OutOfMemory) => Answer::Busy,
        Came::Refused(status) => Answer::Odd(format!("the server refuses: {status}")),
        _ => return Outcome::Unknown,
    })
}
