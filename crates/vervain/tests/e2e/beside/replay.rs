//! The corpus of the door's own tests, said to the product and to memcached.

use super::conversation::show;
use super::corpus::{Conversation, Ends, conversations};
use super::speak::{Address, exchange, forget, shared_form_of};
use crate::foreign::leave_out;
use crate::harness::Place;
use crate::memcached::Memcached;

/// What only an engine for tests answers as the corpus says.
const ONLY_IN_TESTS: [&str; 4] = [
    // Its tokens count from 1.
    "cas of the current number",
    // The product has other counters.
    "stats",
    // It lets every client leave the protocol, into a handshake.
    "an upgrade that the engine allows",
    "an upgrade that it does not",
];

/// Has a conversation whole, and in pieces of one byte where it is short.
fn check(who: &str, address: &Address, conversation: &Conversation) {
    let Conversation {
        name, says, hears, ..
    } = conversation;
    let mut ways = vec![vec![&says[..]]];
    if says.len() < 300 {
        ways.push(says.chunks(1).collect());
    }
    for pieces in ways {
        forget(address);
        let heard = shared_form_of(&exchange(address, &pieces));
        assert_eq!(
            show(&heard),
            show(&shared_form_of(hears)),
            "{who}, {name}, in {} pieces: {}",
            pieces.len(),
            show(says)
        );
    }
}

fn every(who: &str, address: &Address, fits: impl Fn(&Conversation) -> bool) {
    let all = conversations();
    assert!(
        ONLY_IN_TESTS
            .iter()
            .all(|name| all.iter().any(|one| one.name == *name)),
        "the list names a conversation that is not in the corpus"
    );
    let mut count = 0;
    for one in all
        .iter()
        .filter(|one| fits(one) && one.ends != Ends::Upgrades)
    {
        if !ONLY_IN_TESTS.contains(&&*one.name) {
            check(who, address, one);
            count += 1;
        }
    }
    assert!(count > 100, "only {count} conversations");
}

#[test]
fn the_corpus_holds_for_the_product() {
    for cores in ["1", "2"] {
        let place = Place::new();
        let server = place.start(&["--cores", cores, "--item-max", "1048575"]);
        every("the product", &Address::Tcp(server.address), |_| true);
    }
}

#[test]
fn the_corpus_holds_for_memcached() {
    let place = Place::new();
    let Some(memcached) = Memcached::start(&place) else {
        return leave_out("memcached is not installed");
    };
    every("memcached", &Address::Tcp(memcached.tcp), |one| {
        !one.differs
    });
}
