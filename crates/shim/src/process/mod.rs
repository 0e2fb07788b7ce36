//! What this library needs of the process that it is loaded into.
//!
//! | file | what |
//! | --- | --- |
//! | `settings` | what the environment says |
//! | `next` | calling the function that the program would have called without this library |
//! | `caller` | where in the program this library was called from |
//! | `aside` | what this library does for itself |
//! | `kept` | what threads keep |
//! | `generation` | which process of a family of forks this is |
//! | `complain` | what a user is told |

mod aside;
pub(crate) mod caller;
mod complain;
mod generation;
mod kept;
mod next;
pub(crate) mod settings;

pub(crate) use aside::{aside, is_aside};
pub(crate) use complain::complain;
pub(crate) use generation::{forked, generation};
pub(crate) use kept::Kept;
pub(crate) use next::{Next, next};
