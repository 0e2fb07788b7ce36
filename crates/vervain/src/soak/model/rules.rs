//! What an operation does to an item.

use super::{
    Action, Answer, Content, EXPIRY_SLACK_S, Mode, Moment, OpId, Span, TOO_LARGE_MIN, When,
};

/// An item as it may lie in the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) content: Content,
    pub(crate) flags: u32,
    /// The operation that wrote it last.
    pub(crate) version: OpId,
    /// Its token, once that was seen.
    pub(crate) token: Option<u64>,
    /// The unix second from which on it is surely gone.
    pub(super) gone_s: Option<u64>,
    /// When that operation surely had been carried out; never, while its outcome is unknown.
    pub(super) stored_by: Moment,
}

impl Item {
    /// Whether no reader that asks from now on may see it.
    pub(super) fn is_gone(&self, span: Span) -> bool {
        self.gone_s
            .is_some_and(|gone_s| gone_s + EXPIRY_SLACK_S <= span.from_s)
    }
}

/// What an operation leaves if it is carried out now, whatever it answers.
pub(super) fn after(before: Option<&Item>, id: OpId, action: &Action, when: When) -> Option<Item> {
    let stored_by = when.by();
    match action {
        Action::Get => before.cloned(),
        Action::GetAndTouch(expiry) | Action::Touch(expiry) => before.map(|item| Item {
            gone_s: expiry.gone_s(when),
            ..item.clone()
        }),
        Action::Delete => None,
        Action::Count { up, by } => {
            let item = before?;
            let Content::Number(number) = item.content else {
                return Some(item.clone());
            };
            let number = if *up {
                number.wrapping_add(*by)
            } else {
                number.saturating_sub(*by)
            };
            Some(Item {
                content: Content::Number(number),
                version: id,
                token: None,
                stored_by,
                ..item.clone()
            })
        }
        Action::Store {
            mode,
            content,
            flags,
            expiry,
        } => {
            let whole = || {
                Some(Item {
                    content: content.clone(),
                    flags: *flags,
                    version: id,
                    token: None,
                    gone_s: expiry.gone_s(when),
                    stored_by,
                })
            };
            let extended = |content: Content| {
                before.map(|item| Item {
                    content,
                    version: id,
                    token: None,
                    stored_by,
                    ..item.clone()
                })
            };
            match (mode, before) {
                (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => whole(),
                (Mode::Add, Some(item)) => Some(item.clone()),
                (Mode::Append, Some(item)) => extended(item.content.followed_by(content)),
                (Mode::Prepend, Some(item)) => extended(content.followed_by(&item.content)),
                (Mode::Cas { of, .. }, Some(item)) if item.version == *of => whole(),
                (Mode::Cas { .. }, Some(item)) => Some(item.clone()),
                (Mode::Replace | Mode::Append | Mode::Prepend | Mode::Cas { .. }, None) => None,
            }
        }
    }
}

/// What is left if the operation found this and answered so; nothing if a correct cache would not
/// have answered so.
pub(super) fn fits(
    before: Option<&Item>,
    id: OpId,
    action: &Action,
    answer: &Answer,
    span: Span,
) -> Option<Option<Item>> {
    let carried_out = || after(before, id, action, When::Within(span));
    let unchanged = || before.cloned();
    match (answer, action) {
        (Answer::Silent, _) => Some(carried_out()),
        (Answer::Busy, _) => Some(unchanged()),
        (Answer::Odd(_), _) => None,
        (
            Answer::Value {
                bytes,
                flags,
                token,
            },
            Action::Get | Action::GetAndTouch(_),
        ) => {
            let item = before?;
            let same_token = match (item.token, token) {
                (Some(one), Some(other)) => one == *other,
                _ => true,
            };
            (same_token && item.flags == *flags && item.content.is(bytes)).then(|| {
                carried_out().map(|item| Item {
                    token: token.or(item.token),
                    stored_by: item.stored_by.min(span.to),
                    ..item
                })
            })
        }
        (Answer::NotFound, Action::Store { mode, .. }) => {
            (before.is_none() && matches!(mode, Mode::Cas { .. })).then_some(None)
        }
        (Answer::NotFound, _) => before.is_none().then_some(None),
        (Answer::Done { .. }, Action::Delete | Action::Touch(_)) => {
            before.is_some().then(carried_out)
        }
        (Answer::Done { token }, Action::Store { mode, .. }) => {
            let stores = match (mode, before) {
                (Mode::Set, _) | (Mode::Add, None) => true,
                (Mode::Replace | Mode::Append | Mode::Prepend, found) => found.is_some(),
                (Mode::Cas { of, .. }, Some(item)) => item.version == *of,
                (Mode::Add, Some(_)) | (Mode::Cas { .. }, None) => false,
            };
            stores.then(|| {
                carried_out().map(|item| Item {
                    token: *token,
                    ..item
                })
            })
        }
        (Answer::NotStored, Action::Store { mode, .. }) => match mode {
            Mode::Add => before.is_some().then(unchanged),
            Mode::Replace | Mode::Append | Mode::Prepend => before.is_none().then_some(None),
            Mode::Set | Mode::Cas { .. } => None,
        },
        (
            Answer::Exists,
            Action::Store {
                mode: Mode::Cas { of, .. },
                ..
            },
        ) => before
            .is_some_and(|item| item.version != *of)
            .then(unchanged),
        (Answer::Number(number), Action::Count { .. }) => {
            let item = carried_out()?;
            (item.version == id && item.content == Content::Number(*number)).then_some(Some(item))
        }
        (Answer::NotANumber, Action::Count { .. }) => before
            .is_some_and(|item| !matches!(item.content, Content::Number(_)))
            .then(unchanged),
        (Answer::TooLarge | Answer::NoRoom, Action::Store { mode, content, .. })
            if content.len() >= TOO_LARGE_MIN || *answer == Answer::NoRoom =>
        {
            // The older value would be taken for the one that was refused.
            Some(if *mode == Mode::Set {
                None
            } else {
                unchanged()
            })
        }
        _ => None,
    }
}
