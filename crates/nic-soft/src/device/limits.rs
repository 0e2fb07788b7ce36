//! What can be asked for at most.

use verbs::VerbsError;

/// Completions of a queue at most.
pub(crate) const CQE_MAX: u32 = 1 << 20;

/// Refuses more than there can be.
pub(crate) fn limit(what: &'static str, value: u32, max: u32) -> Result<(), VerbsError> {
    if value > max {
        return Err(VerbsError::Limit {
            what,
            value: value.into(),
            max: max.into(),
        });
    }
    Ok(())
}

/// Checks how many completions a queue is to hold.
pub(crate) fn check_depth(depth: u32) -> Result<(), VerbsError> {
    limit("completion queue entries", depth, CQE_MAX)?;
    if depth == 0 {
        return Err(VerbsError::invalid("completion queue", "it has no entries"));
    }
    Ok(())
}
