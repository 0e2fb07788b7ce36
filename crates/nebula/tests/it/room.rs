//! Disks that are full, segments that are used again, several disks.

use block::Durable;
use block::sim::{Kind, Rates};
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

/// Fills a disk with records of so many pages.
async fn fill(writer: &nebula::Writer, pages: u32) -> Vec<Seen> {
    let mut seen = Vec::new();
    loop {
        let number = seen.len() as u32;
        match writer
            .append(record(writer, number, pages), Durable::Yes)
            .await
        {
            Ok(appended) => seen.push(Seen::new(number, pages, &appended)),
            Err(StreamError::Full { .. }) => return seen,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_device_that_fails_for_a_while_frees_all_segments_in_the_end() {
    for pass in 0..2 {
        let rig = Rig::new(10, 6);
        let server = rig.server();
        let device = rig.device().clone();
        rig.run(async move {
            let disk = server.disks()[0].clone();
            let stream = server.create().await.unwrap();
            let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
            fill(&writer, 6).await;
            assert_eq!(disk.free_segments(), 0);
            for number in 0..2 {
                // The first or the second copy of the segment's entry.
                device.fail(Kind::Write, pass, Errno::IO);
                server.release(stream, number).await.unwrap();
                assert_eq!(device.faults_to_come(), 0);
            }
            // They are freed when they are needed.
            fill(&writer, 6).await;
            assert_eq!(server.extents(stream).await.unwrap().len(), 6);
            device.fail(Kind::Write, pass, Errno::IO);
            server.release(stream, 2).await.unwrap();
            // Or with the next one.
            server.release(stream, 3).await.unwrap();
            assert_eq!(disk.free_segments(), 2);
            device.fail(Kind::Write, pass, Errno::IO);
            server.delete(stream).await.unwrap_err();
        });
        let rig = rig.restarted();
        let server = rig.server();
        let free = server.disks()[0].free_segments();
        assert_eq!(free, server.disks()[0].segments());
        rig.run(async move { assert_eq!(server.list().await.unwrap(), []) });
    }
}

/// An engine that does not know what has become of a commit, which was carried out.
#[test]
fn what_is_deleted_is_freed_whatever_the_engine_knows() {
    for pass in 0..4 {
        for fault in [meta::Fault::UnknownDone, meta::Fault::UnknownLost] {
            let rig = Rig::new(11, 6);
            let server = rig.server();
            let model = rig.model.clone();
            rig.run(async move {
                let stream = server.create().await.unwrap();
                let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
                fill(&writer, 6).await;
                drop(writer);
                model.fail(pass, fault);
                drop(server.delete(stream).await);
                assert_eq!(server.list().await.unwrap(), []);
                assert_eq!(server.disks()[0].free_segments(), 6, "{fault:?} {pass}");
            });
        }
    }
}

/// Asks for records that belong together.
fn together(
    writer: &nebula::Writer,
    records: impl Iterator<Item = nebula::Record>,
) -> Vec<nebula::Append> {
    let group = writer.group();
    let append = |record| writer.append_in(group, record, Durable::Yes);
    records.map(append).collect()
}

/// What was asked for together is there up to some record, whatever is refused or fails.
#[test]
fn of_records_that_belong_together_none_is_there_without_those_before_it() {
    for pages in 0..SEGMENT_PAGES {
        let rig = Rig::new(12, 3);
        let server = rig.server();
        rig.run(async move {
            let stream = server.create().await.unwrap();
            let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
            let mut seen = fill(&writer, 4).await;
            let before = seen.len() as u32;
            let records = [pages, 0, 1].into_iter().zip(before..);
            let records = records.map(|(pages, number)| record(&writer, number, pages));
            let appends = together(&writer, records);
            let mut is_refused = false;
            for (append, (pages, number)) in appends
                .into_iter()
                .zip([pages, 0, 1].into_iter().zip(before..))
            {
                match append.await {
                    Ok(appended) => {
                        assert!(!is_refused, "{number}");
                        seen.push(Seen::new(number, pages, &appended));
                    }
                    Err(StreamError::Full { .. }) => is_refused = true,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(is_refused, "{pages}");
            assert_eq!(replayed(&writer.reader()).await.0, seen);
            // What does not belong to them is as welcome as ever.
            let append = writer.append(record(&writer, 99, 0), Durable::Yes);
            if let Ok(appended) = append.await {
                seen.push(Seen::new(99, 0, &appended));
            } else {
                assert_eq!(pages, 0, "there was a page left");
            }
            assert_eq!(replayed(&writer.reader()).await.0, seen);
        });
    }
}

/// Whatever fails meanwhile: writes, flushes, or both.
#[test]
fn of_records_that_belong_together_none_succeeds_behind_one_that_fails() {
    let mut failed = 0;
    for pass in 0..24 {
        for kinds in [
            [Some((Kind::Write, 0)), Some((Kind::Write, 1))],
            [Some((Kind::Flush, 0)), Some((Kind::Flush, 1))],
            [Some((Kind::Write, 0)), None],
            [Some((Kind::Write, 1)), None],
        ] {
            let rig = Rig::new(13, 64);
            let server = rig.server();
            let (device, core) = (rig.device().clone(), rig.core.handle());
            let (stream, told) = rig.run(async move {
                let stream = server.create().await.unwrap();
                let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
                // Those behind it are durable only with a flush.
                drop(writer.append(record(&writer, 0, 0), Durable::No));
                for (kind, behind) in kinds.into_iter().flatten() {
                    device.fail(kind, pass + behind, Errno::IO);
                }
                if kinds[1].is_none() {
                    device.fail(Kind::Flush, pass % 3, Errno::IO);
                }
                let group = writer.group();
                let mut appends = Vec::new();
                for number in 1..30 {
                    let pages = if kinds[1].is_some() { 7 } else { number % 3 };
                    let record = record(&writer, number, pages);
                    let durable = match number % 4 {
                        0 => Durable::No,
                        _ => Durable::Yes,
                    };
                    appends.push(writer.append_in(group, record, durable));
                    if number % 2 == 0 {
                        // Several frames are under way.
                        core.yield_now().await;
                    }
                }
                let mut told = Vec::new();
                for append in appends {
                    told.push(append.await.is_ok());
                }
                device.clear_faults();
                (stream, told)
            });
            failed += usize::from(told.contains(&false));
            assert!(
                told.is_sorted_by_key(|is_ok| !is_ok),
                "{kinds:?} {pass}: {told:?}"
            );
            // Those that were refused are not there at all; the last that failed may be.
            let rig = rig.restarted();
            let server = rig.server();
            rig.run(async move {
                let writer = server.open_for_writing(stream, Epoch(2)).await.unwrap();
                let (found, _) = replayed(&writer.reader()).await;
                let numbers = found.iter().map(|seen| seen.number);
                assert!(
                    numbers.eq(0..found.len() as u32),
                    "{kinds:?} {pass}: {found:?}"
                );
            });
        }
    }
    assert!(failed > 5, "{failed} failed");
}

/// Others' records go with a group's last ones in one frame: a failure of the group is none of theirs.
#[test]
fn what_goes_with_a_group_that_fails_is_written_without_it() {
    let mut kept = 0;
    for (write, flush) in (0..10).flat_map(|write| (0..3).map(move |flush| (write, flush))) {
        let rig = Rig::new(15, 64);
        let server = rig.server();
        let (device, core) = (rig.device().clone(), rig.core.handle());
        let (stream, own, others) = rig.run(async move {
            let stream = server.create().await.unwrap();
            let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
            // Those behind it are durable only with a flush.
            drop(writer.append(record(&writer, 0, 0), Durable::No));
            core.yield_now().await;
            device.fail(Kind::Write, write, Errno::IO);
            device.fail(Kind::Flush, flush, Errno::IO);
            let (group, mut own, mut others) = (writer.group(), Vec::new(), Vec::new());
            for number in 1..10 {
                let record = record(&writer, number, number % 3);
                own.push(writer.append_in(group, record, Durable::Yes));
                if number < 8 {
                    core.yield_now().await;
                }
            }
            // In the frame of the last two.
            for number in 10..13 {
                let record = record(&writer, number, number % 3);
                others.push(writer.append(record, Durable::Yes));
            }
            let mut told = [Vec::new(), Vec::new()];
            for (appends, told) in [own, others].into_iter().zip(&mut told) {
                for append in appends {
                    told.push(append.await);
                }
            }
            device.clear_faults();
            let [own, others] = told;
            (stream, own, others)
        });
        let of = format!("write {write}, flush {flush}: {own:?}, {others:?}");
        assert!(own.is_sorted_by_key(Result::is_err), "{of}");
        // What is theirs alone can fail by the flush that it waits for.
        let is_whole = |told: &Result<_, _>| !matches!(told, Err(StreamError::NotWritten { .. }));
        assert!(others.iter().all(is_whole), "{of}");
        if matches!(own.last(), Some(Err(StreamError::NotWritten { .. }))) {
            kept += others.iter().filter(|told| told.is_ok()).count();
        }
        let rig = rig.restarted();
        let server = rig.server();
        rig.run(async move {
            let writer = server.open_for_writing(stream, Epoch(2)).await.unwrap();
            let (found, damage) = replayed(&writer.reader()).await;
            assert!(damage.is_empty(), "{of}");
            for (told, number) in own.iter().chain(&others).zip(1..) {
                let seen = found.iter().find(|seen| seen.number == number);
                if let Ok(appended) = told {
                    assert_eq!(
                        seen.map(|seen| seen.at),
                        Some(appended.at),
                        "{number}, {of}"
                    );
                }
            }
            let numbers = found.iter().map(|seen| seen.number);
            let group: Vec<u32> = numbers.filter(|number| (1..10).contains(number)).collect();
            assert!(group.iter().copied().eq(1..=group.len() as u32), "{of}");
        });
    }
    assert!(kept > 0, "none was in a frame of such a group");
}

/// A disk whose table takes no writes for a while keeps no start from opening: neither what was released nor a stream that is
/// being deleted.
#[test]
fn segments_that_cannot_be_freed_keep_no_start_from_opening() {
    let failing = Rates {
        write_error: 1.0,
        ..Rates::default()
    };
    let rig = Rig::new(14, 6);
    let server = rig.server();
    let device = rig.device().clone();
    rig.run(async move {
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        fill(&writer, 6).await;
        drop(writer);
        device.set_rates(failing);
        server.release(stream, 0).await.unwrap();
        server.delete(stream).await.unwrap_err();
        assert_eq!(server.disks()[0].free_segments(), 0);
    });
    let mut rig = rig.restarted();
    for _ in 0..2 {
        rig.device().set_rates(failing);
        let server = rig.server();
        rig.run(async move { assert_eq!(server.list().await.unwrap(), []) });
        rig = rig.restarted();
    }
    rig.device().set_rates(failing);
    let server = rig.server();
    rig.device().set_rates(Rates::default());
    rig.run(async move {
        // They are freed when they are needed.
        let stream = server.create().await.unwrap();
        let writer = server.open_for_writing(stream, Epoch(1)).await.unwrap();
        fill(&writer, 6).await;
        assert_eq!(server.extents(stream).await.unwrap().len(), 6);
        drop(writer);
        server.delete(stream).await.unwrap();
    });
    let rig = rig.restarted();
    assert_eq!(rig.server().disks()[0].free_segments(), 6);
    let rows = rig.model.rows();
    let left = rows.iter().filter(|(key, _)| key.starts_with(b"nebula/s"));
    assert_eq!(left.count(), 0);
}
