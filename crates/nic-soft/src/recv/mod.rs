//! The responder: from what arrives to RECVs and completions.

pub(crate) mod recv_lane;
