//! How programs find the device beside `ibv_get_device_list`.
//!
//! | file | what |
//! | --- | --- |
//! | `places` | the device's place in `/sys` and `/dev` |
//! | `paths` | libc's functions that take paths |
//! | `facade` | libibverbs for programs that open it by `dlopen` |

// In unit tests libc's `dlopen` stays libc's.
#[cfg_attr(test, allow(dead_code))]
mod facade;
// In unit tests libc's functions stay libc's, and these are called by name.
#[cfg_attr(test, allow(dead_code))]
pub(crate) mod paths;
mod places;
