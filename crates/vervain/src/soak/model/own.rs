//! A key that one client writes: exactly what it may hold.
//!
//! Kept is every state that the server may be in: the item, and which operations of unknown outcome
//! have not been carried out yet. An answer leaves those states from which it follows. If there is
//! none, the answer is wrong.

use std::collections::VecDeque;

use super::rules::{Item, after, fits};
use super::{Action, Answer, Moment, OpId, Span, When};

/// Operations of unknown outcome that a key may have; with more, nothing much would be wrong.
const UNKNOWN_MAX: usize = 3;
/// Operations that are remembered to be told when something is wrong.
const HISTORY: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    item: Option<Item>,
    /// A bit for each unknown operation that may still be carried out.
    due: u16,
}

const EMPTY: State = State { item: None, due: 0 };

/// What is known of a key.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    states: Vec<State>,
    unknown: Vec<(OpId, Action)>,
    history: VecDeque<String>,
}

/// What a correct cache could have answered.
#[derive(Debug)]
pub(crate) struct Allowed(pub(crate) String);

impl Own {
    /// A key that nobody has written.
    pub(crate) fn new() -> Self {
        Own {
            states: vec![EMPTY],
            unknown: Vec::new(),
            history: VecDeque::new(),
        }
    }

    /// The server is another one, which knows nothing.
    pub(crate) fn forget(&mut self) {
        self.states = vec![EMPTY];
        self.unknown.clear();
        self.note("-- the server was killed".into());
    }

    /// The server has forgotten what was stored before this moment. What is due is still due.
    pub(crate) fn flushed(&mut self, from: Moment) {
        for state in &mut self.states {
            state.item.take_if(|item| item.stored_by < from);
        }
        dedup(&mut self.states);
        self.note(format!(
            "-- what was stored before {:.3} s was flushed",
            from as f64 / 1e9
        ));
    }

    /// Whether so little is known that another key should be used.
    pub(crate) fn is_worn(&self) -> bool {
        self.unknown.len() >= UNKNOWN_MAX
    }

    /// The item, if it is there and nothing else may be.
    pub(crate) fn item(&self) -> Option<&Item> {
        let mut items = self.states.iter().filter_map(|state| state.item.as_ref());
        let first = items.next()?;
        items.all(|item| item == first).then_some(first)
    }

    /// Nobody has learnt how an operation ended.
    pub(crate) fn lost(&mut self, id: OpId, action: &Action) {
        self.note(format!("v{id:x} {action}: outcome unknown"));
        if matches!(action, Action::Get) {
            return;
        }
        let bit = 1_u16
            .checked_shl(self.unknown.len() as u32)
            .expect("a key with so many unknown outcomes is not used");
        self.unknown.push((id, action.clone()));
        for state in &mut self.states {
            state.due |= bit;
        }
    }

    /// Takes an answer.
    pub(crate) fn answered(
        &mut self,
        id: OpId,
        action: &Action,
        answer: &Answer,
        span: Span,
    ) -> Result<(), Allowed> {
        let left = self.follow(id, action, answer, span);
        if left.is_empty() {
            return Err(self.allowed(span));
        }
        self.states = left;
        self.note(format!("v{id:x} {action}: {answer}"));
        Ok(())
    }

    /// Takes the answers of a time in which the server was killed and another one started: each came
    /// from one or the other. What the first one knew is lost. An answer of none is an unknown
    /// outcome. An error names the operation.
    pub(crate) fn answered_across(
        &mut self,
        asked: &[(OpId, &Action, Option<&Answer>)],
        span: Span,
    ) -> Result<(), (OpId, Allowed)> {
        let mut next = Own::new();
        next.history.clone_from(&self.history);
        for (id, action, answer) in asked {
            let Some(answer) = answer else {
                self.lost(*id, action);
                next.lost(*id, action);
                continue;
            };
            let before = self.follow(*id, action, answer, span);
            let behind = next.follow(*id, action, answer, span);
            if before.is_empty() && behind.is_empty() {
                return Err((*id, self.allowed(span)));
            }
            self.states = before;
            next.states.extend(behind);
            dedup(&mut next.states);
            next.note(format!(
                "v{id:x} {action}: {answer} (the server was killed)"
            ));
        }
        *self = next;
        Ok(())
    }

    /// The states behind an answer.
    fn follow(&self, id: OpId, action: &Action, answer: &Answer, span: Span) -> Vec<State> {
        let mut left = Vec::new();
        for state in self.closure(span) {
            if let Some(item) = fits(state.item.as_ref(), id, action, answer, span) {
                left.push(State { item, ..state });
            }
        }
        dedup(&mut left);
        left
    }

    /// All states that there may be when an operation comes: what was due may have been carried
    /// out, in any order, and items may be gone.
    fn closure(&self, span: Span) -> Vec<State> {
        let mut all = self.states.clone();
        for state in &mut all {
            state.item.take_if(|item| item.is_gone(span));
        }
        let when = When::Unknown {
            ahead_s_min: span.ahead_s_min_ever,
        };
        let mut next = 0;
        while next < all.len() {
            let state = all[next].clone();
            next += 1;
            let forgotten = State {
                item: None,
                due: state.due,
            };
            let done = self.unknown.iter().enumerate().filter_map(|(at, one)| {
                let bit = 1_u16 << at;
                let (id, action) = one;
                (state.due & bit != 0).then(|| State {
                    item: after(state.item.as_ref(), *id, action, when)
                        .filter(|item| !item.is_gone(span)),
                    due: state.due & !bit,
                })
            });
            let more: Vec<State> = done.chain([forgotten]).collect();
            for state in more {
                if !all.contains(&state) {
                    all.push(state);
                }
            }
        }
        all
    }

    fn allowed(&self, span: Span) -> Allowed {
        let mut text = String::from("no item");
        for state in &self.states {
            let Some(item) = state.item.as_ref().filter(|item| !item.is_gone(span)) else {
                continue;
            };
            text += &format!(
                "; or {} flags {} written by v{:x}",
                item.content, item.flags, item.version
            );
            if let Some(token) = item.token {
                text += &format!(" token {token}");
            }
            if let Some(second) = item.gone_s {
                text += &format!(" gone at {second}");
            }
        }
        for (at, (id, action)) in self.unknown.iter().enumerate() {
            if self
                .states
                .iter()
                .any(|state| state.due & (1_u16 << at) != 0)
            {
                text += &format!("; or any of these after v{id:x} {action}, of unknown outcome");
            }
        }
        Allowed(text)
    }

    fn note(&mut self, line: String) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(line);
    }

    /// What happened to the key lately.
    pub(crate) fn history(&self) -> impl Iterator<Item = &String> {
        self.history.iter()
    }
}

fn dedup(states: &mut Vec<State>) {
    let mut kept: Vec<State> = Vec::with_capacity(states.len());
    for state in states.drain(..) {
        if !kept.contains(&state) {
            kept.push(state);
        }
    }
    *states = kept;
}
