//! A lane of the software NIC, whose writer writes any words into it at any time.

use arbitrary::{Arbitrary, Unstructured};
use nic_soft::outside::{LANE_BYTES, Lane, Read};

use crate::spelt;

const DEEDS_MAX: usize = 400;
/// Bytes of a line.
const LINE: usize = 64;
/// Bytes before a line's payload.
const HEADER: usize = 16;
const LINES: usize = LANE_BYTES / LINE;
/// Bytes of a piece at most.
const PIECE_MAX: usize = 4096;

/// Kinds, as the design's page numbers them.
const PAD: u8 = 1;
const SEND: u8 = 2;
const KINDS: std::ops::RangeInclusive<u8> = 1..=7;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Deed<'a> {
    /// Any words anywhere.
    Write {
        at: u16,
        bytes: &'a [u8],
    },
    /// A message's first word where the reader looks next, or some lines further on.
    Header {
        ahead: u8,
        lap_ahead: u8,
        kind: u8,
        flags: u8,
        len: u32,
    },
    /// The same, up to the end of the lane.
    Pad {
        less: u8,
    },
    /// The writer goes on to the last lines of the lane with short messages.
    Rush {
        left: u8,
    },
    Read(u8),
}

struct Scene {
    lane: Lane,
    /// The lane's bytes, read in the plainest way.
    bytes: Vec<u8>,
    gave_up: bool,
}

/// Does what the input spells.
///
/// # Panics
/// When the reader takes what is no message, or bytes from elsewhere.
pub fn run(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let mut scene = Scene {
        lane: Lane::default(),
        bytes: vec![0; LANE_BYTES],
        gave_up: false,
    };
    for deed in spelt(&mut input, DEEDS_MAX) {
        if scene.gave_up {
            break;
        }
        scene.deed(&deed);
    }
    scene.read(LINES + 1);
}

impl Scene {
    fn write(&mut self, at: usize, word: u64) {
        self.lane.write(at, word);
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn header(&mut self, line: usize, lap: u16, kind: u8, flags: u8, len: u32) {
        let word =
            u64::from(lap) | u64::from(kind) << 16 | u64::from(flags) << 24 | u64::from(len) << 32;
        self.write(line * LINE, word);
    }

    fn deed(&mut self, deed: &Deed<'_>) {
        let (place, lap) = self.lane.place();
        match *deed {
            Deed::Write { at, bytes } => {
                for (index, word) in bytes.chunks_exact(8).enumerate() {
                    let at = (usize::from(at) * 8 + index * 8) % LANE_BYTES;
                    let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                    self.write(at, word);
                }
            }
            Deed::Header {
                ahead,
                lap_ahead,
                kind,
                flags,
                len,
            } => {
                let line = (place + usize::from(ahead % 80)) % LINES;
                let lap = lap.wrapping_add((lap_ahead % 3).into());
                // Mostly lengths that may be.
                let len = if len % 4 == 0 { len } else { len % 5000 };
                self.header(line, lap, kind % 9, flags, len);
            }
            Deed::Pad { less } => {
                let len = (LINES - place).saturating_sub((less % 3).into());
                self.header(place, lap, PAD, 0, len as u32);
            }
            Deed::Rush { left } => {
                let end = LINES.saturating_sub(left.into()).max(place);
                for line in place..end {
                    self.header(line, lap, SEND, 3, 8);
                }
                self.read(end - place);
            }
            Deed::Read(count) => self.read(count.into()),
        }
    }

    fn read(&mut self, count: usize) {
        for _ in 0..count {
            let before = self.lane.place();
            let found = self.lane.read();
            let after = self.lane.place();
            match found {
                Read::Nothing => {
                    // At most a pad was passed.
                    assert!(after == before || after.0 == 0, "{before:?} {after:?}");
                    return;
                }
                Read::Garbage => {
                    self.gave_up = true;
                    return;
                }
                Read::Message { bytes, len, .. } => {
                    let line = if self.is_pad(before) { 0 } else { before.0 };
                    self.check(line, &bytes, len, after.0);
                }
            }
            assert!(self.lane.consumed() <= LINES as u64 * u64::from(u16::MAX));
        }
    }

    fn word(&self, line: usize) -> u64 {
        let bytes = &self.bytes[line * LINE..line * LINE + 8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    fn is_pad(&self, (line, lap): (usize, u16)) -> bool {
        let word = self.word(line);
        word as u16 == lap && (word >> 16) as u8 == PAD
    }

    /// The message at a line is the one that lies there.
    fn check(&self, line: usize, bytes: &[u8], len: u32, next: usize) {
        let word = self.word(line);
        let kind = (word >> 16) as u8;
        assert!(
            KINDS.contains(&kind) && kind != PAD,
            "a message of kind {kind}"
        );
        assert_eq!(len, (word >> 32) as u32);
        let lines = if kind == SEND {
            assert!(len as usize <= PIECE_MAX, "{len} bytes in a piece");
            let start = line * LINE + HEADER;
            assert_eq!(bytes, &self.bytes[start..start + len as usize]);
            (HEADER + len as usize).div_ceil(LINE)
        } else {
            assert!(bytes.is_empty());
            1
        };
        assert!(line + lines <= LINES, "a message crosses the lane's end");
        assert_eq!(next, (line + lines) % LINES);
    }
}
