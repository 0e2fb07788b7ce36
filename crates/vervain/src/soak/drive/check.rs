//! Whether what came may be.

use super::{Driver, counts};
use crate::soak::mix::{Question, Seen, Slot, Target};
use crate::soak::model::{
    Action, Allowed, Answer, Content, Counter, Mode, OpId, Register, Span, TOO_LARGE_MIN, number_in,
};
use crate::soak::wire::Outcome;
use crate::soak::world::{Wrong, lock};

impl Driver {
    /// Compares the outcomes with what may be.
    pub(super) fn check(
        &mut self,
        batch: &[Question],
        outcomes: &[Outcome],
        span: Span,
    ) -> Result<(), Box<Wrong>> {
        let across = self.learn_of_kills(span);
        self.learn_of_flushes(span);
        let mut asked: Vec<(usize, Vec<usize>)> = Vec::new();
        for (at, (one, outcome)) in batch.iter().zip(outcomes).enumerate() {
            match one.target {
                Target::Own(slot) => match asked.iter_mut().find(|(own, _)| *own == slot) {
                    Some((_, all)) => all.push(at),
                    None => asked.push((slot, vec![at])),
                },
                Target::Register(register) => {
                    let mut shared = lock(&self.world.shared);
                    check_register(&mut shared.registers[register], one, outcome, span)
                        .map_err(|allowed| self.wrong(one, outcome, allowed, None))?;
                }
                Target::Counter(counter) => {
                    let seen = &mut self.mix.seen[counter];
                    let mut shared = lock(&self.world.shared);
                    let checked =
                        check_counter(&mut shared.counters[counter], seen, one, outcome, span);
                    drop(shared);
                    checked.map_err(|allowed| self.wrong(one, outcome, allowed, None))?;
                }
            }
        }
        if across {
            for (number, slot) in self.mix.slots.iter_mut().enumerate() {
                if !asked.iter().any(|(own, _)| *own == number) {
                    slot.model.forget();
                }
            }
        }
        for (slot, all) in asked {
            self.check_own(slot, &all, batch, outcomes, span, across)?;
        }
        Ok(())
    }

    /// Lets the models know of servers that were killed; whether that was during this batch.
    fn learn_of_kills(&mut self, span: Span) -> bool {
        let mut across = false;
        for at in self.world.kills_from(self.kills) {
            if at > span.to {
                break;
            }
            self.kills += 1;
            across |= at >= span.from;
            if at < span.from {
                for slot in &mut self.mix.slots {
                    slot.model.forget();
                }
            }
        }
        across
    }

    /// Lets the models know of flushes that were over when this was asked.
    fn learn_of_flushes(&mut self, span: Span) {
        for flush in self.world.flushes_from(self.flushes) {
            if flush.to >= span.from {
                break;
            }
            self.flushes += 1;
            for slot in &mut self.mix.slots {
                slot.model.flushed(flush.from);
            }
        }
    }

    fn check_own(
        &mut self,
        slot: usize,
        all: &[usize],
        batch: &[Question],
        outcomes: &[Outcome],
        span: Span,
        across: bool,
    ) -> Result<(), Box<Wrong>> {
        let Slot { model, .. } = &mut self.mix.slots[slot];
        if across {
            let asked: Vec<(OpId, &Action, Option<&Answer>)> = all
                .iter()
                .filter_map(|at| {
                    let (id, action) = (batch[*at].id, &batch[*at].action);
                    match &outcomes[*at] {
                        Outcome::NotSent => None,
                        Outcome::Unknown => Some((id, action, None)),
                        Outcome::Answered(answer) => Some((id, action, Some(answer))),
                    }
                })
                .collect();
            return match model.answered_across(&asked, span) {
                Ok(()) => Ok(()),
                Err((place, Allowed(allowed))) => {
                    let history = model.history().cloned().collect();
                    let at = all
                        .iter()
                        .find(|at| batch[**at].id == place)
                        .unwrap_or(&all[0]);
                    Err(self.wrong(&batch[*at], &outcomes[*at], allowed, Some(history)))
                }
            };
        }
        for at in all {
            let one = &batch[*at];
            let model = &mut self.mix.slots[slot].model;
            let checked = match &outcomes[*at] {
                Outcome::NotSent => Ok(()),
                Outcome::Unknown => {
                    model.lost(one.id, &one.action);
                    Ok(())
                }
                Outcome::Answered(answer) => model.answered(one.id, &one.action, answer, span),
            };
            if let Err(Allowed(allowed)) = checked {
                let history = model.history().cloned().collect();
                return Err(self.wrong(one, &outcomes[*at], allowed, Some(history)));
            }
        }
        Ok(())
    }

    fn wrong(
        &self,
        one: &Question,
        outcome: &Outcome,
        allowed: String,
        history: Option<Vec<String>>,
    ) -> Box<Wrong> {
        let came = match outcome {
            Outcome::Answered(answer) => answer.to_string(),
            other => format!("{other:?}"),
        };
        Box::new(Wrong {
            client: self.seat().name(),
            key: one.request.key.escape_ascii().to_string(),
            asked: format!("v{:x} {}", one.id, one.action),
            came,
            allowed,
            at: self.world.began.elapsed(),
            history: history.unwrap_or_default(),
        })
    }
}

fn check_register(
    register: &mut Register,
    one: &Question,
    outcome: &Outcome,
    span: Span,
) -> Result<(), String> {
    let is_store = matches!(one.action, Action::Store { .. });
    match (outcome, &one.action) {
        (Outcome::NotSent, _) if is_store => register.not_carried_out(one.id),
        (Outcome::Unknown, _) if is_store => register.lost(one.id),
        (Outcome::NotSent | Outcome::Unknown, _) => {}
        (Outcome::Answered(answer), Action::Get) => return register.read(answer, span),
        (Outcome::Answered(answer), Action::Delete) => match answer {
            Answer::Done { .. } | Answer::NotFound => register.empty(span),
            Answer::Busy => {}
            _ => return Err("that it was deleted, or not found".into()),
        },
        (Outcome::Answered(answer), Action::Store { mode, content, .. }) => match answer {
            Answer::Done { .. } => register.stored(one.id, span),
            Answer::NotStored if *mode == Mode::Add => register.not_carried_out(one.id),
            Answer::Busy => register.not_carried_out(one.id),
            Answer::TooLarge | Answer::NoRoom
                if *answer == Answer::NoRoom || content.len() >= TOO_LARGE_MIN =>
            {
                register.not_carried_out(one.id);
                if *mode == Mode::Set {
                    register.empty(span);
                }
            }
            _ => return Err("that it was stored, or not".into()),
        },
        _ => return Err("nothing: this is not asked".into()),
    }
    Ok(())
}

fn check_counter(
    counter: &mut Counter,
    seen: &mut Seen,
    one: &Question,
    outcome: &Outcome,
    span: Span,
) -> Result<(), String> {
    let answer = match outcome {
        Outcome::NotSent => {
            if counts(&one.action) {
                counter.refused();
            }
            return Ok(());
        }
        Outcome::Unknown => {
            if counts(&one.action) {
                counter.lost();
            }
            return Ok(());
        }
        Outcome::Answered(answer) => answer,
    };
    match (&one.action, answer) {
        (Action::Count { .. }, Answer::Number(number)) => counter.counted(*number, span),
        (Action::Count { .. }, Answer::NotFound) => {
            counter.refused();
            seen.missed = true;
            counter.empty(span);
            Ok(())
        }
        (
            Action::Store {
                mode: Mode::Cas { .. },
                content: Content::Number(number),
                ..
            },
            answer,
        ) => match answer {
            Answer::Done { .. } => counter.counted(*number, span),
            Answer::Exists => {
                counter.refused();
                Ok(())
            }
            Answer::NotFound => {
                counter.refused();
                seen.missed = true;
                counter.empty(span);
                Ok(())
            }
            Answer::Busy | Answer::NoRoom => {
                counter.refused();
                Ok(())
            }
            _ => Err("that it was stored, has another token, or is not there".into()),
        },
        (Action::Count { .. }, Answer::Busy | Answer::NoRoom) => {
            counter.refused();
            Ok(())
        }
        (_, Answer::Busy | Answer::NoRoom) => Ok(()),
        (Action::Get, Answer::NotFound) => {
            seen.missed = true;
            counter.empty(span);
            Ok(())
        }
        (Action::Get, Answer::Value { bytes, token, .. }) => {
            let number = number_in(bytes).ok_or("a number")?;
            seen.item = token.map(|token| (number, token));
            counter.read(number, span)
        }
        (
            Action::Store {
                mode: Mode::Add,
                content: Content::Number(number),
                ..
            },
            Answer::Done { .. },
        ) => counter.read(*number, span),
        (
            Action::Store {
                mode: Mode::Add, ..
            },
            Answer::NotStored,
        ) => Ok(()),
        (Action::Delete, Answer::Done { .. } | Answer::NotFound) => {
            counter.empty(span);
            Ok(())
        }
        _ => Err("another kind of answer".into()),
    }
}
