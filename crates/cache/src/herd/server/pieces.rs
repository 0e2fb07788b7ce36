//! Requests for pieces of large values.

use engine::{Answer, Ask, Asker, Command, Engine};

use super::answers::{Range, To, write_piece};
use super::execute::Execution;
use super::items::Item;
use super::outgoing::Turn;
use super::pending::{Asked, Form};

/// What has become of a request for a piece.
#[derive(Clone, Copy)]
enum Piece {
    Answered,
    /// It is for the engine.
    ToBeRead,
    ToWait,
}

impl<E: Engine> Execution<'_, E> {
    /// Answers with a piece of a value, or begins to read the value, or waits for its turn to.
    pub(super) fn read_range(
        &mut self,
        item: &Item<E::Probe>,
        key: &[u8],
        (offset, len): (u32, u32),
        cas: u64,
    ) {
        let to = To {
            client: item.client,
            id: item.id,
        };
        let range = Range::new(offset, len, cas);
        let form = Form::Range { offset, len, cas };
        if !self.outgoing.is_unused() {
            match self.piece_at_hand(to, key, range, None) {
                Piece::Answered => return,
                Piece::ToWait if !item.replay => {
                    let number = self.hold(item, false, form, key, None);
                    let whose = (self.client(item).client, key);
                    self.outgoing.park(number as u32, whose, self.now_ns);
                    return self.pending.look_again();
                }
                Piece::ToBeRead | Piece::ToWait => {}
            }
        }
        let ask = self.ask(item, Command::Get { key, touch: None });
        let (outbox, answer_len_max) = (&mut *self.outbox, self.answer_len_max);
        let started = self.engine.start(&ask, item.probe, |answer| {
            write_piece(outbox, to, range, answer_len_max, &answer)
        });
        match started {
            Ok(written) => self.stats.invalid += u64::from(!written),
            Err(ticket) => {
                // Where an answer was lost, the other pieces may have come.
                if !item.replay {
                    let whose = (self.client(item).client, key);
                    self.outgoing.reserve(whose, self.now_ns);
                }
                self.promise(item, false, form, key, ticket);
            }
        }
    }

    /// Answers a request for a piece of a value that is kept, or says what is to be done about it.
    /// `parked` is the promise that it has become, if it has waited.
    fn piece_at_hand(&mut self, to: To, key: &[u8], range: Range, parked: Option<u32>) -> Piece {
        let whose = (self.clients[to.client as usize].client, key);
        let kept = match self.outgoing.turn(whose, range.cas, parked, self.now_ns) {
            Turn::Answer(kept) => kept,
            Turn::Read => return Piece::ToBeRead,
            Turn::Park => return Piece::ToWait,
        };
        let answer = Answer::Item {
            value: (&kept.value).into(),
            flags: kept.flags,
            cas: range.cas,
        };
        if write_piece(self.outbox, to, range, self.answer_len_max, &answer) {
            self.outgoing.note(whose, range.cas, range.bytes());
        } else {
            self.stats.invalid += 1;
        }
        Piece::Answered
    }

    /// Looks at a request for a piece that has waited for its turn. Whether it was answered.
    pub(super) fn look_parked(&mut self, number: usize, asked: Asked, range: Range) -> bool {
        let to = To {
            client: asked.client,
            id: asked.id,
        };
        let key = std::mem::take(&mut self.pending.place(number).key);
        let piece = self.piece_at_hand(to, &key, range, Some(number as u32));
        if let Piece::ToBeRead = piece {
            let client = &self.clients[asked.client as usize];
            let ask = Ask {
                now_s: self.now_s.into(),
                asker: Asker {
                    connection: client.connection(),
                    room: self.answer_len_max,
                },
                command: Command::Get {
                    key: &key,
                    touch: None,
                },
            };
            let (outbox, answer_len_max) = (&mut *self.outbox, self.answer_len_max);
            let probe = self.engine.probe(&key);
            let started = self.engine.start(&ask, probe, |answer| {
                write_piece(outbox, to, range, answer_len_max, &answer)
            });
            match started {
                Ok(written) => self.stats.invalid += u64::from(!written),
                Err(ticket) => {
                    self.stats.waits += 1;
                    self.outgoing.reserve((client.client, &key), self.now_ns);
                    let place = self.pending.place(number);
                    place.key = key;
                    if let Some(promise) = &mut place.promise {
                        promise.ticket = Some(ticket);
                    }
                    return self.look(number);
                }
            }
        }
        self.pending.place(number).key = key;
        if let Piece::ToWait = piece {
            return false;
        }
        self.end(number, asked);
        true
    }
}
