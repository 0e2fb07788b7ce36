//! Every page of the data stream rots, one at a time: it is named, and never served.

use filelayer::{FileError, PAGE, Stability};

use super::rig::{Rig, Size, mark, options};

const SIZE: Size = Size {
    segment_pages: 16,
    segments: 16,
};

#[test]
fn a_rotten_page_is_named_and_all_others_are_served() {
    let mut without_cache = options();
    without_cache.cache_bytes = 0;
    let rig = Rig::new(1, SIZE);
    let unit = rig.unit(without_cache.clone());
    let fids = rig.run(async move {
        let fids = unit.allocate(6).await.unwrap();
        for (i, fid) in (1..).zip(&fids) {
            unit.write(*fid, 0, &[i; 5 * PAGE], mark(1), Stability::Stable)
                .await
                .unwrap();
            let offset = 2 * PAGE as u32;
            unit.write(*fid, offset, &[i + 50; PAGE], mark(1), Stability::Stable)
                .await
                .unwrap();
        }
        unit.checkpoint().await.unwrap();
        unit.close().await.unwrap();
        fids
    });
    let pages = rig.device.image().len() / PAGE as u64;
    let (mut named, mut refused) = (0, 0);
    for page in 0..pages {
        let after = rig.crashed(page);
        let mut first = [0; 4];
        after.device.image().read(page * PAGE as u64, &mut first);
        let is_header = first == *b"nbfr";
        after.device.flip_bit(page * PAGE as u64 + 2000, 1);
        after.device.flip_bit(page * PAGE as u64 + 20, 1);
        // What stands before the segments is nebula's, and has its own tests.
        let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| after.server()));
        if opened.is_err() {
            continue;
        }
        let unit = match after.try_unit(without_cache.clone()) {
            Ok(unit) => unit,
            Err(error) => {
                let is_named = matches!(
                    error,
                    FileError::Stream(
                        nebula::StreamError::Damaged { .. } | nebula::StreamError::Extent(_)
                    )
                );
                assert!(is_named, "page {page}: {error}");
                assert!(is_header, "page {page}: what it holds is all that is lost");
                refused += 1;
                continue;
            }
        };
        let fids = fids.clone();
        named += after.run(async move {
            let mut named = 0;
            for (i, fid) in (1..).zip(&fids) {
                for at in 0..5u16 {
                    let mut out = Vec::new();
                    let offset = u32::from(at) * PAGE as u32;
                    let wanted = if at == 2 { i + 50 } else { i };
                    match unit.read(*fid, offset, PAGE as u32, &mut out).await {
                        Ok(()) => assert!(out == vec![wanted; PAGE], "page {page}: {fid}, {at}"),
                        Err(FileError::BadPage {
                            fid: of, page: bad, ..
                        }) => {
                            assert_eq!((of, bad), (*fid, at), "page {page}");
                            assert!(out.is_empty());
                            named += 1;
                        }
                        Err(error) => panic!("page {page}: {error}"),
                    }
                }
            }
            named
        });
    }
    assert!(
        named > 0 && named + refused >= 30,
        "{named} named, {refused} refused"
    );
}
