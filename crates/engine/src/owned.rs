//! Answers that are kept.

use crate::{Answer, StatsPage};

/// An answer with its bytes in memory of its own, for whoever keeps it or sends it on.
#[derive(Debug)]
pub struct OwnedAnswer {
    /// The answer without its bytes; none for a page of counters.
    shape: Option<Answer<'static>>,
    value: Vec<u8>,
    page: StatsPage,
}

impl OwnedAnswer {
    /// A copy of an answer.
    #[must_use]
    pub fn new(answer: Answer<'_>) -> Self {
        Self::in_buffer(answer, Vec::new())
    }

    /// A copy of an answer whose value, if there is one, goes into this buffer.
    #[must_use]
    pub fn in_buffer(answer: Answer<'_>, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        if let Some(value) = answer.value() {
            value.append_to(&mut buffer);
        }
        let page = match answer {
            Answer::Stats(page) => page.clone(),
            _ => StatsPage::default(),
        };
        OwnedAnswer {
            shape: answer.with_value((&[]).into()),
            value: buffer,
            page,
        }
    }

    /// The answer.
    #[must_use]
    pub fn answer(&self) -> Answer<'_> {
        match self.shape {
            Some(shape) => shape
                .with_value((&self.value).into())
                .unwrap_or(Answer::Stats(&self.page)),
            None => Answer::Stats(&self.page),
        }
    }

    /// The buffer of the value, for use again.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[test]
    fn copies_say_what_the_answers_said() {
        let mut page = StatsPage::default();
        page.add("a", 1);
        let pieces: [&[u8]; 2] = [b"va", b"lue"];
        for answer in [
            Answer::Item {
                value: crate::Segments::of(&pieces),
                flags: 3,
                cas: 4,
            },
            Answer::Miss,
            Answer::Stored { cas: 9 },
            Answer::Number { value: 1, cas: 2 },
            Answer::Stats(&page),
            Answer::Failed(Failure::Busy("busy")),
        ] {
            assert_eq!(OwnedAnswer::new(answer).answer(), answer);
        }
    }
}
