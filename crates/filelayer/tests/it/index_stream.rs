//! The index stream is there, gone, cut short or rotten: the index is the same.

use block::sim::Image;
use filelayer::{Fid, PAGE, Stability};

use super::model::SIZE;
use super::rig::{Rig, mark, options};

/// A machine with a checkpoint and something behind it; what blocks have in their pages.
fn prepared(seed: u64) -> (Rig, Vec<Fid>) {
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
        unit.close().await.unwrap();
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
    let (rig, fids) = prepared(3);
    let pages = pages_of_index(&rig);
    assert!(pages.len() >= 4, "{} pages", pages.len());
    let mut rebuilt = 0;
    for at in pages {
        for is_gone in [false, true] {
            let after = rig.crashed(at);
            if is_gone {
                let image: Image = after.device.image();
                let after = rig.after(image, after.model.fork(1));
                after.device.make_unreadable(at, PAGE as u64);
                rebuilt += u32::from(!check(&after, &fids));
            } else {
                after.device.flip_bit(at + 1000, 3);
                after.device.flip_bit(at + 8, 3);
                rebuilt += u32::from(!check(&after, &fids));
            }
        }
    }
    assert!(rebuilt >= 4, "{rebuilt} times");
}
