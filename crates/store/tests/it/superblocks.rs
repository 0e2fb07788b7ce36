//! Which superblock counts, and what is never formatted over.

use std::ops::Range;

use block::Device;
use block::sim::{Image, SimDevice};
use store::examine::{examine, repair_superblocks};
use store::format::superblock::{SUPERBLOCK_LEN, SUPERBLOCKS, Superblock};
use store::{Options, Recovery, StoreError};

use super::regions::read;
use super::world::{World, blank, open, options, shared, with_image};

const SECTOR: usize = 512;

/// What stands where on a device that is blank elsewhere.
type Pieces<'a> = &'a [(u64, &'a [u8])];

/// A store of one key that was closed, and what its superblock says.
fn made() -> (Image, Superblock) {
    let device = blank(1, 16);
    let mut world = World::open(&device, &options(), 1).expect("a store");
    let session = world.sessions[0].clone();
    let put = world.finish(session.put(b"key", b"value"));
    put.expect("it ends").expect("put");
    let superblock = world.store.superblock();
    drop(session);
    world.close().expect("closed");
    (device.image(), superblock)
}

/// The sector of a superblock as formatting writes it before it has ended.
fn not_ready(of: &Superblock) -> Vec<u8> {
    let mut sector = vec![0; SECTOR];
    let superblock = Superblock {
        ready: false,
        ..*of
    };
    superblock.emit(&mut sector);
    sector
}

fn has_key(device: &SimDevice) {
    let store = open(device, &options()).expect("opened");
    assert_ne!(store.recovery(), Recovery::Formatted);
    let found = store.get(b"key").expect("got");
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
}

/// Whether a check finds nothing wrong.
fn is_sound(device: &SimDevice) -> bool {
    let examined = examine(&shared(device), |_, _| (), |_| ());
    examined.expect("examined").is_sound()
}

fn forced() -> Options {
    let mut options = options();
    options.force = true;
    options
}

/// Opening the device is an error and changes nothing, by force neither if it says so.
fn is_left_alone(device: &SimDevice, is_forced: bool) {
    let before = device.image();
    let mut all = vec![options()];
    all.extend(is_forced.then(forced));
    for options in all {
        let refused = open(device, &options).expect_err("no store to be formatted over");
        assert!(!refused.to_string().is_empty());
        let after = device.image();
        let len = device.geometry().len as usize;
        assert!(read(&before, 0, len) == read(&after, 0, len), "{refused}");
    }
}

/// A crash, or rot, has left one superblock as it was before formatting ended.
#[test]
fn a_superblock_that_is_not_ready_is_damage_beside_one_that_is() {
    let (image, superblock) = made();
    for (stale, other) in [(0, 1), (1, 0)] {
        let mut image = image.clone();
        image.write(SUPERBLOCKS[stale], &not_ready(&superblock));
        assert!(!is_sound(&with_image(1, image.clone())), "{stale}");
        // It is noticed, and told apart, until it is mended.
        let repaired = with_image(1, image.clone());
        assert_eq!(repair_superblocks(&shared(&repaired)).expect("mended"), 1);
        assert!(is_sound(&repaired), "{stale}");
        has_key(&repaired);
        // Opening mends it as well: it may be the only one by and by.
        let opened = with_image(1, image.clone());
        has_key(&opened);
        opened.flip_bit(SUPERBLOCKS[other] + 20, 1);
        has_key(&opened);
        // If the other one rots before that, nobody formats over what may be a store.
        for bit in 0..SUPERBLOCK_LEN as u64 * 8 {
            let rotten = with_image(1, image.clone());
            rotten.flip_bit(SUPERBLOCKS[other] + bit / 8, (bit % 8) as u8);
            // Without the magic only what else is on the device says so.
            is_left_alone(&rotten, bit >= 64);
        }
        let mut zeroed = image.clone();
        zeroed.write(SUPERBLOCKS[other], &[0; SECTOR]);
        is_left_alone(&with_image(1, zeroed), false);
    }
}

#[test]
fn what_else_is_on_a_device_is_not_formatted_over_because_of_an_old_copy() {
    let (_, superblock) = made();
    let blank = blank(1, 32);
    let with = |pieces: Pieces<'_>| {
        let mut image = blank.image();
        pieces
            .iter()
            .for_each(|(at, piece)| image.write(*at, piece));
        with_image(1, image)
    };
    let [first, copy] = SUPERBLOCKS;
    let not_ready = not_ready(&superblock);
    let table: &[u8] = &[b'x'; 17 << 10];
    // Long enough to be met by those who look at places here and there.
    let data: &[u8] = &[7; 16 << 10];
    let cases: [(Pieces<'_>, Range<u64>); 3] = [
        (&[(0, table), (copy, &not_ready), (1 << 20, data)], 0..1),
        (
            &[(copy, &not_ready), (1 << 20, data)],
            1 << 20..(1 << 20) + (16 << 10),
        ),
        (
            &[(first, &not_ready), (1 << 20, data)],
            1 << 20..(1 << 20) + (16 << 10),
        ),
    ];
    for (pieces, used) in cases {
        let device = with(pieces);
        is_left_alone(&device, false);
        let refused = open(&device, &options()).expect_err("it holds something else");
        assert!(
            matches!(refused, StoreError::NotEmpty { at, .. } if used.contains(&at)),
            "{refused}"
        );
        let store = open(&device, &forced()).expect("formatted by force");
        assert_eq!(store.recovery(), Recovery::Formatted);
    }
    // Formatting that was cut short begins anew, whichever superblock it had come to.
    let cut: [Pieces<'_>; 2] = [
        &[(first, &not_ready)],
        &[(first, &not_ready), (copy, &not_ready), (1 << 20, data)],
    ];
    for pieces in cut {
        let store = open(&with(pieces), &options()).expect("formatted");
        assert_eq!(store.recovery(), Recovery::Formatted);
    }
}
