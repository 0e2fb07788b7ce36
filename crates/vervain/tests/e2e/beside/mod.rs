//! The product beside memcached: the same conversations with both, the same bytes back.
//!
//! | file | what |
//! | --- | --- |
//! | `conversation` | what is said: sessions, one connection each, of commands |
//! | `generate` | conversations from a seed |
//! | `speak` | saying them to a server, and comparing what is heard |
//! | `corpus` | the conversations that the door's own tests keep |
//!
//! A conversation is a few connections, one after another. Each says all it has to say, in pieces,
//! then closes its sending side and reads to the end: so nothing waits for time, and tokens that one
//! session heard are there for the `cas` of the next.
//!
//! ```console
//! $ VERVAIN_MEMCACHED_SEEDS=0..20000 cargo test -p vervain --test e2e beside     # longer
//! $ VERVAIN_MEMCACHED_SEEDS=417 cargo test -p vervain --test e2e beside          # one again
//! ```
//!
//! # Where the two differ
//! What the door does otherwise on purpose is never said here, for the reason that stands beside it:
//!
//! | what | memcached | the product |
//! | --- | --- | --- |
//! | first byte of a session 0x80 | speaks the binary protocol | closes: not served |
//! | lines of 2048 bytes that are no `get` | depends on how they were cut | `CLIENT_ERROR line too long` |
//! | a session that ends within a value | loses answers that it has not sent | sends them |
//! | NUL in a line | ends the line | a byte like others |
//! | a `get` with a key that is too long, but as the first command | loses the answers before it | sends them |
//! | tab, vertical tab, form feed, carriage return in a number | blanks around a number | no number |
//! | flags beyond 32 bits, expiries beyond 32, sizes beyond 31 | wrap | refused; expiries are 64 bits |
//! | `-0`, and numbers below zero that wrap, where there is no sign | taken | refused |
//! | values within a few hundred bytes of the largest | counts its headers | does not |
//! | counters of 2^63 and more, values of blanks alone | reads on in the memory behind them | does not |
//! | a shorter counter while an answer holds the item | not padded | padded |
//! | `flush_all` for later, after one at once | brings items back | does not |
//! | `flush_all` with a date before the server's start | forgets nothing | forgets all |
//! | meta commands, administration, `stats` of sections | served | `ERROR` |
//! | what `stats` and `version` say | its counters, its version | ours |
//!
//! Over a store, also:
//!
//! | what | memcached | the product |
//! | --- | --- | --- |
//! | the token of an item after `touch`, `gat`, `gats` | stays | changes: the item is written anew |

mod conversation;
#[path = "../../../../memcache/tests/it/corpus.rs"]
mod corpus;
mod counters;
mod generate;
mod replay;
mod speak;

use std::ops::Range;

use self::conversation::Conversation;
use self::generate::generate;
use self::speak::{Address, Heard, hear};
use crate::foreign::leave_out;
use crate::harness::Place;
use crate::memcached::Memcached;

/// Seeds of a usual run.
const SEEDS: Range<u64> = 0..120;

/// Conversations that are told of in one run.
const SHOWN_MAX: usize = 8;

/// The seeds that are asked for: `VERVAIN_MEMCACHED_SEEDS` is one or a range.
fn seeds() -> Range<u64> {
    let Ok(wanted) = std::env::var("VERVAIN_MEMCACHED_SEEDS") else {
        return SEEDS;
    };
    let number = |text: &str| text.parse().expect("a seed is a number");
    match wanted.split_once("..") {
        Some((start, end)) => number(start)..number(end),
        None => number(&wanted)..number(&wanted) + 1,
    }
}

/// What both heard, if it differs.
fn differs(
    conversation: &Conversation,
    memcached: &Address,
    product: &Address,
) -> Option<(Heard, Heard)> {
    let (theirs, ours) = (hear(memcached, conversation), hear(product, conversation));
    (!theirs.agrees(&ours)).then_some((theirs, ours))
}

/// Has each seed's conversation with both, the product at the address that `door` picks.
fn compare(flags: &[&str], door: impl FnOnce(&Place, std::net::SocketAddr) -> Address) {
    // Room for all that a conversation stores: the product forgets the oldest.
    let flags = [flags, &["--memory", "256M"]].concat();
    compare_conversations(&flags, door, generate);
}

/// Has the conversations that `of_seed` makes with both.
fn compare_conversations(
    flags: &[&str],
    door: impl FnOnce(&Place, std::net::SocketAddr) -> Address,
    of_seed: impl Fn(u64) -> Conversation,
) {
    let place = Place::new();
    let Some(memcached) = Memcached::start(&place) else {
        return leave_out("memcached is not installed");
    };
    let memcached = Address::Tcp(memcached.tcp);
    let server = place.start(flags);
    let product = door(&place, server.address);
    let mut found = String::new();
    let mut count = 0;
    for seed in seeds() {
        let conversation = of_seed(seed);
        let Some(first) = differs(&conversation, &memcached, &product) else {
            continue;
        };
        let fails = |smaller: &Conversation| differs(smaller, &memcached, &product).is_some();
        let small = conversation.minimise(fails);
        // What differs once only is told whole.
        let (small, (theirs, ours)) = match differs(&small, &memcached, &product) {
            Some(again) => (small, again),
            None => (conversation, first),
        };
        found += &format!(
            "seed {seed}, said:\n{small}\nmemcached:\n{theirs}\nthe product:\n{ours}\n\
             Again: VERVAIN_MEMCACHED_SEEDS={seed} cargo test -p vervain --test e2e beside\n\n"
        );
        count += 1;
        if count == SHOWN_MAX {
            break;
        }
    }
    assert!(
        found.is_empty(),
        "memcached and the product answer differently\n\n{found}"
    );
    assert_eq!(server.stderr(), "");
}

#[test]
fn one_core_answers_as_memcached_does() {
    compare(&["--cores", "1"], |_, address| Address::Tcp(address));
}

#[test]
fn two_cores_answer_as_memcached_does() {
    compare(&["--cores", "2"], |_, address| Address::Tcp(address));
}

/// A store gives a touched item another token: so a conversation has either tokens or touches.
#[test]
fn a_store_answers_as_memcached_does() {
    let dir = tempfile::tempdir().expect("a directory");
    for cores in ["1", "2"] {
        // The one before may still be in use for a moment: its server was killed.
        let path = dir.path().join(format!("store of {cores}"));
        let store = path.to_str().expect("a path in text");
        let flags = [
            &[
                "--engine",
                "store",
                "--store",
                store,
                "--store-size",
                "512M",
            ][..],
            &["--durable", "process", "--cores", cores],
        ];
        let without_either = |seed: u64| {
            let words: &[&[u8]] = match seed % 2 {
                0 => &[b"gats", b"gets", b"cas"],
                _ => &[b"touch", b"gat"],
            };
            generate(seed).without(words)
        };
        compare_conversations(
            &flags.concat(),
            |_, address| Address::Tcp(address),
            without_either,
        );
    }
}

#[test]
fn a_unix_socket_answers_as_memcached_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("door");
    let flags = [
        "--cores",
        "2",
        "--unix",
        path.to_str().expect("a path in text"),
    ];
    compare(&flags, |_, _| Address::Unix(path.clone()));
}
