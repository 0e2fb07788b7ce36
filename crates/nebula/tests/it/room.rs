//! Disks that are full, segments that are used again, several disks.

use block::Durable;
use block::sim::Kind;
use meta::Model;
use nebula::streams::StreamServer;
use nebula::{Address, Epoch, StreamError};
use rustix::io::Errno;

use super::rig::{Rig, SEGMENT_PAGES, Seen, formatted, record, replayed, sums_of};

#[test]
fn a_full_disk_is_told_read_and_used_again() {
    let rig = Rig::new(1, 6);
    let server = rig.server();
    let device = rig.device().clone();
    rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        let mut seen = Vec::new();
        let full = loop {
            let number = seen.len() as u32;
            let append = writer.append(record(&writer, number, 6), Durable::Yes);
            match append.await {
                Ok(appended) => seen.push(Seen::new(number, 6, &appended)),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, StreamError::Full { .. }), "{full}");
        assert!(seen.len() >= 10, "{}", seen.len());
        // The first refusal may come with the seal of the last extent; after that nothing is written.
        let refused = || async {
            let append = writer.append(record(&writer, 999, 6), Durable::Yes);
            assert!(matches!(append.await, Err(StreamError::Full { .. })));
        };
        refused().await;
        let before = device.totals().writes;
        refused().await;
        assert_eq!(device.totals().writes, before, "nothing is written");
        assert_eq!(replayed(&writer.reader()).await.0, seen);
        server.release(stream, 0).await.unwrap();
        let number = seen.len() as u32;
        let append = writer.append(record(&writer, number, 6), Durable::Yes);
        seen.push(Seen::new(number, 6, &append.await.unwrap()));
        seen.retain(|seen| seen.at.extent > 0);
        assert_eq!(replayed(&writer.reader()).await.0, seen);
    });
}

/// Appends and releases, so that all segments are used again and again.
async fn wrap(server: StreamServer, rounds: u32) {
    let stream = server.create().await.unwrap();
    let mut epoch = 1;
    let mut writer = server.open_for_writing(stream, Epoch(epoch)).await.unwrap();
    let mut seen: Vec<Seen> = Vec::new();
    for number in 0..rounds {
        let pages = number % 5;
        let append = writer.append(record(&writer, number, pages), Durable::Yes);
        seen.push(Seen::new(number, pages, &append.await.unwrap()));
        let last = seen.last().unwrap().at.extent;
        for extent in server.extents(stream).await.unwrap() {
            if extent.sealed.is_some() && extent.number + 2 < last {
                server.release(stream, extent.number).await.unwrap();
                seen.retain(|seen| seen.at.extent != extent.number);
            }
        }
        if number % 37 == 36 {
            epoch += 1;
            writer = server.open_for_writing(stream, Epoch(epoch)).await.unwrap();
            let (found, damage) = replayed(&writer.reader()).await;
            assert!(damage.is_empty());
            assert_eq!(
                found, seen,
                "old frames of a segment are not taken for new ones"
            );
        }
    }
    for seen in seen {
        let (reader, sums) = (writer.reader(), sums_of(seen.number, seen.pages));
        reader.read(seen.at, &sums).await.unwrap();
    }
}

#[test]
fn segments_are_used_again_and_again() {
    let rig = Rig::new(2, 8);
    let server = rig.server();
    rig.run(wrap(server, 400));
}

#[test]
fn extents_go_to_the_disk_with_the_most_room() {
    let devices = vec![formatted(1, 6), formatted(2, 12)];
    let rig = Rig::on(devices, Model::new(1));
    let server = rig.server();
    rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        let mut seen = Vec::new();
        for number in 0..13 {
            let append = writer.append(record(&writer, number, SEGMENT_PAGES - 1), Durable::Yes);
            seen.push(Seen::new(number, SEGMENT_PAGES - 1, &append.await.unwrap()));
        }
        writer.close().await.unwrap();
        let extents = server.extents(stream).await.unwrap();
        let on = |disk| extents.iter().filter(|extent| extent.disk == disk).count();
        assert!(on(102) > on(101) && on(101) > 2, "{extents:?}");
        let reader = server.reader(stream).await.unwrap();
        assert_eq!(replayed(&reader).await.0, seen);
        // A replay may begin anywhere where a frame begins.
        let mut replay = reader.replay(Address { extent: 5, page: 0 });
        let frame = replay.next().await.unwrap().unwrap();
        assert_eq!(frame.records().next().unwrap().at, seen[5].at);
    });
}

#[test]
fn a_device_that_fails_for_a_while_uses_no_segments_up() {
    for pass in 0..2 {
        let rig = Rig::new(9, 6);
        let server = rig.server();
        let device = rig.device().clone();
        let (stream, seen) = rig.run(async move {
            let stream = server.create().await.unwrap();
            let free = server.disks()[0].free_segments();
            for epoch in 1..20 {
                // The first or the second copy of the segment's entry.
                device.fail(Kind::Write, pass, Errno::IO);
                let opened = server.open_for_writing(stream, Epoch(epoch)).await;
                assert!(matches!(opened, Err(StreamError::Extent(_))), "{opened:?}");
            }
            assert_eq!(server.disks()[0].free_segments(), free);
            let writer = server.open_for_writing(stream, Epoch(20)).await.unwrap();
            let append = writer.append(record(&writer, 0, 1), Durable::Yes);
            (stream, vec![Seen::new(0, 1, &append.await.unwrap())])
        });
        let rig = rig.restarted();
        let server = rig.server();
        rig.run(async move {
            let writer = server.open_for_writing(stream, Epoch(21)).await.unwrap();
            assert_eq!(replayed(&writer.reader()).await.0, seen);
        });
    }
}
