//! Readers and writers at once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;

/// Ends a phase even if a thread panics, so that the others do not go on for ever.
struct EndsWhenDropped<'a>(&'a AtomicBool);

impl Drop for EndsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn readers_miss_nothing_while_entries_move_and_shards_grow() {
    // Small regions, so that entries move all the time.
    for (lines, inserts) in [(8, 2_500), (64, 25_000)] {
        let index = small(2, lines);
        // These are there all the time.
        let kept = 200;
        for number in 0..kept {
            index
                .insert(hash_of(number), place_of(number, 0))
                .expect("room");
        }
        let (ended, looked) = (AtomicBool::new(false), AtomicU64::new(0));
        let walked = AtomicU64::new(0);
        thread::scope(|scope| {
            for reader in 0..2 {
                let (index, ended, looked) = (&index, &ended, &looked);
                scope.spawn(move || {
                    let mut candidates = Candidates::new();
                    let mut number = reader;
                    loop {
                        let is_last = ended.load(Ordering::Relaxed);
                        number = (number + 1) % kept;
                        index.candidates(hash_of(number), &mut candidates);
                        let missed = !candidates.contains(&place_of(number, 0));
                        assert!(!missed, "{number} is not among {candidates:?}");
                        looked.fetch_add(1, Ordering::Relaxed);
                        if is_last {
                            break;
                        }
                    }
                });
            }
            scope.spawn(|| {
                loop {
                    let is_last = ended.load(Ordering::Relaxed);
                    let mut seen = HashSet::new();
                    for shard in 0..index.shards() {
                        let mut region = 0;
                        while region < index.regions_of(shard) {
                            index.places(shard, region, |_, place| {
                                seen.insert(place);
                            });
                            region += 1;
                        }
                    }
                    let missed = (0..kept).find(|&number| !seen.contains(&place_of(number, 0)));
                    assert_eq!(missed, None, "of {} places", seen.len());
                    walked.fetch_add(1, Ordering::Relaxed);
                    if is_last {
                        break;
                    }
                }
            });
            let _ended = EndsWhenDropped(&ended);
            let writers: Vec<_> = (1..3u64)
                .map(|writer| {
                    let index = &index;
                    scope.spawn(move || {
                        let numbers = writer << 24..(writer << 24) + inserts;
                        let mut stored = Vec::new();
                        for number in numbers {
                            let (hash, place) = (hash_of(number), place_of(number, 0));
                            // Small regions differ so much that one of them may be full.
                            if index.insert(hash, place).is_ok() {
                                stored.push(number);
                            }
                            if number % 3 == 0
                                && let Some(gone) = stored.pop()
                            {
                                assert!(index.remove(hash_of(gone), place_of(gone, 0)));
                            }
                        }
                        stored
                    })
                })
                .collect();
            for writer in writers {
                let stored = writer.join().expect("no panic");
                assert!(stored.len() as u64 > inserts / 2);
                for number in stored {
                    assert!(found(&index, hash_of(number)).contains(&place_of(number, 0)));
                }
            }
        });
        assert!(index.regions() > 10, "{} regions", index.regions());
        assert!(looked.load(Ordering::Relaxed) > 0);
        assert!(walked.load(Ordering::Relaxed) > 0);
    }
}

#[test]
fn of_two_that_replace_the_same_place_one_wins() {
    let index = small(1, 16);
    let keys = 300u64;
    for number in 0..keys {
        index
            .insert(hash_of(number), place_of(number, 0))
            .expect("room");
    }
    let before = index.regions();
    let wins = thread::scope(|scope| {
        let workers: Vec<_> = (0..3u64)
            .map(|worker| {
                let index = &index;
                scope.spawn(move || {
                    let mut wins = 0;
                    for version in 0..20u64 {
                        for number in 0..keys {
                            let (old, new) =
                                (place_of(number, version), place_of(number, version + 1));
                            wins += u64::from(index.replace(hash_of(number), old, new));
                            // Others, so that shards grow beneath.
                            let other = 1 << 40 | worker << 32 | version << 16 | number;
                            let _full =
                                index.insert(hash_of(other), place_of(other & 0xffff_ffff, 0));
                        }
                    }
                    wins
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("no panic"))
            .sum::<u64>()
    });
    assert_eq!(wins, keys * 20, "each version once");
    assert!(index.regions() > before);
    for number in 0..keys {
        assert!(found(&index, hash_of(number)).contains(&place_of(number, 20)));
    }
}
