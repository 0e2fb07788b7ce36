//! libc's functions in whose place this library puts its own, where more than one part of it has to do with them.
//!
//! | file | what |
//! | --- | --- |
//! | `next` | calling the function that would have been called otherwise |
//! | `paths` | functions that take paths |

mod next;
// In unit tests libc's functions stay libc's, and these are called by name.
#[cfg_attr(test, allow(dead_code))]
pub(crate) mod paths;

pub(crate) use next::{Next, next};
