//! Records, however they are cut.

use nfs::rpc::{RecordError, Records, put_record};
use nfs::xdr::Encoder;
use proptest::prelude::*;

const LAST: u32 = 1 << 31;

/// A record as a stream delivers it, in fragments that end at these places and at its end.
fn stream_of(record: &[u8], ends: &[usize]) -> Vec<u8> {
    let mut ends: Vec<usize> = ends.iter().map(|end| end % (record.len() + 1)).collect();
    ends.sort_unstable();
    ends.push(record.len());
    let (mut stream, mut begin) = (Vec::new(), 0);
    for (at, &end) in ends.iter().enumerate() {
        let last = if at + 1 == ends.len() { LAST } else { 0 };
        let size = u32::try_from(end - begin).expect("a small record");
        stream.extend_from_slice(&(size | last).to_be_bytes());
        stream.extend_from_slice(&record[begin..end]);
        begin = end;
    }
    stream
}

/// What is found in a stream that arrives in pieces of these sizes, again and again.
fn found(stream: &[u8], pieces: &[usize], max: usize) -> Result<Vec<Vec<u8>>, RecordError> {
    let mut records = Records::new(max);
    let mut all = Vec::new();
    let (mut rest, mut sizes) = (stream, pieces.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().map_or(1, |size| *size).min(rest.len());
        records.buffer().extend_from_slice(&rest[..size]);
        rest = &rest[size..];
        while let Some(record) = records.next_record()? {
            let lent = record.to_vec();
            let kept = records.keep();
            assert_eq!(*kept, lent[..]);
            all.push(kept);
        }
        let held = records.buffer().len();
        assert!(held <= 2 * max + size + 8, "{held} bytes are kept");
    }
    assert!(records.is_between());
    // Whatever came later, they are as they were.
    Ok(all.iter().map(|record| record.to_vec()).collect())
}

proptest! {
    #[test]
    fn records_come_out_as_they_went_in(
        sent in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), prop::collection::vec(any::<usize>(), 0..6)), 0..20),
        pieces in prop::collection::vec(1usize..300, 1..8),
    ) {
        let stream: Vec<u8> = sent.iter().flat_map(|(record, ends)| stream_of(record, ends)).collect();
        let records: Vec<Vec<u8>> = sent.into_iter().map(|(record, _)| record).collect();
        prop_assert_eq!(found(&stream, &pieces, 200), Ok(records));
    }
}

#[test]
fn fragments_of_nothing_and_of_single_bytes() {
    let record: Vec<u8> = (0..=255).collect();
    let ends: Vec<usize> = (0..=255).flat_map(|end| [end, end]).collect();
    let stream = stream_of(&record, &ends);
    assert_eq!(stream.len(), 256 + 4 * 513);
    for piece in [1, 2, 3, 5, 1000, 10_000] {
        assert_eq!(
            found(&stream, &[piece], 256),
            Ok(vec![record.clone()]),
            "{piece}"
        );
    }
    assert_eq!(found(&stream_of(&[], &[]), &[1], 0), Ok(vec![vec![]]));
}

#[test]
fn a_record_above_the_bound_ends_the_stream_before_memory_is_taken() {
    let max = 100;
    for (stream, announced) in [
        (vec![0x7f, 0xff, 0xff, 0xff], u64::from(u32::MAX >> 1)),
        (
            [&[0, 0, 0, 60][..], &[1; 60], &[0x80, 0, 0, 41]].concat(),
            101,
        ),
    ] {
        let mut records = Records::new(max);
        records.buffer().extend_from_slice(&stream);
        let held = records.buffer().capacity();
        let refused = RecordError { announced, max };
        assert_eq!(records.next_record(), Err(refused));
        assert_eq!(records.buffer().capacity(), held);
    }
    let whole = stream_of(&[1; 100], &[30]);
    assert_eq!(found(&whole, &[7], max).map(|all| all.len()), Ok(1));
}

#[test]
fn the_bytes_that_were_handed_out_are_dropped_without_growing() {
    let mut records = Records::new(1000);
    let mut to = Encoder::default();
    put_record(&mut to, |to| to.bytes(&[7; 600]));
    for _ in 0..1000 {
        records.buffer().extend_from_slice(to.as_bytes());
        assert_eq!(records.next_record(), Ok(Some(&[7; 600][..])));
        assert_eq!(records.next_record(), Ok(None));
    }
    assert!(records.buffer().capacity() < 4 * 604);
}

#[test]
fn a_long_record_is_kept_where_it_lies() {
    let mut records = Records::new(1 << 20);
    let (long, short) = (vec![7; 200 << 10], [8; 100]);
    let mut to = Encoder::default();
    put_record(&mut to, |to| to.bytes(&long));
    put_record(&mut to, |to| to.bytes(&short));
    let stream = to.as_bytes();
    for _ in 0..3 {
        // The second one is cut within its marker, and within its bytes.
        for cut in [2, 54] {
            let (first, second) = stream.split_at(stream.len() - 104 + cut);
            records.buffer().extend_from_slice(first);
            let lies = records.next_record().expect("a record").map(<[u8]>::as_ptr);
            let kept = records.keep();
            assert_eq!(Some(kept.as_ptr()), lies, "it was not copied");
            assert_eq!(records.next_record(), Ok(None));
            records.buffer().extend_from_slice(second);
            assert_eq!(records.next_record(), Ok(Some(&short[..])));
            let copied = records.keep();
            assert!(records.is_between());
            assert_eq!((*kept == long[..], *copied == short), (true, true));
        }
    }
}
