//! Requests for pieces of large values.

use engine::{Answer, Command, Engine};

use super::answers::{Range, To, write_bare, write_piece};
use super::execute::Execution;
use super::items::Item;
use super::outgoing::Turn;
use super::pending::Form;
use crate::herd::wire::answer::Status;

impl<E: Engine> Execution<'_, E> {
    /// Answers with a piece of a value that is kept, or begins to read the value, or says to come again.
    pub(super) fn read_range(&mut self, item: &Item<E::Probe>, key: &[u8], range: Range) {
        let to = To {
            client: item.client,
            id: item.id,
        };
        let whose = (self.client(item).client, key);
        let answer_len_max = self.answer_len_max;
        let turn = self
            .outgoing
            .turn(whose, range.cas, item.replay, self.now_ns);
        match turn {
            Turn::Answer(kept) => {
                let answer = Answer::Item {
                    value: (&kept.value).into(),
                    flags: kept.flags,
                    cas: range.cas,
                };
                if write_piece(self.outbox, to, range, answer_len_max, &answer) {
                    self.outgoing.note(whose, range.cas, range.bytes());
                } else {
                    self.stats.invalid += 1;
                }
                return;
            }
            Turn::Busy => return write_bare(self.outbox, to, Status::Busy),
            Turn::Read => {}
        }
        let ask = self.ask(item, Command::Get { key, touch: None });
        let outbox = &mut *self.outbox;
        let started = self.engine.start(&ask, item.probe, |answer| {
            write_piece(outbox, to, range, answer_len_max, &answer)
        });
        match started {
            Ok(written) => self.stats.invalid += u64::from(!written),
            Err(ticket) => {
                let has_place = !item.replay && self.outgoing.reserve(whose, self.now_ns);
                let form = Form::Range { range, has_place };
                self.promise(item, false, form, key, ticket);
            }
        }
    }
}
