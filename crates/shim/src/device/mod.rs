//! The device: finding, opening, asking.
//!
//! | file | what |
//! | --- | --- |
//! | `list` | the list of devices, which has one |
//! | `open` | opening and closing it, and what a context offers its program |
//! | `query` | what the device and its port can do |
//! | `gids` | the port's table of GIDs |
//! | `l2` | the Ethernet address behind a GID |
//! | `events` | asynchronous events |
//! | `refused` | what this device does not have |

mod events;
mod gids;
mod l2;
mod list;
mod open;
mod query;
mod refused;

pub(crate) use query::PORT_CAPS;
