//! Asynchronous events of an adapter, until its user takes them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use verbs::nic::AsyncEvent;

/// The events that wait. None is lost, however long nobody looks; an event that waits already is
/// not added again, so that there are at most a few for each object.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<VecDeque<AsyncEvent>>);

impl Events {
    /// Adds an event, unless the same one waits already.
    pub(crate) fn raise(&self, event: AsyncEvent) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.contains(&event) {
            waiting.push_back(event);
        }
    }

    /// Takes the oldest event.
    pub(crate) fn take(&self) -> Option<AsyncEvent> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use verbs::QpNum;

    #[test]
    fn nothing_is_lost_and_nothing_is_said_twice() {
        let events = Events::default();
        for round in 0..3 {
            for qpn in 0..3000 {
                events.raise(AsyncEvent::QpFatal(QpNum(qpn)));
                if round == 0 {
                    events.raise(AsyncEvent::PeerGone(QpNum(qpn)));
                }
            }
        }
        for qpn in 0..3000 {
            assert_eq!(events.take(), Some(AsyncEvent::QpFatal(QpNum(qpn))));
            assert_eq!(events.take(), Some(AsyncEvent::PeerGone(QpNum(qpn))));
        }
        assert_eq!(events.take(), None);
    }
}
