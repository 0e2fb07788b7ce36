//! What reads bytes from outside, given any bytes.
//!
//! A target is a function from bytes to nothing that panics when something does not hold. libFuzzer
//! calls it with inputs that it makes up, led by the code they reach (`cargo x fuzz`); the tests call it
//! with the inputs that were worth keeping (`fuzz/corpus`), everywhere and without libFuzzer.
//!
//! | module | bytes from outside | what holds |
//! | --- | --- | --- |
//! | [`herd::wire`] | requests, answers, handshakes | what is taken is written back as it was |
//! | [`herd::server`] | anything in a client's slots and at the door | others are served, partitions stay sound, what was held is free again |
//! | [`herd::client`] | anything as an answer and from the door | each command ends once, and soon |
//! | [`mod@memcache`] | a client's conversation | the answers are a naive reading's, however the bytes are cut |
//! | [`mica`] | operations on a partition | what is found was written last; the accounts agree |
//! | [`mod@nfs`] | streams of records, messages, operations, attributes | what is taken is put as it was; no cut matters |
//! | [`nic`] | a lane's words | what is taken is what lies there, inside the lane |
//! | [`program`] | command lines, a server's answers, files | refused with a reason, or shown |
//! | [`mod@store`] | a store's device | refused, or a key shows what was stored for it |
//! | [`cuts`] | | cutting an input into pieces |

#![forbid(unsafe_code)]

use arbitrary::{Arbitrary, Unstructured};

pub mod cuts;
pub mod herd;
pub mod memcache;
pub mod mica;
pub mod nfs;
pub mod nic;
#[cfg(feature = "program")]
pub mod program;
pub mod store;

/// What an input spells, up to its end or so many.
fn spelt<'a, T: Arbitrary<'a>>(
    input: &mut Unstructured<'a>,
    most: usize,
) -> impl Iterator<Item = T> {
    let next = || match input.is_empty() {
        true => None,
        false => input.arbitrary().ok(),
    };
    std::iter::from_fn(next).take(most)
}

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: of its program, its corpus and its dictionary.
    pub name: &'static str,
    /// Tries an input.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// All targets, by name.
pub const TARGETS: &[Target] = &[
    #[cfg(feature = "program")]
    target("command_line", program::command_line),
    #[cfg(feature = "program")]
    target("files", program::files),
    target("herd_client", herd::client::run),
    target("herd_server", herd::server::run),
    target("herd_wire", herd::wire::run),
    target("memcache", memcache::run),
    target("mica", mica::run),
    target("nfs_attributes", nfs::attributes),
    target("nfs_compound", nfs::compound),
    target("nfs_records", nfs::records),
    target("nic_lane", nic::run),
    #[cfg(feature = "program")]
    target("socket_answers", program::socket_answers),
    target("store", store::run),
];
