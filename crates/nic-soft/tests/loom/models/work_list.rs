//! What waits for a poller that sleeps, or is no more.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::bounded_model;
use crate::models::channel::Doorbell;
use crate::shared::layout::CqEntry;
use crate::shared::wakeup::Sleeper;
use crate::sync::AtomicBool;
use crate::sync::work_list::{List, WorkList};

/// Something that waits, and is counted when it is let go.
struct Thing(Arc<AtomicUsize>);

impl Drop for Thing {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Things(Vec<Thing>);

impl List for Things {
    fn len(&self) -> usize {
        self.0.len()
    }
}

fn add(work: &WorkList<Things>, gone: &Arc<AtomicUsize>) {
    let thing = Thing(gone.clone());
    work.change(|list| list.0.push(thing));
}

fn closing_against(adders: usize) {
    let work = Arc::new(WorkList::<Things>::new());
    let gone = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..adders)
        .map(|_| {
            let (work, gone) = (work.clone(), gone.clone());
            thread::spawn(move || add(&work, &gone))
        })
        .collect();
    if !work.is_empty() {
        assert!(!work.take().0.is_empty());
    }
    drop(work.close());
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(work.is_empty());
    assert_eq!(gone.load(Ordering::Relaxed), adders, "nothing stays");
}

#[test]
fn nothing_stays_in_a_list_whose_poller_has_gone() {
    loom::model(|| closing_against(1));
    bounded_model(|| closing_against(2));
}

#[test]
fn a_poller_that_sleeps_finds_what_was_added() {
    bounded_model(|| {
        struct Shared {
            work: WorkList<Things>,
            entry: CqEntry,
            owed: AtomicBool,
            doorbell: Doorbell,
        }
        impl Shared {
            fn sleeper(&self) -> Sleeper<'_> {
                Sleeper {
                    number: 0,
                    entry: &self.entry,
                    owed: &self.owed,
                }
            }
        }
        let shared = Arc::new(Shared {
            work: WorkList::new(),
            entry: CqEntry {
                armed: Default::default(),
            },
            owed: AtomicBool::new(false),
            doorbell: Doorbell::new(1),
        });
        let gone = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (shared, gone) = (shared.clone(), gone.clone());
                thread::spawn(move || {
                    add(&shared.work, &gone);
                    shared
                        .sleeper()
                        .notify(true, || shared.doorbell.ring_for_nobody());
                })
            })
            .collect();
        let mut found = 0;
        while found < 2 {
            shared.sleeper().arm(false);
            if shared.work.is_empty() {
                shared.doorbell.wait();
                shared.doorbell.empty();
            }
            found += shared.work.take().0.len();
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
