//! What a stream is for.

use block::Durable;
use nebula::{Epoch, StreamError};

use super::rig::{Rig, SEGMENT_PAGES, Seen, page_of, record, replayed, sums_of};

#[test]
fn what_is_appended_is_read_and_replayed() {
    let rig = Rig::new(1, 8);
    let server = rig.server();
    rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        let mut seen = Vec::new();
        for number in 0..30 {
            let pages = number % 4;
            let append = writer.append(record(&writer, number, pages), Durable::Yes);
            let appended = append.await.unwrap();
            seen.push(Seen::new(number, pages, &appended));
            let (reader, sums) = (writer.reader(), sums_of(number, pages));
            let read = reader.read(appended.at, &sums);
            let wanted: Vec<u8> = (0..pages).flat_map(|page| page_of(number, page)).collect();
            assert!(read.await.unwrap()[..] == wanted[..]);
        }
        assert!(seen.is_sorted_by_key(|seen| seen.at));
        assert!(seen.last().unwrap().at.extent > 2, "several extents");
        let (found, damage) = replayed(&writer.reader()).await;
        assert_eq!(found, seen);
        assert!(damage.is_empty());
        // Others see what is sealed.
        let reader = server.reader(stream).await.unwrap();
        let (found, _) = replayed(&reader).await;
        assert!(found.len() < seen.len() && found[..] == seen[..found.len()]);
        writer.close().await.unwrap();
        let (found, _) = replayed(&reader).await;
        assert_eq!(found, seen);
        // One from the middle goes, and nothing else.
        server.release(stream, 1).await.unwrap();
        let (found, _) = replayed(&reader).await;
        seen.retain(|seen| seen.at.extent != 1);
        assert_eq!(found, seen);
        let gone = reader
            .read(nebula::Address { extent: 1, page: 0 }, &[0])
            .await;
        assert!(matches!(gone, Err(StreamError::NoExtent { number: 1, .. })));
        server.delete(stream).await.unwrap();
        assert_eq!(server.list().await.unwrap(), []);
        assert_eq!(
            server.disks()[0].free_segments(),
            server.disks()[0].segments()
        );
    });
}

/// A replay that has met the end goes on with what is written later, in the same extent and in the next ones.
#[test]
fn a_replay_goes_on_where_it_has_ended() {
    for step in 1..40 {
        let rig = Rig::new(4, 24);
        let server = rig.server();
        rig.run(async move {
            let stream = server.create().await.unwrap();
            let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
            let reader = writer.reader();
            let mut replay = reader.replay(nebula::Address::default());
            let (mut seen, mut found) = (Vec::new(), Vec::new());
            for number in 0..120 {
                let pages = number % 3;
                let append = writer.append(record(&writer, number, pages), Durable::No);
                seen.push(Seen::new(number, pages, &append.await.unwrap()));
                if number % step > 0 {
                    continue;
                }
                while let Some(frame) = replay.next().await.unwrap() {
                    found.extend(frame.records().map(|record| record.at));
                }
                assert!(
                    found.iter().copied().eq(seen.iter().map(|seen| seen.at)),
                    "every {step}: {found:?} of {seen:?}"
                );
                // Where it says that it is, another one can go on.
                replay = reader.replay(replay.at());
            }
        });
    }
}

#[test]
fn what_tasks_ask_for_in_one_turn_is_one_write() {
    let rig = Rig::new(2, 8);
    let server = rig.server();
    let device = rig.device().clone();
    let handle = rig.core.handle();
    rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        let before = device.totals();
        let tasks: Vec<_> = (0..4)
            .map(|number| {
                let writer = writer.clone();
                handle.spawn(async move {
                    let append = writer.append(record(&writer, number, 1), Durable::Yes);
                    append.await.unwrap()
                })
            })
            .collect();
        let mut frames = Vec::new();
        for task in tasks {
            frames.push(task.await.unwrap().frame);
        }
        assert!(frames.iter().all(|frame| *frame == frames[0]));
        let after = device.totals();
        assert_eq!(
            (after.writes - before.writes, after.flushes),
            (1, before.flushes)
        );
        // A read of a page is one read, and no write.
        let at = writer
            .append(record(&writer, 9, 1), Durable::Yes)
            .await
            .unwrap()
            .at;
        let before = device.totals();
        writer.reader().read(at, &sums_of(9, 1)).await.unwrap();
        let after = device.totals();
        assert_eq!(
            (after.reads - before.reads, after.writes),
            (1, before.writes)
        );
    });
}

#[test]
fn a_record_as_long_as_a_segment_fits_and_a_longer_one_is_refused() {
    let rig = Rig::new(3, 8);
    let server = rig.server();
    rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        let max = writer.record_pages_max();
        assert_eq!(max, SEGMENT_PAGES - 1);
        for number in 0..3 {
            let append = writer.append(record(&writer, number, max), Durable::No);
            let appended = append.await.unwrap();
            assert_eq!((appended.at.page, appended.at.extent), (1, number));
        }
        let refused = writer
            .append(record(&writer, 4, max + 1), Durable::No)
            .await;
        assert!(matches!(
            refused,
            Err(StreamError::TooLong { pages: 16, max: 15 })
        ));
    });
}
