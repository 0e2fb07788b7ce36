//! Several connections in one thread, each polled while it waits for answers.

use std::collections::VecDeque;

use super::RunError;
use super::connection::{Answer, Connection, Request};
use super::report::ConnectionStats;

/// Connections that are filled in turn.
#[derive(Debug)]
pub(super) struct Fleet<C> {
    all: Vec<Member<C>>,
    /// Those that may take requests, in turn.
    ready: VecDeque<usize>,
    /// Those that wait for answers.
    busy: Vec<usize>,
    now_ns: u64,
}

#[derive(Debug)]
struct Member<C> {
    connection: C,
    waiting: usize,
    is_ready: bool,
    turned_ns: u64,
}

impl<C> Fleet<C> {
    pub(super) fn new(all: Vec<C>) -> Self {
        let members = all.into_iter().map(|connection| Member {
            connection,
            waiting: 0,
            is_ready: true,
            turned_ns: u64::MAX,
        });
        let all: Vec<_> = members.collect();
        Fleet {
            ready: (0..all.len()).collect(),
            busy: Vec::with_capacity(all.len()),
            all,
            now_ns: 0,
        }
    }
}

impl<C: Connection> Connection for Fleet<C> {
    /// Members learn of the turn when it concerns them: there may be a thousand.
    fn turn(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.ready.len() > 1 {
            self.ready.rotate_left(1);
        }
    }

    fn submit(&mut self, request: &Request<'_>, tag: u64) -> Result<bool, RunError> {
        while let Some(&at) = self.ready.front() {
            let member = &mut self.all[at];
            if member.turned_ns != self.now_ns {
                member.turned_ns = self.now_ns;
                member.connection.turn(self.now_ns);
            }
            if member.connection.submit(request, tag)? {
                if member.waiting == 0 {
                    self.busy.push(at);
                }
                member.waiting += 1;
                return Ok(true);
            }
            member.is_ready = false;
            self.ready.pop_front();
        }
        Ok(false)
    }

    fn poll(
        &mut self,
        now_ns: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) -> Result<usize, RunError> {
        let (mut all_ended, mut kept) = (0, 0);
        for index in 0..self.busy.len() {
            let at = self.busy[index];
            let member = &mut self.all[at];
            let mut ended = 0;
            member.connection.poll(now_ns, &mut |tag, answer| {
                ended += 1;
                sink(tag, answer);
            })?;
            member.waiting -= ended;
            if ended > 0 && !member.is_ready {
                member.is_ready = true;
                self.ready.push_back(at);
            }
            if member.waiting > 0 {
                self.busy[kept] = at;
                kept += 1;
            }
            all_ended += ended;
        }
        self.busy.truncate(kept);
        Ok(all_ended)
    }

    fn idle(&mut self, looks: u32, may_sleep: bool) -> Result<(), RunError> {
        match self.all.first_mut() {
            Some(member) => member.connection.idle(looks, may_sleep),
            None => Ok(()),
        }
    }

    fn stats(&self) -> Option<ConnectionStats> {
        let mut all = ConnectionStats::default();
        for member in &self.all {
            all.add(&member.connection.stats()?);
        }
        Some(all)
    }
}
