//! Protection domains, and memory that belongs to them.
//!
//! | file | what |
//! | --- | --- |
//! | `domain` | protection domains, parent domains, thread domains |
//! | `region` | memory regions |
//! | `window` | memory windows |
//! | `present` | whether memory is there |
//! | `born` | memory that is shared from birth: libc's functions that map and allocate pages |

pub(crate) mod born;
pub(crate) mod domain;
mod present;
pub(crate) mod region;
pub(crate) mod window;
