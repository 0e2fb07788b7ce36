//! Who owns a stream: two writers, repeated seals, futures that are dropped.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Waker};

use block::Durable;
use meta::{Engine, Key, MetaError, Outcome, Pending, Range, Row, Transaction};
use nebula::extents::{ExtentPlace, NewExtent};
use nebula::streams::StreamServer;
use nebula::{Epoch, ExtentError, ExtentId, StreamError, StreamId};

use super::rig::{Rig, Seen, formatted_of, record, replayed, sums_of};

#[test]
fn the_old_writer_is_refused_and_loses_nothing_that_was_acknowledged() {
    for turns in 0..30 {
        let rig = Rig::new(turns, 24);
        let server = rig.server();
        let opened = server.clone();
        let (stream, old) = rig.run(async move {
            let stream = opened.create().await.unwrap();
            (
                stream,
                opened.open_for_writing(stream, Epoch(5)).await.unwrap(),
            )
        });
        let acknowledged = Rc::new(RefCell::new(Vec::new()));
        let (log, writer) = (acknowledged.clone(), old.clone());
        let writing = rig.core.handle().spawn(async move {
            for number in 0..20 {
                match writer
                    .append(record(&writer, number, 1), Durable::Yes)
                    .await
                {
                    Ok(appended) => log.borrow_mut().push(Seen::new(number, 1, &appended)),
                    Err(error) => return error,
                }
            }
            panic!("it was never refused");
        });
        for _ in 0..turns {
            rig.core.turn();
        }
        let opened = server.clone();
        let new = rig.run(async move {
            for low in [1, 5] {
                let refused = opened.open_for_writing(stream, Epoch(low)).await;
                assert!(matches!(
                    refused,
                    Err(StreamError::Fenced { by: Epoch(5), .. })
                ));
            }
            opened.open_for_writing(stream, Epoch(6)).await.unwrap()
        });
        let error = rig.run(async move { writing.await.unwrap() });
        assert!(
            matches!(error, StreamError::Fenced { by: Epoch(6), .. }),
            "{error}"
        );
        rig.run(async move {
            let append = new.append(record(&new, 100, 1), Durable::Yes);
            let appended = append.await.unwrap();
            let (found, damage) = replayed(&new.reader()).await;
            assert!(damage.is_empty());
            let acknowledged = acknowledged.take();
            assert!(acknowledged.iter().all(|seen| found.contains(seen)));
            let before = found.len() - 1;
            assert!(
                before <= acknowledged.len() + 1,
                "at most one was under way"
            );
            assert_eq!(found[before], Seen::new(100, 1, &appended));
            // The old one stays refused.
            let late = old.append(record(&old, 101, 1), Durable::Yes).await;
            assert!(matches!(late, Err(StreamError::Fenced { .. })), "{late:?}");
            assert_eq!(replayed(&new.reader()).await.0, found);
        });
    }
}

#[test]
fn seals_fences_and_creations_can_be_repeated() {
    let rig = Rig::new(1, 4);
    let server = rig.server();
    rig.run(async move {
        let disk = server.disks()[0].clone();
        let new = NewExtent {
            extent: ExtentId(9),
            stream: StreamId(8),
            number: 0,
            epoch: Epoch(3),
        };
        let at = disk.create(new).await.unwrap();
        assert_eq!(disk.create(new).await.unwrap(), at);
        disk.fence(at, Epoch(4)).await.unwrap();
        disk.fence(at, Epoch(4)).await.unwrap();
        for low in [
            disk.fence(at, Epoch(3)).await.err(),
            disk.seal(at, Epoch(3), 0).await.err(),
        ] {
            assert!(matches!(
                low,
                Some(ExtentError::Fenced { by: Epoch(4), .. })
            ));
        }
        let sealed = disk.seal(at, Epoch(4), 0).await.unwrap();
        assert_eq!(sealed.pages, 0);
        assert_eq!(disk.seal(at, Epoch(4), 0).await.unwrap(), sealed);
        assert_eq!(disk.seal(at, Epoch(7), 0).await.unwrap(), sealed);
        assert_eq!(disk.length(at).unwrap(), Some(0));
        disk.free(at).await.unwrap();
        let gone = disk.seal(at, Epoch(8), 0).await;
        assert!(matches!(gone, Err(ExtentError::NoExtent { .. })));
        let elsewhere = ExtentPlace { segment: 99, ..at };
        assert!(disk.length(elsewhere).is_err());
    });
}

#[test]
fn appends_can_be_repeated_and_leave_no_gap() {
    let rig = Rig::new(1, 4);
    let server = rig.server();
    let device = rig.device().clone();
    let disk = rig.disks[0].clone();
    rig.run(async move {
        let extents = server.disks()[0].clone();
        let new = NewExtent {
            extent: ExtentId(9),
            stream: StreamId(8),
            number: 0,
            epoch: Epoch(3),
        };
        let at = extents.create(new).await.unwrap();
        let frame = |byte: u8, pages: usize| {
            let mut frame = disk.buffer(pages * nebula::PAGE);
            frame.fill(byte);
            frame
        };
        let append = async |epoch, page, frame| {
            let append = extents.append(at, Epoch(epoch), page, frame, Durable::Yes);
            append.await.0
        };
        append(3, 0, frame(1, 2)).await.unwrap();
        append(3, 2, frame(2, 1)).await.unwrap();
        let writes = device.totals().writes;
        append(3, 0, frame(1, 2)).await.unwrap();
        append(3, 2, frame(2, 1)).await.unwrap();
        assert_eq!(
            device.totals().writes,
            writes,
            "a repeat is not written again"
        );
        let other = append(3, 0, frame(9, 2)).await;
        assert!(matches!(other, Err(ExtentError::Conflict { page: 0, .. })));
        let gap = append(3, 4, frame(9, 1)).await;
        assert!(matches!(
            gap,
            Err(ExtentError::Gap {
                page: 4,
                end: 3,
                ..
            })
        ));
        let half = append(3, 2, frame(2, 2)).await;
        assert!(matches!(
            half,
            Err(ExtentError::Gap {
                page: 2,
                end: 3,
                ..
            })
        ));
        let long = append(3, 3, frame(9, 14)).await;
        assert!(matches!(long, Err(ExtentError::NoRoom { pages: 14, .. })));
        for epoch in [2, 4] {
            let fenced = append(epoch, 3, frame(9, 1)).await;
            assert!(matches!(
                fenced,
                Err(ExtentError::Fenced { by: Epoch(3), .. })
            ));
        }
        assert_eq!(extents.seal(at, Epoch(3), 0).await.unwrap().pages, 3);
        append(3, 0, frame(1, 2)).await.unwrap();
        let late = append(3, 3, frame(9, 1)).await;
        assert!(matches!(late, Err(ExtentError::Sealed { .. })));
        let beyond = extents.read(at, None, 2, 2).await;
        assert!(matches!(beyond, Err(ExtentError::Beyond { end: 3, .. })));
        assert!(extents.read(at, None, 1, 2).await.unwrap()[4096..] == [2; 4096]);
    });
}

/// Polls a future so often, turning the core in between, and drops it. Whether it has ended.
fn drop_after<T>(rig: &Rig, polls: usize, future: impl Future<Output = T>) -> bool {
    let mut future = pin!(future);
    for _ in 0..polls {
        let mut cx = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut cx).is_ready() {
            return true;
        }
        rig.core.turn();
    }
    false
}

type Step = fn(StreamServer, StreamId, nebula::Writer) -> Pin<Box<dyn Future<Output = ()>>>;

/// What is dropped after each number of polls. Its outcome is nobody's.
const STEPS: [Step; 6] = [
    |server, _, _| Box::pin(async move { drop(server.create().await) }),
    |server, stream, _| {
        Box::pin(async move { drop(server.open_for_writing(stream, Epoch(2)).await) })
    },
    |server, stream, _| Box::pin(async move { drop(server.release(stream, 0).await) }),
    |_, _, writer| {
        Box::pin(async move {
            let append = writer.append(record(&writer, 6, 2), Durable::Yes);
            drop(append.await);
        })
    },
    |_, _, writer| {
        Box::pin(async move {
            let append = writer.append(record(&writer, 6, 2), Durable::No);
            drop((append.await, writer.flush().await));
        })
    },
    |_, _, writer| Box::pin(async move { drop(writer.close().await) }),
];

#[test]
fn any_future_may_be_dropped_at_every_step() {
    for (which, step) in STEPS.into_iter().enumerate() {
        let mut polls = 0;
        loop {
            let rig = Rig::new(polls as u64, 24);
            let server = rig.server();
            let opened = server.clone();
            let (stream, writer, mut seen) = rig.run(async move {
                let stream = opened.create().await.unwrap();
                let writer = opened.open_for_writing(stream, Epoch(1)).await.unwrap();
                let mut seen = Vec::new();
                for number in 0..6 {
                    let append = writer.append(record(&writer, number, 3), Durable::Yes);
                    seen.push(Seen::new(number, 3, &append.await.unwrap()));
                }
                (stream, writer, seen)
            });
            rig.settle();
            let has_ended = drop_after(&rig, polls, step(server.clone(), stream, writer.clone()));
            rig.settle();
            if which == 2 {
                seen.retain(|seen| seen.at.extent > 0);
            }
            drop(writer);
            let again = rig.restarted();
            for (rig, server) in [(&again, again.server()), (&rig, server)] {
                let seen = seen.clone();
                rig.run(async move {
                    let open = server.open_for_writing(stream, Epoch(3)).await;
                    let writer =
                        open.unwrap_or_else(|error| panic!("step {which}/{polls}: {error}"));
                    let append = writer.append(record(&writer, 9, 1), Durable::Yes);
                    append.await.unwrap();
                    let (found, damage) = replayed(&writer.reader()).await;
                    assert!(damage.is_empty());
                    let is_there = |seen: &Seen| found.contains(seen);
                    assert!(
                        seen.iter().all(is_there),
                        "step {which} after {polls} polls"
                    );
                });
            }
            if has_ended {
                break;
            }
            polls += 1;
            assert!(polls < 10_000, "step {which} never ends");
        }
        assert!(polls > 0, "step {which} waits for something");
    }
}

#[test]
fn a_dropped_core_and_its_tasks_lose_nothing_that_was_acknowledged() {
    for turns in 0..40 {
        let rig = Rig::new(turns, 24);
        let server = rig.server();
        let opened = server.clone();
        let (stream, writer) = rig.run(async move {
            let stream = opened.create().await.unwrap();
            (
                stream,
                opened.open_for_writing(stream, Epoch(1)).await.unwrap(),
            )
        });
        let acknowledged = Rc::new(RefCell::new(Vec::new()));
        let log = acknowledged.clone();
        let _writing = rig.core.handle().spawn(async move {
            for number in 0..30 {
                let append = writer.append(record(&writer, number, 2), Durable::Yes);
                let appended = append.await.unwrap();
                log.borrow_mut().push(Seen::new(number, 2, &appended));
            }
        });
        for _ in 0..turns * 3 {
            rig.core.turn();
        }
        let acknowledged = acknowledged.borrow().clone();
        let again = rig.restarted();
        drop((server, rig));
        let server = again.server();
        again.run(async move {
            let writer = server.open_for_writing(stream, Epoch(2)).await.unwrap();
            let (found, damage) = replayed(&writer.reader()).await;
            assert!(damage.is_empty());
            assert_eq!(found[..acknowledged.len()], acknowledged[..]);
        });
    }
}

#[test]
fn a_disk_that_is_newer_than_the_rows_is_left_as_it_is() {
    let rig = Rig::new(1, 24);
    let server = rig.server();
    let rows_without = rig.model.fork(1);
    let (stream, seen) = rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        let append = writer.append(record(&writer, 1, 2), Durable::Yes);
        (stream, Seen::new(1, 2, &append.await.unwrap()))
    });
    let old_rows = rig.model.fork(1);
    let server = rig.server();
    rig.run(async move {
        // Another owner, whose epoch the old rows do not know.
        let writer = server.open_for_writing(stream, Epoch(2)).await.unwrap();
        let append = writer.append(record(&writer, 2, 2), Durable::Yes);
        append.await.unwrap();
    });
    for rows in [rows_without, old_rows] {
        let older = rig.after(rig.device().image(), rows);
        let opened = older.try_server().err();
        let is_refused = matches!(opened, Some(StreamError::NotOurs { .. }));
        assert!(is_refused, "{opened:?}");
        let whole = older.after(older.device().image(), rig.model.fork(2));
        let server = whole.server();
        whole.run(async move {
            let writer = server.open_for_writing(stream, Epoch(3)).await.unwrap();
            let (found, damage) = replayed(&writer.reader()).await;
            assert!(
                damage.is_empty() && found.first() == Some(&seen),
                "{found:?}"
            );
        });
    }
}

/// Rows of one moment, a disk of a later one: either that is told, or nothing is lost.
#[test]
fn rows_that_are_a_little_older_than_the_disk_lose_nothing() {
    let rig = Rig::new(2, 40);
    let server = rig.server();
    let (model, device) = (rig.model.clone(), rig.device().clone());
    let (stream, moments) = rig.run(async move {
        let stream = server.create().await.unwrap();
        let other = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        let mut seen = Vec::new();
        let mut moments = Vec::new();
        for number in 0..24 {
            if number == 12 {
                // A stream of which older rows know nothing.
                let writer = server.open_for_writing(other, Epoch(1)).await.unwrap();
                let append = writer.append(record(&writer, 1, 1), Durable::Yes);
                append.await.unwrap();
            }
            let append = writer.append(record(&writer, number, 5), Durable::Yes);
            seen.push(Seen::new(number, 5, &append.await.unwrap()));
            moments.push((model.fork(1), device.image(), seen.clone()));
        }
        (stream, moments)
    });
    let mut refused = 0;
    for (of_rows, (rows, ..)) in moments.iter().enumerate() {
        for (of_disk, (_, image, seen)) in moments.iter().enumerate().skip(of_rows) {
            let context = format!("rows of {of_rows}, disk of {of_disk}");
            let older = rig.after(image.clone(), rows.fork(1));
            match older.try_server() {
                Err(StreamError::NotOurs { .. }) => {
                    refused += 1;
                    assert!(of_rows < of_disk, "{context}");
                    // The right ones find all.
                    let (rows, ..) = &moments[of_disk];
                    let whole = rig.after(older.device().image(), rows.fork(2));
                    let (server, seen) = (whole.server(), seen.clone());
                    whole.run(async move {
                        let opened = server.open_for_writing(stream, Epoch(2)).await;
                        let writer = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
                        assert_eq!(replayed(&writer.reader()).await.0, seen, "{context}");
                    });
                }
                Err(error) => panic!("{context}: {error}"),
                Ok(server) => {
                    let seen = seen.clone();
                    older.run(async move {
                        let opened = server.open_for_writing(stream, Epoch(2)).await;
                        let writer = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
                        assert_eq!(replayed(&writer.reader()).await.0, seen, "{context}");
                    });
                }
            }
        }
    }
    assert!(refused > 20, "{refused} refused");
}

/// A stream is taken over while the segment that its old writer would have gone to is written ahead: the new writer has
/// that segment, and loses nothing.
#[test]
fn zeros_written_ahead_do_not_come_to_the_next_owner_of_the_segment() {
    const SEGMENT: u64 = 32 << 20;
    for turns in (0..80).step_by(7) {
        let config = block::sim::SimConfig::new(turns, 2 * SEGMENT + (96 << 10));
        let device = formatted_of(config, SEGMENT);
        let rig = Rig::on(vec![device], meta::Model::new(1));
        let server = rig.server();
        server.disks()[0].write_segments_ahead();
        let opened = server.clone();
        let (stream, old) = rig.run(async move {
            let stream = opened.create().await.unwrap();
            let writer = opened.open_for_writing(stream, Epoch(1)).await.unwrap();
            for number in 0..15 {
                let append = writer.append(record(&writer, number, 256), Durable::Yes);
                append.await.unwrap();
            }
            (stream, writer)
        });
        // The half is written: the next extent is handed out.
        let append = old.append(record(&old, 15, 256), Durable::Yes);
        for _ in 0..turns {
            rig.core.turn();
        }
        let kept = Rc::new(RefCell::new(None));
        let log = kept.clone();
        rig.run(async move {
            let new = server.open_for_writing(stream, Epoch(2)).await.unwrap();
            // All at once: they overtake the zeros.
            let ask = |number| (number, new.append(record(&new, number, 256), Durable::Yes));
            let appends: Vec<_> = (100..130).map(ask).collect();
            let mut seen = Vec::new();
            for (number, append) in appends {
                seen.push(Seen::new(number, 256, &append.await.unwrap()));
            }
            drop((append, old));
            *log.borrow_mut() = Some((new.reader(), seen));
        });
        rig.settle();
        let (reader, seen) = kept.take().expect("it was written");
        rig.run(async move {
            for seen in seen {
                let sums = sums_of(seen.number, seen.pages);
                let read = reader.read(seen.at, &sums).await;
                assert!(read.is_ok(), "{turns} turns: {:?}", read.err());
            }
        });
    }
}

/// An engine that carries a commit out, after some others, and says that it has failed.
struct Liar {
    engine: Rc<dyn Engine>,
    pass: Cell<Option<u32>>,
}

impl Engine for Liar {
    fn get<'a>(&'a self, key: &'a [u8]) -> Pending<'a, Result<Option<Row>, MetaError>> {
        self.engine.get(key)
    }

    fn scan<'a>(
        &'a self,
        range: Range,
        limit: usize,
    ) -> Pending<'a, Result<Vec<(Key, Row)>, MetaError>> {
        self.engine.scan(range, limit)
    }

    fn commit(&self, transaction: Transaction) -> Pending<'_, Result<Outcome, MetaError>> {
        let is_it = self.pass.get() == Some(0);
        self.pass
            .set(self.pass.get().and_then(|pass| pass.checked_sub(1)));
        Box::pin(async move {
            let outcome = self.engine.commit(transaction).await?;
            match is_it {
                true => Err(MetaError::NoSpace {
                    place: "liar".into(),
                }),
                false => Ok(outcome),
            }
        })
    }
}

/// Whoever was told that a stream could not be taken over asks again, whatever was carried out of it.
#[test]
fn a_stream_is_taken_over_when_it_is_asked_for_again() {
    let mut failed = 0;
    for pass in 0..6 {
        let mut rig = Rig::new(20, 24);
        let liar = Rc::new(Liar {
            engine: rig.engine.clone(),
            pass: Cell::default(),
        });
        rig.engine = liar.clone();
        let server = rig.server();
        failed += rig.run(async move {
            let stream = server.create().await.unwrap();
            drop(server.open_for_writing(stream, Epoch(1)).await.unwrap());
            liar.pass.set(Some(pass));
            let first = server.open_for_writing(stream, Epoch(2)).await;
            liar.pass.set(None);
            if first.is_err() {
                let again = server.open_for_writing(stream, Epoch(2)).await;
                again.unwrap_or_else(|error| panic!("{pass}: {error}"));
            }
            // It has an owner now, and nobody else comes with that epoch, however often.
            for _ in 0..2 {
                let other = server.open_for_writing(stream, Epoch(2)).await;
                assert!(
                    matches!(other, Err(StreamError::Fenced { .. })),
                    "{other:?}"
                );
            }
            u32::from(first.is_err())
        });
    }
    assert!(failed > 1, "{failed} failed");
}
