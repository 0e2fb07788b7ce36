//! A core's queue on a simulated device.

use std::sync::{Arc, Mutex};

use super::lock;
use super::state::State;
use crate::{Done, Queue, Request};
use rt::Arm;

pub(super) struct SimQueue {
    state: Arc<Mutex<State>>,
    key: usize,
}

impl SimQueue {
    pub(super) fn new(state: Arc<Mutex<State>>, depth: usize) -> Self {
        let key = lock(&state).open_queue(depth);
        Self { state, key }
    }
}

// SAFETY: the device touches a request's memory only before it puts the completion into the queue's
// list, under the lock; and dropping the queue takes its requests off the device.
unsafe impl Queue for SimQueue {
    unsafe fn submit(&mut self, requests: &[Request]) {
        let mut state = lock(&self.state);
        for request in requests {
            // SAFETY: the caller's promise.
            unsafe { state.begin(self.key, request) };
        }
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        let mut state = lock(&self.state);
        state.advance(self.key);
        state.take(self.key, done)
    }

    fn arm(&mut self) -> Arm<'_> {
        lock(&self.state).arm(self.key)
    }

    fn disarm(&mut self) {}
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        lock(&self.state).close_queue(self.key);
    }
}
