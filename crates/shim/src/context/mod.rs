//! What all objects of a context share.
//!
//! | file | what |
//! | --- | --- |
//! | `events` | events that a program acknowledges |
//! | `fork` | a forked child, which must not use what it inherits |

pub(crate) mod events;
pub(crate) mod fork;
