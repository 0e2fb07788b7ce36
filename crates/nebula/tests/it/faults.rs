//! Every request of the device fails once, and every commit of the engine.

use std::cell::RefCell;
use std::rc::Rc;

use block::Durable;
use block::sim::Kind;
use meta::Fault;
use nebula::{Epoch, StreamError};
use rustix::io::Errno;

use super::rig::{Rig, Seen, record, replayed};

/// Appends, flushes, closes, with a device or an engine that fails once. Returns what was acknowledged, and the
/// errors that were told.
fn run(rig: &Rig, inject: impl FnOnce(&Rig)) -> (Vec<Seen>, Vec<StreamError>) {
    let server = rig.server();
    let told = Rc::new(RefCell::new((Vec::new(), Vec::new())));
    let (stream, writer) = rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        (stream, writer)
    });
    inject(rig);
    let log = told.clone();
    rig.run(async move {
        let mut number = 0;
        for round in 0..10 {
            let appends: Vec<_> = (0..3)
                .map(|_| {
                    let durable = if round % 3 == 1 {
                        Durable::No
                    } else {
                        Durable::Yes
                    };
                    let pages = number % 3;
                    number += 1;
                    let append = writer.append(record(&writer, number - 1, pages), durable);
                    (number - 1, pages, append)
                })
                .collect();
            for (number, pages, append) in appends {
                match append.await {
                    Ok(appended) => log.borrow_mut().0.push(Seen::new(number, pages, &appended)),
                    Err(error) => log.borrow_mut().1.push(error),
                }
            }
            if round % 4 == 3
                && let Err(error) = writer.flush().await
            {
                log.borrow_mut().1.push(error);
            }
        }
        if let Err(error) = writer.close().await {
            log.borrow_mut().1.push(error);
        }
    });
    let (acknowledged, errors) = told.borrow().clone();
    // Here and after a restart all that was acknowledged is there, once and in order.
    for rig in [None, Some(rig.restarted())]
        .into_iter()
        .map(|restarted| restarted.unwrap_or_else(|| rig.restarted()))
    {
        let server = rig.server();
        let acknowledged = acknowledged.clone();
        rig.run(async move {
            let writer = server.open_for_writing(stream, Epoch(2)).await.unwrap();
            let (found, damage) = replayed(&writer.reader()).await;
            assert!(damage.is_empty(), "{damage:?}");
            assert!(found.is_sorted_by(|a, b| a.number < b.number), "{found:?}");
            let is_there = |seen: &Seen| found.contains(seen);
            assert!(
                acknowledged.iter().all(is_there),
                "{found:?} has {acknowledged:?}"
            );
        });
    }
    (acknowledged, errors)
}

#[test]
fn a_write_that_fails_once_fails_no_append() {
    let mut nth = 0;
    let mut told = 0;
    loop {
        let rig = Rig::new(nth, 24);
        let (acknowledged, errors) =
            run(&rig, |rig| rig.device().fail(Kind::Write, nth, Errno::IO));
        if rig.device().faults_to_come() > 0 {
            assert!(errors.is_empty());
            break;
        }
        // The table's writes fail as well; then whoever closes may be told.
        told += u32::from(acknowledged.len() < 30);
        nth += 1;
    }
    assert!(nth > 20, "{nth}");
    assert_eq!(told, 0, "appends that were told of an error of one write");
}

#[test]
fn a_second_error_in_a_row_is_told_and_the_third_append_succeeds() {
    let rig = Rig::new(1, 24);
    let (acknowledged, errors) = run(&rig, |rig| {
        rig.device().fail(Kind::Write, 2, Errno::IO);
        // Sealing and creating take four writes, of which each copy of an entry is one.
        rig.device().fail(Kind::Write, 6, Errno::IO);
    });
    assert!(!errors.is_empty() && acknowledged.len() > 20, "{errors:?}");
}

#[test]
fn a_flush_that_fails_is_told_to_whoever_needs_it() {
    for nth in 0..6 {
        let rig = Rig::new(nth, 24);
        let (_, errors) = run(&rig, |rig| rig.device().fail(Kind::Flush, nth, Errno::IO));
        if rig.device().faults_to_come() > 0 {
            assert!(nth > 2);
            return;
        }
        let is_told = |error: &StreamError| matches!(error, StreamError::NotDurable { .. });
        assert!(errors.iter().any(is_told), "flush {nth}: {errors:?}");
    }
}

#[test]
fn reads_that_fail_are_errors_and_no_damage() {
    let rig = Rig::new(1, 24);
    let server = rig.server();
    let device = rig.device().clone();
    rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        let at = writer
            .append(record(&writer, 1, 1), Durable::Yes)
            .await
            .unwrap()
            .at;
        device.fail(Kind::Read, 0, Errno::IO);
        let sums = super::rig::sums_of(1, 1);
        let failed = writer.reader().read(at, &sums).await;
        assert!(matches!(failed, Err(StreamError::Extent(_))));
        writer.reader().read(at, &sums).await.unwrap();
    });
}

#[test]
fn commits_that_fail_or_whose_outcome_is_unknown_lose_nothing() {
    for fault in [Fault::UnknownDone, Fault::UnknownLost] {
        let mut nth = 0;
        loop {
            let rig = Rig::new(nth, 24);
            let (acknowledged, errors) = run(&rig, |rig| rig.model.fail(nth, fault));
            assert!(errors.is_empty(), "{fault:?} {nth}: {errors:?}");
            assert_eq!(acknowledged.len(), 30);
            if rig.model.faults_to_come() > 0 {
                break;
            }
            nth += 1;
        }
        assert!(nth > 5, "{nth}");
    }
}

#[test]
fn a_flush_that_nobody_waited_for_is_counted() {
    let rig = Rig::new(1, 24);
    let server = rig.server();
    let device = rig.device().clone();
    let stream = rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        device.fail(Kind::Flush, 0, Errno::IO);
        // Until the writer has gone on with another extent, for which it flushes the full one.
        let mut number = 0;
        while device.faults_to_come() > 0 {
            assert_eq!(writer.doubts(), 0);
            let append = writer.append(record(&writer, number, 3), Durable::No);
            append.await.unwrap();
            number += 1;
        }
        assert!(number > 3, "the first extent is full before");
        writer.flush().await.unwrap();
        assert!(writer.doubts() > 0, "what was written first is in doubt");
        let doubts = writer.doubts();
        let append = writer.append(record(&writer, number, 3), Durable::No);
        append.await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(writer.doubts(), doubts);
        writer.close().await.unwrap();
        let extents = server.extents(stream).await.unwrap();
        let first = extents[0].sealed.unwrap();
        assert!(first.durable < first.pages, "{first:?}");
        stream
    });
    assert_eq!(rig.device().faults_to_come(), 0, "{stream}");
}

#[test]
fn a_failed_flush_is_told_to_all_streams_of_the_disk() {
    let rig = Rig::new(1, 24);
    let server = rig.server();
    let device = rig.device().clone();
    rig.run(async move {
        let mut writers = Vec::new();
        for _ in 0..2 {
            let stream = server.create().await.unwrap();
            let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
            let append = writer.append(record(&writer, 1, 1), Durable::No);
            append.await.unwrap();
            writers.push(writer);
        }
        // The device tells the error once.
        device.fail(Kind::Flush, 0, Errno::IO);
        for writer in &writers {
            let flushed = writer.flush().await;
            let is_told = matches!(flushed, Err(StreamError::NotDurable { .. }));
            assert!(is_told, "{flushed:?}");
        }
        for writer in &writers {
            let append = writer.append(record(writer, 2, 1), Durable::No);
            append.await.unwrap();
            writer.flush().await.unwrap();
        }
    });
}
