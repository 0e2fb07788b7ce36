//! What all objects of a context share.
//!
//! | file | what |
//! | --- | --- |
//! | `opened` | an opened device, and the program's objects of it |
//! | `on_demand` | regions whose pages may come and go |
//! | `sleep` | descriptors that programs sleep on |
//! | `events` | events that a program acknowledges |
//! | `fork` | a forked child, which must not use what it inherits |

pub(crate) mod events;
pub(crate) mod fork;
pub(crate) mod on_demand;
pub(crate) mod opened;
pub(crate) mod sleep;
