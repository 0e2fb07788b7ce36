//! What is known of a key, whether one client writes it or many.
//!
//! What was asked about it goes through the checker's search, in the order of its beginnings and ends.
//! The search wants the answer of a command when it begins. So what happens waits here until
//! everything that began before it has been answered.

use std::collections::VecDeque;

use cache::herd::Status;
use checker::Search;
use checker::history::{Action, Answer as Reply, Operation};

use super::{Answer, Moment, OpId, Span};
use crate::soak::tally::Tally;
use crate::soak::wire::{Kind, Outcome, Request};

/// Requests of unknown outcome that a key may have; with more, nothing much would be wrong.
const UNKNOWN_MAX: usize = 3;
/// Values that are kept before those that can come no more are dropped.
const VALUES_MAX: usize = 32;
/// Requests that are remembered, and how many are told when something is wrong.
const REMEMBERED: usize = 64;
const TOLD: usize = 12;
/// Values from here on may be refused as too large.
const TOO_LARGE_MIN: usize = 48 << 10;
/// An expiry up to here is so many seconds after the server carries the request out; beyond it is a
/// date, by the server's wall clock as it is then.
const RELATIVE_S_MAX: i64 = 30 * 86_400;
/// Seconds by which a server may keep an item too long: its clock is read now and then, and
/// seconds are rounded.
const EXPIRY_SLACK_S: i64 = 2;

/// What happens to all items of a server. Numbers are of what takes its time, and are no operation's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Upset {
    /// It was killed, and with it died what was on its way; another one starts empty.
    Killed(OpId),
    /// It begins to forget all that is there.
    Flushes(OpId),
    /// It has done so.
    Flushed(OpId),
    /// It may have done so, or not.
    MayHaveFlushed(OpId),
}

#[derive(Clone, Debug)]
enum Event {
    Begins(Operation),
    /// A request ends, with an answer.
    IsAnswered(OpId),
    /// What is no request ends.
    Ends(OpId),
    IsGivenUp(OpId),
    TokensAreAnothers,
}

impl Event {
    fn is_answer(&self) -> bool {
        matches!(self, Event::IsAnswered(_))
    }
}

/// A request and what came of it, for people.
#[derive(Clone, Debug)]
struct Line {
    id: OpId,
    asked: String,
    came: String,
}

/// An answer that nothing explains.
#[derive(Debug)]
pub(crate) struct Unexplained {
    pub(crate) id: OpId,
    pub(crate) asked: String,
    pub(crate) came: String,
    pub(crate) allowed: String,
    /// What happened to the key lately.
    pub(crate) history: Vec<String>,
}

/// What is known of a key.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    search: Search,
    waiting: Vec<(Moment, Event)>,
    /// Requests of unknown outcome that the server may still carry out.
    unknown: Vec<OpId>,
    lines: VecDeque<Line>,
    /// When a server was killed last, at the latest.
    killed_at: Option<Moment>,
    /// The search has given up. What waits stays unjudged.
    is_undecided: bool,
}

impl Default for Item {
    fn default() -> Self {
        Item {
            // A store for which there is no room is refused as too large, whatever its length;
            // `reply` judges what else is.
            search: Search::new(0),
            waiting: Vec::new(),
            unknown: Vec::new(),
            lines: VecDeque::new(),
            killed_at: None,
            is_undecided: false,
        }
    }
}

impl Item {
    /// Whether so little is known that another key should be used.
    pub(crate) fn is_worn(&self) -> bool {
        self.is_undecided || self.unknown.len() >= UNKNOWN_MAX
    }

    /// Counts what nobody will judge, of a key that is given up.
    pub(crate) fn give_up(&self, tally: &mut Tally) {
        tally.keys_undecided += u64::from(self.is_undecided);
        let waiting = self.waiting.iter();
        tally.unjudged += waiting.filter(|(_, event)| event.is_answer()).count() as u64;
    }

    /// Bytes of the item's value, and its token if that was seen, if the item is there and nothing
    /// else may be.
    pub(crate) fn stands(&self) -> Option<(usize, Option<u64>)> {
        let (len, token) = self.search.item()?;
        Some((len, (token != 0).then_some(token)))
    }

    /// What happened to the server between two moments.
    pub(crate) fn upset(&mut self, upset: Upset, from: Moment, to: Moment) {
        let all_go = |id| begins(id, Action::Delete, 0, Some(Reply::Unasked));
        match upset {
            Upset::Killed(id) => {
                let lost = self.unknown.drain(..).map(Event::IsGivenUp);
                self.waiting.extend(lost.map(|event| (to, event)));
                self.waiting.push((from, all_go(id)));
                self.waiting.push((to, Event::Ends(id)));
                self.waiting.push((to, Event::TokensAreAnothers));
                self.killed_at = Some(to);
            }
            Upset::Flushes(id) => self.waiting.push((from, all_go(id))),
            Upset::Flushed(id) => self.waiting.push((to, Event::Ends(id))),
            Upset::MayHaveFlushed(id) => self.waiting.push((to, Event::IsGivenUp(id))),
        }
    }

    /// What came of a request, which was carried out in this time if it was. An answer that cannot be to
    /// such a request is an error at once.
    pub(crate) fn told(
        &mut self,
        id: OpId,
        request: &Request,
        outcome: &Outcome,
        span: Span,
    ) -> Result<(), Box<Unexplained>> {
        let answer = match outcome {
            Outcome::NotSent => return Ok(()),
            Outcome::Unknown => None,
            Outcome::Answered(answer) => Some(answer),
        };
        if self.lines.len() == REMEMBERED {
            self.lines.pop_front();
        }
        self.lines.push_back(Line {
            id,
            asked: format!("v{id:x} {request}"),
            came: answer.map_or("outcome unknown".into(), ToString::to_string),
        });
        if answer == Some(&Answer::Busy) {
            return Ok(());
        }
        let mut answer = match answer.map(|answer| reply(request, answer)) {
            Some(None) => return Err(self.unexplained(id, "another kind of answer".into())),
            Some(told) => told,
            None => None,
        };
        if self.killed_at.is_some_and(|at| span.from <= at)
            && let Some(Reply::Value { cas, .. } | Reply::Done { cas }) = &mut answer
        {
            // Either server may have given the token, and the other one may give it for another value.
            *cas = None;
        }
        let is_known = answer.is_some();
        if !is_known && matches!(request.kind, Kind::Get | Kind::Delete) {
            // Nothing came of it that forgetting does not.
            return Ok(());
        }
        // The time is not known in which a request was carried out that has no answer.
        let gone_s = if is_known {
            gone_s(request.expiry, span)
        } else {
            0
        };
        let action = request.action(gone_s);
        let begins = begins(id, action, span.from_s as u32, answer);
        self.waiting.push((span.from, begins));
        match is_known {
            true => self.waiting.push((span.to, Event::IsAnswered(id))),
            false => self.unknown.push(id),
        }
        Ok(())
    }

    /// Judges what happened before a moment, and counts the answers among it. Whatever began before it
    /// must have been told.
    pub(crate) fn judge(
        &mut self,
        before: Moment,
        tally: &mut Tally,
    ) -> Result<(), Box<Unexplained>> {
        if self.is_undecided {
            return Ok(());
        }
        // What was told at one moment stays in its order.
        self.waiting.sort_by_key(|(at, _)| *at);
        let due = self.waiting.partition_point(|(at, _)| *at < before);
        let mut judged = 0;
        for (_, event) in &self.waiting[..due] {
            let done = match event {
                Event::Begins(operation) => self.search.begin(operation),
                Event::IsAnswered(id) | Event::Ends(id) => self.search.end(*id as usize),
                Event::IsGivenUp(id) => self.search.give_up(*id as usize),
                Event::TokensAreAnothers => {
                    self.search.forget_tokens();
                    Ok(())
                }
            };
            match done {
                Ok(()) => {
                    judged += 1;
                    tally.checked += u64::from(event.is_answer());
                }
                Err(checker::Unexplained::Undecided) => {
                    self.is_undecided = true;
                    break;
                }
                Err(checker::Unexplained::Lie(lie)) => {
                    self.waiting.drain(..due);
                    return Err(self.unexplained(lie.number as OpId, lie.why));
                }
            }
        }
        self.waiting.drain(..judged);
        self.search.forget_values(VALUES_MAX);
        Ok(())
    }

    fn unexplained(&self, id: OpId, allowed: String) -> Box<Unexplained> {
        let line = self.lines.iter().find(|line| line.id == id);
        let lately = self.lines.iter().rev().take(TOLD).rev();
        Box::new(Unexplained {
            id,
            asked: line.map_or(format!("v{id:x}"), |line| line.asked.clone()),
            came: line.map_or(String::new(), |line| line.came.clone()),
            allowed,
            history: lately
                .map(|line| format!("{}: {}", line.asked, line.came))
                .collect(),
        })
    }
}

fn begins(id: OpId, action: Action, clock_s: u32, answer: Option<Reply>) -> Event {
    Event::Begins(Operation {
        number: id as usize,
        client: 0,
        key: 0,
        action,
        begins: 0,
        clock_s,
        answer,
        ends: None,
    })
}

/// An answer as the checker takes it; nothing when it is none to such a request.
fn reply(request: &Request, answer: &Answer) -> Option<Reply> {
    Some(match answer {
        Answer::Value {
            bytes,
            flags,
            token,
        } => Reply::Value {
            value: bytes.clone(),
            flags: *flags,
            cas: *token,
        },
        Answer::Done { token } => Reply::Done { cas: *token },
        Answer::Number(value) => Reply::Number {
            value: *value,
            cas: None,
        },
        Answer::NotFound => Reply::Refused(Status::NotFound),
        Answer::NotStored => Reply::Refused(Status::NotStored),
        Answer::Exists => Reply::Refused(Status::Exists),
        Answer::NotANumber => Reply::Refused(Status::NotANumber),
        Answer::NoRoom if request.kind.is_store() => Reply::Refused(Status::TooLarge),
        Answer::TooLarge if request.value.len() >= TOO_LARGE_MIN => {
            Reply::Refused(Status::TooLarge)
        }
        Answer::Silent => Reply::Unasked,
        Answer::Busy | Answer::NoRoom | Answer::TooLarge | Answer::Odd(_) => return None,
    })
}

/// The unix second from which on no reader may see an item of this expiry; 0 is never.
fn gone_s(expiry: i64, span: Span) -> u32 {
    let gone_s = match expiry {
        0 => return 0,
        ..=RELATIVE_S_MAX => span.to_s as i64 + expiry,
        _ => expiry - span.ahead_s_min,
    };
    u32::try_from((gone_s + EXPIRY_SLACK_S).max(1)).unwrap_or(u32::MAX)
}
