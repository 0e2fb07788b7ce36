//! A queue pair's number that is used again while completions of its predecessor are polled.

use loom::sync::Arc;
use loom::thread;

use crate::sync::quiescence::Quiescence;
use crate::sync::released::Released;

#[test]
fn what_a_predecessor_left_takes_no_room_from_its_successor() {
    loom::model(|| {
        let shared = Arc::new((Released::new(), Quiescence::new()));
        let before = shared.0.begin(&shared.1);
        let activity = shared.1.activity();
        let poller = {
            let (shared, activity) = (shared.clone(), activity.clone());
            thread::spawn(move || {
                for position in 1..=2 {
                    let _active = activity.enter();
                    shared.0.note(before + position);
                }
            })
        };
        // Its predecessor's completions are in another queue than its own.
        shared.0.end(before + 2);
        let first = shared.0.begin(&shared.1);
        assert_eq!(shared.0.polled(), first);
        let activity = shared.1.activity();
        let active = activity.enter();
        shared.0.note(first + 1);
        drop(active);
        poller.join().unwrap();
        assert_eq!(shared.0.polled(), first + 1);
        shared.0.end(first + 1);
        assert!(shared.0.begin(&shared.1) > first + 1);
    });
}
