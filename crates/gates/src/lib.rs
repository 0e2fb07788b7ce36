//! The marks that the driver makes and its tracer, `cargo lab gates`, sees.
//!
//! The driver runs one hot path at full speed until it is in its steady state, and tells whose
//! instructions come next; what is counted of them is the tracer's business.

#![forbid(unsafe_code)]

/// Whose instructions come next.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Nobody's: the driver's own, which do not count.
    Nobody = 0,
    /// The side that asks.
    Client = 1,
    /// The side that answers.
    Server = 2,
    /// A round of operations has ended.
    Round = 3,
    /// There is nothing more to count.
    End = 4,
}

impl Mark {
    /// The mark of this number.
    pub fn from_number(number: u32) -> Option<Mark> {
        [
            Mark::Nobody,
            Mark::Client,
            Mark::Server,
            Mark::Round,
            Mark::End,
        ]
        .into_iter()
        .find(|mark| *mark as u32 == number)
    }
}
