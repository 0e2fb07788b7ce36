//! A queue pair's entry that changes while a peer reads it.

use loom::sync::Arc;
use loom::thread;

use crate::bounded_model;
use crate::shared::layout::QpEntry;
use crate::shared::qp_entry::{Pair, announce, read};
use crate::sync::Ordering;

/// Fields that belong together and to the word.
fn pair(word: u64) -> Pair {
    let field = word as u32;
    Pair {
        peer_gid: [word; 2],
        peer_qpn: field,
        qkey: field,
        recv_cq: field,
        srq: field,
        channel: field,
        recv_depth: field,
        pd: field,
        epoch_and_timer: field,
    }
}

fn entry() -> Arc<QpEntry> {
    Arc::new(QpEntry {
        word: Default::default(),
        peer_gid: Default::default(),
        peer_qpn: Default::default(),
        qkey: Default::default(),
        recv_cq: Default::default(),
        srq: Default::default(),
        channel: Default::default(),
        recv_depth: Default::default(),
        pd: Default::default(),
        epoch_and_timer: Default::default(),
        received: Default::default(),
    })
}

#[test]
fn an_entry_whose_word_alone_changes_always_has_one() {
    bounded_model(|| {
        let entry = entry();
        announce(&entry, 1, &pair(7));
        let reader = {
            let entry = entry.clone();
            thread::spawn(move || {
                let word = entry.word.load(Ordering::Acquire);
                assert!(word == 1 || word == 2);
                assert!(read(&entry, word).is_none_or(|found| found == pair(7)));
            })
        };
        announce(&entry, 2, &pair(7));
        reader.join().unwrap();
    });
}

#[test]
fn an_entry_that_changes_is_read_as_it_was_or_as_it_is() {
    bounded_model(|| {
        let entry = entry();
        announce(&entry, 1, &pair(1));
        let reader = {
            let entry = entry.clone();
            thread::spawn(move || {
                let word = entry.word.load(Ordering::Acquire);
                if word != 0
                    && let Some(found) = read(&entry, word)
                {
                    assert_eq!(found, pair(word));
                }
            })
        };
        announce(&entry, 2, &pair(2));
        reader.join().unwrap();
    });
}
