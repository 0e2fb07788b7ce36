//! What commands have come to, by memcached's names.

use std::sync::atomic::{AtomicU64, Ordering};

use ::engine::{Answer, Command, Direction, Mode};

use crate::counters::count;

macro_rules! counts {
    ($($name:ident,)*) => {
        /// What the commands of one core have come to. Only that core writes them; on lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(super) struct Counts {
            $($name: AtomicU64,)*
        }

        /// The names that they are told by.
        pub(super) const NAMES: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];

        impl Counts {
            /// Adds them to a sum, in the order of the names.
            pub(super) fn add_to(&self, sums: &mut [u64; NAMES.len()]) {
                let all = [$(&self.$name),*];
                for (sum, counter) in sums.iter_mut().zip(all) {
                    *sum += counter.load(Ordering::Relaxed);
                }
            }
        }
    };
}

counts! {
    cmd_get,
    cmd_set,
    cmd_touch,
    get_hits,
    get_misses,
    delete_hits,
    delete_misses,
    incr_hits,
    incr_misses,
    decr_hits,
    decr_misses,
    cas_hits,
    cas_misses,
    cas_badval,
    touch_hits,
    touch_misses,
    total_items,
}

impl Counts {
    /// Counts a command that has been answered.
    pub(super) fn note(&self, command: &Command<'_>, answer: &Answer<'_>) {
        let one = |counter| count(counter, 1);
        match *command {
            Command::Get { touch, .. } => {
                one(&self.cmd_get);
                let touches = touch.is_some();
                if touches {
                    one(&self.cmd_touch);
                }
                match answer {
                    Answer::Item { .. } => {
                        one(&self.get_hits);
                        if touches {
                            one(&self.touch_hits);
                        }
                    }
                    Answer::Miss => {
                        one(&self.get_misses);
                        if touches {
                            one(&self.touch_misses);
                        }
                    }
                    _ => {}
                }
            }
            Command::Store { mode, .. } => {
                one(&self.cmd_set);
                if matches!(answer, Answer::Stored { .. }) {
                    one(&self.total_items);
                }
                match (mode, answer) {
                    (Mode::Cas(_), Answer::Stored { .. }) => one(&self.cas_hits),
                    (Mode::Cas(_), Answer::NotFound) => one(&self.cas_misses),
                    (Mode::Cas(_), Answer::Exists) => one(&self.cas_badval),
                    _ => {}
                }
            }
            Command::Delete { .. } => match answer {
                Answer::Deleted => one(&self.delete_hits),
                Answer::NotFound => one(&self.delete_misses),
                _ => {}
            },
            Command::Arith { direction, .. } => match (direction, answer) {
                (Direction::Up, Answer::Number { .. }) => one(&self.incr_hits),
                (Direction::Up, Answer::NotFound) => one(&self.incr_misses),
                (Direction::Down, Answer::Number { .. }) => one(&self.decr_hits),
                (Direction::Down, Answer::NotFound) => one(&self.decr_misses),
                _ => {}
            },
            Command::Touch { .. } => {
                one(&self.cmd_touch);
                match answer {
                    Answer::Touched => one(&self.touch_hits),
                    Answer::NotFound => one(&self.touch_misses),
                    _ => {}
                }
            }
            Command::FlushAll { .. } | Command::Stats { .. } | Command::ResetStats => {}
        }
    }
}
