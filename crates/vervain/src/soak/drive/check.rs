//! Whether what came may be.

use std::sync::Arc;

use super::Driver;
use crate::soak::mix::{Question, Target};
use crate::soak::model::{Answer, Moment, Span, Unexplained, client_of};
use crate::soak::tally::Tally;
use crate::soak::wire::Outcome;
use crate::soak::world::{Wrong, lock};

impl Driver {
    /// Tells the models what came of a batch, and has them judge it: of shared keys as far as everybody
    /// has been answered.
    pub(super) fn check(
        &mut self,
        batch: &[Question],
        outcomes: &[Outcome],
        span: Span,
    ) -> Result<(), Box<Wrong>> {
        let mut tally = Tally::default();
        let told = self.judge(batch, outcomes, span, &mut tally);
        lock(&self.world.slots[self.number].tally).add(&tally);
        told.map_err(|(key, wrong)| {
            Box::new(Wrong {
                client: self.world.slots[client_of(wrong.id)].name(),
                key: key.escape_ascii().to_string(),
                asked: wrong.asked,
                came: wrong.came,
                allowed: wrong.allowed,
                at: self.world.began.elapsed(),
                history: wrong.history,
            })
        })
    }

    fn judge(
        &mut self,
        batch: &[Question],
        outcomes: &[Outcome],
        span: Span,
        tally: &mut Tally,
    ) -> Result<(), (Vec<u8>, Box<Unexplained>)> {
        let world = Arc::clone(&self.world);
        let mut shared = lock(&world.shared);
        let news = shared.upsets_from(self.upsets, world.now(), span.to);
        self.upsets += news.len();
        for slot in &mut self.mix.slots {
            for &(at, upset) in &news {
                // Requests of a batch follow each other, but nobody knows between which of them.
                let late = if at < span.from { at } else { span.to };
                slot.item.upset(upset, at.min(span.from), late);
            }
        }
        // A connection's requests about a key are carried out in their order.
        let in_order = Span {
            to: span.from,
            ..span
        };
        for (one, outcome) in batch.iter().zip(outcomes) {
            let (item, span) = match one.target {
                Target::Own(slot) => (&mut self.mix.slots[slot].item, in_order),
                Target::Shared(number) => {
                    if let Outcome::Answered(Answer::Value { token, .. }) = outcome {
                        self.mix.tokens[number] = *token;
                    }
                    let slot = &mut shared.slots[number];
                    // It may have been given up meanwhile.
                    if slot.key != one.request.key {
                        tally.unjudged += u64::from(matches!(outcome, Outcome::Answered(_)));
                        continue;
                    }
                    (&mut slot.item, span)
                }
            };
            let told = item.told(one.id, &one.request, outcome, span);
            told.map_err(|wrong| (one.request.key.clone(), wrong))?;
        }
        shared.answered(self.number, tally)?;
        drop(shared);
        for slot in &mut self.mix.slots {
            let judged = slot.item.judge(Moment::MAX, tally);
            judged.map_err(|wrong| (slot.key.clone(), wrong))?;
        }
        Ok(())
    }
}
