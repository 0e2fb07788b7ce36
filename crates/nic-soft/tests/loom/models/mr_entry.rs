//! A region's entry that is used again while another process reads it.

use loom::sync::Arc;
use loom::thread;
use verbs::Access;

use crate::shared::layout::MrEntry;
use crate::shared::mr_entry::{Described, announce, describe, withdraw};

fn region(number: u32) -> Described {
    Described {
        access: if number == 1 {
            Access::REMOTE_READ
        } else {
            Access::REMOTE_WRITE
        },
        pd: number,
        kind: number,
        addr: u64::from(number) << 12,
        len: u64::from(number) << 8,
        in_file: u64::from(number) << 20,
        start: u64::from(number) << 16,
        given: number,
        is_on_demand: false,
        window: None,
    }
}

fn entry() -> Arc<MrEntry> {
    Arc::new(MrEntry {
        key: Default::default(),
        access: Default::default(),
        pd: Default::default(),
        kind: Default::default(),
        addr: Default::default(),
        len: Default::default(),
        start: Default::default(),
        in_file: Default::default(),
        qpn: Default::default(),
        given: Default::default(),
    })
}

/// At most three preemptions: each field doubles what a reader may find, and without a bound that takes an hour.
fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

#[test]
fn a_key_that_is_given_anew_is_read_as_one_region_or_none() {
    model(|| {
        let entry = entry();
        announce(&entry, 1, &region(1));
        let reader = {
            let entry = entry.clone();
            thread::spawn(move || {
                if let Some(found) = describe(&entry, 1) {
                    assert!(found == region(1) || found == region(2), "{found:?}");
                }
            })
        };
        withdraw(&entry);
        announce(&entry, 1, &region(2));
        reader.join().unwrap();
    });
}

/// A reader that looks once: two looks take as long as one squared.
fn an_entry_that_changes_is_read(key: u32) {
    model(move || {
        let entry = entry();
        announce(&entry, 1, &region(1));
        let reader = {
            let entry = entry.clone();
            thread::spawn(move || {
                if let Some(found) = describe(&entry, key) {
                    assert_eq!(found, region(key));
                }
            })
        };
        withdraw(&entry);
        announce(&entry, 2, &region(2));
        reader.join().unwrap();
    });
}

#[test]
fn the_old_key_of_an_entry_that_changes_leads_to_one_region_or_none() {
    an_entry_that_changes_is_read(1);
}

#[test]
fn the_new_key_of_an_entry_that_changes_leads_to_one_region_or_none() {
    an_entry_that_changes_is_read(2);
}
