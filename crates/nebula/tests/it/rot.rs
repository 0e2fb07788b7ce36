//! Every page of a small stream is damaged, one after the other: that is named, and never served.

use block::Durable;
use block::sim::SimDevice;
use nebula::extents::ExtentServer;
use nebula::{Epoch, PAGE, Scrub, ScrubFault, ScrubStep, StreamError, StreamId};

use super::rig::{Rig, SEGMENT, Seen, record, replayed, sums_of};

/// What a scrub says of a disk.
async fn scrubbed(server: &ExtentServer) -> (u32, Vec<ScrubFault>) {
    let (mut scrub, mut sound, mut faults) = (Scrub::new(server), 0, Vec::new());
    loop {
        match scrub.step().await.expect("the device answers") {
            ScrubStep::Sound { pages } => sound += pages,
            ScrubStep::Bad(fault) => faults.push(fault),
            ScrubStep::Over => return (sound, faults),
        }
    }
}

/// A sealed stream of some frames over two extents.
fn written(rig: &Rig) -> (StreamId, Vec<Seen>) {
    let server = rig.server();
    rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        let mut seen = Vec::new();
        for number in 0..12 {
            let pages = number % 3;
            let append = writer.append(record(&writer, number, pages), Durable::Yes);
            seen.push(Seen::new(number, pages, &append.await.unwrap()));
        }
        writer.close().await.unwrap();
        (stream, seen)
    })
}

fn segments_at(device: &SimDevice) -> u64 {
    // The last segments end where the device does, up to what a table takes.
    let len = device.image().len();
    let segments = (len - (64 << 10) - 8192) / SEGMENT;
    let table = (segments * 512).next_multiple_of(PAGE as u64);
    (64 << 10) + 2 * table
}

#[test]
fn every_damaged_page_is_named_and_none_is_served() {
    let rig = Rig::new(1, 6);
    let (stream, seen) = written(&rig);
    let base = segments_at(rig.device());
    let extents = {
        let server = rig.server();
        rig.run(async move { server.extents(stream).await.unwrap() })
    };
    let mut pages = 0;
    for extent in extents {
        for page in 0..extent.sealed.unwrap().pages {
            for offset in [0, 59, 70, 2000, PAGE as u64 - 1] {
                let rig = rig.restarted();
                let at = base + u64::from(extent.segment) * SEGMENT + u64::from(page) * PAGE as u64;
                rig.device().flip_bit(at + offset, 3);
                let server = rig.server();
                let seen = seen.clone();
                rig.run(async move {
                    let reader = server.reader(stream).await.unwrap();
                    let (found, damage) = replayed(&reader).await;
                    assert_eq!(damage.len(), 1, "{extent:?} page {page} byte {offset}");
                    let StreamError::Damaged { from, to, .. } = damage[0] else {
                        panic!("{damage:?}");
                    };
                    assert_eq!((from.extent, to.extent), (extent.number, extent.number));
                    assert!(from.page <= page && page < to.page, "{from} to {to}");
                    let is_there = |seen: &&Seen| seen.at < from || seen.at > to;
                    let rest: Vec<Seen> = seen.iter().filter(is_there).copied().collect();
                    assert!(
                        rest.iter().all(|seen| found.contains(seen)),
                        "only the frame is lost"
                    );
                    let (_, faults) = scrubbed(&server.disks()[0]).await;
                    assert_eq!(faults.len(), 1, "{faults:?}");
                    assert_eq!((faults[0].from, faults[0].to), (from.page, to.page));
                    assert_eq!((faults[0].stream, faults[0].number), (stream, from.extent));
                    // Whoever has kept the checksums reads what is right and nothing else.
                    for seen in &seen {
                        let sums = sums_of(seen.number, seen.pages);
                        let is_hit = seen.at.extent == extent.number
                            && (seen.at.page..seen.at.page + seen.pages).contains(&page);
                        match reader.read(seen.at, &sums).await {
                            Ok(_) => assert!(!is_hit, "{seen:?}"),
                            Err(StreamError::Page { at, .. }) => assert_eq!(at.page, page),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            pages += 1;
        }
    }
    assert!(pages > 20, "{pages}");
}

/// What is found after a crash of a stream whose writer has not closed it, with one page damaged.
fn taken_over_with_damage(count: u32, hit: usize) -> (Vec<Seen>, Vec<Seen>, Vec<StreamError>) {
    let rig = Rig::new(7, 8);
    let base = segments_at(rig.device());
    let server = rig.server();
    let opened = server.clone();
    let (stream, writer, seen) = rig.run(async move {
        let stream = opened.create().await.unwrap();
        let writer = opened.open_for_writing(stream, Epoch(1)).await.unwrap();
        let mut seen = Vec::new();
        for number in 0..count {
            let append = writer.append(record(&writer, number, 1), Durable::Yes);
            seen.push(Seen::new(number, 1, &append.await.unwrap()));
        }
        (stream, writer, seen)
    });
    let opened = server.clone();
    let extents = rig.run(async move { opened.extents(stream).await.unwrap() });
    let at = seen[hit].at;
    let is_it = |extent: &&nebula::streams::ExtentInfo| extent.number == at.extent;
    let segment = extents.iter().find(is_it).unwrap().segment;
    let again = rig.restarted();
    drop(writer);
    let byte = base + u64::from(segment) * SEGMENT + u64::from(at.page) * PAGE as u64;
    again.device().flip_bit(byte, 1);
    let server = again.server();
    again.run(async move {
        let writer = server.open_for_writing(stream, Epoch(2)).await.unwrap();
        let (found, damage) = replayed(&writer.reader()).await;
        (seen, found, damage)
    })
}

#[test]
fn damage_in_the_middle_of_an_open_extent_is_named_after_a_crash() {
    for hit in 0..4 {
        let (seen, found, damage) = taken_over_with_damage(6, hit);
        assert!(
            matches!(damage[..], [StreamError::Damaged { .. }]),
            "{hit}: {damage:?}"
        );
        let rest = seen.iter().filter(|seen| seen.number != hit as u32);
        assert!(rest.eq(&found), "{hit}: {found:?}");
    }
    // Of the last one nobody can tell whether it was acknowledged: it is not served.
    let (seen, found, damage) = taken_over_with_damage(6, 5);
    assert!(damage.is_empty() && found[..] == seen[..5], "{found:?}");
}

#[test]
fn a_sound_disk_is_sound() {
    let rig = Rig::new(2, 6);
    let (stream, _) = written(&rig);
    let server = rig.server();
    rig.run(async move {
        let extents = server.extents(stream).await.unwrap();
        let pages: u32 = extents
            .iter()
            .map(|extent| extent.sealed.unwrap().pages)
            .sum();
        assert_eq!(scrubbed(&server.disks()[0]).await, (pages, Vec::new()));
    });
}

#[test]
fn damage_of_one_copy_of_superblock_or_table_changes_nothing() {
    let rig = Rig::new(3, 6);
    let (stream, seen) = written(&rig);
    let base = segments_at(rig.device());
    let mut places: Vec<u64> = (0..64).chain(32 << 10..(32 << 10) + 64).collect();
    places.extend((64 << 10..base).filter(|at| at % 512 < 64 && at % 7 == 0));
    for at in places {
        let rig = rig.restarted();
        rig.device().flip_bit(at, 5);
        for _ in 0..2 {
            let server = rig.server();
            let seen = seen.clone();
            rig.run(async move {
                let reader = server.reader(stream).await.unwrap();
                assert_eq!(replayed(&reader).await.0, seen, "byte {at}");
            });
        }
    }
}

/// The copy of an entry that counts may be the only one: it is not written when the other one is mended.
#[test]
fn mending_an_entry_leaves_the_copy_that_counts_alone() {
    let rig = Rig::new(6, 6);
    let (stream, seen) = written(&rig);
    let base = segments_at(rig.device());
    let half = (base - (64 << 10)) / 2;
    for copy in 0..2 {
        let rig = rig.restarted();
        let (entry, other) = ((64 << 10) + copy * half, (64 << 10) + (1 - copy) * half);
        rig.device().flip_bit(entry + 30, 1);
        // Whatever is written there, what is read of it is not what was.
        rig.device().record();
        let server = rig.server();
        assert_eq!(rig.device().totals().writes, 1, "copy {copy}");
        let read = |at: u64| {
            let mut bytes = [0; 64];
            rig.device().image().read(at, &mut bytes);
            bytes
        };
        assert_eq!(read(entry), read(other), "copy {copy} is mended");
        let seen = seen.clone();
        rig.run(async move {
            let reader = server.reader(stream).await.unwrap();
            assert_eq!(replayed(&reader).await.0, seen);
        });
    }
}

/// A disk loses that extents were sealed, which it has acknowledged; the rows know it.
#[test]
fn what_the_rows_know_to_be_sealed_is_read_though_the_table_forgot_it() {
    let rig = Rig::new(8, 8);
    let base = segments_at(rig.device());
    let server = rig.server();
    let device = rig.device().clone();
    let (stream, seen, before) = rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        let mut seen = Vec::new();
        let mut before = None;
        for number in 0..20 {
            let append = writer.append(record(&writer, number, 2), Durable::Yes);
            seen.push(Seen::new(number, 2, &append.await.unwrap()));
            if number == 1 {
                before = Some(device.image());
            }
        }
        (stream, seen, before.unwrap())
    });
    let mut image = rig.device().image();
    let last = seen.last().unwrap().at.extent;
    assert!(last > 2);
    // The entry of the first segment, as it was when that was written.
    let half = (base - (64 << 10)) / 2;
    for copy in 0..2 {
        let mut entry = [0; 512];
        before.read((64 << 10) + copy * half, &mut entry);
        image.write((64 << 10) + copy * half, &entry);
    }
    let again = rig.after(image, rig.model.fork(1));
    let server = again.server();
    again.run(async move {
        let writer = server.open_for_writing(stream, Epoch(2)).await.unwrap();
        let (reader, others) = (writer.reader(), server.reader(stream).await.unwrap());
        for seen in &seen {
            let sums = sums_of(seen.number, seen.pages);
            reader.read(seen.at, &sums).await.unwrap();
            others.read(seen.at, &sums).await.unwrap();
        }
        assert_eq!(replayed(&reader).await.0, seen);
    });
}

#[test]
fn pages_that_the_device_does_not_give_are_named() {
    let rig = Rig::new(4, 6);
    let (stream, seen) = written(&rig);
    let base = segments_at(rig.device());
    let rig = rig.restarted();
    let server = rig.server();
    let extents = server.clone();
    let extent = rig.run(async move { extents.extents(stream).await.unwrap()[0] });
    let at = base + u64::from(extent.segment) * SEGMENT + PAGE as u64 * 2;
    rig.device().make_unreadable(at, 512);
    rig.run(async move {
        let reader = server.reader(stream).await.unwrap();
        let (found, damage) = replayed(&reader).await;
        assert!(
            matches!(damage[..], [StreamError::Damaged { .. }]),
            "{damage:?}"
        );
        let is_hit = |seen: &&Seen| {
            seen.at.extent == extent.number
                && (seen.at.page..seen.at.page + seen.pages).contains(&2)
        };
        let hit: Vec<_> = seen.iter().filter(is_hit).collect();
        assert_eq!(hit.len(), 1);
        let rest = seen.iter().filter(|seen| !is_hit(seen));
        assert!(rest.eq(&found), "all others are found: {found:?}");
        let (_, faults) = scrubbed(&server.disks()[0]).await;
        assert_eq!(faults.len(), 1);
    });
}

/// Whoever needs heads and checksums alone gets those of a frame of which a page is damaged.
#[test]
fn heads_come_from_frames_with_damaged_pages() {
    let rig = Rig::new(5, 6);
    let (stream, seen) = written(&rig);
    let base = segments_at(rig.device());
    let server = rig.server();
    let extents = rig.run(async move { server.extents(stream).await.unwrap() });
    let with_pages = seen.iter().filter(|seen| seen.pages > 0);
    for hit in with_pages.copied() {
        let is_it = |extent: &&nebula::streams::ExtentInfo| extent.number == hit.at.extent;
        let segment = extents.iter().find(is_it).unwrap().segment;
        let rig = rig.restarted();
        let at = base + u64::from(segment) * SEGMENT + u64::from(hit.at.page) * PAGE as u64;
        rig.device().flip_bit(at + 70, 2);
        let (server, seen) = (rig.server(), seen.clone());
        rig.run(async move {
            let reader = server.reader(stream).await.unwrap();
            let mut replay = reader.replay_heads(nebula::Address::default());
            let mut found = Vec::new();
            while let Some(frame) = replay.next().await.unwrap() {
                for record in frame.records() {
                    let number = u32::from_le_bytes(record.head.try_into().unwrap());
                    assert!(
                        record.sums().eq(sums_of(number, record.pages())),
                        "{number}"
                    );
                    assert_eq!(record.is_whole(), number != hit.number, "{number}");
                    assert!(frame.is_whole() || !record.is_whole() || number != hit.number);
                    found.push(number);
                }
            }
            assert!(
                found
                    .iter()
                    .copied()
                    .eq(seen.iter().map(|seen| seen.number))
            );
        });
    }
}
