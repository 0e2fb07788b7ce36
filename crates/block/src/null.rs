//! A device that takes no time: what is left is the cost of asking.

use std::sync::Arc;

use rt::Arm;

use crate::{BlockError, Device, Done, Geometry, Queue, Request};

/// So many bytes that are never read nor written: every request ends well with the next poll.
#[derive(Clone, Copy, Debug)]
pub struct Null(pub u64);

struct NullQueue(Vec<Done>);

impl Device for Null {
    fn name(&self) -> Arc<str> {
        "null".into()
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            len: self.0,
            block: 512,
            io_max: 1 << 20,
            boundary: None,
        }
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        Ok(Box::new(NullQueue(Vec::with_capacity(depth))))
    }
}

// SAFETY: no memory is touched.
unsafe impl Queue for NullQueue {
    unsafe fn submit(&mut self, requests: &[Request]) {
        self.0.extend(requests.iter().map(|request| Done {
            token: request.token,
            result: Ok(request.len),
        }));
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        let count = self.0.len().min(done.len());
        done[..count].copy_from_slice(&self.0[..count]);
        self.0.drain(..count);
        count
    }

    fn arm(&mut self) -> Arm<'_> {
        Arm::Ready
    }

    fn disarm(&mut self) {}
}
