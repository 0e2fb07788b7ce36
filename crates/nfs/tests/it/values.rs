//! XDR's own values, and what peers do to them.

use nfs::wire::{Entry4, Fattr4, Nfsstat4, OffloadInfo4, Stateid4};
use nfs::xdr::{Chain, Decoder, Encoder, Opaque, XdrError, from_bytes, to_bytes};
use proptest::prelude::*;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn numbers_are_big_endian() {
    assert_eq!(to_bytes(&0x0102_0304_u32), [1, 2, 3, 4]);
    assert_eq!(to_bytes(&-2i32), [0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(to_bytes(&i64::MIN), [0x80, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(from_bytes(&[0, 0, 0, 1, 0, 0, 0, 0]), Ok(1u64 << 32));
    assert_eq!(from_bytes::<u64>(&[0; 7]), Err(XdrError::Short));
    assert_eq!(from_bytes::<u32>(&[0; 8]), Err(XdrError::Left(4)));
}

#[test]
fn peers_may_leave_anything_in_padding_and_in_booleans() {
    let padded = [&words(&[5])[..], b"bytes\xff\xee\xdd"].concat();
    assert_eq!(from_bytes(&padded), Ok(Opaque::<9>(b"bytes")));
    assert_eq!(to_bytes(&Opaque::<9>(b"bytes"))[9..], [0; 3]);
    assert_eq!(
        from_bytes::<Opaque<'_>>(&padded[..11]),
        Err(XdrError::Short)
    );
    for (word, truth) in [(0, false), (1, true), (2, true), (u32::MAX, true)] {
        assert_eq!(from_bytes(&words(&[word])), Ok(truth));
    }
}

#[test]
fn bounds_are_the_types_own() {
    let nine = [words(&[9]), vec![0; 12]].concat();
    assert!(from_bytes::<Opaque<'_, 9>>(&nine).is_ok());
    let refused = from_bytes::<Opaque<'_, 8>>(&nine);
    assert_eq!(refused, Err(XdrError::TooLong { len: 9, max: 8 }));
    let two = words(&[2, 1, 1]);
    assert_eq!(
        from_bytes::<Option<u32>>(&two),
        Err(XdrError::TooLong { len: 2, max: 1 })
    );
    assert_eq!(from_bytes::<Vec<u32>>(&two), Ok(vec![1, 1]));
    assert_eq!(
        from_bytes::<Vec<u32>>(&words(&[3, 1, 1])),
        Err(XdrError::Short)
    );
}

#[test]
fn a_long_list_is_no_deep_recursion() {
    let entry = Entry4 {
        cookie: 1,
        name: "a".into(),
        attrs: Fattr4 {
            attrmask: nfs::wire::Bitmap4::EMPTY,
            attr_vals: Opaque(&[]),
        },
    };
    let list = Chain(vec![entry; 200_000]);
    let bytes = to_bytes(&list);
    assert_eq!(
        from_bytes::<Chain<Entry4<'_>>>(&bytes).map(|list| list.0.len()),
        Ok(200_000)
    );
}

#[test]
fn a_default_case_may_hold_something() {
    let failed = OffloadInfo4::Default(Nfsstat4::NFS4ERR_IO, 1 << 40);
    let bytes = words(&[Nfsstat4::NFS4ERR_IO.0, 1 << 8, 0]);
    assert_eq!(to_bytes(&failed), bytes);
    assert_eq!(from_bytes(&bytes), Ok(failed));
}

#[test]
fn what_a_writer_in_place_refuses_is_taken_back() {
    let mut to = Encoder::new(vec![1, 2, 3, 4]);
    assert_eq!(to.opaque_room(1000, |_| Err::<usize, _>(7)), Err(7));
    assert_eq!(to.as_bytes(), [1, 2, 3, 4]);
    let kept = to.opaque_room(1000, |room| {
        room.fill(9);
        Ok::<_, ()>(5)
    });
    assert_eq!(kept, Ok(5));
    assert_eq!(to.as_bytes()[4..], [0, 0, 0, 5, 9, 9, 9, 9, 9, 0, 0, 0]);
}

proptest! {
    #[test]
    fn a_decoder_stays_inside(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut from = Decoder::new(&bytes);
        while from.take::<Opaque<'_>>().is_ok() {}
        let _ = Decoder::new(&bytes).take::<Chain<Entry4<'_>>>();
        let _ = Decoder::new(&bytes).take::<Vec<Stateid4>>();
    }

    #[test]
    fn bytes_put_in_place_are_those_that_are_copied(data in prop::collection::vec(any::<u8>(), 0..64), more in 0usize..8) {
        let mut copied = Encoder::default();
        copied.opaque(&data);
        let mut placed = Encoder::default();
        let kept = placed.opaque_room(data.len() + more, |room| {
            room[..data.len()].copy_from_slice(&data);
            Ok::<_, ()>(data.len())
        });
        prop_assert_eq!(kept, Ok(data.len()));
        prop_assert_eq!(placed.as_bytes(), copied.as_bytes());
        prop_assert_eq!(from_bytes(placed.as_bytes()), Ok(Opaque::<64>(&data)));
    }
}
