//! What waits for a poller that sleeps, or is no more.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::bounded_model;
use crate::layout::CqEntry;
use crate::models::channel::Bell;
use crate::rings::Sleeper;
use crate::sync::AtomicBool;
use crate::todo::{List, Todo};

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

fn add(todo: &Todo<Things>, gone: &Arc<AtomicUsize>) {
    let thing = Thing(gone.clone());
    todo.change(|list| list.0.push(thing));
}

fn closing_against(adders: usize) {
    let todo = Arc::new(Todo::<Things>::new());
    let gone = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..adders)
        .map(|_| {
            let (todo, gone) = (todo.clone(), gone.clone());
            thread::spawn(move || add(&todo, &gone))
        })
        .collect();
    if !todo.is_empty() {
        assert!(!todo.take().0.is_empty());
    }
    drop(todo.close());
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(todo.is_empty());
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
            todo: Todo<Things>,
            entry: CqEntry,
            owed: AtomicBool,
            bell: Bell,
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
            todo: Todo::new(),
            entry: CqEntry {
                armed: Default::default(),
            },
            owed: AtomicBool::new(false),
            bell: Bell::new(1),
        });
        let gone = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (shared, gone) = (shared.clone(), gone.clone());
                thread::spawn(move || {
                    add(&shared.todo, &gone);
                    shared
                        .sleeper()
                        .notify(true, || shared.bell.ring_for_nobody());
                })
            })
            .collect();
        let mut found = 0;
        while found < 2 {
            shared.sleeper().arm(false);
            if shared.todo.is_empty() {
                shared.bell.wait();
                shared.bell.empty();
            }
            found += shared.todo.take().0.len();
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
