//! The index stream is there, gone, cut short or rotten: the index is the same.

use block::sim::{Kind, Rates};
use filelayer::{Fid, Flaw, PAGE, Stability};
use rustix::io::Errno;

use super::model::SIZE;
use super::rig::{Rig, Size, mark, options};

/// A machine with a checkpoint and something behind it; what blocks have in their pages.
fn prepared(seed: u64) -> (Rig, Vec<Fid>) {
    left(seed, true)
}

/// The same, ended in order or not.
fn left(seed: u64, is_closed: bool) -> (Rig, Vec<Fid>) {
    let rig = Rig::new(seed, SIZE);
    let unit = rig.unit(options());
    let fids = rig.run(async move {
        let fids = unit.allocate(20).await.unwrap();
        for (i, fid) in (0..).zip(&fids) {
            let bytes = [i + 1; 5 * PAGE];
            unit.write(*fid, 0, &bytes, mark(1), Stability::Stable)
                .await
                .unwrap();
        }
        assert!(unit.checkpoint().await.unwrap() > 0);
        unit.snapshot(filelayer::Volume(7), 1).await.unwrap();
        unit.checkpoint().await.unwrap();
        unit.write(fids[0], 0, &[99; PAGE], mark(2), Stability::Stable)
            .await
            .unwrap();
        unit.free(fids[1], 2, Stability::Stable).await.unwrap();
        if is_closed {
            unit.close().await.unwrap();
        }
        fids
    });
    (rig, fids)
}

/// Opens the dataunit and looks whether all is there. Returns whether a checkpoint was used.
fn check(rig: &Rig, fids: &[Fid]) -> bool {
    let unit = rig.unit(options());
    let fids = fids.to_vec();
    let from_checkpoint = unit.recovery().from_checkpoint;
    rig.run(async move {
        for (i, fid) in (0..).zip(&fids) {
            let mut out = Vec::new();
            unit.read(*fid, 0, 5 * PAGE as u32, &mut out).await.unwrap();
            let kinds: Vec<u8> = out.chunks(PAGE).map(|page| page[5]).collect();
            let wanted = match i {
                0 => [99, 1, 1, 1, 1],
                1 => [0; 5],
                i => [i + 1; 5],
            };
            assert_eq!(kinds, wanted, "{fid}");
        }
        let mut out = Vec::new();
        unit.read_snapshot(fids[1], 1, (0, 100), &mut out)
            .await
            .unwrap();
        assert_eq!(out, [2; 100]);
        assert_eq!(unit.verify().await.unwrap().difference, None);
    });
    from_checkpoint
}

/// Where the pages of the index stream are: its frames tell (`docs/design/nebula.md`).
fn pages_of_index(rig: &Rig) -> Vec<u64> {
    let server = rig.server();
    let index = rig.run(async move { server.list().await.unwrap()[1] });
    let image = rig.device.image();
    let mut found = Vec::new();
    for at in (0..image.len()).step_by(PAGE) {
        let mut header = [0; 44];
        image.read(at, &mut header);
        let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        if header.starts_with(b"nbfr") && number(16) == index.0 {
            let pages = u32::from_le_bytes(header[40..44].try_into().unwrap());
            found.extend((0..u64::from(pages)).map(|page| at + page * PAGE as u64));
        }
    }
    found
}

#[test]
fn a_checkpoint_makes_recovery_short() {
    let (rig, fids) = prepared(1);
    assert!(check(&rig.crashed(1), &fids));
    let unit = rig.crashed(2).unit(options());
    let all = rig.crashed(2);
    let whole = all.unit(options()).recovery();
    assert!(unit.recovery().records <= whole.records);
}

#[test]
fn without_the_index_stream_the_index_is_rebuilt() {
    let (rig, fids) = prepared(2);
    let rig = rig.crashed(1);
    let server = rig.server();
    rig.run(async move {
        let index = server.list().await.unwrap()[1];
        server.delete(index).await.unwrap();
        // What the dataunit's row still names.
        server.create().await.unwrap();
    });
    assert!(!check(&rig, &fids));
}

#[test]
fn any_page_of_the_index_stream_may_be_rotten_or_gone() {
    for is_closed in [true, false] {
        let (rig, fids) = left(3, is_closed);
        let pages = pages_of_index(&rig);
        assert!(pages.len() >= 4, "{} pages", pages.len());
        let mut rebuilt = 0;
        for at in pages {
            for is_gone in [false, true] {
                let after = rig.crashed(at);
                if is_gone {
                    after.device.make_unreadable(at, PAGE as u64);
                } else {
                    after.device.flip_bit(at + 1000, 3);
                    after.device.flip_bit(at + 8, 3);
                }
                examined(&after);
                rebuilt += u32::from(!check(&after, &fids));
            }
        }
        // What nobody has ended is cut before its first damaged page: there is an older checkpoint.
        assert!(rebuilt >= 4, "{rebuilt} times, ended in order: {is_closed}");
    }
}

/// A check says that the next start can do without the checkpoints, and no more.
fn examined(rig: &Rig) {
    let examined = rig.examined();
    assert!(!examined.is_lacking, "{:?}", examined.flaws);
    let is_of_index = |flaw: &Flaw| matches!(flaw, Flaw::Checkpoints(_) | Flaw::Lost { .. });
    assert!(
        examined.flaws.iter().all(is_of_index),
        "{:?}",
        examined.flaws
    );
}

/// Nobody knows any more what the segments of the index stream hold.
#[test]
fn the_table_may_know_nothing_of_the_index_stream() {
    for is_closed in [true, false] {
        let (rig, fids) = left(6, is_closed);
        let server = rig.server();
        let extents = rig.run(async move {
            let index = server.list().await.unwrap()[1];
            server.extents(index).await.unwrap()
        });
        for extent in extents {
            let after = rig.crashed(1);
            for copy in 0..2 {
                let at = after.entry_at(copy, extent.segment);
                after.device.flip_bit(at + 20, 2);
            }
            examined(&after);
            check(&after, &fids);
        }
    }
}

/// A checkpoint that cannot be read once may be there again the next time: what it does not know of must not have been
/// forgotten meanwhile.
#[test]
fn a_checkpoint_that_comes_back_brings_nothing_back() {
    for writes_another in [false, true] {
        for is_closed in [false, true] {
            let rig = Rig::new(7, SIZE);
            let unit = rig.unit(options());
            let fids = rig.run(async move {
                let fids = unit.allocate(40).await.unwrap();
                for fid in &fids {
                    let write = unit.write(*fid, 0, &[1; 5 * PAGE], mark(1), Stability::Stable);
                    write.await.unwrap();
                }
                // Whatever is older is gone, but for what the checkpoint knows.
                unit.checkpoint().await.unwrap();
                for fid in &fids[..20] {
                    unit.free(*fid, 1, Stability::Stable).await.unwrap();
                }
                if is_closed {
                    unit.close().await.unwrap();
                }
                fids
            });
            let readable = rig.crashed(1);
            let hidden = readable.crashed(1);
            for at in pages_of_index(&readable) {
                hidden.device.make_unreadable(at, PAGE as u64);
            }
            let unit = hidden.unit(options());
            assert!(!unit.recovery().from_checkpoint);
            hidden.run(async move {
                if writes_another {
                    unit.checkpoint().await.unwrap();
                }
                let mut released = 0;
                for _ in 0..200 {
                    released += unit.step(64).await.unwrap().released;
                }
                assert!(released > 3, "{released} released");
            });
            // What could not be read is the same as ever.
            let again = hidden.crashed(2);
            let unit = again.unit(options());
            again.run(async move {
                for (i, fid) in (0..).zip(fids) {
                    let mut out = Vec::new();
                    let read = unit.read(fid, 0, 5 * PAGE as u32, &mut out);
                    read.await.unwrap();
                    assert_eq!(out, [u8::from(i >= 20); 5 * PAGE], "{fid}");
                }
                assert_eq!(unit.verify().await.unwrap().difference, None);
            });
        }
    }
}

/// Extents of the index stream.
fn extents_of_index(rig: &Rig, unit: &filelayer::DataUnit) -> usize {
    let of_index = [&b"nebula/x"[..], &unit.streams().index.0.to_be_bytes()].concat();
    let rows = rig.model.rows();
    rows.iter()
        .filter(|(key, _)| key.starts_with(&of_index))
        .count()
}

#[test]
fn a_checkpoint_that_fails_keeps_no_extents() {
    let size = Size {
        segment_pages: 16,
        segments: 700,
    };
    let rig = Rig::new(4, size);
    let unit = rig.unit(options());
    let all = unit.clone();
    rig.run(async move {
        for fid in all.allocate(3000).await.unwrap() {
            let write = all.write(fid, 0, b"x", mark(1), Stability::Unstable);
            write.await.unwrap();
        }
        all.checkpoint().await.unwrap();
    });
    let whole = extents_of_index(&rig, &unit);
    assert!(whole > 2, "{whole} extents");
    let mut failed = 0;
    for round in 0..12 {
        let all = unit.clone();
        rig.run(async move {
            let fid = all.allocate(1).await.unwrap()[0];
            let write = all.write(fid, 0, b"y", mark(1), Stability::Stable);
            write.await.unwrap();
        });
        let all = unit.clone();
        let mut task = rig
            .core
            .handle()
            .spawn(async move { all.checkpoint().await });
        rig.turns(20 * round);
        // The device writes nothing for a while.
        rig.device.set_rates(Rates {
            write_error: 1.0,
            ..Rates::default()
        });
        while !task.is_finished() {
            rig.turn();
        }
        rig.device.set_rates(Rates::default());
        failed += u32::from(task.try_take().unwrap().unwrap().is_err());
        // Those that are written, and those that are ready to be.
        let now = extents_of_index(&rig, &unit);
        assert!(
            now <= whole + 2,
            "round {round}: {now} extents after {whole}"
        );
    }
    assert!(failed > 1, "{failed} failed");
}

/// An error that may pass says nothing of checkpoints: they stay.
#[test]
fn an_error_that_may_pass_costs_no_checkpoints() {
    let (rig, fids) = prepared(5);
    let index = rig.unit(options()).streams().index;
    let mut failed = 0;
    for kind in [Kind::Write, Kind::Flush] {
        for pass in 0..12 {
            let after = rig.crashed(pass);
            let server = after.server();
            let streams = filelayer::UnitStreams {
                data: after.run(async move { server.list().await.unwrap()[0] }),
                index,
            };
            after.device.fail(kind, pass, Errno::IO);
            let opened = after.try_unit(options());
            after.device.clear_faults();
            failed += u32::from(opened.is_err());
            if let Ok(opened) = opened {
                assert_eq!(opened.streams(), streams, "{kind:?} {pass}");
                continue;
            }
            let server = after.server();
            let all = after.run(async move { server.list().await.unwrap() });
            assert_eq!(all, [streams.data, index], "{kind:?} {pass}");
            assert!(
                check(&after, &fids),
                "{kind:?} {pass}: without its checkpoint"
            );
        }
    }
    assert!(failed > 2, "{failed} failed");
}

/// Unstable writes end while a checkpoint is written, and a flush fails: whatever of the checkpoint survives, it does not
/// name pages that do not.
#[test]
fn a_checkpoint_names_nothing_that_the_power_may_take() {
    let size = Size {
        segment_pages: 16,
        segments: 300,
    };
    let (mut failed, mut used) = (0, 0);
    for flush in 0..10 {
        let rig = Rig::new(8, size);
        let unit = rig.unit(options());
        let all = unit.clone();
        let fids = rig.run(async move {
            let fids = all.allocate(1500).await.unwrap();
            for some in fids.chunks(13) {
                for fid in some {
                    let write = all.write(*fid, 0, &[1; 9], mark(1), Stability::Unstable);
                    write.await.unwrap();
                }
            }
            all.commit(&[]).await.unwrap();
            fids
        });
        rig.device.fail(Kind::Flush, flush, Errno::IO);
        let (all, list) = (unit.clone(), fids.clone());
        let writing = rig.core.handle().spawn(async move {
            for fid in list.iter().rev() {
                let write = all.write(*fid, 0, &[2; 9], mark(1), Stability::Unstable);
                drop(write.await);
            }
        });
        for _ in 0..3 {
            let all = unit.clone();
            rig.run(async move { drop(all.checkpoint().await) });
            for seed in 0..4 {
                let after = rig.crashed(seed);
                let unit = after.unit(options());
                used += u32::from(unit.recovery().from_checkpoint);
                let fids = fids.clone();
                after.run(async move {
                    for fid in fids {
                        let mut out = Vec::new();
                        let read = unit.read(fid, 0, 9, &mut out).await;
                        read.unwrap_or_else(|error| panic!("flush {flush}, crash {seed}: {error}"));
                        assert!([[1; 9], [2; 9]].contains(&out[..].try_into().unwrap()));
                    }
                    assert_eq!(unit.verify().await.unwrap().difference, None);
                });
            }
        }
        failed += u32::from(rig.device.faults_to_come() == 0);
        drop(writing);
    }
    assert!(failed > 3 && used > 10, "{failed} failed, {used} used");
}

/// A check says whether the next start opens, whatever extent of the data is gone: from the disk's table, or from the rows.
#[test]
fn a_check_tells_whether_what_is_lost_is_needed() {
    let (mut opened, mut failed) = (0, 0);
    for is_closed in [true, false] {
        let (rig, _) = left(9, is_closed);
        let server = rig.server();
        let extents = rig.run(async move {
            let mut extents = Vec::new();
            for stream in server.list().await.unwrap() {
                let of = server.extents(stream).await.unwrap().into_iter();
                extents.extend(of.map(|info| (stream, info)));
            }
            extents
        });
        for (stream, extent) in extents {
            for is_row in [false, true] {
                let after = rig.crashed(1);
                if is_row {
                    let engine = after.model.handle();
                    after.run(async move {
                        let (stream, number) =
                            (stream.0.to_be_bytes(), extent.number.to_be_bytes());
                        let key = [&b"nebula/x"[..], &stream, &number].concat();
                        assert!(engine.get(&key).await.unwrap().is_some());
                        let mut delete = meta::Transaction::new();
                        delete.delete(key).unwrap();
                        engine.commit(delete).await.unwrap();
                    });
                } else {
                    for copy in 0..2 {
                        let at = after.entry_at(copy, extent.segment);
                        after.device.flip_bit(at + 20, 2);
                    }
                }
                let examined = after.examined();
                let unit = after.try_unit(options());
                assert_eq!(
                    examined.is_lacking,
                    unit.is_err(),
                    "{stream}, {extent:?}, by its row: {is_row}, ended in order: {is_closed}: {:?}, {:?}",
                    examined.flaws,
                    unit.err()
                );
                match examined.is_lacking {
                    true => failed += 1,
                    false => opened += 1,
                }
            }
        }
    }
    assert!(opened > 3 && failed > 3, "{opened} opened, {failed} failed");
}

/// Numbers of the checkpoints that were begun, as their first parts tell (`docs/design/filelayer.md`).
fn numbers(rig: &Rig) -> Vec<u64> {
    let image = rig.device.image();
    let mut found = Vec::new();
    for at in pages_of_index(rig) {
        let mut page = [0; 128];
        image.read(at, &mut page);
        let head = &page[68..];
        let is_first = head[0] == 8 && head[32..36] == [0; 4];
        if page.starts_with(b"nbfr") && is_first {
            found.push(u64::from_le_bytes(head[8..16].try_into().unwrap()));
        }
    }
    found
}

/// A checkpoint of which the last flush has failed may be on the medium all the same: no other one has its number.
#[test]
fn no_number_of_a_checkpoint_is_used_twice() {
    let mut failed = 0;
    for flush in 0..4 {
        let rig = Rig::new(10, SIZE);
        let unit = rig.unit(options());
        let device = rig.device.clone();
        failed += rig.run(async move {
            let fid = unit.allocate(1).await.unwrap()[0];
            let mut failed = 0;
            for round in 0..6 {
                let bytes = [round; 9];
                let write = unit.write(fid, 0, &bytes, mark(1), Stability::Unstable);
                write.await.unwrap();
                if round == 1 {
                    device.fail(Kind::Flush, flush, Errno::IO);
                }
                failed += u32::from(unit.checkpoint().await.is_err());
                while !unit.step(64).await.is_ok_and(|done| done.is_idle) {}
            }
            failed
        });
        let mut numbers = numbers(&rig);
        assert!(numbers.len() > 2, "{numbers:?}");
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }
    assert!(failed > 1, "{failed} failed");
}

/// Ends of files that stand in their rows go with the records that have told them, whatever a checkpoint of before
/// has of them.
#[test]
fn an_end_that_was_forgotten_is_missed_by_nobody() {
    let size = Size {
        segment_pages: 16,
        segments: 20,
    };
    let rig = Rig::new(3, size);
    let unit = rig.unit(options());
    rig.run(async move {
        let fid = unit.allocate(1).await.unwrap()[0];
        let mut told = mark(1);
        told.end = 5000;
        let write = async |mark| {
            let bytes = [1; 2 * PAGE];
            let written = unit.write(fid, 0, &bytes, mark, Stability::Stable).await;
            written.expect("room");
        };
        write(told).await;
        unit.checkpoint().await.expect("room");
        unit.forget_end(&told.handle);
        for _ in 0..20 {
            write(mark(1)).await;
        }
        let mut released = 0;
        loop {
            let done = unit.step(64).await.expect("nothing fails");
            released += done.released;
            if done.is_idle {
                break;
            }
        }
        assert!(released > 0, "the record has gone");
        unit.close().await.expect("nothing fails");
    });
    let flaws = rig.examined().flaws;
    assert!(flaws.is_empty(), "{flaws:?}");
}
