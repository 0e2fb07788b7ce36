//! One case on one side, from making the objects to agreeing on what was seen.

use std::time::Duration;

use verbs::typed::Context;

use super::case::{Case, Role};
use super::error::VerbsRunError;
use super::link::{Link, Message, hear};
use super::outcome::{Arrived, Outcome};
use super::side::Side;
use super::{echo, messages, oneway};
use crate::machine::pin;

/// Plays a case; the other side plays the other part at the same time. Both get what both have
/// seen.
pub(super) fn play(
    context: &Context,
    case: &Case,
    requester: bool,
    each: Duration,
    link: &mut Link,
) -> Result<(Outcome, Arrived), VerbsRunError> {
    let mut side = Side::open(context, case, requester, link)?;
    let side = &mut side;
    let recvs = messages::prepare(side, case, requester)?;
    Side::meet(link)?;
    if requester {
        let outcome = match case.answer {
            None => oneway::request(side, case, each, link)?,
            Some(_) => echo::request(side, case, recvs, each, link)?,
        };
        link.send(&Message::Finished(outcome.clone()))?;
        let arrived = hear!(link, Message::Checked(arrived) => arrived)?;
        return judge(outcome, arrived);
    }
    let mut arrived = match case.answer {
        None => oneway::target(side, case, recvs, link)?,
        Some(way) => echo::target(side, case, way, recvs, link)?,
    };
    let outcome = hear!(link, Message::Finished(outcome) => outcome)?;
    if case.answer.is_none() {
        arrived.wrong += oneway::check_target(side, case, outcome.sent);
    }
    link.send(&Message::Checked(arrived.clone()))?;
    judge(outcome, arrived)
}

fn judge(outcome: Outcome, arrived: Arrived) -> Result<(Outcome, Arrived), VerbsRunError> {
    match arrived.wrong {
        0 => Ok((outcome, arrived)),
        wrong => Err(VerbsRunError::Wrong { wrong }),
    }
}

/// The peer process: plays its part of whatever the other side begins, until that hangs up.
///
/// The calling thread is pinned when the other side says where.
///
/// # Errors
/// When a case fails; the other side has been told, and nothing more can be measured.
pub fn serve_peer(context: &Context, mut link: Link) -> Result<(), VerbsRunError> {
    loop {
        let done = match link.next()? {
            None => return Ok(()),
            Some(Message::Hello { version, cpu }) => greet(&version, cpu),
            Some(Message::Begin { case, each_us }) => {
                let requester = case.role == Role::Inbound;
                let each = Duration::from_micros(each_us);
                play(context, &case, requester, each, &mut link).map(|_| ())
            }
            Some(other) => Err(VerbsRunError::Peer(format!(
                "it said {other:?} out of turn"
            ))),
        };
        match done {
            Ok(()) => {}
            // It knows already, or cannot be told.
            Err(error @ (VerbsRunError::Peer(_) | VerbsRunError::PeerGone)) => return Err(error),
            Err(error) => {
                let why = error.to_string();
                link.send(&Message::Failed { why })?;
                return Err(error);
            }
        }
    }
}

fn greet(version: &str, cpu: Option<usize>) -> Result<(), VerbsRunError> {
    let ours = env!("CARGO_PKG_VERSION");
    if version != ours {
        let text = format!("the peer is version {ours}, not {version}");
        return Err(VerbsRunError::Setting(text));
    }
    match cpu {
        Some(cpu) if !pin(cpu) => {
            let text = format!("the peer may not run on CPU {cpu}");
            Err(VerbsRunError::Setting(text))
        }
        _ => Ok(()),
    }
}
