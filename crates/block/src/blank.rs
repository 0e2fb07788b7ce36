//! Whether a device is in use.

use std::ops::Range;

use super::{BlockError, Device, Disk};

/// How much at a device's beginning and end must be zero before anything is made there.
const BLANK: u64 = 1 << 20;
/// How many places between must be.
const BLANK_PLACES: u64 = 256;

/// The first byte that is found not to be zero: at the beginning of a device, at its end, or in places
/// between, all over it. File systems, partition tables, volume managers and whatever else keep what they
/// know themselves by within a MiB of either end. No list of them is asked, which would miss some.
///
/// # Errors
/// What the device says.
pub async fn first_used(device: &dyn Device, disk: &Disk) -> Result<Option<u64>, BlockError> {
    first_used_but(device, disk, 0..0).await
}

/// The same, whatever stands in these bytes.
///
/// # Errors
/// What the device says.
pub async fn first_used_but(
    device: &dyn Device,
    disk: &Disk,
    but: Range<u64>,
) -> Result<Option<u64>, BlockError> {
    let geometry = device.geometry();
    let block = u64::from(geometry.block.max(512));
    let ends = BLANK.next_multiple_of(block).min(geometry.len);
    let down = |at: u64| at - at % block;
    let apart = geometry.len / BLANK_PLACES;
    let between = (1..BLANK_PLACES).map(|place| (down(place * apart), block));
    let places = std::iter::once((0, ends))
        .chain([(down(geometry.len - ends), ends)])
        .chain(between);
    for (at, len) in places {
        let len = len.min(down(geometry.len) - at);
        let (result, buf) = disk.read(disk.buffer(len as usize), at).await;
        result?;
        let mut bytes = (at..).zip(buf.iter());
        if let Some((used, _)) = bytes.find(|(at, byte)| **byte != 0 && !but.contains(at)) {
            return Ok(Some(used));
        }
    }
    Ok(None)
}
